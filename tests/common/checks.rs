//! The checks: what holds for every back end, and what holds for the kernels wherever they run.

use super::cases::{self, Case, row_tile, small};
use super::data::{self, Data, Sequence};
use super::expected::{Accuracy, compare};
use super::{Backend, Call, Checked, Completion, OPERATIONS, Trial};
use ptxscan::{Direction, Operation, Operator, reference};
use ptxscan_kernels::tiling::{columns, rows};

/// A back end, or why there is none.
pub type Get = fn() -> Result<&'static dyn Backend, String>;
/// A list of cases.
pub type Cases = fn(Operator) -> Vec<Case>;

type OnCases = fn(&dyn Backend, Operation, &[Case]) -> Checked;
type OnBackend = fn(&dyn Backend) -> Checked;

/// The checks that take a list of cases: each kind of data.
const DATA: &[(&str, OnCases)] = &[
    ("integers", integers),
    ("floats", floats),
    ("poisoned", |backend, operation, cases| {
        exact(data::poisoned, backend, operation, cases)
    }),
    ("overflowing", |backend, operation, cases| {
        exact(data::overflowing, backend, operation, cases)
    }),
    ("near_overflow", |backend, operation, cases| {
        exact(data::near_overflow, backend, operation, cases)
    }),
];

/// The checks with cases of their own.
const FIXED: &[(&str, OnBackend)] = &[
    ("vectors", vectors),
    ("overflows", overflows),
    ("no_cancellation", no_cancellation),
    ("repeated_overflow", repeated_overflow),
    ("joined", joined),
];

/// What holds for the kernels to the last bit.
const BITWISE: &[(&str, OnBackend)] = &[
    ("misaligned", misaligned),
    ("reversed", reversed),
    ("batch_invariance", batch_invariance),
];

/// Integers in each of the cases.
pub fn integers_on(prefix: &str, get: Get, cases: Cases) -> Vec<Trial> {
    stamp(prefix, get, cases, &DATA[..1])
}

/// Each kind of data in each of the cases.
pub fn all_on(prefix: &str, get: Get, cases: Cases) -> Vec<Trial> {
    stamp(prefix, get, cases, DATA)
}

fn stamp(prefix: &str, get: Get, cases: Cases, checks: &[(&str, OnCases)]) -> Vec<Trial> {
    let each = OPERATIONS
        .into_iter()
        .flat_map(|operation| checks.iter().map(move |check| (operation, check)));
    each.map(|(operation, &(name, check))| {
        trial(
            format!("{prefix}::{name}::{operation}"),
            get,
            move |backend| check(backend, operation, &cases(operation.operator)),
        )
    })
    .collect()
}

/// All that holds for every back end.
pub fn suite(prefix: &str, get: Get) -> Vec<Trial> {
    let mut trials = all_on(prefix, get, cases::all);
    trials.extend(
        FIXED
            .iter()
            .map(|&(name, check)| trial(format!("{prefix}::{name}"), get, check)),
    );
    trials
}

/// What holds for the kernels besides.
pub fn bitwise(prefix: &str, get: Get) -> Vec<Trial> {
    BITWISE
        .iter()
        .map(|&(name, check)| trial(format!("{prefix}::{name}"), get, check))
        .collect()
}

/// A test of a back end, ignored where there is none.
pub fn trial(
    name: impl Into<String>,
    get: Get,
    check: impl FnOnce(&dyn Backend) -> Checked + Send + 'static,
) -> Trial {
    Trial::ignorable_test(name, move || match get() {
        Ok(backend) => check(backend).map(|()| Completion::Completed),
        Err(reason) => Ok(Completion::ignored_with(reason)),
    })
}

/// Data that need no rounding: every result is exact, or what the serial recurrence overflows to.
fn exact(
    sequence: Sequence,
    backend: &dyn Backend,
    operation: Operation,
    cases: &[Case],
) -> Checked {
    cases.iter().try_for_each(|case| {
        let data = Data::new(sequence, operation, case);
        let inputs = data.inputs();
        let call = case.call(operation, &inputs);
        compare(
            &call,
            &backend.run(&call, &[])?,
            Accuracy::Exact,
            &data.named(case),
        )
    })
}

