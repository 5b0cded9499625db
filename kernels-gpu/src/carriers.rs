//! How the blocks that scan the tiles of strips learn what enters theirs: from *carriers*, blocks that do nothing else.
//!
//! A block that scans a tile publishes its aggregate, for each channel. The carriers take the carry of each channel through the
//! aggregates, in the order of [`chain`](crate::chain), and publish what enters each tile, which the block then asks for. So there are
//! two ways to go, from the block to a carrier and back; but a block reads just one value for a channel and tile, however many tiles
//! are under way.
//!
//! Carriers wait for tiles that other blocks have yet to take, so that all blocks have to be resident at once.
//!
//! A *line* is half a warp's width of the channels of a strip that have the same number within their lane. Each line is a team's
//! of half-warps, as many as there are warps for it. In a turn, each half-warp of a team fetches the aggregates of a
//! [group](crate::chain) of tiles, as far as they are there; the team's first warp takes the carry from group to group, up to the
//! first one that is not complete; and each half-warp publishes what enters its tiles. Nobody waits for a tile, since the blocks that
//! have not composed it may wait for another line.

use crate::{
    arrays::{Arrays, Options},
    block,
    monoid::{Action, Operator},
    sharing::{Asked, Published, Sharing},
    slots::{Slots, words},
    tiling::{
        WARP_THREADS,
        carriers::{LINE, MAX_LINES, MAX_MEMBERS, PROGRESS_WORDS, UNROLLED, lines_of},
        columns::GROUP,
    },
};
use cuda_std::{
    Scalar, Shared, thread,
    warp::{FULL_MASK, shuffle_idx, shuffle_xor, sync_warp, vote_all, vote_ballot},
};

/// What is published of the tiles of a scan of split columns.
pub struct Relay<M: Action> {
    /// The aggregates of the tiles.
    pub aggregates: Published<M>,
    /// What enters them.
    pub entering: Published<M::Carry>,
}

impl<M: Action> Relay<M> {
    /// # Safety
    /// As [`Sharing::new`], with as many words as [`tiling::carriers::words`](crate::tiling::carriers::words) says, the first of them
    /// for this.
    #[inline(always)]
    #[must_use]
    pub unsafe fn new(sharing: &Sharing, first: usize, channels: usize) -> Self {
        // SAFETY: says the caller.
        unsafe {
            let (aggregates, first) = Published::new(sharing, first, channels);
            let (entering, _) = Published::new(sharing, first, channels);
            Self {
                aggregates,
                entering,
            }
        }
    }
}

/// Where a strip's channel is in what is published: those of a line are neighbours.
#[inline(always)]
#[must_use]
pub const fn column(c: usize, lane: usize) -> usize {
    c * WARP_THREADS + lane
}

/// A group of a line's tiles.
#[derive(Clone, Copy)]
struct Part {
    /// The line's number among those of the block.
    number: usize,
    /// The column of the lane's channel in what is published of the strip.
    column: usize,
    /// The group's number among those of all outer indices.
    group: u32,
    /// How many of its tiles are published.
    published: u32,
    /// Its first tile's number among all.
    index: usize,
    /// Tiles; none beyond the end of the line.
    len: u32,
}

/// What a half-warp tells its team of a group: the number of its tiles that are there, from the first one on, and this, if all are.
const COMPLETE: u32 = 1 << 31;

