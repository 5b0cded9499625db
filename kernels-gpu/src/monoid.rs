//! What is scanned: monoids, and how their elements act on a carry.
//!
//! A scan composes steps. An *aggregate* is the composition of a run of steps, an element of a [`Monoid`]; a
//! *carry* is the value that enters a run from the steps before it, and [`Action::apply`] takes it through the run.
//! For a sum both are a number. For the affine scan the aggregate is the map h ↦ a·h + b as the pair (a, b), and the
//! carry is h alone.

use core::ops::Add;
use cuda_std::{GpuFloat, Scalar, warp::Shuffle};

/// Values with an associative composition and an identity. The composition need not commute.
pub trait Monoid: Copy {
    /// Composes with any value to that value.
    const IDENTITY: Self;

    /// `self` first, then `next`.
    #[must_use]
    fn then(self, next: Self) -> Self;
}

/// A monoid whose elements act on a carry: `f.then(g).apply(h)` is `g.apply(f.apply(h))`.
pub trait Action: Monoid + Shuffle {
    /// What the aggregates act on, and what a scan gives at each step.
    type Carry: Scalar + Shuffle;

    /// The carry that enters a sequence with no initial state: what any step changes to just the value that it brings.
    const START: Self::Carry;
    /// The result of no steps at all, which an exclusive scan begins with.
    const EMPTY: Self::Carry;

    /// The carry after the run whose aggregate this is.
    #[must_use]
    fn apply(self, carry: Self::Carry) -> Self::Carry;

    /// The step as the first of a sequence with no initial state: acts on [`START`](Self::START) to give just
    /// the value that the step brings.
    #[must_use]
    fn as_first(self) -> Self;

    /// Whether the carry is neither infinite nor NaN. Once it is, it stays so in all that comes after: what is
    /// composed with an aggregate that is not finite is not finite, and acts to give a carry that is not.
    #[must_use]
    fn is_finite_carry(carry: Self::Carry) -> bool;
}

/// An operator on tensors: how a step of the scan is made of `INPUTS` input elements, and an output element of a carry.
pub trait Operator<const INPUTS: usize>: Action {
    /// The type of the tensors' elements.
    type Element: Scalar;

    /// `N` steps from `N` elements of each input; `elements(k)` gives those of input `k`, and is called once.
    fn gather<const N: usize>(elements: impl Fn(usize) -> [Self::Element; N]) -> [Self; N];

    /// The output element for a carry.
    fn emit(carry: Self::Carry) -> Self::Element;
}

/// A floating-point type that the operators work on.
pub trait Float: Scalar + Shuffle + GpuFloat + Add<Output = Self> {
    /// The identity of addition. It is −0: 0 + −0 is 0, so that adding +0 would change −0.
    const ADDITIVE_IDENTITY: Self;
    /// +0.
    const ZERO: Self;
    /// The identity of multiplication.
    const ONE: Self;

    /// `self · factor`.
    #[must_use]
    fn times(self, factor: Self) -> Self;

    /// Whether it is neither infinite nor NaN.
    #[must_use]
    fn is_finite(self) -> bool;
}

macro_rules! floats {
    ($($t:ident)*) => { $(
        impl Float for $t {
            const ADDITIVE_IDENTITY: Self = -0.0;
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;

            #[inline(always)]
            fn times(self, factor: Self) -> Self {
                self * factor
            }

            #[inline(always)]
            fn is_finite(self) -> bool {
                $t::is_finite(self)
            }
        }
    )* };
}
floats!(f32 f64);

/// A sum of elements: the aggregate of the cumulative sum. It acts by addition.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sum<T>(pub T);

impl<T: Float> Monoid for Sum<T> {
    const IDENTITY: Self = Self(T::ADDITIVE_IDENTITY);

    #[inline(always)]
    fn then(self, next: Self) -> Self {
        Self(self.0 + next.0)
    }
}

impl<T: Shuffle> Shuffle for Sum<T> {
    #[inline(always)]
    fn map_words(self, exchange: impl Fn(u32) -> u32) -> Self {
        Self(self.0.map_words(exchange))
    }
}

impl<T: Float> Action for Sum<T> {
    type Carry = T;
    const START: T = T::ADDITIVE_IDENTITY;
    const EMPTY: T = T::ZERO;

    #[inline(always)]
    fn apply(self, carry: T) -> T {
        carry + self.0
    }

    #[inline(always)]
    fn as_first(self) -> Self {
        self
    }

    #[inline(always)]
    fn is_finite_carry(carry: T) -> bool {
        carry.is_finite()
    }
}

