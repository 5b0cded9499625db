//! Where inputs have their elements, as a type: where it is where the outputs have theirs, there is nothing to reckon.

use crate::layout::Layout;
use crate::shape::Extents;

/// A step of a channel: its element in the outputs, and what says where it is in the inputs.
#[derive(Clone, Copy)]
pub struct Place<P> {
    pub element: usize,
    pub inputs: P,
}

/// Where `N` inputs have their elements.
pub trait Layouts<const N: usize>: Copy + Send + Sync {
    /// Of a step of a channel.
    type Places: Copy;

    /// Whether inputs of these lengths have all elements.
    fn fit(self, lengths: [usize; N], extents: Extents) -> bool;

    /// A step of an outer index, of a channel.
    fn at(self, outer: usize, step: usize, channel: usize) -> Self::Places;

    /// So many steps later in memory, and so many channels on. It need not exist.
    fn moved(self, places: Self::Places, steps: isize, channels: usize) -> Self::Places;

    /// The element of input `k`.
    fn element(self, k: usize, place: Place<Self::Places>) -> usize;

    /// From one step, and from one channel, to the next in input `k`; where there is one channel, steps are neighbours if inputs are dense.
    fn strides(self, k: usize) -> [usize; 2];
}

/// As in the outputs.
#[derive(Clone, Copy)]
pub struct Dense;

impl<const N: usize> Layouts<N> for Dense {
    type Places = ();

    fn fit(self, lengths: [usize; N], extents: Extents) -> bool {
        lengths.iter().all(|&len| len == extents.elements())
    }

    #[inline(always)]
    fn at(self, _: usize, _: usize, _: usize) {}

    #[inline(always)]
    fn moved(self, (): (), _: isize, _: usize) {}

    #[inline(always)]
    fn element(self, _: usize, place: Place<()>) -> usize {
        place.element
    }

    #[inline(always)]
    fn strides(self, _: usize) -> [usize; 2] {
        [1, 1]
    }
}

/// As each layout says.
#[derive(Clone, Copy)]
pub struct Strided<const N: usize>(pub [Layout; N]);

impl<const N: usize> Layouts<N> for Strided<N> {
    type Places = [usize; N];

    fn fit(self, lengths: [usize; N], extents: Extents) -> bool {
        let mut inputs = self.0.iter().zip(lengths);
        inputs.all(|(layout, len)| layout.fits(extents, len))
    }

    #[inline(always)]
    fn at(self, outer: usize, step: usize, channel: usize) -> [usize; N] {
        self.0.map(|layout| layout.at(outer, step, channel))
    }

    #[inline(always)]
    fn moved(self, mut places: [usize; N], steps: isize, channels: usize) -> [usize; N] {
        for k in 0..N {
            let Layout { len, inner, .. } = self.0[k];
            places[k] = places[k]
                .wrapping_add((steps as usize).wrapping_mul(len as usize))
                .wrapping_add(channels.wrapping_mul(inner as usize));
        }
        places
    }

    #[inline(always)]
    fn element(self, k: usize, place: Place<[usize; N]>) -> usize {
        place.inputs[k]
    }

    #[inline(always)]
    fn strides(self, k: usize) -> [usize; 2] {
        let Layout { len, inner, .. } = self.0[k];
        [len as usize, inner as usize]
    }
}
