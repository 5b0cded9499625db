//! The tensors of a call, as tasks share them.

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

/// The inputs, and the outputs: all of one length.
#[derive(Clone, Copy)]
pub struct Tensors<'a, T, const N: usize, const K: usize> {
    inputs: [&'a [T]; N],
    outputs: [Shared<'a, T>; K],
}

impl<'a, T: Copy, const N: usize, const K: usize> Tensors<'a, T, N, K> {
    pub fn new(inputs: [&'a [T]; N], outputs: [&'a mut [MaybeUninit<T>]; K]) -> Self {
        let outputs = outputs.map(Shared::new);
        let len = outputs[0].len;
        assert!(inputs.iter().all(|input| input.len() == len));
        assert!(outputs.iter().all(|output| output.len == len));
        Self { inputs, outputs }
    }

    /// `B` elements of input `k`, from `index` on.
    ///
    /// # Safety
    /// It has them.
    #[inline(always)]
    pub unsafe fn read<const B: usize>(&self, k: usize, index: usize) -> [T; B] {
        debug_assert!(index + B <= self.inputs[k].len());
        // SAFETY: says the caller; an array is aligned as its elements are.
        unsafe { self.inputs[k].as_ptr().add(index).cast::<[T; B]>().read() }
    }

    /// Asks for the lines of memory with an element of the inputs, if they have it.
    #[inline(always)]
    pub fn prefetch_inputs(&self, index: usize) {
        for input in self.inputs {
            prefetch(input.as_ptr().wrapping_add(index));
        }
    }

    /// Asks for the lines of memory with an element of the outputs, if they have it.
    #[inline(always)]
    pub fn prefetch_outputs(&self, index: usize) {
        for output in self.outputs {
            prefetch(output.first.wrapping_add(index));
        }
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
}

/// Asks for a line of memory, where the processor takes such a hint. There need not be anything at the address.
#[inline(always)]
fn prefetch<T>(address: *const T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        // SAFETY: a hint accesses no memory that the program could tell.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(address.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}
