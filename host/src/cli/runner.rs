//! What measures one case on one back end.

use super::Result;
use super::case::Case;
use super::data::{self, Inputs};
use super::dtype::Measured;
use super::{check, format};
use ptxscan::{Direction, Engine, reference};
use rayon::prelude::*;
use std::time::Instant;

/// A case's buffers on a back end. The output is NaN before the first run.
pub trait Runner {
    /// Runs the case once.
    fn run(&mut self) -> Result<()>;

    /// A sequence of the output of that run, from its first step to its last.
    fn sequence(&self, outer: usize, inner: usize) -> Result<Vec<f64>>;

    /// Times runs, and copies of half the case's bytes, so that as many are moved. The `warm_up` first ones of each do
    /// not count. The output is not the case's any more.
    fn time(&mut self, warm_up: usize, samples: usize) -> Result<Times>;
}

/// What timing gives, in seconds.
#[derive(Default)]
pub struct Times {
    pub runs: Vec<f64>,
    pub copies: Vec<f64>,
}

/// So many bytes go by before a set of buffers is used again, so that no cache serves the case from an earlier run …
const WORKING_SET: usize = 1 << 29;
/// … if that takes no more sets than this: what is smaller is not about memory.
const MOST_SETS: usize = 256;

/// How many sets of buffers a case is measured with, in turn.
pub fn sets(case: &Case) -> usize {
    (WORKING_SET / case.bytes() + 1).min(MOST_SETS)
}

/// A case needs more memory than there is.
pub struct Shortage {
    pub needed: usize,
    pub available: usize,
}

impl std::fmt::Display for Shortage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "needs {} of memory, {} are available",
            format::bytes(self.needed),
            format::bytes(self.available)
        )
    }
}

/// Whether the memory of the engine's device is too small for the case.
pub fn shortage(engine: &Engine, case: &Case) -> Result<Option<Shortage>> {
    #[cfg(feature = "cuda")]
    if let Some(gpu) = engine.as_gpu() {
        return super::runner_gpu::shortage(gpu, case);
    }
    let _ = engine;
    let needed = sets(case) * case.bytes()
        + Inputs::bytes(case.operation.operator, case.extents.elements())
        + check::bytes(case);
    Ok(available_memory()
        .filter(|&available| available < needed)
        .map(|available| Shortage { needed, available }))
}

/// The bytes of memory that can be had without swapping, where the system tells.
pub fn available_memory() -> Option<usize> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: usize = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// Makes the case's buffers on the engine's device.
pub fn prepare<'a, T: Measured>(
    engine: &'a Engine,
    case: &'a Case,
    inputs: &Inputs,
) -> Result<Box<dyn Runner + 'a>> {
    #[cfg(feature = "cuda")]
    if let Some(gpu) = engine.as_gpu() {
        return Ok(Box::new(super::runner_gpu::GpuRunner::<T>::new(
            gpu, case, inputs,
        )?));
    }
    Ok(Box::new(CpuRunner::<T>::new(engine, case, inputs)))
}

/// Runs a case in host memory, by the wall clock.
struct CpuRunner<'a, T> {
    engine: &'a Engine,
    case: &'a Case,
    sets: Vec<Set<T>>,
    /// The set that was used last.
    current: usize,
}

struct Set<T> {
    inputs: Vec<Vec<T>>,
    out: Vec<T>,
}

impl<'a, T: Measured> CpuRunner<'a, T> {
    fn new(engine: &'a Engine, case: &'a Case, inputs: &Inputs) -> Self {
        let elements = case.extents.elements();
        let set = || Set {
            inputs: inputs
                .patterns()
                .map(|pattern| data::repeated(pattern, elements))
                .collect(),
            out: vec![T::NAN; elements],
        };
        Self {
            engine,
            case,
            sets: std::iter::repeat_with(set).take(sets(case)).collect(),
            current: 0,
        }
    }

    fn copy(&mut self) {
        let mut left = self.case.bytes() / 2 / size_of::<T>();
        let Set { inputs, out } = self.next();
        for input in inputs {
            let elements = left.min(input.len());
            left -= elements;
            copy(&input[..elements], &mut out[..elements]);
        }
    }

    fn next(&mut self) -> &mut Set<T> {
        self.current = (self.current + 1) % self.sets.len();
        &mut self.sets[self.current]
    }
}

impl<T: Measured> Runner for CpuRunner<'_, T> {
    fn run(&mut self) -> Result<()> {
        let (engine, case) = (self.engine, self.case);
        let Set { inputs, out } = self.next();
        let inputs: Vec<&[T]> = inputs.iter().map(Vec::as_slice).collect();
        engine.scan_into(
            case.operation,
            &inputs,
            &case.shape,
            case.axis as isize,
            out,
        )?;
        Ok(())
    }

    fn sequence(&self, outer: usize, inner: usize) -> Result<Vec<f64>> {
        let out = &self.sets[self.current].out;
        let steps = reference::steps(self.case.extents, Direction::Forward, outer, inner);
        Ok(steps.map(|index| out[index].to_f64()).collect())
    }

    fn time(&mut self, warm_up: usize, samples: usize) -> Result<Times> {
        let mut times = Times::default();
        for sample in 0..warm_up + samples {
            let start = Instant::now();
            self.run()?;
            let run = start.elapsed();
            let start = Instant::now();
            self.copy();
            let copy = start.elapsed();
            if sample >= warm_up {
                times.runs.push(run.as_secs_f64());
                times.copies.push(copy.as_secs_f64());
            }
        }
        Ok(times)
    }
}

/// A copy by all threads. Each gets one long piece, for which `memcpy` passes by the caches.
fn copy<T: Measured>(from: &[T], to: &mut [T]) {
    let piece = from.len().div_ceil(rayon::current_num_threads()).max(1);
    to.par_chunks_mut(piece)
        .zip(from.par_chunks(piece))
        .for_each(|(to, from)| to.copy_from_slice(from));
}
