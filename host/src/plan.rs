//! Plans: which kernel computes an operation, in which launch. A plan is inert data, made and tested without a GPU.
//!
//! The rules:
//! 1. With no elements there is nothing to do.
//! 2. With one step, the result is the last input: a copy.
//! 3. Where the steps of a sequence are neighbours in memory (`inner` = 1), a block scans a row
//!    ([`Layout::Rows`]), with as many warps as the row's length can use.
//! 4. Else a block scans a strip of neighbouring channels ([`Layout::Columns`]), with as many tiles on their way as its shared
//!    memory can hold, up to [`columns::MAX_STAGES`].

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
    pub numbers: Vec<u64>,
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
    let rows = |outer, len| {
        let warps = rows::warps(inputs, len);
        let needed = rows::shared_bytes(inputs, element_bytes) as u32;
        let shared = rows::blocks_per_multiprocessor(inputs, warps)
            .map_or(needed, |blocks| share(needed, blocks as u32, limits));
        Some(Launch {
            kernel,
            grid: grid(outer as u64)?,
            block: (warps * WARP_THREADS) as u32,
            shared_bytes: shared,
            registers: rows::REGISTERS,
            numbers: vec![outer as u64, len as u64],
        })
    };
    let columns = |outer, len, inner| {
        let shared = |stages| columns::shared_bytes(inputs, element_bytes, stages) as u32;
        let stages = (2..=columns::MAX_STAGES)
            .rev()
            .find(|&stages| shared(stages) <= limits.shared_bytes_per_block)?;
        Some(Launch {
            kernel,
            grid: grid(columns::strips(outer, inner) as u64)?,
            block: columns::THREADS as u32,
            shared_bytes: shared(stages),
            registers: columns::REGISTERS,
            numbers: [outer, len, inner, stages]
                .map(|number| number as u64)
                .into(),
        })
    };
    match layout {
        Layout::Rows => rows(outer, len),
        Layout::Columns => columns(outer, len, inner),
    }
    .map(Plan::Launch)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::element::Element;
    use crate::operation::{Direction, Operator};
    use ptxscan_kernels::entry::KERNELS;

    const KIB: u32 = 1024;
    /// What devices say of themselves.
    const DEVICES: [(&str, DeviceLimits); 3] = [
        ("A100, 8.0", limits(164)),
        ("GeForce RTX 30 and 40, 8.6 and 8.9", limits(100)),
        ("H200, 9.0", limits(228)),
    ];
    /// Registers of a multiprocessor.
    const REGISTERS: u32 = 65536;

    const fn limits(shared_kib: u32) -> DeviceLimits {
        DeviceLimits {
            shared_bytes_per_multiprocessor: shared_kib * KIB,
            shared_bytes_per_block: (shared_kib - 1) * KIB,
            shared_bytes_reserved: KIB,
        }
    }

    fn operations() -> impl Iterator<Item = Operation> {
        let directions = [Direction::Forward, Direction::Reverse];
        [Operator::Cumsum, Operator::AffineScan]
            .into_iter()
            .flat_map(move |operator| {
                directions.map(|direction| Operation::new(operator, direction))
            })
    }

    fn plan_f32(operation: Operation, extents: Extents, limits: &DeviceLimits) -> Option<Plan> {
        plan(
            operation,
            f32::KERNEL_NAME,
            size_of::<f32>(),
            extents,
            limits,
        )
    }

    fn launch(operation: Operation, extents: Extents, limits: &DeviceLimits) -> Launch {
        match plan_f32(operation, extents, limits) {
            Some(Plan::Launch(launch)) => launch,
            other => panic!("{operation}, {extents:?}: {other:?}"),
        }
    }

    const fn extents(outer: usize, len: usize, inner: usize) -> Extents {
        Extents { outer, len, inner }
    }

    #[test]
    fn no_elements_are_nothing_to_do() {
        for operation in operations() {
            for extents in [
                extents(0, 5, 1),
                extents(3, 0, 4),
                extents(3, 1, 0),
                extents(0, 0, 0),
            ] {
                assert_eq!(
                    plan_f32(operation, extents, &DEVICES[0].1),
                    Some(Plan::Nothing)
                );
            }
        }
    }

    #[test]
    fn one_step_is_a_copy_of_the_last_input() {
        for operation in operations() {
            let input = operation.operator.inputs() - 1;
            for extents in [extents(1, 1, 1), extents(7, 1, 1), extents(7, 1, 5)] {
                assert_eq!(
                    plan_f32(operation, extents, &DEVICES[0].1),
                    Some(Plan::Copy { input })
                );
            }
        }
    }

    #[test]
    fn neighbouring_steps_are_rows_and_others_columns() {
        let mut reached = Vec::new();
        for operation in operations() {
            for (extents, layout) in [
                (extents(3, 5, 1), Layout::Rows),
                (extents(3, 5, 2), Layout::Columns),
            ] {
                let launch = launch(operation, extents, &DEVICES[0].1);
                let kernel = launch.kernel;
                assert_eq!(kernel.layout, layout);
                assert_eq!(
                    (kernel.operator, kernel.direction),
                    (operation.operator, operation.direction)
                );
                let passed = operation.operator.inputs() + 1 + launch.numbers.len();
                assert_eq!(kernel.parameters.len(), passed, "{}", kernel.name);
                let named = kernel
                    .parameters
                    .iter()
                    .rev()
                    .zip(launch.numbers.iter().rev());
                for (&name, &number) in named {
                    let expected = match name {
                        "rows" | "outer" => extents.outer,
                        "len" => extents.len,
                        "inner" => extents.inner,
                        "stages" => columns::MAX_STAGES,
                        _ => panic!("{} gets a number for `{name}`", kernel.name),
                    };
                    assert_eq!(number, expected as u64, "{} of {}", name, kernel.name);
                }
                reached.push(kernel.name);
            }
        }
        for kernel in KERNELS {
            assert!(
                reached.contains(&kernel.name),
                "no plan launches {}",
                kernel.name
            );
        }
        assert_eq!(reached.len(), KERNELS.len());
    }

    #[test]
    fn every_launch_is_admissible() {
        let lengths = [2, 31, 33, 511, 513, 1 << 13, (1 << 13) + 1, 1 << 20];
        let inner = [1, 2, 31, 33, 257, 4096];
        for (device, limits) in &DEVICES {
            for operation in operations() {
                for extents in lengths
                    .into_iter()
                    .flat_map(|len| inner.map(|inner| extents(5, len, inner)))
                {
                    let launch = launch(operation, extents, limits);
                    let context = format!("{device}: {operation}, {extents:?}: {launch:?}");
                    assert!(
                        launch.block.is_multiple_of(WARP_THREADS as u32),
                        "{context}"
                    );
                    assert!((1..=1024).contains(&launch.block), "{context}");
                    assert!(launch.registers * launch.block <= REGISTERS, "{context}");
                    assert!(
                        launch.shared_bytes <= limits.shared_bytes_per_block,
                        "{context}"
                    );
                    let inputs = operation.operator.inputs();
                    let (needed, units) = match launch.kernel.layout {
                        Layout::Rows => {
                            // As many warps as have something to do, and no more.
                            let warps = launch.block as usize / WARP_THREADS;
                            assert!(
                                (warps - 1) * rows::warp_items(inputs) < extents.len,
                                "{context}"
                            );
                            (rows::shared_bytes(inputs, 4), extents.outer)
                        }
                        Layout::Columns => {
                            assert_eq!(launch.block as usize, columns::THREADS, "{context}");
                            let strips = columns::strips(extents.outer, extents.inner);
                            let stages = launch.numbers[3] as usize;
                            assert!((2..=columns::MAX_STAGES).contains(&stages), "{context}");
                            (columns::shared_bytes(inputs, 4, stages), strips)
                        }
                    };
                    assert!(launch.shared_bytes as usize >= needed, "{context}");
                    assert_eq!(launch.grid, (units as u32, 1), "{context}");
                }
            }
        }
    }

    #[test]
    fn shared_memory_is_shared_out_where_that_is_asked_for() {
        for (device, limits) in &DEVICES {
            for len in [2, 600, 5000, 1 << 20] {
                let launch = launch(Operation::CUMSUM, extents(5, len, 1), limits);
                let warps = launch.block as usize / WARP_THREADS;
                let blocks =
                    rows::blocks_per_multiprocessor(1, warps).expect("sums share it out") as u32;
                let taken = launch.shared_bytes + limits.shared_bytes_reserved;
                let fit = limits.shared_bytes_per_multiprocessor / taken;
                assert_eq!(fit, blocks, "{device}, {len} steps: {launch:?}");
            }
        }
    }

    #[test]
    fn a_grid_goes_on_along_y() {
        let (x, y) = GRID_LIMITS;
        for blocks in [
            1,
            2,
            65535,
            65536,
            x - 1,
            x,
            x + 1,
            2 * x,
            2 * x + 1,
            1 << 40,
            x * y,
        ] {
            let (gx, gy) = grid(blocks).expect("a grid has as many blocks");
            let (gx, gy) = (u64::from(gx), u64::from(gy));
            assert!(gx <= x && gy <= y, "{blocks} blocks: {gx} × {gy}");
            assert!(
                (blocks..blocks + gy).contains(&(gx * gy)),
                "{blocks} blocks: {gx} × {gy}"
            );
        }
        assert_eq!(grid(x), Some((x as u32, 1)));
        assert_eq!(grid(x * y + 1), None);
        // Two steps each of more rows than a grid has blocks.
        let extents = extents((x * y) as usize + 1, 2, 1);
        assert_eq!(plan_f32(Operation::CUMSUM, extents, &DEVICES[0].1), None);
    }

    #[test]
    fn a_type_without_kernels_has_no_plan() {
        for operation in operations() {
            for inner in [1, 2] {
                assert_eq!(
                    plan(operation, "u128", 16, extents(2, 3, inner), &DEVICES[0].1),
                    None
                );
            }
        }
    }
}
