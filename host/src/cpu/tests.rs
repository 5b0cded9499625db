//! What the case list of the integration tests does not reach.

use super::*;
use crate::layout::layout;
use crate::reference;

/// Steps in a chunk of `f32`, where so many channels are cut.
fn chunk(inner: usize) -> usize {
    CHUNK_BYTES / size_of::<f32>() / inner
}

/// Shapes around the sizes that decide how the work is cut.
fn shapes() -> Vec<[usize; 3]> {
    let mut shapes = Vec::new();
    for len in [
        1,
        2,
        TILE - 1,
        TILE,
        3 * TILE + 7,
        BLOCK,
        BLOCK + 1,
        2 * BLOCK - TILE,
    ] {
        for (outer, inner) in [(1, 1), (LANES + 1, 1), (1, 2), (1, 65), (2, 3)] {
            shapes.push([outer, len, inner]);
        }
    }
    for inner in [1, 2, 65, 1000] {
        for len in [
            2 * chunk(inner) - 1,
            2 * chunk(inner),
            7 * chunk(inner) + 2 * TILE + 3,
        ] {
            shapes.push([1, len, inner]);
        }
    }
    shapes.push([3, 2 * chunk(1) + 5, 1]);
    shapes.push([ENOUGH_TASKS + 3, 2 * BLOCK + 1, 1]);
    shapes.push([2, 9, 3 * WIDEST_STRIP + 5]);
    shapes.push([2, 3 * chunk(WIDEST_STRIP) + 1, WIDEST_STRIP + 5]);
    // Past the caches, in lines that begin where they like.
    shapes.push([STREAMED_BYTES / size_of::<f32>() / 1001 + 1, 1001, 1]);
    shapes.push([1, STREAMED_BYTES / size_of::<f32>() / 30 + 1, 30]);
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
    let shape = [9 * chunk(3) + 5, 3];
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

/// The elements of a tensor where a layout has them; elsewhere there are NaNs.
fn scattered(dense: &[f32], layout: Layout, [outer, len, inner]: [usize; 3]) -> Vec<f32> {
    let at = |index: usize| {
        let (step, i) = (index / inner, index % inner);
        layout.at(step / len, step % len, i)
    };
    let end = (0..outer * len * inner).map(at).max().unwrap_or(0) + 1;
    let mut array = vec![f32::NAN; end];
    for (index, &value) in dense.iter().enumerate() {
        array[at(index)] = value;
    }
    array
}

/// With every option at once, the work is cut in each way, also into waves of chunks.
#[test]
fn options_hold_across_every_cut() {
    let pools = [1, 3].map(|threads| Cpu::with_threads(threads).expect("threads"));
    for [outer, len, inner] in [
        [1, 4 * chunk(1) + 7, 1],
        [3, 5 * BLOCK, 1],
        [1, 5 * chunk(2) + 1, 2],
        [1, 3 * chunk(257) + 5, 257],
        [2, 4 * chunk(65), 65],
        [ENOUGH_TASKS * LANES, 40, 1],
    ] {
        let shape = [outer, len, inner];
        let count = shape.iter().product();
        let (a, b, dh) = (values(count, 1), values(count, 3), values(count, 4));
        let boundaries = [0, 3, 3, len / 8, len / 8 + 5, len, len];
        let boundaries = (outer == 1).then_some(&boundaries[..]);
        let states = inner * boundaries.map_or(outer, |boundaries| boundaries.len() - 1);
        let (initial, d_final) = (values(states, 2), values(states, 0));
        let reset: Vec<bool> = (0..outer * len).map(|step| step % 1999 == 1234).collect();
        for operation in [Operation::AFFINE_SCAN, Operation::REVERSE_AFFINE_SCAN] {
            let extents = crate::extents::<f32>(operation, &shape, 1).expect("a shape");
            let scan_options = || {
                let options = Options::new().exclusive().initial(&initial).reset(&reset);
                match boundaries {
                    Some(boundaries) => options.boundaries(boundaries),
                    None => options,
                }
            };
            let backward = || {
                let options = BackwardOptions::new().initial(&initial).reset(&reset);
                match boundaries {
                    Some(boundaries) => options.boundaries(boundaries),
                    None => options,
                }
                .d_final(&d_final)
            };
            let exact = |got: &[f32]| got.iter().map(|&x| x.into()).collect::<Vec<f64>>();
            let inputs: [&[f32]; 2] = [&a, &b];
            let want = reference::scan(operation, &inputs, extents, &scan_options());
            // Any values do for h.
            let with_h: [&[f32]; 3] = [&a, &b, &dh];
            // The same tensors, each in another layout: the other way round, in Fortran order, and with gaps.
            let (l, i) = (len as isize, inner as isize);
            let layouts = [
                layout(count - 1, -l * i, -i, -1),
                layout(0, 1, outer as isize, outer as isize * l),
                layout(3, (l + 1) * (i + 2), i + 2, 1),
            ];
            let arrays: Vec<Vec<f32>> = layouts
                .iter()
                .zip(with_h)
                .map(|(&layout, dense)| scattered(dense, layout, shape))
                .collect();
            let arrays: [&[f32]; 3] = std::array::from_fn(|k| &arrays[k][..]);
            let gradients =
                reference::affine_scan_backward(operation.direction, with_h, extents, &backward());
            for cpu in &pools {
                let context = format!("{operation} of {shape:?} on {} threads", cpu.threads());
                let mut last = vec![f32::NAN; states];
                let options = scan_options().final_state(&mut last);
                let got = cpu.scan_with(operation, &inputs, &shape, 1, options);
                assert!(exact(&got.expect("it scans")) == want.out, "{context}");
                assert!(exact(&last) == want.final_state, "{context}");

                let options = scan_options().layouts(&layouts[..2]);
                let got = cpu.scan_with(operation, &arrays[..2], &shape, 1, options);
                assert!(
                    exact(&got.expect("it scans")) == want.out,
                    "strided, {context}"
                );

                let mut d_initial = vec![f32::NAN; states];
                let options = backward().d_initial(&mut d_initial);
                let direction = operation.direction;
                let got = cpu.affine_scan_backward(direction, with_h, &shape, 1, options);
                let [da, db] = got.expect("it scans");
                assert!(exact(&da) == gradients.da, "da, {context}");
                assert!(exact(&db) == gradients.db, "db, {context}");
                assert!(exact(&d_initial) == gradients.d_initial, "{context}");

                let options = backward().layouts(&layouts);
                let got = cpu.affine_scan_backward(direction, arrays, &shape, 1, options);
                let [da, db] = got.expect("it scans");
                assert!(exact(&da) == gradients.da, "da, strided, {context}");
                assert!(exact(&db) == gradients.db, "db, strided, {context}");
            }
        }
    }
}

/// An overflow of a composition is found, also where a reset hides it from the end of its chunk.
#[test]
fn a_reset_does_not_hide_a_composition_that_overflows() {
    for inner in [1, 2] {
        let chunk = chunk(inner);
        let len = 8 * chunk;
        let count = len * inner;
        // Twice, the product of gates overflows, but the states are 0 until the chunk after.
        let mut a = vec![1.0_f32; count];
        let mut b = vec![0.0_f32; count];
        for step in [chunk + 3, chunk + 4, 4 * chunk + 3, 4 * chunk + 4] {
            a[step * inner..(step + 1) * inner].fill(1e30);
        }
        b[(2 * chunk + 5) * inner..(2 * chunk + 6) * inner].fill(1.0);
        let reset: Vec<bool> = (0..len).map(|step| step == 5 * chunk + 100).collect();
        assert_serial(&a, &b, inner, Some(&reset));
    }
}

/// A sum overflows in serial order alone, or in composing alone: in a tile, a chunk, the last chunk.
#[test]
fn overflows_are_those_of_the_serial_order() {
    for inner in [1, 3] {
        let chunk = chunk(inner);
        let len = 9 * chunk + 77;
        let a = vec![1.0_f32; len * inner];
        for overflows in [false, true] {
            for start in [20, 2 * chunk + 5, 4 * chunk - 1, 9 * chunk + 3] {
                let mut b = vec![0.0_f32; len * inner];
                // With −3e38 before it, 3e38 + 3e38 does not overflow; with 3e38 before −3e38, it does.
                let values = if overflows {
                    [2e38, 3e38, -3e38]
                } else {
                    [-3e38, 3e38, 3e38]
                };
                for (step, value) in [start, start + 6, start + 7].into_iter().zip(values) {
                    b[step * inner] = value;
                }
                let reset: Vec<bool> = (0..len).map(|step| step == 7 * chunk + 9).collect();
                for reset in [None, Some(&reset[..])] {
                    assert_serial(&a, &b, inner, reset);
                }
            }
        }
    }
}

/// That an affine scan along the first of two axes gives what the serial recurrence does, on several numbers of threads.
fn assert_serial(a: &[f32], b: &[f32], inner: usize, reset: Option<&[bool]>) {
    let len = b.len() / inner;
    let mut want = vec![0.0_f32; b.len()];
    for index in 0..b.len() {
        let restarts = index < inner || reset.is_some_and(|reset| reset[index / inner]);
        want[index] = if restarts {
            b[index]
        } else {
            a[index] * want[index - inner] + b[index]
        };
    }
    for threads in [1, 3] {
        let mut last = vec![0.0; inner];
        let mut options = Options::new().final_state(&mut last);
        if let Some(reset) = reset {
            options = options.reset(reset);
        }
        let got = Cpu::with_threads(threads)
            .expect("threads")
            .scan_with(Operation::AFFINE_SCAN, &[a, b], &[len, inner], 0, options)
            .expect("it scans");
        let same = |(got, want): (&f32, &f32)| got == want || got.is_nan() && want.is_nan();
        let wrong = got.iter().zip(&want).position(|pair| !same(pair));
        assert_eq!(wrong, None, "inner {inner}, {threads} threads");
        assert!(last.iter().zip(&want[b.len() - inner..]).all(same));
    }
}
