//! The scan of columns: sequences whose steps lie `inner` elements apart, transposed through shared memory. The
//! affine scan along the time axis of (batch, time, channel) is its headline.
//!
//! A block scans a strip of neighbouring channels, tile by tile. A warp loads its steps of a tile with asynchronous copies, in
//! which neighbouring lanes copy neighbouring elements of a step; it reads them back so that a lane owns
//! consecutive steps of its channels. (A warp reads along a row of the tile: no padding is needed.) A lane composes
//! its steps; the aggregates of a channel are composed in order over the warps; the carry of the tile becomes that of
//! each lane, which takes it through its steps one by one, and stores them.
//!
//! While a tile is scanned, the next ones are on their way to shared memory. Where many inputs leave room for few tiles there, a
//! tile's place is another's as soon as its steps are in registers.
//!
//! As for [rows](crate::rows), a strip in which some lane's carry comes out infinite or NaN is scanned once more, and
//! this time a channel in which that happens takes the steps of the tile in serial order.

use crate::{
    arrays::{Arrays, Options, Span},
    block,
    chain::Chain,
    direction::Order,
    layout,
    monoid::{Action, Carry, Monoid, Operator, Step},
    sharing::Flags,
    slots::{Slots, words},
    strip::{Results, Steps, Strip, compose, slot},
    tiling::{
        WARP_THREADS,
        columns::{GROUP, STEPS, TILE, WARPS, bytes_before_stages, gives_place_early, strips},
    },
};
use cuda_std::{Scalar, async_copy, shared, thread, warp};

/// When, in the turn of a tile, the copies of another one begin.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Moment {
    /// As soon as the turn begins.
    Start,
    /// When the tile's steps are in registers, and so its place is free.
    Read,
    /// When the tile's aggregates are there for all warps.
    Composed,
    /// When its results are on their way.
    Stored,
}

/// How a turn goes.
enum Turn {
    /// The copies begin as soon as there is a place for them.
    Early(Moment),
    /// They begin late. With two tiles in shared memory, reads and writes of many blocks mix best if they begin in the middle of a turn;
    /// with three, if they begin at its end.
    Late,
}

impl Turn {
    /// That of so many inputs of elements of so many bytes. What begins late has to be much, or else a block waits for it.
    const fn of(inputs: usize, element_bytes: usize) -> Self {
        if gives_place_early(inputs) {
            Self::Early(Moment::Read)
        } else if inputs == 2 && element_bytes >= size_of::<f32>() {
            Self::Late
        } else {
            Self::Early(Moment::Start)
        }
    }

    #[inline(always)]
    const fn copies_at(&self, stages: u32) -> Moment {
        match *self {
            Self::Early(moment) => moment,
            Self::Late if stages > 2 => Moment::Stored,
            Self::Late => Moment::Composed,
        }
    }
}

/// Scans each channel of `outer` × `len` × `inner` elements along `len`, or with as many steps as the boundaries say, with `stages`
/// tiles in shared memory. Where `flags` are given, only the strips that are flagged, at once in serial order.
///
/// # Safety
/// - The inputs and the outputs have `outer · len · inner` elements, or inputs of an operator that takes a mask those that their layouts
///   say; the inputs are written, and do not overlap the outputs. The arrays that the options and the operator name have as many elements as there are sequences, steps or boundaries.
/// - The grid has a block for each of the [`strips`], counted by [`block::index`]; a block
///   is of [`THREADS`](crate::tiling::columns::THREADS) threads.
/// - `stages` is one of [`tiling::columns::stages`](crate::tiling::columns::stages), and the launch has [`tiling::columns::shared_bytes`](crate::tiling::columns::shared_bytes) of
///   dynamic shared memory for them.
#[inline(always)]
#[expect(clippy::too_many_arguments, reason = "those of the kernels")]
pub unsafe fn scan_columns<
    S,
    E,
    D,
    const I: usize,
    const O: usize,
    const V: usize,
    const C: usize,
