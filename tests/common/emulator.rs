//! The kernels, run natively by the emulator of `cuda_std`.

use super::checks::same_bits;
use super::expected::kernel_depth;
use super::options::{self, Tested};
use super::{Backend, Call, Checked};
use cuda_std::emulator::{Launch, Memory, Report, Site};
use cuda_std::{BF16, Complex32, F16, Global, Scalar};
use ptxscan::half::{bf16, f16};
use ptxscan::num_complex::Complex;
use ptxscan::plan::{self, DeviceLimits, Packed, Plan, PlanBuilder};
use ptxscan::{Element, Extents, Operator};
use ptxscan_kernels::entry::call as call_kernel;
use std::any::Any;

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
    let builder = PlanBuilder::new(call.operation, "f32", call.extents());
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
    let arrays = Arrays {
        inputs: call.inputs.iter().map(|input| input.to_vec()).collect(),
        initial: &[],
        states: 0,
        mask: &[],
        boundaries: &[],
    };
    let elements = call.extents().elements();
    let (out, _, reports) = emulate_arrays::<f32>(plan, arrays, elements, offsets, seed, removed)?;
    Ok((out, reports))
}

/// A type of tensor elements, and the type that kernels have for it.
pub trait Emulated: Element {
    type Kernel: Scalar;
    fn to_kernel(self) -> Self::Kernel;
    fn from_kernel(value: Self::Kernel) -> Self;
}

macro_rules! emulated {
    ($($type:ty => $kernel:ty: $to:expr, $from:expr;)*) => { $(
        impl Emulated for $type {
            type Kernel = $kernel;

            fn to_kernel(self) -> $kernel {
                ($to)(self)
            }

            fn from_kernel(value: $kernel) -> Self {
                ($from)(value)
            }
        }
    )* };
}
emulated! {
    f32 => f32: |x| x, |x| x;
    f64 => f64: |x| x, |x| x;
    i32 => i32: |x| x, |x| x;
    i64 => i64: |x| x, |x| x;
    f16 => F16: |x: f16| F16(x.to_bits()), |x: F16| f16::from_bits(x.0);
    bf16 => BF16: |x: bf16| BF16(x.to_bits()), |x: BF16| bf16::from_bits(x.0);
    Complex<f32> => Complex32: |z: Complex<f32>| Complex32 { re: z.re, im: z.im }, |z: Complex32| Complex::new(z.re, z.im);
}

/// What a scan gets.
pub struct Arrays<'a, T: Element> {
    pub inputs: Vec<Vec<T>>,
    pub initial: &'a [T::State],
    /// How many final states it gives.
    pub states: usize,
    pub mask: &'a [bool],
    pub boundaries: &'a [usize],
}

/// The output, the final states, and what the launches report.
pub type Emulation<T> = (Vec<T>, Vec<<T as Element>::State>, Vec<Report>);

