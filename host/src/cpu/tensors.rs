//! The tensors of a call, as tasks share them.

use crate::element::Element;
use std::marker::PhantomData;
use std::mem::MaybeUninit;

/// The inputs, and the output that tasks write parts of.
#[derive(Clone, Copy)]
pub struct Tensors<'a, T, const N: usize> {
    inputs: [&'a [T]; N],
    out: *mut T,
    output: PhantomData<&'a mut [MaybeUninit<T>]>,
}

// SAFETY: each task writes elements of its own, by the obligations of the methods, and `T` can be sent.
unsafe impl<T: Element, const N: usize> Send for Tensors<'_, T, N> {}
// SAFETY: as above.
unsafe impl<T: Element, const N: usize> Sync for Tensors<'_, T, N> {}

impl<'a, T: Element, const N: usize> Tensors<'a, T, N> {
    /// Tensors of one size.
    pub fn new(inputs: [&'a [T]; N], out: &'a mut [MaybeUninit<T>]) -> Self {
        assert!(inputs.iter().all(|input| input.len() == out.len()));
        Self {
            inputs,
            out: out.as_mut_ptr().cast(),
            output: PhantomData,
        }
    }

    /// What the inputs have at an element.
    ///
    /// # Safety
    /// `index` is less than the number of elements.
    #[inline(always)]
    pub unsafe fn read(&self, index: usize) -> [T; N] {
        // SAFETY: says the caller.
        self.inputs
            .map(|input| unsafe { *input.get_unchecked(index) })
    }

    /// Writes an element of the output.
    ///
    /// # Safety
    /// `index` is less than the number of elements, and no other task accesses that element of the output.
    #[inline(always)]
    pub unsafe fn write(&self, index: usize, value: T) {
        // SAFETY: says the caller.
        unsafe { self.out.add(index).write(value) }
    }

    /// `width` elements of each input, from `first` on.
    pub fn row(&self, first: usize, width: usize) -> [&'a [T]; N] {
        self.inputs.map(|input| &input[first..first + width])
    }

    /// `width` elements of the output that were written, from `first` on.
    ///
    /// # Safety
    /// They are elements of the output, and written; no task writes them while the result lives.
    pub unsafe fn written(&self, first: usize, width: usize) -> &[T] {
        // SAFETY: says the caller.
        unsafe { std::slice::from_raw_parts(self.out.add(first), width) }
    }

    /// `width` elements of the output, from `first` on, to be written.
    ///
    /// # Safety
    /// They are elements of the output, and nothing else accesses them while the result lives.
    #[expect(
        clippy::mut_from_ref,
        reason = "the caller vouches that it is alone with them"
    )]
    pub unsafe fn part(&self, first: usize, width: usize) -> &mut [MaybeUninit<T>] {
        // SAFETY: says the caller.
        unsafe { std::slice::from_raw_parts_mut(self.out.add(first).cast(), width) }
    }
}
