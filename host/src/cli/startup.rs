//! `bench --startup`: how long it takes to a first result.

use super::bench::write_json;
use super::format::{self, Column, Table};
use super::{BackendChoice, Outcome, Result};
use ptxscan::{Engine, Operation};
use std::io::Write;
use std::path::Path;
use std::time::Instant;

/// What is computed: so little that its size does not matter.
const SHAPE: [usize; 2] = [64, 1024];
/// Results after the first one, of which the median is told.
const REPEATED: usize = 20;

/// A step on the way.
#[derive(serde::Serialize)]
struct Step {
    step: String,
    backend: &'static str,
    device: String,
    ms: f64,
}

/// Runs the steps and tells their times. Nothing may have used the driver before.
pub fn run(backend: BackendChoice, json: Option<&Path>, out: &mut dyn Write) -> Result<Outcome> {
    let mut steps: Vec<(String, f64)> = Vec::new();
    #[cfg(feature = "cuda")]
    if !matches!(backend, BackendChoice::Cpu) {
        let start = Instant::now();
        // Without a GPU it is the engine that says so.
        if ptxscan::gpu::device_count().is_ok() {
            steps.push((
                "driver initialised".to_owned(),
                start.elapsed().as_secs_f64(),
            ));
        }
    }
    let start = Instant::now();
    let engine = backend.engine()?;
    steps.push(("engine made".to_owned(), start.elapsed().as_secs_f64()));
    for operation in [Operation::REVERSE_CUMSUM, Operation::AFFINE_SCAN] {
        let mut times = results(&engine, operation)?;
        let first = times.remove(0);
        times.sort_by(f64::total_cmp);
        steps.push((format!("first result of {operation}"), first));
        steps.push((
            format!("repeated result of {operation}"),
            times[REPEATED / 2],
        ));
    }

    let (backend, device) = (engine.backend().name(), engine.device_name());
    writeln!(
        out,
        "f32 {SHAPE:?} on the host, on the back end {backend} ({device})\n"
    )?;
    let width = steps.iter().map(|(step, _)| step.chars().count()).max();
    let table = Table::new([
        Column::left("step", width.unwrap_or(0)),
        Column::right("time", 8),
    ]);
    table.head(out)?;
    for (step, seconds) in &steps {
        table.row(out, [step.clone(), format::time(*seconds)])?;
    }
    let rows: Vec<Step> = steps
        .into_iter()
        .map(|(step, seconds)| Step {
            step,
            backend,
            device: device.clone(),
            ms: seconds * 1e3,
        })
        .collect();
    write_json(json, &rows)?;
    Ok(Outcome::Good)
}

/// Seconds of each of [`REPEATED`] + 1 results.
fn results(engine: &Engine, operation: Operation) -> Result<Vec<f64>> {
    let input = vec![0.5_f32; SHAPE.iter().product()];
    let inputs = vec![input.as_slice(); operation.operator.inputs()];
    let mut out = vec![f32::NAN; input.len()];
    (0..=REPEATED)
        .map(|_| {
            let start = Instant::now();
            engine.scan_into(operation, &inputs, &SHAPE, 1, &mut out)?;
            Ok(start.elapsed().as_secs_f64())
        })
        .collect()
}
