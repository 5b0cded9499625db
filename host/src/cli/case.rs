//! What is measured: an operation on a shape.

use super::dtype::Dtype;
use super::format::{Column, Tuple, widest};
use super::{Failure, Result, command_name};
use ptxscan::plan::Strategy;
use ptxscan::{Direction, Extents, Inclusion, Operation, Operator};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::ops::Range;

/// A case of the benchmark.
#[derive(Clone, PartialEq, Debug)]
pub struct Case {
    pub name: String,
    pub operation: Operation,
    pub shape: Vec<usize>,
    /// From 0.
    pub axis: usize,
    pub extents: Extents,
    pub variation: Variation,
    /// Those of packed sequences.
    pub boundaries: Option<Vec<usize>>,
    /// How a GPU is to go about it, whatever the rules say.
    pub strategy: Option<Strategy>,
}

/// What can be different about a case.
#[derive(Clone, PartialEq, Debug, Default, clap::Args)]
pub struct Variation {
    /// The type of the elements
    #[arg(long, value_enum, value_name = "TYPE", default_value_t)]
    pub dtype: Dtype,
    /// Scan from the other end
    #[arg(long)]
    pub reverse: bool,
    /// The result of a step is the state before it
    #[arg(long)]
    pub exclusive: bool,
    /// Begin with states that are given, and write the last ones
    #[arg(long)]
    pub initial: bool,
    /// Start afresh where a mask says so, after 1000 steps or so
    #[arg(long)]
    pub reset: bool,
    /// The same steps as sequences of 1 to 2048 of them, packed one after another
    #[arg(long)]
    pub packed: bool,
    /// The gradient of an affine scan: three arrays read, two written
    #[arg(long, conflicts_with = "exclusive")]
    pub backward: bool,
}

/// The most steps of a packed sequence.
const LONGEST_PACKED: usize = 2048;

/// A sequence of a case.
pub struct Sequence {
    /// Its steps among all steps of the tensor.
    pub steps: Range<usize>,
    pub channel: usize,
    /// Its place among the states.
    pub state: usize,
}

/// The cases with a name: operation, shape, axis.
const NAMED: [(&str, Operation, &[usize], isize); 13] = [
    ("R1", Operation::REVERSE_CUMSUM, &[32768, 32768], 1),
    ("R2", Operation::REVERSE_CUMSUM, &[1024, 1048576], 1),
    ("R3", Operation::REVERSE_CUMSUM, &[1, 268435456], 1),
    ("R4", Operation::REVERSE_CUMSUM, &[262144, 1024], 1),
    ("R5", Operation::REVERSE_CUMSUM, &[32768, 32768], 0),
    ("A1", Operation::AFFINE_SCAN, &[32, 4096, 256], 1),
    ("A2", Operation::AFFINE_SCAN, &[1, 65536, 1024], 1),
    ("A3", Operation::AFFINE_SCAN, &[8, 2048, 4096], 1),
    ("A4", Operation::AFFINE_SCAN, &[1, 1048576, 64], 1),
    ("A5", Operation::AFFINE_SCAN, &[256, 1024, 128], 1),
    ("A6", Operation::AFFINE_SCAN, &[1, 67108864, 1], 1),
    ("A1t", Operation::AFFINE_SCAN, &[32, 256, 4096], 2),
    ("A2t", Operation::AFFINE_SCAN, &[8, 1536, 8192], 2),
];

impl Case {
    /// A case without a name of its own.
    ///
    /// # Errors
    /// The shape has no elements, too many of them, or not that axis.
    pub fn new(operation: Operation, shape: &[usize], axis: isize) -> Result<Self> {
        let extents = ptxscan::extents::<f32>(operation, shape, axis)?;
        if extents.elements() == 0 {
            return Err(Failure::Case {
                operation,
                shape: shape.to_owned(),
                axis,
                problem: "expected elements to measure with, got none",
            });
        }
        let axis_from_0 = axis.rem_euclid(shape.len() as isize) as usize;
        let case = Self {
            name: label(operation, shape, axis_from_0 as isize),
            operation,
            shape: shape.to_owned(),
            axis: axis_from_0,
            extents,
            variation: Variation::default(),
            boundaries: None,
            strategy: None,
        };
        case.check_bytes()?;
        Ok(case)
    }

