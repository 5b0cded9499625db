//! What is scanned: monoids, and how their elements act on a carry.
//!
//! A scan composes [`Step`]s. An *aggregate* is the composition of a run of steps, an element of a [`Monoid`]; a
//! *carry* is the value that enters a run from the steps before it, and [`Action::apply`] takes it through the run.
//! For a sum both are a number. For the affine scan the aggregate is the map h ↦ a·h + b as the pair (a, b), and the
//! carry is h alone. There a step is an aggregate; in the [`Gradient`] it is more, since more is written than carries.

use crate::layout::{Dense, Layout, Strided};
use cuda_std::{BF16, Complex32, F16, GpuFloat, Scalar, warp::Shuffle};

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

    /// Whether the carry is neither infinite nor NaN. Once it is, it stays so in all that comes after: what is
    /// composed with an aggregate that is not finite is not finite, and acts to give a carry that is not.
    #[must_use]
    fn is_finite_carry(carry: Self::Carry) -> bool;
}

/// The carries of a scan whose steps are `S`.
pub type Carry<S> = <<S as Step>::Aggregate as Action>::Carry;

/// What a scan goes through one by one.
pub trait Step: Copy {
    /// What steps compose to.
    type Aggregate: Action;
    /// What the scan gives at a step, before it is rounded to elements.
    type Outputs: Copy;
    /// Where its inputs can have their elements.
    type Layout: Layout;

    /// Stands where there is no step: leaves a carry as it is.
    const PADDING: Self;
    /// Whether the scan goes backwards through the steps of another one, so that it ends where that one starts.
    const IS_BACKWARD: bool = false;
    /// Whether a carry can end with a step, so that what comes after does not show whether it was finite.
    const ENDS_CARRIES: bool = false;

    /// The step alone, composed.
    #[must_use]
    fn aggregate(self) -> Self::Aggregate;

    /// The carry after the step, in serial order.
    #[must_use]
    fn after(self, carry: Carry<Self>) -> Carry<Self>;

    /// What an exclusive scan gives at this step, which `carry` enters.
    #[inline(always)]
    #[must_use]
    fn before(self, carry: Carry<Self>) -> Carry<Self> {
        carry
    }

    /// What is written at this step, which `carry` enters; `result` is the carry [before](Self::before) or [after](Self::after) it, as
    /// the scan is exclusive or inclusive.
    #[must_use]
    fn outputs(self, carry: Carry<Self>, result: Carry<Self>) -> Self::Outputs;

    /// The step as the first of a sequence with no initial state: takes [`START`](Action::START) to just the value that the step
    /// brings. (In a backward scan it comes last, and no carry leaves it.)
    #[must_use]
    fn as_first(self) -> Self;

    /// The step as the first of a sequence with this initial state, in a backward scan; else that is a carry.
    #[inline(always)]
    #[must_use]
    fn with_initial(self, _: Carry<Self>) -> Self {
        self
    }
}

/// An operator on tensors of elements `E`: how a step of the scan is made of `INPUTS` input elements, and `OUTPUTS` output elements of
/// what it gives.
pub trait Operator<E: Scalar, const INPUTS: usize, const OUTPUTS: usize = 1>: Step {
    /// Whether a mask can say at which steps the scan starts afresh.
    const IS_MASKED: bool = false;
    /// The input elements of a step that leaves a carry as it is: [`Step::PADDING`].
    const PADDING_ELEMENTS: [E; INPUTS];
    /// Of which inputs a step has the element of the step after it, in the order of the scan. The last step has any.
    const IS_OF_NEXT: [bool; INPUTS] = [false; INPUTS];

    /// `N` steps from `N` elements of each input; `elements(k)` gives those of input `k`, and is called once.
    fn gather<const N: usize>(elements: impl Fn(usize) -> [E; N]) -> [Self; N];

    /// The elements of each output for what some steps give.
    fn emit<const N: usize>(outputs: [Self::Outputs; N]) -> [[E; N]; OUTPUTS];

    /// The step as one at which the scan starts afresh, if there is a mask.
    #[inline(always)]
    #[must_use]
    fn restart(self) -> Self {
        self
    }
}

/// A type of tensor elements, and what a scan computes in.
pub trait Element: Scalar {
    /// The type of the carries.
    type Number: Number;
    /// [`Number::ADDITIVE_IDENTITY`] as an element.
    const NEUTRAL_SUMMAND: Self;
    /// [`Number::ONE`] as an element.
    const NEUTRAL_FACTOR: Self;

