//! The scan of columns: sequences whose steps lie `inner` elements apart, transposed through shared memory. The
//! affine scan along the time axis of (batch, time, channel) is its headline.
//!
//! A block scans a strip of neighbouring channels, tile by tile. A tile is loaded with asynchronous copies, in
//! which neighbouring threads copy neighbouring elements of a step; it is read back so that a thread owns
//! consecutive steps of its channels. (A warp reads along a row of the tile: no padding is needed.) A thread composes
//! its steps; the aggregates of a channel are composed in order over the warps; the carry of the tile becomes that of
//! each thread, which takes it through its steps one by one, and stores them.
//!
//! While a tile is scanned, the next ones are on their way to shared memory.
//!
//! As for [rows](crate::rows), a strip in which some thread's carry comes out infinite or NaN is scanned once more, and
//! this time a channel in which that happens takes the steps of the tile in serial order.

use crate::{
    block::{self, Aggregates},
    direction::{Order, index},
    monoid::Operator,
    tiling::{
        WARP_THREADS,
        columns::{
            CHANNELS, LANE_CHANNELS, STAGE, STEPS, THREADS, TILE, VECTOR, WARPS,
            bytes_before_stages, strips,
        },
    },
};
use core::marker::PhantomData;
use cuda_std::{Global, Shared, async_copy, shared, thread, warp};

