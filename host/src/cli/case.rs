//! What is measured: an operation on a shape.

use super::dtype::Dtype;
use super::format::Tuple;
use super::{Failure, Result, command_name};
use ptxscan::plan::Strategy;
use ptxscan::{Direction, Extents, Operation};

/// A case of the benchmark.
#[derive(Clone, PartialEq, Debug)]
pub struct Case {
    pub name: String,
    pub operation: Operation,
    pub shape: Vec<usize>,
    /// From 0.
    pub axis: usize,
    pub extents: Extents,
    /// The type of its tensors' elements.
    pub dtype: Dtype,
    /// How a GPU is to go about it, whatever the rules say.
    pub strategy: Option<Strategy>,
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
            dtype: Dtype::default(),
            strategy: None,
        };
        case.check_bytes()?;
        Ok(case)
    }

    /// The case with elements of another type, which its name tells.
    ///
    /// # Errors
    /// It has too many elements.
    pub fn of_type(self, dtype: Dtype) -> Result<Self> {
        if dtype == self.dtype {
            return Ok(self);
        }
        let case = Self {
            name: format!("{}-{}", self.name, dtype.name()),
            dtype,
            ..self
        };
        case.check_bytes()?;
        Ok(case)
    }

    /// The case from the other end, which its name tells.
    pub fn reversed(self) -> Self {
        let Operation {
            operator,
            direction,
        } = self.operation;
        let direction = match direction {
            Direction::Forward => Direction::Reverse,
            Direction::Reverse => Direction::Forward,
        };
        let suffix = match direction {
            Direction::Forward => "forward",
            Direction::Reverse => "reverse",
        };
        Self {
            name: format!("{}-{suffix}", self.name),
            operation: Operation::new(operator, direction),
            ..self
        }
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

    /// What has to be moved: each input read once, the output written once.
    pub fn bytes(&self) -> usize {
        self.checked_bytes().expect("checked when it was made")
    }

    fn check_bytes(&self) -> Result<()> {
        match self.checked_bytes() {
            Some(_) => Ok(()),
            None => Err(Failure::Case {
                operation: self.operation,
                shape: self.shape.clone(),
                axis: self.axis as isize,
                problem: "expected tensors that memory can hold, got more bytes",
            }),
        }
    }

    fn checked_bytes(&self) -> Option<usize> {
        let tensors = self.operation.operator.inputs() + 1;
        self.extents
            .elements()
            .checked_mul(tensors * self.dtype.bytes())
            .filter(|&bytes| isize::try_from(bytes).is_ok())
    }
}

/// An operation on a shape, in words.
pub fn label(operation: Operation, shape: &[usize], axis: isize) -> String {
    format!("{} {} axis {axis}", command_name(operation), Tuple(shape))
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
        // Three tensors of f32 fit, of f64 they do not.
        let case = Case::new(Operation::AFFINE_SCAN, &[1 << 59], 0).unwrap();
        assert_eq!(
            case.of_type(Dtype::F64).unwrap_err().to_string(),
            "affine-scan (576460752303423488,) axis 0: expected tensors that memory can hold, got more bytes"
        );
    }
}
