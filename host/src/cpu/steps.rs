//! What a step does: to a carry, and to the composition of the steps before it.

use crate::element::Element;

/// An operator of `N` inputs. The composition of steps is as many numbers as a step has inputs.
pub trait Steps<T, const N: usize>: Send + Sync {
    /// The carry after a step.
    fn apply(carry: T, step: [T; N]) -> T;

    /// `first`, then `next`.
    fn then(first: [T; N], next: [T; N]) -> [T; N];
}

/// h ↦ h + x.
pub struct Sum;

impl<T: Element> Steps<T, 1> for Sum {
    #[inline(always)]
    fn apply(carry: T, [x]: [T; 1]) -> T {
        carry + x
    }

    #[inline(always)]
    fn then([first]: [T; 1], [next]: [T; 1]) -> [T; 1] {
        [first + next]
    }
}

/// h ↦ a·h + b, with a rounding after the product.
pub struct Affine;

impl<T: Element> Steps<T, 2> for Affine {
    #[inline(always)]
    fn apply(carry: T, [a, b]: [T; 2]) -> T {
        a * carry + b
    }

    #[inline(always)]
    fn then(first: [T; 2], next: [T; 2]) -> [T; 2] {
        [first[0] * next[0], Self::apply(first[1], next)]
    }
}
