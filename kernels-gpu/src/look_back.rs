//! How the blocks that scan the tiles of a row learn what enters theirs: decoupled look-back, after Merrill and
//! Garland, "Single-pass Parallel Prefix Scan with Decoupled Look-back", NVIDIA NVR-2016-002 (2016).
//!
//! A block publishes the aggregate of its tile before it needs what enters the tile, and so never keeps others waiting
//! that it waits for. What enters a tile is found by a warp, from what entered the last tile of the row that the block had and all
//! aggregates [published](crate::sharing) since: always in the order of [`chain`](crate::chain), so that a result does not depend on
//! what was there when it looked.

use crate::{
    monoid::Action,
    sharing::{Asked, Place, Published, Sharing},
    slots::Slots,
    tiling::{
        WARP_THREADS,
        look_back::{SPAN, WINDOW},
        rows::GROUP,
    },
};
use cuda_std::{
    Global, thread,
    warp::{FULL_MASK, shuffle_idx, sync_warp, vote_all},
};

/// What the blocks of a scan of split rows share.
pub struct LookBack<M: Action> {
    /// Tickets and flags.
    pub sharing: Sharing,
    aggregates: Published<M>,
}

impl<M: Action> LookBack<M> {
    /// That of a scan of `rows` rows, of so many `tiles` each.
    ///
    /// # Safety
    /// As [`Sharing::new`], with as many words as [`tiling::look_back::words`](crate::tiling::look_back::words) says.
    #[inline(always)]
    #[must_use]
    pub unsafe fn new(scratch: Global<u64>, rows: usize, tiles: usize) -> Self {
        // SAFETY: says the caller.
        unsafe {
            let (sharing, first) = Sharing::new(scratch, rows, tiles);
            let (aggregates, _) = Published::new(&sharing, first, 1);
            Self {
                sharing,
                aggregates,
            }
        }
    }

    /// Publishes the aggregate of a tile, unless no other needs it.
    ///
    /// # Safety
    /// As [`new`](Self::new); the tile is the block's, and one thread does it.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn publish(&self, place: Place, aggregate: M) {
        if place.tile as usize + 1 < self.sharing.tiles {
            let index = self.sharing.index(place.unit, place.tile);
            // SAFETY: the tile is one of the scan's, and this block's.
            unsafe { self.aggregates.publish(index, 0, aggregate) };
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
        let first = self.sharing.index(place.unit, 0);
        let mut i = 0;
        while i < SPAN {
            // Beyond the tiles before, that of the tile itself: no branch keeps the accesses from being under way at once.
            let ahead = group * GROUP as u32 + (i * WARP_THREADS) as u32 + lane;
            let tile = ahead.min(place.tile) as usize;
            // SAFETY: the tile is one of the row's.
            window.0[i] = unsafe { self.aggregates.ask(first + tile, 0) };
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
        let first = self.sharing.index(place.unit, 0);
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
                        let (value, there) = self.aggregates.answer(&window.0[i], M::IDENTITY);
                        slots.write(half * WINDOW + index, value);
                        all &= there;
                    }
                    i += 1;
                }
                if !vote_all(FULL_MASK, all) {
                    // Another look at all of them is as fast as one at those that are missing; then it is a matter of waiting.
                    if misses > 0 {
                        let mut index = lane;
                        while index < wanted.min(WINDOW) {
                            let _ = self.aggregates.wait(first + known_tiles + index, 0);
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

/// Aggregates that were asked for, [`SPAN`] a lane, and may be there or not.
#[derive(Clone, Copy)]
pub struct Window([Asked; SPAN]);

impl Window {
    /// What nobody asked for.
    pub const EMPTY: Self = Self([Asked::NOTHING; SPAN]);
}

/// What a block knows of a sequence from a tile before.
#[derive(Clone, Copy)]
pub struct Known<C> {
    /// The row.
    pub unit: u32,
    /// A group of its tiles.
    pub group: u32,
    /// What enters the group.
    pub base: C,
}