/// Scans each channel of `outer` × `len` × `inner` elements along `len`, with `stages` tiles in shared memory: one that is
/// scanned, the others on their way.
///
/// # Safety
/// - The inputs and the output have `outer · len · inner` elements; the inputs are written, and do not overlap the
///   output.
/// - The grid has a block for each of the [`strips`], counted by [`block::index`]; a block
///   is of [`THREADS`] threads.
/// - `stages` is 2 or 3, and the launch has [`tiling::columns::shared_bytes`](crate::tiling::columns::shared_bytes) of
///   dynamic shared memory for them.
#[inline(always)]
pub unsafe fn scan_columns<M, D, const I: usize>(
    inputs: [Global<M::Element>; I],
    output: Global<M::Element>,
    outer: u64,
    len: u64,
    inner: u64,
    stages: u64,
) where
    M: Operator<I>,
    D: Order,
{
    let (outer, len, inner) = (outer as usize, len as usize, inner as usize);
    let strip = block::index();
    if strip >= strips(outer, inner) {
        return;
    }
    let stages = stages as usize;
    let lane = thread::thread_idx_x() as usize % WARP_THREADS;
    let warp = thread::thread_idx_x() as usize / WARP_THREADS;

    // At least 1: a division that cannot panic leaves no panic in the PTX.
    let across = inner.div_ceil(CHANNELS).max(1);
    let tiles = len.div_ceil(TILE);
    // SAFETY: shared memory holds the aggregates, a carry for each channel and one for each warp, and the stages. The
    // strip lies in the arrays; only this block writes it. All threads of the block go through the same tiles, so that
    // they are together at each barrier and vote.
    unsafe {
        let slots = shared::dynamic_shared_mem::<M::Element>();
        let aggregates = Aggregates {
            slots,
            count: WARPS * CHANNELS,
        };
        let serial_carries = slots.add(I * WARPS * CHANNELS);
        let votes = shared::dynamic_shared_mem::<u32>()
            .add((I * WARPS + 1) * CHANNELS * size_of::<M::Element>() / size_of::<u32>());
        let before = bytes_before_stages(I, size_of::<M::Element>()) / size_of::<M::Element>();
        let stage = |number: usize| slots.add(before + number * I * STAGE);
        let view = Strip::<M, D, I>::new(
            &inputs,
            output,
            strip / across * len * inner + strip % across * CHANNELS,
            len,
            inner,
            (inner - strip % across * CHANNELS).min(CHANNELS),
        );
        let mut careful = false;
        loop {
            let mut ahead = 0;
            while ahead < stages - 1 {
                view.copy(ahead * TILE, stage(ahead));
                async_copy::commit();
                ahead += 1;
            }
            let mut carries = [M::START; LANE_CHANNELS];
            let mut finite = true;
            let mut current = 0;
            let mut tile = 0;
            while tile < tiles {
                // The copies of this tile are the oldest under way.
                if stages == 2 {
                    async_copy::wait::<0>();
                } else {
                    async_copy::wait::<1>();
                }
                // After this every thread sees them, and is done with the stage and the aggregates of the tile
                // before, which are written next.
                thread::sync_threads();
                let free = if current == 0 {
                    stages - 1
                } else {
                    current - 1
                };
                view.copy((tile + stages - 1) * TILE, stage(free));
                async_copy::commit();

                let position = tile * TILE + warp * STEPS;
                let steps = view.steps(position, stage(current), warp * STEPS, lane);
                current = if current == stages - 1 {
                    0
                } else {
                    current + 1
                };

                let mut c = 0;
                while c < LANE_CHANNELS {
                    let mut aggregate = steps[0][c];
                    let mut t = 1;
                    while t < STEPS {
                        aggregate = aggregate.then(steps[t][c]);
                        t += 1;
                    }
                    aggregates.write(slot(warp, c, lane), aggregate);
                    c += 1;
                }
                // The aggregates are read after all of them are written.
                thread::sync_threads();

                let mut entering = carries;
                let mut after = carries;
                let mut c = 0;
                while c < LANE_CHANNELS {
                    let mut before = M::IDENTITY;
                    let mut total = M::IDENTITY;
                    let mut w = 0;
                    while w < WARPS {
                        if w == warp {
                            before = total;
                        }
                        total = total.then(aggregates.read(slot(w, c, lane)));
                        w += 1;
                    }
                    entering[c] = before.apply(carries[c]);
                    after[c] = total.apply(carries[c]);
                    c += 1;
                }
                let mut results = results(&steps, entering);
                if careful {
                    let chosen = not_finite::<M, I>(&results[STEPS - 1], &after, slots);
                    if warp::vote_any(warp::FULL_MASK, chosen.contains(&true)) {
                        replay(
                            &steps,
                            &carries,
                            serial_carries,
                            &chosen,
                            &mut entering,
                            &mut after,
                        );
                        results = self::results(&steps, entering);
                    }
                }
                let mut c = 0;
                while c < LANE_CHANNELS {
                    finite &=
                        M::is_finite_carry(results[STEPS - 1][c]) && M::is_finite_carry(after[c]);
                    c += 1;
                }
                carries = after;
                view.store(position, lane, results);
                tile += 1;
            }
            if careful || block::all(votes, finite) {
                break;
            }
            careful = true;
        }
    }
}

/// Takes the carries that enter the thread's steps through them.
#[inline(always)]
fn results<M, const I: usize>(
    steps: &[[M; LANE_CHANNELS]; STEPS],
    entering: [M::Element; LANE_CHANNELS],
) -> [[M::Element; LANE_CHANNELS]; STEPS]
where
    M: Operator<I>,
{
    let mut states = entering;
    let mut results = [states; STEPS];
    let mut t = 0;
    while t < STEPS {
        let mut c = 0;
        while c < LANE_CHANNELS {
            states[c] = steps[t][c].apply(states[c]);
            results[t][c] = states[c];
            c += 1;
        }
        t += 1;
    }
    results
}

