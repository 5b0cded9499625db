//! The scan of columns too few for a block each: the groups of tiles of a strip are scanned by different blocks.
//!
//! A tile is scanned as in [columns](crate::columns), to the bit; a block takes a [group](crate::chain) of them at once, a tile a warp,
//! which stays in shared memory. It composes the group's aggregate, publishes it, and looks back for what enters: decoupled look-back
//! (Merrill and Garland 2016), but that the carry of the nearest group that has one is taken through the aggregates of the groups between,
//! in order. So it makes no difference which group that is.
//!
//! While the memory is busy, an answer from it takes microseconds, in which many groups are composed: so a strip is narrow and its
//! groups are long, for there to be few of them under way; and a block asks for many at once, some more than it needed last time. While
//! the answers are on their way, and while it stores its results, the steps of its next group are copied to where those of this one were.
//!
//! A strip in which some lane's carry comes out infinite or NaN is flagged, and then scanned by [`columns`](crate::columns).

use crate::{
    arrays::{Arrays, Options},
    direction::Order,
    monoid::{Action, Carry, Monoid, Operator},
    sharing::{Asked, Place, Places, Published, Sharing},
    slots::{Slots, words},
    strip::{Results, Strip, compose},
    tiling::{
        WARP_THREADS,
        columns::{self, GROUP, STEPS, TILE},
        sharing::PLACE_WORDS,
        split_columns::{
            ASKED, GROUP_STEPS, PARTS, PLACES, SIDES, WIDTH, WINDOW, bytes_before_stage, held,
        },
    },
};
use cuda_std::{
    Scalar, Shared, async_copy,
    hint::opaque,
    shared, thread,
    warp::{self, FULL_MASK, shuffle_idx, vote_ballot},
};

