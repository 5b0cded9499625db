//! The data that is measured on: random, seeded, and known everywhere without being kept.

use super::dtype::{Dtype, Measured};
use ptxscan::{Extents, Operator, reference};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rayon::prelude::*;

/// Elements after which the data repeat.
///
/// A prime, so that no row or column of a tensor is like another one; small enough to be made at once and large enough not to stay in a cache.
const PERIOD: usize = 16_777_213;

/// The inputs of a case: each is its pattern, repeated.
pub struct Inputs {
    patterns: Vec<Vec<f32>>,
}

impl Inputs {
    /// Uniformly random inputs of `elements`: x in [0, 1); a in [0.9, 1) and b in [−0.5, 0.5); rounded to a type of elements.
    pub fn random(operator: Operator, elements: usize, dtype: Dtype, seed: u64) -> Self {
        let ranges = match operator {
            Operator::Cumsum => [0.0..1.0].as_slice(),
            Operator::AffineScan => &[0.9..1.0, -0.5..0.5],
        };
        let pattern = |(stream, range): (usize, &std::ops::Range<f32>)| {
            let mut rng = StdRng::seed_from_u64(seed.wrapping_add(stream as u64));
            (0..elements.min(PERIOD))
                .map(|_| dtype.round(rng.random_range(range.clone())))
                .collect()
        };
        Self {
            patterns: ranges.iter().enumerate().map(pattern).collect(),
        }
    }

    /// The bytes that the patterns for `elements` take.
    pub fn bytes(operator: Operator, elements: usize) -> usize {
        operator.inputs() * elements.min(PERIOD) * size_of::<f32>()
    }

    /// What each input repeats.
    pub fn patterns(&self) -> impl Iterator<Item = &[f32]> {
        self.patterns.iter().map(Vec::as_slice)
    }

    /// A sequence of each input, from its first step to its last.
    pub fn sequence(&self, extents: Extents, outer: usize, inner: usize) -> Vec<Vec<f32>> {
        let steps = || reference::steps(extents, ptxscan::Direction::Forward, outer, inner);
        self.patterns()
            .map(|pattern| steps().map(|index| pattern[index % PERIOD]).collect())
            .collect()
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
    use super::*;

    #[test]
    fn a_seed_gives_the_same_inputs_again_and_another_one_others() {
        let first = |seed| {
            let inputs = Inputs::random(Operator::AffineScan, 4, Dtype::F32, seed);
            inputs.patterns().map(<[f32]>::to_vec).collect::<Vec<_>>()
        };
        assert_eq!(first(1), first(1));
        assert_ne!(first(1), first(2));
    }

    #[test]
    fn values_are_in_their_ranges() {
        let all = |operator, input, low: f32, high: f32| {
            let inputs = Inputs::random(operator, 10_000, Dtype::F32, 7);
            let pattern = inputs.patterns().nth(input).unwrap();
            assert!(pattern.iter().all(|v| (low..high).contains(v)));
            let middle = pattern.iter().sum::<f32>() / 10_000.0;
            assert!((middle - (low + high) / 2.0).abs() < 0.02 * (high - low));
        };
        all(Operator::Cumsum, 0, 0.0, 1.0);
        all(Operator::AffineScan, 0, 0.9, 1.0);
        all(Operator::AffineScan, 1, -0.5, 0.5);
    }

    #[test]
    fn sequences_are_those_of_the_repeated_tensor() {
        let extents = Extents {
            outer: 3,
            len: PERIOD / 4,
            inner: 2,
        };
        let inputs = Inputs::random(Operator::Cumsum, extents.elements(), Dtype::F32, 3);
        let pattern = inputs.patterns().next().unwrap();
        let tensor = repeated::<f32>(pattern, extents.elements());
        let steps = reference::steps(extents, ptxscan::Direction::Forward, 2, 1);
        let expected: Vec<f32> = steps.map(|index| tensor[index]).collect();
        assert_eq!(inputs.sequence(extents, 2, 1), [expected]);
    }
}