/// As [`emulate`], with all that a scan can get; gives the final states too.
pub fn emulate_arrays<T: Emulated>(
    plan: &Plan,
    arrays: Arrays<T>,
    elements: usize,
    offsets: &[usize],
    seed: u64,
    removed: Option<Site>,
) -> Checked<Emulation<T>>
where
    T::State: Emulated,
{
    let Plan::Scan {
        launches,
        scratch_words,
    } = plan
    else {
        return Err(format!("{plan:?} has no launches").into());
    };
    let offset = |k: usize| offsets.get(k).copied().unwrap_or(0);
    let memory = Memory::new();
    let to_kernel = |values: &[T]| -> Vec<_> { values.iter().map(|x| x.to_kernel()).collect() };
    let inputs: Vec<Global<_>> = (0..)
        .zip(&arrays.inputs)
        .map(|(k, input)| memory.copy_of_at(offset(k), &to_kernel(input)).view())
        .collect();
    let output = memory.uninit_at::<T::Kernel>(offset(inputs.len()), elements);
    let initial: Vec<_> = arrays.initial.iter().map(|x| x.to_kernel()).collect();
    let initial = memory.copy_of(&initial).view();
    let last = memory.uninit::<<T::State as Emulated>::Kernel>(arrays.states);
    let mask: Vec<u8> = arrays.mask.iter().map(|&reset| u8::from(reset)).collect();
    let mask = memory.copy_of(&mask).view();
    let boundaries: Vec<u64> = arrays.boundaries.iter().map(|&at| at as u64).collect();
    let boundaries = memory.copy_of(&boundaries).view();
    let scratch = memory.copy_of(&vec![0_u64; *scratch_words]).view();
    let (out, last_view) = (output.view(), last.view());
    let others: [&dyn Any; 6] = [&out, &initial, &last_view, &mask, &boundaries, &scratch];
    let views: Vec<&dyn Any> = inputs
        .iter()
        .map(|view| view as &dyn Any)
        .chain(others)
        .collect();

    let mut reports = Vec::new();
    // A second run finds the scratch memory as the first one left it.
    let runs = if *scratch_words > 0 && removed.is_none() {
        2
    } else {
        1
    };
    for launch in launches.iter().cycle().take(runs * launches.len()) {
        let (x, y) = launch.grid;
        // Some seeds have blocks beyond the last one that has something to do, as a grid of two dimensions can.
        let blocks = x * y + (seed % 3) as u32;
        // Not what the launch asks for, but what the kernel says it uses: so one byte more is found.
        let mut emulated = Launch::new(blocks, launch.block)
            .shared_bytes(launch.shared_bytes_used as usize)
            .seed(seed);
        if launch.is_cooperative {
            emulated = emulated.resident_blocks(blocks);
        }
        if let Some(site) = removed {
            emulated = emulated.without_barrier(site);
        }
        reports.push(emulated.run(launch.kernel.name, || {
            // SAFETY: the emulator checks every access.
            unsafe { call_kernel(launch.kernel, &views, &launch.numbers) };
        })?);
    }
    let out = output.to_vec()?.into_iter().map(T::from_kernel).collect();
    let last = if arrays.states > 0 {
        last.to_vec()?
            .into_iter()
            .map(T::State::from_kernel)
            .collect()
    } else {
        Vec::new()
    };
    Ok((out, last, reports))
}

/// Any combination of options on elements of a type gives what the reference gives, with whole or with split sequences.
pub fn any_options<T: Tested<State: Tested + Emulated> + Emulated>(split: bool) -> Checked {
    const CASES: u32 = 16;
    options::scans::<T>(CASES, |scan| {
        let options = plan::Options::INITIAL
            .only_if(scan.initial.is_some())
            .and(plan::Options::EXCLUSIVE.only_if(scan.exclusive))
            .and(plan::Options::FINAL);
        let packed = scan.boundaries.map(Packed::between);
        let builder = PlanBuilder::new(scan.operation, T::KERNEL_NAME, scan.extents)
            .options(options)
            .masked(scan.mask.is_some())
            .packed(packed);
        let device = &DEVICES[(scan.seed % 2) as usize];
        let strategy = builder.strategies()[usize::from(split)];
        let plan = builder.strategy(Some(strategy)).build(device);
        let Some(plan) = plan.or_else(|| builder.build(device)) else {
            return Err("there is no plan".into());
        };
        if plan == Plan::Nothing {
            return Ok(None);
        }
        let arrays = Arrays {
            inputs: scan.inputs.to_vec(),
            initial: scan.initial.unwrap_or_default(),
            states: scan.states,
            mask: scan.mask.unwrap_or_default(),
            boundaries: scan.boundaries.unwrap_or_default(),
        };
        let elements = scan.extents.elements();
        let (out, last, _) = emulate_arrays::<T>(&plan, arrays, elements, &[], scan.seed, None)?;
        Ok(Some((out, last)))
    })
}
