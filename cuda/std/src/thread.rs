//! Where a thread is in its launch, and the barrier of its block.

use crate::imp;

macro_rules! coordinates {
    ($($(#[$doc:meta])* $name:ident;)*) => { $(
        $(#[$doc])*
        #[inline(always)]
        #[must_use]
        pub fn $name() -> u32 {
            imp::$name()
        }
    )* };
}

coordinates! {
    /// The thread's index in its block, along x.
    thread_idx_x;
    /// The thread's index in its block, along y.
    thread_idx_y;
    /// The thread's index in its block, along z.
    thread_idx_z;
    /// The block's index in the grid, along x.
    block_idx_x;
    /// The block's index in the grid, along y.
    block_idx_y;
    /// The block's index in the grid, along z.
    block_idx_z;
    /// The threads in a block, along x.
    block_dim_x;
    /// The threads in a block, along y.
    block_dim_y;
    /// The threads in a block, along z.
    block_dim_z;
    /// The blocks in the grid, along x.
    grid_dim_x;
    /// The blocks in the grid, along y.
    grid_dim_y;
    /// The blocks in the grid, along z.
    grid_dim_z;
}

/// The thread's index in a one-dimensional launch: 64 bits, since it can pass 2³².
#[inline(always)]
#[must_use]
pub fn index_1d() -> u64 {
    u64::from(block_idx_x()) * u64::from(block_dim_x()) + u64::from(thread_idx_x())
}

/// Waits until every thread of the block is here; what they wrote to shared and global memory before is
/// then seen by all of them.
///
/// # Safety
/// Every thread of the block that has not ended calls it, at the same place in the program: never on one
/// side of a branch that threads of the block take differently.
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub unsafe fn sync_threads() {
    // SAFETY: the caller's obligation is the callee's.
    unsafe { imp::sync_threads() }
}

/// Orders the thread's memory accesses before the call before those after it, as all threads of the GPU
/// see them.
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub fn device_fence() {
    imp::device_fence();
}

/// Ends the kernel with an error that the host sees at its next call (on the host: a panic).
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub fn trap() -> ! {
    imp::trap()
}
