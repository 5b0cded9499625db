//! The data that is measured on: random, seeded, and known everywhere without being kept.

use super::case::{Case, Sequence};
use super::dtype::{Dtype, Measured};
use ptxscan::Operator;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rayon::prelude::*;
use std::ops::Range;

/// Elements after which the data repeat.
///
/// A prime, so that no row or column of a tensor is like another one; small enough to be made at once and large enough not to stay in a cache.
const PERIOD: usize = 16_777_213;

/// How often a mask starts a scan afresh.
const RESETS: f64 = 1e-3;

/// What is read in cases of one operation: each array is its pattern, repeated.
pub struct Inputs {
    patterns: Vec<Vec<f32>>,
    states: Vec<Vec<f32>>,
    mask: Vec<bool>,
}

/// What is read in a sequence, from its first step to its last.
pub struct Steps {
    pub inputs: Vec<Vec<f32>>,
    /// The initial state, and of a gradient that of the final state; if there are states.
    pub states: Vec<f32>,
    pub mask: Option<Vec<bool>>,
}

impl Inputs {
    /// Uniformly random inputs, rounded to the type of the elements: x in [0, 1); a in [0.9, 1), and all others in [−0.5, 0.5).
    ///
    /// The cases are of one operation, with the same variation.
    pub fn random(cases: &[Case], seed: u64) -> Self {
        let case = &cases[0];
        let most = |count: fn(&Case) -> usize| cases.iter().map(count).max().unwrap_or(0);
        let ranges: &[Range<f32>] = match case.operation.operator {
            Operator::Cumsum => &[0.0..1.0],
            Operator::AffineScan => &[0.9..1.0, -0.5..0.5, -0.5..0.5],
        };
        let random = |stream: usize, range: &Range<f32>, count: usize, dtype: Dtype| {
            let mut rng = StdRng::seed_from_u64(seed.wrapping_add(stream as u64));
            (0..count.min(PERIOD))
                .map(|_| dtype.round(rng.random_range(range.clone())))
                .collect()
        };
        let (elements, states) = (most(|case| case.extents.elements()), most(Case::sequences));
        let ranges = ranges[..case.inputs()].iter().enumerate();
        let steps = if case.variation.reset {
            most(Case::steps)
        } else {
            0
        };
        let mut rng = StdRng::seed_from_u64(seed.wrapping_add(16));
        Self {
            patterns: ranges
                .map(|(stream, range)| random(stream, range, elements, case.variation.dtype))
                .collect(),
            // Those of all types are numbers of f32.
            states: (8..8 + case.states())
                .map(|stream| random(stream, &(-0.5..0.5), states, Dtype::F32))
                .collect(),
            mask: (0..steps.min(PERIOD))
                .map(|_| rng.random_bool(RESETS))
                .collect(),
        }
    }

    /// The bytes that the patterns of a case take.
    pub fn bytes(case: &Case) -> usize {
        let inputs = case.inputs() * case.extents.elements().min(PERIOD);
        let states = case.states() * case.sequences().min(PERIOD);
        let mask = case.variation.reset.then(|| case.steps().min(PERIOD));
        (inputs + states) * size_of::<f32>() + mask.unwrap_or(0)
    }

    /// What each input repeats.
    pub fn patterns(&self) -> impl Iterator<Item = &[f32]> {
        self.patterns.iter().map(Vec::as_slice)
    }

    /// What each array of states repeats.
    pub fn states(&self) -> impl Iterator<Item = &[f32]> {
        self.states.iter().map(Vec::as_slice)
    }

    /// What the mask repeats.
    pub fn mask(&self) -> &[bool] {
        &self.mask
    }

    /// A sequence of a case whose steps are `inner` elements apart.
    pub fn sequence(&self, inner: usize, sequence: &Sequence) -> Steps {
        let Sequence {
            steps,
            channel,
            state,
        } = sequence;
        let input = |pattern: &Vec<f32>| {
            let indices = steps.clone().map(|step| step * inner + channel);
            indices
                .map(|index| pattern[index % pattern.len()])
                .collect()
        };
        let mask = &self.mask;
        Steps {
            inputs: self.patterns.iter().map(input).collect(),
            states: self
                .states
                .iter()
                .map(|pattern| pattern[state % pattern.len()])
                .collect(),
            mask: (!mask.is_empty())
                .then(|| steps.clone().map(|step| mask[step % mask.len()]).collect()),
        }
    }
}

/// A vector of `elements` that repeats `pattern`.
pub fn repeated<T: Measured>(pattern: &[f32], elements: usize) -> Vec<T> {
    let mut data = vec![T::default(); elements];
    data.par_chunks_mut(pattern.len()).for_each(|chunk| {
        for (element, &value) in chunk.iter_mut().zip(pattern) {
            *element = T::from_f32(value);
        }
    });
    data
}

#[cfg(test)]
mod tests {
    use super::super::case::Variation;
    use super::*;
    use ptxscan::Operation;

    fn inputs(operation: Operation, shape: &[usize], seed: u64) -> (Case, Inputs) {
        let variation = Variation {
            initial: true,
            reset: true,
            ..Variation::default()
        };
        let case = Case::new(operation, shape, 1).unwrap();
        let case = case.varied(&variation, 0).unwrap();
        let inputs = Inputs::random(std::slice::from_ref(&case), seed);
        (case, inputs)
    }

    #[test]
    fn a_seed_gives_the_same_inputs_again_and_another_one_others() {
        let first = |seed| {
            let (_, inputs) = inputs(Operation::AFFINE_SCAN, &[2, 1000], seed);
            let arrays = inputs.patterns().chain(inputs.states());
            (
                arrays.map(<[f32]>::to_vec).collect::<Vec<_>>(),
                inputs.mask.clone(),
            )
        };
        assert_eq!(first(1), first(1));
        assert_ne!(first(1).0, first(2).0);
        assert_ne!(first(1).1, first(2).1);
    }

    #[test]
    fn values_are_in_their_ranges() {
        let all = |operation, input, low: f32, high: f32| {
            let (_, inputs) = inputs(operation, &[10, 1000], 7);
            let pattern = inputs.patterns().nth(input).unwrap();
            assert!(pattern.iter().all(|v| (low..high).contains(v)));
            let middle = pattern.iter().sum::<f32>() / 10_000.0;
            assert!((middle - (low + high) / 2.0).abs() < 0.02 * (high - low));
        };
        all(Operation::CUMSUM, 0, 0.0, 1.0);
        all(Operation::AFFINE_SCAN, 0, 0.9, 1.0);
        all(Operation::AFFINE_SCAN, 1, -0.5, 0.5);
    }

    #[test]
    fn sequences_are_those_of_the_repeated_arrays() {
        let (case, inputs) = inputs(Operation::CUMSUM, &[3, PERIOD / 4, 2], 3);
        let tensor = repeated::<f32>(&inputs.patterns[0], case.extents.elements());
        let got = inputs.sequence(2, &case.sequence(5));
        let len = PERIOD / 4;
        let expected: Vec<f32> = (2 * len..3 * len)
            .map(|step| tensor[2 * step + 1])
            .collect();
        assert_eq!(got.inputs, [expected]);
        assert_eq!(got.states, [inputs.states[0][5]]);
        assert_eq!(got.mask.unwrap(), inputs.mask[2 * len..]);
    }
}