    /// The case with what is different about it, which its name tells; `seed` is for the lengths of packed sequences.
    ///
    /// # Errors
    /// It has too many bytes, or no gradient.
    pub fn varied(mut self, variation: &Variation, seed: u64) -> Result<Self> {
        let Operation {
            operator,
            mut direction,
        } = self.operation;
        if variation.backward && operator != Operator::AffineScan {
            return Err(self.failure("expected an affine scan, which has a gradient of its own"));
        }
        let mut name = self.name.clone();
        if variation.reverse {
            let suffix;
            (direction, suffix) = match direction {
                Direction::Forward => (Direction::Reverse, "-reverse"),
                Direction::Reverse => (Direction::Forward, "-forward"),
            };
            name += suffix;
        }
        let Variation {
            exclusive,
            initial,
            reset,
            packed,
            backward,
            dtype,
            reverse: _,
        } = *variation;
        for (is_so, suffix) in [
            (exclusive, "-exclusive"),
            (initial, "-initial"),
            (reset, "-reset"),
            (packed, "-packed"),
            (backward, "-backward"),
        ] {
            if is_so {
                name += suffix;
            }
        }
        if dtype != Dtype::default() {
            name = format!("{name}-{}", dtype.name());
        }
        if packed {
            let Extents { outer, len, inner } = self.extents;
            let len = outer * len;
            self.boundaries = Some(boundaries(len, seed));
            self.extents = Extents {
                outer: 1,
                len,
                inner,
            };
            self.shape.drain(..self.axis);
            self.shape[0] = len;
            self.axis = 0;
        }
        let case = Self {
            name,
            operation: Operation::new(operator, direction),
            variation: variation.clone(),
            ..self
        };
        case.check_bytes()?;
        Ok(case)
    }

    /// All cases with a name.
    pub fn all() -> Vec<Self> {
        NAMED
            .iter()
            .map(|&(name, operation, shape, axis)| Self {
                name: name.to_owned(),
                ..Self::new(operation, shape, axis).expect("a named case is measurable")
            })
            .collect()
    }

    /// The names, in order.
    pub fn names() -> impl Iterator<Item = &'static str> {
        NAMED.iter().map(|&(name, ..)| name)
    }

    /// The case called `name`.
    pub fn named(name: &str) -> Option<Self> {
        Self::all().into_iter().find(|case| case.name == name)
    }

    /// Whether a step's result contains the step.
    pub fn inclusion(&self) -> Inclusion {
        match self.variation.exclusive {
            true => Inclusion::Exclusive,
            false => Inclusion::Inclusive,
        }
    }

    /// How many tensors are read.
    pub fn inputs(&self) -> usize {
        match self.variation.backward {
            true => 3,
            false => self.operation.operator.inputs(),
        }
    }

    /// How many tensors are written.
    pub fn outputs(&self) -> usize {
        match self.variation.backward {
            true => 2,
            false => 1,
        }
    }

    /// How many arrays of states are read: as many as tensors are written. One more is written.
    pub fn states(&self) -> usize {
        match self.variation.initial {
            true => self.outputs(),
            false => 0,
        }
    }

    /// Steps of all sequences that lie one after another.
    pub fn steps(&self) -> usize {
        self.extents.outer * self.extents.len
    }

    /// Steps of the longest sequence.
    pub fn longest(&self) -> usize {
        match &self.boundaries {
            Some(boundaries) => {
                let lengths = boundaries.windows(2).map(|ends| ends[1] - ends[0]);
                lengths.max().unwrap_or(0)
            }
            None => self.extents.len,
        }
    }

    /// How many sequences there are.
    pub fn sequences(&self) -> usize {
        let rows = match &self.boundaries {
            Some(boundaries) => boundaries.len() - 1,
            None => self.extents.outer,
        };
        rows * self.extents.inner
    }

    /// Sequence number `state`.
    pub fn sequence(&self, state: usize) -> Sequence {
        let Extents { len, inner, .. } = self.extents;
        let (row, channel) = (state / inner, state % inner);
        Sequence {
            steps: match &self.boundaries {
                Some(boundaries) => boundaries[row]..boundaries[row + 1],
                None => row * len..(row + 1) * len,
            },
            channel,
            state,
        }
    }

    /// What has to be moved: all that is read, once, and all that is written, once.
    pub fn bytes(&self) -> usize {
        self.checked_bytes().expect("checked when it was made")
    }

    fn check_bytes(&self) -> Result<()> {
        match self.checked_bytes() {
            Some(_) => Ok(()),
            None => Err(self.failure("expected tensors that memory can hold, got more bytes")),
        }
    }

    fn failure(&self, problem: &'static str) -> Failure {
        Failure::Case {
            operation: self.operation,
            shape: self.shape.clone(),
            axis: self.axis as isize,
            problem,
        }
    }

    fn checked_bytes(&self) -> Option<usize> {
        let Variation { dtype, reset, .. } = self.variation;
        let tensors = (self.inputs() + self.outputs()) * dtype.bytes();
        let states = match self.states() {
            0 => 0,
            read => (read + 1) * dtype.state_bytes(),
        };
        let boundaries = self.boundaries.as_ref().map_or(0, Vec::len) * size_of::<u64>();
        let mask = if reset { self.steps() } else { 0 };
        self.extents
            .elements()
            .checked_mul(tensors)?
            .checked_add(self.sequences().checked_mul(states)?)?
            .checked_add(boundaries + mask)
            .filter(|&bytes| isize::try_from(bytes).is_ok())
    }
}