fn integers(backend: &dyn Backend, operation: Operation, cases: &[Case]) -> Checked {
    exact(data::integers, backend, operation, cases)
}

fn floats(backend: &dyn Backend, operation: Operation, cases: &[Case]) -> Checked {
    cases.iter().try_for_each(|case| {
        let data = Data::new(data::floats, operation, case);
        let inputs = data.inputs();
        let call = case.call(operation, &inputs);
        let accuracy = Accuracy::Depth(backend.depth(operation.operator, call.extents()));
        compare(
            &call,
            &backend.run(&call, &[])?,
            accuracy,
            &data.named(case),
        )
    })
}

type Vector<'a> = (Operation, &'a [&'a [f32]], &'a [usize], isize, &'a [f32]);
const INF: f32 = f32::INFINITY;
const NAN: f32 = f32::NAN;
const MAX: f32 = f32::MAX;
/// Half of what overflows: 2¹²⁷.
const HALF: f32 = f32::from_bits((127 + 127) << 23);

/// Hand-written inputs, shapes, axes, and results.
#[rustfmt::skip]
const VECTORS: &[Vector] = &[
    (Operation::CUMSUM, &[&[1.0, 2.0, 3.0, 4.0]], &[4], 0, &[1.0, 3.0, 6.0, 10.0]),
    (Operation::REVERSE_CUMSUM, &[&[1.0, 2.0, 3.0, 4.0]], &[4], -1, &[10.0, 9.0, 7.0, 4.0]),
    (Operation::CUMSUM, &[&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]], &[2, 3], 0, &[1.0, 2.0, 3.0, 5.0, 7.0, 9.0]),
    (Operation::CUMSUM, &[&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]], &[2, 3], 1, &[1.0, 3.0, 6.0, 4.0, 9.0, 15.0]),
    (Operation::REVERSE_CUMSUM, &[&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]], &[3, 2], -2, &[9.0, 12.0, 8.0, 10.0, 5.0, 6.0]),
    (Operation::REVERSE_CUMSUM, &[&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]], &[1, 3, 1, 2], 1, &[9.0, 12.0, 8.0, 10.0, 5.0, 6.0]),
    // −0 + −0 is −0, and so is −0 alone; −0 + 0 is 0.
    (Operation::CUMSUM, &[&[-0.0]], &[1], 0, &[-0.0]),
    (Operation::CUMSUM, &[&[-0.0, -0.0, 0.0, -0.0]], &[4], 0, &[-0.0, -0.0, 0.0, 0.0]),
    (Operation::CUMSUM, &[&[-0.0, 1.0, -0.0, 2.0]], &[2, 2], 0, &[-0.0, 1.0, -0.0, 3.0]),
    (Operation::REVERSE_CUMSUM, &[&[-0.0, 1.0, -0.0, 2.0, 0.0, 3.0]], &[3, 2], 0, &[0.0, 6.0, 0.0, 5.0, 0.0, 3.0]),
    // An infinity reaches the sums that contain it, and no other.
    (Operation::REVERSE_CUMSUM, &[&[3.0, 1.0, 4.0, 1.0, INF, 0.0, 9.0, 2.0, 5.0, 6.0, 5.0, 3.0]], &[4, 3], 1,
        &[8.0, 5.0, 4.0, INF, INF, 0.0, 16.0, 7.0, 5.0, 14.0, 8.0, 3.0]),
    (Operation::CUMSUM, &[&[INF, 1.0, 2.0, -INF, -INF, 4.0]], &[3, 2], 0, &[INF, 1.0, INF, -INF, NAN, -INF]),
    // The first gate is not used.
    (Operation::AFFINE_SCAN, &[&[9.0, 2.0, 3.0], &[1.0, 1.0, 1.0]], &[3], 0, &[1.0, 3.0, 10.0]),
    (Operation::AFFINE_SCAN, &[&[NAN], &[-0.0]], &[1], 0, &[-0.0]),
    (Operation::AFFINE_SCAN, &[&[NAN, INF, -1.0, 2.0, 0.0, 3.0], &[5.0, -0.0, 1.0, 1.0, 7.0, 0.5]], &[3, 2], 0,
        &[5.0, -0.0, -4.0, 1.0, 7.0, 3.5]),
    // A gate of 0 takes a finite state to b, and an infinite one to NaN.
    (Operation::AFFINE_SCAN, &[&[1.0, 0.0, 1.0, 0.0, 1.0, 0.0], &[1.0, 2.0, INF, 4.0, 1.0, 2.0]], &[6], 0,
        &[1.0, 2.0, INF, NAN, NAN, NAN]),
    // Products of gates that overflow, from a state of 0.
    (Operation::AFFINE_SCAN, &[&[1e30, 1e30, 0.0, 0.0, 1e30, 1e30, 0.0, 0.0], &[0.0, 1.0, 2.0, 0.0, 0.0, 1.0, 2.0, 0.0]], &[8], 0,
        &[0.0, 1.0, 2.0, 0.0, 0.0, 1.0, 2.0, 0.0]),
    // Gates and summands that differ at every step, in both directions.
    (Operation::AFFINE_SCAN, &[&[7.0, 2.0, -1.0, 3.0], &[1.0, 3.0, 5.0, 2.0]], &[1, 4], 1, &[1.0, 5.0, 0.0, 2.0]),
    (Operation::REVERSE_AFFINE_SCAN, &[&[2.0, 3.0, 9.0], &[1.0, 1.0, 1.0]], &[3], 0, &[9.0, 4.0, 1.0]),
    (Operation::REVERSE_AFFINE_SCAN,
        &[&[2.0, -1.0, 3.0, 1.0, -2.0, 1.0, 4.0, 0.0, 2.0, 1.0, 2.0, 1.0, -1.0, 1.0, 3.0, 1.0, 2.0, 5.0],
          &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, -1.0, 0.0, 1.0, 2.0, -2.0, 3.0, 1.0, 0.0, 2.0]], &[2, 9], 1,
        &[485.0, 242.0, -240.0, -81.0, -85.0, 45.0, 39.0, 8.0, 9.0, -27.0, -26.0, -13.0, -14.0, 16.0, 18.0, 5.0, 4.0, 2.0]),
];

