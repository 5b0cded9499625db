//! The tiled scan of rows: sequences whose steps are neighbours in memory. The reverse suffix sum along the
//! last axis is its headline.
//!
//! A block scans a row, tile by tile, and keeps the carry between tiles in registers. Within a tile the scan
//! goes up the levels, and the carry comes down them:
//! - a lane composes the [`VECTOR`] steps of each of its vectors;
//! - a warp scans the lanes of a subtile with shuffles, and composes its subtiles in order;
//! - the block scans the aggregates of its warps through shared memory;
//! - the carry of the tile becomes that of each warp, subtile, and lane by the aggregate of what lies before it
//!   there, and the lane takes it through its steps one by one.
//!
//! While a tile is scanned, the next one is on its way from memory to registers.
//!
//! Composing can meet infinities that the serial recurrence does not (gates whose product overflows before a reset,
//! sums that overflow in another order), and miss some that it meets. So a row in which some lane's carry comes
//! out infinite or NaN is scanned once more, and this time the steps of each tile in which that happens are taken
//! one by one, in serial order. Nothing of that is missed by looking at the last carry of each lane, since what is
//! not finite stays so.

use crate::{
    block::{self, Aggregates},
    direction::Order,
    monoid::Operator,
    tile::{Items, Row},
    tiling::{
        WARP_THREADS,
        rows::{MAX_WARPS, SUBTILE, VECTOR},
    },
    warp,
};
use cuda_std::{Global, Shared, shared, thread, warp::FULL_MASK, warp::shuffle_idx};

/// Scans each of `rows` rows of `len` steps.
///
/// # Safety
/// - The inputs and the output have `rows · len` elements; the inputs are written, and do not overlap the output.
/// - The grid has a block for each row, counted by [`block::index`]; a block is of
///   [`tiling::rows::warps`](crate::tiling::rows::warps) warps.
/// - It has [`tiling::rows::shared_bytes`](crate::tiling::rows::shared_bytes) of dynamic shared memory.
#[inline(always)]
pub unsafe fn scan_rows<M, D, const I: usize, const K: usize>(
    inputs: [Global<M::Element>; I],
    output: Global<M::Element>,
    rows: u64,
    len: u64,
) where
    M: Operator<I>,
    D: Order,
{
    let (rows, len) = (rows as usize, len as usize);
    let row = block::index();
    if row >= rows {
        return;
    }
    let lane = thread::thread_idx_x() as usize % WARP_THREADS;
    let warp = thread::thread_idx_x() as usize / WARP_THREADS;
    let warps = thread::block_dim_x() as usize / WARP_THREADS;
    let tile = warps * K * SUBTILE;
    let offset = warp * K * SUBTILE + lane * VECTOR;

    // Aggregates of two tiles in turn: a warp may write those of the next tile while another still reads those
    // of this one. It cannot be two tiles ahead, since the exchange of the tile between has a barrier.
    let slots = shared::dynamic_shared_mem::<M::Element>();
    let mut set = 0;

    // SAFETY: the row lies in the arrays; only this block writes it. A position is a multiple of VECTOR, and `whole`
    // is asked for the end of the tile. Shared memory holds two sets of aggregates, a
    // carry, and a word for each warp. All threads of the
    // block go through the same tiles, so that they are together at each barrier, shuffle and vote.
    unsafe {
        let serial_carry = slots.add(2 * I * MAX_WARPS);
        let votes = shared::dynamic_shared_mem::<u32>()
            .add((2 * I * MAX_WARPS + 1) * size_of::<M::Element>() / size_of::<u32>());
        let view = Row::<M, D, I>::new(&inputs, output, row * len, len);
        let mut careful = false;
        loop {
            let mut carry = M::START;
            let mut finite = true;
            let mut start = 0;
            let mut next = view.load::<K>(offset, view.is_whole(tile));
            while start < len {
                let items = next;
                let end = start + tile;
                if end < len {
                    next = view.load::<K>(end + offset, view.is_whole(end + tile));
                }

                let scanned = scan_warp(lane as u32, &items);
                let aggregates = Aggregates {
                    slots: slots.add(set * I * MAX_WARPS),
                    count: MAX_WARPS,
                };
                set ^= 1;
                let exchanged = block::exchange(&aggregates, scanned.aggregate);
                let carries = scanned.carries(exchanged.before.apply(carry));
                let mut results = results(&items, carries);
                let mut after = exchanged.total.apply(carry);

                let mut ends_finite = M::is_finite_carry(after);
                let mut k = 0;
                while k < K {
                    ends_finite &= M::is_finite_carry(results[k][VECTOR - 1]);
                    k += 1;
                }
                finite &= ends_finite;
                if careful && !block::all(votes, ends_finite) {
                    // Loaded once more, so as not to hold registers all the time.
                    let items = view.load::<K>(start + offset, view.is_whole(end));
                    let (carries, serial) = replay(&items, carry, serial_carry);
                    results = self::results(&items, carries);
                    after = serial;
                }
                carry = after;
                view.store(start + offset, view.is_whole(end), results);
                start = end;
            }
            if careful || block::all(votes, finite) {
                break;
            }
            careful = true;
        }
    }
}

