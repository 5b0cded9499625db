//! What measures cases on one back end.

use super::case::{Case, Sequence};
use super::data::{self, Inputs};
use super::dtype::Measured;
use super::{Result, check, format};
use ptxscan::plan::Strategy;
use ptxscan::{BackwardOptions, Engine, Options};
use rayon::prelude::*;
use std::ops::Range;
use std::time::Instant;

/// The buffers of some cases on a back end, all of one operation and one variation.
pub trait Runner {
    /// The ways to go about a case: first what the rules pick, then the others that there are.
    fn choices(&mut self, case: &Case) -> Result<Vec<Choice>>;

    /// Goes over to a case. The outputs are NaN then.
    fn take(&mut self, case: &Case) -> Result<()>;

    /// Runs the case once, for results.
    fn run(&mut self) -> Result<()>;

    /// What that run gave for a sequence.
    fn results(&self, sequence: &Sequence) -> Result<Results>;

    /// Times runs, and copies of half the case's bytes, so that as many are moved. The `warm_up` first ones of each do
    /// not count. The outputs are not the case's any more.
    fn time(&mut self, warm_up: usize, samples: usize) -> Result<Times>;
}

/// A way to go about a case.
pub struct Choice {
    pub name: &'static str,
    pub strategy: Option<Strategy>,
    pub is_picked: bool,
}

/// What a sequence comes to.
pub struct Results {
    /// Of each output, from the first step to the last.
    pub outputs: Vec<Vec<f64>>,
    /// The final state, or the gradient of the initial one; if there are states.
    pub state: Option<f64>,
}

impl Results {
    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = f64> {
        self.outputs.iter().flatten().copied().chain(self.state)
    }
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
    let needed = (sets(case).saturating_mul(case.bytes()))
        .saturating_add(Inputs::bytes(case))
        .saturating_add(check::bytes(case));
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

/// Room for arrays of elements, of states and of steps, each for as many sets of a case as it is measured with.
#[derive(Default)]
pub struct Room {
    pub elements: usize,
    pub states: usize,
    pub steps: usize,
    /// Bytes that a copy reads, and writes.
    pub copied: usize,
}

impl Room {
    /// Room for each of the cases.
    pub fn for_all(cases: &[Case]) -> Self {
        let mut room = Self::default();
        for case in cases {
            let most =
                |room: &mut usize, count| *room = (*room).max(place(sets(case), count).start);
            most(&mut room.elements, case.extents.elements());
            most(&mut room.copied, case.bytes() / 2);
            if case.variation.initial {
                most(&mut room.states, case.sequences());
            }
            if case.variation.reset {
                most(&mut room.steps, case.steps());
            }
        }
        room
    }
}

/// Where an array of set number `set` is: each begins where any type is aligned.
pub fn place(set: usize, count: usize) -> Range<usize> {
    let start = set * count.next_multiple_of(256);
    start..start + count
}

/// Makes buffers for the cases on the engine's device.
pub fn prepare<'a, T: Measured<State: Measured>>(
    engine: &'a Engine,
    cases: &[Case],
    inputs: &Inputs,
) -> Result<Box<dyn Runner + 'a>> {
    #[cfg(feature = "cuda")]
    if let Some(gpu) = engine.as_gpu() {
        return Ok(Box::new(super::runner_gpu::GpuRunner::<T>::new(
            gpu, cases, inputs,
        )?));
    }
    Ok(Box::new(CpuRunner::<T>::new(engine, cases, inputs)))
}

/// Runs cases in host memory, by the wall clock.
struct CpuRunner<'a, T: Measured<State: Measured>> {
    engine: &'a Engine,
    case: Case,
    /// The set that is next.
    current: usize,
    inputs: Vec<Vec<T>>,
    outputs: Vec<Vec<T>>,
    /// States that are read.
    states: Vec<Vec<T::State>>,
    /// States that are written.
    last: Vec<T::State>,
    mask: Vec<bool>,
}

impl<'a, T: Measured<State: Measured>> CpuRunner<'a, T> {
    fn new(engine: &'a Engine, cases: &[Case], inputs: &Inputs) -> Self {
        let room = Room::for_all(cases);
        let mask = inputs.mask().iter().cycle();
        Self {
            engine,
            case: cases[0].clone(),
            current: 0,
            inputs: inputs
                .patterns()
                .map(|pattern| data::repeated(pattern, room.elements))
                .collect(),
            outputs: vec![vec![T::NAN; room.elements]; cases[0].outputs()],
            states: inputs
                .states()
                .map(|pattern| data::repeated(pattern, room.states))
                .collect(),
            last: vec![T::State::NAN; room.states],
            mask: mask.copied().take(room.steps).collect(),
        }
    }

