//! What the test targets share: one list of [cases], their [data], what is [expected] of a scan, and the
//! [checks] that are stamped onto every back end.
#![allow(dead_code, reason = "each target uses a part")]
#![allow(missing_docs, reason = "tests")]

pub mod cases;
pub mod checks;
pub mod data;
#[cfg(feature = "cuda")]
pub mod device;
#[cfg(feature = "cuda")]
pub mod device_backward;
#[cfg(feature = "cuda")]
pub mod emulator;
pub mod expected;
#[cfg(feature = "cuda")]
pub mod gpu;
pub mod gradient;
pub mod options;

pub use libtest_mimic::{Completion, Failed, Trial};

#[cfg(feature = "cuda")]
use ptxscan::plan::{self, Strategy};
use ptxscan::{Cpu, Extents, Operation, Operator, extents, reference};
#[cfg(feature = "cuda")]
use ptxscan_kernels::tiling::short_rows;

/// What a test gives: the message of a failure says with which input.
pub type Checked<T = ()> = Result<T, Failed>;

pub const OPERATIONS: [Operation; 4] = [
    Operation::CUMSUM,
    Operation::REVERSE_CUMSUM,
    Operation::AFFINE_SCAN,
    Operation::REVERSE_AFFINE_SCAN,
];

/// The strategy of lanes that have nothing to do with others, or with few of them, where there is one for f32.
#[cfg(feature = "cuda")]
pub fn lanes(extents: Extents) -> Strategy {
    if extents.inner > 1 {
        Strategy::Lanes
    } else if extents.len <= short_rows::most_steps(size_of::<f32>()) {
        Strategy::ShortRows
    } else {
        plan::whole(extents)
    }
}

/// The strategy of narrow columns, where there are such.
#[cfg(feature = "cuda")]
pub fn narrow(extents: Extents) -> Strategy {
    if plan::strategies(extents).contains(&Strategy::Narrow) {
        Strategy::Narrow
    } else {
        plan::whole(extents)
    }
}

/// A scan to be carried out.
#[derive(Clone, Copy)]
pub struct Call<'a> {
    pub operation: Operation,
    pub inputs: &'a [&'a [f32]],
    pub shape: &'a [usize],
    pub axis: isize,
}

impl Call<'_> {
    pub fn extents(&self) -> Extents {
        extents::<f32>(self.operation, self.shape, self.axis).expect("a test's shape is right")
    }
}

/// What can carry out a scan.
pub trait Backend: Sync {
    /// Carries out `call`. Array `k` of the inputs and then the output begins `offsets[k]` elements after a 16-byte
    /// boundary (0 where `offsets` ends), if the back end has a say in that.
    ///
    /// The output is filled with NaN before.
    fn run(&self, call: &Call, offsets: &[usize]) -> Checked<Vec<f32>>;

    /// How many additions an element goes through on its way to a result, at most.
    fn depth(&self, operator: Operator, extents: Extents) -> usize;
}

/// The sequential ground truth, rounded to f32.
pub struct Reference;

impl Backend for Reference {
    fn run(&self, call: &Call, _: &[usize]) -> Checked<Vec<f32>> {
        let (extents, direction) = (call.extents(), call.operation.direction);
        let exact = match (call.operation.operator, call.inputs) {
            (Operator::Cumsum, [x]) => reference::cumsum_f64(x, extents, direction),
            (Operator::AffineScan, [a, b]) => reference::affine_scan_f64(a, b, extents, direction),
            _ => return Err("the operator takes other inputs".into()),
        };
        Ok(exact.into_iter().map(|value| value as f32).collect())
    }

    fn depth(&self, _: Operator, extents: Extents) -> usize {
        extents.len
    }
}

impl Backend for Cpu {
    fn run(&self, call: &Call, offsets: &[usize]) -> Checked<Vec<f32>> {
        let place = |k: usize| offsets.get(k).copied().unwrap_or(0);
        let inputs: Vec<_> = (0..)
            .zip(call.inputs)
            .map(|(k, input)| Placed::new(place(k), input))
            .collect();
        let inputs: Vec<_> = inputs.iter().map(Placed::as_slice).collect();
        let nan = vec![f32::NAN; call.extents().elements()];
        let mut out = Placed::new(place(inputs.len()), &nan);
        self.scan_into(
            call.operation,
            &inputs,
            call.shape,
            call.axis,
            out.as_mut_slice(),
        )?;
        Ok(out.as_slice().to_vec())
    }

    /// It promises no more than the serial recurrence does.
    fn depth(&self, _: Operator, extents: Extents) -> usize {
        extents.len
    }
}

/// Elements on the host that begin so many elements after a 16-byte boundary.
struct Placed {
    memory: Vec<f32>,
    start: usize,
}

impl Placed {
    fn new(offset: usize, values: &[f32]) -> Self {
        let mut memory = vec![f32::NAN; values.len() + offset + 4];
        let start = memory.as_ptr().align_offset(16) + offset;
        memory.truncate(start + values.len());
        memory[start..].copy_from_slice(values);
        Self { memory, start }
    }

    fn as_slice(&self) -> &[f32] {
        &self.memory[self.start..]
    }

    fn as_mut_slice(&mut self) -> &mut [f32] {
        &mut self.memory[self.start..]
    }
}
