//! The operations as methods, the same ones for every back end.

/// Stamps the public operations onto a type that has these methods, which are called with arguments that are checked, and
/// initialise all of `out` if they succeed. Inputs are the [`part`](crate::layout::part)s that are read, and there are layouts only where
/// they say something:
/// ```text
/// fn run<T: Element>(&self, Operation, inputs: &[&[T]], Extents, Options<T>, out: &mut [MaybeUninit<T>]) -> Result<()>;
/// fn run_backward<T: Element>(
///     &self, forward: Operation, [a, h, dh]: [&[T]; 3], Extents, BackwardOptions<T>, [da, db]: [&mut [MaybeUninit<T>]; 2],
/// ) -> Result<()>;
/// ```
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
                self.scan_with(operation, inputs, shape, axis, $crate::Options::new())
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
                self.scan_with_into(operation, inputs, shape, axis, $crate::Options::new(), out)
            }

            /// [`scan`](Self::scan) with [`Options`](crate::Options): exclusive, with initial and final states, with
            /// resets, of packed sequences, of inputs that are not row-major.
            ///
            /// A sequence that is scanned in pieces, each from the final state of the one before, has the same result as in
            /// one go, but for the order of roundings.
            ///
            /// # Errors
            /// As for [`scan`](Self::scan); or the options do not fit the shape.
            pub fn scan_with<T: $crate::Element>(
                &self,
                operation: $crate::Operation,
                inputs: &[&[T]],
                shape: &[usize],
                axis: isize,
                options: $crate::Options<'_, T>,
            ) -> $crate::Result<Vec<T>> {
                let lengths: Vec<usize> = inputs.iter().map(|input| input.len()).collect();
                let names = $crate::shape::Names::of_scan(operation.operator);
                let extents = $crate::shape::validate::<T>(
                    operation,
                    names,
                    &lengths,
                    options.layouts,
                    &[],
                    shape,
                    axis,
                )?;
                options.validate(operation, shape, extents)?;
                let fill =
                    |[out]: [&mut [_]; 1]| self.run_parts(operation, inputs, extents, options, out);
                let [out] =
                    $crate::methods::allocate(operation, ["out"], extents.elements(), fill)?;
                Ok(out)
            }

            /// [`scan_with`](Self::scan_with) into `out`, which has as many elements as `shape`.
            ///
            /// # Errors
            /// As for [`scan_with`](Self::scan_with).
            pub fn scan_with_into<T: $crate::Element>(
                &self,
                operation: $crate::Operation,
                inputs: &[&[T]],
                shape: &[usize],
                axis: isize,
                options: $crate::Options<'_, T>,
                out: &mut [T],
            ) -> $crate::Result<()> {
                let lengths: Vec<usize> = inputs.iter().map(|input| input.len()).collect();
                let (names, out_len) = (
                    $crate::shape::Names::of_scan(operation.operator),
                    [out.len()],
                );
                let extents = $crate::shape::validate::<T>(
                    operation,
                    names,
                    &lengths,
                    options.layouts,
                    &out_len,
                    shape,
                    axis,
                )?;
                options.validate(operation, shape, extents)?;
                let out = $crate::methods::as_uninit(out);
                self.run_parts(operation, inputs, extents, options, out)
            }

            fn run_parts<T: $crate::Element>(
                &self,
                operation: $crate::Operation,
                inputs: &[&[T]],
                extents: $crate::Extents,
                options: $crate::Options<'_, T>,
                out: &mut [std::mem::MaybeUninit<T>],
            ) -> $crate::Result<()> {
                let parts = inputs.iter().enumerate();
                let parts: Vec<&[T]> = parts
                    .map(|(k, input)| &input[$crate::layout::part(options.layouts, k, extents)])
                    .collect();
                let layouts = $crate::layout::narrowed(options.layouts, extents);
                let options = $crate::Options {
                    layouts: layouts.as_deref(),
                    ..options
                };
                self.run(operation, &parts, extents, options, out)
            }

            /// The gradient of an affine scan in `direction`: `[da, db]` from `[a, h, dh]`, where `h` is its (inclusive) result
            /// and `dh` the gradient of that.
            ///
            /// With `g_t = dh_t + a_{t+1}·g_{t+1}`, which is a scan in the opposite direction, `db = g` and
            /// `da_t = g_t·h_{t−1}`. Where `h_t` does not depend on `a_t`, at the first step of a sequence without an initial
            /// state and at a reset, `da_t` is 0. The gradient of the initial state is `a_0·g_0`. All inputs are read
            /// once, and in one pass.
            ///
            /// (That of a cumulative sum is the cumulative sum of `dy` in the opposite direction.)
            ///
            /// # Shapes
            /// All inputs and both results are row-major tensors of `shape`, but inputs with other
            /// [layouts](crate::BackwardOptions::layouts).
            ///
            /// # Numerics
            /// Of complex numbers it is the transposed Jacobian times `dh`, as JAX has it. PyTorch's gradients are the conjugates:
            /// conjugate `dh`, its like in the options, and the results.
            ///
            /// # Errors
            /// As for [`scan_with`](Self::scan_with). They name the scan.
            ///
            /// # Examples
            /// ```
            /// use ptxscan::{BackwardOptions, Direction, Engine};
            ///
            /// let engine = Engine::cpu();
            /// let (a, b) = ([9.0, 2.0, 3.0_f32], [1.0, 1.0, 1.0]);
            /// let h = engine.affine_scan(&a, &b, &[3], 0)?;
            /// // Of the last result alone: h_2 = a_2·(a_1·b_0 + b_1) + b_2.
            /// let inputs = [&a[..], &h, &[0.0, 0.0, 1.0]];
            /// let [da, db] =
            ///     engine.affine_scan_backward(Direction::Forward, inputs, &[3], 0, BackwardOptions::new())?;
            /// assert_eq!((da, db), (vec![0.0, 3.0, 3.0], vec![6.0, 3.0, 1.0]));
            /// # Ok::<(), ptxscan::Error>(())
            /// ```
            pub fn affine_scan_backward<T: $crate::Element>(
                &self,
                direction: $crate::Direction,
                inputs: [&[T]; 3],
                shape: &[usize],
                axis: isize,
                options: $crate::BackwardOptions<'_, T>,
            ) -> $crate::Result<[Vec<T>; 2]> {
                let (operation, extents) = $crate::methods::validate_backward(
                    direction,
                    inputs,
                    &[],
                    shape,
                    axis,
                    &options,
                )?;
                let fill = |out: [&mut [_]; 2]| {
                    self.run_backward_parts(operation, inputs, extents, options, out)
                };
                $crate::methods::allocate(operation, ["da", "db"], extents.elements(), fill)
            }

            /// [`affine_scan_backward`](Self::affine_scan_backward) into `[da, db]`, which have as many elements as `shape`.
            ///
            /// # Errors
            /// As for [`affine_scan_backward`](Self::affine_scan_backward).
            pub fn affine_scan_backward_into<T: $crate::Element>(
                &self,
                direction: $crate::Direction,
                inputs: [&[T]; 3],
                shape: &[usize],
                axis: isize,
                options: $crate::BackwardOptions<'_, T>,
                out: [&mut [T]; 2],
            ) -> $crate::Result<()> {
                let lengths = [out[0].len(), out[1].len()];
                let (operation, extents) = $crate::methods::validate_backward(
                    direction, inputs, &lengths, shape, axis, &options,
                )?;
                let out = out.map($crate::methods::as_uninit);
                self.run_backward_parts(operation, inputs, extents, options, out)
            }

            fn run_backward_parts<T: $crate::Element>(
                &self,
                forward: $crate::Operation,
                inputs: [&[T]; 3],
                extents: $crate::Extents,
                options: $crate::BackwardOptions<'_, T>,
                out: [&mut [std::mem::MaybeUninit<T>]; 2],
            ) -> $crate::Result<()> {
                let parts = std::array::from_fn(|k| {
                    &inputs[k][$crate::layout::part(options.layouts, k, extents)]
                });
                let layouts = $crate::layout::narrowed(options.layouts, extents);
                let options = $crate::BackwardOptions {
                    layouts: layouts.as_deref(),
                    ..options
                };
                self.run_backward(forward, parts, extents, options, out)
            }
        }
    };
}

