//! What the case list of the integration tests does not reach.

use super::*;
use crate::reference;

/// Shapes around the sizes that decide how the work is cut.
fn shapes() -> Vec<[usize; 3]> {
    let mut shapes = Vec::new();
    for len in [
        1,
        2,
        CHUNK - 1,
        2 * CHUNK - 1,
        2 * CHUNK,
        LANES * CHUNK + 1,
        20 * CHUNK + 7,
    ] {
        for (outer, inner) in [
            (1, 1),
            (LANES - 1, 1),
            (LANES, 1),
            (LANES + 1, 1),
            (1, 2),
            (1, 65),
            (2, 3),
        ] {
            shapes.push([outer, len, inner]);
        }
    }
    shapes.push([ENOUGH_TASKS * LANES + 3, 2 * CHUNK + 1, 1]);
    shapes.push([2, 9, 3 * WIDEST_STRIP + 5]);
    shapes.push([1, WAVE / CHUNK + 3 * CHUNK, 257]);
    shapes
}

fn values(count: usize, seed: usize) -> Vec<f32> {
    (0..count)
        .map(|i| [1.0, -1.0, 0.0, 1.0, -1.0][(i * 7 + i / 5 + seed) % 5])
        .collect()
}

#[test]
fn every_way_of_cutting_is_exact_and_the_same_for_any_number_of_threads() {
    let pools = [1, 3].map(|threads| Cpu::with_threads(threads).expect("threads"));
    for shape in shapes() {
        let count = shape.iter().product();
        let (a, b) = (values(count, 1), values(count, 3));
        for operation in [
            Operation::CUMSUM,
            Operation::REVERSE_CUMSUM,
            Operation::AFFINE_SCAN,
            Operation::REVERSE_AFFINE_SCAN,
        ] {
            let inputs: &[&[f32]] = match operation.operator {
                Operator::Cumsum => &[&b],
                Operator::AffineScan => &[&a, &b],
            };
            let extents = crate::extents::<f32>(operation, &shape, 1).expect("a shape");
            let expected = match *inputs {
                [x] => reference::cumsum_f64(x, extents, operation.direction),
                [a, b] => reference::affine_scan_f64(a, b, extents, operation.direction),
                _ => unreachable!("one input or two"),
            };
            for cpu in &pools {
                let got = cpu.scan(operation, inputs, &shape, 1).expect("it scans");
                let wrong = got
                    .iter()
                    .zip(&expected)
                    .position(|(&got, &want)| f64::from(got) != want);
                assert_eq!(
                    wrong,
                    None,
                    "{operation} of {shape:?} on {} threads",
                    cpu.threads()
                );
            }
        }
    }
}

#[test]
fn what_is_not_finite_leaves_other_channels_as_they_are() {
    let cpu = Cpu::new();
    let shape = [9 * CHUNK + 5, 3];
    let count = shape.iter().product();
    let x: Vec<f32> = (0..count).map(|i| (i % 97) as f32 * 0.37 - 15.0).collect();
    let mut poisoned = x.clone();
    poisoned[count - 2] = f32::INFINITY;
    let [clean, poisoned] = [x, poisoned].map(|x| cpu.cumsum(&x, &shape, 0).expect("it scans"));
    for (index, (clean, poisoned)) in clean.iter().zip(&poisoned).enumerate() {
        if index % 3 != 1 {
            assert_eq!(clean.to_bits(), poisoned.to_bits(), "element {index}");
        }
    }
    assert_eq!(poisoned[count - 2], f32::INFINITY);
    assert!(poisoned[count - 5].is_finite());
}
