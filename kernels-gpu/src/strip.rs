//! A warp's part of a tile of columns: copied to shared memory, read back, and stored.

use crate::{
    arrays::{Arrays, Options, Span},
    direction::{Order, first_of, index},
    layout::{Layout, Strided},
    monoid::{Action, Carry, Monoid, Operator, Step},
    tiling::{
        WARP_THREADS,
        columns::{STEPS, stage_of},
    },
};
use core::marker::PhantomData;
use cuda_std::{
    Global, Scalar, Shared,
    hint::opaque,
    warp::{FULL_MASK, vote_ballot},
};

/// Consecutive steps of a thread's channels; what it holds of a tile, if not otherwise said.
pub type Steps<S, const C: usize, const N: usize = STEPS> = [[S; C]; N];

/// Some channels of one outer index, side by side, at most `W · C`: `C` for each of `W` lanes.
pub struct Strip<
    S: Operator<E, I, O>,
    E: Scalar,
    D,
    const I: usize,
    const V: usize,
    const C: usize,
    const O: usize = 1,
    const W: usize = WARP_THREADS,
> {
    /// From the strip on; with a mask, from its first step in memory on.
    inputs: [Global<E>; I],
    layouts: [S::Layout; I],
    outputs: [Global<E>; O],
    len: usize,
    inner: usize,
    channels: usize,
    /// Whether copies of `V` channels are aligned in every input; and with a mask, whether steps lie as far apart as in the outputs.
    aligned_inputs: bool,
    /// Whether stores of a lane's channels at once are aligned in every output.
    aligned_outputs: bool,
    /// Whether the sequences have no initial states.
    fresh: bool,
    /// The initial states of the lane's channels, in a backward scan.
    initial: [Carry<S>; C],
    /// Whether there is a mask, and the steps' part of it.
    is_masked: bool,
    mask: Global<u8>,
    scan: PhantomData<D>,
}

impl<
    S: Operator<E, I, O>,
    E: Scalar,
    D: Order,
    const I: usize,
    const V: usize,
    const C: usize,
    const O: usize,
    const W: usize,