    /// The next set is the one after it.
    fn next(&mut self) -> usize {
        let set = self.current;
        self.current = (set + 1) % sets(&self.case);
        set
    }

    fn run_next(&mut self) -> Result<()> {
        let set = self.next();
        let case = &self.case;
        let (shape, axis) = (&case.shape, case.axis as isize);
        let elements = place(set, case.extents.elements());
        let states = place(set, case.sequences());
        let mask = case
            .variation
            .reset
            .then(|| &self.mask[place(set, case.steps())]);
        let read: Vec<&[T::State]> = self
            .states
            .iter()
            .map(|array| &array[states.clone()])
            .collect();
        let written = case.variation.initial.then(|| &mut self.last[states]);
        let inputs: Vec<&[T]> = self
            .inputs
            .iter()
            .map(|array| &array[elements.clone()])
            .collect();
        let mut outputs: Vec<&mut [T]> = self
            .outputs
            .iter_mut()
            .map(|array| &mut array[elements.clone()])
            .collect();
        match (&inputs[..], &mut outputs[..]) {
            (&[a, h, dh], [da, db]) => {
                let mut options = BackwardOptions::new();
                if let (&[initial, d_final], Some(d_initial)) = (&read[..], written) {
                    options = options
                        .initial(initial)
                        .d_final(d_final)
                        .d_initial(d_initial);
                }
                if let Some(mask) = mask {
                    options = options.reset(mask);
                }
                if let Some(boundaries) = &case.boundaries {
                    options = options.boundaries(boundaries);
                }
                let direction = case.operation.direction;
                self.engine.affine_scan_backward_into(
                    direction,
                    [a, h, dh],
                    shape,
                    axis,
                    options,
                    [da, db],
                )?;
            }
            (inputs, [out]) => {
                let mut options = Options::new().inclusion(case.inclusion());
                if let (&[initial], Some(last)) = (&read[..], written) {
                    options = options.initial(initial).final_state(last);
                }
                if let Some(mask) = mask {
                    options = options.reset(mask);
                }
                if let Some(boundaries) = &case.boundaries {
                    options = options.boundaries(boundaries);
                }
                self.engine
                    .scan_with_into(case.operation, inputs, shape, axis, options, out)?;
            }
            _ => unreachable!("a scan has an output, and a gradient has two of three inputs"),
        }
        Ok(())
    }

    fn copy_next(&mut self) {
        let set = self.next();
        let elements = place(set, self.case.extents.elements());
        let (mut left, from_all) = (self.case.bytes() / 2 / size_of::<T>(), elements.len());
        let out = &mut self.outputs[0][elements.clone()];
        for input in self.inputs.iter().cycle() {
            let count = left.min(from_all);
            copy(&input[elements.clone()][..count], &mut out[..count]);
            left -= count;
            if left == 0 {
                break;
            }
        }
    }
}

impl<T: Measured<State: Measured>> Runner for CpuRunner<'_, T> {
    fn choices(&mut self, _: &Case) -> Result<Vec<Choice>> {
        Ok(vec![Choice {
            name: "cpu",
            strategy: None,
            is_picked: true,
        }])
    }

    fn take(&mut self, case: &Case) -> Result<()> {
        for output in &mut self.outputs {
            output[..case.extents.elements()].fill(T::NAN);
        }
        self.last.fill(T::State::NAN);
        self.case = case.clone();
        Ok(())
    }

    fn run(&mut self) -> Result<()> {
        self.current = 0;
        self.run_next()
    }

    fn results(&self, sequence: &Sequence) -> Result<Results> {
        let Sequence {
            steps,
            channel,
            state,
        } = sequence;
        let output = |output: &Vec<T>| {
            let indices = steps
                .clone()
                .map(|step| step * self.case.extents.inner + channel);
            indices.map(|index| output[index].to_f64()).collect()
        };
        Ok(Results {
            outputs: self.outputs.iter().map(output).collect(),
            state: self.last.get(*state).map(|state| state.to_f64()),
        })
    }

    fn time(&mut self, warm_up: usize, samples: usize) -> Result<Times> {
        let mut times = Times::default();
        for sample in 0..warm_up + samples {
            let start = Instant::now();
            self.run_next()?;
            let run = start.elapsed();
            let start = Instant::now();
            self.copy_next();
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
