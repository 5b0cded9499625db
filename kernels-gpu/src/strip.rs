//! A warp's part of a tile of columns: copied to shared memory, read back, and stored.

use crate::{
    arrays::{Arrays, Options},
    direction::{Order, index},
    monoid::Operator,
    tiling::{
        WARP_THREADS,
        columns::{CHANNELS, LANE_CHANNELS, STAGE, STEPS, VECTOR},
    },
};
use core::marker::PhantomData;
use cuda_std::{Global, Shared};

/// What a thread holds of a tile: consecutive steps of its channels.
pub type Steps<S> = [[S; LANE_CHANNELS]; STEPS];

/// Some channels of one outer index, side by side, at most [`CHANNELS`].
pub struct Strip<M: Operator<I>, D, const I: usize> {
    inputs: [Global<M::Element>; I],
    output: Global<M::Element>,
    len: usize,
    inner: usize,
    channels: usize,
    /// Whether copies of [`VECTOR`] channels are aligned in every input.
    aligned_inputs: bool,
    /// Whether stores of a lane's channels at once are aligned in the output.
    aligned_output: bool,
    /// Whether nothing enters the sequences.
    fresh: bool,
    order: PhantomData<D>,
}

impl<M: Operator<I>, D: Order, const I: usize> Strip<M, D, I> {
    /// The strip of the channels from `channel` on, the first of which begins at element `start`.
    ///
    /// # Safety
    /// Its elements lie in the inputs, which are written, and in the output.
    #[inline(always)]
    #[must_use]
    pub unsafe fn new(
        arrays: &Arrays<M, I>,
        options: Options,
        start: usize,
        channel: usize,
        len: usize,
        inner: usize,
    ) -> Self {
        // SAFETY: the strip lies in the arrays, says the caller.
        let output = unsafe { arrays.output.add(start) };
        let mut strip = Self {
            inputs: arrays.inputs,
            output,
            len,
            inner,
            channels: (inner - channel).min(CHANNELS),
            aligned_inputs: inner.is_multiple_of(VECTOR),
            aligned_output: inner.is_multiple_of(LANE_CHANNELS)
                && output.is_aligned_to::<LANE_CHANNELS>(),
            fresh: !options.has(Options::INITIAL),
            order: PhantomData,
        };
        let mut k = 0;
        while k < I {
            // SAFETY: as above.
            strip.inputs[k] = unsafe { arrays.inputs[k].add(start) };
            strip.aligned_inputs &= strip.inputs[k].is_aligned_to::<VECTOR>();
            k += 1;
        }
        strip
    }

    /// Channels of the strip.
    #[inline(always)]
    #[must_use]
    pub fn channels(&self) -> usize {
        self.channels
    }

