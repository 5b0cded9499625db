//! How a case is measured.

use super::Result;
use super::case::Case;
use super::check::{self, Check};
use super::data::Inputs;
use super::dtype::Dtype;
use super::runner::{self, Choice, Runner, Times};
use ptxscan::Engine;
use ptxscan::half::{bf16, f16};
use std::slice::from_ref;

/// Runs before the clock counts.
const WARM_UP: usize = 3;
/// So many runs a choice has in a sweep, of which there are hundreds.
const SWEEP_SAMPLES: usize = 7;
/// So many sequences are checked in a sweep.
const SWEEP_SEQUENCES: usize = 2;

/// What a measurement gives.
pub struct Measurement {
    /// Seconds.
    pub median: f64,
    /// Seconds.
    pub min: f64,
    /// Bytes moved by a run, and by a copy.
    pub bytes: usize,
    /// Seconds that the copy takes, as a median.
    pub copy_median: f64,
    pub check: Check,
}

impl Measurement {
    fn new(case: &Case, check: Check, Times { runs, copies }: Times) -> Self {
        let (min, median) = min_and_median(runs);
        let (_, copy_median) = min_and_median(copies);
        Self {
            median,
            min,
            bytes: case.bytes(),
            copy_median,
            check,
        }
    }

    /// 10⁹ bytes a second.
    pub fn gbps(&self) -> f64 {
        self.bytes as f64 / self.median * 1e-9
    }

    /// 10⁹ bytes a second, of the copy.
    pub fn copy_gbps(&self) -> f64 {
        self.bytes as f64 / self.copy_median * 1e-9
    }

    /// The share of the copy's rate.
    pub fn of_copy(&self) -> f64 {
        self.copy_median / self.median
    }
}

/// What measures cases that have one operation and one variation, with data of their type.
fn runner<'a>(engine: &'a Engine, cases: &[Case], inputs: &Inputs) -> Result<Box<dyn Runner + 'a>> {
    let prepare = match cases[0].variation.dtype {
        Dtype::F32 => runner::prepare::<f32>,
        Dtype::F64 => runner::prepare::<f64>,
        Dtype::F16 => runner::prepare::<f16>,
        Dtype::Bf16 => runner::prepare::<bf16>,
    };
    prepare(engine, cases, inputs)
}

/// Checks a first run, then times `samples` of them, and of the copy.
pub fn measure(engine: &Engine, case: &Case, samples: usize, seed: u64) -> Result<Measurement> {
    let inputs = Inputs::random(from_ref(case), seed);
    let mut runner = runner(engine, from_ref(case), &inputs)?;
    runner.take(case)?;
    runner.run()?;
    let check = check::check(case, &inputs, runner.as_ref(), check::SEQUENCES, seed)?;
    drop(inputs);
    let times = runner.time(WARM_UP, samples)?;
    Ok(Measurement::new(case, check, times))
}

/// Measures each choice of each case, in buffers that serve all of them; the cases have one operation and one variation. `each` gets the
/// choices of a case in order, what the rules pick first.
pub fn sweep(
    engine: &Engine,
    cases: &[Case],
    seed: u64,
    mut each: impl FnMut(&Case, &Choice, &Measurement) -> Result<()>,
) -> Result<()> {
    if cases.is_empty() {
        return Ok(());
    }
    let inputs = Inputs::random(cases, seed);
    let mut runner = runner(engine, cases, &inputs)?;
    for case in cases {
        for choice in runner.choices(case)? {
            let case = Case {
                strategy: choice.strategy,
                ..case.clone()
            };
            runner.take(&case)?;
            runner.run()?;
            let check = check::check(&case, &inputs, runner.as_ref(), SWEEP_SEQUENCES, seed)?;
            let times = runner.time(1, SWEEP_SAMPLES)?;
            each(&case, &choice, &Measurement::new(&case, check, times))?;
        }
    }
    Ok(())
}

fn min_and_median(mut values: Vec<f64>) -> (f64, f64) {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    let median = if values.len() % 2 == 1 {
        values[middle]
    } else {
        (values[middle - 1] + values[middle]) / 2.0
    };
    (values[0], median)
}