pub(crate) use methods;

use crate::element::Element;
use crate::error::{Error, Result};
use crate::operation::{Direction, Operation, Operator};
use crate::options::BackwardOptions;
use crate::shape::{self, Extents, Names};
use std::mem::MaybeUninit;

/// Checks a call of `affine_scan_backward`, and gives the scan that it is the gradient of.
pub(crate) fn validate_backward<T: Element>(
    direction: Direction,
    inputs: [&[T]; 3],
    outputs: &[usize],
    shape: &[usize],
    axis: isize,
    options: &BackwardOptions<'_, T>,
) -> Result<(Operation, Extents)> {
    let operation = Operation::new(Operator::AffineScan, direction);
    let (names, inputs) = (Names::GRADIENT, inputs.map(<[T]>::len));
    let layouts = options.layouts;
    let extents = shape::validate::<T>(operation, names, &inputs, layouts, outputs, shape, axis)?;
    options.validate(operation, shape, extents)?;
    Ok((operation, extents))
}

/// Vectors of `elements`, by their names, that `fill` initialises: no element is written twice.
pub(crate) fn allocate<T: Element, const N: usize>(
    operation: Operation,
    names: [&'static str; N],
    elements: usize,
    fill: impl FnOnce([&mut [MaybeUninit<T>]; N]) -> Result<()>,
) -> Result<[Vec<T>; N]> {
    let mut out = names.map(|_| Vec::new());
    for (out, what) in out.iter_mut().zip(names) {
        out.try_reserve_exact(elements)
            .map_err(|_| Error::OutOfHostMemory {
                operation,
                what,
                bytes: elements * size_of::<T>(),
            })?;
    }
    fill(
        out.each_mut()
            .map(|out| &mut out.spare_capacity_mut()[..elements]),
    )?;
    for out in &mut out {
        // SAFETY: the capacity is at least `elements`, and `fill` has initialised that many, as it did not fail.
        unsafe { out.set_len(elements) };
    }
    Ok(out)
}

/// `out` as memory to be overwritten; no caller writes anything uninitialised to it.
pub(crate) fn as_uninit<T>(out: &mut [T]) -> &mut [MaybeUninit<T>] {
    // SAFETY: `MaybeUninit<T>` has the layout of `T`, and this module's callers only ever write initialised elements.
    unsafe { &mut *(std::ptr::from_mut(out) as *mut [MaybeUninit<T>]) }
}
