//! The tiled scan of rows: sequences whose steps are neighbours in memory. The reverse suffix sum along the
//! last axis is its headline.
//!
//! A block scans a row, tile by tile, and keeps the carry between tiles in registers. Within a tile the scan
//! goes up the levels, and the carry comes down them:
//! - a lane composes the steps of each of its vectors;
//! - a warp scans the lanes of a subtile with shuffles, and composes its subtiles in order;
//! - the block scans the aggregates of its warps through shared memory;
//! - the carry of the tile becomes that of each warp, subtile, and lane by the aggregate of what lies before it
//!   there, and the lane takes it through its steps one by one.
//!
//! A block may have fewer warps than a tile. Then it scans the tile part by part, with the aggregates of the parts before in shared
//! memory, and to the bit as if it had them all.
//!
//! While a part is scanned, the next one is on its way from memory to registers, where it stays as memory has it until its turn comes.
//!
//! Composing can meet infinities that the serial recurrence does not (gates whose product overflows before a reset,
//! sums that overflow in another order), and miss some that it meets. So a row in which some lane's carry comes
//! out infinite or NaN is scanned once more, and this time the steps of each part in which that happens are taken
//! one by one, in serial order. Nothing of that is missed by looking at the last carry of each lane, since what is
//! not finite stays so; or, where a carry can end on the way, at the first one too.

use crate::{
    arrays::{Arrays, Options, Span},
    block,
    chain::Chain,
    direction::{Order, order},
    layout,
    monoid::{Action, Carry, Monoid, Operator, Step},
    sharing::Flags,
    slots::{Slots, words},
    tile::{Buffer, Emitted, Items, Row, Vector},
    tiling::{
        ACCESS_BYTES, WARP_THREADS,
        rows::{GROUP, MAX_WARPS, bytes_before_buffers},
    },
    warp,
};
use cuda_std::{Scalar, shared, thread, warp::FULL_MASK, warp::shuffle_idx};

