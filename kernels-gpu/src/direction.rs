//! The direction of a scan, as a type. It decides where in memory a step lies, and nothing else.
//!
//! Kernels count steps in scan order: *position* 0 is the step that the scan begins with, whichever end of the
//! sequence that is. So a reverse scan is the forward scan of the reversed sequence, bit for bit.

/// The direction of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From the first element on.
    Forward,
    /// From the last element back.
    Reverse,
}

impl Direction {
    /// The other direction.
    #[must_use]
    pub const fn opposite(self) -> Self {
        match self {
            Self::Forward => Self::Reverse,
            Self::Reverse => Self::Forward,
        }
    }
}

/// A [`Direction`] as a type.
pub trait Order {
    /// The direction that the type stands for.
    const DIRECTION: Direction;
}

/// From the first element on.
pub struct Forward;
/// From the last element back.
pub struct Reverse;

impl Order for Forward {
    const DIRECTION: Direction = Direction::Forward;
}
impl Order for Reverse {
    const DIRECTION: Direction = Direction::Reverse;
}

/// The first in memory of the `count` steps at `position` and after, in a sequence of `len` steps.
#[inline(always)]
#[must_use]
pub fn index<D: Order>(position: usize, count: usize, len: usize) -> usize {
    match D::DIRECTION {
        Direction::Forward => position,
        Direction::Reverse => len - position - count,
    }
}

/// The first in memory of the `count` steps that come `ahead` steps later in the scan than one that lies at `first`.
#[inline(always)]
#[must_use]
pub fn first_of<D: Order>(first: usize, ahead: usize, count: usize) -> usize {
    match D::DIRECTION {
        Direction::Forward => first + ahead,
        Direction::Reverse => first - ahead - (count - 1),
    }
}

/// Neighbours in memory in scan order, or the other way round.
#[inline(always)]
#[must_use]
pub fn order<D: Order, T: Copy, const N: usize>(values: [T; N]) -> [T; N] {
    match D::DIRECTION {
        Direction::Forward => values,
        Direction::Reverse => core::array::from_fn(|i| values[N - 1 - i]),
    }
}
