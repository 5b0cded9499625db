//! Is a result right? A sample of it against 64-bit arithmetic.

use super::Result;
use super::case::Case;
use super::data::Inputs;
use super::runner::Runner;
use ptxscan::{Extents, Operator, reference};
use rand::rngs::StdRng;
use rand::{SeedableRng, seq::index};

/// At most so many sequences are checked, …
const SEQUENCES: usize = 16;
/// … and fewer where they are long, but always the first and the last one.
const ELEMENTS: usize = 1 << 24;

/// How far a sample of a result is from the reference.
#[derive(Clone, Copy, Debug)]
pub struct Check {
    /// ‖out − reference‖ / ‖reference‖ over the sample; NaN if the result has one.
    pub rel_error: f64,
    /// The largest |out − reference|, each over what the terms of that element add up to without their signs.
    pub largest: f64,
    /// What `largest` must not exceed.
    pub bound: f64,
}

impl Check {
    /// Whether the result is right.
    pub fn passed(&self) -> bool {
        self.largest <= self.bound
    }
}

/// The memory that a check takes, at most: three of `f64` for a sequence, and each input twice.
pub fn bytes(case: &Case) -> usize {
    case.extents.len * (3 * 8 + 2 * 4 * case.operation.operator.inputs())
}

/// Checks the output of the latest run; `seed` picks the sample.
pub fn check(case: &Case, inputs: &Inputs, runner: &dyn Runner, seed: u64) -> Result<Check> {
    let (mut error_squares, mut squares, mut largest) = (0.0_f64, 0.0_f64, 0.0_f64);
    for sequence in sample(case.extents, seed) {
        let (outer, inner) = (sequence / case.extents.inner, sequence % case.extents.inner);
        let inputs = inputs.sequence(case.extents, outer, inner);
        let expected = scan(case, &inputs);
        let magnitude = scan(case, &absolute(&inputs));
        let out = runner.sequence(outer, inner)?;
        for ((out, expected), magnitude) in out.into_iter().zip(expected).zip(magnitude) {
            let error = out - expected;
            error_squares += error * error;
            squares += expected * expected;
            let relative = match error.abs() {
                0.0 => 0.0, // of 0 too
                error => error / magnitude,
            };
            largest = largest.max(if relative.is_nan() {
                f64::INFINITY
            } else {
                relative
            });
        }
    }
    Ok(Check {
        rel_error: (error_squares / squares).sqrt(),
        largest,
        bound: bound(case),
    })
}

/// The reference's result for one sequence.
fn scan(case: &Case, inputs: &[Vec<f32>]) -> Vec<f64> {
    let extents = Extents {
        outer: 1,
        len: case.extents.len,
        inner: 1,
    };
    let direction = case.operation.direction;
    match case.operation.operator {
        Operator::Cumsum => reference::cumsum_sequence(&inputs[0], extents, direction, 0, 0),
        Operator::AffineScan => {
            reference::affine_scan_sequence(&inputs[0], &inputs[1], extents, direction, 0, 0)
        }
    }
}

fn absolute(inputs: &[Vec<f32>]) -> Vec<Vec<f32>> {
    let absolute = |input: &Vec<f32>| input.iter().map(|value| value.abs()).collect();
    inputs.iter().map(absolute).collect()
}

/// The sequences to be checked.
fn sample(extents: Extents, seed: u64) -> Vec<usize> {
    let all = extents.sequences();
    let amount = (ELEMENTS / extents.len).clamp(2, SEQUENCES);
    if all <= amount {
        return (0..all).collect();
    }
    let between = index::sample(&mut StdRng::seed_from_u64(seed), all - 2, amount - 2);
    let mut sample = vec![0, all - 1];
    sample.extend(between.into_iter().map(|index| index + 1));
    sample
}