>(
    arrays: &Arrays<S, E, I, O>,
    outer: u64,
    len: u64,
    inner: u64,
    stages: u64,
    flags: u64,
    options: u64,
    layouts: [S::Layout; I],
) where
    S: Operator<E, I, O>,
    E: Scalar,
    D: Order,
{
    let (outer, inner) = (outer as usize, inner as usize);
    let (stages, options) = (stages as u32, Options(options));
    let strip = block::index();
    if strip >= strips(outer, inner, size_of::<E>()) {
        return;
    }
    let mut careful = false;
    let flags = Flags::new(arrays.scratch, flags);
    if let Some(flags) = &flags {
        // SAFETY: the flags have an element for each strip, and only this block accesses the strip's.
        if unsafe { !flags.is_raised(strip) } {
            return;
        }
        careful = true;
    }
    let lane = thread::thread_idx_x() as usize % WARP_THREADS;
    let warp = thread::thread_idx_x() / WARP_THREADS as u32;

    // At least 1: a division that cannot panic leaves no panic in the PTX.
    let across = inner.div_ceil(WARP_THREADS * C).max(1);
    let (outer, channel) = (strip / across, strip % across * (WARP_THREADS * C));
    // SAFETY: shared memory holds two sets of aggregates, a carry for each channel, a word for each warp, and the stages. The
    // strip lies in the arrays; only this block writes it. All threads of the block go through the same tiles, so that
    // they are together at each barrier and vote.
    unsafe {
        let shared = shared::dynamic_shared_mem::<u32>();
        let aggregates = |set: usize| {
            let words = words::<S::Aggregate>() * WARPS * (WARP_THREADS * C);
            Slots::<[S::Aggregate; C]>::new(shared.add(set * words), WARPS * WARP_THREADS)
        };
        let after_aggregates = shared.add(2 * words::<S::Aggregate>() * WARPS * (WARP_THREADS * C));
        let carries_of_channels = Slots::<Carry<S>>::new(after_aggregates, WARP_THREADS * C);
        let votes = after_aggregates.add(words::<Carry<S>>() * (WARP_THREADS * C));
        let before = bytes_before_stages(
            size_of::<S::Aggregate>(),
            size_of::<Carry<S>>(),
            size_of::<E>(),
        );
        let stage = |number: u32| {
            shared::dynamic_shared_mem::<E>()
                .add(before / size_of::<E>() + number as usize * (I * TILE * WARP_THREADS * C))
        };
        let span = arrays.span(options, outer, len as usize);
        let Span { len, .. } = span;
        let tiles = len.div_ceil(TILE);
        let mut view = Strip::<S, E, D, I, V, C, O>::new(arrays, options, span, channel, inner);
        if S::IS_MASKED {
            let is_packed = options.has(Options::PACKED);
            let layouts = layout::from(layouts, is_packed, outer, span.first, channel);
            view = view.with_layouts(layouts);
        }
        let sequence = outer * inner + channel + lane * C;
        if S::IS_BACKWARD && options.has(Options::INITIAL) {
            let initial = view.carries(lane, |c| arrays.initial.read(sequence + c));
            view = view.with_initial(initial);
        }
        let row = warp as usize * STEPS;
        // Tiles that are on their way or there when the next one is waited for.
        let under_way = if gives_place_early(I) {
            stages
        } else {
            stages - 1
        } as usize;
        let whole_tiles = len / TILE;
        let copy = |tile: usize, number: u32| {
            if tile < tiles {
                let whole = tile < whole_tiles;
                view.copy::<TILE>(tile * TILE + row, STEPS, whole, stage(number), row, lane);
            }
            async_copy::commit();
        };
        let turn = const { Turn::of(I, size_of::<E>()) };
        loop {
            let mut ahead = 0;
            while ahead < under_way {
                copy(ahead, ahead as u32);
                ahead += 1;
            }
            let mut carries = view.carries(lane, |c| arrays.start(options, sequence + c, len));
            let mut chains = carries.map(Chain::<S::Aggregate, GROUP>::new);
            let mut finite = true;
            let mut next_mask = view.mask(row, lane);
            let mut current: u32 = 0;
            let mut tile = 0;
            while tile < tiles {
                // The copies of this tile are the oldest under way.
                if under_way == 1 {
                    async_copy::wait::<0>();
                } else {
                    async_copy::wait::<1>();
                }
                // After this every lane sees them, and is done with its rows of the stage of the tile before, which this
                // turn's copies write.
                warp::sync_warp(warp::FULL_MASK);
                let place = if gives_place_early(I) {
                    current
                } else {
                    current.checked_sub(1).unwrap_or(stages - 1)
                };
                let copy_next = || copy(tile + under_way, place);
                let copies_at = turn.copies_at(stages);
                if copies_at == Moment::Start {
                    copy_next();
                }
                let position = tile * TILE + row;
                let mask = next_mask;
                next_mask = view.mask(position + TILE, lane);
                let steps = view.steps::<TILE>(position, mask, stage(current), row, lane);
                if copies_at == Moment::Read {
                    // All lanes are done with their rows of the stage, which are written next.
                    warp::sync_warp(warp::FULL_MASK);
                    copy_next();
                }
                current = if current == stages - 1 {
                    0
                } else {
                    current + 1
                };

                // Aggregates of two tiles in turn: a warp may write those of the next tile while another still reads
                // those of this one.
                let aggregates = aggregates(tile % 2);
                let slot = |warp: u32| warp as usize * WARP_THREADS + lane;
                aggregates.write(slot(warp), compose(&steps));
                // The aggregates are read after all of them are written.
                thread::sync_threads();
                if copies_at == Moment::Composed {
                    copy_next();
                }

                let mut before = [S::Aggregate::IDENTITY; C];
                let mut total = before;
                let mut w = 0;
                while w < WARPS as u32 {
                    if w == warp {
                        before = total;
                    }
                    let of_warp = aggregates.read(slot(w), total);
                    let mut c = 0;
                    while c < C {
                        total[c] = if w == 0 {
                            of_warp[c]
                        } else {
                            total[c].then(of_warp[c])
                        };
                        c += 1;
                    }
                    w += 1;
                }
                let mut entering = carries;
                let mut after = carries;
                let mut c = 0;
                while c < C {
                    entering[c] = before[c].apply(carries[c]);
                    chains[c].advance(tile as u32, total[c]);
                    after[c] = chains[c].carry(tile as u32 + 1);
                    c += 1;
                }
                if careful {
                    // In place of the aggregates, which all have read by then.
                    let words = words::<S::Aggregate>() * WARPS * (WARP_THREADS * C);
                    let lasts = Slots::<Carry<S>>::new(
                        shared.add(tile % 2 * words),
                        WARPS * (WARP_THREADS * C),
                    );
                    let worst = Results::new(&steps, entering, options).worst(entering);
                    let chosen = not_finite::<S::Aggregate, C>(&worst, &after, &lasts);
                    if warp::vote_any(warp::FULL_MASK, chosen.contains(&true)) {
                        replay(
                            &steps,
                            &carries,
                            &carries_of_channels,
                            &chosen,
                            &mut entering,
                            &mut after,
                        );
                        let mut c = 0;
                        while c < C {
                            if chosen[c] {
                                chains[c] = Chain::new(after[c]);
                            }
                            c += 1;
                        }
                    }
                }
                let results = Results::new(&steps, entering, options);
                let worst = results.worst(entering);
                let mut c = 0;
                while c < C {
                    finite &= S::Aggregate::is_finite_carry(worst[c])
                        & S::Aggregate::is_finite_carry(after[c]);
                    c += 1;
                }
                carries = after;
                view.store(position, tile < whole_tiles, lane, &results.values);
                if copies_at == Moment::Stored {
                    copy_next();
                }
                tile += 1;
            }
            if careful || block::all(votes, finite) {
                let mut c = 0;
                while c < C && warp == 0 {
                    if options.has(Options::FINAL) && lane * C + c < view.channels() {
                        arrays.last.write(sequence + c, carries[c]);
                    }
                    c += 1;
                }
                if let Some(flags) = &flags
                    && warp == 0
                    && lane == 0
                {
                    flags.lower(strip);
                }
                break;
            }
            careful = true;
        }
    }
}

