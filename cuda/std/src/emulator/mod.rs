//! Runs kernels on the host, and checks each of their accesses.
//!
//! A [`Launch`] runs a kernel, which is an ordinary function on the host, once for each thread of its grid.
//! [`Memory`] holds the buffers that the kernel works on. What goes wrong is a [`Fault`] that names the
//! kernel, the thread, the line, and for a race both lines.
//!
//! ```
//! use cuda_std::emulator::{FaultKind, Launch, Memory};
//! use cuda_std::{Global, shared, thread};
//!
//! /// Reverses each block's elements of `x`.
//! ///
//! /// # Safety
//! /// `x` has an element for each thread, and the blocks have shared memory for theirs.
//! unsafe fn reverse(x: Global<u32>) {
//!     let tile = shared::dynamic_shared_mem::<u32>();
//!     let (i, n) = (thread::thread_idx_x() as usize, thread::block_dim_x() as usize);
//!     // SAFETY: the caller's obligation; the barrier is between the writes and the reads of the tile.
//!     unsafe {
//!         let x = x.add(thread::block_idx_x() as usize * n);
//!         tile.write(i, x.read(i));
//!         thread::sync_threads();
//!         x.write(i, tile.read(n - 1 - i));
//!     }
//! }
//!
//! let memory = Memory::new();
//! let x = memory.copy_of(&[1, 2, 3, 4, 5, 6]);
//! let launch = Launch::new(2, 3).shared_bytes(3 * 4);
//! // SAFETY: 2 · 3 elements, and 3 · 4 bytes of shared memory.
//! let kernel = || unsafe { reverse(x.view()) };
//! let report = launch.run("reverse", kernel)?;
//! assert_eq!(x.to_vec()?, [3, 2, 1, 6, 5, 4]);
//!
//! // Is the barrier needed?
//! let barrier = report.barriers[0];
//! let fault = launch.without_barrier(barrier.site).run("reverse", kernel).unwrap_err();
//! assert!(matches!(fault.kind, FaultKind::Race { .. } | FaultKind::Unwritten { .. }));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What is modelled
//! - **Threads.** Each is a coroutine, and all run on the OS thread that calls [`Launch::run`]. They switch at
//!   barriers, warp functions, atomics and waits for asynchronous copies, and now and then at any other
//!   access. A warp is not in lockstep: its lanes meet only in the functions that say so. The seed chooses the
//!   schedule; one seed is one schedule.
//! - **Blocks.** Some are resident at a time ([`Launch::resident_blocks`]); the next starts when one of them
//!   ends ([`Launch::block_order`]). A thread that polls an atomic waits until it is written. If all
//!   threads wait, that is a [`FaultKind::Deadlock`]: so is a block's wait for one that cannot start before
//!   it ends.
//! - **Values.** Each access takes effect at once, in the order of the schedule.
//! - **Order.** Accesses of two threads, one of them a write and not both atomic, must be ordered by
//!   "happens before", or they are a [`FaultKind::Race`], whether or not the schedule shows its effect. What
//!   orders: `sync_threads` its block, `sync_warp` the lanes of its mask, a releasing store those who acquire
//!   what it stored (also by way of additions to it), fences the relaxed atomics after and before
//!   them, and one launch the next. Shuffles, votes and relaxed atomics order nothing.
//! - **Memory.** Bounds, the alignment of accesses to several elements, and whether something was written: for
//!   each element of global memory and each byte of shared memory. A view keeps to its allocation.
//! - **Asynchronous copies.** Until its thread has waited for it, nobody may access a copy's target nor
//!   change its source.
//!
//! # What is not
//! - Values that only a weak memory model allows, such as stores that others see out of order; where they
//!   could matter, the accesses are ordered by nothing, which is found as a race, or are relaxed atomics,
//!   whose values a kernel must not rely on.
//! - A loop that makes no access and calls no device function: the step limit does not see it.
//! - A thread that ends counts as having reached the later barriers of its block, also for the order of its
//!   accesses.
//! - Blocks of two and three dimensions, and grids of three; time; registers, caches, banks and coalescing.
//! - A rewrite of an asynchronous copy's source with the same bytes, by a thread that is ordered with the
//!   copy's, is not found.
//!
//! # Seeds
//! A test should run with many seeds. The message of a fault has its seed, and the environment variable
//! `CUDA_STD_EMULATOR_SEED` gives all launches the same.

mod access;
mod clock;
pub(crate) mod device;
mod fault;
mod launch;
mod machine;
mod memory;
mod shadow;
mod thread;

pub use fault::{
    Access, AccessKind, Call, Fault, FaultKind, GpuThread, Place, SEED_VARIABLE, Site,
};
pub use launch::{Barrier, BlockOrder, Launch, Report};
pub use memory::{Buffer, Memory, Unwritten};
