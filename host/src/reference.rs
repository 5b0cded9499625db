//! The ground truth: each sequence in [`Element::Exact`], one step after another.
//!
//! [`scan`] and [`affine_scan_backward`] have every option; the functions named `…_f64` are plain scans.
//!
//! A tensor too large for that is checked by samples: the functions named `…_sequence` compute one sequence of it.

use crate::element::Element;
use crate::element::sealed::Arithmetic;
use crate::layout::Layout;
use crate::operation::{Direction, Operation};
use crate::options::{BackwardOptions, Inclusion, Options};
use crate::shape::Extents;
use std::borrow::Cow;
use std::ops::Range;

/// What a scan gives.
#[derive(Clone, PartialEq, Debug)]
pub struct Scanned<E> {
    /// The result.
    pub out: Vec<E>,
    /// The state after the last step of each sequence.
    pub final_state: Vec<E>,
}

/// What the gradient of an affine scan gives.
#[derive(Clone, PartialEq, Debug)]
pub struct Gradients<E> {
    /// That of the factors.
    pub da: Vec<E>,
    /// That of the terms.
    pub db: Vec<E>,
    /// That of the initial states.
    pub d_initial: Vec<E>,
}

/// The steps of each row: what is between boundaries, or the axis at each outer index.
fn rows(extents: Extents, boundaries: Option<&[usize]>) -> Vec<Range<usize>> {
    match boundaries {
        Some(boundaries) => boundaries.windows(2).map(|ends| ends[0]..ends[1]).collect(),
        None => (0..extents.outer)
            .map(|row| row * extents.len..(row + 1) * extents.len)
            .collect(),
    }
}

/// An input, row-major.
fn row_major<'a, T: Copy>(
    input: &'a [T],
    layout: Option<Layout>,
    Extents { outer, len, inner }: Extents,
) -> Cow<'a, [T]> {
    let Some(layout) = layout else {
        return input.into();
    };
    let steps = (0..outer).flat_map(|o| (0..len).map(move |t| (o, t)));
    let elements = steps.flat_map(|(o, t)| (0..inner).map(move |i| (o, t, i)));
    elements
        .map(|(o, t, i)| input[layout.at(o, t, i)])
        .collect()
}

fn in_order(mut steps: Range<usize>, direction: Direction) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || match direction {
        Direction::Forward => steps.next(),
        Direction::Reverse => steps.next_back(),
    })
}

/// The scan of `[x]` or `[a, b]` with options; `final_state` is not written, but returned.
///
/// # Panics
/// If the arguments are not such that [`scan_with`](crate::Engine::scan_with) takes them.
pub fn scan<T: Element>(
    operation: Operation,
    inputs: &[&[T]],
    extents: Extents,
    options: &Options<'_, T>,
) -> Scanned<T::Exact> {
    let inner = extents.inner;
    let layout = |k: usize| options.layouts.map(|layouts| layouts[k]);
    let inputs: Vec<_> = (0..)
        .zip(inputs)
        .map(|(k, input)| row_major(input, layout(k), extents))
        .collect();
    let mut out = vec![T::Exact::default(); extents.elements()];
    let mut final_state = Vec::new();
    for (row, steps) in rows(extents, options.boundaries).into_iter().enumerate() {
        for channel in 0..inner {
            let initial = options
                .initial
                .map(|states| states[row * inner + channel].exact());
            let mut state = initial;
            for step in in_order(steps.clone(), operation.direction) {
                if options.reset.is_some_and(|reset| reset[step]) {
                    state = None;
                }
                let index = step * inner + channel;
                let after = match (&inputs[..], state) {
                    ([x], Some(y)) => y.plus(x[index].exact()),
                    ([a, b], Some(h)) => a[index].exact().times(h).plus(b[index].exact()),
                    ([x] | [_, x], None) => x[index].exact(),
                    _ => panic!("one input or two, got {}", inputs.len()),
                };
                out[index] = match options.inclusion {
                    Inclusion::Inclusive => after,
                    Inclusion::Exclusive => state.unwrap_or_default(),
                };
                state = Some(after);
            }
            final_state.push(state.unwrap_or_default());
        }
    }
    Scanned { out, final_state }
}

/// The gradient of an affine scan in `direction`, from `[a, h, dh]`, with options; `d_initial` is not written, but returned.
///
/// # Panics
/// If the arguments are not such that [`affine_scan_backward`](crate::Engine::affine_scan_backward) takes them.
pub fn affine_scan_backward<T: Element>(
    direction: Direction,
    inputs: [&[T]; 3],
    extents: Extents,
    options: &BackwardOptions<'_, T>,
) -> Gradients<T::Exact> {
    let inner = extents.inner;
    let layout = |k: usize| options.layouts.map(|layouts| layouts[k]);
    let [a, h, dh] = std::array::from_fn(|k| row_major(inputs[k], layout(k), extents));
    let zero = T::Exact::default();
    let mut da = vec![zero; extents.elements()];
    let mut db = da.clone();
    let mut d_initial = Vec::new();
    for (row, steps) in rows(extents, options.boundaries).into_iter().enumerate() {
        let steps: Vec<_> = in_order(steps, direction).collect();
        for channel in 0..inner {
            let state = row * inner + channel;
            let initial = options.initial.map(|initial| initial[state].exact());
            // The gradient of the state before the step that comes next, which is one step earlier.
            let mut d_state = options
                .d_final
                .map_or(zero, |d_final| d_final[state].exact());
            for (t, &step) in steps.iter().enumerate().rev() {
                let index = step * inner + channel;
                let before = match t.checked_sub(1) {
                    _ if options.reset.is_some_and(|reset| reset[step]) => None,
                    Some(before) => Some(h[steps[before] * inner + channel].exact()),
                    None => initial,
                };
                let g = dh[index].exact().plus(d_state);
                db[index] = g;
                (da[index], d_state) = match before {
                    Some(before) => (g.times(before), a[index].exact().times(g)),
                    None => (zero, zero),
                };
            }
            d_initial.push(initial.map_or(zero, |_| d_state));
        }
    }
    Gradients { da, db, d_initial }
}

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
