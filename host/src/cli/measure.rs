//! How a case is measured.

use super::Result;
use super::case::Case;
use super::check::{self, Check};
use super::data::Inputs;
use super::dtype::{Dtype, Measured};
use super::runner::{self, Times};
use ptxscan::Engine;
use ptxscan::half::{bf16, f16};

/// Runs before the clock counts.
const WARM_UP: usize = 3;

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

/// Checks a first run, then times `samples` of them, and of the copy.
pub fn measure(engine: &Engine, case: &Case, samples: usize, seed: u64) -> Result<Measurement> {
    match case.dtype {
        Dtype::F32 => measure_as::<f32>(engine, case, samples, seed),
        Dtype::F64 => measure_as::<f64>(engine, case, samples, seed),
        Dtype::F16 => measure_as::<f16>(engine, case, samples, seed),
        Dtype::Bf16 => measure_as::<bf16>(engine, case, samples, seed),
    }
}

fn measure_as<T: Measured>(
    engine: &Engine,
    case: &Case,
    samples: usize,
    seed: u64,
) -> Result<Measurement> {
    let (operator, elements) = (case.operation.operator, case.extents.elements());
    let inputs = Inputs::random(operator, elements, case.dtype, seed);
    let mut runner = runner::prepare::<T>(engine, case, &inputs)?;
    runner.run()?;
    let check = check::check(case, &inputs, runner.as_ref(), seed)?;
    drop(inputs);

    let Times { runs, copies } = runner.time(WARM_UP, samples)?;
    let (min, median) = min_and_median(runs);
    let (_, copy_median) = min_and_median(copies);
    Ok(Measurement {
        median,
        min,
        bytes: case.bytes(),
        copy_median,
        check,
    })
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
