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