/// In which of the lane's channels some thread of the block has a carry that is not finite, or the tile ends with one.
///
/// # Safety
/// All threads of the block call it together, each with the [`worst`](Results::worst) of its carries, and those of a channel with
/// the same carry in `after`. `slots` holds a carry for each warp and channel in shared memory; other threads may
/// have read it since the last barrier.
#[inline(always)]
unsafe fn not_finite<M: Action, const C: usize>(
    worst: &[M::Carry; C],
    after: &[M::Carry; C],
    slots: &Slots<M::Carry>,
) -> [bool; C] {
    let lane = thread::thread_idx_x() as usize % WARP_THREADS;
    let warp = thread::thread_idx_x() as usize / WARP_THREADS;
    let mut found = [false; C];
    // SAFETY: each thread and channel has a slot. The barriers put the writes after the reads of before, and the reads
    // here after the writes.
    unsafe {
        thread::sync_threads();
        let mut c = 0;
        while c < C {
            slots.write(slot::<C>(warp, c, lane), worst[c]);
            c += 1;
        }
        thread::sync_threads();
        let mut c = 0;
        while c < C {
            let mut finite = M::is_finite_carry(after[c]);
            let mut w = 0;
            while w < WARPS {
                finite &= M::is_finite_carry(slots.read(slot::<C>(w, c, lane), after[c]));
                w += 1;
            }
            found[c] = !finite;
            c += 1;
        }
    }
    found
}