    /// The element as a carry: no value changes.
    fn widen(self) -> Self::Number;

    /// Carries as elements, each rounded once.
    fn narrow<const N: usize>(numbers: [Self::Number; N]) -> [Self; N];
}

/// A type that the operators compute in.
pub trait Number: Scalar + Shuffle {
    /// The identity of addition. For floating point it is −0: 0 + −0 is 0, so that adding +0 would change −0.
    const ADDITIVE_IDENTITY: Self;
    /// +0.
    const ZERO: Self;
    /// The identity of multiplication.
    const ONE: Self;

    /// `self + summand`.
    #[must_use]
    fn plus(self, summand: Self) -> Self;

    /// `self · factor`.
    #[must_use]
    fn times(self, factor: Self) -> Self;

    /// `self · factor + summand`.
    #[must_use]
    fn times_plus(self, factor: Self, summand: Self) -> Self;

    /// Whether it is neither infinite nor NaN.
    #[must_use]
    fn is_finite(self) -> bool;
}

macro_rules! floats {
    ($($t:ident)*) => { $(
        impl Number for $t {
            const ADDITIVE_IDENTITY: Self = -0.0;
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;

            #[inline(always)]
            fn plus(self, summand: Self) -> Self {
                self + summand
            }

            #[inline(always)]
            fn times(self, factor: Self) -> Self {
                self * factor
            }

            #[inline(always)]
            fn times_plus(self, factor: Self, summand: Self) -> Self {
                GpuFloat::mul_add(self, factor, summand)
            }

            #[inline(always)]
            fn is_finite(self) -> bool {
                $t::is_finite(self)
            }
        }
    )* };
}
floats!(f32 f64);

macro_rules! integers {
    ($($t:ident)*) => { $(
        impl Number for $t {
            const ADDITIVE_IDENTITY: Self = 0;
            const ZERO: Self = 0;
            const ONE: Self = 1;

            #[inline(always)]
            fn plus(self, summand: Self) -> Self {
                self.wrapping_add(summand)
            }

            #[inline(always)]
            fn times(self, factor: Self) -> Self {
                self.wrapping_mul(factor)
            }

            #[inline(always)]
            fn times_plus(self, factor: Self, summand: Self) -> Self {
                self.wrapping_mul(factor).wrapping_add(summand)
            }

            #[inline(always)]
            fn is_finite(self) -> bool {
                true
            }
        }
    )* };
}
integers!(i32 i64);

impl Number for Complex32 {
    const ADDITIVE_IDENTITY: Self = Self { re: -0.0, im: -0.0 };
    const ZERO: Self = Self { re: 0.0, im: 0.0 };
    // −0, by which `times_plus` tells it from a gate: a product with an imaginary part of 0 would make NaN of an infinity.
    const ONE: Self = Self { re: 1.0, im: -0.0 };

    #[inline(always)]
    fn plus(self, summand: Self) -> Self {
        Self {
            re: self.re + summand.re,
            im: self.im + summand.im,
        }
    }

    #[inline(always)]
    fn times(self, factor: Self) -> Self {
        self.times_plus(factor, Self::ADDITIVE_IDENTITY)
    }

    #[inline(always)]
    fn times_plus(self, factor: Self, summand: Self) -> Self {
        if self.re.to_bits() == Self::ONE.re.to_bits()
            && self.im.to_bits() == Self::ONE.im.to_bits()
        {
            return factor.plus(summand);
        }
        Self {
            re: GpuFloat::mul_add(
                self.re,
                factor.re,
                GpuFloat::mul_add(-self.im, factor.im, summand.re),
            ),
            im: GpuFloat::mul_add(
                self.re,
                factor.im,
                GpuFloat::mul_add(self.im, factor.re, summand.im),
            ),
        }
    }

    #[inline(always)]
    fn is_finite(self) -> bool {
        self.re.is_finite() & self.im.is_finite()
    }
}

macro_rules! elements {
    ($($t:ident)*) => { $(
        impl Element for $t {
            type Number = $t;
            const NEUTRAL_SUMMAND: $t = <$t as Number>::ADDITIVE_IDENTITY;
            const NEUTRAL_FACTOR: $t = <$t as Number>::ONE;

            #[inline(always)]
            fn widen(self) -> $t {
                self
            }

            #[inline(always)]
            fn narrow<const N: usize>(numbers: [$t; N]) -> [$t; N] {
                numbers
            }
        }
    )* };
}
elements!(f32 f64 i32 i64 Complex32);

