//! The scan of rows too few for a block each: the tiles of a row are scanned by different blocks.
//!
//! A tile is scanned as in [rows](crate::rows), to the bit. What enters it comes from [`look_back`](crate::look_back), and is
//! a warp's business of its own: while the other warps write the results of a tile, it finds what enters the next one, which they
//! have composed before; and the tiles after that are on their way to shared memory. So a block hardly ever waits, neither for
//! memory nor for other blocks.
//!
//! A row in which some lane's carry comes out infinite or NaN is flagged, and then scanned by [`rows`](crate::rows).

use crate::{
    arrays::{Arrays, Options},
    block,
    direction::Order,
    look_back::{Known, LookBack, Window},
    monoid::{Action, Operator},
    rows::{Results, ScannedWarp, scan_warp},
    sharing::{Place, Places},
    slots::{Slots, words},
    tile::{Loaded, Row},
    tiling::{
        WARP_THREADS,
        look_back::WINDOW,
        rows::{GROUP, MAX_WARPS},
        sharing::PLACE_WORDS,
        split_rows::{AHEAD, LAG, PLACES, RING, STAGES, bytes_before_stages},
    },
    warp,
};
use cuda_std::{Scalar, async_copy, shared, thread, warp::FULL_MASK, warp::vote_all};

/// What a warp does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    /// It scans its part of each tile.
    Scan,
    /// It takes tickets, and composes and publishes the aggregates of the tiles.
    Publish,
    /// It finds what enters the tiles.
    LookBack,
}

