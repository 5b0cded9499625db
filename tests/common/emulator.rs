//! The kernels, run natively by the emulator of `cuda_std`.

use super::cases::Case;
use super::checks::same_bits;
use super::data::{self, Data};
use super::expected::kernel_depth;
use super::gradient::{self, AsGradient};
use super::options::{self, Gradients, Scan, Scanned, Tested};
use super::{Backend, Call, Checked};
use cuda_std::emulator::{Launch, Memory, Report, Site};
use cuda_std::{BF16, Complex32, F16, Global, Scalar};
use ptxscan::half::{bf16, f16};
use ptxscan::num_complex::Complex;
use ptxscan::plan::{self, DeviceLimits, Packed, Plan, PlanBuilder, Strategy};
use ptxscan::{Direction, Element, Extents, Operation, Operator};
use ptxscan_kernels::entry::call as call_kernel;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::any::Any;

/// What the plans are made for: an H200 with few of its multiprocessors, and a GPU with less shared memory (compute
/// capability 8.6).
const DEVICES: [DeviceLimits; 2] = [
    DeviceLimits {
        multiprocessors: 3,
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

/// Runs a call in so many schedules, for one device and strategy and another in turn; they have to agree to the last bit.
pub struct Emulator {
    pub schedules: u64,
    /// Whether scans are carried out as gradients.
    pub gradient: bool,
}

impl Backend for Emulator {
    fn run(&self, call: &Call, offsets: &[usize]) -> Checked<Vec<f32>> {
        let plans = plans(call, self.gradient)?;
        if plans.is_empty() {
            return Ok(without_launch(call));
        }
        let mut runs = seeds(call, self.schedules).zip(plans.iter().cycle());
        let (first, plan) = runs.next().ok_or("no schedules")?;
        let (results, _) = emulate(plan, call, offsets, first, None)?;
        // On a GPU there is one NaN; here it depends on which of two operands comes first.
        let one_nan = |values: &[f32]| -> Vec<f32> {
            let one = |&x: &f32| if x.is_nan() { f32::NAN } else { x };
            values.iter().map(one).collect()
        };
        for (seed, plan) in runs {
            let (others, _) = emulate(plan, call, offsets, seed, None)?;
            same_bits(&one_nan(&others), &one_nan(&results), || {
                format!(
                    "the run of seed {seed} and that of {first} differ: {:?}",
                    kernels(plan)
                )
            })?;
        }
        Ok(results)
    }

    fn depth(&self, operator: Operator, extents: Extents) -> usize {
        // A gradient adds dh in the end.
        kernel_depth(operator, extents) + usize::from(self.gradient)
    }
}

/// Other seeds for each call, the same ones in each run.
pub fn seeds(call: &Call, count: u64) -> impl Iterator<Item = u64> + use<> {
    let first = 1000 * call.extents().elements() as u64;
    first..first + count
}

/// The plans of a call that ask for launches: with each strategy for one device, then for another, as far as they can carry
/// them out. Calls begin with one device or the other, and go on from the first strategy to one or another.
pub fn plans(call: &Call, gradient: bool) -> Checked<Vec<Plan>> {
    let operation = if gradient {
        Operation::new(Operator::AffineScan, call.operation.direction.opposite())
    } else {
        call.operation
    };
    let builder = PlanBuilder::new(operation, "f32", call.extents()).gradient(gradient);
    let mut plans = Vec::new();
    let first = call.extents().elements();
    for device in (0..DEVICES.len()).map(|k| DEVICES[(first + k) % DEVICES.len()]) {
        let (whole, others) = (&builder.strategies()[..1], &builder.strategies()[1..]);
        let (before, after) = others.split_at(first / DEVICES.len() % others.len());
        for &strategy in whole.iter().chain(after).chain(before) {
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

/// Whether a plan is of a gradient.
fn is_gradient(plan: &Plan) -> bool {
    matches!(plan, Plan::Scan { launches, .. } if launches[0].kernel.is_gradient)
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
    let elements = call.extents().elements();
    let run = |inputs: &[&[f32]], offsets: &[usize]| {
        let arrays = Arrays::new(inputs.iter().map(|input| input.to_vec()).collect());
        emulate_arrays::<f32>(plan, arrays, elements, offsets, seed, removed)
    };
    if is_gradient(plan) {
        let gradient = AsGradient::new(call)?;
        let offset = |k: usize| offsets.get(k).copied().unwrap_or(0);
        let [a, dh, out] = [0, call.inputs.len() - 1, call.inputs.len()].map(offset);
        let (outputs, _, reports) = run(&gradient.inputs(), &[a, out, dh, dh, out])?;
        let outputs = outputs
            .try_into()
            .map_err(|_| "a gradient has two outputs")?;
        return Ok((gradient.result(outputs)?, reports));
    }
    let (outputs, _, reports) = run(call.inputs, offsets)?;
    Ok((outputs.concat(), reports))
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

/// What a scan or a gradient gets.
pub struct Arrays<'a, T: Element> {
    pub inputs: Vec<Vec<T>>,
    pub initial: &'a [T::State],
    pub d_final: &'a [T::State],
    /// How many states it gives.
    pub states: usize,
    pub mask: &'a [bool],
    pub boundaries: &'a [usize],
}

impl<T: Element> Arrays<'_, T> {
    /// The inputs alone.
    fn new(inputs: Vec<Vec<T>>) -> Self {
        Self {
            inputs,
            initial: &[],
            d_final: &[],
            states: 0,
            mask: &[],
            boundaries: &[],
        }
    }
}

/// The outputs, the states after the sequences, and what the launches report.
pub type Emulation<T> = (Vec<Vec<T>>, Vec<<T as Element>::State>, Vec<Report>);

/// As [`emulate`], with all that a scan can get; gives the states too.
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
    let outputs: Vec<_> = (inputs.len()..)
        .take(if is_gradient(plan) { 2 } else { 1 })
        .map(|k| memory.uninit_at::<T::Kernel>(offset(k), elements))
        .collect();
    let [initial, d_final] = [arrays.initial, arrays.d_final].map(|states| {
        let states: Vec<_> = states.iter().map(|x| x.to_kernel()).collect();
        memory.copy_of(&states).view()
    });
    let last = memory.uninit::<<T::State as Emulated>::Kernel>(arrays.states);
    let mask: Vec<u8> = arrays.mask.iter().map(|&reset| u8::from(reset)).collect();
    let mask = memory.copy_of(&mask).view();
    let boundaries: Vec<u64> = arrays.boundaries.iter().map(|&at| at as u64).collect();
    let boundaries = memory.copy_of(&boundaries).view();
    let scratch = memory.copy_of(&vec![0_u64; *scratch_words]).view();
    let out: Vec<Global<_>> = outputs.iter().map(|output| output.view()).collect();
    let last_view = last.view();
    let others: [&dyn Any; 6] = [&initial, &d_final, &last_view, &mask, &boundaries, &scratch];
    let views: Vec<&dyn Any> = inputs
        .iter()
        .chain(&out)
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
        if let Some(site) = removed {
            emulated = emulated.without_barrier(site);
        }
        reports.push(emulated.run(launch.kernel.name, || {
            // SAFETY: the emulator checks every access.
            unsafe { call_kernel(launch.kernel, &views, &launch.numbers) };
        })?);
    }
    let from_kernel = |values: Vec<T::Kernel>| values.into_iter().map(T::from_kernel).collect();
    let out = outputs
        .iter()
        .map(|output| Ok(from_kernel(output.to_vec()?)))
        .collect::<Checked<_>>()?;
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

/// Any combination of options on elements of a type gives what the reference gives, with such a strategy.
pub fn any_options<T: Tested<State: Tested + Emulated> + Emulated>(
    strategy: fn(Extents) -> Strategy,
) -> Checked {
    const CASES: u32 = 16;
    options::scans::<T>(CASES, false, |scan| emulate_scan(scan, strategy))
}

/// As [`any_options`], of inputs of any layouts.
pub fn any_layouts<T: Tested<State: Tested + Emulated> + Emulated>() -> Checked {
    const CASES: u32 = 24;
    options::scans::<T>(CASES, true, |scan| emulate_scan(scan, plan::whole))
}

/// The plan with a strategy, if there is one, else what the rules say.
fn planned(builder: &PlanBuilder, strategy: Strategy, device: &DeviceLimits) -> Checked<Plan> {
    let plan = builder.strategy(Some(strategy)).build(device);
    // What the smaller device cannot split, the larger one can.
    let plan = plan.or_else(|| builder.strategy(Some(strategy)).build(&DEVICES[0]));
    let plan = plan.or_else(|| builder.build(device));
    plan.ok_or_else(|| "there is no plan".into())
}

fn emulate_scan<T: Tested<State: Tested + Emulated> + Emulated>(
    scan: Scan<'_, T>,
    strategy: fn(Extents) -> Strategy,
) -> Checked<Option<Scanned<T>>> {
    let options = plan::Options::INITIAL
        .only_if(scan.initial.is_some())
        .and(plan::Options::EXCLUSIVE.only_if(scan.exclusive))
        .and(plan::Options::FINAL);
    let packed = scan.boundaries.map(Packed::between);
    let builder = PlanBuilder::new(scan.operation, T::KERNEL_NAME, scan.extents)
        .options(options)
        .masked(scan.mask.is_some())
        .layouts(scan.layouts)
        .packed(packed);
    let device = &DEVICES[(scan.seed % 2) as usize];
    let plan = planned(&builder, strategy(scan.extents), device)?;
    if plan == Plan::Nothing {
        return Ok(None);
    }
    let arrays = Arrays {
        inputs: scan.inputs.to_vec(),
        initial: scan.initial.unwrap_or_default(),
        d_final: &[],
        states: scan.states,
        mask: scan.mask.unwrap_or_default(),
        boundaries: scan.boundaries.unwrap_or_default(),
    };
    let elements = scan.extents.elements();
    let (out, last, _) = emulate_arrays::<T>(&plan, arrays, elements, &[], scan.seed, None)?;
    Ok(Some((out.concat(), last)))
}

/// Scans that start afresh at a mask, and their gradients, are those of the serial recurrence also where composing gates overflows.
pub fn overflowing_with_resets(gradient: bool) -> Checked {
    const SHAPES: [[usize; 3]; 4] = [[5, 200, 1], [2, 3000, 1], [2, 90, 7], [1, 300, 3]];
    let affine_scans = [Operation::AFFINE_SCAN, Operation::REVERSE_AFFINE_SCAN];
    for (operation, shape) in affine_scans
        .into_iter()
        .flat_map(|o| SHAPES.map(|s| (o, s)))
    {
        let case = Case::new(&shape, 1);
        let data = Data::new(data::overflowing, operation, &case);
        let inputs = data.inputs();
        let call = case.call(operation, &inputs);
        let extents = call.extents();
        let rng = &mut StdRng::seed_from_u64(extents.len as u64);
        let rate = [0.3, 0.05][extents.outer % 2];
        let mask: Vec<bool> = (0..extents.outer * extents.len)
            .map(|_| rng.random_bool(rate))
            .collect();

        // As a gradient, the recurrence goes on from dh and the carry; it ends with a step of the mask.
        let as_gradient = AsGradient::new(&call)?;
        let mut want = vec![vec![f32::NAN; extents.elements()]; if gradient { 2 } else { 1 }];
        for steps in gradient::sequences(&call) {
            let mut carry = None;
            for (t, &i) in steps.iter().enumerate() {
                let restarts = mask[i / extents.inner];
                if gradient {
                    let [a, h, dh] = as_gradient.inputs();
                    let g = dh[i] + carry.unwrap_or(-0.0);
                    let next = steps.get(t + 1).filter(|_| !restarts);
                    (want[0][i], want[1][i]) = (next.map_or(0.0, |&next| g * h[next]), g);
                    carry = next.map(|_| a[i] * g);
                } else {
                    let (a, b) = (inputs[0][i], inputs[1][i]);
                    let state = carry.filter(|_| !restarts).map_or(b, |h: f32| a * h + b);
                    want[0][i] = state;
                    carry = Some(state);
                }
            }
        }

        let planned = if gradient {
            Operation::new(Operator::AffineScan, as_gradient.direction)
        } else {
            operation
        };
        let plan = PlanBuilder::new(planned, "f32", extents)
            .gradient(gradient)
            .masked(true)
            .build(&DEVICES[0])
            .ok_or("there is no plan")?;
        let inputs: &[&[f32]] = if gradient {
            &as_gradient.inputs()
        } else {
            &inputs
        };
        let arrays = Arrays {
            mask: &mask,
            ..Arrays::new(inputs.iter().map(|input| input.to_vec()).collect())
        };
        let (got, _, _) = emulate_arrays::<f32>(&plan, arrays, extents.elements(), &[], 1, None)?;
        for (k, (got, want)) in got.iter().zip(&want).enumerate() {
            let is_wrong =
                |(got, want): (&f32, &f32)| got != want && !(got.is_nan() && want.is_nan());
            if let Some(i) = got.iter().zip(want).position(is_wrong) {
                let (got, want) = (got[i], want[i]);
                return Err(format!(
                    "{planned}, {case}: element {i} of output {k} is {got:e}, expected {want:e}"
                )
                .into());
            }
        }
    }
    Ok(())
}

/// A zero keeps its sign, with each strategy: where a state of 0 meets a gate of −1, it is the serial recurrence's.
pub fn signed_zeros() -> Checked {
    const LEN: usize = 24;
    for (operation, inner) in [Operation::AFFINE_SCAN, Operation::REVERSE_AFFINE_SCAN]
        .into_iter()
        .flat_map(|operation| [1, 2].map(|inner| (operation, inner)))
    {
        let extents = Extents {
            outer: 1,
            len: LEN,
            inner,
        };
        let elements = extents.elements();
        let mut a = vec![1.0_f32; elements];
        let first = match operation.direction {
            Direction::Forward => 0,
            Direction::Reverse => LEN - 1,
        };
        a[first * inner..][..inner].fill(-1.0);
        let inputs = vec![a, vec![-0.0; elements]];
        let builder = PlanBuilder::new(operation, "f32", extents).options(plan::Options::INITIAL);
        for &strategy in builder.strategies() {
            let plan = builder.strategy(Some(strategy)).build(&DEVICES[0]);
            let plan = plan.ok_or("there is no plan")?;
            let arrays = Arrays {
                initial: &[0.0; 2][..inner],
                ..Arrays::new(inputs.clone())
            };
            let (out, _, _) = emulate_arrays::<f32>(&plan, arrays, elements, &[], 0, None)?;
            same_bits(&out.concat(), &vec![-0.0; elements], || {
                format!("{operation} of {extents:?}, {strategy:?}")
            })?;
        }
    }
    Ok(())
}

/// The gradient with any combination of options, of elements of a type, is what the reference gives, with such a strategy.
pub fn any_gradient<T: Tested<State: Tested + Emulated> + Emulated>(
    strategy: fn(Extents) -> Strategy,
) -> Checked {
    const CASES: u32 = 24;
    options::gradients::<T>(CASES, false, |gradient| {
        emulate_gradient(gradient, strategy)
    })
}

/// As [`any_gradient`], of inputs of any layouts.
pub fn any_layouts_gradient<T: Tested<State: Tested + Emulated> + Emulated>() -> Checked {
    const CASES: u32 = 16;
    options::gradients::<T>(CASES, true, |gradient| {
        emulate_gradient(gradient, plan::whole)
    })
}

fn emulate_gradient<T: Tested<State: Tested + Emulated> + Emulated>(
    gradient: options::Gradient<'_, T>,
    strategy: fn(Extents) -> Strategy,
) -> Checked<Option<Gradients<T>>> {
    let options = plan::Options::INITIAL
        .only_if(gradient.initial.is_some())
        .and(plan::Options::D_FINAL.only_if(gradient.d_final.is_some()))
        .and(plan::Options::FINAL.only_if(gradient.has_d_initial));
    let operation = Operation::new(Operator::AffineScan, gradient.direction);
    let device = &DEVICES[(gradient.seed % 2) as usize];
    let builder = PlanBuilder::new(operation, T::KERNEL_NAME, gradient.extents)
        .gradient(true)
        .options(options)
        .masked(gradient.mask.is_some())
        .layouts(gradient.layouts.map(<[_; 3]>::as_slice))
        .packed(gradient.boundaries.map(Packed::between));
    let plan = planned(&builder, strategy(gradient.extents), device)?;
    if plan == Plan::Nothing {
        return Ok(None);
    }
    let arrays = Arrays {
        inputs: gradient.inputs.map(<[T]>::to_vec).to_vec(),
        initial: gradient.initial.unwrap_or_default(),
        d_final: gradient.d_final.unwrap_or_default(),
        states: if gradient.has_d_initial {
            gradient.states
        } else {
            0
        },
        mask: gradient.mask.unwrap_or_default(),
        boundaries: gradient.boundaries.unwrap_or_default(),
    };
    let elements = gradient.extents.elements();
    let (out, d_initial, _) =
        emulate_arrays::<T>(&plan, arrays, elements, &[], gradient.seed, None)?;
    let out = out.try_into().map_err(|_| "a gradient has two outputs")?;
    Ok(Some((out, d_initial)))
}