/// In which of the lane's channels some thread of the block ends with a carry that is not finite, or the tile does.
///
/// # Safety
/// All threads of the block call it together, each with the carries `last` after its steps, and those of a channel with
/// the same carry in `after`. `slots` holds an element for each warp and channel in shared memory; other threads may
/// have read them since the last barrier.
#[inline(always)]
unsafe fn not_finite<M, const I: usize>(
    last: &[M::Element; LANE_CHANNELS],
    after: &[M::Element; LANE_CHANNELS],
    slots: Shared<M::Element>,
) -> [bool; LANE_CHANNELS]
where
    M: Operator<I>,
{
    let lane = thread::thread_idx_x() as usize % WARP_THREADS;
    let warp = thread::thread_idx_x() as usize / WARP_THREADS;
    let mut found = [false; LANE_CHANNELS];
    // SAFETY: each thread and channel has a slot. The barriers put the writes after the reads of before, and the reads
    // here after the writes.
    unsafe {
        thread::sync_threads();
        let mut c = 0;
        while c < LANE_CHANNELS {
            slots.write(slot(warp, c, lane), last[c]);
            c += 1;
        }
        thread::sync_threads();
        let mut c = 0;
        while c < LANE_CHANNELS {
            let mut finite = M::is_finite_carry(after[c]);
            let mut w = 0;
            while w < WARPS {
                finite &= M::is_finite_carry(slots.read(slot(w, c, lane)));
                w += 1;
            }
            found[c] = !finite;
            c += 1;
        }
    }
    found
}

/// Where channel `c` of a lane has its aggregate of a warp: neighbouring lanes have neighbouring places.
#[inline(always)]
const fn slot(warp: usize, c: usize, lane: usize) -> usize {
    (warp * LANE_CHANNELS + c) * WARP_THREADS + lane
}

/// Finds the carries that enter the thread's steps, and those after the tile, by taking the tile's carries through all
/// its steps in serial order, a warp after the other; for the channels that are `chosen`.
///
/// # Safety
/// All threads of the block call it together, those of a channel with the same `carries` and `chosen`. `slots` holds an
/// element for each channel in shared memory, last accessed before a barrier.
#[inline(always)]
unsafe fn replay<M, const I: usize>(
    steps: &[[M; LANE_CHANNELS]; STEPS],
    carries: &[M::Element; LANE_CHANNELS],
    slots: Shared<M::Element>,
    chosen: &[bool; LANE_CHANNELS],
    entering: &mut [M::Element; LANE_CHANNELS],
    after: &mut [M::Element; LANE_CHANNELS],
) where
    M: Operator<I>,
{
    let lane = thread::thread_idx_x() as usize % WARP_THREADS;
    let warp = thread::thread_idx_x() as usize / WARP_THREADS;
    let mut turn = 0;
    while turn < WARPS {
        // SAFETY: each channel has a slot, which one thread at a time accesses: in its turn, and after the barrier
        // of the turn before.
        unsafe {
            if turn == warp {
                let mut c = 0;
                while c < LANE_CHANNELS {
                    let mut state = carries[c];
                    if turn > 0 {
                        state = slots.read(slot(0, c, lane));
                    }
                    if chosen[c] {
                        entering[c] = state;
                    }
                    let mut t = 0;
                    while t < STEPS {
                        state = steps[t][c].apply(state);
                        t += 1;
                    }
                    slots.write(slot(0, c, lane), state);
                    c += 1;
                }
            }
            thread::sync_threads();
        }
        turn += 1;
    }
    let mut c = 0;
    while c < LANE_CHANNELS {
        if chosen[c] {
            // SAFETY: the last warp wrote the slots before the last barrier.
            after[c] = unsafe { slots.read(slot(0, c, lane)) };
        }
        c += 1;
    }
}

/// Some channels of one outer index, side by side, at most [`CHANNELS`].
struct Strip<M: Operator<I>, D, const I: usize> {
    inputs: [Global<M::Element>; I],
    output: Global<M::Element>,
    len: usize,
    inner: usize,
    channels: usize,
    /// Whether copies of [`VECTOR`] channels are aligned in every input.
    aligned_inputs: bool,
    /// Whether stores of a lane's channels at once are aligned in the output.
    aligned_output: bool,
    order: PhantomData<D>,
}

