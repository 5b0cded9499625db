//! How the blocks that scan the tiles of a sequence learn what enters theirs: decoupled look-back, after Merrill and
//! Garland, "Single-pass Parallel Prefix Scan with Decoupled Look-back", NVIDIA NVR-2016-002 (2016).
//!
//! Tiles are handed out by a ticket, so that the tiles before one are done or under way, whatever the order in which blocks
//! run. A block publishes the aggregate of its tile before it needs what enters the tile, and so never keeps others waiting
//! that it waits for. What enters a tile is found from what others published, always in the order of [`chain`](crate::chain), so
//! that a result does not depend on what was there when it looked:
//! - for a row, by a warp, from what entered the last tile of the row that the block had, and all aggregates since
//!   ([`carries`](LookBack::carries));
//! - for a channel, by a thread, from the aggregates of the group's tiles, and the nearest *base* (what enters a group), taken
//!   through the aggregates of the groups between ([`carries_of_thread`](LookBack::carries_of_thread)). The block with a group's
//!   last tile publishes the group's aggregate and the next group's base.
//!
//! What is published lies in *scratch* memory, in words of 64 bits: a 32-bit word of the value, and above it the number of the
//! run as a tag. So a value and the fact that it is there are one access, no two of which need an order, and words of an earlier
//! run are as good as none: scratch memory is zeroed once, not for each run.

use crate::{
    monoid::Action,
    slots::{Slots, words},
    tiling::{
        GROUP, WARP_THREADS,
        look_back::{FINISHED, FLAGS, PLACE_WORDS, PLACES, RUNS, SPAN, TICKET, WINDOW},
    },
};
use core::cell::Cell;
use core::marker::PhantomData;
use cuda_std::{
    Global, Shared, thread,
    warp::{FULL_MASK, Shuffle, shuffle_idx, sync_warp, vote_all},
};

/// The flags of the rows or strips in which a split scan met infinities or NaNs, and which are to be scanned again.
pub struct Flags {
    words: Global<u64>,
}

impl Flags {
    /// The flags that begin at word `first` of the scratch memory; none if that is 0.
    #[inline(always)]
    #[must_use]
    pub fn new(scratch: Global<u64>, first: u64) -> Option<Self> {
        (first != 0).then(|| Self {
            // SAFETY: the flags lie in the scratch memory.
            words: unsafe { scratch.add(first as usize) },
        })
    }

    /// Whether a flag is raised.
    ///
    /// # Safety
    /// There are more than `index` flags, and no other thread raises or lowers this one.
    #[inline(always)]
    #[must_use]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn is_raised(&self, index: usize) -> bool {
        // SAFETY: says the caller.
        unsafe { self.words.load_relaxed(index) != 0 }
    }

    /// Raises a flag.
    ///
    /// # Safety
    /// There are more than `index` flags.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn raise(&self, index: usize) {
        // SAFETY: says the caller.
        unsafe { self.words.store_relaxed(index, 1) };
    }

    /// Lowers a flag.
    ///
    /// # Safety
    /// There are more than `index` flags.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn lower(&self, index: usize) {
        // SAFETY: says the caller.
        unsafe { self.words.store_relaxed(index, 0) };
    }
}

/// Values of one kind in scratch memory: for each tile or group, one for each of a strip's channels.
struct Published<V> {
    words: Global<u64>,
    channels: usize,
    tag: u32,
    values: PhantomData<V>,
}

impl<V: Shuffle> Published<V> {
    /// # Safety
    /// The values lie in the scratch memory.
    #[inline(always)]
    unsafe fn new(scratch: Global<u64>, first: usize, channels: usize, tag: u32) -> Self {
        Self {
            // SAFETY: says the caller.
            words: unsafe { scratch.add(first) },
            channels,
            tag,
            values: PhantomData,
        }
    }

    #[inline(always)]
    fn first_word(&self, index: usize, channel: usize) -> usize {
        index * words::<V>() * self.channels + channel
    }