/// As [`VECTORS`], for what computes in f32: in f64 nothing overflows here.
#[rustfmt::skip]
const OVERFLOWS: &[Vector] = &[
    (Operation::CUMSUM, &[&[MAX, MAX, -INF, MAX, MAX, -MAX]], &[2, 3], 1, &[MAX, INF, NAN, MAX, INF, INF]),
    (Operation::REVERSE_CUMSUM, &[&[MAX, -MAX, -MAX, MAX, MAX, -MAX]], &[6], 0, &[0.0, -MAX, 0.0, MAX, 0.0, -MAX]),
    // The sum of a part overflows, but none from the start on; a lane has four steps.
    (Operation::CUMSUM, &[&[-HALF, 0.0, 0.0, 0.0, HALF, 0.0, 0.0, 0.0, HALF, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]], &[16], 0,
        &[-HALF, -HALF, -HALF, -HALF, 0.0, 0.0, 0.0, 0.0, HALF, HALF, HALF, HALF, HALF, HALF, HALF, HALF]),
    // A sum overflows, but that of no part does.
    (Operation::CUMSUM, &[&[HALF, 0.0, 0.0, 0.0, HALF, -HALF, 0.0, 0.0, 0.0, 0.0]], &[10], 0,
        &[HALF, HALF, HALF, HALF, INF, INF, INF, INF, INF, INF]),
    (Operation::AFFINE_SCAN, &[&[1.0, 1.0, 1.0, 1.0, 1e30, 0.0, 1.0, 1.0, 1.0], &[1e30, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0]], &[9], 0,
        &[1e30, 1e30, 1e30, 1e30, INF, NAN, NAN, NAN, NAN]),
    (Operation::AFFINE_SCAN, &[&[1e30, 1e30, 0.0, 0.5, 1e30, 1e30, 0.0, 0.5], &[1.0; 8]], &[8], 0,
        &[1.0, 1e30, 1.0, 1.5, 1.5 * 1e30, INF, NAN, NAN]),
];

