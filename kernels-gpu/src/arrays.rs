//! What a scan reads and writes besides its steps: states, flags, and how it is asked to go.

use crate::monoid::{Action, Carry, Step};
use cuda_std::{Global, Scalar};

/// The arrays of a scan. Those that [`Options`] does not name are not accessed, and may be anything.
pub struct Arrays<S: Step, E, const I: usize, const O: usize = 1> {
    /// The inputs.
    pub inputs: [Global<E>; I],
    /// The outputs.
    pub outputs: [Global<E>; O],
    /// The initial state of each sequence. It is the carry that enters the sequence, but in a backward scan.
    pub initial: Global<Carry<S>>,
    /// The carry that enters each sequence in a backward scan: the gradient of its final state.
    pub d_final: Global<Carry<S>>,
    /// The carry after each sequence.
    pub last: Global<Carry<S>>,
    /// For each step, whatever the channel, whether the scan starts afresh there: not 0.
    pub mask: Global<u8>,
    /// Where each packed sequence begins, and after the last of them where it ends: in steps.
    pub boundaries: Global<u64>,
    /// What the blocks of a split scan tell each other: see [`sharing`](crate::sharing).
    pub scratch: Global<u64>,
}

/// The options of a scan, a bit each.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Options(pub u64);

impl Options {
    /// Sequences have initial states.
    pub const INITIAL: Self = Self(1);
    /// The carry after each sequence is written.
    pub const FINAL: Self = Self(2);
    /// The result at a step is the carry before it, not after it.
    pub const EXCLUSIVE: Self = Self(4);
    /// Sequences of several lengths are packed one after another; [`Arrays::boundaries`] says where they begin.
    pub const PACKED: Self = Self(8);
    /// [`Arrays::mask`] says where the scan starts afresh; for operators that take one.
    pub const MASKED: Self = Self(16);
    /// Final states have gradients.
    pub const D_FINAL: Self = Self(32);

    /// Whether all options of `other` are among these.
    #[inline(always)]
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// These options, if `holds`; else none.
    #[must_use]
    pub const fn only_if(self, holds: bool) -> Self {
        if holds { self } else { Self(0) }
    }

    /// These options and those of `other`.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// The steps of a sequence: where they begin among all steps, and how many they are.
#[derive(Clone, Copy)]
pub struct Span {
    /// The first step.
    pub first: usize,
    /// Steps.
    pub len: usize,
}

impl<S: Step, E: Scalar, const I: usize, const O: usize> Arrays<S, E, I, O> {
    /// The steps of sequence `outer`; each has `len` of them, unless they are packed.
    ///
    /// # Safety
    /// With [`Options::PACKED`], the array has an element for it and one more.
    #[inline(always)]
    pub unsafe fn span(&self, options: Options, outer: usize, len: usize) -> Span {
        if options.has(Options::PACKED) {
            // SAFETY: says the caller.
            let (first, end) =
                unsafe { (self.boundaries.read(outer), self.boundaries.read(outer + 1)) };
            Span {
                first: first as usize,
                len: (end - first) as usize,
            }
        } else {
            Span {
                first: outer * len,
                len,
            }
        }
    }

    /// The carry that enters a sequence of `len` steps.
    ///
    /// # Safety
    /// The arrays of carries that the options name have an element for it.
    #[inline(always)]
    pub unsafe fn start(&self, options: Options, sequence: usize, len: usize) -> Carry<S> {
        let (is_there, carries) = if S::IS_BACKWARD {
            // Without steps, nothing goes through to a state that is not there.
            let is_there =
                options.has(Options::D_FINAL) && (len > 0 || options.has(Options::INITIAL));
            (is_there, self.d_final)
        } else {
            (options.has(Options::INITIAL), self.initial)
        };
        if is_there {
            // SAFETY: says the caller.
            unsafe { carries.read(sequence) }
        } else if options.has(Options::EXCLUSIVE) || len == 0 {
            S::Aggregate::EMPTY
        } else {
            S::Aggregate::START
        }
    }
}
