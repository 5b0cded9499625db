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

/// What the plans are made for: an H200, and a GPU with less shared memory (compute capability 8.6).
const DEVICES: [DeviceLimits; 2] = [
    DeviceLimits {
        shared_bytes_per_multiprocessor: 228 << 10,
        shared_bytes_per_block: 227 << 10,
        shared_bytes_reserved: 1 << 10,
    },
    DeviceLimits {
        shared_bytes_per_multiprocessor: 100 << 10,
        shared_bytes_per_block: 99 << 10,
        shared_bytes_reserved: 1 << 10,
    },
];

/// Runs each launch in so many schedules, for one device and another in turn; they have to agree to the last bit.
pub struct Emulator {
    pub schedules: u64,
}

impl Backend for Emulator {
    fn run(&self, call: &Call, offsets: &[usize]) -> Checked<Vec<f32>> {
        let Some(launches) = launches(call)? else {
            return Ok(without_launch(call));
        };
        let mut runs = seeds(call, self.schedules).zip(launches.iter().cycle());
        let (first, launch) = runs.next().ok_or("no schedules")?;
        let (results, _) = emulate(launch, call, offsets, first, None)?;
        for (seed, launch) in runs {
            let (others, _) = emulate(launch, call, offsets, seed, None)?;
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

/// The launches that the plans of a call ask for, one for each device, if they ask for one.
pub fn launches(call: &Call) -> Checked<Option<[plan::Launch; 2]>> {
    let plans = DEVICES.map(|device| {
        plan(
            call.operation,
            f32::KERNEL_NAME,
            size_of::<f32>(),
            call.extents(),
            &device,
        )
    });
    match plans {
        [Some(Plan::Launch(one)), Some(Plan::Launch(other))] => Ok(Some([one, other])),
        [Some(Plan::Nothing | Plan::Copy { .. }), _] => Ok(None),
        _ => Err("there is no plan".into()),
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
        Layout::Columns => {
            let stages = launch.numbers[3] as usize;
            columns::shared_bytes(inputs_count, size_of::<f32>(), stages)
        }
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
        unsafe { run_kernel(kernel, &inputs, output.view(), &launch.numbers) };
    })?;
    Ok((output.to_vec()?, report))
}

/// # Safety
/// As the kernel's.
unsafe fn run_kernel(
    kernel: &Kernel,
    inputs: &[Global<f32>],
    output: Global<f32>,
    numbers: &[u64],
) {
    macro_rules! dispatch {
        ($($name:ident [$($input:ident)*] [$($number:ident)*];)*) => {
            match (kernel.name, inputs, numbers) {
                $((stringify!($name), &[$($input),*], &[$($number),*]) => {
                    // SAFETY: the caller's obligations are the kernel's.
                    unsafe { entry::$name($($input,)* output, $($number),*) }
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
        cumsum_columns_f32 [x] [outer len inner stages];
        reverse_cumsum_columns_f32 [x] [outer len inner stages];
        affine_scan_columns_f32 [a b] [outer len inner stages];
        reverse_affine_scan_columns_f32 [a b] [outer len inner stages];
    }
}