/// Where packed sequences of random lengths begin, and the last one ends.
fn boundaries(len: usize, seed: u64) -> Vec<usize> {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut boundaries = vec![0];
    let mut end = 0;
    while end < len {
        end = len.min(end + rng.random_range(1..=LONGEST_PACKED));
        boundaries.push(end);
    }
    boundaries
}

/// An operation on a shape, in words.
pub fn label(operation: Operation, shape: &[usize], axis: isize) -> String {
    format!("{} {} axis {axis}", command_name(operation), Tuple(shape))
}

/// The columns of a table in which cases are named.
pub fn columns(cases: &[Case]) -> [Column; 3] {
    let operations = cases.iter().map(|case| command_name(case.operation));
    let shapes = cases.iter().map(|case| Tuple(&case.shape).to_string());
    [
        Column::left("operation", widest(operations)),
        Column::left("shape", widest(shapes)),
        Column::right("axis", 0),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_lead_to_their_case() {
        for (name, case) in Case::names().zip(Case::all()) {
            assert_eq!(Case::named(name), Some(case));
        }
        assert_eq!(Case::named("R0"), None);
    }

    #[test]
    fn bytes_are_each_input_once_and_the_output_once() {
        let bytes = |name| Case::named(name).unwrap().bytes();
        assert_eq!(bytes("R1"), 2 * 4 * 32768 * 32768);
        assert_eq!(bytes("A1"), 3 * 4 * 32 * 4096 * 256);
    }

    #[test]
    fn an_axis_is_counted_from_the_start() {
        let case = Case::new(Operation::CUMSUM, &[2, 3, 5], -1).unwrap();
        assert_eq!(case.axis, 2);
        assert_eq!(case.name, "cumsum (2, 3, 5) axis 2");
    }

    #[test]
    fn what_cannot_be_measured_is_refused() {
        let message = |shape: &[usize], axis| {
            Case::new(Operation::AFFINE_SCAN, shape, axis)
                .unwrap_err()
                .to_string()
        };
        assert_eq!(
            message(&[2, 0], 1),
            "affine-scan (2, 0) axis 1: expected elements to measure with, got none"
        );
        assert_eq!(
            message(&[1 << 60], 0),
            "affine-scan (1152921504606846976,) axis 0: expected tensors that memory can hold, got more bytes"
        );
        assert!(message(&[2, 3], 2).starts_with("affine_scan: axis 2 is out of range"));
        // Three tensors of f32 fit, of f64 they do not; nor do the five of a gradient.
        let case = Case::new(Operation::AFFINE_SCAN, &[1 << 59], 0).unwrap();
        let f64 = Variation {
            dtype: Dtype::F64,
            ..Variation::default()
        };
        let backward = Variation {
            backward: true,
            ..Variation::default()
        };
        for variation in [f64, backward.clone()] {
            assert_eq!(
                case.clone().varied(&variation, 0).unwrap_err().to_string(),
                "affine-scan (576460752303423488,) axis 0: expected tensors that memory can hold, got more bytes"
            );
        }
        let case = Case::new(Operation::CUMSUM, &[2, 3], 0).unwrap();
        assert_eq!(
            case.varied(&backward, 0).unwrap_err().to_string(),
            "cumsum (2, 3) axis 0: expected an affine scan, which has a gradient of its own"
        );
    }

    #[test]
    fn a_name_tells_what_is_different() {
        let name = |base, change: fn(&mut Variation)| {
            let mut variation = Variation::default();
            change(&mut variation);
            Case::named(base)
                .unwrap()
                .varied(&variation, 0)
                .unwrap()
                .name
        };
        assert_eq!(name("A1", |_| ()), "A1");
        assert_eq!(name("A1", |v| v.dtype = Dtype::Bf16), "A1-bf16");
        assert_eq!(name("A1", |v| v.initial = true), "A1-initial");
        assert_eq!(name("A1", |v| v.reverse = true), "A1-reverse");
        assert_eq!(name("R1", |v| v.reverse = true), "R1-forward");
        let backward = |v: &mut Variation| (v.backward, v.dtype) = (true, Dtype::Bf16);
        assert_eq!(name("A1", backward), "A1-backward-bf16");
        let all = |v: &mut Variation| {
            *v = Variation {
                dtype: Dtype::F64,
                reverse: true,
                exclusive: true,
                initial: true,
                reset: true,
                packed: true,
                backward: false,
            }
        };
        assert_eq!(
            name("A1", all),
            "A1-reverse-exclusive-initial-reset-packed-f64"
        );
    }

    #[test]
    fn bytes_are_all_that_is_read_and_written() {
        let bytes = |change: fn(&mut Variation)| {
            let mut variation = Variation::default();
            change(&mut variation);
            let case = Case::new(Operation::AFFINE_SCAN, &[3, 1000, 7], 1).unwrap();
            case.varied(&variation, 0).unwrap().bytes()
        };
        let tensor = 3 * 1000 * 7 * 4;
        assert_eq!(bytes(|_| ()), 3 * tensor);
        assert_eq!(bytes(|v| v.backward = true), 5 * tensor);
        assert_eq!(bytes(|v| v.reset = true), 3 * tensor + 3 * 1000);
        assert_eq!(bytes(|v| v.initial = true), 3 * tensor + 2 * 3 * 7 * 4);
        // States of halves are f32.
        let half = |v: &mut Variation| (v.initial, v.dtype) = (true, Dtype::Bf16);
        assert_eq!(bytes(half), 3 * tensor / 2 + 2 * 3 * 7 * 4);
    }

    #[test]
    fn packed_sequences_have_all_steps() {
        let variation = Variation {
            packed: true,
            ..Variation::default()
        };
        let dense = Case::named("A1").unwrap();
        let packed = dense.clone().varied(&variation, 5).unwrap();
        assert_eq!(
            (packed.shape.as_slice(), packed.axis),
            (&[131072, 256][..], 0)
        );
        assert_eq!(packed.extents.elements(), dense.extents.elements());
        let rows = packed.sequences() / 256;
        assert!((100..160).contains(&rows), "{rows} sequences");
        let mut end = 0;
        for row in 0..rows {
            let Sequence { steps, channel, .. } = packed.sequence(row * 256 + 255);
            assert_eq!((steps.start, channel), (end, 255));
            assert!((1..=LONGEST_PACKED).contains(&steps.len()));
            end = steps.end;
        }
        assert_eq!(end, 131072);
        assert_eq!(dense.clone().varied(&variation, 5).unwrap(), packed);
        assert_ne!(dense.varied(&variation, 6).unwrap(), packed);
    }
}
