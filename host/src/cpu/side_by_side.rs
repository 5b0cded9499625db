//! Numbers side by side: arithmetic with all of them at once, and their transposition.

use super::LANES;
use crate::element::sealed::Arithmetic;
#[cfg(target_arch = "x86_64")]
use std::{any::TypeId, arch::x86_64::*, mem::transmute_copy};

/// A number of each lane.
#[derive(Clone, Copy, Default)]
#[repr(align(16))]
pub struct Lanes<S>(pub [S; LANES]);

impl<S: Arithmetic> Lanes<S> {
    pub fn all(number: S) -> Self {
        Self([number; LANES])
    }

    #[inline(always)]
    fn with(self, other: Self, each: impl Fn(S, S) -> S) -> Self {
        let mut numbers = self.0;
        for lane in 0..LANES {
            numbers[lane] = each(numbers[lane], other.0[lane]);
        }
        Self(numbers)
    }
}

/// Left to itself, the compiler does some of the lanes side by side, and others one by one.
#[cfg(target_arch = "x86_64")]
macro_rules! in_registers {
    ($self:ident, $other:ident, $($type:ty: [$register:ty; $count:literal], $operation:ident;)*) => { $(
        if TypeId::of::<S>() == TypeId::of::<$type>() {
            // SAFETY: the numbers are of that type, and so are as large as the registers; every such processor has the
            // operation.
            unsafe {
                let mut a: [$register; $count] = transmute_copy(&$self);
                let b: [$register; $count] = transmute_copy(&$other);
                for register in 0..$count {
                    a[register] = $operation(a[register], b[register]);
                }
                return transmute_copy(&a);
            }
        }
    )* };
}

impl<S: Arithmetic> Arithmetic for Lanes<S> {
    #[inline(always)]
    fn plus(self, other: Self) -> Self {
        #[cfg(target_arch = "x86_64")]
        in_registers! { self, other,
            f32: [__m128; 1], _mm_add_ps;
            f64: [__m128d; 2], _mm_add_pd;
            i32: [__m128i; 1], _mm_add_epi32;
            i64: [__m128i; 2], _mm_add_epi64;
        }
        self.with(other, S::plus)
    }

    #[inline(always)]
    fn times(self, other: Self) -> Self {
        #[cfg(target_arch = "x86_64")]
        in_registers! { self, other,
            f32: [__m128; 1], _mm_mul_ps;
            f64: [__m128d; 2], _mm_mul_pd;
        }
        self.with(other, S::times)
    }

    #[inline(always)]
    fn is_finite(self) -> bool {
        self.0.iter().all(|number| number.is_finite())
    }
}

/// The columns of a square as its rows.
#[inline(always)]
pub fn transposed<S: Arithmetic>(rows: [Lanes<S>; LANES]) -> [Lanes<S>; LANES] {
    #[cfg(target_arch = "x86_64")]
    {
        if size_of::<S>() == size_of::<f32>() {
            // SAFETY: the registers are as large as the rows. These moves change no bits, whatever they mean.
            unsafe {
                let [mut a, mut b, mut c, mut d]: [__m128; 4] = transmute_copy(&rows);
                _MM_TRANSPOSE4_PS(&mut a, &mut b, &mut c, &mut d);
                return transmute_copy(&[a, b, c, d]);
            }
        }
        if size_of::<S>() == size_of::<f64>() {
            // SAFETY: as above.
            unsafe {
                let [a, b, c, d]: [[__m128d; 2]; 4] = transmute_copy(&rows);
                let columns = [
                    [_mm_unpacklo_pd(a[0], b[0]), _mm_unpacklo_pd(c[0], d[0])],
                    [_mm_unpackhi_pd(a[0], b[0]), _mm_unpackhi_pd(c[0], d[0])],
                    [_mm_unpacklo_pd(a[1], b[1]), _mm_unpacklo_pd(c[1], d[1])],
                    [_mm_unpackhi_pd(a[1], b[1]), _mm_unpackhi_pd(c[1], d[1])],
                ];
                return transmute_copy(&columns);
            }
        }
    }
    let mut columns = rows;
    for row in 0..LANES {
        for column in 0..LANES {
            columns[column].0[row] = rows[row].0[column];
        }
    }
    columns
}
