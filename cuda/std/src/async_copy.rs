//! Asynchronous copies from global to shared memory (`cp.async`; compute capability 8.0 and later).
//!
//! A thread starts copies with [`Shared::copy_async`](crate::Shared::copy_async), closes a group of them with
//! [`commit`], and waits for groups with [`wait`]. Other threads see the copied data after a barrier that
//! the copying thread reaches after its wait.

use crate::imp;

/// Closes the group of the copies that the thread started since the last call; it may be empty.
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub fn commit() {
    imp::copy_commit();
}

/// Waits until at most the newest `PENDING` groups of the thread are still under way.
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub fn wait<const PENDING: u32>() {
    imp::copy_wait::<PENDING>();
}