/// The aggregates of a warp's items.
struct ScannedWarp<M, const K: usize> {
    /// For each subtile, that of the lanes below this one.
    lanes: [M; K],
    /// That of each subtile.
    subtiles: [M; K],
    /// That of all the warp's items.
    aggregate: M,
}

/// # Safety
/// All lanes of the warp call it together; `lane` is the caller's.
#[inline(always)]
unsafe fn scan_warp<M, const I: usize, const K: usize>(
    lane: u32,
    items: &Items<M, K>,
) -> ScannedWarp<M, K>
where
    M: Operator<I>,
{
    let mut scanned = ScannedWarp {
        lanes: [M::IDENTITY; K],
        subtiles: [M::IDENTITY; K],
        aggregate: M::IDENTITY,
    };
    let mut k = 0;
    while k < K {
        let mut own = items[k][0];
        let mut j = 1;
        while j < VECTOR {
            own = own.then(items[k][j]);
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

impl<M, const K: usize> ScannedWarp<M, K> {
    /// The carry that enters each of the lane's vectors, from the one that enters the warp.
    #[inline(always)]
    fn carries<const I: usize>(&self, warp_carry: M::Element) -> [M::Element; K]
    where
        M: Operator<I>,
    {
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

/// The carry that enters each of the lane's vectors, and the one after the tile, found by taking the tile's carry
/// through all its steps in serial order: a warp after the other, a lane after the other.
///
/// # Safety
/// All threads of the block call it together, with the same `carry`. `slot` is a place in shared memory that was
/// last accessed before a barrier.
#[inline(always)]
unsafe fn replay<M, const I: usize, const K: usize>(
    items: &Items<M, K>,
    carry: M::Element,
    slot: Shared<M::Element>,
) -> ([M::Element; K], M::Element)
where
    M: Operator<I>,
{
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
                        state = slot.read(0);
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
                        while j < VECTOR {
                            state = items[k][j].apply(state);
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
    (carries, unsafe { slot.read(0) })
}

/// Takes the carry of each vector through its steps.
#[inline(always)]
fn results<M, const I: usize, const K: usize>(
    items: &Items<M, K>,
    carries: [M::Element; K],
) -> Items<M::Element, K>
where
    M: Operator<I>,
{
    let mut results = [[M::START; VECTOR]; K];
    let mut k = 0;
    while k < K {
        let mut carry = carries[k];
        let mut j = 0;
        while j < VECTOR {
            carry = items[k][j].apply(carry);
            results[k][j] = carry;
            j += 1;
        }
        k += 1;
    }
    results
}