macro_rules! halves {
    ($($t:ident $one:literal)*) => { $(
        impl Element for $t {
            type Number = f32;
            const NEUTRAL_SUMMAND: Self = Self(0x8000);
            const NEUTRAL_FACTOR: Self = Self($one);

            #[inline(always)]
            fn widen(self) -> f32 {
                self.to_f32()
            }

            #[inline(always)]
            fn narrow<const N: usize>(numbers: [f32; N]) -> [Self; N] {
                Self::from_f32s(numbers)
            }
        }
    )* };
}
halves!(F16 0x3c00 BF16 0x3f80);

/// A sum of elements: the aggregate of the cumulative sum. It acts by addition.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sum<T>(pub T);

impl<T: Number> Monoid for Sum<T> {
    const IDENTITY: Self = Self(T::ADDITIVE_IDENTITY);

    #[inline(always)]
    fn then(self, next: Self) -> Self {
        Self(self.0.plus(next.0))
    }
}

impl<T: Shuffle> Shuffle for Sum<T> {
    #[inline(always)]
    fn map_words(self, exchange: impl Fn(u32) -> u32) -> Self {
        Self(self.0.map_words(exchange))
    }
}

impl<T: Number> Action for Sum<T> {
    type Carry = T;
    const START: T = T::ADDITIVE_IDENTITY;
    const EMPTY: T = T::ZERO;

    #[inline(always)]
    fn apply(self, carry: T) -> T {
        carry.plus(self.0)
    }

    #[inline(always)]
    fn is_finite_carry(carry: T) -> bool {
        carry.is_finite()
    }
}

impl<T: Number> Step for Sum<T> {
    type Aggregate = Self;
    type Layout = Dense;
    type Outputs = T;
    const PADDING: Self = Self::IDENTITY;

    #[inline(always)]
    fn aggregate(self) -> Self {
        self
    }

    #[inline(always)]
    fn after(self, carry: T) -> T {
        self.apply(carry)
    }

    #[inline(always)]
    fn outputs(self, _: T, result: T) -> T {
        result
    }

    #[inline(always)]
    fn as_first(self) -> Self {
        self
    }
}

impl<E: Element> Operator<E, 1> for Sum<E::Number> {
    const PADDING_ELEMENTS: [E; 1] = [E::NEUTRAL_SUMMAND];

    #[inline(always)]
    fn gather<const N: usize>(elements: impl Fn(usize) -> [E; N]) -> [Self; N] {
        elements(0).map(|element| Self(element.widen()))
    }

