//! The kernels, run natively by the emulator of `cuda_std`.

use super::checks::same_bits;
use super::expected::kernel_depth;
use super::{Backend, Call, Checked};
use cuda_std::Global;
use cuda_std::emulator::{Launch, Memory, Report, Site};
use ptxscan::plan::{self, DeviceLimits, Plan, plan};
use ptxscan::{Element, Extents, Operator};
use ptxscan_kernels::entry::{self, Kernel, Layout};
use ptxscan_kernels::tiling::{columns, rows};

/// What the plans are made for.
const H200: DeviceLimits = DeviceLimits {
    shared_bytes_per_multiprocessor: 228 << 10,
    shared_bytes_per_block: 227 << 10,
    shared_bytes_reserved: 1 << 10,
};

/// Runs each launch in so many schedules, which have to agree to the last bit.
pub struct Emulator {
    pub schedules: u64,
}

impl Backend for Emulator {
    fn run(&self, call: &Call, offsets: &[usize]) -> Checked<Vec<f32>> {
        let Some(launch) = launch(call)? else {
            return Ok(without_launch(call));
        };
        let mut seeds = seeds(call, self.schedules);
        let first = seeds.next().ok_or("no schedules")?;
        let (results, _) = emulate(&launch, call, offsets, first, None)?;
        for seed in seeds {
            let (others, _) = emulate(&launch, call, offsets, seed, None)?;
            same_bits(&others, &results, || {
                format!(
                    "{}: the schedules of seeds {seed} and {first} differ",
                    launch.kernel.name
                )
            })?;
        }
        Ok(results)
    }

    fn depth(&self, operator: Operator, extents: Extents) -> usize {
        kernel_depth(operator, extents)
    }
}

/// Other seeds for each call, the same ones in each run.
pub fn seeds(call: &Call, count: u64) -> impl Iterator<Item = u64> {
    let first = 1000 * call.extents().elements() as u64;
    first..first + count
}

/// The launch that the plan of a call asks for, if it asks for one.
pub fn launch(call: &Call) -> Checked<Option<plan::Launch>> {
    match plan(
        call.operation,
        f32::KERNEL_NAME,
        size_of::<f32>(),
        call.extents(),
        &H200,
    ) {
        Some(Plan::Launch(launch)) => Ok(Some(launch)),
        Some(Plan::Nothing | Plan::Copy { .. }) => Ok(None),
        None => Err("there is no plan".into()),
    }
}

/// The results where there is at most one step.
fn without_launch(call: &Call) -> Vec<f32> {
    call.inputs
        .last()
        .map_or(Vec::new(), |input| input.to_vec())
}

/// Runs a launch in the schedule of `seed`, with the barrier at `removed` left out; gives the output, all of which is
/// written.
pub fn emulate(
    launch: &plan::Launch,
    call: &Call,
    offsets: &[usize],
    seed: u64,
    removed: Option<Site>,
) -> Checked<(Vec<f32>, Report)> {
    let offset = |k: usize| offsets.get(k).copied().unwrap_or(0);
    let memory = Memory::new();
    let inputs: Vec<_> = (0..)
        .zip(call.inputs)
        .map(|(k, input)| memory.copy_of_at(offset(k), input).view())
        .collect();
    let output = memory.uninit_at::<f32>(offset(inputs.len()), call.extents().elements());

    let kernel = launch.kernel;
    let inputs_count = kernel.operator.inputs();
    // Not what the launch asks for, but what the kernel says it uses: so one byte more is found.
    let shared_bytes = match kernel.layout {
        Layout::Rows => rows::shared_bytes(inputs_count, size_of::<f32>()),
        Layout::Columns => columns::shared_bytes(inputs_count, size_of::<f32>()),
    };
    let (x, y) = launch.grid;
    // Some seeds have blocks beyond the last one that has something to do, as a grid of two dimensions can.
    let blocks = x * y + (seed % 3) as u32;
    let mut emulated = Launch::new(blocks, launch.block)
        .shared_bytes(shared_bytes)
        .seed(seed);
    if let Some(site) = removed {
        emulated = emulated.without_barrier(site);
    }
    let report = emulated.run(kernel.name, || {
        // SAFETY: the emulator checks every access.
        unsafe { run_kernel(kernel, &inputs, output.view(), &launch.extents) };
    })?;
    Ok((output.to_vec()?, report))
}

/// # Safety
/// As the kernel's.
unsafe fn run_kernel(
    kernel: &Kernel,
    inputs: &[Global<f32>],
    output: Global<f32>,
    extents: &[u64],
) {
    macro_rules! dispatch {
        ($($name:ident [$($input:ident)*] [$($extent:ident)*];)*) => {
            match (kernel.name, inputs, extents) {
                $((stringify!($name), &[$($input),*], &[$($extent),*]) => {
                    // SAFETY: the caller's obligations are the kernel's.
                    unsafe { entry::$name($($input,)* output, $($extent),*) }
                })*
                _ => panic!("{} is not a kernel of these parameters", kernel.name),
            }
        };
    }
    dispatch! {
        cumsum_rows_f32 [x] [rows len];
        reverse_cumsum_rows_f32 [x] [rows len];
        affine_scan_rows_f32 [a b] [rows len];
        reverse_affine_scan_rows_f32 [a b] [rows len];
        cumsum_columns_f32 [x] [outer len inner];
        reverse_cumsum_columns_f32 [x] [outer len inner];
        affine_scan_columns_f32 [a b] [outer len inner];
        reverse_affine_scan_columns_f32 [a b] [outer len inner];
    }
}