    /// Starts to copy the warp's steps, which are at `position` and after, to a stage: for each input, a row of [`CHANNELS`]
    /// elements for each step, from row `row` on. What lies outside the strip is left as it is.
    ///
    /// # Safety
    /// All lanes of the warp call it. No other warp accesses these rows of the stage, and no lane does until the copies are
    /// done.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn copy(&self, position: usize, stage: Shared<M::Element>, row: usize, lane: usize) {
        // SAFETY: the copy is done by the caller's rules.
        unsafe {
            if self.aligned_inputs {
                self.copy_vectors::<VECTOR>(position, stage, row, lane);
            } else {
                self.copy_vectors::<1>(position, stage, row, lane);
            }
        }
    }

    /// # Safety
    /// As [`copy`](Self::copy); vectors of `N` channels are aligned, and `N` divides `channels`.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    unsafe fn copy_vectors<const N: usize>(
        &self,
        position: usize,
        stage: Shared<M::Element>,
        row: usize,
        lane: usize,
    ) {
        let mut first = lane * N;
        while first < STEPS * CHANNELS {
            let (step, channel) = (first / CHANNELS, first % CHANNELS);
            let position = position + step;
            if position < self.len && channel < self.channels {
                let from = index::<D>(position, 1, self.len) * self.inner + channel;
                let mut k = 0;
                while k < I {
                    // SAFETY: the position and the channels lie in the strip, the row and the channels in the stage.
                    unsafe {
                        let to = k * STAGE + (row + step) * CHANNELS + channel;
                        stage.copy_async::<N>(to, self.inputs[k], from);
                    }
                    k += 1;
                }
            }
            first += WARP_THREADS * N;
        }
    }

    /// The steps at `position` and after of the lane's channels, from row `row` of the stage on; the identity outside
    /// the strip.
    ///
    /// # Safety
    /// The warp's copies to the stage are done, and its lanes have met since.
    #[inline(always)]
    #[must_use]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn steps(
        &self,
        position: usize,
        stage: Shared<M::Element>,
        row: usize,
        lane: usize,
    ) -> Steps<M> {
        let channel = lane * LANE_CHANNELS;
        let mut steps = [[M::IDENTITY; LANE_CHANNELS]; STEPS];
        let mut t = 0;
        while t < STEPS {
            if position + t < self.len {
                let at = (row + t) * CHANNELS + channel;
                if channel + LANE_CHANNELS <= self.channels {
                    // SAFETY: the steps lie in the strip, so that they were copied to the stage.
                    steps[t] = M::gather(|k| unsafe { stage.read_vector(k * STAGE + at) });
                } else {
                    let mut c = 0;
                    while c < LANE_CHANNELS {
                        if channel + c < self.channels {
                            // SAFETY: as above.
                            let [step] = M::gather(|k| [unsafe { stage.read(k * STAGE + at + c) }]);
                            steps[t][c] = step;
                        }
                        c += 1;
                    }
                }
            }
            t += 1;
        }
        if position == 0 && self.fresh {
            steps[0] = steps[0].map(M::as_first);
        }
        steps
    }

    /// Stores the results of the steps at `position` and after of the lane's channels.
    ///
    /// # Safety
    /// No other thread accesses these elements of the output.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn store(&self, position: usize, lane: usize, results: &Steps<M::Carry>) {
        let channel = lane * LANE_CHANNELS;
        let mut t = 0;
        while t < STEPS {
            if position + t < self.len {
                let at = index::<D>(position + t, 1, self.len) * self.inner + channel;
                if self.aligned_output && channel + LANE_CHANNELS <= self.channels {
                    // SAFETY: the steps lie in the strip, and their address is aligned.
                    unsafe {
                        self.output
                            .write_vector_streaming(at, results[t].map(M::emit));
                    }
                } else {
                    let mut c = 0;
                    while c < LANE_CHANNELS {
                        if channel + c < self.channels {
                            // SAFETY: the step lies in the strip.
                            unsafe { self.output.write(at + c, M::emit(results[t][c])) };
                        }
                        c += 1;
                    }
                }
            }
            t += 1;
        }
    }
}

/// What a thread's steps become.
pub struct Results<C> {
    /// The carry after each step, or before it where the scan is exclusive.
    pub values: Steps<C>,
    /// The carry after the last step.
    pub last: [C; LANE_CHANNELS],
}

impl<C: Copy> Results<C> {
    /// Takes the carries that enter the thread's steps through them.
    #[inline(always)]
    #[must_use]
    pub fn new<M: crate::monoid::Action<Carry = C>>(
        steps: &Steps<M>,
        entering: [C; LANE_CHANNELS],
        options: Options,
    ) -> Self {
        let mut results = Self {
            values: [entering; STEPS],
            last: entering,
        };
        let mut t = 0;
        while t < STEPS {
            let mut c = 0;
            while c < LANE_CHANNELS {
                let before = results.last[c];
                let after = steps[t][c].apply(before);
                results.values[t][c] = if options.has(Options::EXCLUSIVE) {
                    before
                } else {
                    after
                };
                results.last[c] = after;
                c += 1;
            }
            t += 1;
        }
        results
    }
}

/// The aggregate of the thread's steps of each of its channels.
#[inline(always)]
#[must_use]
pub fn compose<M: crate::monoid::Action>(steps: &Steps<M>) -> [M; LANE_CHANNELS] {
    let mut aggregates = steps[0];
    let mut t = 1;
    while t < STEPS {
        let mut c = 0;
        while c < LANE_CHANNELS {
            aggregates[c] = aggregates[c].then(steps[t][c]);
            c += 1;
        }
        t += 1;
    }
    aggregates
}

/// Where channel `c` of a lane has its slot of a warp: neighbouring lanes have neighbouring places.
#[inline(always)]
#[must_use]
pub const fn slot(warp: usize, c: usize, lane: usize) -> usize {
    (warp * LANE_CHANNELS + c) * WARP_THREADS + lane
}
