//! The operations as methods, the same ones for every back end.

/// Stamps the public operations onto a type that has
/// `fn run<T: Element>(&self, Operation, inputs: &[&[T]], shape: &[usize], Extents, out: &mut [MaybeUninit<T>]) -> Result<()>`,
/// which is called with what [`validate`](crate::shape::validate) has checked, and initialises all of `out` if it succeeds.
macro_rules! methods {
    ($type:ty) => {
        impl $type {
            /// Cumulative sum (inclusive prefix sum) along `axis`: `y[.., j, ..] = Σ_{k≤j} x[.., k, ..]`.
            ///
            /// `[1, 2, 3, 4]` becomes `[1, 3, 6, 10]`.
            ///
            /// # Shapes
            /// `x` and the result are row-major tensors of `shape`. A negative `axis` counts from the end.
            ///
            /// # Errors
            /// As for [`scan`](Self::scan).
            pub fn cumsum<T: $crate::Element>(
                &self,
                x: &[T],
                shape: &[usize],
                axis: isize,
            ) -> $crate::Result<Vec<T>> {
                self.scan($crate::Operation::CUMSUM, &[x], shape, axis)
            }

            /// [`cumsum`](Self::cumsum) into `out`.
            ///
            /// # Errors
            /// As for [`scan_into`](Self::scan_into).
            pub fn cumsum_into<T: $crate::Element>(
                &self,
                x: &[T],
                shape: &[usize],
                axis: isize,
                out: &mut [T],
            ) -> $crate::Result<()> {
                self.scan_into($crate::Operation::CUMSUM, &[x], shape, axis, out)
            }

            /// Reverse cumulative sum (inclusive suffix sum) along `axis`: `y[.., j, ..] = Σ_{k≥j} x[.., k, ..]`.
            ///
            /// `[1, 2, 3, 4]` becomes `[10, 9, 7, 4]`.
            ///
            /// # Shapes
            /// `x` and the result are row-major tensors of `shape`. A negative `axis` counts from the end.
            ///
            /// # Numerics
            /// The sums are added up from the end, never as a total less a prefix: the last elements are as accurate as the
            /// first ones, and an infinity or a NaN reaches only the sums that contain it.
            ///
            /// # Errors
            /// As for [`scan`](Self::scan).
            pub fn reverse_cumsum<T: $crate::Element>(
                &self,
                x: &[T],
                shape: &[usize],
                axis: isize,
            ) -> $crate::Result<Vec<T>> {
                self.scan($crate::Operation::REVERSE_CUMSUM, &[x], shape, axis)
            }

            /// [`reverse_cumsum`](Self::reverse_cumsum) into `out`.
            ///
            /// # Errors
            /// As for [`scan_into`](Self::scan_into).
            pub fn reverse_cumsum_into<T: $crate::Element>(
                &self,
                x: &[T],
                shape: &[usize],
                axis: isize,
                out: &mut [T],
            ) -> $crate::Result<()> {
                self.scan_into($crate::Operation::REVERSE_CUMSUM, &[x], shape, axis, out)
            }

            /// Affine scan (first-order linear recurrence) along `axis`: `h_0 = b_0`, `h_t = a_t·h_{t−1} + b_t`.
            ///
            /// `a = [9, 2, 3]`, `b = [1, 1, 1]` becomes `[1, 3, 10]`.
            ///
            /// # Shapes
            /// `a`, `b` and the result are row-major tensors of `shape`. A negative `axis` counts from the end.
            ///
            /// # Numerics
            /// `a_0` of a sequence is not used: it may be anything, NaN included. Infinities and NaNs appear only where the
            /// recurrence, evaluated step by step, meets them.
            ///
            /// # Errors
            /// As for [`scan`](Self::scan).
            pub fn affine_scan<T: $crate::Element>(
                &self,
                a: &[T],
                b: &[T],
                shape: &[usize],
                axis: isize,
            ) -> $crate::Result<Vec<T>> {
                self.scan($crate::Operation::AFFINE_SCAN, &[a, b], shape, axis)
            }

            /// [`affine_scan`](Self::affine_scan) into `out`.
            ///
            /// # Errors
            /// As for [`scan_into`](Self::scan_into).
            pub fn affine_scan_into<T: $crate::Element>(
                &self,
                a: &[T],
                b: &[T],
                shape: &[usize],
                axis: isize,
                out: &mut [T],
            ) -> $crate::Result<()> {
                self.scan_into($crate::Operation::AFFINE_SCAN, &[a, b], shape, axis, out)
            }

            /// The scan that `operation` names, along `axis` of `inputs`: `[x]`, or `[a, b]`.
            ///
            /// # Errors
            /// [`Error`](crate::Error) says which argument does not fit, or that memory for the result cannot be had.
            pub fn scan<T: $crate::Element>(
                &self,
                operation: $crate::Operation,
                inputs: &[&[T]],
                shape: &[usize],
                axis: isize,
            ) -> $crate::Result<Vec<T>> {
                let lengths: Vec<usize> = inputs.iter().map(|input| input.len()).collect();
                let extents = $crate::shape::validate::<T>(operation, &lengths, shape, axis, None)?;
                $crate::methods::allocate(operation, extents.elements(), |out| {
                    self.run(operation, inputs, extents, out)
                })
            }

            /// [`scan`](Self::scan) into `out`, which has as many elements as `shape`.
            ///
            /// # Errors
            /// [`Error`](crate::Error) says which argument does not fit; `out` is then untouched.
            pub fn scan_into<T: $crate::Element>(
                &self,
                operation: $crate::Operation,
                inputs: &[&[T]],
                shape: &[usize],
                axis: isize,
                out: &mut [T],
            ) -> $crate::Result<()> {
                let lengths: Vec<usize> = inputs.iter().map(|input| input.len()).collect();
                let out_len = Some(out.len());
                let extents =
                    $crate::shape::validate::<T>(operation, &lengths, shape, axis, out_len)?;
                self.run(operation, inputs, extents, $crate::methods::as_uninit(out))
            }
        }
    };
}

pub(crate) use methods;

use crate::element::Element;
use crate::error::{Error, Result};
use crate::operation::Operation;
use std::mem::MaybeUninit;

/// A vector of `elements` that `fill` initialises: no element is written twice.
pub(crate) fn allocate<T: Element>(
    operation: Operation,
    elements: usize,
    fill: impl FnOnce(&mut [MaybeUninit<T>]) -> Result<()>,
) -> Result<Vec<T>> {
    let mut out = Vec::new();
    out.try_reserve_exact(elements)
        .map_err(|_| Error::OutOfHostMemory {
            operation,
            what: "out",
            bytes: elements * size_of::<T>(),
        })?;
    fill(&mut out.spare_capacity_mut()[..elements])?;
    // SAFETY: the capacity is at least `elements`, and `fill` has initialised that many, as it did not fail.
    unsafe { out.set_len(elements) };
    Ok(out)
}

/// `out` as memory to be overwritten; no caller writes anything uninitialised to it.
pub(crate) fn as_uninit<T>(out: &mut [T]) -> &mut [MaybeUninit<T>] {
    // SAFETY: `MaybeUninit<T>` has the layout of `T`, and this module's callers only ever write initialised elements.
    unsafe { &mut *(std::ptr::from_mut(out) as *mut [MaybeUninit<T>]) }
}