/// Scans each channel of `outer` × `len` × `inner` elements along `len`, and raises the flags of the strips that are to be
/// scanned again.
///
/// # Safety
/// - The inputs and the outputs have `outer · len · inner` elements; the inputs are written, and do not overlap the
///   outputs. The arrays of carries that the options and the operator name have `outer · inner` elements. Nothing is packed, nor masked.
/// - The scratch memory is as [`Sharing::new`] wants it for the strips and groups, with as many words as
///   [`tiling::sharing::words`](crate::tiling::sharing::words) says of their aggregates and carries.
/// - The grid is one-dimensional; a block is of [`THREADS`](crate::tiling::split_columns::THREADS) threads.
/// - It has [`tiling::split_columns::shared_bytes`](crate::tiling::split_columns::shared_bytes) of dynamic shared memory.
#[inline(always)]
pub unsafe fn scan_split_columns<
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
    options: u64,
) where
    S: Operator<E, I, O>,
    E: Scalar,
    D: Order,
{
    let [outer, len, inner] = [outer as usize, len as usize, inner as usize];
    let options = Options(options);
    let channels = WIDTH * C;
    let warp = thread::thread_idx_x() as usize / WARP_THREADS;
    let lane = thread::thread_idx_x() as usize % WARP_THREADS;
    let (side, lane) = (lane / WIDTH, lane % WIDTH);
    // At least 1: a division that cannot panic leaves no panic in the PTX.
    let across = (inner.div_ceil(channels) as u32).max(1);
    let groups = len.div_ceil(GROUP_STEPS);
    // Parts whose steps stay in registers.
    let held = const { held(I, size_of::<E>()) };
    // SAFETY: the strips lie in the arrays; only the block with a group's ticket writes the group, and publishes what is of it. The
    // ticket of a turn is the same for all threads, so that they are together at the barriers. What is in shared memory is written
    // and read on two sides of a barrier; a warp reads and copies its own rows of the stage alone.
    unsafe {
        let (sharing, first) = Sharing::new(arrays.scratch, outer * across as usize, groups);
        let (aggregates, first) = Published::new(&sharing, first, channels);
        let (carries, _) = Published::new(&sharing, first, channels);
        let shared = shared::dynamic_shared_mem::<u32>();
        let places = Places::<PLACES>(shared);
        let found = shared.add(PLACES as usize * PLACE_WORDS);
        let shared = found.add(GROUP);
        let tiles = Slots::<S::Aggregate>::new(shared, GROUP * channels);
        let shared = shared.add(GROUP * channels * words::<S::Aggregate>());
        let found_aggregates = Slots::new(shared, WINDOW * channels);
        let shared = shared.add(WINDOW * channels * words::<S::Aggregate>());
        let relay = Relay::<S::Aggregate, C> {
            aggregates,
            carries,
            found_aggregates,
            found_carries: Slots::new(shared, WINDOW * channels),
            found,
        };
        let stage = shared::dynamic_shared_mem::<E>().add(
            bytes_before_stage(size_of::<S::Aggregate>(), size_of::<Carry<S>>(), C)
                / size_of::<E>(),
        );

        // The detail of a place: the channels of the strip, and whether the group has all its steps.
        let is_whole = |place: Place| place.detail % 2 == 1;
        let strip = |place: Place| {
            let channels = (place.detail / 2) as usize;
            let start = place.start;
            let (len, inner) = (opaque(len), opaque(inner));
            Strip::<S, E, D, I, V, C, O, WIDTH>::starting(
                arrays, options, start, channels, len, inner,
            )
        };
        let place_of = |ticket: u32| {
            sharing.by_strips(ticket, across).map(|(unit, group)| {
                let (outer, strip_of) = (unit / across, unit % across);
                let channel = strip_of as usize * channels;
                let whole = (group as usize + 1) * GROUP_STEPS <= len;
                Place {
                    unit,
                    tile: group,
                    start: outer as usize * len * inner + channel,
                    detail: 2 * (inner - channel).min(channels) as u32 + u32::from(whole),
                }
            })
        };
        // The first row of a part of one side's lanes.
        let row = |side: usize, part: usize| warp * TILE + (side * PARTS + part) * STEPS;
        // The warp's steps in some parts, of all sides; code that is not unrolled, since there would be a lot of it.
        let copy = |place: Place, part: usize, parts: usize| {
            let (whole, strip) = (is_whole(place), strip(place));
            let mut side = 0;
            while side < opaque(SIDES) {
                let row = row(side, part);
                let position = place.tile as usize * GROUP_STEPS + row;
                let lane = opaque(thread::thread_idx_x() as usize % WARP_THREADS);
                let count = opaque(parts * STEPS);
                strip.copy::<GROUP_STEPS>(position, count, whole, stage, row, lane);
                side += 1;
            }
        };
        // The lane's first one.
        let sequence = |place: Place| {
            let (outer, strip) = (place.unit / across, place.unit % across);
            outer as usize * inner + strip as usize * channels + lane * C
        };
        let is_taker = thread::thread_idx_x() as usize == C * WARP_THREADS;

        if is_taker {
            places.write(0, place_of(sharing.take_ticket()));
        }
        thread::sync_threads();
        let mut here = places.read(0);
        let copy_first = |place: Option<Place>, parts: usize| {
            if let Some(place) = place
                && parts > 0
            {
                copy(place, 0, parts);
            }
        };
        copy_first(here, PARTS);
        async_copy::commit();
        // How many groups back the carry was found last.
        let mut distance = 0;
        let mut turn = 0;
        while let Some(place) = here {
            // It gets here while the steps do.
            let ticket = if is_taker { sharing.take_ticket() } else { 0 };
            let index = sharing.index(place.unit, place.tile);
            let is_last = place.tile as usize + 1 == groups;
            async_copy::wait::<0>();
            // After this every lane sees the copies.
            warp::sync_warp(FULL_MASK);
            let steps_of = |part: usize| {
                let (lane, row) = (opaque(lane), opaque(row(side, part)));
                let position = place.tile as usize * GROUP_STEPS + row;
                let mut strip = strip(place);
                if S::IS_BACKWARD && is_last && options.has(Options::INITIAL) {
                    let first = sequence(place);
                    let initial = strip.carries(lane, |c| arrays.initial.read(first + c));
                    strip = strip.with_initial(initial);
                }
                strip.steps::<GROUP_STEPS>(position, 0, stage, row, lane)
            };
            let mut held_steps = [[[S::PADDING; C]; STEPS]; PARTS];
            let mut own = [[S::Aggregate::IDENTITY; C]; PARTS];
            let mut part = 0;
            while part < PARTS {
                let of_part = steps_of(part);
                own[part] = compose(&of_part);
                if part < held {
                    held_steps[part] = of_part;
                }
                part += 1;
            }
            // Of the tile's steps before each of the lane's parts.
            let mut before = [[S::Aggregate::IDENTITY; C]; PARTS];
            let mut c = 0;
            while c < C {
                let mut total = S::Aggregate::IDENTITY;
                let mut turn = 0;
                while turn < SIDES {
                    // From the lane of the side before.
                    let from = (thread::thread_idx_x() + WARP_THREADS as u32 - WIDTH as u32)
                        % WARP_THREADS as u32;
                    let of_sides = shuffle_idx(FULL_MASK, total, from);
                    if side == turn {
                        if turn > 0 {
                            total = of_sides;
                        }
                        let mut part = 0;
                        while part < PARTS {
                            before[part][c] = total;
                            total = if turn == 0 && part == 0 {
                                own[part][c]
                            } else {
                                total.then(own[part][c])
                            };
                            part += 1;
                        }
                    }
                    turn += 1;
                }
                if side == SIDES - 1 {
                    tiles.write((warp * C + c) * WIDTH + lane, total);
                }
                c += 1;
            }
            if is_taker {
                places.write(turn + 1, place_of(ticket));
            }
            thread::sync_threads();
            let next = places.read(turn + 1);
            // Of all tiles, and of those before the warp's.
            let mut totals = [S::Aggregate::IDENTITY; C];
            let mut of_tiles_before = totals;
            let mut c = 0;
            while c < C {
                let mut tile = 0;
                while tile < GROUP {
                    if tile == warp {
                        of_tiles_before[c] = totals[c];
                    }
                    let of_tile = tiles.read((tile * C + c) * WIDTH + lane, totals[c]);
                    totals[c] = if tile == 0 {
                        of_tile
                    } else {
                        totals[c].then(of_tile)
                    };
                    tile += 1;
                }
                if warp == c && side == 0 && !is_last {
                    relay.aggregates.publish(index, lane * C + c, totals[c]);
                }
                c += 1;
            }
            // Those of the next group can take their place.
            let copy_next = || copy_first(next, held);
            let mut entering = [S::Aggregate::START; C];
            if place.tile > 0 {
                entering = relay.look_back(index, place.tile, &mut distance, copy_next);
            } else {
                copy_next();
                // As when looking back: before others write what is read here.
                thread::sync_threads();
            }
            let mut carries = [S::Aggregate::START; C];
            let mut c = 0;
            while c < C {
                let is_there = lane * C + c < place.detail as usize / 2;
                if place.tile == 0 && is_there {
                    entering[c] = arrays.start(options, sequence(place) + c, len);
                }
                if warp == c && side == 0 {
                    let after = totals[c].apply(entering[c]);
                    if !is_last {
                        relay.carries.publish(index, lane * C + c, after);
                    } else if options.has(Options::FINAL) && is_there {
                        arrays.last.write(sequence(place) + c, after);
                    }
                    if is_there && !S::Aggregate::is_finite_carry(after) {
                        raise::<E>(&sharing, place.unit as usize, channels, inner);
                    }
                }
                carries[c] = entering[c];
                if warp > 0 {
                    carries[c] = of_tiles_before[c].apply(carries[c]);
                }
                c += 1;
            }
            let mut finite = true;
            let mut part = 0;
            while part < PARTS {
                let steps = if part < held {
                    held_steps[part]
                } else {
                    let steps = steps_of(part);
                    // All lanes are done with their rows, which are written next.
                    warp::sync_warp(FULL_MASK);
                    if let Some(place) = next {
                        copy(place, part, 1);
                    }
                    steps
                };
                let mut entering = carries;
                let mut c = 0;
                while c < C {
                    entering[c] = before[part][c].apply(carries[c]);
                    c += 1;
                }
                let results = Results::new(&steps, entering, options);
                let (lane, row) = (opaque(lane), opaque(row(side, part)));
                let position = place.tile as usize * GROUP_STEPS + row;
                strip(place).store(position, is_whole(place), lane, &results.values);
                let worst = results.worst(entering);
                let mut c = 0;
                while c < C {
                    finite &= S::Aggregate::is_finite_carry(worst[c]);
                    c += 1;
                }
                part += 1;
            }
            async_copy::commit();
            if !finite {
                raise::<E>(&sharing, place.unit as usize, channels, inner);
            }
            here = next;
            turn += 1;
        }
        if is_taker {
            sharing.finish();
        }
    }
}

