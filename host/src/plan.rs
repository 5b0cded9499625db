//! Plans: which kernel computes an operation, in which launch. A plan is inert data, made and tested without a GPU.
//!
//! The rules:
//! 1. With no elements there is nothing to do.
//! 2. With one step, the result is the last input: a copy.
//! 3. Where the steps of a sequence are neighbours in memory (`inner` = 1), a block scans a row
//!    ([`Layout::Rows`]), with as many warps as the row's length can use.
//! 4. Else a block scans a strip of neighbouring channels ([`Layout::Columns`]).

use crate::operation::Operation;
use crate::shape::Extents;
use ptxscan_kernels::entry::{Kernel, Layout, find};
use ptxscan_kernels::tiling::{WARP_THREADS, columns, rows};

/// What a plan needs to know of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeviceLimits {
    /// Bytes of shared memory of a multiprocessor.
    pub shared_bytes_per_multiprocessor: u32,
    /// Bytes of shared memory that a block can ask for.
    pub shared_bytes_per_block: u32,
    /// Bytes of shared memory that the system takes of each block's share.
    pub shared_bytes_reserved: u32,
}

/// What a device does to compute an operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Plan {
    /// Nothing: there are no elements.
    Nothing,
    /// It copies an input to the output.
    Copy {
        /// The input's index.
        input: usize,
    },
    /// It runs a kernel.
    Launch(Launch),
}

/// A launch of a kernel, but for the addresses of the arrays.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Launch {
    /// The kernel.
    pub kernel: &'static Kernel,
    /// Blocks along x and y.
    pub grid: (u32, u32),
    /// Threads of a block.
    pub block: u32,
    /// Bytes of dynamic shared memory. They can be more than the kernel uses: see
    /// [`rows::blocks_per_multiprocessor`].
    pub shared_bytes: u32,
    /// The most registers that a thread may have.
    pub registers: u32,
    /// The arguments after the arrays, in the order of the kernel's parameters.
    pub extents: Vec<u64>,
}

/// The most blocks along x, and along y, that a launch may have.
const GRID_LIMITS: (u64, u64) = (i32::MAX as u64, u16::MAX as u64);

/// The plan for an operation on elements of the type named `element`, `element_bytes` bytes each; `None` where there is
/// no kernel for them, or where a launch cannot have as many blocks.
#[must_use]
pub fn plan(
    operation: Operation,
    element: &str,
    element_bytes: usize,
    extents: Extents,
    limits: &DeviceLimits,
) -> Option<Plan> {
    let inputs = operation.operator.inputs();
    if extents.elements() == 0 {
        return Some(Plan::Nothing);
    }
    if extents.len == 1 {
        return Some(Plan::Copy { input: inputs - 1 });
    }
    let Extents { outer, len, inner } = extents;
    let layout = if inner == 1 {
        Layout::Rows
    } else {
        Layout::Columns
    };
    let kernel = find(operation.operator, operation.direction, layout, element)?;
    let (blocks, threads, shared, sharing, registers) = match layout {
        Layout::Rows => {
            let warps = rows::warps(inputs, len);
            (
                outer,
                warps * WARP_THREADS,
                rows::shared_bytes(inputs, element_bytes),
                rows::blocks_per_multiprocessor(inputs, warps),
                rows::REGISTERS,
            )
        }
        Layout::Columns => (
            columns::strips(outer, inner),
            columns::THREADS,
            columns::shared_bytes(inputs, element_bytes),
            None,
            columns::REGISTERS,
        ),
    };
    let needed = u32::try_from(shared).ok()?;
    Some(Plan::Launch(Launch {
        kernel,
        grid: grid(blocks as u64)?,
        block: u32::try_from(threads).ok()?,
        shared_bytes: sharing.map_or(needed, |blocks| share(needed, blocks as u32, limits)),
        registers,
        extents: match layout {
            Layout::Rows => vec![outer as u64, len as u64],
            Layout::Columns => vec![outer as u64, len as u64, inner as u64],
        },
    }))
}

/// A grid of `blocks` blocks or a few more, along x and then y.
fn grid(blocks: u64) -> Option<(u32, u32)> {
    let y = blocks.div_ceil(GRID_LIMITS.0);
    let x = blocks.div_ceil(y.max(1));
    (y <= GRID_LIMITS.1).then_some((x as u32, y as u32))
}

/// The shared memory of a block if `blocks` of them, which need `needed` bytes each, share a multiprocessor's.
fn share(needed: u32, blocks: u32, limits: &DeviceLimits) -> u32 {
    (limits.shared_bytes_per_multiprocessor / blocks)
        .saturating_sub(limits.shared_bytes_reserved)
        .min(limits.shared_bytes_per_block)
        .max(needed)
}
