//! The scan over the warps of a block.

use crate::{monoid::Operator, tiling::WARP_THREADS, warp};
use cuda_std::{
    Scalar, Shared, thread,
    warp::{FULL_MASK, vote_all},
};

/// The block's number in its grid. A grid can have more blocks than its x dimension counts; then y counts on, and the
/// last numbers can be beyond what there is to do.
#[inline(always)]
#[must_use]
pub fn index() -> usize {
    thread::block_idx_y() as usize * thread::grid_dim_x() as usize + thread::block_idx_x() as usize
}

/// Aggregates in shared memory: an array for each element that they are made of.
pub struct Aggregates<T> {
    /// Where the first array begins.
    pub slots: Shared<T>,
    /// Aggregates in each array.
    pub count: usize,
}

impl<T: Scalar> Aggregates<T> {
    /// Writes aggregate `index`.
    ///
    /// # Safety
    /// `index < self.count`, and no other thread accesses it on this side of a barrier.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn write<M, const I: usize>(&self, index: usize, aggregate: M)
    where
        M: Operator<I, Element = T>,
    {
        let elements = aggregate.elements();
        let mut k = 0;
        while k < I {
            // SAFETY: index < count, so the slot lies in array k.
            unsafe { self.slots.write(k * self.count + index, elements[k]) };
            k += 1;
        }
    }

    /// Reads aggregate `index`.
    ///
    /// # Safety
    /// `index < self.count`, and it was written before the last barrier.
    #[inline(always)]
    #[must_use]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn read<M, const I: usize>(&self, index: usize) -> M
    where
        M: Operator<I, Element = T>,
    {
        // SAFETY: index < count, so the slot lies in array k.
        let [aggregate] = M::gather(|k| [unsafe { self.slots.read(k * self.count + index) }]);
        aggregate
    }
}

/// What a warp learns of the others.
pub struct Exchanged<M> {
    /// The composition of the aggregates of the warps before this one.
    pub before: M,
    /// The composition of the aggregates of all warps.
    pub total: M,
}

/// Scans the aggregates of the warps, in warp order. The result is valid in every thread.
///
/// # Safety
/// All threads of the block call it together, each warp with the aggregate of its own in all lanes.
/// `aggregates` has a slot for each warp, and since they were last read a barrier was passed.
#[inline(always)]
pub unsafe fn exchange<M, const I: usize>(
    aggregates: &Aggregates<M::Element>,
    aggregate: M,
) -> Exchanged<M>
where
    M: Operator<I>,
{
    let lane = thread::thread_idx_x() % WARP_THREADS as u32;
    let warp = thread::thread_idx_x() / WARP_THREADS as u32;
    // SAFETY: there is a slot for each warp, and one lane writes it. The barrier puts the reads after the
    // writes. All lanes of each warp take part in the shuffles.
    unsafe {
        if lane == 0 {
            aggregates.write(warp as usize, aggregate);
        }
        thread::sync_threads();
        let one = if lane < thread::block_dim_x() / WARP_THREADS as u32 {
            aggregates.read(lane as usize)
        } else {
            M::IDENTITY
        };
        let inclusive = warp::inclusive_scan(lane, one);
        Exchanged {
            before: warp::below(warp, inclusive),
            total: warp::total(inclusive),
        }
    }
}

/// Whether `predicate` holds in every thread of the block. The result is valid in every thread.
///
/// # Safety
/// All threads of the block call it together. `votes` has a word for each warp, and since they were last read a
/// barrier was passed.
#[inline(always)]
pub unsafe fn all(votes: Shared<u32>, predicate: bool) -> bool {
    let lane = thread::thread_idx_x() % WARP_THREADS as u32;
    let warp = thread::thread_idx_x() / WARP_THREADS as u32;
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