/// Raises the flag of the strip of [`columns`](crate::columns) that has the channels of strip `unit`.
///
/// # Safety
/// There is such a strip.
#[inline(always)]
unsafe fn raise<E>(sharing: &Sharing, unit: usize, channels: usize, inner: usize) {
    let across = inner.div_ceil(channels).max(1);
    let in_columns = columns::channels(size_of::<E>());
    let (outer, channel) = (unit / across, unit % across * channels);
    // SAFETY: says the caller.
    unsafe {
        sharing
            .flags
            .raise(outer * inner.div_ceil(in_columns) + channel / in_columns);
    }
}

/// What the blocks publish of the groups, and shared memory for what a block learns of some.
struct Relay<M: Action, const C: usize> {
    aggregates: Published<M>,
    /// The carries after the groups.
    carries: Published<M::Carry>,
    found_aggregates: Slots<M>,
    found_carries: Slots<M::Carry>,
    /// For each warp a bit for each group that it has found.
    found: Shared<u32>,
}

impl<M: Action, const C: usize> Relay<M, C> {
    /// Channels, each of which a lane of the warp has while it looks back, or several.
    const CHANNELS: usize = WIDTH * C;
    /// Groups that a warp asks for in one access.
    const AT_ONCE: usize = WARP_THREADS / Self::CHANNELS;

