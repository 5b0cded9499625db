//! The ground truth: each sequence in `f64`, one step after another.
//!
//! A tensor too large for that is checked by samples: the functions named `…_sequence` compute one sequence of it.

use crate::operation::Direction;
use crate::shape::Extents;

/// The elements of sequence (`outer`, `inner`), in the order in which a scan in `direction` meets them.
///
/// # Panics
/// If the sequence is not one of the tensor's.
pub fn steps(
    extents: Extents,
    direction: Direction,
    outer: usize,
    inner: usize,
) -> impl Iterator<Item = usize> {
    assert!(
        outer < extents.outer && inner < extents.inner,
        "sequence ({outer}, {inner}) is not in {extents:?}"
    );
    (0..extents.len).map(move |t| {
        let t = match direction {
            Direction::Forward => t,
            Direction::Reverse => extents.len - 1 - t,
        };
        (outer * extents.len + t) * extents.inner + inner
    })
}

/// The cumulative sum of sequence (`outer`, `inner`) of `x`, from its first step to its last.
///
/// # Panics
/// If the sequence is not one of the tensor's, or `x` has not as many elements as `extents`.
pub fn cumsum_sequence<T: Copy + Into<f64>>(
    x: &[T],
    extents: Extents,
    direction: Direction,
    outer: usize,
    inner: usize,
) -> Vec<f64> {
    assert_eq!(x.len(), extents.elements(), "x and {extents:?}");
    let mut sum = -0.0; // what changes nothing when added, not even −0.0
    sequence(extents, direction, outer, inner, |index| {
        sum += x[index].into();
        sum
    })
}

/// The affine scan of sequence (`outer`, `inner`) of `a` and `b`, from its first step to its last.
///
/// # Panics
/// If the sequence is not one of the tensor's, or an input has not as many elements as `extents`.
pub fn affine_scan_sequence<T: Copy + Into<f64>>(
    a: &[T],
    b: &[T],
    extents: Extents,
    direction: Direction,
    outer: usize,
    inner: usize,
) -> Vec<f64> {
    assert_eq!(a.len(), extents.elements(), "a and {extents:?}");
    assert_eq!(b.len(), extents.elements(), "b and {extents:?}");
    let mut state: Option<f64> = None;
    sequence(extents, direction, outer, inner, |index| {
        let h = match state {
            None => b[index].into(),
            Some(h) => a[index].into() * h + b[index].into(),
        };
        state = Some(h);
        h
    })
}

/// The cumulative sum of all of `x`.
///
/// # Panics
/// If `x` has not as many elements as `extents`.
pub fn cumsum_f64<T: Copy + Into<f64>>(
    x: &[T],
    extents: Extents,
    direction: Direction,
) -> Vec<f64> {
    tensor(extents, |outer, inner| {
        cumsum_sequence(x, extents, direction, outer, inner)
    })
}

/// The affine scan of all of `a` and `b`.
///
/// # Panics
/// If an input has not as many elements as `extents`.
pub fn affine_scan_f64<T: Copy + Into<f64>>(
    a: &[T],
    b: &[T],
    extents: Extents,
    direction: Direction,
) -> Vec<f64> {
    tensor(extents, |outer, inner| {
        affine_scan_sequence(a, b, extents, direction, outer, inner)
    })
}

/// What `step` gives for each element of a sequence, in memory order though met in the order of `direction`.
fn sequence(
    extents: Extents,
    direction: Direction,
    outer: usize,
    inner: usize,
    step: impl FnMut(usize) -> f64,
) -> Vec<f64> {
    let mut values: Vec<f64> = steps(extents, direction, outer, inner).map(step).collect();
    if direction == Direction::Reverse {
        values.reverse();
    }
    values
}

fn tensor(extents: Extents, sequence: impl Fn(usize, usize) -> Vec<f64>) -> Vec<f64> {
    let mut out = vec![0.0; extents.elements()];
    for outer in 0..extents.outer {
        for inner in 0..extents.inner {
            for (index, value) in
                steps(extents, Direction::Forward, outer, inner).zip(sequence(outer, inner))
            {
                out[index] = value;
            }
        }
    }
    out
}
