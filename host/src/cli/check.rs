//! Is a result right? A sample of it against 64-bit arithmetic.

use super::Result;
use super::case::Case;
use super::data::{Inputs, Steps};
use super::runner::{Results, Runner};
use ptxscan::{BackwardOptions, Extents, Operator, Options, reference};
use rand::rngs::StdRng;
use rand::{SeedableRng, seq::index};

/// At most so many sequences are checked, …
pub const SEQUENCES: usize = 16;
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

/// The memory that a check takes, at most: four of `f64` and an index for each element of a sequence, and each input twice.
pub fn bytes(case: &Case) -> usize {
    let each = 5 * 8 * case.outputs() + 2 * 4 * case.inputs();
    case.longest().saturating_mul(each)
}

/// Checks the results of a run; `seed` picks the sample, of `most` sequences.
pub fn check(
    case: &Case,
    inputs: &Inputs,
    runner: &dyn Runner,
    most: usize,
    seed: u64,
) -> Result<Check> {
    let (mut error_squares, mut squares, mut largest) = (0.0_f64, 0.0_f64, 0.0_f64);
    for sequence in sample(case, most, seed) {
        let sequence = case.sequence(sequence);
        let steps = inputs.sequence(case.extents.inner, &sequence);
        let expected = scan(case, &steps);
        let magnitude = scan(case, &absolute(&steps));
        let got = runner.results(&sequence)?;
        for ((got, expected), magnitude) in got.all().zip(expected.all()).zip(magnitude.all()) {
            let error = got - expected;
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

/// The reference's results for one sequence.
fn scan(case: &Case, steps: &Steps) -> Results {
    let extents = Extents {
        outer: 1,
        len: steps.inputs[0].len(),
        inner: 1,
    };
    let inputs: Vec<&[f32]> = steps.inputs.iter().map(Vec::as_slice).collect();
    let has_states = case.variation.initial;
    if let (true, &[a, h, dh]) = (case.variation.backward, &inputs[..]) {
        let mut options = BackwardOptions::new();
        if let [initial, d_final] = &steps.states[..] {
            options = options
                .initial(std::slice::from_ref(initial))
                .d_final(std::slice::from_ref(d_final));
        }
        if let Some(mask) = &steps.mask {
            options = options.reset(mask);
        }
        let direction = case.operation.direction;
        let gradients = reference::affine_scan_backward(direction, [a, h, dh], extents, &options);
        return Results {
            outputs: vec![gradients.da, gradients.db],
            state: has_states.then(|| gradients.d_initial[0]),
        };
    }
    let mut options = Options::new().inclusion(case.inclusion());
    if has_states {
        options = options.initial(&steps.states);
    }
    if let Some(mask) = &steps.mask {
        options = options.reset(mask);
    }
    let scanned = reference::scan(case.operation, &inputs, extents, &options);
    Results {
        outputs: vec![scanned.out],
        state: has_states.then(|| scanned.final_state[0]),
    }
}

fn absolute(steps: &Steps) -> Steps {
    let absolute = |input: &Vec<f32>| input.iter().map(|value| value.abs()).collect();
    Steps {
        inputs: steps.inputs.iter().map(absolute).collect(),
        states: absolute(&steps.states),
        mask: steps.mask.clone(),
    }
}

/// The sequences to be checked.
fn sample(case: &Case, most: usize, seed: u64) -> Vec<usize> {
    let all = case.sequences();
    let amount = (ELEMENTS / case.longest()).min(most).max(2);
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
    let (unit, of_result) = case.variation.dtype.unit_roundoffs();
    let of_reference = f64::EPSILON / 2.0;
    // An initial state is a term more, and a gradient multiplies once more.
    let more = usize::from(case.variation.initial || case.variation.backward);
    let roundings = (case.longest() + more) as f64
        * match case.operation.operator {
            Operator::Cumsum => 1.0,
            Operator::AffineScan => 2.0,
        };
    LAMBDA * roundings.sqrt() * (unit + of_reference) + of_result
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::case::{Sequence, Variation};
    use crate::cli::runner::{Choice, Times};
    use ptxscan::Operation;

    /// A back end whose output is what `change` makes of the right one.
    struct Fake<'a, F> {
        case: &'a Case,
        inputs: &'a Inputs,
        change: F,
    }

    impl<F: Fn(usize, &mut [f64], &mut Option<f64>)> Runner for Fake<'_, F> {
        fn choices(&mut self, _: &Case) -> Result<Vec<Choice>> {
            Ok(Vec::new())
        }

        fn take(&mut self, _: &Case) -> Result<()> {
            Ok(())
        }

        fn run(&mut self) -> Result<()> {
            Ok(())
        }

        fn results(&self, sequence: &Sequence) -> Result<Results> {
            let steps = self.inputs.sequence(self.case.extents.inner, sequence);
            let Results { outputs, state } = scan(self.case, &steps);
            let rounded = |value: f64| f64::from(value as f32);
            let mut outputs: Vec<Vec<f64>> = outputs
                .into_iter()
                .map(|output| output.into_iter().map(rounded).collect())
                .collect();
            let mut state = state.map(rounded);
            let last = outputs.last_mut().unwrap();
            (self.change)(sequence.state, last, &mut state);
            Ok(Results { outputs, state })
        }

        fn time(&mut self, _: usize, _: usize) -> Result<Times> {
            Ok(Times::default())
        }
    }

    fn outcome(
        operation: Operation,
        variation: &Variation,
        change: impl Fn(usize, &mut [f64], &mut Option<f64>),
    ) -> Check {
        let case = Case::new(operation, &[40, 5000], 1).unwrap();
        let case = case.varied(variation, 1).unwrap();
        let inputs = Inputs::random(std::slice::from_ref(&case), 1);
        let runner = Fake {
            case: &case,
            inputs: &inputs,
            change,
        };
        check(&case, &inputs, &runner, SEQUENCES, 1).unwrap()
    }

    const OPERATIONS: [Operation; 4] = [
        Operation::CUMSUM,
        Operation::REVERSE_CUMSUM,
        Operation::AFFINE_SCAN,
        Operation::REVERSE_AFFINE_SCAN,
    ];

    /// All that there is for an operation.
    fn variations(operation: Operation) -> Vec<Variation> {
        let plain = Variation::default;
        let mut variations = vec![
            plain(),
            Variation {
                exclusive: true,
                initial: true,
                reset: true,
                packed: true,
                ..plain()
            },
        ];
        if operation.operator == Operator::AffineScan {
            variations.push(Variation {
                backward: true,
                initial: true,
                reset: true,
                ..plain()
            });
        }
        variations
    }

    #[test]
    fn the_reference_rounded_once_passes() {
        for operation in OPERATIONS {
            for variation in variations(operation) {
                let check = outcome(operation, &variation, |_, _, _| {});
                assert!(check.passed(), "{operation}, {variation:?}: {check:?}");
                assert!(check.rel_error > 0.0 && check.rel_error < 6e-8);
            }
        }
    }

    #[test]
    fn one_wrong_element_or_state_fails() {
        for operation in OPERATIONS {
            for variation in variations(operation) {
                let changes: [fn(&mut f64); 3] = [
                    |element| *element = f64::NAN,
                    |element| *element = f64::INFINITY,
                    |element| *element += 0.5, // as if a term were lost or doubled
                ];
                for (index, change) in changes.into_iter().enumerate() {
                    let wrong_element = outcome(operation, &variation, |row, out, _| {
                        if row == 0 {
                            let middle = out.len() / 2;
                            change(&mut out[middle]);
                        }
                    });
                    let wrong_state = outcome(operation, &variation, |row, out, state| {
                        if row == 0 {
                            match state {
                                Some(state) => change(state),
                                None => change(&mut out[4999]),
                            }
                        }
                    });
                    for check in [wrong_element, wrong_state] {
                        assert!(
                            !check.passed(),
                            "{operation}, {variation:?}, change {index}: {check:?}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn a_sample_has_the_ends_and_no_sequence_twice() {
        let sorted = |shape: [usize; 3]| {
            let case = Case::new(Operation::CUMSUM, &shape, 1).unwrap();
            let mut sample = sample(&case, SEQUENCES, 5);
            sample.sort();
            sample
        };
        assert_eq!(sorted([2, 10, 3]), [0, 1, 2, 3, 4, 5]);
        let many = sorted([1000, 10, 1000]);
        assert_eq!((many[0], many[15], many.len()), (0, 999_999, 16));
        assert!(many.is_sorted_by(|a, b| a < b));
        assert_eq!(sorted([9, 1 << 30, 1]), [0, 8]);
    }
}
