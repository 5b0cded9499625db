//! The tensors of a call, as tasks share them.

use super::STREAMED_BYTES;
use std::marker::PhantomData;
use std::mem::MaybeUninit;

/// Memory that tasks write parts of.
#[derive(Clone, Copy)]
pub struct Shared<'a, T> {
    first: *mut T,
    len: usize,
    memory: PhantomData<&'a mut [MaybeUninit<T>]>,
}

// SAFETY: each task accesses elements of its own, by the obligations of the methods, and `T` can be sent.
unsafe impl<T: Send> Send for Shared<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Shared<'_, T> {}

impl<'a, T> Shared<'a, T> {
    pub fn new(memory: &'a mut [MaybeUninit<T>]) -> Self {
        Self {
            first: memory.as_mut_ptr().cast(),
            len: memory.len(),
            memory: PhantomData,
        }
    }

    /// Writes `B` elements from `index` on.
    ///
    /// # Safety
    /// They are elements of the memory, and no other task accesses them.
    #[inline(always)]
    pub unsafe fn write<const B: usize>(self, index: usize, values: [T; B]) {
        debug_assert!(index + B <= self.len);
        // SAFETY: says the caller; an array is aligned as its elements are.
        unsafe { self.first.add(index).cast::<[T; B]>().write(values) }
    }
}

/// The inputs, and the outputs, which are of one length.
#[derive(Clone, Copy)]
pub struct Tensors<'a, T, const N: usize, const K: usize> {
    inputs: [&'a [T]; N],
    outputs: [Shared<'a, T>; K],
    /// Whether the outputs are too large to be found in a cache later.
    are_streamed: bool,
}

impl<'a, T: Copy, const N: usize, const K: usize> Tensors<'a, T, N, K> {
    pub fn new(inputs: [&'a [T]; N], outputs: [&'a mut [MaybeUninit<T>]; K]) -> Self {
        let outputs = outputs.map(Shared::new);
        let len = outputs[0].len;
        assert!(outputs.iter().all(|output| output.len == len));
        Self {
            inputs,
            outputs,
            are_streamed: len * size_of::<T>() >= STREAMED_BYTES,
        }
    }

    /// `B` elements of input `k`, from `index` on, so far from one to the next.
    ///
    /// # Safety
    /// It has them.
    #[inline(always)]
    pub unsafe fn read<const B: usize>(&self, k: usize, index: usize, stride: usize) -> [T; B] {
        let input = self.inputs[k];
        if stride == 1 {
            debug_assert!(index + B <= input.len());
            // SAFETY: says the caller; an array is aligned as its elements are.
            return unsafe { input.as_ptr().add(index).cast::<[T; B]>().read() };
        }
        std::array::from_fn(|number| {
            let index = index.wrapping_add(number.wrapping_mul(stride));
            debug_assert!(index < input.len());
            // SAFETY: says the caller.
            unsafe { *input.get_unchecked(index) }
        })
    }

    /// Asks for the line of memory with an element of input `k`, if it has it.
    #[inline(always)]
    pub fn prefetch(&self, k: usize, index: usize) {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            let address = self.inputs[k].as_ptr().wrapping_add(index);
            // SAFETY: a hint accesses no memory that the program could tell.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = (k, index);
    }

    /// The lengths of the inputs.
    pub fn lengths(&self) -> [usize; N] {
        self.inputs.map(<[T]>::len)
    }

    /// Writes `B` elements of output `k`, from `index` on.
    ///
    /// # Safety
    /// It has them, and no other task accesses them.
    #[inline(always)]
    pub unsafe fn write<const B: usize>(&self, k: usize, index: usize, values: [T; B]) {
        // SAFETY: says the caller.
        unsafe { self.outputs[k].write(index, values) }
    }

    /// As [`write`](Self::write), for who writes one line of memory after the other: those of large outputs go past the
    /// caches, which else read first what is then overwritten. Other threads may read them after a [`Fence`].
    ///
    /// # Safety
    /// As for [`write`](Self::write).
    #[inline(always)]
    pub unsafe fn write_on<const B: usize>(&self, k: usize, index: usize, values: [T; B]) {
        #[cfg(target_arch = "x86_64")]
        if self.are_streamed {
            use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_stream_si128};
            let bytes = B * size_of::<T>();
            let from = values.as_ptr().cast::<__m128i>();
            let to = self.outputs[k].first.wrapping_add(index).cast::<__m128i>();
            if to.is_aligned() && bytes.is_multiple_of(size_of::<__m128i>()) {
                for register in 0..bytes / size_of::<__m128i>() {
                    // SAFETY: says the caller; and the address is aligned.
                    unsafe {
                        _mm_stream_si128(to.add(register), _mm_loadu_si128(from.add(register)));
                    }
                }
                return;
            }
        }
        // SAFETY: says the caller.
        unsafe { self.write(k, index, values) }
    }
}

/// At its end, what its thread has written is what others read from then on, also where it went past the caches.
pub struct Fence;

impl Drop for Fence {
    fn drop(&mut self) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: every such processor has it.
        unsafe {
            std::arch::x86_64::_mm_sfence();
        }
    }
}
