//! Where an input has its elements.
//!
//! Those of plain scans lie as those of the outputs, and nothing is said of them: numbers that are no constants take registers.

use cuda_std::hint;

/// What a kernel knows of where an input has its elements.
pub trait Layout: Copy {
    /// Those of `I` inputs from the numbers of as many or more, one layout after the other.
    #[must_use]
    fn all<const I: usize, const N: usize>(numbers: [u64; N]) -> [Self; I];

    /// From what the launch says.
    #[must_use]
    fn of(strided: Strided) -> Self;

    /// What the launch said; any, where it was not kept.
    #[must_use]
    fn strided(self) -> Strided;
}

/// Inputs have their elements where outputs have them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dense;

impl Layout for Dense {
    #[inline(always)]
    fn all<const I: usize, const N: usize>(_: [u64; N]) -> [Self; I] {
        [Self; I]
    }

    #[inline(always)]
    fn of(_: Strided) -> Self {
        Self
    }

    #[inline(always)]
    fn strided(self) -> Strided {
        Strided::default()
    }
}

/// The element of step `t` and channel `i` of outer index `o` is `offset + o · outer + t · step + i · channel`. Arithmetic wraps around, so
/// that a number of two's complement is a negative one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Strided {
    /// The element of all zeros.
    pub offset: usize,
    /// From an outer index to the next.
    pub outer: usize,
    /// From a step to the next in memory.
    pub step: usize,
    /// From a channel to the next.
    pub channel: usize,
    /// Whether vectors of elements can be read at once; who reads them finds out.
    pub has_vectors: bool,
}

impl Layout for Strided {
    #[inline(always)]
    fn all<const I: usize, const N: usize>(numbers: [u64; N]) -> [Self; I] {
        let numbers = numbers.as_chunks::<{ Self::NUMBERS }>().0;
        core::array::from_fn(|k| {
            let [offset, outer, step, channel] = numbers[k].map(|number| number as usize);
            Self {
                offset,
                outer,
                step,
                channel,
                ..Self::default()
            }
        })
    }

    #[inline(always)]
    fn of(strided: Self) -> Self {
        strided
    }

    #[inline(always)]
    fn strided(self) -> Self {
        self
    }
}

/// Inputs of a kernel, at most.
pub const MOST_INPUTS: usize = 3;

impl Strided {
    /// The numbers that say what it is.
    pub const NUMBERS: usize = 4;

    /// As kernels take it.
    #[must_use]
    pub const fn numbers(self) -> [u64; Self::NUMBERS] {
        let Self {
            offset,
            outer,
            step,
            channel,
            ..
        } = self;
        [offset as u64, outer as u64, step as u64, channel as u64]
    }

    /// That of the steps and channels from these on, at one outer index.
    #[inline(always)]
    #[must_use]
    pub fn from(self, outer: usize, step: usize, channel: usize) -> Self {
        let offset = outer
            .wrapping_mul(self.outer)
            .wrapping_add_signed(self.way(step, channel));
        Self {
            offset: self.offset.wrapping_add(offset),
            ..self
        }
    }

    /// The layout, of which nothing is computed before this.
    #[inline(always)]
    #[must_use]
    pub fn opaque(self) -> Self {
        Self {
            step: hint::opaque(self.step),
            channel: hint::opaque(self.channel),
            ..self
        }
    }

    /// How far it is from the element at the offset to that of a step and a channel.
    #[inline(always)]
    #[must_use]
    pub fn way(self, step: usize, channel: usize) -> isize {
        let steps = step.wrapping_mul(self.step);
        steps.wrapping_add(channel.wrapping_mul(self.channel)) as isize
    }
}

/// Layouts from step `first` of all steps and a channel on, where sequence `outer` begins with that step, and sequences are packed or not.
#[inline(always)]
#[must_use]
pub fn from<L: Layout, const I: usize>(
    layouts: [L; I],
    is_packed: bool,
    outer: usize,
    first: usize,
    channel: usize,
) -> [L; I] {
    let (outer, step) = if is_packed { (0, first) } else { (outer, 0) };
    layouts.map(|layout| L::of(layout.strided().from(outer, step, channel)))
}
