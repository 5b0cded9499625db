//! The kernels under the emulator: the suite in many schedules, and what happens where a barrier is missing.
//!
//! `CUDA_STD_EMULATOR_SEED` runs one schedule only: that of a failure's message.

mod common;

use common::cases::{self, Case};
use common::checks::suite;
use common::data::{self, Data, Sequence};
use common::emulator::{
    Emulator, any_gradient, any_layouts, any_layouts_gradient, any_options, emulate, kernels,
    overflowing_with_resets, plans, seeds, signed_zeros,
};
use common::expected::{Accuracy, compare};
use common::{Backend, Checked, Trial, checks, lanes, narrow};
use cuda_std::emulator::Site;
use libtest_mimic::Arguments;
use ptxscan::half::{bf16, f16};
use ptxscan::num_complex::Complex;
use ptxscan::plan::{split, whole};
use ptxscan::{Element, Operation};
use ptxscan_kernels::entry::{KERNELS, Kernel};
use ptxscan_kernels::tiling::columns;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The whole list, in few schedules.
fn few_schedules() -> Result<&'static dyn Backend, String> {
    Ok(&Emulator {
        schedules: 2,
        gradient: false,
    })
}

/// The small cases, in many.
fn many_schedules() -> Result<&'static dyn Backend, String> {
    Ok(&Emulator {
        schedules: 12,
        gradient: false,
    })
}

/// The whole list by gradients, with two of their plans, as [`few_schedules`].
fn gradients() -> Result<&'static dyn Backend, String> {
    Ok(&Emulator {
        schedules: 2,
        gradient: true,
    })
}

/// As [`many_schedules`], by gradients.
fn gradients_in_many_schedules() -> Result<&'static dyn Backend, String> {
    Ok(&Emulator {
        schedules: 12,
        gradient: true,
    })
}

