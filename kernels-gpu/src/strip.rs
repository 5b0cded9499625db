//! A warp's part of a tile of columns: copied to shared memory, read back, and stored.

use crate::{
    arrays::{Arrays, Options, Span},
    direction::{Order, first_of, index},
    monoid::{Action, Operator},
    tiling::{
        WARP_THREADS,
        columns::{STEPS, TILE},
    },
};
use core::marker::PhantomData;
use cuda_std::{Global, Scalar, Shared};

/// What a thread holds of a tile: consecutive steps of its channels.
pub type Steps<S, const C: usize> = [[S; C]; STEPS];

/// Some channels of one outer index, side by side, at most `32 · C`.
pub struct Strip<M: Operator<E, I>, E: Scalar, D, const I: usize, const V: usize, const C: usize> {
    inputs: [Global<E>; I],
    output: Global<E>,
    len: usize,
    inner: usize,
    channels: usize,
    /// Whether copies of `V` channels are aligned in every input.
    aligned_inputs: bool,
    /// Whether stores of a lane's channels at once are aligned in the output.
    aligned_output: bool,
    /// Whether nothing enters the sequences.
    fresh: bool,
    /// Whether there is a mask, and the steps' part of it.
    is_masked: bool,
    mask: Global<u8>,
    scan: PhantomData<(M, D)>,
}

