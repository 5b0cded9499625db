//! What a scan reads and writes besides its steps: states, flags, and how it is asked to go.

use crate::monoid::Operator;
use cuda_std::Global;

/// The arrays of a scan. Those that [`Options`] does not name are not accessed, and may be anything.
pub struct Arrays<M: Operator<I>, const I: usize> {
    /// The inputs.
    pub inputs: [Global<M::Element>; I],
    /// The output.
    pub output: Global<M::Element>,
    /// The carry that enters each sequence.
    pub initial: Global<M::Carry>,
    /// The carry after each sequence.
    pub last: Global<M::Carry>,
    /// What the blocks of a split scan tell each other: see [`look_back`](crate::look_back).
    pub scratch: Global<u64>,
}

/// The options of a scan, a bit each.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Options(pub u64);

impl Options {
    /// Sequences begin with their initial carry.
    pub const INITIAL: Self = Self(1);
    /// The carry after each sequence is written.
    pub const FINAL: Self = Self(2);
    /// The result at a step is the carry before it, not after it.
    pub const EXCLUSIVE: Self = Self(4);

    /// Whether all options of `other` are among these.
    #[inline(always)]
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// These options and those of `other`.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl<M: Operator<I>, const I: usize> Arrays<M, I> {
    /// The carry that enters a sequence.
    ///
    /// # Safety
    /// With [`Options::INITIAL`], the array has an element for it.
    #[inline(always)]
    pub unsafe fn start(&self, options: Options, sequence: usize) -> M::Carry {
        if options.has(Options::INITIAL) {
            // SAFETY: says the caller.
            unsafe { self.initial.read(sequence) }
        } else if options.has(Options::EXCLUSIVE) {
            M::EMPTY
        } else {
            M::START
        }
    }
}