/// What rounding may do to an element, relative to the sum of its terms' magnitudes.
///
/// Each term of an element meets n ≤ k·len roundings, in whatever order the terms are combined (k = 1 for a sum, and 2 for the
/// product and the sum of an affine step). By Higham and Mary, "A new approach to probabilistic rounding error analysis"
/// (SIAM J. Sci. Comput. 41(5), 2019), they change it by at most λ·√n·u, where u is the unit roundoff (2⁻²⁴ for f32), save with a probability of
/// 2·exp(−λ²/2) a term: for λ = 8, below 10⁻³ for all terms together while n < 2³³. The reference is computed in f64, and meets as
/// many roundings; a half type is rounded once more.
fn bound(case: &Case) -> f64 {
    const LAMBDA: f64 = 8.0;
    let (unit, of_result) = case.dtype.unit_roundoffs();
    let of_reference = f64::EPSILON / 2.0;
    let roundings = case.extents.len as f64
        * match case.operation.operator {
            Operator::Cumsum => 1.0,
            Operator::AffineScan => 2.0,
        };
    LAMBDA * roundings.sqrt() * (unit + of_reference) + of_result
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::runner::Times;
    use ptxscan::Operation;

    /// A back end whose output is what `change` makes of the right one.
    struct Fake<'a, F> {
        case: &'a Case,
        inputs: &'a Inputs,
        change: F,
    }

    impl<F: Fn(usize, &mut [f64])> Runner for Fake<'_, F> {
        fn run(&mut self) -> Result<()> {
            Ok(())
        }

        fn sequence(&self, outer: usize, inner: usize) -> Result<Vec<f64>> {
            let inputs = self.inputs.sequence(self.case.extents, outer, inner);
            let exact = scan(self.case, &inputs);
            let rounded = |value: f64| f64::from(value as f32);
            let mut out: Vec<f64> = exact.into_iter().map(rounded).collect();
            (self.change)(outer, &mut out);
            Ok(out)
        }

        fn time(&mut self, _: usize, _: usize) -> Result<Times> {
            Ok(Times::default())
        }
    }

    fn outcome(operation: Operation, change: impl Fn(usize, &mut [f64])) -> Check {
        let case = Case::new(operation, &[40, 5000], 1).unwrap();
        let inputs = Inputs::random(operation.operator, case.extents.elements(), case.dtype, 1);
        let runner = Fake {
            case: &case,
            inputs: &inputs,
            change,
        };
        check(&case, &inputs, &runner, 1).unwrap()
    }

    const OPERATIONS: [Operation; 4] = [
        Operation::CUMSUM,
        Operation::REVERSE_CUMSUM,
        Operation::AFFINE_SCAN,
        Operation::REVERSE_AFFINE_SCAN,
    ];

    #[test]
    fn the_reference_rounded_once_passes() {
        for operation in OPERATIONS {
            let check = outcome(operation, |_, _| {});
            assert!(check.passed(), "{operation}: {check:?}");
            assert!(check.rel_error > 0.0 && check.rel_error < 6e-8);
        }
    }

    #[test]
    fn one_wrong_element_in_the_last_row_fails() {
        for operation in OPERATIONS {
            let changes: [fn(&mut f64); 3] = [
                |element| *element = f64::NAN,
                |element| *element = f64::INFINITY,
                |element| *element += 0.5, // as if a term were lost or doubled
            ];
            for (index, change) in changes.into_iter().enumerate() {
                let check = outcome(operation, |row, out| {
                    if row == 39 {
                        change(&mut out[4321]);
                    }
                });
                assert!(!check.passed(), "{operation}, change {index}: {check:?}");
            }
        }
    }

    #[test]
    fn a_sample_has_the_ends_and_no_sequence_twice() {
        let extents = |outer, len, inner| Extents { outer, len, inner };
        let sorted = |extents| {
            let mut sample = sample(extents, 5);
            sample.sort();
            sample
        };
        assert_eq!(sorted(extents(2, 10, 3)), [0, 1, 2, 3, 4, 5]);
        let many = sorted(extents(1000, 10, 1000));
        assert_eq!((many[0], many[15], many.len()), (0, 999_999, 16));
        assert!(many.is_sorted_by(|a, b| a < b));
        assert_eq!(sorted(extents(9, 1 << 30, 1)), [0, 8]);
    }
}