/// Scans each of `rows` rows of `len` steps, or of as many as the boundaries say; where `flags` are given, only those that are flagged,
/// at once in serial order.
///
/// # Safety
/// - The inputs and the outputs have `rows · len` elements, or inputs of an operator that takes a mask those that their layouts say;
///   the inputs are written, and do not overlap the outputs. The arrays that the options and the operator name have as many elements as there are rows, steps or boundaries.
/// - The grid has a block for each row, counted by [`block::index`]; a block is of as many warps as a tile, says
///   [`tiling::rows::warps`](crate::tiling::rows::warps), or of fewer, of which as many as divide
///   [`MAX_WARPS`].
/// - It has [`tiling::rows::shared_bytes`](crate::tiling::rows::shared_bytes) of dynamic shared memory.
#[inline(always)]
pub unsafe fn scan_rows<S, E, D, const I: usize, const O: usize, const K: usize, const V: usize>(
    arrays: &Arrays<S, E, I, O>,
    rows: u64,
    len: u64,
    flags: u64,
    options: u64,
    layouts: [S::Layout; I],
) where
    S: Operator<E, I, O>,
    E: Scalar,
    D: Order,
{
    let (rows, options) = (rows as usize, Options(options));
    let row = block::index();
    if row >= rows {
        return;
    }
    let mut careful = false;
    let flags = Flags::new(arrays.scratch, flags);
    if let Some(flags) = &flags {
        // SAFETY: the flags have an element for each row, and only this block accesses the row's.
        if unsafe { !flags.is_raised(row) } {
            return;
        }
        careful = true;
    }
    let lane = thread::thread_idx_x() % WARP_THREADS as u32;
    let warp = thread::thread_idx_x() / WARP_THREADS as u32;
    let warps = thread::block_dim_x() / WARP_THREADS as u32;
    let part = warps as usize * K * WARP_THREADS * V;
    let offset = (warp * (K * WARP_THREADS) as u32 + lane) as usize * V;

    // Aggregates of two tiles in turn: a warp may write those of the next tile while another still reads those
    // of this one. It cannot be two tiles ahead, since the exchanges of the tile between have a barrier each.
    let shared = shared::dynamic_shared_mem::<u32>();
    let mut set = 0;

    // SAFETY: the row lies in the arrays; only this block writes it. A position is a multiple of V, and `whole`
    // is asked for the end of the part. Shared memory holds two sets of aggregates, a
    // carry, a word for each warp, and its buffer, which passes the barrier of an exchange between a part's coming and its going. All
    // threads of the block go through the same parts, so that they are together at each barrier, shuffle and vote.
    unsafe {
        let after_aggregates = shared.add(2 * MAX_WARPS * words::<S::Aggregate>());
        let serial_carry = Slots::new(after_aggregates, 1);
        let votes = after_aggregates.add(words::<Carry<S>>());
        let buffers = bytes_before_buffers(size_of::<S::Aggregate>(), size_of::<Carry<S>>());
        let buffer = Buffer::new(buffers + warp as usize * K * WARP_THREADS * ACCESS_BYTES);
        let Span { first, len } = arrays.span(options, row, len as usize);
        let mut view = Row::<S, E, D, I, V, O>::new(arrays, options, first, len);
        if S::IS_MASKED {
            let is_packed = options.has(Options::PACKED);
            view = view.with_layouts(layout::from(layouts, is_packed, row, first, 0));
        }
        if S::IS_BACKWARD && options.has(Options::INITIAL) {
            view = view.with_initial(arrays.initial.read(row));
        }
        loop {
            let mut finite = true;
            let mut number: u32 = 0;
            // Which warp of the tile the block's first one is.
            let mut first_warp: u32 = 0;
            let mut start = 0;
            // First of all, since it takes longest.
            let mut next = view.load::<K>(offset, view.is_whole(part), lane);
            let mut carry = arrays.start(options, row, len);
            let mut chain = Chain::<S::Aggregate, GROUP>::new(carry);
            while start < len {
                let mut loaded = next;
                let end = start + part;
                if end < len {
                    next = view.load::<K>(end + offset, view.is_whole(end + part), lane);
                }
                let whole = view.is_whole(end);
                if !whole {
                    loaded = view.arrange(loaded, lane, &buffer);
                }

                let items = view.items(start + offset, &loaded);
                let scanned = scan_warp(lane, &items);
                let aggregates = Slots::new(
                    shared.add(set * MAX_WARPS * words::<S::Aggregate>()),
                    MAX_WARPS,
                );
                let exchanged = block::exchange(&aggregates, first_warp, scanned.aggregate);
                let carries = scanned.carries(exchanged.before.apply(carry));
                let mut results = Results::new::<S, D, I, V>(&items, carries, options);
                let next_warp = first_warp + warps;
                let mut ends_tile = next_warp >= MAX_WARPS as u32 || end >= len;
                let mut after = carry;
                if ends_tile {
                    chain.advance(number, exchanged.total);
                    number += 1;
                    after = chain.carry(number);
                }

                let ends_finite = S::Aggregate::is_finite_carry(after) & results.finite;
                finite &= ends_finite;
                // What enters the next part, which else shows there.
                let leaves_finite = || S::Aggregate::is_finite_carry(exchanged.total.apply(carry));
                if careful && !block::all(votes, ends_finite && leaves_finite()) {
                    // Loaded once more, so as not to hold registers all the time.
                    let mut loaded = view.load::<K>(start + offset, whole, lane);
                    if !whole {
                        loaded = view.arrange(loaded, lane, &buffer);
                    }
                    let items = view.items(start + offset, &loaded);
                    let before = block::scan_warps(&aggregates, first_warp);
                    let entering = warp::below(first_warp, before).apply(carry);
                    let (carries, serial) = replay(&items, entering, &serial_carry);
                    results = Results::new::<S, D, I, V>(&items, carries, options);
                    after = serial;
                    chain = Chain::new(after);
                    // A tile begins with the next part.
                    ends_tile = true;
                }
                first_warp = next_warp;
                if ends_tile {
                    carry = after;
                    first_warp = 0;
                    set ^= 1;
                }
                view.store_arranged(start + offset, whole, &results.vectors, lane, &buffer);
                start = end;
            }
            if careful || block::all(votes, finite) {
                if warp == 0 && lane == 0 {
                    if options.has(Options::FINAL) {
                        arrays.last.write(row, carry);
                    }
                    if let Some(flags) = &flags {
                        flags.lower(row);
                    }
                }
                break;
            }
            careful = true;
        }
    }
}

/// The aggregates of a warp's items.
#[derive(Clone, Copy)]
pub(crate) struct ScannedWarp<M, const K: usize> {
    /// For each subtile, that of the lanes below this one.
    pub(crate) lanes: [M; K],
    /// That of each subtile.
    pub(crate) subtiles: [M; K],
    /// That of all the warp's items.
    pub(crate) aggregate: M,
}

/// # Safety
/// All lanes of the warp call it together; `lane` is the caller's.
#[inline(always)]
pub(crate) unsafe fn scan_warp<S: Step, const K: usize, const V: usize>(
    lane: u32,
    items: &Items<S, K, V>,
) -> ScannedWarp<S::Aggregate, K> {
    let mut scanned = ScannedWarp::EMPTY;
    let mut k = 0;
    while k < K {
        let mut own = items[k][0].aggregate();
        let mut j = 1;
        while j < V {
            own = own.then(items[k][j].aggregate());
            j += 1;
        }
        // SAFETY: all lanes are here, says the caller.
        unsafe {
            let inclusive = warp::inclusive_scan(lane, own);
            scanned.lanes[k] = warp::below(lane, inclusive);
            scanned.subtiles[k] = warp::total(inclusive);
        }
        scanned.aggregate = if k == 0 {
            scanned.subtiles[k]
        } else {
            scanned.aggregate.then(scanned.subtiles[k])
        };
        k += 1;
    }
    scanned
}

impl<M: Action, const K: usize> ScannedWarp<M, K> {
    /// That of no items.
    pub(crate) const EMPTY: Self = Self {
        lanes: [M::IDENTITY; K],
        subtiles: [M::IDENTITY; K],
        aggregate: M::IDENTITY,
    };