pub fn vectors(backend: &dyn Backend) -> Checked {
    hand_written(backend, VECTORS)
}

fn overflows(backend: &dyn Backend) -> Checked {
    hand_written(backend, OVERFLOWS)
}

/// Compares to the last bit, but that any NaN is as good as another: as it is written, and with each element twice, so that
/// steps lie apart.
fn hand_written(backend: &dyn Backend, vectors: &[Vector]) -> Checked {
    for (&(operation, inputs, shape, axis, want), copies) in
        vectors.iter().flat_map(|vector| [(vector, 1), (vector, 2)])
    {
        let repeated = |values: &[f32]| -> Vec<f32> {
            values
                .iter()
                .flat_map(|&value| std::iter::repeat_n(value, copies))
                .collect()
        };
        let inputs: Vec<_> = inputs.iter().map(|input| repeated(input)).collect();
        let inputs: Vec<_> = inputs.iter().map(Vec::as_slice).collect();
        let want = repeated(want);
        let case = Case::new(
            &[shape, &[copies]].concat(),
            if axis < 0 { axis - 1 } else { axis },
        );
        let got = backend.run(&case.call(operation, &inputs), &[])?;
        let is_same = |(got, want): (&f32, &f32)| {
            got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan()
        };
        if got.len() != want.len() || !got.iter().zip(&want).all(is_same) {
            return Err(
                format!("{operation} of {inputs:?}, {case}: {got:?}, expected {want:?}").into(),
            );
        }
    }
    Ok(())
}

/// Large elements that the scan meets late change nothing of the sums before them: not as a total less the rest.
fn no_cancellation(backend: &dyn Backend) -> Checked {
    let tile = row_tile(Operator::Cumsum);
    for operation in [Operation::CUMSUM, Operation::REVERSE_CUMSUM] {
        let in_scan_order = |mut values: Vec<f32>| {
            if operation.direction == Direction::Reverse {
                values.reverse();
            }
            values
        };
        for (ones, large) in [
            (32, 32),
            (1, 40),
            (100, 1000),
            (tile - 1, 9),
            (tile + 1, tile),
        ] {
            let len = ones + large;
            let mut row = vec![1.0; len];
            row[ones..].fill(1e8);
            let row = in_scan_order(row);
            let pairs: Vec<f32> = row.iter().flat_map(|&x| [x, 2.0 * x]).collect();
            let calls: [(&[f32], &[usize]); 2] = [(&row, &[1, len]), (&pairs, &[len, 2])];
            for (axis, (x, shape)) in [1, 0].into_iter().zip(calls) {
                let call = Call {
                    operation,
                    inputs: &[x],
                    shape,
                    axis,
                };
                let got = backend.run(&call, &[])?;
                let channels = x.len() / len;
                let column = in_scan_order(got.iter().step_by(channels).copied().collect());
                if let Some(k) = (0..ones).find(|&k| column[k] != (k + 1) as f32) {
                    return Err(format!(
                        "{operation}, shape {shape:?}: the sum of {} ones is {}",
                        k + 1,
                        column[k]
                    )
                    .into());
                }
            }
        }

        // The last outputs of a long row are as exact as short sums are.
        let case = Case::new(&[1, 32768], 1);
        let data = Data::new(|_, len, rng| uniform(len, rng), operation, &case);
        let inputs = data.inputs();
        let call = case.call(operation, &inputs);
        let got = in_scan_order(backend.run(&call, &[])?);
        let x = in_scan_order(inputs[0].to_vec());
        let mut sum = 0.0;
        for (k, (&x, &got)) in x.iter().zip(&got).take(8).enumerate() {
            sum += f64::from(x);
            if !approx::relative_eq!(f64::from(got), sum, epsilon = 0.0, max_relative = 1e-6) {
                return Err(format!(
                    "{operation}: the sum of {} elements is {got}, expected {sum}",
                    k + 1
                )
                .into());
            }
        }
    }
    Ok(())
}