    /// # Safety
    /// The value is in the scratch memory, and no other thread publishes it in this run.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    unsafe fn publish(&self, index: usize, channel: usize, value: V) {
        let at = Cell::new(self.first_word(index, channel));
        let _ = value.map_words(|word| {
            let tagged = u64::from(self.tag) << 32 | u64::from(word);
            // SAFETY: says the caller.
            unsafe { self.words.store_relaxed(at.get(), tagged) };
            at.set(at.get() + self.channels);
            word
        });
    }

    /// Waits until the value is there.
    ///
    /// # Safety
    /// The value is in the scratch memory.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    unsafe fn wait(&self, index: usize, channel: usize) {
        let first = self.first_word(index, channel);
        let mut w = 0;
        while w < words::<V>() {
            // SAFETY: says the caller.
            while unsafe { self.words.load_relaxed(first + w * self.channels) } >> 32
                != u64::from(self.tag)
            {}
            w += 1;
        }
    }

    /// The value, and whether it is there; `like` is any value.
    ///
    /// # Safety
    /// The value is in the scratch memory.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    unsafe fn peek(&self, index: usize, channel: usize, like: V) -> (V, bool) {
        let at = Cell::new(self.first_word(index, channel));
        let there = Cell::new(true);
        let value = like.map_words(|_| {
            // SAFETY: says the caller.
            let tagged = unsafe { self.words.load_relaxed(at.get()) };
            at.set(at.get() + self.channels);
            there.set(there.get() & ((tagged >> 32) as u32 == self.tag));
            tagged as u32
        });
        (value, there.get())
    }
}

/// Values that a thread asks for at once.
const BATCH: usize = 8;

impl<V: Shuffle> Published<V> {
    /// The first `wanted` of so many values, when they are there; the others are copies of the last of them.
    ///
    /// # Safety
    /// The wanted values, of which there is one at least, are in the scratch memory.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    unsafe fn get_batch(&self, first: usize, channel: usize, wanted: usize, like: V) -> [V; BATCH] {
        let last = wanted.min(BATCH) - 1;
        let mut misses = 0;
        loop {
            let mut values = [like; BATCH];
            // The first that is not there.
            let mut missing = BATCH;
            let mut i = 0;
            // No branches, so that all of them are under way at once.
            while i < BATCH {
                let index = i.min(last);
                // SAFETY: the value is wanted.
                let (value, there) = unsafe { self.peek(first + index, channel, like) };
                values[i] = value;
                if !there {
                    missing = missing.min(index);
                }
                i += 1;
            }
            if missing == BATCH {
                return values;
            }
            // Another look at all of them is as fast as one at those that are missing; then it is a matter of waiting.
            if misses > 0 {
                // SAFETY: the value is wanted.
                unsafe { self.wait(first + missing, channel) };
            }
            misses += 1;
        }
    }
}

/// What the blocks of a split scan share.
pub struct LookBack<M: Action> {
    scratch: Global<u64>,
    /// Tiles of a sequence, and groups of them.
    tiles: usize,
    groups: usize,
    /// Rows or strips.
    units: usize,
    aggregates: Published<M>,
    group_aggregates: Published<M>,
    bases: Published<M::Carry>,
    /// Where a scan meets infinities or NaNs.
    pub flags: Flags,
}

/// A tile that a ticket stands for.
#[derive(Clone, Copy)]
pub struct Place {
    /// The row or strip.
    pub unit: u32,
    /// The tile's number in it.
    pub tile: u32,
    /// The step with which its sequences begin, among all steps.
    pub start: usize,
    /// What else the strategy wants to know of it.
    pub detail: u32,
}

/// The tiles of a block's tickets, in shared memory, in turn.
#[derive(Clone, Copy)]
pub struct Places(pub Shared<u32>);