/// Finds the carries that enter the thread's steps, and those after the tile, by taking the tile's carries through all
/// its steps in serial order, a warp after the other; for the channels that are `chosen`.
///
/// # Safety
/// All threads of the block call it together, those of a channel with the same `carries` and `chosen`. `slots` holds a
/// carry for each channel in shared memory, last accessed before a barrier.
#[inline(always)]
unsafe fn replay<S: Step, const C: usize>(
    steps: &Steps<S, C>,
    carries: &[Carry<S>; C],
    slots: &Slots<Carry<S>>,
    chosen: &[bool; C],
    entering: &mut [Carry<S>; C],
    after: &mut [Carry<S>; C],
) {
    let lane = thread::thread_idx_x() as usize % WARP_THREADS;
    let warp = thread::thread_idx_x() as usize / WARP_THREADS;
    let mut turn = 0;
    while turn < WARPS {
        // SAFETY: each channel has a slot, which one thread at a time accesses: in its turn, and after the barrier
        // of the turn before.
        unsafe {
            if turn == warp {
                let mut c = 0;
                while c < C {
                    let mut state = carries[c];
                    if turn > 0 {
                        state = slots.read(slot::<C>(0, c, lane), state);
                    }
                    if chosen[c] {
                        entering[c] = state;
                    }
                    let mut t = 0;
                    while t < STEPS {
                        state = steps[t][c].after(state);
                        t += 1;
                    }
                    slots.write(slot::<C>(0, c, lane), state);
                    c += 1;
                }
            }
            thread::sync_threads();
        }
        turn += 1;
    }
    let mut c = 0;
    while c < C {
        if chosen[c] {
            // SAFETY: the last warp wrote the slots before the last barrier.
            after[c] = unsafe { slots.read(slot::<C>(0, c, lane), after[c]) };
        }
        c += 1;
    }
}