fn uniform(len: usize, rng: &mut rand::rngs::StdRng) -> Vec<data::Step> {
    use rand::RngExt;
    (0..len)
        .map(|_| data::Step {
            a: 1.0,
            b: rng.random(),
        })
        .collect()
}

/// Gates whose product overflows before a reset, over and over, in rows and columns: at first h stays finite, then not.
fn repeated_overflow(backend: &dyn Backend) -> Checked {
    const GATES: [f32; 4] = [1e30, 1e30, 0.0, 0.5];
    for operation in [Operation::AFFINE_SCAN, Operation::REVERSE_AFFINE_SCAN] {
        for (len, inner) in [(4096, 1), (4096, 3), (4097, 1)] {
            let case = Case::new(&[len, inner], 0);
            let a: Vec<_> = (0..len * inner).map(|i| GATES[i / inner % 4]).collect();
            // From the first step on that the scan meets, and from one after some hundred of zeros.
            for zeros in [0, 300] {
                let b: Vec<_> = (0..len * inner)
                    .map(|i| {
                        let met = match operation.direction {
                            Direction::Forward => i / inner,
                            Direction::Reverse => len - 1 - i / inner,
                        };
                        if met < zeros { 0.0 } else { 1.0 }
                    })
                    .collect();
                let inputs: [&[f32]; 2] = [&a, &b];
                let call = case.call(operation, &inputs);
                let context = format!("{case}, b = 1 after {zeros} steps");
                compare(
                    &call,
                    &backend.run(&call, &[])?,
                    Accuracy::Depth(len),
                    &context,
                )?;
            }
        }
    }
    Ok(())
}

/// The scan of a concatenation is that of its parts, joined by the carry.
fn joined(backend: &dyn Backend) -> Checked {
    let tile = row_tile(Operator::AffineScan);
    for operation in OPERATIONS {
        for (first, second, inner) in [
            (1, 1, 1),
            (33, 100, 1),
            (tile + 3, 2 * tile, 1),
            (1, 70, 3),
            (100, 41, 33),
        ] {
            let len = first + second;
            let case = Case::new(&[len, inner], 0);
            let data = Data::new(data::integers, operation, &case);
            let inputs = data.inputs();
            let run = |from: usize, to: usize| {
                let inputs: Vec<_> = inputs
                    .iter()
                    .map(|input| &input[from * inner..to * inner])
                    .collect();
                let case = Case::new(&[to - from, inner], 0);
                backend.run(&case.call(operation, &inputs), &[])
            };
            let (got_first, got_second) = match operation.direction {
                Direction::Forward => (run(0, first)?, run(first, len)?),
                Direction::Reverse => (run(second, len)?, run(0, second)?),
            };
            let whole = run(0, len)?;
            for channel in 0..inner {
                let steps = |len: usize| {
                    let case = Case::new(&[len, inner], 0);
                    reference::steps(
                        case.call(operation, &[]).extents(),
                        operation.direction,
                        0,
                        channel,
                    )
                };
                let carry = got_first[steps(first).last().expect("there are steps")];
                let mut factor = 1.0;
                for (t, (i, j)) in steps(len).skip(first).zip(steps(second)).enumerate() {
                    if let [a, _] = inputs[..] {
                        factor *= a[i];
                    }
                    let want = factor * carry + got_second[j];
                    if whole[i] != want {
                        return Err(format!(
                            "{operation} of {first} and {second} steps ({inner} channels): step {t} of the second part is \
                             {}, expected {want}",
                            whole[i]
                        )
                        .into());
                    }
                }
            }
        }
    }
    Ok(())
}

