//! The scan over the lanes of a warp.

use crate::monoid::Monoid;
use cuda_std::warp::{FULL_MASK, Shuffle, WARP_SIZE, shuffle_idx, shuffle_up};

/// The composition of the values of lanes 0 to this one, in lane order.
///
/// In log₂ 32 steps, after Hillis and Steele, "Data parallel algorithms", CACM 29 (1986).
///
/// # Safety
/// All 32 lanes of the warp call it together; `lane` is the caller's.
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub unsafe fn inclusive_scan<M: Monoid + Shuffle>(lane: u32, value: M) -> M {
    let mut inclusive = value;
    let mut distance = 1;
    while distance < WARP_SIZE {
        // SAFETY: all lanes call this together, says the caller.
        let before = unsafe { shuffle_up(FULL_MASK, inclusive, distance) };
        if lane >= distance {
            inclusive = before.then(inclusive);
        }
        distance *= 2;
    }
    inclusive
}

/// The composition of the values of the lanes below `lane`, given each lane's inclusive one.
///
/// # Safety
/// All 32 lanes of the warp call it together, with the same `lane` or each with its own.
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub unsafe fn below<M: Monoid + Shuffle>(lane: u32, inclusive: M) -> M {
    // SAFETY: all lanes call this together, says the caller; the lane read from is in the warp.
    let before = unsafe { shuffle_idx(FULL_MASK, inclusive, lane.saturating_sub(1)) };
    if lane == 0 { M::IDENTITY } else { before }
}

/// The composition of the values of all lanes, given each lane's inclusive one.
///
/// # Safety
/// All 32 lanes of the warp call it together.
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub unsafe fn total<M: Monoid + Shuffle>(inclusive: M) -> M {
    // SAFETY: all lanes call this together, says the caller.
    unsafe { shuffle_idx(FULL_MASK, inclusive, WARP_SIZE - 1) }
}