impl<M: Operator<I>, D: Order, const I: usize> Strip<M, D, I> {
    /// The strip of `channels` channels that begins at element `start` of the arrays.
    ///
    /// # Safety
    /// Its elements lie in the inputs, which are written, and in the output.
    #[inline(always)]
    unsafe fn new(
        inputs: &[Global<M::Element>; I],
        output: Global<M::Element>,
        start: usize,
        len: usize,
        inner: usize,
        channels: usize,
    ) -> Self {
        // SAFETY: the strip lies in the arrays, says the caller.
        let output = unsafe { output.add(start) };
        let mut strip = Self {
            inputs: *inputs,
            output,
            len,
            inner,
            channels,
            aligned_inputs: inner.is_multiple_of(VECTOR),
            aligned_output: inner.is_multiple_of(LANE_CHANNELS)
                && output.is_aligned_to::<LANE_CHANNELS>(),
            order: PhantomData,
        };
        let mut k = 0;
        while k < I {
            // SAFETY: as above.
            strip.inputs[k] = unsafe { inputs[k].add(start) };
            strip.aligned_inputs &= strip.inputs[k].is_aligned_to::<VECTOR>();
            k += 1;
        }
        strip
    }

    /// Starts to copy the tile at `position` to a stage: for each input, [`TILE`] rows of [`CHANNELS`] elements. What
    /// lies outside the strip is left as it is.
    ///
    /// # Safety
    /// All threads of the block call it. No thread accesses the stage until the copies are done.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    unsafe fn copy(&self, position: usize, stage: Shared<M::Element>) {
        // SAFETY: the copy is done by the caller's rules.
        unsafe {
            if self.aligned_inputs {
                self.copy_vectors::<VECTOR>(position, stage);
            } else {
                self.copy_vectors::<1>(position, stage);
            }
        }
    }

    /// # Safety
    /// As [`copy`](Self::copy); vectors of `N` channels are aligned, and `N` divides `channels`.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    unsafe fn copy_vectors<const N: usize>(&self, position: usize, stage: Shared<M::Element>) {
        let thread = thread::thread_idx_x() as usize;
        let channel = thread % (CHANNELS / N) * N;
        let mut row = thread / (CHANNELS / N);
        while row < TILE {
            let position = position + row;
            if position < self.len && channel < self.channels {
                let from = index::<D>(position, 1, self.len) * self.inner + channel;
                let mut k = 0;
                while k < I {
                    // SAFETY: the position and the channels lie in the strip, the row and the channels in the stage.
                    unsafe {
                        let to = k * STAGE + row * CHANNELS + channel;
                        stage.copy_async::<N>(to, self.inputs[k], from);
                    }
                    k += 1;
                }
            }
            row += THREADS / (CHANNELS / N);
        }
    }

    /// The steps at `position` and after of the lane's channels, from row `row` of the stage on; the identity outside
    /// the strip.
    ///
    /// # Safety
    /// The copies to the stage are done, and a barrier was passed since.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    unsafe fn steps(
        &self,
        position: usize,
        stage: Shared<M::Element>,
        row: usize,
        lane: usize,
    ) -> [[M; LANE_CHANNELS]; STEPS] {
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
        if position == 0 {
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
    unsafe fn store(
        &self,
        position: usize,
        lane: usize,
        results: [[M::Element; LANE_CHANNELS]; STEPS],
    ) {
        let channel = lane * LANE_CHANNELS;
        let mut t = 0;
        while t < STEPS {
            if position + t < self.len {
                let at = index::<D>(position + t, 1, self.len) * self.inner + channel;
                if self.aligned_output && channel + LANE_CHANNELS <= self.channels {
                    // SAFETY: the steps lie in the strip, and their address is aligned.
                    unsafe { self.output.write_vector_streaming(at, results[t]) };
                } else {
                    let mut c = 0;
                    while c < LANE_CHANNELS {
                        if channel + c < self.channels {
                            // SAFETY: the step lies in the strip.
                            unsafe { self.output.write(at + c, results[t][c]) };
                        }
                        c += 1;
                    }
                }
            }
            t += 1;
        }
    }
}