    /// The carry that enters each of the lane's vectors, from the one that enters the warp.
    #[inline(always)]
    pub(crate) fn carries(&self, warp_carry: M::Carry) -> [M::Carry; K] {
        let mut subtile_carry = warp_carry;
        let mut carries = [warp_carry; K];
        let mut k = 0;
        while k < K {
            carries[k] = self.lanes[k].apply(subtile_carry);
            subtile_carry = self.subtiles[k].apply(subtile_carry);
            k += 1;
        }
        carries
    }
}

/// The carry that enters each of the lane's vectors, and the one after them all, found by taking what enters the first warp
/// through all steps in serial order: a warp after the other, a lane after the other.
///
/// # Safety
/// All threads of the block call it together, those of the first warp with the `carry` that enters it. `slot` is a place in shared
/// memory that was last accessed before a barrier.
#[inline(always)]
unsafe fn replay<S: Step, const K: usize, const V: usize>(
    items: &Items<S, K, V>,
    carry: Carry<S>,
    slot: &Slots<Carry<S>>,
) -> ([Carry<S>; K], Carry<S>) {
    let lane = thread::thread_idx_x() % WARP_THREADS as u32;
    let warp = thread::thread_idx_x() / WARP_THREADS as u32;
    let warps = thread::block_dim_x() / WARP_THREADS as u32;
    // All 32 of them; the compiler does not know the number, and so does not unroll a loop that is rarely run into
    // code that takes registers from all the rest.
    let lanes = thread::block_dim_x().min(WARP_THREADS as u32);
    let mut carries = [carry; K];
    let mut turn = 0;
    while turn < warps {
        // SAFETY: a warp takes its turn as a whole, so that all its lanes shuffle. Its first lane reads the slot
        // after the barrier of the turn before, and writes it before the next.
        unsafe {
            if turn == warp {
                let mut state = carry;
                if turn > 0 {
                    if lane == 0 {
                        state = slot.read(0, state);
                    }
                    state = shuffle_idx(FULL_MASK, state, 0);
                }
                let mut k = 0;
                while k < K {
                    let mut owner = 0;
                    while owner < lanes {
                        if owner == lane {
                            carries[k] = state;
                        }
                        let mut j = 0;
                        while j < V {
                            state = items[k][j].after(state);
                            j += 1;
                        }
                        state = shuffle_idx(FULL_MASK, state, owner);
                        owner += 1;
                    }
                    k += 1;
                }
                if lane == 0 {
                    slot.write(0, state);
                }
            }
            thread::sync_threads();
        }
        turn += 1;
    }
    // SAFETY: the last warp wrote the slot before the last barrier.
    (carries, unsafe { slot.read(0, carry) })
}

/// What a lane's vectors become.
pub(crate) struct Results<E, const O: usize, const K: usize> {
    /// What is written.
    pub(crate) vectors: Emitted<E, O, K>,
    /// Whether the carries of each vector are finite.
    pub(crate) finite: bool,
}

impl<E: Scalar, const O: usize, const K: usize> Results<E, O, K> {
    /// Takes the carry of each vector through its steps.
    #[inline(always)]
    pub(crate) fn new<S: Operator<E, I, O>, D: Order, const I: usize, const V: usize>(
        items: &Items<S, K, V>,
        carries: [Carry<S>; K],
        options: Options,
    ) -> Self {
        let mut finite = true;
        let mut afters = [[S::Aggregate::START; V]; K];
        let mut k = 0;
        while k < K {
            let mut carry = carries[k];
            if S::ENDS_CARRIES {
                finite &= S::Aggregate::is_finite_carry(carry);
            }
            let mut j = 0;
            while j < V {
                carry = items[k][j].after(carry);
                afters[k][j] = carry;
                j += 1;
            }
            finite &= S::Aggregate::is_finite_carry(carry);
            k += 1;
        }
        // What enters a step.
        let carry = |k: usize, j: usize| if j == 0 { carries[k] } else { afters[k][j - 1] };
        // A branch each, since a choice at each step takes time.
        let vectors = if options.has(Options::EXCLUSIVE) {
            emit::<S, E, D, I, O, K, V>(|k, j| {
                let carry = carry(k, j);
                items[k][j].outputs(carry, items[k][j].before(carry))
            })
        } else {
            emit::<S, E, D, I, O, K, V>(|k, j| items[k][j].outputs(carry(k, j), afters[k][j]))
        };
        Self { vectors, finite }
    }
}

/// The vectors of what step `j` of subtile `k` gives, says `outputs(k, j)`.
#[inline(always)]
fn emit<
    S: Operator<E, I, O>,
    E: Scalar,
    D: Order,
    const I: usize,
    const O: usize,
    const K: usize,
    const V: usize,
>(
    outputs: impl Fn(usize, usize) -> S::Outputs,
) -> Emitted<E, O, K> {
    core::array::from_fn(|k| {
        let outputs = core::array::from_fn(|j| outputs(k, j));
        S::emit::<V>(order::<D, _, V>(outputs)).map(Vector::of)
    })
}