    #[inline(always)]
    fn emit<const N: usize>(results: [E::Number; N]) -> [[E; N]; 1] {
        [E::narrow(results)]
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

impl<T: Number> Monoid for Affine<T> {
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

impl<T: Number> Action for Affine<T> {
    type Carry = T;
    const START: T = T::ADDITIVE_IDENTITY;
    const EMPTY: T = T::ZERO;

    #[inline(always)]
    fn apply(self, carry: T) -> T {
        self.a.times_plus(carry, self.b)
    }

    #[inline(always)]
    fn is_finite_carry(carry: T) -> bool {
        carry.is_finite()
    }
}

impl<T: Number> Step for Affine<T> {
    type Aggregate = Self;
    type Layout = Dense;
    type Outputs = T;
    const PADDING: Self = Self::IDENTITY;

    #[inline(always)]
    fn aggregate(self) -> Self {
        self
    }

    #[inline(always)]
    fn after(self, carry: T) -> T {
        self.apply(carry)
    }

    #[inline(always)]
    fn outputs(self, _: T, result: T) -> T {
        result
    }

    #[inline(always)]
    fn as_first(self) -> Self {
        Self {
            a: T::ONE,
            b: self.b,
        }
    }
}

impl<E: Element> Operator<E, 2> for Affine<E::Number> {
    const PADDING_ELEMENTS: [E; 2] = [E::NEUTRAL_FACTOR, E::NEUTRAL_SUMMAND];

    #[inline(always)]
    fn gather<const N: usize>(elements: impl Fn(usize) -> [E; N]) -> [Self; N] {
        let (a, b) = (elements(0), elements(1));
        core::array::from_fn(|i| Self {
            a: a[i].widen(),
            b: b[i].widen(),
        })
    }

    #[inline(always)]
    fn emit<const N: usize>(results: [E::Number; N]) -> [[E; N]; 1] {
        [E::narrow(results)]
    }
}

/// A step h ↦ a·h + b of an affine scan in the scan of its gradient, which goes the other way. The carry is the gradient of what the
/// step gives, by way of the steps after it, and then that of the h which enters it.
///
/// With g = dh + carry, the gradient of a is g·h and that of b is g, and the carry becomes a·g. So an aggregate is a map too.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gradient<T> {
    a: T,
    /// The h that enters the step.
    before: T,
    /// The gradient of the step's result.
    dh: T,
    /// Whether nothing enters the step, so that its result does not depend on a.
    is_first: bool,
}

impl<T: Number> Step for Gradient<T> {
    type Aggregate = Affine<T>;
    /// The gradients of a and of b.
    type Outputs = [T; 2];
    type Layout = Dense;
    const PADDING: Self = Self {
        a: T::ONE,
        before: T::ZERO,
        dh: T::ADDITIVE_IDENTITY,
        is_first: false,
    };
    const IS_BACKWARD: bool = true;
    const ENDS_CARRIES: bool = true;

    #[inline(always)]
    fn aggregate(self) -> Affine<T> {
        // A carry that is not finite stays so in a map, as it has to; it ends in `after`.
        let (a, b) = (self.a, self.a.times(self.dh));
        if self.is_first {
            Affine {
                a: T::ZERO,
                b: T::ZERO,
            }
        } else {
            Affine { a, b }
        }
    }

    #[inline(always)]
    fn after(self, carry: T) -> T {
        let after = self.a.times(self.dh.plus(carry));
        if self.is_first { T::ZERO } else { after }
    }

    #[inline(always)]
    fn outputs(self, carry: T, _: T) -> [T; 2] {
        let g = self.dh.plus(carry);
        let da = g.times(self.before);
        [if self.is_first { T::ZERO } else { da }, g]
    }

    #[inline(always)]
    fn as_first(self) -> Self {
        Self {
            is_first: true,
            ..self
        }
    }

    #[inline(always)]
    fn with_initial(self, state: T) -> Self {
        Self {
            before: state,
            ..self
        }
    }
}

impl<E: Element> Operator<E, 3, 2> for Gradient<E::Number> {
    const PADDING_ELEMENTS: [E; 3] = [E::NEUTRAL_FACTOR, E::NEUTRAL_SUMMAND, E::NEUTRAL_SUMMAND];
    const IS_OF_NEXT: [bool; 3] = [false, true, false];

    #[inline(always)]
    fn gather<const N: usize>(elements: impl Fn(usize) -> [E; N]) -> [Self; N] {
        let (a, h, dh) = (elements(0), elements(1), elements(2));
        core::array::from_fn(|i| Self {
            a: a[i].widen(),
            before: h[i].widen(),
            dh: dh[i].widen(),
            is_first: false,
        })
    }

    #[inline(always)]
    fn emit<const N: usize>(outputs: [[E::Number; 2]; N]) -> [[E; N]; 2] {
        core::array::from_fn(|o| E::narrow(outputs.map(|both| both[o])))
    }
}

/// A step at which the scan may start afresh, or an aggregate of such steps: that is selected, whatever the carry, never multiplied
/// by 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Restarting<M> {
    /// The step, or the aggregate since the last one at which it does.
    since: M,
    /// Whether there is such a step: 0 or 1.
    restarts: u32,
}

impl<M: Action> Monoid for Restarting<M> {
    const IDENTITY: Self = Self {
        since: M::IDENTITY,
        restarts: 0,
    };

    #[inline(always)]
    fn then(self, next: Self) -> Self {
        let joined = self.since.then(next.since);
        Self {
            since: if next.restarts != 0 {
                next.since
            } else {
                joined
            },
            restarts: self.restarts | next.restarts,
        }
    }
}

impl<M: Shuffle> Shuffle for Restarting<M> {
    #[inline(always)]
    fn map_words(self, exchange: impl Fn(u32) -> u32) -> Self {
        Self {
            since: self.since.map_words(&exchange),
            restarts: exchange(self.restarts),
        }
    }
}

impl<M: Action> Action for Restarting<M> {
    type Carry = M::Carry;
    const START: M::Carry = M::START;
    const EMPTY: M::Carry = M::EMPTY;

    #[inline(always)]
    fn apply(self, carry: M::Carry) -> M::Carry {
        self.since
            .apply(if self.restarts != 0 { M::START } else { carry })
    }

    #[inline(always)]
    fn is_finite_carry(carry: M::Carry) -> bool {
        M::is_finite_carry(carry)
    }
}

impl<S: Step> Step for Restarting<S> {
    type Aggregate = Restarting<S::Aggregate>;
    type Outputs = S::Outputs;
    type Layout = Strided;
    const PADDING: Self = Self {
        since: S::PADDING,
        restarts: 0,
    };
    const IS_BACKWARD: bool = S::IS_BACKWARD;
    const ENDS_CARRIES: bool = true;