    /// What enters group `group` of a strip, which is number `index` among all, in the lane's channels. `distance` is how many groups
    /// back a carry was found last; and now. `meanwhile` is called once, while the first answers are on their way.
    ///
    /// # Safety
    /// It is not the strip's first group. All threads of the block call it together.
    #[inline(always)]
    unsafe fn look_back(
        &self,
        index: usize,
        group: u32,
        distance: &mut u32,
        meanwhile: impl Fn(),
    ) -> [M::Carry; C] {
        let warp = thread::thread_idx_x() / WARP_THREADS as u32;
        let lane = thread::thread_idx_x() as usize % WARP_THREADS;
        let (part, channel) = (lane / Self::CHANNELS, lane % Self::CHANNELS);
        let slot = |distance: u32| distance as usize * Self::CHANNELS + channel;
        // Groups that are asked for: some more than last time.
        let mut asking = (*distance + ASKED as u32 + 1).min(WINDOW as u32).min(group);
        let mut asked = [Asked::NOTHING; ASKED];
        let mut asked_carries = asked;
        let mut is_first = true;
        // SAFETY: the groups asked for are some before this one, of which the first has its carry without looking back. So each has one
        // some time. What is written to shared memory is read after a barrier, and written again after another one.
        unsafe {
            loop {
                let distance_of =
                    |k: usize| warp * ASKED as u32 + (k * Self::AT_ONCE + part) as u32;
                let mut k = 0;
                while k < ASKED / Self::AT_ONCE {
                    if distance_of(k) < asking {
                        let index = index - 1 - distance_of(k) as usize;
                        if !self.carries.answer(&asked_carries[k], M::START).1 {
                            asked_carries[k] = self.carries.ask(index, channel);
                        }
                        if !self.aggregates.answer(&asked[k], M::IDENTITY).1 {
                            asked[k] = self.aggregates.ask(index, channel);
                        }
                    }
                    k += 1;
                }
                if is_first {
                    meanwhile();
                    is_first = false;
                }
                let mut found = 0;
                let mut k = 0;
                while k < ASKED / Self::AT_ONCE {
                    let (carry, has_carry) = self.carries.answer(&asked_carries[k], M::START);
                    let (value, has) = self.aggregates.answer(&asked[k], M::IDENTITY);
                    if distance_of(k) < asking {
                        self.found_aggregates.write(slot(distance_of(k)), value);
                        self.found_carries.write(slot(distance_of(k)), carry);
                    }
                    let has = vote_ballot(FULL_MASK, has);
                    let has_carry = vote_ballot(FULL_MASK, has_carry);
                    let mut part = 0;
                    while part < Self::AT_ONCE {
                        let of_part = (u32::MAX >> (WARP_THREADS - Self::CHANNELS))
                            << (part * Self::CHANNELS);
                        let bit = k * Self::AT_ONCE + part;
                        found |= u32::from(has & of_part == of_part) << bit;
                        found |= u32::from(has_carry & of_part == of_part) << (ASKED + bit);
                        part += 1;
                    }
                    k += 1;
                }
                if lane == 0 {
                    self.found.write(warp as usize, found);
                }
                thread::sync_threads();
                let mut has: u32 = 0;
                let mut has_carry: u32 = 0;
                let mut warp = 0;
                while warp < WINDOW / ASKED {
                    let found = self.found.read(warp);
                    has |= (found & ((1 << ASKED) - 1)) << (warp * ASKED);
                    has_carry |= found >> ASKED << (warp * ASKED);
                    warp += 1;
                }
                let nearest = has_carry.trailing_zeros();
                if nearest <= has.trailing_ones() && nearest < asking {
                    *distance = nearest;
                    let mut carry = self.found_carries.read(slot(nearest), M::START);
                    let mut distance = nearest;
                    while distance > 0 {
                        distance -= 1;
                        let value = self.found_aggregates.read(slot(distance), M::IDENTITY);
                        carry = value.apply(carry);
                    }
                    return core::array::from_fn(|c| {
                        shuffle_idx(FULL_MASK, carry, (lane % WIDTH * C + c) as u32)
                    });
                }
                asking = (2 * asking).min(WINDOW as u32).min(group);
                thread::sync_threads();
            }
        }
    }
}
