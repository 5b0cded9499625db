//! Properties of the scans, over random shapes, axes and values.
#![allow(missing_docs, reason = "tests")]

use approx::assert_abs_diff_eq;
use proptest::prelude::*;
use ptxscan::{Cpu, Direction, Operation, Operator, extents, reference};

/// A shape, an axis as a caller may give it, and an input or two.
#[derive(Clone, Debug)]
struct Call {
    operation: Operation,
    shape: Vec<usize>,
    axis: isize,
    inputs: Vec<Vec<f32>>,
}

fn calls(value: impl Strategy<Value = f32> + Clone + 'static) -> impl Strategy<Value = Call> {
    let operation = prop::sample::select(vec![
        Operation::CUMSUM,
        Operation::REVERSE_CUMSUM,
        Operation::AFFINE_SCAN,
        Operation::REVERSE_AFFINE_SCAN,
    ]);
    let extent = prop_oneof![4 => 1..12_usize, 1 => Just(0_usize), 1 => 30..70_usize];
    let shape = prop::collection::vec(extent, 1..4).prop_flat_map(|shape| {
        let rank = shape.len() as isize;
        (Just(shape), -rank..rank)
    });
    (operation, shape).prop_flat_map(move |(operation, (shape, axis))| {
        let count = shape.iter().product::<usize>();
        let input = prop::collection::vec(value.clone(), count);
        prop::collection::vec(input, operation.operator.inputs()).prop_map(move |inputs| Call {
            operation,
            shape: shape.clone(),
            axis,
            inputs,
        })
    })
}

impl Call {
    fn run(&self) -> Vec<f32> {
        self.run_as(self.operation, &self.inputs)
    }

    fn run_as(&self, operation: Operation, inputs: &[Vec<f32>]) -> Vec<f32> {
        let inputs: Vec<&[f32]> = inputs.iter().map(Vec::as_slice).collect();
        Cpu::new()
            .scan(operation, &inputs, &self.shape, self.axis)
            .expect("the call is right")
    }

    fn reference(&self, inputs: &[Vec<f32>]) -> Vec<f64> {
        let extents = extents::<f32>(self.operation, &self.shape, self.axis).expect("it is right");
        match inputs {
            [x] => reference::cumsum_f64(x, extents, self.operation.direction),
            [a, b] => reference::affine_scan_f64(a, b, extents, self.operation.direction),
            _ => unreachable!("one input or two"),
        }
    }

    /// A tensor with its axis turned round.
    fn flipped(&self, tensor: &[f32]) -> Vec<f32> {
        let e = extents::<f32>(self.operation, &self.shape, self.axis).expect("it is right");
        let mut flipped = tensor.to_vec();
        for (index, value) in tensor.iter().enumerate() {
            let (outer, rest) = (index / (e.len * e.inner), index % (e.len * e.inner));
            let (step, inner) = (rest / e.inner, rest % e.inner);
            flipped[(outer * e.len + e.len - 1 - step) * e.inner + inner] = *value;
        }
        flipped
    }
}

proptest! {
    /// With |a| ≤ 1, step t of a sequence is a sum of at most t + 1 terms, each of them rounded at most 2(t + 1) times:
    /// the error is at most γ_{2(t+1)} times the sum of their magnitudes, which the reference gives for |a| and |b|.
    #[test]
    fn near_the_reference(call in calls(-1.0..=1.0_f32)) {
        let magnitudes: Vec<Vec<f32>> = call
            .inputs
            .iter()
            .map(|input| input.iter().map(|value| value.abs()).collect())
            .collect();
        let sums = call.reference(&magnitudes);
        let len = extents::<f32>(call.operation, &call.shape, call.axis).expect("it is right").len;
        let u = f64::from(f32::EPSILON) / 2.0;
        let roundings = 2.0 * (len as f64 + 1.0) * u;
        let gamma = roundings / (1.0 - roundings);
        for ((got, want), sum) in call.run().iter().zip(call.reference(&call.inputs)).zip(sums) {
            assert_abs_diff_eq!(f64::from(*got), want, epsilon = gamma * sum);
        }
    }

    /// Sums of small integers, and gates of −1, 0 and 1, are exact.
    #[test]
    fn exact_on_integers(call in calls(prop::sample::select(vec![-1.0, 0.0, 1.0_f32]))) {
        let got: Vec<f64> = call.run().into_iter().map(f64::from).collect();
        prop_assert_eq!(got, call.reference(&call.inputs));
    }

    /// A reverse scan is the forward scan of the reversed sequence, bit for bit.
    #[test]
    fn reverse_is_flipped_forward(call in calls(-10.0..10.0_f32)) {
        let turned = match call.operation.direction {
            Direction::Forward => Direction::Reverse,
            Direction::Reverse => Direction::Forward,
        };
        let turned = Operation::new(call.operation.operator, turned);
        let flipped: Vec<Vec<f32>> = call.inputs.iter().map(|input| call.flipped(input)).collect();
        let bits = |values: Vec<f32>| values.into_iter().map(f32::to_bits).collect::<Vec<_>>();
        prop_assert_eq!(bits(call.run()), bits(call.flipped(&call.run_as(turned, &flipped))));
    }

    /// A scan of a sequence is the scan of its first part, and the scan of the rest from where that ended: the end is added
    /// to the first step of the rest (times its gate). With integers, where the grouping of the steps does not matter.
    #[test]
    fn joined_by_the_carry(
        steps in prop::collection::vec(
            (prop::sample::select(vec![-1.0, 0.0, 1.0_f32]), (-100..=100_i8).prop_map(f32::from)),
            2..3000,
        ),
        cut in any::<prop::sample::Index>(),
    ) {
        let (a, b): (Vec<f32>, Vec<f32>) = steps.into_iter().unzip();
        let cut = 1 + cut.index(a.len() - 1);
        let cpu = Cpu::new();
        for operator in [Operator::Cumsum, Operator::AffineScan] {
            let scan = |a: &[f32], b: &[f32]| {
                let inputs: &[&[f32]] = match operator {
                    Operator::Cumsum => &[b],
                    Operator::AffineScan => &[a, b],
                };
                let operation = Operation::new(operator, Direction::Forward);
                cpu.scan(operation, inputs, &[b.len()], 0).expect("the call is right")
            };
            let mut joined = scan(&a[..cut], &b[..cut]);
            let mut rest = b[cut..].to_vec();
            let gate = if operator == Operator::Cumsum { 1.0 } else { a[cut] };
            rest[0] += gate * joined[cut - 1];
            joined.extend(scan(&a[cut..], &rest));
            prop_assert_eq!(joined, scan(&a, &b));
        }
    }
}
