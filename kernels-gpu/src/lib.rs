//! ptxscan's GPU kernels, compiled to PTX for a GPU, and natively for the host and for the emulator.
//!
//! | module | what |
//! |---|---|
//! | [`entry`] | the kernels by name, and the order of their arguments |
//! | [`split_rows`], [`split_columns`] | the strategies for few long sequences, whose tiles all blocks share; in columns also for gradients |
//! | [`short_rows`] | the strategy for short rows, of which a warp takes many at once |
//! | [`narrow`] | the strategy for few channels, of which a block takes several tiles at once |
//! | [`lanes`] | the strategy for many short sequences, which a lane takes through all steps |
//! | [`rows`], [`columns`] | the strategies for whole sequences, a block each; also for gradients |
//! | [`look_back`] | how blocks that share a row learn what enters their tiles |
//! | [`sharing`] | tickets for tiles, and what blocks publish |
//! | [`tile`], [`strip`] | a thread's part of a tile: guarded, vectorised loads and stores |
//! | [`arrays`] | the arrays of a scan, and its options |
//! | [`chain`] | how tiles are joined |
//! | [`block`], [`warp`], [`slots`] | the scans over warps and over lanes, and values in shared memory |
//! | [`monoid`] | what is scanned: steps, aggregates, and their action on a carry |
//! | [`direction`], [`layout`] | where in memory a step lies |
//! | [`tiling`] | tuning constants and the geometry of launches, shared with the host |
//!
//! No module calls one above it in this list (but for the constants of [`tiling`]).
#![no_std]
#![cfg_attr(target_arch = "nvptx64", feature(abi_ptx))]

pub mod arrays;
pub mod block;
pub mod chain;
pub mod columns;
pub mod direction;
pub mod entry;
pub mod lanes;
pub mod layout;
pub mod look_back;
pub mod monoid;
pub mod narrow;
pub mod rows;
pub mod sharing;
pub mod short_rows;
pub mod slots;
pub mod split_columns;
pub mod split_rows;
pub mod strip;
pub mod tile;
pub mod tiling;
pub mod warp;

#[cfg(test)]
extern crate std;