/// Scans each of `rows` rows of `len` steps, and raises the flags of those that are to be scanned again.
///
/// # Safety
/// - The inputs and the output have `rows · len` elements; the inputs are written, and do not overlap the output. The
///   arrays of carries that the options name have `rows` elements. Nothing is packed.
/// - The scratch memory is as [`LookBack::new`] wants it for tiles of
///   [`tiling::rows::tile`](crate::tiling::rows::tile).
/// - The grid is one-dimensional; a block is of [`tiling::split_rows::THREADS`](crate::tiling::split_rows::THREADS) threads.
/// - It has [`tiling::split_rows::shared_bytes`](crate::tiling::split_rows::shared_bytes) of dynamic shared memory.
#[inline(always)]
pub unsafe fn scan_split_rows<M, E, D, const I: usize, const K: usize, const V: usize>(
    arrays: &Arrays<M, E, I>,
    rows: u64,
    len: u64,
    options: u64,
) where
    M: Operator<E, I, Aggregate = M> + Action,
    E: Scalar,
    D: Order,
{
    let (rows, len, options) = (rows as usize, len as usize, Options(options));
    let lane = thread::thread_idx_x() as usize % WARP_THREADS;
    let warp = thread::thread_idx_x() as usize / WARP_THREADS;
    let role = if warp < MAX_WARPS {
        Role::Scan
    } else if warp == MAX_WARPS {
        Role::Publish
    } else {
        Role::LookBack
    };
    let tile_len = MAX_WARPS * K * WARP_THREADS * V;
    let offset = (warp * K * WARP_THREADS + lane) * V;
    let stage_len = I * tile_len;
    // Of the lane's first vector in a stage.
    let slot = (warp * WARP_THREADS + lane) * V;
    let stride = MAX_WARPS * WARP_THREADS * V;

    // SAFETY: the rows lie in the arrays; only the block with a tile's ticket writes the tile. A position is a multiple of V,
    // and `whole` is asked for the end of the tile. What is in shared memory twice is written for one tile while it
    // is read for the other. The ticket of a turn is the same for all threads, so that they are together at the barrier.
    unsafe {
        let shared = shared::dynamic_shared_mem::<u32>();
        let places = Places::<PLACES>(shared);
        let shared = shared.add(PLACES as usize * PLACE_WORDS);
        let others = Slots::<M>::new(shared, 2 * WINDOW);
        let shared = shared.add(2 * WINDOW * words::<M>());
        let subtiles = |turn: u32| {
            let words = MAX_WARPS * K * words::<M>();
            Slots::<M>::new(shared.add((turn % RING) as usize * words), MAX_WARPS * K)
        };
        let shared = shared.add(RING as usize * MAX_WARPS * K * words::<M>());
        // The aggregate of the warps before each one, and then that of all of them.
        let prefixes = |turn: u32| {
            let words = (MAX_WARPS + 1) * words::<M>();
            Slots::<M>::new(shared.add((turn % RING) as usize * words), MAX_WARPS + 1)
        };
        let shared = shared.add(RING as usize * (MAX_WARPS + 1) * words::<M>());
        let entering = |turn: u32| {
            Slots::<M::Carry>::new(
                shared.add((turn % 2) as usize * MAX_WARPS * words::<M::Carry>()),
                MAX_WARPS,
            )
        };
        let before = bytes_before_stages(I, size_of::<M>(), size_of::<M::Carry>(), size_of::<E>());
        let stages = shared::dynamic_shared_mem::<E>().add(before / size_of::<E>());
        let stage = |turn: u32| stages.add((turn % STAGES) as usize * stage_len);
        // The detail of a place: whether all accesses to the tile can be of whole vectors.
        let row = |place: Place| {
            let whole = place.detail != 0;
            Row::<M, E, D, I, V>::with_alignment(arrays, options, place.start, len, whole)
        };
        // Of the lane's first step in a tile.
        let position = |place: Place| place.tile as usize * tile_len + offset;
        let copy = |turn: u32| {
            if let Some(place) = places.read(turn) {
                let whole = place.detail != 0;
                row(place).copy::<K>(position(place), whole, stage(turn), slot, stride);
            }
            async_copy::commit();
        };

        let look_back = LookBack::<M>::new(arrays.scratch, rows, len.div_ceil(tile_len));
        let sharing = &look_back.sharing;
        let place_of = |ticket: u32| {
            sharing.by_rows(ticket).map(|(unit, tile)| {
                let start = unit as usize * len;
                let end = (tile as usize + 1) * tile_len;
                let whole = Row::<M, E, D, I, V>::new(arrays, options, start, len).is_whole(end);
                Place {
                    unit,
                    tile,
                    start,
                    detail: u32::from(whole),
                }
            })
        };
        // One after another, so that the blocks take turns.
        let mut turn = 0;
        while turn <= AHEAD + 1 {
            if role == Role::Publish && lane == 0 {
                places.write(turn, place_of(sharing.take_ticket()));
            }
            thread::sync_threads();
            if turn <= AHEAD && role == Role::Scan {
                copy(turn);
            }
            turn += 1;
        }

        // All roles go through the same turns, and end in the same one.
        let is_last = |turn: u32| turn >= LAG && places.is_none(turn - LAG);
        if role == Role::Publish {
            let take_turn = |turn: u32, ticket: &mut u32| {
                block::meet();
                if let Some(place) = places.read(turn) {
                    let mut one = M::IDENTITY;
                    if lane < MAX_WARPS {
                        one = subtiles(turn).read(lane * K, one);
                        let mut k = 1;
                        while k < K {
                            one = one.then(subtiles(turn).read(lane * K + k, one));
                            k += 1;
                        }
                    }
                    let inclusive = warp::inclusive_scan(lane as u32, one);
                    let total = warp::total(inclusive);
                    if lane == 0 {
                        look_back.publish(place, total);
                    }
                    let before = warp::below(lane as u32, inclusive);
                    if lane <= MAX_WARPS {
                        prefixes(turn).write(lane, before);
                    }
                }
                // The ticket was taken two turns ago, since that takes time.
                if lane == 0 {
                    places.write(turn + AHEAD + 2, place_of(*ticket));
                    *ticket = sharing.take_ticket();
                }
                is_last(turn)
            };
            let (mut even, mut odd) = (0, 0);
            if lane == 0 {
                even = sharing.take_ticket();
                odd = sharing.take_ticket();
            }
            let mut turn = 0;
            while !take_turn(turn, &mut even) && !take_turn(turn + 1, &mut odd) {
                turn += 2;
            }
            if lane == 0 {
                sharing.finish();
            }
        } else if role == Role::LookBack {
            let mut known = Known {
                unit: u32::MAX,
                group: 0,
                base: M::START,
            };
            let mut take_turn = |turn: u32, window: &mut Window| {
                block::meet();
                if turn >= LAG
                    && let Some(place) = places.read(turn - LAG)
                {
                    if place.unit != known.unit {
                        let base = arrays.start(options, place.unit as usize, len);
                        known = Known {
                            unit: place.unit,
                            group: 0,
                            base,
                        };
                    }
                    let prefixes = prefixes(turn - LAG);
                    let before = prefixes.read(lane.min(MAX_WARPS), M::IDENTITY);
                    let total = prefixes.read(MAX_WARPS, M::IDENTITY);
                    let (carry, after) =
                        look_back.carries(place, total, &mut known, window, &others);
                    if lane < MAX_WARPS {
                        entering(turn - LAG).write(lane, before.apply(carry));
                    }
                    if lane == 0 {
                        if options.has(Options::FINAL)
                            && (place.tile as usize + 1) * tile_len >= len
                        {
                            arrays.last.write(place.unit as usize, after);
                        }
                        if !M::is_finite_carry(after) {
                            sharing.flags.raise(place.unit as usize);
                        }
                    }
                }
                // What is asked for now is there in the turn after next.
                if turn + 2 >= LAG
                    && let Some(place) = places.read(turn + 2 - LAG)
                {
                    // What will be known then.
                    let group = match (turn + 1)
                        .checked_sub(LAG)
                        .and_then(|turn| places.read(turn))
                    {
                        Some(before) if before.unit == place.unit => before.tile / GROUP as u32,
                        _ => 0,
                    };
                    look_back.ask(place, group, window);
                }
                is_last(turn)
            };
            // Two names for two windows: to move one from name to name would be to wait for it.
            let (mut even, mut odd) = (Window::EMPTY, Window::EMPTY);
            let mut turn = 0;
            while !take_turn(turn, &mut even) && !take_turn(turn + 1, &mut odd) {
                turn += 2;
            }
        } else {
            // For each subtile, the aggregate of the lanes below this one: of the tiles that lag, the oldest first.
            let mut below = [[M::IDENTITY; K]; LAG as usize + 2];
            // The tile that is stored next.
            let mut loaded = Loaded::<E, I, K>::of(M::PADDING_ELEMENTS);
            let load = |turn: u32, place: Place| {
                let whole = place.detail != 0;
                row(place).copied::<K>(position(place), whole, stage(turn), slot, stride)
            };
            let mut turn = 0;
            loop {
                if let Some(place) = places.read(turn) {
                    // The copies of this tile are the oldest under way.
                    async_copy::wait::<AHEAD>();
                    let items = row(place).items(position(place), &load(turn, place));
                    let scanned = scan_warp(lane as u32, &items);
                    below[LAG as usize + 1] = scanned.lanes;
                    let mut k = 0;
                    while k < K {
                        if lane == k {
                            subtiles(turn).write(warp * K + k, scanned.subtiles[k]);
                        }
                        k += 1;
                    }
                }
                block::meet();
                if turn > LAG
                    && let Some(place) = places.read(turn - LAG - 1)
                {
                    let turn = turn - LAG - 1;
                    let carry = entering(turn).read(warp, M::START);
                    let mut scanned = ScannedWarp::EMPTY;
                    scanned.lanes = below[0];
                    let mut k = 0;
                    while k < K {
                        scanned.subtiles[k] = subtiles(turn).read(warp * K + k, M::IDENTITY);
                        k += 1;
                    }
                    let items = row(place).items(position(place), &loaded);
                    let carries = scanned.carries(carry);
                    let results = Results::<E, 1, K>::new::<M, D, I, V>(&items, carries, options);
                    row(place).store(position(place), place.detail != 0, &results.vectors);
                    if !vote_all(FULL_MASK, results.finite) && lane == 0 {
                        sharing.flags.raise(place.unit as usize);
                    }
                }
                if turn >= LAG
                    && let Some(place) = places.read(turn - LAG)
                {
                    loaded = load(turn - LAG, place);
                }
                copy(turn + AHEAD + 1);
                let mut i = 0;
                while i <= LAG as usize {
                    below[i] = below[i + 1];
                    i += 1;
                }
                if is_last(turn) {
                    break;
                }
                turn += 1;
            }
        }
    }
}
