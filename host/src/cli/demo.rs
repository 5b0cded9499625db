//! `demo`: both operators on random data, checked, beside a plain copy.

use super::case::{Case, columns};
use super::format::{self, Column, Table, Tuple};
use super::measure::{Measurement, measure};
use super::runner::shortage;
use super::{BackendChoice, Outcome, Result, command_name};
use ptxscan::{Backend, Engine, Operation};
use std::io::{self, Write};

/// How often each case is timed: enough for a look, within seconds on any machine.
const SAMPLES: usize = 9;

/// The arguments of `demo`.
#[derive(clap::Args, Default)]
pub struct Arguments {
    /// What to compute on; auto is the first usable GPU, else the CPU
    #[arg(long, value_enum, value_name = "BACKEND", default_value_t)]
    backend: BackendChoice,
    /// The seed of the random data
    #[arg(long, default_value_t)]
    seed: u64,
}

/// Runs the command.
pub fn run(arguments: &Arguments, out: &mut dyn Write) -> Result<Outcome> {
    let engine = arguments.backend.engine()?;
    let (cases, size) = cases(&engine)?;
    introduce(out, &engine, &cases, size)?;

    let device = engine.device_name();
    let [operation, shape, axis] = columns(&cases);
    let table = Table::new([
        operation,
        shape,
        axis,
        Column::left("back end", 0),
        Column::left("device", device.chars().count()),
        Column::right("time", 8),
        Column::right("GB/s", 6),
        Column::right("of copy", 0),
        Column::right("largest error", 0),
    ]);
    table.head(out)?;
    let mut measurements = Vec::new();
    for case in &cases {
        let measurement = measure(&engine, case, SAMPLES, arguments.seed)?;
        table.row(
            out,
            [
                command_name(case.operation),
                Tuple(&case.shape).to_string(),
                case.axis.to_string(),
                engine.backend().name().to_owned(),
                device.clone(),
                format::time(measurement.median),
                format!("{:.1}", measurement.gbps()),
                format!("{:.2}", measurement.of_copy()),
                format!("{:.1e}", measurement.check.largest),
            ],
        )?;
        measurements.push(measurement);
    }
    Ok(conclude(out, &cases, &measurements)?)
}

/// Which shapes these are.
#[derive(Clone, Copy)]
enum Size {
    Headline,
    Smaller,
}

/// The headline shapes on a GPU that has room for them, else smaller ones.
fn cases(engine: &Engine) -> Result<([Case; 2], Size)> {
    let cases = |sum: &[usize], affine: &[usize]| -> Result<[Case; 2]> {
        Ok([
            Case::new(Operation::REVERSE_CUMSUM, sum, 1)?,
            Case::new(Operation::AFFINE_SCAN, affine, 1)?,
        ])
    };
    if engine.backend() == Backend::Gpu {
        let headline = cases(&[32768, 32768], &[32, 4096, 256])?;
        if shortage(engine, &headline[0])?.is_none() {
            return Ok((headline, Size::Headline));
        }
    }
    Ok((cases(&[2048, 16384], &[8, 4096, 256])?, Size::Smaller))
}

fn introduce(
    out: &mut dyn Write,
    engine: &Engine,
    cases: &[Case; 2],
    size: Size,
) -> io::Result<()> {
    let backend = engine.backend().name();
    let [sum, affine] = cases.each_ref().map(|case| Tuple(&case.shape));
    writeln!(
        out,
        "Two scans of random 32-bit floats: sums from the end, y[j] = x[j] + x[j+1] + …, and the\n\
         recurrence h[t] = a[t]·h[t−1] + b[t]. A sample of the results is checked against 64-bit\n\
         arithmetic, and the speed is compared with that of a copy that moves as many bytes.\n\n\
         Back end: {backend} ({}).",
        engine.device_name()
    )?;
    if let Some(reason) = engine.why_no_gpu() {
        writeln!(out, "No GPU is used: {reason}.")?;
    }
    match size {
        Size::Headline => writeln!(out, "Shapes: {sum} and {affine}.\n"),
        Size::Smaller => writeln!(
            out,
            "Shapes: {sum} and {affine}, smaller than a GPU's, which are (32768, 32768) and\n\
             (32, 4096, 256).\n"
        ),
    }
}

/// Says what came of it.
fn conclude(
    out: &mut dyn Write,
    cases: &[Case],
    measurements: &[Measurement],
) -> io::Result<Outcome> {
    writeln!(
        out,
        "\nTime: the median of {SAMPLES} runs. GB/s: each input read once, the output written once. Largest error:\n\
         of an element, relative to the sum of its terms' magnitudes."
    )?;
    let mut outcome = Outcome::Good;
    for (case, Measurement { check, .. }) in cases.iter().zip(measurements) {
        if !check.passed() {
            outcome = Outcome::Wrong;
            writeln!(
                out,
                "FAILED: {} has an error of {:.1e}, above the bound of {:.1e} for 32-bit floats.",
                command_name(case.operation),
                check.largest,
                check.bound
            )?;
        }
    }
    if outcome == Outcome::Good {
        writeln!(
            out,
            "Passed: the errors are within what 32-bit floats allow."
        )?;
    }
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::check::Check;

    fn conclusion(largest: f64) -> (String, Outcome) {
        let (cases, _) = cases(&Engine::cpu()).unwrap();
        let measurements = [1e-7, largest].map(|largest| Measurement {
            median: 1.0,
            min: 1.0,
            bytes: 1,
            copy_median: 1.0,
            check: Check {
                rel_error: 1e-7,
                largest,
                bound: 1e-5,
            },
        });
        let mut text = Vec::new();
        let outcome = conclude(&mut text, &cases, &measurements).unwrap();
        (String::from_utf8(text).unwrap(), outcome)
    }

    #[test]
    fn a_wrong_result_is_named_and_makes_the_outcome_wrong() {
        let (text, outcome) = conclusion(0.5);
        assert_eq!(outcome, Outcome::Wrong);
        assert!(text.ends_with("FAILED: affine-scan has an error of 5.0e-1, above the bound of 1.0e-5 for 32-bit floats.\n"));
        assert!(!text.contains("Passed"));
    }

    #[test]
    fn right_results_pass() {
        let (text, outcome) = conclusion(1e-5);
        assert_eq!(outcome, Outcome::Good);
        assert!(text.contains("Passed") && !text.contains("FAILED"));
    }
}
