//! The scan over the warps of a block.

use crate::{monoid::Action, slots::Slots, tiling::WARP_THREADS, warp};
use cuda_std::{
    Shared,
    hint::opaque_word,
    thread,
    warp::{FULL_MASK, vote_all},
};

/// The block's number in its grid. A grid can have more blocks than its x dimension counts; then y counts on, and the
/// last numbers can be beyond what there is to do.
#[inline(always)]
#[must_use]
pub fn index() -> usize {
    thread::block_idx_y() as usize * thread::grid_dim_x() as usize + thread::block_idx_x() as usize
}

/// The thread's lane and warp, from which nothing is reckoned before it is used: addresses for each would take registers all the time.
#[inline(always)]
fn lane_and_warp() -> (u32, u32) {
    let thread = opaque_word(thread::thread_idx_x());
    (thread % WARP_THREADS as u32, thread / WARP_THREADS as u32)
}

/// The barrier at which warps of different roles meet.
///
/// # Safety
/// Every warp of the block calls it equally often.
#[inline(always)]
pub unsafe fn meet() {
    // SAFETY: says the caller. To the hardware it is the same barrier wherever a warp comes to it.
    unsafe { thread::sync_threads() };
}

/// What a warp learns of the others.
pub struct Exchanged<M> {
    /// The composition of the aggregates of the warps before this one.
    pub before: M,
    /// The composition of the aggregates of all warps.
    pub total: M,
}

/// Scans the aggregates of some warps, in warp order: the block's, which begin with number `first`, and those before them, which were
/// exchanged before. The result is valid in every thread.
///
/// # Safety
/// All threads of the block call it together, each warp with the aggregate of its own in all lanes.
/// `aggregates` has a slot for each warp, and since those of the block's were last read a barrier was passed.
#[inline(always)]
pub unsafe fn exchange<M: Action>(aggregates: &Slots<M>, first: u32, aggregate: M) -> Exchanged<M> {
    let (lane, warp) = lane_and_warp();
    let warp = first + warp;
    // SAFETY: there is a slot for each warp, and one lane writes it. The barrier puts the reads after the
    // writes. All lanes of each warp take part in the shuffles.
    unsafe {
        if lane == 0 {
            aggregates.write(warp as usize, aggregate);
        }
        thread::sync_threads();
        let warps = first + thread::block_dim_x() / WARP_THREADS as u32;
        let inclusive = scan_warps(aggregates, warps);
        Exchanged {
            before: warp::below(warp, inclusive),
            total: warp::total(inclusive),
        }
    }
}

/// The composition of the aggregates of warps 0 to `lane`, in each lane.
///
/// # Safety
/// All lanes of the warp call it together. `aggregates` has a slot for each of so many `warps`, which were written before the
/// last barrier.
#[inline(always)]
pub unsafe fn scan_warps<M: Action>(aggregates: &Slots<M>, warps: u32) -> M {
    let (lane, _) = lane_and_warp();
    // SAFETY: says the caller.
    unsafe {
        let one = if lane < warps {
            aggregates.read(lane as usize, M::IDENTITY)
        } else {
            M::IDENTITY
        };
        warp::inclusive_scan(lane, one)
    }
}

/// Whether `predicate` holds in every thread of the block. The result is valid in every thread.
///
/// # Safety
/// All threads of the block call it together. `votes` has a word for each warp, and since they were last read a
/// barrier was passed.
#[inline(always)]
pub unsafe fn all(votes: Shared<u32>, predicate: bool) -> bool {
    let (lane, warp) = lane_and_warp();
    // SAFETY: there is a word for each warp, and one lane writes it. The barrier puts the reads after the
    // writes. All lanes of each warp take part in the votes.
    unsafe {
        let all = vote_all(FULL_MASK, predicate);
        if lane == 0 {
            votes.write(warp as usize, u32::from(all));
        }
        thread::sync_threads();
        let one =
            lane >= thread::block_dim_x() / WARP_THREADS as u32 || votes.read(lane as usize) != 0;
        vote_all(FULL_MASK, one)
    }
}