impl<M: Operator<E, I>, E: Scalar, D: Order, const I: usize, const V: usize, const C: usize>
    Strip<M, E, D, I, V, C>
{
    /// The strip of the channels from `channel` on, in the sequences of `span`.
    ///
    /// # Safety
    /// Its elements lie in the inputs, which are written, and in the output.
    #[inline(always)]
    #[must_use]
    pub unsafe fn new(
        arrays: &Arrays<M, E, I>,
        options: Options,
        span: Span,
        channel: usize,
        inner: usize,
    ) -> Self {
        let Span { first, len } = span;
        // Without steps, there is no such element.
        let start = if len == 0 { 0 } else { first * inner + channel };
        let channels = (inner - channel).min(WARP_THREADS * C);
        // SAFETY: the strip lies in the arrays, says the caller.
        unsafe {
            let mut strip = Self::starting(arrays, options, start, channels, len, inner);
            strip.is_masked = M::IS_MASKED && options.has(Options::MASKED);
            if strip.is_masked {
                strip.mask = arrays.mask.add(first);
            }
            strip
        }
    }

    /// The strip of so many channels whose sequences of `len` steps begin with element `start`, without a mask.
    ///
    /// # Safety
    /// As [`new`](Self::new).
    #[inline(always)]
    #[must_use]
    pub unsafe fn starting(
        arrays: &Arrays<M, E, I>,
        options: Options,
        start: usize,
        channels: usize,
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
            channels,
            aligned_inputs: inner.is_multiple_of(V),
            aligned_output: inner.is_multiple_of(C) && output.is_aligned_to::<C>(),
            fresh: !options.has(Options::INITIAL),
            is_masked: false,
            mask: arrays.mask,
            scan: PhantomData,
        };
        let mut k = 0;
        while k < I {
            // SAFETY: as above.
            strip.inputs[k] = unsafe { arrays.inputs[k].add(start) };
            strip.aligned_inputs &= strip.inputs[k].is_aligned_to::<V>();
            k += 1;
        }
        strip
    }

    /// Whether every access to the steps before position `end` can be of whole vectors.
    #[inline(always)]
    #[must_use]
    pub fn is_whole(&self, end: usize) -> bool {
        let aligned = self.aligned_inputs && self.aligned_output;
        aligned && self.channels == WARP_THREADS * C && end <= self.len
    }

    /// Channels of the strip.
    #[inline(always)]
    #[must_use]
    pub fn channels(&self) -> usize {
        self.channels
    }

    /// Starts to copy the warp's steps, which are at `position` and after, to a stage: for each input, a row of `32 · C`
    /// elements for each step, from row `row` on. What lies outside the strip is left as it is.
    ///
    /// # Safety
    /// All lanes of the warp call it. No other warp accesses these rows of the stage, and no lane does until the copies are
    /// done. If `whole`, [`is_whole`](Self::is_whole) holds for the end of the steps.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn copy(
        &self,
        position: usize,
        whole: bool,
        stage: Shared<E>,
        row: usize,
        lane: usize,
    ) {
        // SAFETY: the copy is done by the caller's rules.
        unsafe {
            if whole {
                self.copy_whole(position, stage, row, lane);
            } else if self.aligned_inputs {
                self.copy_guarded::<V>(position, stage, row, lane);
            } else {
                self.copy_guarded::<1>(position, stage, row, lane);
            }
        }
    }

    /// # Safety
    /// As [`copy`](Self::copy), of whole vectors.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    unsafe fn copy_whole(&self, position: usize, stage: Shared<E>, row: usize, lane: usize) {
        // Steps that the warp copies in one access.
        let at_once = const {
            assert!(V.is_multiple_of(C) && STEPS.is_multiple_of(V / C));
            V / C
        };
        let (step, channel) = (lane * V / (WARP_THREADS * C), lane * V % (WARP_THREADS * C));
        let first = index::<D>(position + step, 1, self.len) * self.inner + channel;
        let to = (row + step) * (WARP_THREADS * C) + channel;
        let mut t = 0;
        while t < STEPS {
            let from = first_of::<D>(first, t * self.inner, 1);
            let mut k = 0;
            while k < I {
                let to = k * (TILE * WARP_THREADS * C) + to + t * (WARP_THREADS * C);
                // SAFETY: the vector lies in the strip and in the stage, and is aligned, since the steps are whole.
                unsafe { stage.copy_async::<V>(to, self.inputs[k], from) };
                k += 1;
            }
            t += at_once;
        }
    }

    /// # Safety
    /// As [`copy`](Self::copy); vectors of `N` channels are aligned, and `N` divides `channels`.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    unsafe fn copy_guarded<const N: usize>(
        &self,
        position: usize,
        stage: Shared<E>,
        row: usize,
        lane: usize,
    ) {
        let mut first = lane * N;
        while first < STEPS * (WARP_THREADS * C) {
            let (step, channel) = (first / (WARP_THREADS * C), first % (WARP_THREADS * C));
            let position = position + step;
            if position < self.len && channel < self.channels {
                let from = index::<D>(position, 1, self.len) * self.inner + channel;
                let mut k = 0;
                while k < I {
                    // SAFETY: the position and the channels lie in the strip, the row and the channels in the stage.
                    unsafe {
                        let to = k * (TILE * WARP_THREADS * C)
                            + (row + step) * (WARP_THREADS * C)
                            + channel;
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
    /// The warp's copies to the stage are done, and its lanes have met since. If `whole`, [`is_whole`](Self::is_whole) holds for
    /// the end of the steps.
    #[inline(always)]
    #[must_use]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn steps(
        &self,
        position: usize,
        whole: bool,
        stage: Shared<E>,
        row: usize,
        lane: usize,
    ) -> Steps<M, C> {
        let channel = lane * C;
        let mut steps = [[M::IDENTITY; C]; STEPS];
        let mut t = 0;
        while t < STEPS {
            if whole || position + t < self.len {
                let at = (row + t) * (WARP_THREADS * C) + channel;
                if whole || channel + C <= self.channels {
                    // SAFETY: the steps lie in the strip, so that they were copied to the stage.
                    steps[t] = M::gather(|k| unsafe {
                        stage.read_vector(k * (TILE * WARP_THREADS * C) + at)
                    });
                } else {
                    let mut c = 0;
                    while c < C {
                        if channel + c < self.channels {
                            let [step] = M::gather(|k| {
                                // SAFETY: as above.
                                [unsafe { stage.read(k * (TILE * WARP_THREADS * C) + at + c) }]
                            });
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
        if self.is_masked {
            let mut t = 0;
            while t < STEPS {
                if position + t < self.len {
                    // SAFETY: the step lies in the sequences.
                    if unsafe { self.mask.read(index::<D>(position + t, 1, self.len)) } != 0 {
                        steps[t] = steps[t].map(M::restart);
                    }
                }
                t += 1;
            }
        }
        steps
    }

    /// Stores the results of the steps at `position` and after of the lane's channels.
    ///
    /// # Safety
    /// No other thread accesses these elements of the output. If `whole`, [`is_whole`](Self::is_whole) holds for the end of the
    /// steps.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn store(
        &self,
        position: usize,
        whole: bool,
        lane: usize,
        results: &Steps<M::Carry, C>,
    ) {
        let channel = lane * C;
        let mut t = 0;
        if whole {
            let first = index::<D>(position, 1, self.len) * self.inner + channel;
            while t < STEPS {
                let at = first_of::<D>(first, t * self.inner, 1);
                // SAFETY: the steps lie in the strip, and their address is aligned, since they are whole.
                unsafe {
                    self.output
                        .write_vector_streaming(at, results[t].map(M::emit));
                }
                t += 1;
            }
            return;
        }
        while t < STEPS {
            if position + t < self.len {
                let at = index::<D>(position + t, 1, self.len) * self.inner + channel;
                if self.aligned_output && channel + C <= self.channels {
                    // SAFETY: the steps lie in the strip, and their address is aligned.
                    unsafe {
                        self.output
                            .write_vector_streaming(at, results[t].map(M::emit));
                    }
                } else {
                    let mut c = 0;
                    while c < C {
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
pub struct Results<T, const C: usize> {
    /// The carry after each step, or before it where the scan is exclusive.
    pub values: Steps<T, C>,
    /// The carry after the last step.
    pub last: [T; C],
}

impl<T: Copy, const C: usize> Results<T, C> {
    /// Takes the carries that enter the thread's steps through them.
    #[inline(always)]
    #[must_use]
    pub fn new<M: Action<Carry = T>>(
        steps: &Steps<M, C>,
        entering: [T; C],
        options: Options,
    ) -> Self {
        let mut results = Self {
            values: [entering; STEPS],
            last: entering,
        };
        let mut t = 0;
        while t < STEPS {
            let mut c = 0;
            while c < C {
                let before = results.last[c];
                let after = steps[t][c].apply(before);
                results.values[t][c] = if options.has(Options::EXCLUSIVE) {
                    steps[t][c].before(before)
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
pub fn compose<M: Action, const C: usize>(steps: &Steps<M, C>) -> [M; C] {
    let mut aggregates = steps[0];
    let mut t = 1;
    while t < STEPS {
        let mut c = 0;
        while c < C {
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
pub const fn slot<const C: usize>(warp: usize, c: usize, lane: usize) -> usize {
    (warp * C + c) * WARP_THREADS + lane
}
