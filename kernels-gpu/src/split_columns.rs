//! The scan of columns too few for a block each: the tiles of a strip are scanned by different blocks.
//!
//! A tile is scanned as in [columns](crate::columns), to the bit; what enters it comes from [`carriers`](crate::carriers). While it
//! is on its way, the block goes on to compose the next tiles, which stay in shared memory. Two teams of warps take turns: while one
//! composes a tile, the other one stores the results of an earlier one. One more warp for each channel of a lane publishes.
//!
//! A strip in which some lane's carry comes out infinite or NaN is flagged, and then scanned by [`columns`](crate::columns).

use crate::{
    arrays::{Arrays, Options},
    block,
    carriers::{Relay, carry, column},
    direction::Order,
    monoid::{Action, Operator},
    sharing::{Asked, Place, Places, Sharing},
    slots::{Slots, words},
    strip::{Results, Strip, compose, slot},
    tiling::{
        WARP_THREADS,
        columns::{STEPS, TILE, WARPS, strips},
        sharing::PLACE_WORDS,
        split_columns::{PLACES, TEAMS, ahead, bytes_before_stages, lag},
    },
};
use cuda_std::{Scalar, async_copy, shared, thread, warp};

/// Scans each channel of `outer` × `len` × `inner` elements along `len`, and raises the flags of the strips that are to be
/// scanned again.
///
/// # Safety
/// - The inputs and the output have `outer · len · inner` elements; the inputs are written, and do not overlap the
///   output. The arrays of carries that the options name have `outer · inner` elements. Nothing is packed.
/// - The scratch memory is as [`Sharing::new`] wants it for the [`strips`] and tiles of [`TILE`] steps, with as many words as
///   [`tiling::carriers::words`](crate::tiling::carriers::words) says.
/// - The grid is one-dimensional, with more than `carriers` blocks, of which there is one at least, and all of which are resident at
///   once; a block is of so many [`threads`](crate::tiling::split_columns::threads). A carrier has no more than
///   [`MAX_LINES`](crate::tiling::carriers::MAX_LINES) lines.
/// - It has [`tiling::split_columns::shared_bytes`](crate::tiling::split_columns::shared_bytes) of dynamic shared memory.
#[inline(always)]
pub unsafe fn scan_split_columns<M, E, D, const I: usize, const V: usize, const C: usize>(
    arrays: &Arrays<M, E, I>,
    outer: u64,
    len: u64,
    inner: u64,
    carriers: u64,
    options: u64,
) where
    M: Operator<E, I, Aggregate = M> + Action,
    E: Scalar,
    D: Order,
{
    let extents = [outer as usize, len as usize, inner as usize];
    let [outer, len, inner] = extents;
    let (carriers, options) = (carriers as u32, Options(options));
    // SAFETY: the blocks divide the work by their number in the grid, and share the scratch memory. The rest says the caller.
    unsafe {
        let units = strips(outer, inner, size_of::<E>());
        let (sharing, first) = Sharing::new(arrays.scratch, units, len.div_ceil(TILE));
        let relay = Relay::<M>::new(&sharing, first, WARP_THREADS * C);
        let block = thread::block_idx_x();
        if block < carriers {
            let shared = shared::dynamic_shared_mem::<u32>();
            carry::<M, E, I, C>(
                arrays, extents, options, &sharing, &relay, shared, block, carriers,
            );
        } else {
            scan::<M, E, D, I, V, C>(arrays, [len, inner], options, &sharing, &relay);
        }
        // The thread that takes tickets, if the block does.
        if thread::thread_idx_x() as usize == TEAMS as usize * WARPS * WARP_THREADS {
            sharing.finish();
        }
    }
}

/// What a warp does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    /// It composes and stores its part of every other tile.
    Scan {
        /// Which ones.
        team: u32,
    },
    /// It takes tickets, and composes and publishes the aggregates of the tiles.
    Publish,
}