> Strip<S, E, D, I, V, C, O, W>
{
    /// The strip of the channels from `channel` on, in the sequences of `span`. With a mask, the inputs have
    /// [`layouts`](Self::with_layouts).
    ///
    /// # Safety
    /// Its elements lie in the inputs, which are written, and in the outputs.
    #[inline(always)]
    #[must_use]
    pub unsafe fn new(
        arrays: &Arrays<S, E, I, O>,
        options: Options,
        span: Span,
        channel: usize,
        inner: usize,
    ) -> Self {
        let Span { first, len } = span;
        // Without steps, there is no such element.
        let start = if len == 0 { 0 } else { first * inner + channel };
        let channels = (inner - channel).min(W * C);
        // SAFETY: the strip lies in the arrays, says the caller.
        unsafe {
            let mut strip = Self::starting(arrays, options, start, channels, len, inner);
            strip.is_masked = S::IS_MASKED && options.has(Options::MASKED);
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
        arrays: &Arrays<S, E, I, O>,
        options: Options,
        start: usize,
        channels: usize,
        len: usize,
        inner: usize,
    ) -> Self {
        let mut strip = Self {
            inputs: arrays.inputs,
            layouts: [S::Layout::of(Strided::default()); I],
            outputs: arrays.outputs,
            len,
            inner,
            channels,
            aligned_inputs: inner.is_multiple_of(V),
            aligned_outputs: inner.is_multiple_of(C),
            fresh: !options.has(Options::INITIAL),
            initial: [S::Aggregate::START; C],
            is_masked: false,
            mask: arrays.mask,
            scan: PhantomData,
        };
        let mut o = 0;
        while o < O {
            // SAFETY: the strip lies in the arrays, says the caller.
            strip.outputs[o] = unsafe { arrays.outputs[o].add(start) };
            strip.aligned_outputs &= strip.outputs[o].is_aligned_to::<C>();
            o += 1;
        }
        if S::IS_MASKED {
            strip.aligned_inputs = false;
        } else {
            let mut k = 0;
            while k < I {
                // SAFETY: as above.
                strip.inputs[k] = unsafe { arrays.inputs[k].add(start) };
                strip.aligned_inputs &= strip.inputs[k].is_aligned_to::<V>();
                k += 1;
            }
        }
        strip
    }

    /// The strip with inputs that have its elements there, with a mask.
    ///
    /// # Safety
    /// The inputs have the elements of the strip, from the offsets on.
    #[inline(always)]
    #[must_use]
    pub unsafe fn with_layouts(mut self, layouts: [S::Layout; I]) -> Self {
        self.aligned_inputs = true;
        let mut k = 0;
        while k < I {
            let layout = layouts[k].strided();
            // Without steps, nothing is there.
            if self.len > 0 {
                // SAFETY: there are steps, and so this is the strip's first element in the input.
                self.inputs[k] = unsafe { self.inputs[k].add(layout.offset) };
            }
            let has_vectors = layout.channel == 1
                && self.channels.is_multiple_of(V)
                && layout.step.is_multiple_of(V)
                && self.inputs[k].is_aligned_to::<V>();
            self.aligned_inputs &= has_vectors && layout.step == self.inner;
            self.layouts[k] = S::Layout::of(Strided {
                has_vectors,
                ..layout
            });
            k += 1;
        }
        self
    }

    /// The strip with these initial states of the lane's channels, for a backward scan.
    #[inline(always)]
    #[must_use]
    pub fn with_initial(self, initial: [Carry<S>; C]) -> Self {
        Self { initial, ..self }
    }

    /// Channels of the strip.
    #[inline(always)]
    #[must_use]
    pub fn channels(&self) -> usize {
        self.channels
    }

    /// A carry for each of the lane's channels; `carry` gives those of the strip.
    #[inline(always)]
    #[must_use]
    pub fn carries(&self, lane: usize, carry: impl Fn(usize) -> Carry<S>) -> [Carry<S>; C] {
        let mut carries = [S::Aggregate::START; C];
        let mut c = 0;
        while c < C {
            if lane * C + c < self.channels {
                carries[c] = carry(c);
            }
            c += 1;
        }
        carries
    }

    /// Whether an element can be copied asynchronously, and there are registers for one more way to copy whole steps.
    const COPIES_ELEMENTS: bool = size_of::<E>() >= size_of::<u32>() && !S::IS_BACKWARD;

    /// Where in an input's stage a row begins that is the first of some [`STEPS`].
    #[inline(always)]
    fn at(row: usize) -> usize {
        stage_of(row, W, C)
    }

    /// Starts to copy `count` of the warp's steps, a multiple of [`STEPS`], which are at `position` and after, to a stage: for each input,
    /// `ROWS` rows of `W · C` elements, one for each step, from row `row` on. Where there is no such step or channel, padding is written.
    ///
    /// # Safety
    /// All lanes of the warp call it. No other warp accesses these rows of the stage, and no lane does until the copies are
    /// done; `lane` is the lane's number in the warp. If `whole`, all the steps are there.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn copy<const ROWS: usize>(
        &self,
        position: usize,
        count: usize,
        whole: bool,
        stage: Shared<E>,
        row: usize,
        lane: usize,
    ) {
        // SAFETY: the copy is done by the caller's rules.
        unsafe {
            if S::IS_MASKED {
                self.copy_each::<ROWS>(position, count, whole, stage, row, lane);
            } else if whole && self.aligned_inputs {
                self.copy_whole::<ROWS, V>(position, count, stage, row, lane);
            } else if whole && Self::COPIES_ELEMENTS {
                self.copy_whole::<ROWS, 1>(position, count, stage, row, lane);
            } else if self.aligned_inputs {
                self.copy_guarded::<ROWS, V>(position, count, stage, row, lane);
            } else {
                self.copy_guarded::<ROWS, 1>(position, count, stage, row, lane);
            }
        }
    }

    /// # Safety
    /// As [`copy`](Self::copy), where the steps are whole; vectors of `N` channels are aligned, and `N` divides `channels`.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    unsafe fn copy_whole<const ROWS: usize, const N: usize>(
        &self,
        position: usize,
        count: usize,
        stage: Shared<E>,
        row: usize,
        lane: usize,
    ) {
        // Steps that the warp copies in one access, or accesses for a step.
        let (at_once, accesses) = const {
            let (access, step) = (WARP_THREADS * N, W * C);
            assert!(step.is_multiple_of(N));
            if access > step {
                assert!(access.is_multiple_of(step) && STEPS.is_multiple_of(access / step));
                (access / step, 1)
            } else {
                assert!(step.is_multiple_of(access));
                (1, step / access)
            }
        };
        let (step, channel) = (lane * N / (W * C), lane * N % (W * C));
        let first = index::<D>(position + step, 1, self.len) * self.inner;
        let to = Self::at(row) + step * (W * C) + channel;
        // Lanes beyond the last channel have the last ones again, and store nothing.
        let last = opaque(self.channels) - N;
        let channel = |access: usize| (channel + access * (WARP_THREADS * N)).min(last);
        let mut t = 0;
        while t < count {
            let from = first_of::<D>(first, t * self.inner, 1);
            // Of the last step, that is the step itself.
            let one = usize::from(position + step + t + 1 < self.len);
            let next = first_of::<D>(first, (t + one) * self.inner, 1);
            let mut k = 0;
            while k < I {
                let from = if S::IS_OF_NEXT[k] { next } else { from };
                let to = k * const { stage_of(ROWS, W, C) } + to + t * (W * C);
                let mut access = 0;
                while access < accesses {
                    let ahead = access * (WARP_THREADS * N);
                    // SAFETY: the vector lies in the strip and in the stage, since the steps are whole, and is aligned, says the caller.
                    unsafe {
                        stage.copy_async::<N>(to + ahead, self.inputs[k], from + channel(access));
                    }
                    access += 1;
                }
                k += 1;
            }
            t += at_once;
        }
    }

    /// # Safety
    /// As [`copy`](Self::copy); vectors of `N` channels are aligned, and `N` divides `channels`.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    unsafe fn copy_guarded<const ROWS: usize, const N: usize>(
        &self,
        position: usize,
        count: usize,
        stage: Shared<E>,
        row: usize,
        lane: usize,
    ) {
        let mut first = lane * N;
        while first < count * (W * C) {
            let (step, channel) = (first / (W * C), first % (W * C));
            let position = position + step;
            let is_there = position < self.len && channel < self.channels;
            let to = Self::at(row) + step * (W * C) + channel;
            let (mut from, mut next) = (0, 0);
            if is_there {
                from = index::<D>(position, 1, self.len) * self.inner + channel;
                let position = (position + 1).min(self.len - 1);
                next = index::<D>(position, 1, self.len) * self.inner + channel;
            }
            let mut k = 0;
            while k < I {
                let to = k * const { stage_of(ROWS, W, C) } + to;
                // SAFETY: the position and the channels lie in the strip, if they are copied, the row and the channels in the stage.
                unsafe {
                    if is_there {
                        let from = if S::IS_OF_NEXT[k] { next } else { from };
                        stage.copy_async::<N>(to, self.inputs[k], from);
                    } else {
                        stage.write_vector(to, [S::PADDING_ELEMENTS[k]; N]);
                    }
                }
                k += 1;
            }
            first += WARP_THREADS * N;
        }
    }

    /// Copies of inputs that have layouts.
    ///
    /// # Safety
    /// As [`copy`](Self::copy).
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    unsafe fn copy_each<const ROWS: usize>(
        &self,
        position: usize,
        count: usize,
        whole: bool,
        stage: Shared<E>,
        row: usize,
        lane: usize,
    ) {
        if self.aligned_inputs {
            // SAFETY: says the caller; vectors are aligned.
            unsafe {
                // A gradient has no registers for one more way to do it.
                if whole && !S::IS_BACKWARD {
                    self.copy_whole::<ROWS, V>(position, count, stage, row, lane);
                } else {
                    self.copy_guarded::<ROWS, V>(position, count, stage, row, lane);
                }
            }
            return;
        }
        let mut k = 0;
        while k < I {
            // What is computed from strides is not to take registers all the time, nor is a loop whose end is known.
            let layout = self.layouts[k].strided().opaque();
            let end = opaque(count * (W * C));
            let width = if layout.has_vectors { V } else { 1 };
            // Neighbouring lanes copy neighbours in memory, as far as the warp has them.
            let along_steps = layout.step == 1 && layout.channel != 1;
            let mut first = lane * width;
            while first < end {
                let (step, channel) = if along_steps {
                    (first % count, first / count)
                } else {
                    (first / (W * C), first % (W * C))
                };
                let position = position + step;
                let is_there = position < self.len && channel < self.channels;
                let to =
                    k * const { stage_of(ROWS, W, C) } + Self::at(row) + step * (W * C) + channel;
                let mut way = 0;
                if is_there {
                    let position = if S::IS_OF_NEXT[k] {
                        (position + 1).min(self.len - 1)
                    } else {
                        position
                    };
                    way = layout.way(index::<D>(position, 1, self.len), channel);
                }
                // SAFETY: the position and the channels lie in the strip, if they are copied, the row and the channels in the stage; and
                // where vectors are copied, they are aligned and divide the channels.
                unsafe {
                    match (is_there, layout.has_vectors) {
                        (true, true) => stage.copy_async::<V>(to, self.inputs[k].offset(way), 0),
                        (true, false) => stage.copy_async::<1>(to, self.inputs[k].offset(way), 0),
                        (false, true) => stage.write_vector(to, [S::PADDING_ELEMENTS[k]; V]),
                        (false, false) => stage.write(to, S::PADDING_ELEMENTS[k]),
                    }
                }
                first += WARP_THREADS * width;
            }
            k += 1;
        }
    }

    /// Of the steps at `position` and after, the mask of the one that is the lane's, or 0 if there is none: it is not waited for here, and
    /// takes a register.
    ///
    /// # Safety
    /// `lane` is the lane's number in the warp.
    #[inline(always)]
    #[must_use]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn mask(&self, position: usize, lane: usize) -> u8 {
        let position = position + lane;
        if S::IS_MASKED && self.is_masked && lane < STEPS && position < self.len {
            // SAFETY: the step lies in the sequences.
            unsafe { self.mask.read(index::<D>(position, 1, self.len)) }
        } else {
            0
        }
    }

    /// The steps at `position` and after of the lane's channels, from row `row` of the stage on, given the warp's
    /// [`mask`](Self::mask) of them; padding outside the strip.
    ///
    /// # Safety
    /// The warp's copies to the stage are done, and its lanes have met since. All lanes call it together.
    #[inline(always)]
    #[must_use]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn steps<const ROWS: usize>(
        &self,
        position: usize,
        mask: u8,
        stage: Shared<E>,
        row: usize,
        lane: usize,
    ) -> Steps<S, C> {
        let at = Self::at(row) + lane * C;
        let mut steps = [[S::PADDING; C]; STEPS];
        let mut t = 0;
        while t < STEPS {
            // SAFETY: the rows are written.
            steps[t] = S::gather(|k| unsafe {
                stage.read_vector(k * const { stage_of(ROWS, W, C) } + at + t * (W * C))
            });
            t += 1;
        }
        if S::IS_BACKWARD {
            // Most have no last step among them.
            let mut t = 0;
            while position + STEPS >= self.len && t < STEPS {
                if position + t + 1 == self.len {
                    let mut c = 0;
                    while c < C {
                        steps[t][c] = if self.fresh {
                            steps[t][c].as_first()
                        } else {
                            steps[t][c].with_initial(self.initial[c])
                        };
                        c += 1;
                    }
                }
                t += 1;
            }
        } else if position == 0 && self.fresh {
            steps[0] = steps[0].map(S::as_first);
        }
        if S::IS_MASKED {
            // SAFETY: all lanes are here.
            let restarts = unsafe { vote_ballot(FULL_MASK, mask != 0) };
            if restarts != 0 {
                let mut t = 0;
                while t < STEPS {
                    if restarts >> t & 1 != 0 {
                        steps[t] = steps[t].map(S::restart);
                    }
                    t += 1;
                }
            }
        }
        steps
    }

    /// Stores the results of the steps at `position` and after of the lane's channels.
    ///
    /// # Safety
    /// No other thread accesses these elements of the outputs. If `whole`, all the steps are there.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn store(
        &self,
        position: usize,
        whole: bool,
        lane: usize,
        results: &Steps<S::Outputs, C>,
    ) {
        let channel = lane * C;
        let mut t = 0;
        if channel >= self.channels {
            return;
        }
        if whole && self.aligned_outputs {
            let first = index::<D>(position, 1, self.len) * self.inner + channel;
            while t < STEPS {
                let at = first_of::<D>(first, t * self.inner, 1);
                let elements = S::emit(results[t]);
                let mut o = 0;
                while o < O {
                    // SAFETY: the steps lie in the strip, since they are whole, and their address is aligned.
                    unsafe {
                        self.outputs[o].write_vector_streaming(at, elements[o]);
                    }
                    o += 1;
                }
                t += 1;
            }
            return;
        }
        while t < STEPS {
            if position + t < self.len {
                let at = index::<D>(position + t, 1, self.len) * self.inner + channel;
                let elements = S::emit(results[t]);
                if self.aligned_outputs && channel + C <= self.channels {
                    let mut o = 0;
                    while o < O {
                        // SAFETY: the steps lie in the strip, and their address is aligned.
                        unsafe {
                            self.outputs[o].write_vector_streaming(at, elements[o]);
                        }
                        o += 1;
                    }
                } else {
                    let mut c = 0;
                    while c < C {
                        if channel + c < self.channels {
                            let mut o = 0;
                            while o < O {
                                // SAFETY: the step lies in the strip.
                                unsafe { self.outputs[o].write(at + c, elements[o][c]) };
                                o += 1;
                            }
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
pub struct Results<S: Step, const C: usize, const N: usize = STEPS> {
    /// What is written at each step.
    pub values: Steps<S::Outputs, C, N>,
    /// The carry after the last step.
    pub last: [Carry<S>; C],
}

impl<S: Step, const C: usize, const N: usize> Results<S, C, N> {
    /// Takes the carries that enter the thread's steps through them.
    #[inline(always)]
    #[must_use]
    pub fn new(steps: &Steps<S, C, N>, entering: [Carry<S>; C], options: Options) -> Self {
        let mut results = Self {
            values: [entering.map(|carry| S::PADDING.outputs(carry, carry)); N],
            last: entering,
        };
        let mut t = 0;
        while t < N {
            let mut c = 0;
            while c < C {
                let carry = results.last[c];
                let after = steps[t][c].after(carry);
                let result = if options.has(Options::EXCLUSIVE) {
                    steps[t][c].before(carry)
                } else {
                    after
                };
                results.values[t][c] = steps[t][c].outputs(carry, result);
                results.last[c] = after;
                c += 1;
            }
            t += 1;
        }
        results
    }

    /// For each channel a carry that is finite if all that entered the steps and left them are.
    #[inline(always)]
    #[must_use]
    pub fn worst(&self, entering: [Carry<S>; C]) -> [Carry<S>; C] {
        let mut worst = self.last;
        let mut c = 0;
        while c < C {
            if S::ENDS_CARRIES && !S::Aggregate::is_finite_carry(entering[c]) {
                worst[c] = entering[c];
            }
            c += 1;
        }
        worst
    }
}

/// The aggregate of the thread's steps of each of its channels.
#[inline(always)]
#[must_use]
pub fn compose<S: Step, const C: usize>(steps: &Steps<S, C>) -> [S::Aggregate; C] {
    compose_from(1, steps[0].map(S::aggregate), steps)
}

/// The composition of some aggregates and the thread's steps from number `first` on.
#[inline(always)]
#[must_use]
pub fn compose_from<S: Step, const C: usize, const N: usize>(
    first: usize,
    mut aggregates: [S::Aggregate; C],
    steps: &Steps<S, C, N>,
) -> [S::Aggregate; C] {
    let mut t = first;
    while t < N {
        let mut c = 0;
        while c < C {
            aggregates[c] = aggregates[c].then(steps[t][c].aggregate());
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
