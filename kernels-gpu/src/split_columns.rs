//! The scan of columns too few for a block each strip: the tiles of a strip are scanned by different blocks.
//!
//! A tile is scanned as in [columns](crate::columns), to the bit, and what enters it is found as in
//! [split rows](crate::split_rows): here by a thread for each channel.

use crate::{
    arrays::{Arrays, Options, Span},
    direction::Order,
    look_back::{LookBack, Place, Places},
    monoid::{Action, Operator},
    slots::{Slots, words},
    strip::{Results, Strip, compose, slot},
    tiling::{
        WARP_THREADS,
        columns::{STEPS, THREADS, TILE, WARPS, strips},
        look_back::{PLACE_WORDS, PLACES},
        split_columns::{STAGES, bytes_before_stages},
    },
};
use cuda_std::{Scalar, async_copy, shared, thread, warp};

/// Scans each channel of `outer` × `len` × `inner` elements along `len`, and raises the flags of the strips that are to be
/// scanned again.
///
/// # Safety
/// - The inputs and the output have `outer · len · inner` elements; the inputs are written, and do not overlap the
///   output. The arrays of carries that the options name have `outer · inner` elements. Nothing is packed.
/// - The scratch memory is as [`LookBack::new`] wants it for the [`strips`] and tiles of [`TILE`] steps.
/// - The grid is one-dimensional; a block is of
///   so many [`threads`](crate::tiling::split_columns::threads).
/// - It has [`tiling::split_columns::shared_bytes`](crate::tiling::split_columns::shared_bytes) of dynamic shared memory.
#[inline(always)]
pub unsafe fn scan_split_columns<M, E, D, const I: usize, const V: usize, const C: usize>(
    arrays: &Arrays<M, E, I>,
    outer: u64,
    len: u64,
    inner: u64,
    options: u64,
) where
    M: Operator<E, I, Aggregate = M> + Action,
    E: Scalar,
    D: Order,
{
    let (outer, len, inner, options) = (
        outer as usize,
        len as usize,
        inner as usize,
        Options(options),
    );
    let thread = thread::thread_idx_x() as usize;
    let lane = thread % WARP_THREADS;
    let warp = thread / WARP_THREADS;
    let looks_back = warp >= WARPS;
    let row = warp * STEPS;
    // At least 1: a division that cannot panic leaves no panic in the PTX.
    let across = (inner.div_ceil(WARP_THREADS * C) as u32).max(1);

    // SAFETY: the strips lie in the arrays; only the block with a tile's ticket writes the tile. What is in shared memory twice
    // is written for one tile while it is read for the other. The ticket of a turn is the same for all threads, so that they are
    // together at the barrier.
    unsafe {
        let shared = shared::dynamic_shared_mem::<u32>();
        let places = Places(shared);
        let shared = shared.add(PLACES as usize * PLACE_WORDS);
        let slots = WARPS * WARP_THREADS * C;
        let aggregates = |turn: u32| {
            Slots::<M>::new(
                shared.add((turn % 3) as usize * slots * words::<M>()),
                slots,
            )
        };
        let shared = shared.add(3 * slots * words::<M>());
        let entering = |turn: u32| {
            Slots::<M::Carry>::new(
                shared.add((turn % 2) as usize * slots * words::<M::Carry>()),
                slots,
            )
        };
        let before = bytes_before_stages(size_of::<M>(), size_of::<M::Carry>(), size_of::<E>());
        let stages = shared::dynamic_shared_mem::<E>().add(before / size_of::<E>());
        let stage =
            |turn: u32| stages.add((turn % STAGES) as usize * I * (TILE * WARP_THREADS * C));
        // The detail of a place: the first channel of the strip.
        let strip = |place: Place| {
            let span = Span {
                first: place.start,
                len,
            };
            Strip::<M, E, D, I, V, C>::new(arrays, options, span, place.detail as usize, inner)
        };
        let copy = |turn: u32| {
            if let Some(place) = places.read(turn) {
                strip(place).copy(place.tile as usize * TILE + row, stage(turn), row, lane);
            }
            async_copy::commit();
        };

        let tiles = len.div_ceil(TILE);
        let look_back = LookBack::<M>::new(
            arrays.scratch,
            strips(outer, inner, size_of::<E>()),
            tiles,
            WARP_THREADS * C,
        );
        let place_of = |ticket: u32| {
            look_back.by_strips(ticket, across).map(|(unit, tile)| {
                let channel = unit % across * (WARP_THREADS * C) as u32;
                let start = (unit / across) as usize * len;
                Place {
                    unit,
                    tile,
                    start,
                    detail: channel,
                }
            })
        };
        // One after another, so that the blocks take turns.
        let mut turn = 0;
        while turn < STAGES - 1 {
            if thread == THREADS {
                places.write(turn, place_of(look_back.take_ticket()));
            }
            thread::sync_threads();
            if turn < STAGES - 2 && !looks_back {
                copy(turn);
            }
            turn += 1;
        }

        let mut ticket = 0;
        if thread == THREADS {
            ticket = look_back.take_ticket();
        }
        let mut turn = 0;
        loop {
            let place = places.read(turn);
            if let Some(place) = place
                && !looks_back
            {
                // The copies of this tile are the oldest under way.
                async_copy::wait::<{ STAGES - 3 }>();
                // After this every lane sees them.
                warp::sync_warp(warp::FULL_MASK);
                let steps =
                    strip(place).steps(place.tile as usize * TILE + row, stage(turn), row, lane);
                let own = compose(&steps);
                let mut c = 0;
                while c < C {
                    aggregates(turn).write(slot::<C>(warp, c, lane), own[c]);
                    c += 1;
                }
            }
            thread::sync_threads();
            if looks_back {
                let channel = thread - THREADS;
                let (c, lane) = (channel % C, channel / C);
                let mut before = [M::IDENTITY; WARPS];
                if let Some(place) = place {
                    let total = fold::<M, C>(&aggregates(turn), c, lane, &mut before);
                    look_back.publish(place, channel, total);
                }
                if turn > 0
                    && let Some(place) = places.read(turn - 1)
                {
                    let total = fold::<M, C>(&aggregates(turn - 1), c, lane, &mut before);
                    let first = place.detail as usize;
                    let sequence = (place.unit / across) as usize * inner + first + channel;
                    let exists = first + channel < inner;
                    let start = if exists {
                        arrays.start(options, sequence, len)
                    } else {
                        M::START
                    };
                    let (carry, after) = look_back.carries_of_thread(place, channel, total, start);
                    let mut w = 0;
                    while w < WARPS {
                        entering(turn - 1).write(slot::<C>(w, c, lane), before[w].apply(carry));
                        w += 1;
                    }
                    if options.has(Options::FINAL) && exists && place.tile as usize + 1 == tiles {
                        arrays.last.write(sequence, after);
                    }
                    if !M::is_finite_carry(after) {
                        look_back.flags.raise(place.unit as usize);
                    }
                }
                // The ticket was taken in the turn before, since that takes time.
                if thread == THREADS {
                    places.write(turn + STAGES - 1, place_of(ticket));
                    ticket = look_back.take_ticket();
                }
            } else {
                if turn > 1
                    && let Some(place) = places.read(turn - 2)
                {
                    let view = strip(place);
                    let position = place.tile as usize * TILE + row;
                    let steps = view.steps(position, stage(turn - 2), row, lane);
                    let mut carries = [M::START; C];
                    let mut c = 0;
                    while c < C {
                        carries[c] = entering(turn - 2).read(slot::<C>(warp, c, lane), carries[c]);
                        c += 1;
                    }
                    let results = Results::new(&steps, carries, options);
                    view.store(position, lane, &results.values);
                    let mut finite = true;
                    let mut c = 0;
                    while c < C {
                        finite &= M::is_finite_carry(results.last[c]);
                        c += 1;
                    }
                    if !finite {
                        look_back.flags.raise(place.unit as usize);
                    }
                }
                // All lanes are done with their rows of the stage that is written next.
                warp::sync_warp(warp::FULL_MASK);
                copy(turn + STAGES - 2);
            }
            if turn > 0 && places.is_none(turn - 1) {
                break;
            }
            turn += 1;
        }
        if thread == THREADS {
            look_back.finish();
        }
    }
}

/// The aggregates of the warps before each one, and that of all of them, for channel `c` of a lane.
///
/// # Safety
/// The slots were written before the last barrier.
#[inline(always)]
unsafe fn fold<M: Action, const C: usize>(
    aggregates: &Slots<M>,
    c: usize,
    lane: usize,
    before: &mut [M; WARPS],
) -> M {
    let mut total = M::IDENTITY;
    let mut w = 0;
    while w < WARPS {
        before[w] = total;
        // SAFETY: says the caller.
        total = total.then(unsafe { aggregates.read(slot::<C>(w, c, lane), total) });
        w += 1;
    }
    total
}
