//! What a step does: to a carry, and to the composition of the steps before it.

use crate::element::sealed::Arithmetic;
use std::marker::PhantomData;

/// A scan of `N` inputs to `K` outputs. The composition of steps is `P` numbers.
///
/// Its steps come in the order in which they are carried out.
pub trait Steps<const N: usize, const K: usize, const P: usize>: Send + Sync {
    /// Whether it goes through the steps of a forward scan backwards. Where that one starts afresh, at a step, its carry
    /// ends with the step.
    const BACKWARD: bool;

    /// Which inputs are those of the next step, which in a backward scan is the step before.
    const NEXT: [bool; N];

    /// The carry after a step, and the outputs.
    fn step<S: Arithmetic>(carry: S, inputs: [S; N]) -> (S, [S; K]);

    /// As [`step`](Self::step), where the scan starts afresh.
    fn restart<S: Arithmetic>(carry: S, inputs: [S; N]) -> (S, [S; K]);

    /// A step as a composition.
    fn map<S: Arithmetic>(inputs: [S; N]) -> [S; P];

    /// `first`, then `next`.
    fn then<S: Arithmetic>(first: [S; P], next: [S; P]) -> [S; P];

    /// The carry after steps.
    fn apply<S: Arithmetic>(composed: [S; P], carry: S) -> S;
}

/// Which state is the result of a step.
pub trait Emit: Send + Sync {
    fn emit<S>(before: S, after: S) -> S;
}

/// The state after it.
pub struct After;

impl Emit for After {
    #[inline(always)]
    fn emit<S>(_: S, after: S) -> S {
        after
    }
}

/// The state before it.
pub struct Before;

impl Emit for Before {
    #[inline(always)]
    fn emit<S>(before: S, _: S) -> S {
        before
    }
}

/// h ↦ h + x.
pub struct Sum<E>(PhantomData<E>);

impl<E: Emit> Steps<1, 1, 1> for Sum<E> {
    const BACKWARD: bool = false;
    const NEXT: [bool; 1] = [false];

    #[inline(always)]
    fn step<S: Arithmetic>(carry: S, [x]: [S; 1]) -> (S, [S; 1]) {
        let after = carry.plus(x);
        (after, [E::emit(carry, after)])
    }

    #[inline(always)]
    fn restart<S: Arithmetic>(_: S, [x]: [S; 1]) -> (S, [S; 1]) {
        (x, [E::emit(S::default(), x)])
    }

    #[inline(always)]
    fn map<S: Arithmetic>(x: [S; 1]) -> [S; 1] {
        x
    }

    #[inline(always)]
    fn then<S: Arithmetic>([first]: [S; 1], [next]: [S; 1]) -> [S; 1] {
        [first.plus(next)]
    }

    #[inline(always)]
    fn apply<S: Arithmetic>([x]: [S; 1], carry: S) -> S {
        carry.plus(x)
    }
}

/// a·h + b, with a rounding after the product.
#[inline(always)]
fn affine<S: Arithmetic>([a, b]: [S; 2], h: S) -> S {
    a.times(h).plus(b)
}

#[inline(always)]
fn compose<S: Arithmetic>(first: [S; 2], next: [S; 2]) -> [S; 2] {
    [first[0].times(next[0]), affine(next, first[1])]
}

/// h ↦ a·h + b.
pub struct Affine<E>(PhantomData<E>);

impl<E: Emit> Steps<2, 1, 2> for Affine<E> {
    const BACKWARD: bool = false;
    const NEXT: [bool; 2] = [false; 2];

    #[inline(always)]
    fn step<S: Arithmetic>(carry: S, step: [S; 2]) -> (S, [S; 1]) {
        let after = affine(step, carry);
        (after, [E::emit(carry, after)])
    }

    #[inline(always)]
    fn restart<S: Arithmetic>(_: S, [_, b]: [S; 2]) -> (S, [S; 1]) {
        (b, [E::emit(S::default(), b)])
    }

    #[inline(always)]
    fn map<S: Arithmetic>(step: [S; 2]) -> [S; 2] {
        step
    }

    #[inline(always)]
    fn then<S: Arithmetic>(first: [S; 2], next: [S; 2]) -> [S; 2] {
        compose(first, next)
    }

    #[inline(always)]
    fn apply<S: Arithmetic>(composed: [S; 2], carry: S) -> S {
        affine(composed, carry)
    }
}

/// The gradient of an affine scan. Of a step h_t = a·h_{t−1} + b it has a, h_{t−1} and dh_t; its carry is the gradient of
/// h_t by way of the steps after it, and then that of h_{t−1}.
///
/// The outputs are da = g·h_{t−1} and db = g, where g = dh + carry, and the carry becomes a·g.
pub struct Gradient;

impl Steps<3, 2, 2> for Gradient {
    const BACKWARD: bool = true;
    const NEXT: [bool; 3] = [false, true, false];

    #[inline(always)]
    fn step<S: Arithmetic>(carry: S, [a, before, dh]: [S; 3]) -> (S, [S; 2]) {
        let g = dh.plus(carry);
        (a.times(g), [g.times(before), g])
    }

    #[inline(always)]
    fn restart<S: Arithmetic>(carry: S, [_, _, dh]: [S; 3]) -> (S, [S; 2]) {
        (S::default(), [S::default(), dh.plus(carry)])
    }

    #[inline(always)]
    fn map<S: Arithmetic>([a, _, dh]: [S; 3]) -> [S; 2] {
        [a, a.times(dh)]
    }

    #[inline(always)]
    fn then<S: Arithmetic>(first: [S; 2], next: [S; 2]) -> [S; 2] {
        compose(first, next)
    }

    #[inline(always)]
    fn apply<S: Arithmetic>(composed: [S; 2], carry: S) -> S {
        affine(composed, carry)
    }
}