/// Takes the carries of every `of`th line, from line `carrier` on, through the tiles of `outer` × `len` × `inner` elements.
///
/// # Safety
/// All threads of the block call it together. The arrays of carries that the options name have `outer · inner` elements. The lines of
/// a block are no more than [`MAX_LINES`], and `shared` has as many words as
/// [`tiling::carriers::shared_words`](crate::tiling::carriers::shared_words) says.
#[inline(always)]
#[allow(clippy::too_many_arguments, reason = "it is half of a kernel")]
pub unsafe fn carry<M, E, const I: usize, const C: usize>(
    arrays: &Arrays<M, E, I>,
    [outer, len, inner]: [usize; 3],
    options: Options,
    sharing: &Sharing,
    relay: &Relay<M>,
    shared: Shared<u32>,
    carrier: u32,
    of: u32,
) where
    M: Operator<E, I, Aggregate = M> + Action,
    E: Scalar,
{
    let lane = thread::thread_idx_x() as usize % LINE;
    // Of half-warps.
    let half = thread::thread_idx_x() / LINE as u32;
    let halves = thread::block_dim_x() / LINE as u32;
    let (outers, tiles) = (outer as u32, sharing.tiles as u32);
    // Tiles of a sequence, as far as groups reach.
    let reach = tiles.next_multiple_of(GROUP as u32);
    let in_strip = WARP_THREADS * C / LINE;
    let across = inner.div_ceil(WARP_THREADS * C);
    let lines = lines_of((across * in_strip) as u32, carrier, of);
    // Members of a team: a power of two, so that a group's member is found with a mask, and one warp at least.
    let size_log2 = (halves / lines.max(1)).clamp(2, MAX_MEMBERS).ilog2();
    let size = 1 << size_log2;
    let teams = halves >> size_log2;
    let (team, member) = (half >> size_log2, half & (size - 1));
    let rounds = lines.div_ceil(teams.max(1)).max(1);

    let slots = halves as usize * LINE;
    let totals = Slots::<M>::new(shared, slots);
    // SAFETY: it lies in the shared memory of the block. A tile's aggregate is published by the block that has its ticket, and what
    // enters it is published here alone. All threads take the same turns, and are together at the barriers. Before the first one
    // members write what the first warp of their team reads between the two, and that one writes what they read after the second one.
    unsafe {
        let shared = shared.add(slots * words::<M>());
        // What enters the groups of the members.
        let bases = Slots::<M::Carry>::new(shared, slots);
        let shared = shared.add(slots * words::<M::Carry>());
        // Of each line: what enters the group that the carry has come to; that group's number, how many of its tiles are published,
        // its outer index and its first tile.
        let carries = Slots::<M::Carry>::new(shared, MAX_LINES * LINE);
        let progress = shared.add(MAX_LINES * LINE * words::<M::Carry>());
        // Of each member: what it tells its team. Of each team: how many lines it is done with.
        let fetched = progress.add(MAX_LINES * PROGRESS_WORDS);
        let finished = fetched.add(slots / LINE);

        if member == 0 && team < teams && lane == 0 {
            let mut number = team;
            while number < lines {
                progress.write_vector(number as usize * PROGRESS_WORDS, [0; PROGRESS_WORDS]);
                number += teams;
            }
            finished.write(team as usize, 0);
        }
        block::meet();

        // Where a line is: its strip, and the lane's column and channel.
        let place = |number: u32| {
            let line = (carrier + number * of) as usize;
            let (strip, column) = (line / in_strip, line % in_strip * LINE + lane);
            let in_strip = column % WARP_THREADS * C + column / WARP_THREADS;
            (strip, column, strip * (WARP_THREADS * C) + in_strip)
        };
        // The member's part of the team's line in a round: of the next groups, one for each member.
        let part = |round: u32| {
            let number = round * teams + team;
            if team >= teams || number >= lines {
                return None;
            }
            let (strip, column, _) = place(number);
            let number = number as usize;
            let [group, published, mut outer, mut tile] =
                progress.read_vector(number * PROGRESS_WORDS);
            let ahead = member.wrapping_sub(group) & (size - 1);
            tile += ahead * GROUP as u32;
            while tile >= reach && outer < outers {
                tile -= reach;
                outer += 1;
            }
            let exists = outer < outers;
            Some(Part {
                number,
                column,
                group: group + ahead,
                published: if ahead == 0 { published } else { 0 },
                index: sharing.index(outer * across as u32 + strip as u32, tile),
                len: if exists {
                    (tiles - tile).min(GROUP as u32)
                } else {
                    0
                },
            })
        };
        let ask = |part: &Option<Part>, there: u32, asked: &mut [Asked; GROUP]| {
            if let Some(part) = part {
                let mut k = 0;
                while k < GROUP {
                    if there <= k as u32 && (k as u32) < part.len {
                        asked[k] = relay.aggregates.ask(part.index + k, part.column);
                    }
                    k += 1;
                }
            }
        };

        let mut asked = [Asked::NOTHING; GROUP];
        let mut round = 0;
        let mut now = part(round);
        ask(&now, 0, &mut asked);
        loop {
            let len_of_part = now.map_or(0, |part| part.len);
            let mut values = [M::IDENTITY; GROUP];
            let mut total = M::IDENTITY;
            // A bit for each tile that is there for all channels.
            let mut has: u32 = 0;
            let mut k = 0;
            while k < GROUP {
                let (value, is_there) = relay.aggregates.answer(&asked[k], M::IDENTITY);
                values[k] = value;
                if (k as u32) < len_of_part {
                    has |= u32::from(is_there) << k;
                    total = if k == 0 { value } else { total.then(value) };
                }
                k += 1;
            }
            let mut distance = LINE as u32 / 2;
            while distance > 0 {
                has &= shuffle_xor(FULL_MASK, has, distance);
                distance /= 2;
            }
            let there = has.trailing_ones();
            totals.write(half as usize * LINE + lane, total);
            if lane == 0 {
                let is_complete = there == len_of_part && there > 0;
                let told = if is_complete { COMPLETE } else { 0 };
                fetched.write(half as usize, there | told);
            }
            block::meet();
            let number = round * teams + team;
            if member < 2 && team < teams && number < lines {
                // Both halves of the warp do the same, but for writing.
                let writes = member == 0;
                let first_half = half - member;
                let state = number as usize * PROGRESS_WORDS;
                let [group, _, outer, tile] = progress.read_vector(state);
                let first = group & (size - 1);
                // A lane for each member, in the order of their groups.
                let of_lane = thread::thread_idx_x() % WARP_THREADS as u32;
                let told = fetched.read((first_half + ((first + of_lane) & (size - 1))) as usize);
                let told = if of_lane < size { told } else { 0 };
                // Groups that are complete and of this sequence, from the first one on; if the line is done, none is complete.
                let left = (reach - tile) / GROUP as u32;
                let run = vote_ballot(FULL_MASK, told & COMPLETE != 0).trailing_ones();
                let run = run.min(left);
                // Of the group after those.
                let next = run.min(WARP_THREADS as u32 - 1);
                let published = shuffle_idx(FULL_MASK, told, next);
                let (strip, _, channel) = place(number);
                let own = number as usize * LINE + lane;
                let sequence = outer as usize * inner + channel;
                let mut base = M::START;
                if tile > 0 {
                    base = carries.read(own, base);
                } else if channel < inner && outer < outers {
                    base = arrays.start(options, sequence, len);
                }
                let slot = |ahead: u32| {
                    (first_half + ((first + ahead) & (size - 1))) as usize * LINE + lane
                };
                let mut ahead = 0;
                while ahead < run {
                    // They are on their way before they are needed.
                    let totals: [M; UNROLLED] =
                        core::array::from_fn(|i| totals.read(slot(ahead + i as u32), M::IDENTITY));
                    let mut i = 0;
                    while i < UNROLLED {
                        if ahead + (i as u32) < run {
                            if writes {
                                bases.write(slot(ahead + i as u32), base);
                            }
                            base = totals[i].apply(base);
                        }
                        i += 1;
                    }
                    ahead += UNROLLED as u32;
                }
                let ends = run == left;
                if writes {
                    if run < size {
                        bases.write(slot(run), base);
                    }
                    if ends && channel < inner {
                        if options.has(Options::FINAL) {
                            arrays.last.write(sequence, base);
                        }
                        if !M::is_finite_carry(base) {
                            let unit = outer as usize * across + strip;
                            sharing.flags.raise(unit);
                        }
                    }
                }
                // All lanes have read how far the line was, and what enters.
                sync_warp(FULL_MASK);
                if writes {
                    carries.write(own, base);
                }
                if writes && lane == 0 {
                    let now = if ends {
                        [group + run, 0, outer + 1, 0]
                    } else {
                        let published = if run < size { published } else { 0 };
                        [group + run, published, outer, tile + run * GROUP as u32]
                    };
                    progress.write_vector(state, now);
                    if ends && outer + 1 == outers {
                        let before = finished.read(team as usize);
                        finished.write(team as usize, before + 1);
                    }
                }
            }
            block::meet();
            // Teams have as many lines as there are rounds, or one less.
            let other = (thread::thread_idx_x() % WARP_THREADS as u32).min(teams - 1);
            let of_other = (lines + teams - 1 - other) / teams.max(1);
            let all_done = vote_all(FULL_MASK, finished.read(other as usize) == of_other);
            if let Some(part) = &now {
                let [group, published, ..] =
                    progress.read_vector::<PROGRESS_WORDS>(part.number * PROGRESS_WORDS);
                let until = if part.group < group {
                    part.len
                } else if part.group == group {
                    published
                } else {
                    0
                };
                if until > part.published {
                    let base = bases.read(half as usize * LINE + lane, M::START);
                    let mut within = M::IDENTITY;
                    let mut k = 0;
                    while k < GROUP {
                        let entering = if k == 0 { base } else { within.apply(base) };
                        if part.published <= k as u32 && (k as u32) < until {
                            relay
                                .entering
                                .publish(part.index + k, part.column, entering);
                        }
                        within = if k == 0 {
                            values[k]
                        } else {
                            within.then(values[k])
                        };
                        k += 1;
                    }
                }
            }
            if all_done {
                break;
            }
            let before = now;
            round = if round + 1 < rounds { round + 1 } else { 0 };
            // What is there of a group that stays the member's is not asked for again.
            let held = if rounds == 1 { before } else { None };
            now = part(round);
            let stays = matches!((&held, &now), (Some(held), Some(now)) if held.group == now.group);
            ask(&now, if stays { there } else { 0 }, &mut asked);
        }
    }
}