    #[inline(always)]
    fn aggregate(self) -> Restarting<S::Aggregate> {
        Restarting {
            since: self.since.aggregate(),
            restarts: self.restarts,
        }
    }

    #[inline(always)]
    fn after(self, carry: Carry<S>) -> Carry<S> {
        self.since.after(if self.restarts != 0 {
            S::Aggregate::START
        } else {
            carry
        })
    }

    #[inline(always)]
    fn before(self, carry: Carry<S>) -> Carry<S> {
        if self.restarts != 0 {
            S::Aggregate::EMPTY
        } else {
            carry
        }
    }

    #[inline(always)]
    fn outputs(self, carry: Carry<S>, result: Carry<S>) -> S::Outputs {
        self.since.outputs(carry, result)
    }

    #[inline(always)]
    fn as_first(self) -> Self {
        Self {
            since: self.since.as_first(),
            // No carry leaves the first step of a backward scan, as if it were of the mask.
            restarts: if S::IS_BACKWARD { 1 } else { self.restarts },
        }
    }

    #[inline(always)]
    fn with_initial(self, state: Carry<S>) -> Self {
        Self {
            since: self.since.with_initial(state),
            ..self
        }
    }
}

impl<E: Scalar, S: Operator<E, I, O>, const I: usize, const O: usize> Operator<E, I, O>
    for Restarting<S>
{
    const IS_MASKED: bool = true;
    const PADDING_ELEMENTS: [E; I] = S::PADDING_ELEMENTS;
    const IS_OF_NEXT: [bool; I] = S::IS_OF_NEXT;

    #[inline(always)]
    fn gather<const N: usize>(elements: impl Fn(usize) -> [E; N]) -> [Self; N] {
        S::gather(elements).map(|since| Self { since, restarts: 0 })
    }

    #[inline(always)]
    fn emit<const N: usize>(outputs: [S::Outputs; N]) -> [[E; N]; O] {
        S::emit(outputs)
    }

    #[inline(always)]
    fn restart(self) -> Self {
        Self {
            since: self.since.as_first(),
            restarts: 1,
        }
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
    fn a_gradient_is_a_step_of_an_affine_scan() {
        let carries = || SOME.into_iter();
        assert_eq!(Gradient::<f32>::PADDING.aggregate(), Affine::IDENTITY);
        for c in carries() {
            assert_eq!(Gradient::PADDING.after(c).to_bits(), c.to_bits());
        }
        for Affine { a, b: dh } in maps() {
            let [step]: [Gradient<f32>; 1] = Operator::<f32, 3, 2>::gather(|k| [[a, 5.0, dh][k]]);
            for c in carries() {
                assert_eq!(step.aggregate().apply(c), step.after(c));
                assert_eq!(step.after(c), a * (dh + c));
                assert_eq!(step.outputs(c, 0.0), [(dh + c) * 5.0, dh + c]);
                assert_eq!(step.with_initial(3.0).outputs(c, 0.0)[0], (dh + c) * 3.0);
            }
        }
    }

    /// Of the step with which the scan starts, whatever its gate is.
    #[test]
    fn a_gradient_ends_with_the_first_step() {
        for gate in [f32::NAN, f32::INFINITY, 2.0] {
            for (h, dh, c) in [(3.0, 1.0, 4.0), (f32::INFINITY, -1.0, f32::INFINITY)] {
                let [step]: [Gradient<f32>; 1] =
                    Operator::<f32, 3, 2>::gather(|k| [[gate, h, dh][k]]);
                let first = step.as_first();
                assert_eq!(first.after(c), 0.0);
                assert_eq!(first.outputs(c, 0.0), [0.0, dh + c]);
                let restart = Operator::<f32, 3, 2>::restart(Restarting {
                    since: step,
                    restarts: 0,
                });
                assert_eq!(restart.after(c), 0.0);
                assert_eq!(restart.outputs(c, 0.0), [0.0, dh + c]);
                assert_eq!(restart.aggregate().apply(c), 0.0);
                // Nothing of what comes before goes through.
                let before = Restarting {
                    since: Affine {
                        a: f32::NAN,
                        b: f32::NAN,
                    },
                    restarts: 0,
                };
                assert_eq!(before.then(restart.aggregate()).apply(c), 0.0);
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
