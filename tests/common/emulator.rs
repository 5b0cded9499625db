//! The kernels, run natively by the emulator of `cuda_std`.

use super::checks::same_bits;
use super::expected::kernel_depth;
use super::{Backend, Call, Checked};
use cuda_std::Global;
use cuda_std::emulator::{Launch, Memory, Report, Site};
use ptxscan::plan::{DeviceLimits, ElementType, Plan, PlanBuilder};
use ptxscan::{Extents, Operator};
use ptxscan_kernels::entry::{self, Kernel};

/// What the plans are made for: an H200 with few of its multiprocessors, and a GPU with less shared memory (compute
/// capability 8.6).
const DEVICES: [DeviceLimits; 2] = [
    DeviceLimits {
        multiprocessors: 2,
        shared_bytes_per_multiprocessor: 228 << 10,
        shared_bytes_per_block: 227 << 10,
        shared_bytes_reserved: 1 << 10,
    },
    DeviceLimits {
        multiprocessors: 2,
        shared_bytes_per_multiprocessor: 100 << 10,
        shared_bytes_per_block: 99 << 10,
        shared_bytes_reserved: 1 << 10,
    },
];

/// Runs each plan in so many schedules, for one device and strategy and another in turn; they have to agree to the last bit.
pub struct Emulator {
    pub schedules: u64,
}

