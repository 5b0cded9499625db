//! The types that a tensor's elements may have.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use num_complex::Complex;
use std::fmt::Debug;

/// A type of tensor elements: `f32`, `f64`, [`f16`](struct@f16), [`bf16`], `i32`, `i64` or [`Complex<f32>`](Complex).
///
/// Cumulative sums are for all of them, affine scans for all but the integers. Sums of integers are exact and wrap around.
///
/// The trait is sealed: each type comes with kernels of its own.
pub trait Element:
    sealed::Sealed + Copy + Default + PartialEq + Debug + Send + Sync + 'static
{
    /// The type's name, as numpy spells it.
    const NAME: &'static str;

    /// What a scan computes in, and what its initial and final states are: `f32` for the halves, else the type itself. A
    /// result is rounded to the type of the elements once, when it is written.
    type State: Element<State = Self::State, Exact = Self::Exact> + sealed::Arithmetic;

    /// What the [reference](crate::reference) computes in: `f64`, `Complex<f64>`, or for integers a wrapping `i64`.
    type Exact: sealed::Arithmetic + PartialEq + Debug;

    /// The element as a state: no value changes.
    fn to_state(self) -> Self::State;

    /// A state as an element: rounded to nearest, ties to even.
    fn from_state(state: Self::State) -> Self;

    /// The elements as states: themselves, or `room`, where they are brought to.
    ///
    /// # Panics
    /// May panic if `room` is not as long as they are.
    #[doc(hidden)]
    fn as_states<'a>(elements: &'a [Self], room: &'a mut [Self::State]) -> &'a [Self::State];

    /// The other way.
    ///
    /// # Panics
    /// May panic if `room` is not as long as they are.
    #[doc(hidden)]
    fn as_elements<'a>(states: &'a [Self::State], room: &'a mut [Self]) -> &'a [Self];

    /// The element in the reference's type.
    fn exact(self) -> Self::Exact;

    /// The type's name in the table of kernels.
    #[doc(hidden)]
    const KERNEL_NAME: &'static str;

    /// Whether there are affine scans of the type.
    #[doc(hidden)]
    const HAS_AFFINE_SCAN: bool;
}

pub(crate) mod sealed {
    pub trait Sealed {}

    /// What scans do with states.
    pub trait Arithmetic: Copy + Default + Send + Sync + 'static {
        fn plus(self, other: Self) -> Self;
        fn times(self, other: Self) -> Self;
        /// Whether the value is neither infinite nor NaN.
        fn is_finite(self) -> bool;
    }
}

macro_rules! arithmetic {
    ($($type:ty: $plus:path, $times:path, $is_finite:expr;)*) => { $(
        impl sealed::Arithmetic for $type {
            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                $plus(self, other)
            }

            #[inline(always)]
            fn times(self, other: Self) -> Self {
                $times(self, other)
            }

            #[inline(always)]
            fn is_finite(self) -> bool {
                let is_finite: fn(Self) -> bool = $is_finite;
                is_finite(self)
            }
        }
    )* };
}
arithmetic! {
    f32: std::ops::Add::add, std::ops::Mul::mul, f32::is_finite;
    f64: std::ops::Add::add, std::ops::Mul::mul, f64::is_finite;
    i32: i32::wrapping_add, i32::wrapping_mul, |_| true;
    i64: i64::wrapping_add, i64::wrapping_mul, |_| true;
    Complex<f32>: std::ops::Add::add, std::ops::Mul::mul, |z| z.re.is_finite() && z.im.is_finite();
    Complex<f64>: std::ops::Add::add, std::ops::Mul::mul, |z| z.re.is_finite() && z.im.is_finite();
}

macro_rules! elements {
    ($($type:ty: $name:literal, $kernel:literal, $state:ty, $exact:ty, $affine:literal,
        $to_state:expr, $from_state:expr, $as_states:expr, $as_elements:expr, $to_exact:expr;)*) => { $(
        impl sealed::Sealed for $type {}

        impl Element for $type {
            const NAME: &'static str = $name;
            const KERNEL_NAME: &'static str = $kernel;
            const HAS_AFFINE_SCAN: bool = $affine;
            type State = $state;
            type Exact = $exact;

            #[inline(always)]
            fn to_state(self) -> $state {
                let to_state: fn(Self) -> $state = $to_state;
                to_state(self)
            }

            #[inline(always)]
            fn from_state(state: $state) -> Self {
                let from_state: fn($state) -> Self = $from_state;
                from_state(state)
            }

            #[inline(always)]
            fn as_states<'a>(elements: &'a [Self], room: &'a mut [$state]) -> &'a [$state] {
                let as_states: for<'b> fn(&'b [Self], &'b mut [$state]) -> &'b [$state] = $as_states;
                as_states(elements, room)
            }

            #[inline(always)]
            fn as_elements<'a>(states: &'a [$state], room: &'a mut [Self]) -> &'a [Self] {
                let as_elements: for<'b> fn(&'b [$state], &'b mut [Self]) -> &'b [Self] = $as_elements;
                as_elements(states, room)
            }

            fn exact(self) -> $exact {
                let exact: fn(Self) -> $exact = $to_exact;
                exact(self)
            }
        }
    )* };
}
elements! {
    f32: "float32", "f32", f32, f64, true, |x| x, |x| x, |x, _| x, |x, _| x, f64::from;
    f64: "float64", "f64", f64, f64, true, |x| x, |x| x, |x, _| x, |x, _| x, |x| x;
    f16: "float16", "f16", f32, f64, true, f16::to_f32, f16::from_f32, widened, narrowed, f64::from;
    bf16: "bfloat16", "bf16", f32, f64, true, bf16::to_f32, bf16::from_f32, widened, narrowed, f64::from;
    i32: "int32", "i32", i32, i64, false, |x| x, |x| x, |x, _| x, |x, _| x, i64::from;
    i64: "int64", "i64", i64, i64, false, |x| x, |x| x, |x, _| x, |x, _| x, |x| x;
    Complex<f32>: "complex64", "c64", Complex<f32>, Complex<f64>, true, |x| x, |x| x, |x, _| x, |x, _| x,
        |z| Complex::new(z.re.into(), z.im.into());
}

/// Halves as `f32`, many at once.
fn widened<'a, T>(halves: &'a [T], room: &'a mut [f32]) -> &'a [f32]
where
    [T]: HalfFloatSliceExt,
{
    halves.convert_to_f32_slice(room);
    room
}

/// `f32` as halves, many at once, each rounded to nearest, ties to even.
fn narrowed<'a, T>(values: &'a [f32], room: &'a mut [T]) -> &'a [T]
where
    [T]: HalfFloatSliceExt,
{
    room.convert_from_f32_slice(values);
    room
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_round_to_nearest_even() {
        assert_eq!(bf16::from_state(257.0), bf16::from_f32(256.0));
        assert_eq!(bf16::from_state(259.0), bf16::from_f32(260.0));
        assert_eq!(f16::from_state(2049.0), f16::from_f32(2048.0));
        assert_eq!(f16::from_state(2051.0), f16::from_f32(2052.0));
    }
}