/// Wherever the arrays begin, the results are the same to the last bit.
pub fn misaligned(backend: &dyn Backend) -> Checked {
    for operation in OPERATIONS {
        let arrays = operation.operator.inputs() + 1;
        let warp = rows::warp_items(operation.operator.inputs(), size_of::<f32>());
        let shapes: [&[usize]; 4] = [
            &[3, 37, 1],
            &[2, warp + 5, 1],
            &[2, columns::TILE + 5, 6],
            &[1, columns::TILE, 2 * columns::channels(size_of::<f32>())],
        ];
        for shape in shapes {
            let case = Case::new(shape, 1);
            let data = Data::new(data::floats, operation, &case);
            let inputs = data.inputs();
            let call = case.call(operation, &inputs);
            let aligned = backend.run(&call, &[])?;
            for combination in 1..4_usize.pow(arrays as u32) {
                let offsets: Vec<_> = (0..arrays).map(|k| combination >> (2 * k) & 3).collect();
                same_bits(&backend.run(&call, &offsets)?, &aligned, || {
                    format!("{operation}, {case}, arrays {offsets:?} elements after a boundary")
                })?;
            }
        }
    }
    Ok(())
}

/// A reverse scan is the forward one of the reversed sequence.
fn reversed(backend: &dyn Backend) -> Checked {
    for forward in [Operation::CUMSUM, Operation::AFFINE_SCAN] {
        let reverse = Operation::new(forward.operator, Direction::Reverse);
        for case in small(forward.operator) {
            let data = Data::new(data::floats, forward, &case);
            let inputs = data.inputs();
            let call = case.call(forward, &inputs);
            let flip = |values: &[f32]| {
                // Reversing all of memory reverses the steps, and renames the sequences.
                let mut values = values.to_vec();
                values.reverse();
                values
            };
            let flipped: Vec<_> = inputs.iter().map(|input| flip(input)).collect();
            let flipped: Vec<_> = flipped.iter().map(Vec::as_slice).collect();
            let got = backend.run(&case.call(reverse, &flipped), &[])?;
            same_bits(&flip(&got), &backend.run(&call, &[])?, || {
                format!("{reverse}, {case}, flipped")
            })?;
        }
    }
    Ok(())
}

/// The results of a sequence do not depend on how many others there are.
fn batch_invariance(backend: &dyn Backend) -> Checked {
    for operation in OPERATIONS {
        for (outer, len, inner) in [
            (7, 33, 1),
            (5, 3000, 1),
            (5, 45, 3),
            // Several turns of narrow columns; of two channels, one.
            (3, 1500, 5),
            (
                2,
                3 * columns::TILE + 7,
                columns::channels(size_of::<f32>()) + 6,
            ),
        ] {
            let case = Case::new(&[outer, len, inner], 1);
            let data = Data::new(data::floats, operation, &case);
            let inputs = data.inputs();
            let together = backend.run(&case.call(operation, &inputs), &[])?;
            for o in 0..outer {
                let range = o * len * inner..(o + 1) * len * inner;
                let own: Vec<_> = inputs.iter().map(|input| &input[range.clone()]).collect();
                let alone = backend.run(&Case::new(&[len, inner], 0).call(operation, &own), &[])?;
                same_bits(&together[range], &alone, || {
                    format!("{operation}, {case}, outer {o} alone")
                })?;
            }
            // Two neighbouring channels without the others.
            if inner > 2 {
                let pair = |values: &[f32]| -> Vec<f32> {
                    values
                        .chunks(inner)
                        .flat_map(|step| [step[inner - 2], step[inner - 1]])
                        .collect()
                };
                let own: Vec<_> = inputs.iter().map(|input| pair(input)).collect();
                let own: Vec<_> = own.iter().map(Vec::as_slice).collect();
                let alone =
                    backend.run(&Case::new(&[outer, len, 2], 1).call(operation, &own), &[])?;
                same_bits(&pair(&together), &alone, || {
                    format!("{operation}, {case}, two channels alone")
                })?;
            }
        }
    }
    Ok(())
}

/// Compares results that are to be equal to the last bit.
pub fn same_bits(got: &[f32], want: &[f32], context: impl FnOnce() -> String) -> Checked {
    let differ = |(got, want): (&f32, &f32)| got.to_bits() != want.to_bits();
    match got.iter().zip(want).position(differ) {
        None if got.len() == want.len() => Ok(()),
        None => Err(format!(
            "{}: {} elements, expected {}",
            context(),
            got.len(),
            want.len()
        )
        .into()),
        Some(i) => Err(format!(
            "{}: element {i} is {:e}, expected {:e}",
            context(),
            got[i],
            want[i]
        )
        .into()),
    }
}