impl Places {
    /// Writes that of a turn.
    ///
    /// # Safety
    /// A barrier lies between this and the accesses of others.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn write(&self, turn: u32, place: Option<Place>) {
        // SAFETY: says the caller.
        unsafe {
            let words = self.0.add((turn % PLACES) as usize * PLACE_WORDS);
            let words_of = |place: Place| {
                let start = place.start as u64;
                [place.unit, place.tile, start as u32, (start >> 32) as u32]
            };
            words.write_vector(0, place.map_or([u32::MAX; 4], words_of));
            words.write(4, place.map_or(0, |place| place.detail));
        }
    }

    /// Reads that of a turn.
    ///
    /// # Safety
    /// It was written before the last barrier.
    #[inline(always)]
    #[must_use]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn read(&self, turn: u32) -> Option<Place> {
        // SAFETY: says the caller.
        unsafe {
            let words = self.0.add((turn % PLACES) as usize * PLACE_WORDS);
            let [unit, tile, low, high] = words.read_vector(0);
            (unit != u32::MAX).then_some(Place {
                unit,
                tile,
                start: (u64::from(high) << 32 | u64::from(low)) as usize,
                detail: words.read(4),
            })
        }
    }

    /// Whether a turn has no tile.
    ///
    /// # Safety
    /// As [`read`](Self::read).
    #[inline(always)]
    #[must_use]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn is_none(&self, turn: u32) -> bool {
        // SAFETY: says the caller.
        unsafe { self.0.read((turn % PLACES) as usize * PLACE_WORDS) == u32::MAX }
    }
}

impl<M: Action> LookBack<M> {
    /// The shared state of a scan of `units` rows or strips of `channels` channels, of so many `tiles` each.
    ///
    /// # Safety
    /// The scratch memory has as many words as [`tiling::look_back::words`](crate::tiling::look_back::words) says, which were
    /// zeroed before its first run, and no other run has it at the same time.
    #[inline(always)]
    #[must_use]
    pub unsafe fn new(scratch: Global<u64>, units: usize, tiles: usize, channels: usize) -> Self {
        let groups = tiles.div_ceil(GROUP);
        let aggregates = FLAGS + units;
        let group_aggregates = aggregates + units * tiles * channels * words::<M>();
        let bases = group_aggregates + units * groups * channels * words::<M>();
        // SAFETY: all of it lies in the scratch memory. Nobody writes the number of runs before all blocks are done.
        unsafe {
            let tag = scratch.load_relaxed(RUNS) as u32 + 1;
            Self {
                scratch,
                tiles,
                groups,
                units,
                aggregates: Published::new(scratch, aggregates, channels, tag),
                group_aggregates: Published::new(scratch, group_aggregates, channels, tag),
                bases: Published::new(scratch, bases, channels, tag),
                flags: Flags {
                    words: scratch.add(FLAGS),
                },
            }
        }
    }

    /// Takes the next ticket.
    ///
    /// # Safety
    /// As [`new`](Self::new).
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn take_ticket(&self) -> u32 {
        // SAFETY: the scratch memory has a header.
        unsafe { self.scratch.fetch_add_relaxed(TICKET, 1) as u32 }
    }

    /// Row and tile of a ticket, if there is such a tile: row after row, so that memory is passed through in order.
    #[inline(always)]
    #[must_use]
    pub fn by_rows(&self, ticket: u32) -> Option<(u32, u32)> {
        let tiles = (self.tiles as u32).max(1);
        (ticket < self.units as u32 * tiles).then(|| (ticket / tiles, ticket % tiles))
    }

    /// Strip and tile of a ticket, if there is such a tile: for the `across` strips side by side the first tiles, then the second
    /// ones, and so on, so that memory is passed through in order.
    #[inline(always)]
    #[must_use]
    pub fn by_strips(&self, ticket: u32, across: u32) -> Option<(u32, u32)> {
        let across = across.max(1);
        let slab = (across * self.tiles as u32).max(1);
        let (outer, rest) = (ticket / slab, ticket % slab);
        let exists = ticket < self.units as u32 * self.tiles as u32;
        exists.then(|| (outer * across + rest % across, rest / across))
    }

