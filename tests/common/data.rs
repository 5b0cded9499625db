//! Data: seeded, and made in the order in which the scan meets the steps.

use super::cases::Case;
use ptxscan::{Operation, Operator, reference};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};

/// Random in [0, 1): a hash of an element's index and its array's (the finalizer of splitmix64).
pub fn uniform(array: usize, index: usize) -> f32 {
    let mut bits = (index as u64)
        .wrapping_add((array as u64) << 48)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((bits ^ bits >> 31) >> 40) as f32 / (1 << 24) as f32
}

/// A step of the recurrence `h ↦ a·h + b`. For a cumulative sum, `b` is the element and `a` is ignored.
#[derive(Clone, Copy)]
pub struct Step {
    pub a: f32,
    pub b: f32,
}

/// Makes a sequence of so many steps.
pub type Sequence = fn(Operator, usize, &mut StdRng) -> Vec<Step>;

/// The inputs of a scan.
pub struct Data {
    seed: u64,
    inputs: Vec<Vec<f32>>,
}

impl Data {
    /// Data for a case, the same in each run.
    pub fn new(sequence: Sequence, operation: Operation, case: &Case) -> Self {
        // FNV-1a: another seed for each case, which no change of the list changes.
        let parts = case
            .shape
            .iter()
            .copied()
            .chain([case.axis.cast_unsigned()]);
        let seed = parts.fold(0xcbf2_9ce4_8422_2325, |seed: u64, part| {
            (seed ^ part as u64).wrapping_mul(0x0100_0000_01b3)
        });
        let extents = case.call(operation, &[]).extents();
        let mut rng = StdRng::seed_from_u64(seed);
        let mut inputs = vec![vec![0.0; extents.elements()]; operation.operator.inputs()];
        for outer in 0..extents.outer {
            for inner in 0..extents.inner {
                let mut steps = sequence(operation.operator, extents.len, &mut rng);
                // The first gate of a sequence is not used, whatever it is.
                if let Some(first) = steps.first_mut() {
                    first.a = *[f32::NAN, f32::INFINITY, 0.0, 3.0]
                        .choose(&mut rng)
                        .unwrap();
                }
                for (i, step) in
                    reference::steps(extents, operation.direction, outer, inner).zip(steps)
                {
                    match &mut inputs[..] {
                        [x] => x[i] = step.b,
                        [a, b] => (a[i], b[i]) = (step.a, step.b),
                        _ => unreachable!("no operator has more inputs"),
                    }
                }
            }
        }
        Self { seed, inputs }
    }

    /// The case and the seed, for people.
    pub fn named(&self, case: &Case) -> String {
        format!("{case}, seed {}", self.seed)
    }

    pub fn inputs(&self) -> Vec<&[f32]> {
        self.inputs.iter().map(Vec::as_slice).collect()
    }
}

/// Integers, whose sums are below 2²⁴ up to 2 million steps, and gates −1, 0 and 1: nothing is ever rounded.
///
/// Half of the sequences have no gate 0, behind which a wrong carry could hide.
pub fn integers(_: Operator, len: usize, rng: &mut StdRng) -> Vec<Step> {
    let reset = if rng.random() { 0.0 } else { 1.0 / 64.0 };
    (0..len)
        .map(|_| Step {
            a: if rng.random_bool(reset) {
                0.0
            } else {
                sign(rng)
            },
            b: rng.random_range(-8..=8) as f32,
        })
        .collect()
}

/// Uniformly random elements; the gates forget within a few steps, or only after some thousand.
pub fn floats(_: Operator, len: usize, rng: &mut StdRng) -> Vec<Step> {
    let least = if rng.random() { -1.0 } else { 0.0 };
    let forget = *[1.0, 0.25, 1.0 / 1024.0].choose(rng).unwrap();
    (0..len)
        .map(|_| Step {
            a: sign(rng) * (1.0 - forget * rng.random::<f32>()),
            b: rng.random_range(least..1.0),
        })
        .collect()
}

/// Integers, among which half of the sequences have infinities and NaNs.
pub fn poisoned(operator: Operator, len: usize, rng: &mut StdRng) -> Vec<Step> {
    let mut steps = integers(operator, len, rng);
    if len > 0 && rng.random() {
        for _ in 0..rng.random_range(1..=3) {
            let step = &mut steps[rng.random_range(0..len)];
            let poison = *[f32::INFINITY, f32::NEG_INFINITY, f32::NAN]
                .choose(rng)
                .unwrap();
            if operator == Operator::AffineScan && rng.random() {
                step.a = poison;
            } else {
                step.b = poison;
            }
        }
    }
    steps
}

/// The unit of the sums that overflow: 2¹¹⁵. Fewer than [`UNITS`] of it are finite, and nothing is rounded.
const UNIT: f32 = f32::from_bits((115 + 127) << 23);
const UNITS: i32 = 1 << 13;
/// The gate that overflows: 2¹⁰⁰.
const GATE: f32 = f32::from_bits((100 + 127) << 23);
/// What a reset leaves, so small that two such gates in a row do not make it overflow: 2⁻⁸⁰.
const SMALL: f32 = f32::from_bits((127 - 80) << 23);

/// Finite steps whose sums and products overflow here and there. Where they do not, nothing is rounded.
///
/// A step has a gate of 0, or b = 0: so a state is 0 or ± a power of two.
pub fn overflowing(operator: Operator, len: usize, rng: &mut StdRng) -> Vec<Step> {
    let rate = some_rate(len, rng);
    (0..len).map(|_| some_step(operator, rate, rng)).collect()
}

/// How often a step is one that can overflow: of so many, at least once or so.
fn some_rate(len: usize, rng: &mut StdRng) -> f64 {
    0.5_f64.powi(rng.random_range(1..=len.max(2).ilog2().cast_signed()))
}

fn some_step(operator: Operator, rate: f64, rng: &mut StdRng) -> Step {
    if operator == Operator::Cumsum {
        let units = if rng.random_bool(rate) { UNITS - 1 } else { 8 };
        return Step {
            a: 1.0,
            b: rng.random_range(-units..=units) as f32 * UNIT,
        };
    }
    if rng.random_bool(rate) {
        Step { a: GATE, b: 0.0 }
    } else if rng.random_bool(2.0 * rate.min(0.25)) {
        reset(rng)
    } else {
        Step {
            a: sign(rng),
            b: 0.0,
        }
    }
}

/// A step that forgets the ones before.
fn reset(rng: &mut StdRng) -> Step {
    Step {
        a: 0.0,
        b: *[SMALL, -SMALL, 1.0, 0.0].choose(rng).unwrap(),
    }
}

/// As [`overflowing`], but no state of the serial recurrence overflows: only sums and products of parts do.
pub fn near_overflow(operator: Operator, len: usize, rng: &mut StdRng) -> Vec<Step> {
    let rate = some_rate(len, rng);
    let mut state = 0.0_f32;
    (0..len)
        .map(|t| {
            let mut step = some_step(operator, rate, rng);
            let next = |step: Step| {
                if t == 0 {
                    step.b
                } else {
                    step.a * state + step.b
                }
            };
            if !next(step).is_finite() {
                step = match operator {
                    Operator::Cumsum => Step { b: -step.b, ..step },
                    Operator::AffineScan => reset(rng),
                };
            }
            state = next(step);
            step
        })
        .collect()
}

fn sign(rng: &mut StdRng) -> f32 {
    if rng.random() { 1.0 } else { -1.0 }
}