impl Backend for Emulator {
    fn run(&self, call: &Call, offsets: &[usize]) -> Checked<Vec<f32>> {
        let plans = plans(call)?;
        if plans.is_empty() {
            return Ok(without_launch(call));
        }
        let mut runs = seeds(call, self.schedules).zip(plans.iter().cycle());
        let (first, plan) = runs.next().ok_or("no schedules")?;
        let (results, _) = emulate(plan, call, offsets, first, None)?;
        for (seed, plan) in runs {
            let (others, _) = emulate(plan, call, offsets, seed, None)?;
            same_bits(&others, &results, || {
                format!(
                    "the run of seed {seed} and that of {first} differ: {:?}",
                    kernels(plan)
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
pub fn seeds(call: &Call, count: u64) -> impl Iterator<Item = u64> + use<> {
    let first = 1000 * call.extents().elements() as u64;
    first..first + count
}

/// The plans of a call that ask for launches: with each strategy for one device, then for another, as far as they can carry
/// them out. Calls begin with one device or the other.
pub fn plans(call: &Call) -> Checked<Vec<Plan>> {
    let element = ElementType {
        name: "f32",
        bytes: size_of::<f32>(),
        carry_bytes: size_of::<f32>(),
    };
    let builder = PlanBuilder::new(call.operation, element, call.extents());
    let mut plans = Vec::new();
    let first = call.extents().elements();
    for device in (0..DEVICES.len()).map(|k| DEVICES[(first + k) % DEVICES.len()]) {
        for strategy in builder.strategies() {
            match builder.strategy(Some(strategy)).build(&device) {
                Some(plan @ Plan::Scan { .. }) => plans.push(plan),
                Some(_) => return Ok(Vec::new()),
                None => {}
            }
        }
    }
    if plans.is_empty() {
        return Err("there is no plan".into());
    }
    Ok(plans)
}

/// The kernels that a plan launches.
pub fn kernels(plan: &Plan) -> Vec<&'static str> {
    match plan {
        Plan::Scan { launches, .. } => launches.iter().map(|launch| launch.kernel.name).collect(),
        _ => Vec::new(),
    }
}

/// The results where there is at most one step.
fn without_launch(call: &Call) -> Vec<f32> {
    call.inputs
        .last()
        .map_or(Vec::new(), |input| input.to_vec())
}

/// Carries out a plan in the schedule of `seed`, with the barrier at `removed` left out; gives the output, all of which is
/// written, and what the launches report.
pub fn emulate(
    plan: &Plan,
    call: &Call,
    offsets: &[usize],
    seed: u64,
    removed: Option<Site>,
) -> Checked<(Vec<f32>, Vec<Report>)> {
    let offset = |k: usize| offsets.get(k).copied().unwrap_or(0);
    let memory = Memory::new();
    let inputs: Vec<_> = (0..)
        .zip(call.inputs)
        .map(|(k, input)| memory.copy_of_at(offset(k), input).view())
        .collect();
    let output = memory.uninit_at::<f32>(offset(inputs.len()), call.extents().elements());
    // No states are asked for.
    let state = memory.uninit::<f32>(0);
    let Plan::Scan {
        launches,
        scratch_words,
    } = plan
    else {
        return Err(format!("{plan:?} has no launches").into());
    };
    let scratch = memory.copy_of(&vec![0_u64; *scratch_words]);

    let mut reports = Vec::new();
    // A second run finds the scratch memory as the first one left it.
    let runs = if *scratch_words > 0 && removed.is_none() {
        2
    } else {
        1
    };
    for launch in launches.iter().cycle().take(runs * launches.len()) {
        let kernel = launch.kernel;
        let (x, y) = launch.grid;
        // Some seeds have blocks beyond the last one that has something to do, as a grid of two dimensions can.
        let blocks = x * y + (seed % 3) as u32;
        // Not what the launch asks for, but what the kernel says it uses: so one byte more is found.
        let mut emulated = Launch::new(blocks, launch.block)
            .shared_bytes(launch.shared_bytes_used as usize)
            .seed(seed);
        if let Some(site) = removed {
            emulated = emulated.without_barrier(site);
        }
        let arrays = Arrays {
            output: output.view(),
            initial: state.view(),
            last: state.view(),
            scratch: scratch.view(),
        };
        reports.push(emulated.run(kernel.name, || {
            // SAFETY: the emulator checks every access.
            unsafe { run_kernel(kernel, &inputs, arrays, &launch.numbers) };
        })?);
    }
    Ok((output.to_vec()?, reports))
}

/// The arrays of a kernel, but for its inputs.
#[derive(Clone, Copy)]
struct Arrays {
    output: Global<f32>,
    initial: Global<f32>,
    last: Global<f32>,
    scratch: Global<u64>,
}

/// # Safety
/// As the kernel's.
unsafe fn run_kernel(kernel: &Kernel, inputs: &[Global<f32>], arrays: Arrays, numbers: &[u64]) {
    let Arrays {
        output,
        initial,
        last,
        scratch,
    } = arrays;
    macro_rules! dispatch {
        ($($name:ident [$($input:ident)*] [$($number:ident)*];)*) => {
            match (kernel.name, inputs, numbers) {
                $((stringify!($name), &[$($input),*], &[$($number),*]) => {
                    // SAFETY: the caller's obligations are the kernel's.
                    unsafe { entry::$name($($input,)* output, initial, last, scratch, $($number),*) }
                })*
                _ => panic!("{} is not a kernel of these parameters", kernel.name),
            }
        };
    }
    dispatch! {
        cumsum_rows_f32 [x] [rows len flags options];
        reverse_cumsum_rows_f32 [x] [rows len flags options];
        affine_scan_rows_f32 [a b] [rows len flags options];
        reverse_affine_scan_rows_f32 [a b] [rows len flags options];
        cumsum_columns_f32 [x] [outer len inner stages flags options];
        reverse_cumsum_columns_f32 [x] [outer len inner stages flags options];
        affine_scan_columns_f32 [a b] [outer len inner stages flags options];
        reverse_affine_scan_columns_f32 [a b] [outer len inner stages flags options];
        cumsum_split_rows_f32 [x] [rows len options];
        reverse_cumsum_split_rows_f32 [x] [rows len options];
        affine_scan_split_rows_f32 [a b] [rows len options];
        reverse_affine_scan_split_rows_f32 [a b] [rows len options];
        cumsum_split_columns_f32 [x] [outer len inner options];
        reverse_cumsum_split_columns_f32 [x] [outer len inner options];
        affine_scan_split_columns_f32 [a b] [outer len inner options];
        reverse_affine_scan_split_columns_f32 [a b] [outer len inner options];
    }
}