    /// Ends the block's part in the run. The last block makes the scratch memory ready for the next run.
    ///
    /// # Safety
    /// As [`new`](Self::new); one thread of each block calls it, when the block has no more tickets to take.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn finish(&self) {
        // The ticket is not reset before all were taken.
        thread::device_fence();
        // SAFETY: the scratch memory has a header, which only the last block writes so.
        unsafe {
            let before = self.scratch.fetch_add_relaxed(FINISHED, 1);
            if before + 1 == u64::from(thread::grid_dim_x()) {
                self.scratch.store_relaxed(TICKET, 0);
                self.scratch.store_relaxed(FINISHED, 0);
                self.scratch.fetch_add_relaxed(RUNS, 1);
            }
        }
    }

    /// Publishes the aggregate of a tile, unless no other needs it.
    ///
    /// # Safety
    /// As [`new`](Self::new); the tile is the block's, and one thread does it for each channel.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn publish(&self, place: Place, channel: usize, aggregate: M) {
        if place.tile as usize + 1 < self.tiles {
            let index = place.unit as usize * self.tiles + place.tile as usize;
            // SAFETY: the tile is one of the scan's, and this block's.
            unsafe { self.aggregates.publish(index, channel, aggregate) };
        }
    }

    /// The carry that enters a tile, and the one after it, found by a thread for a channel; `start` enters the sequence.
    ///
    /// # Safety
    /// As [`publish`](Self::publish), which was called before with the same arguments.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn carries_of_thread(
        &self,
        place: Place,
        channel: usize,
        aggregate: M,
        start: M::Carry,
    ) -> (M::Carry, M::Carry) {
        let (unit, tile) = (place.unit as usize, place.tile as usize);
        let (group, position) = (tile / GROUP, tile % GROUP);
        let first_tile = unit * self.tiles + group * GROUP;
        let first_group = unit * self.groups;
        // SAFETY: what is waited for belongs to tiles before this one.
        unsafe {
            let mut within = M::IDENTITY;
            let mut done = 0;
            while done < position {
                let wanted = position - done;
                let values =
                    self.aggregates
                        .get_batch(first_tile + done, channel, wanted, M::IDENTITY);
                let mut i = 0;
                while i < BATCH {
                    if i < wanted {
                        within = if done + i == 0 {
                            values[i]
                        } else {
                            within.then(values[i])
                        };
                    }
                    i += 1;
                }
                done += BATCH;
            }
            let all = if position == 0 {
                aggregate
            } else {
                within.then(aggregate)
            };
            let is_last_of_group = position == GROUP - 1 && tile + 1 < self.tiles;
            if is_last_of_group {
                self.group_aggregates
                    .publish(first_group + group, channel, all);
            }

            let mut base = start;
            let mut from = group;
            while from > 0 {
                let (value, there) = self.bases.peek(first_group + from, channel, start);
                if there {
                    base = value;
                    break;
                }
                from -= 1;
            }
            while from < group {
                let wanted = group - from;
                let values = self.group_aggregates.get_batch(
                    first_group + from,
                    channel,
                    wanted,
                    M::IDENTITY,
                );
                let mut i = 0;
                while i < BATCH {
                    if i < wanted {
                        base = values[i].apply(base);
                    }
                    i += 1;
                }
                from += BATCH;
            }
            let after = all.apply(base);
            if is_last_of_group {
                self.bases.publish(first_group + group + 1, channel, after);
            }
            let before = if position == 0 {
                base
            } else {
                within.apply(base)
            };
            (before, after)
        }
    }

    /// Asks for the aggregates of the tiles before `place`, from `group` on, or as many as a window has. It does not wait for them.
    ///
    /// # Safety
    /// As [`publish`](Self::publish).
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn ask(&self, place: Place, group: u32, window: &mut Window) {
        let lane = thread::thread_idx_x() % WARP_THREADS as u32;
        // SAFETY: the row's aggregates lie in the scratch memory.
        let row = unsafe {
            let first = self
                .aggregates
                .first_word(place.unit as usize * self.tiles, 0);
            self.aggregates.words.add(first)
        };
        let mut i = 0;
        while i < SPAN {
            // Beyond the tiles before, that of the tile itself: no branch keeps the accesses from being under way at once.
            let ahead = group * GROUP as u32 + (i * WARP_THREADS) as u32 + lane;
            let tile = ahead.min(place.tile) as usize;
            let mut w = 0;
            while w < words::<M>() {
                // SAFETY: the tile is one of the row's.
                window.0[i][w] = unsafe { row.load_relaxed(tile * words::<M>() + w) };
                w += 1;
            }
            i += 1;
        }
    }

    /// The carry that enters a tile, and the one after it, found by a warp from what it asked for; `aggregate` is that of the tile.
    ///
    /// # Safety
    /// As [`publish`](Self::publish), which was called before. All lanes of the warp call it together. What is `known` is of this
    /// sequence, and of a tile before this one; the `window` was asked for with it. `slots` has two times [`WINDOW`] values in shared
    /// memory that only this warp accesses, and that were last accessed before a barrier.
    #[inline(always)]
    pub unsafe fn carries(
        &self,
        place: Place,
        aggregate: M,
        known: &mut Known<M::Carry>,
        window: &mut Window,
        slots: &Slots<M>,
    ) -> (M::Carry, M::Carry) {
        const GROUPS: u32 = (WINDOW / GROUP) as u32;
        let lane = thread::thread_idx_x() as usize % WARP_THREADS;
        let (group, position) = (place.tile / GROUP as u32, place.tile % GROUP as u32);
        let first = place.unit as usize * self.tiles;
        let mut half = 0;
        let mut misses = 0;
        // SAFETY: what is waited for belongs to tiles before this one. All lanes are together in the loop, whose conditions
        // are the same in all of them. While some lanes still read one half of the slots, others write the other one, and they
        // meet before that one is read.
        unsafe {
            loop {
                let known_tiles = known.group as usize * GROUP;
                let wanted = place.tile as usize - known_tiles;
                let mut all = true;
                let mut i = 0;
                while i < SPAN {
                    let index = i * WARP_THREADS + lane;
                    if index < wanted {
                        let w = Cell::new(0);
                        let there = Cell::new(true);
                        let value = M::IDENTITY.map_words(|_| {
                            let tagged = window.0[i][w.get()];
                            w.set(w.get() + 1);
                            there.set(there.get() & ((tagged >> 32) as u32 == self.aggregates.tag));
                            tagged as u32
                        });
                        slots.write(half * WINDOW + index, value);
                        all &= there.get();
                    }
                    i += 1;
                }
                if !vote_all(FULL_MASK, all) {
                    // Another look at all of them is as fast as one at those that are missing; then it is a matter of waiting.
                    if misses > 0 {
                        let mut index = lane;
                        while index < wanted.min(WINDOW) {
                            self.aggregates.wait(first + known_tiles + index, 0);
                            index += WARP_THREADS;
                        }
                    }
                    misses += 1;
                    self.ask(place, known.group, window);
                    continue;
                }
                sync_warp(FULL_MASK);
                // A lane for each group: the aggregate of its tiles, as far as they are before this one.
                let mine = wanted.min(WINDOW).saturating_sub(lane * GROUP).min(GROUP);
                let mut composed = M::IDENTITY;
                if mine > 0 {
                    // No branches within, so that the accesses are under way at once.
                    let values: [M; GROUP] = core::array::from_fn(|i| {
                        let index = lane * GROUP + i.min(mine - 1);
                        slots.read(half * WINDOW + index, M::IDENTITY)
                    });
                    composed = values[0];
                    let mut i = 1;
                    while i < GROUP {
                        if i < mine {
                            composed = composed.then(values[i]);
                        }
                        i += 1;
                    }
                }
                half ^= 1;
                let groups = (group - known.group).min(GROUPS);
                let mut i = 0;
                while i < GROUPS {
                    let next = shuffle_idx(FULL_MASK, composed, i);
                    if i < groups {
                        known.base = next.apply(known.base);
                    }
                    i += 1;
                }
                known.group += groups;
                if known.group == group && (position == 0 || groups < GROUPS) {
                    let within = shuffle_idx(FULL_MASK, composed, groups);
                    return if position == 0 {
                        (known.base, aggregate.apply(known.base))
                    } else {
                        (
                            within.apply(known.base),
                            within.then(aggregate).apply(known.base),
                        )
                    };
                }
                self.ask(place, known.group, window);
            }
        }
    }
}

/// Words of an aggregate, at most.
const MOST_WORDS: usize = 4;

/// Aggregates that were asked for, [`SPAN`] a lane, and may be there or not.
#[derive(Clone, Copy)]
pub struct Window([[u64; MOST_WORDS]; SPAN]);

impl Window {
    /// What nobody asked for.
    pub const EMPTY: Self = Self([[0; MOST_WORDS]; SPAN]);
}

/// What a block knows of a sequence from a tile before.
#[derive(Clone, Copy)]
pub struct Known<C> {
    /// The row or strip.
    pub unit: u32,
    /// A group of its tiles.
    pub group: u32,
    /// What enters the group.
    pub base: C,
}