/// # Safety
/// As [`scan_split_columns`]; all threads of the block call it.
#[inline(always)]
unsafe fn scan<M, E, D, const I: usize, const V: usize, const C: usize>(
    arrays: &Arrays<M, E, I>,
    [len, inner]: [usize; 2],
    options: Options,
    sharing: &Sharing,
    relay: &Relay<M>,
) where
    M: Operator<E, I, Aggregate = M> + Action,
    E: Scalar,
    D: Order,
{
    let lag = const { lag(I, size_of::<E>()) };
    let ahead = const { ahead(I, size_of::<E>()) };
    // Tiles in shared memory: those that lag and those ahead.
    let stages = lag + ahead;
    // Turns in which the aggregates of a tile are needed.
    let ring = lag + 2;
    let lane = thread::thread_idx_x() as usize % WARP_THREADS;
    let warp = thread::thread_idx_x() as usize / WARP_THREADS;
    let role = if warp < TEAMS as usize * WARPS {
        Role::Scan {
            team: (warp / WARPS) as u32,
        }
    } else {
        Role::Publish
    };
    // The warp in its team.
    let part = warp % WARPS;
    let row = part * STEPS;
    // At least 1: a division that cannot panic leaves no panic in the PTX.
    let across = (inner.div_ceil(WARP_THREADS * C) as u32).max(1);

    // SAFETY: the strips lie in the arrays; only the block with a tile's ticket writes the tile. What is in shared memory is
    // written in a turn, and read in later ones, with the barrier between; a warp reads and copies its own rows of a stage alone. The
    // ticket of a turn is the same for all threads, so that they are together at the barrier.
    unsafe {
        let shared = shared::dynamic_shared_mem::<u32>();
        let places = Places::<PLACES>(shared);
        let shared = shared.add(PLACES as usize * PLACE_WORDS);
        let slots = WARPS * WARP_THREADS * C;
        // Of each warp's steps; then of the steps of the warps before each one.
        let aggregates = |turn: u32| {
            let words = slots * words::<M>();
            Slots::<M>::new(shared.add((turn % ring) as usize * words), slots)
        };
        let before = bytes_before_stages(I, size_of::<M>(), size_of::<E>());
        let first_stage = shared::dynamic_shared_mem::<E>().add(before / size_of::<E>());
        let stage =
            |turn: u32| first_stage.add((turn % stages) as usize * I * (TILE * WARP_THREADS * C));
        // The detail of a place: the channels of the strip, and whether all accesses to the tile can be of whole vectors.
        let is_whole = |place: Place| place.detail % 2 == 1;
        let strip = |place: Place| {
            let channels = (place.detail / 2) as usize;
            Strip::<M, E, D, I, V, C>::starting(arrays, options, place.start, channels, len, inner)
        };
        let position = |place: Place| place.tile as usize * TILE + row;
        let copy = |turn: u32| {
            if let Some(place) = places.read(turn) {
                let whole = is_whole(place);
                strip(place).copy(position(place), whole, stage(turn), row, lane);
            }
            async_copy::commit();
        };
        let place_of = |ticket: u32| {
            sharing.by_strips(ticket, across).map(|(unit, tile)| {
                let channel = (unit % across) as usize * (WARP_THREADS * C);
                let channels = (inner - channel).min(WARP_THREADS * C);
                let mut place = Place {
                    unit,
                    tile,
                    start: (unit / across) as usize * len * inner + channel,
                    detail: 2 * channels as u32,
                };
                let whole = strip(place).is_whole((tile as usize + 1) * TILE);
                place.detail |= u32::from(whole);
                place
            })
        };
        // One after another, so that the blocks take turns.
        let mut turn = 0;
        while turn < ahead + 2 {
            if warp == TEAMS as usize * WARPS && lane == 0 {
                places.write(turn, place_of(sharing.take_ticket()));
            }
            thread::sync_threads();
            if turn < ahead && role == (Role::Scan { team: turn % TEAMS }) {
                copy(turn);
            }
            turn += 1;
        }

        // All roles go through the same turns, and end in the same one.
        let is_last = |turn: u32| turn > lag && places.is_none(turn - lag - 1);
        if let Role::Scan { team } = role {
            // Of the tile that is stored next: its steps, and what enters the tile, if it is there already.
            let mut steps = [[M::IDENTITY; C]; STEPS];
            let mut asked = [Asked::NOTHING; C];
            let mut turn = 0;
            loop {
                if turn % TEAMS == team {
                    if let Some(place) = places.read(turn) {
                        // The copies of this tile are the oldest under way.
                        if ahead == TEAMS {
                            async_copy::wait::<0>();
                        } else {
                            async_copy::wait::<1>();
                        }
                        // After this every lane sees them.
                        warp::sync_warp(warp::FULL_MASK);
                        let whole = is_whole(place);
                        let own = compose(&strip(place).steps(
                            position(place),
                            whole,
                            stage(turn),
                            row,
                            lane,
                        ));
                        let mut c = 0;
                        while c < C {
                            aggregates(turn).write(slot::<C>(part, c, lane), own[c]);
                            c += 1;
                        }
                    }
                    // Those of the tile before are done with.
                    steps = [[M::IDENTITY; C]; STEPS];
                    if turn >= lag
                        && let Some(place) = places.read(turn - lag)
                    {
                        let stage = stage(turn - lag);
                        let whole = is_whole(place);
                        steps = strip(place).steps(position(place), whole, stage, row, lane);
                        // All lanes are done with their rows of the stage, which is written next.
                        warp::sync_warp(warp::FULL_MASK);
                    }
                    copy(turn + ahead);
                } else if turn > lag {
                    let turn = turn - lag - 1;
                    if let Some(place) = places.read(turn) {
                        let index = sharing.index(place.unit, place.tile);
                        let mut carries = [M::START; C];
                        let mut c = 0;
                        while c < C {
                            let enters = &relay.entering;
                            let carry = enters.get(&asked[c], index, column(c, lane), carries[c]);
                            let before =
                                aggregates(turn).read(slot::<C>(part, c, lane), M::IDENTITY);
                            carries[c] = before.apply(carry);
                            c += 1;
                        }
                        let results = Results::new(&steps, carries, options);
                        let whole = is_whole(place);
                        strip(place).store(position(place), whole, lane, &results.values);
                        let mut finite = true;
                        let mut c = 0;
                        while c < C {
                            finite &= M::is_finite_carry(results.last[c]);
                            c += 1;
                        }
                        if !finite {
                            sharing.flags.raise(place.unit as usize);
                        }
                    }
                }
                // What is asked for now is there in the turn after next.
                if turn % TEAMS != team
                    && turn + 1 >= lag
                    && let Some(place) = places.read(turn + 1 - lag)
                {
                    let index = sharing.index(place.unit, place.tile);
                    let mut c = 0;
                    while c < C {
                        asked[c] = relay.entering.ask(index, column(c, lane));
                        c += 1;
                    }
                }
                block::meet();
                if is_last(turn) {
                    break;
                }
                turn += 1;
            }
        } else {
            let c = warp - TEAMS as usize * WARPS;
            let is_taker = c == 0 && lane == 0;
            let take_turn = |turn: u32, ticket: &mut u32| {
                block::meet();
                if let Some(place) = places.read(turn) {
                    let mut total = M::IDENTITY;
                    let mut w = 0;
                    while w < WARPS {
                        let slot = slot::<C>(w, c, lane);
                        let own = aggregates(turn).read(slot, total);
                        aggregates(turn).write(slot, total);
                        total = total.then(own);
                        w += 1;
                    }
                    let index = sharing.index(place.unit, place.tile);
                    relay.aggregates.publish(index, column(c, lane), total);
                }
                // The ticket was taken two turns ago, since that takes time.
                if is_taker {
                    places.write(turn + ahead + 2, place_of(*ticket));
                    *ticket = sharing.take_ticket();
                }
                is_last(turn)
            };
            let (mut even, mut odd) = (0, 0);
            if is_taker {
                even = sharing.take_ticket();
                odd = sharing.take_ticket();
            }
            let mut turn = 0;
            while !take_turn(turn, &mut even) && !take_turn(turn + 1, &mut odd) {
                turn += 2;
            }
        }
    }
}