fn main() {
    let mut trials = suite("emulator", few_schedules);
    trials.extend(checks::bitwise("emulator", few_schedules));
    trials.extend(checks::all_on(
        "many_schedules",
        many_schedules,
        cases::small,
    ));
    // Sums are gradients with gates of 1, and so nothing new.
    let by_gradients = [
        suite("emulator::gradient", gradients),
        checks::bitwise("emulator::gradient", gradients),
        checks::all_on(
            "many_schedules::gradient",
            gradients_in_many_schedules,
            cases::small,
        ),
    ];
    trials.extend(
        by_gradients
            .into_iter()
            .flatten()
            .filter(|trial| !trial.name().contains("cumsum")),
    );
    trials.extend(checks::integers_on(
        "emulator::gradient::groups",
        gradients,
        |operator| {
            let tiles = columns::GROUP + 1;
            vec![
                Case::new(&[tiles * cases::row_tile(operator) + 9], 0),
                Case::new(&[tiles * columns::TILE + 9, 3], 0),
            ]
        },
    ));
    trials.push(Trial::test("barriers::all_are_reached", all_are_reached));
    // The other types have the same barriers.
    let kernels = KERNELS
        .iter()
        .filter(|kernel| kernel.element == "f32" && !kernel.is_masked);
    trials.extend(kernels.map(|kernel| {
        Trial::test(format!("barriers::{}", kernel.name), || {
            all_are_needed(kernel)
        })
    }));
    trials.extend(typed());
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

/// Every type of elements, with any options.
fn typed() -> Vec<Trial> {
    macro_rules! trials {
        ($($type:ty)*) => { vec![$(
            Trial::test(format!("options::whole::{}", <$type>::NAME), || any_options::<$type>(whole)),
            Trial::test(format!("options::split::{}", <$type>::NAME), || any_options::<$type>(split)),
            Trial::test(format!("options::lanes::{}", <$type>::NAME), || any_options::<$type>(lanes)),
            Trial::test(format!("options::narrow::{}", <$type>::NAME), || any_options::<$type>(narrow)),
            Trial::test(format!("options::strided::{}", <$type>::NAME), any_layouts::<$type>),
        )*] };
    }
    macro_rules! gradients {
        ($($type:ty)*) => { [$(
            Trial::test(format!("options::whole::gradient::{}", <$type>::NAME), || any_gradient::<$type>(whole)),
            Trial::test(format!("options::split::gradient::{}", <$type>::NAME), || any_gradient::<$type>(split)),
            Trial::test(
                format!("options::strided::gradient::{}", <$type>::NAME),
                any_layouts_gradient::<$type>,
            ),
        )*] };
    }
    let mut trials = trials!(f32 f64 f16 bf16 i32 i64 Complex<f32>);
    trials.extend(gradients!(f32 f64 f16 bf16 Complex<f32>));
    trials.push(Trial::test("options::overflowing_with_resets", || {
        overflowing_with_resets(false)
    }));
    trials.push(Trial::test("options::signed_zeros", signed_zeros));
    trials.push(Trial::test(
        "options::gradient::overflowing_with_resets",
        || overflowing_with_resets(true),
    ));
    trials
}

/// Runs of a kernel that go everywhere in it, until `run` fails; it gets a run of the kernel with a barrier removed or
/// not, which gives the barriers that were passed.
fn try_runs(
    kernel: &Kernel,
    mut run: impl FnMut(&dyn Fn(Option<Site>) -> Checked<BTreeSet<Site>>) -> Checked,
) -> Checked {
    const DATA: [Sequence; 2] = [data::integers, data::poisoned];
    const SCHEDULES: u64 = 4;
    // What a gradient is carried out for is a scan the other way.
    let direction = if kernel.is_gradient {
        kernel.direction.opposite()
    } else {
        kernel.direction
    };
    let operation = Operation::new(kernel.operator, direction);
    for case in cases::small(kernel.operator) {
        for data in DATA.map(|sequence| Data::new(sequence, operation, &case)) {
            let inputs = data.inputs();
            let call = case.call(operation, &inputs);
            // The plans that begin with this kernel.
            let mut plans = plans(&call, kernel.is_gradient)?;
            plans.retain(|plan| kernels(plan).first() == Some(&kernel.name));
            if plans.is_empty() {
                continue;
            }
            for (seed, plan) in seeds(&call, SCHEDULES).zip(plans.iter().cycle()) {
                run(&|removed| {
                    let (got, reports) = emulate(plan, &call, &[], seed, removed)?;
                    compare(&call, &got, Accuracy::Exact, &data.named(&case))?;
                    // Those of the kernel itself, not of what scans again.
                    let barriers = reports[0].barriers.iter();
                    Ok(barriers.map(|barrier| barrier.site).collect())
                })?;
            }
        }
    }
    Ok(())
}

fn barriers(kernel: &Kernel) -> Checked<BTreeSet<Site>> {
    let mut sites = BTreeSet::new();
    try_runs(kernel, |run| {
        sites.extend(run(None)?);
        Ok(())
    })?;
    Ok(sites)
}

/// Without any one of its barriers, some run of a kernel faults or has wrong results.
fn all_are_needed(kernel: &Kernel) -> Checked {
    let survivors: Vec<_> = barriers(kernel)?
        .into_iter()
        .filter(|&site| try_runs(kernel, |run| run(Some(site)).map(drop)).is_ok())
        .map(|site| site.to_string())
        .collect();
    if survivors.is_empty() {
        return Ok(());
    }
    Err(format!(
        "{}: nothing fails without the barrier at {}",
        kernel.name,
        survivors.join(", ")
    )
    .into())
}

/// The runs pass every barrier that the sources have.
fn all_are_reached() -> Checked {
    let mut reached = BTreeSet::new();
    for kernel in KERNELS
        .iter()
        .filter(|kernel| kernel.element == "f32" && !kernel.is_masked)
    {
        reached.extend(barriers(kernel)?);
    }
    let mut written = 0;
    for file in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../kernels-gpu/src"))? {
        let source = fs::read_to_string(file?.path())?;
        let is_barrier = |line: &&str| {
            [
                "thread::sync_threads()",
                "unsafe { thread::sync_threads() }",
                "warp::sync_warp(",
                "sync_warp(",
            ]
            .iter()
            .any(|call| line.trim().starts_with(call))
        };
        written += source.lines().filter(is_barrier).count();
    }
    if reached.len() == written {
        return Ok(());
    }
    Err(format!("the sources have {written} barriers, the runs passed these: {reached:?}").into())
}