impl<T: Float> Operator<1> for Sum<T> {
    type Element = T;

    #[inline(always)]
    fn gather<const N: usize>(elements: impl Fn(usize) -> [T; N]) -> [Self; N] {
        elements(0).map(Self)
    }

    #[inline(always)]
    fn emit(carry: T) -> T {
        carry
    }
}

/// The map h ↦ a·h + b: the aggregate of the affine scan, whose step t is (`a_t`, `b_t`). It does not commute.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Affine<T> {
    /// The factor.
    pub a: T,
    /// The summand.
    pub b: T,
}

impl<T: Float> Monoid for Affine<T> {
    const IDENTITY: Self = Self {
        a: T::ONE,
        b: T::ADDITIVE_IDENTITY,
    };

    #[inline(always)]
    fn then(self, next: Self) -> Self {
        Self {
            a: self.a.times(next.a),
            b: next.apply(self.b),
        }
    }
}

impl<T: Shuffle> Shuffle for Affine<T> {
    #[inline(always)]
    fn map_words(self, exchange: impl Fn(u32) -> u32) -> Self {
        Self {
            a: self.a.map_words(&exchange),
            b: self.b.map_words(&exchange),
        }
    }
}

impl<T: Float> Action for Affine<T> {
    type Carry = T;
    const START: T = T::ADDITIVE_IDENTITY;
    const EMPTY: T = T::ZERO;

    #[inline(always)]
    fn apply(self, carry: T) -> T {
        self.a.mul_add(carry, self.b)
    }

    #[inline(always)]
    fn as_first(self) -> Self {
        Self {
            a: T::ONE,
            b: self.b,
        }
    }

    #[inline(always)]
    fn is_finite_carry(carry: T) -> bool {
        carry.is_finite()
    }
}

impl<T: Float> Operator<2> for Affine<T> {
    type Element = T;

    #[inline(always)]
    fn gather<const N: usize>(elements: impl Fn(usize) -> [T; N]) -> [Self; N] {
        let (a, b) = (elements(0), elements(1));
        core::array::from_fn(|i| Self { a: a[i], b: b[i] })
    }

    #[inline(always)]
    fn emit(carry: T) -> T {
        carry
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOME: [f32; 7] = [-2.0, -1.0, -0.0, 0.0, 0.5, 1.0, 3.0];

    fn maps() -> impl Iterator<Item = Affine<f32>> + Clone {
        SOME.into_iter()
            .flat_map(|a| SOME.into_iter().map(move |b| Affine { a, b }))
    }

    #[test]
    fn affine_is_a_monoid_that_acts() {
        for f in maps() {
            assert_eq!(Affine::IDENTITY.then(f), f);
            assert_eq!(f.then(Affine::IDENTITY), f);
            for g in maps() {
                for h in SOME {
                    assert_eq!(f.then(g).apply(h), g.apply(f.apply(h)));
                }
                for h in maps() {
                    assert_eq!(f.then(g).then(h), f.then(g.then(h)));
                }
            }
        }
    }

    #[test]
    fn affine_does_not_commute() {
        let (f, g) = (Affine { a: 2.0, b: 1.0 }, Affine { a: 3.0, b: 0.0 });
        assert_eq!(f.then(g), Affine { a: 6.0, b: 3.0 });
        assert_eq!(g.then(f), Affine { a: 6.0, b: 1.0 });
    }

    #[test]
    fn starting_keeps_every_bit() {
        for value in [-0.0, 0.0, 1.0e-40, f32::NAN, f32::INFINITY, -1.5] {
            let sum = Sum(value).as_first().apply(Sum::START);
            assert_eq!(sum.to_bits(), value.to_bits());
            for a in [f32::NAN, f32::INFINITY, 0.0, -0.0, -3.0] {
                let step = Affine { a, b: value };
                let affine = step.as_first().apply(Affine::START);
                assert_eq!(affine.to_bits(), value.to_bits());
            }
        }
    }

    #[test]
    fn what_is_not_finite_stays_so() {
        let parts = [0.0, 1.0, -1.0, f32::MAX, f32::INFINITY, f32::NAN];
        let maps = || {
            parts
                .into_iter()
                .flat_map(|a| parts.map(|b| Affine { a, b }))
        };
        let finite = |map: Affine<f32>| map.a.is_finite() && map.b.is_finite();
        for f in maps() {
            for g in maps() {
                assert!(!finite(f.then(g)) || finite(f) && finite(g));
            }
            for h in parts {
                assert!(!f.apply(h).is_finite() || finite(f) && h.is_finite());
            }
        }
    }
}
