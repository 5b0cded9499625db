//! Scans with options, of every type of elements, and gradients: against the reference.
//!
//! What is random here needs no rounding but the one of the result: gates of magnitude 0 or 1, integers, and here and there
//! an infinity or a NaN. So everything is compared exactly.

use super::{Checked, Completion, Failed, OPERATIONS, Trial};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use ptxscan::half::{bf16, f16};
use ptxscan::num_complex::Complex;
use ptxscan::{
    BackwardOptions, Direction, Element, Engine, Error, Extents, Inclusion, Layout, Operation,
    Operator, Options, reference,
};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::fmt::Debug;

/// An engine, or why there is none.
pub type GetEngine = fn() -> Result<&'static Engine, String>;

/// What the tests need of a type of elements.
pub trait Tested: Element {
    /// An integer, times what makes sums of integers wrap around.
    fn integer(n: i32) -> Self;
    /// A gate of magnitude 0 or 1.
    fn gate(rng: &mut StdRng) -> Self;
    /// An infinity or a NaN, if there are such.
    fn poison(rng: &mut StdRng) -> Option<Self>;
    /// What the reference gives, rounded once.
    fn round(exact: Self::Exact) -> Self;
    /// Whether they are equal; a NaN is equal to any other.
    fn same(self, other: Self) -> bool;
}

fn sign(rng: &mut StdRng) -> f32 {
    [1.0, -1.0, 1.0, -1.0, 1.0, -1.0, 1.0, 0.0][rng.random_range(0..8)]
}

fn not_finite(rng: &mut StdRng) -> f32 {
    [f32::INFINITY, f32::NEG_INFINITY, f32::NAN][rng.random_range(0..3)]
}

macro_rules! floats {
    ($($type:ty: $from:expr, $round:expr;)*) => { $(
        impl Tested for $type {
            fn integer(n: i32) -> Self {
                ($from)(n as f32)
            }

            fn gate(rng: &mut StdRng) -> Self {
                ($from)(sign(rng))
            }

            fn poison(rng: &mut StdRng) -> Option<Self> {
                Some(($from)(not_finite(rng)))
            }

            fn round(exact: f64) -> Self {
                ($round)(exact)
            }

            fn same(self, other: Self) -> bool {
                self == other || self.is_nan() && other.is_nan()
            }
        }
    )* };
}
floats! {
    f32: |x| x, |x| x as f32;
    f64: f64::from, |x| x;
    f16: f16::from_f32, f16::from_f64;
    bf16: bf16::from_f32, bf16::from_f64;
}

macro_rules! integers {
    ($($type:ty: $factor:literal;)*) => { $(
        impl Tested for $type {
            fn integer(n: i32) -> Self {
                <$type>::from(n).wrapping_mul($factor)
            }

            fn gate(_: &mut StdRng) -> Self {
                1
            }

            fn poison(_: &mut StdRng) -> Option<Self> {
                None
            }

            fn round(exact: i64) -> Self {
                exact as Self
            }

            fn same(self, other: Self) -> bool {
                self == other
            }
        }
    )* };
}
integers! {
    i32: 0x3333_3333;
    i64: 0x3333_3333_3333_3333;
}

impl Tested for Complex<f32> {
    fn integer(n: i32) -> Self {
        Complex::new(n as f32, (n % 3) as f32)
    }

    fn gate(rng: &mut StdRng) -> Self {
        let sign = sign(rng);
        if rng.random() {
            Complex::new(sign, 0.0)
        } else {
            Complex::new(0.0, sign)
        }
    }

    fn poison(rng: &mut StdRng) -> Option<Self> {
        Some(Complex::new(not_finite(rng), 1.0))
    }

    fn round(exact: Complex<f64>) -> Self {
        Complex::new(exact.re as f32, exact.im as f32)
    }

    fn same(self, other: Self) -> bool {
        self.re.same(other.re) && self.im.same(other.im)
    }
}

/// A scan with options, on random data.
#[derive(Clone, Debug)]
struct Random {
    operation: Operation,
    extents: Extents,
    inclusion: Inclusion,
    initial: bool,
    /// How often there is one, if at all.
    reset: Option<f64>,
    packed: bool,
    poisoned: bool,
    seed: u64,
}

/// The shapes reach each way in which the CPU cuts the work.
fn randoms() -> impl Strategy<Value = Random> {
    let len = || prop_oneof![1 => Just(0_usize), 4 => 1..40_usize, 2 => 1000..1600_usize];
    let rows = (prop_oneof![0..20_usize, 120..140_usize], len(), Just(1));
    let narrow = (0..4_usize, len(), 2..7_usize);
    let wide = (
        1..3_usize,
        0..60_usize,
        prop_oneof![Just(0_usize), 30..200_usize],
    );
    let long = (Just(1), 1000..9000_usize, 1..4_usize);
    let extents = prop_oneof![3 => rows, 3 => narrow, 2 => wide, 2 => long]
        .prop_map(|(outer, len, inner)| Extents { outer, len, inner });
    let rate = prop_oneof![Just(0.5), Just(0.05), Just(0.001)];
    (
        prop::sample::select(OPERATIONS.to_vec()),
        extents,
        prop::sample::select(vec![Inclusion::Inclusive, Inclusion::Exclusive]),
        any::<bool>(),
        prop::option::of(rate),
        any::<bool>(),
        prop::bool::weighted(0.3),
        any::<u64>(),
    )
        .prop_map(
            |(operation, extents, inclusion, initial, reset, packed, poisoned, seed)| Random {
                operation,
                extents: if packed {
                    Extents {
                        outer: 1,
                        ..extents
                    }
                } else {
                    extents
                },
                inclusion,
                initial,
                reset,
                packed,
                poisoned,
                seed,
            },
        )
}

/// The arrays of a call.
struct Arrays<T: Element> {
    /// Row-major.
    inputs: Vec<Vec<T>>,
    initial: Option<Vec<T::State>>,
    /// For gradients.
    d_final: Option<Vec<T::State>>,
    /// How many states there are.
    states: usize,
    reset: Option<Vec<bool>>,
    boundaries: Option<Vec<usize>>,
}

impl Random {
    fn arrays<T: Tested<State: Tested>>(&self) -> Arrays<T> {
        let rng = &mut StdRng::seed_from_u64(self.seed);
        let Extents { outer, len, inner } = self.extents;
        let boundaries = self.packed.then(|| boundaries(len, rng));
        let rows = boundaries
            .as_ref()
            .map_or(outer, |boundaries| boundaries.len() - 1);
        let mut element = |kind: usize| match T::poison(rng) {
            Some(poison) if self.poisoned && rng.random_bool(0.002) => poison,
            _ if kind == 0 => T::gate(rng),
            _ => T::integer(rng.random_range(-8..=8)),
        };
        let count = self.extents.elements();
        let mut inputs: Vec<Vec<T>> = (0..self.operation.operator.inputs())
            .rev()
            .map(|kind| (0..count).map(|_| element(1 - kind)).collect())
            .collect();
        let mut states = || -> Vec<T::State> {
            (0..rows * inner)
                .map(|_| T::State::integer(rng.random_range(-8..=8)))
                .collect()
        };
        let initial = self.initial.then(&mut states);
        let d_final = (!self.seed.is_multiple_of(4)).then(&mut states);
        let reset: Option<Vec<bool>> = self
            .reset
            .map(|rate| (0..outer * len).map(|_| rng.random_bool(rate)).collect());
        // At a reset, the gate is not used.
        if let ([a, _], Some(reset)) = (&mut inputs[..], &reset) {
            for (gates, _) in a
                .chunks_mut(inner.max(1))
                .zip(reset)
                .filter(|(_, reset)| **reset)
            {
                gates.fill_with(|| T::poison(rng).unwrap_or_default());
            }
        }
        Arrays {
            inputs,
            initial,
            d_final,
            states: rows * inner,
            reset,
            boundaries,
        }
    }

    fn shape(&self) -> [usize; 3] {
        [self.extents.outer, self.extents.len, self.extents.inner]
    }
}

/// Any layout of a tensor: its axes in any order, with gaps between them, some reversed, some repeated; and how many elements it takes.
pub fn any_layout(extents: Extents, rng: &mut StdRng) -> (Layout, usize) {
    let Extents { outer, len, inner } = extents;
    let extents = [outer, len, inner];
    // From the innermost axis out.
    let mut order = [2, 1, 0];
    // Those of a slice of a larger tensor are often vectors.
    let is_slice = rng.random_bool(0.3);
    let gap = if is_slice { 4 } else { 1 };
    if !is_slice {
        order.swap(0, rng.random_range(0..3));
        order.swap(1, rng.random_range(1..3));
    }
    let mut strides = [0_isize; 3];
    let mut offset = gap * rng.random_range(0..4);
    let (mut stride, mut last) = (1, offset);
    for (number, axis) in order.into_iter().enumerate() {
        if rng.random_bool(0.08) {
            continue;
        }
        if number > 0 || !is_slice {
            stride += gap * rng.random_range(0..3);
        }
        let way = extents[axis].saturating_sub(1) * stride;
        strides[axis] = stride as isize;
        last += way;
        if !is_slice && rng.random_bool(0.25) {
            strides[axis] = -strides[axis];
            offset += way;
        }
        stride *= extents[axis].max(1);
    }
    let [outer, len, inner] = strides;
    let layout = Layout {
        offset,
        outer,
        len,
        inner,
    };
    (layout, last + rng.random_range(1..4))
}

/// The element of step `t` of sequence `(o, i)`.
fn element(layout: Layout, o: usize, t: usize, i: usize) -> usize {
    let along = |index: usize, stride: isize| index as isize * stride;
    let sum = along(o, layout.outer) + along(t, layout.len) + along(i, layout.inner);
    layout
        .offset
        .checked_add_signed(sum)
        .expect("elements are in the array")
}

/// The places of a tensor's elements, in order.
fn places(Extents { outer, len, inner }: Extents) -> impl Iterator<Item = (usize, usize, usize)> {
    let steps = (0..outer).flat_map(move |o| (0..len).map(move |t| (o, t)));
    steps.flat_map(move |(o, t)| (0..inner).map(move |i| (o, t, i)))
}

/// Row-major tensors as layouts have them, and the layouts. Where those repeat an element, so do the tensors afterwards.
pub fn strided<T: Tested>(
    inputs: &mut [Vec<T>],
    extents: Extents,
    rng: &mut StdRng,
) -> (Vec<Vec<T>>, Vec<Layout>) {
    let strided = inputs.iter_mut().map(|input| {
        let (layout, elements) = any_layout(extents, rng);
        // What no layout names is not to be read.
        let unread = T::poison(rng).unwrap_or(T::integer(77));
        let mut array = vec![unread; elements];
        for ((o, t, i), &value) in places(extents).zip(&*input) {
            array[element(layout, o, t, i)] = value;
        }
        for ((o, t, i), value) in places(extents).zip(input) {
            *value = array[element(layout, o, t, i)];
        }
        (array, layout)
    });
    strided.unzip()
}

fn boundaries(len: usize, rng: &mut StdRng) -> Vec<usize> {
    let most = [2, 12, 40][rng.random_range(0..3)];
    let sequences = rng.random_range(1..=most);
    let mut boundaries: Vec<_> = (1..sequences).map(|_| rng.random_range(0..=len)).collect();
    boundaries.extend([0, len]);
    boundaries.sort();
    boundaries
}

impl<T: Element> Arrays<T> {
    fn inputs(&self) -> Vec<&[T]> {
        self.inputs.iter().map(Vec::as_slice).collect()
    }

    fn options(&self, inclusion: Inclusion) -> Options<'_, T> {
        let mut options = Options::new().inclusion(inclusion);
        if let Some(initial) = &self.initial {
            options = options.initial(initial);
        }
        if let Some(reset) = &self.reset {
            options = options.reset(reset);
        }
        if let Some(boundaries) = &self.boundaries {
            options = options.boundaries(boundaries);
        }
        options
    }

    fn backward_options(&self) -> BackwardOptions<'_, T> {
        let mut options = BackwardOptions::new();
        if let Some(d_final) = &self.d_final {
            options = options.d_final(d_final);
        }
        if let Some(initial) = &self.initial {
            options = options.initial(initial);
        }
        if let Some(reset) = &self.reset {
            options = options.reset(reset);
        }
        if let Some(boundaries) = &self.boundaries {
            options = options.boundaries(boundaries);
        }
        options
    }
}

fn compare<T: Tested>(what: &str, got: &[T], want: &[T::Exact]) -> Result<(), TestCaseError> {
    prop_assert_eq!(got.len(), want.len(), "{}", what);
    for (index, (&got, &want)) in got.iter().zip(want).enumerate() {
        let want = T::round(want);
        prop_assert!(
            got.same(want),
            "{} of {}: element {} is {:?}, expected {:?}",
            what,
            T::NAME,
            index,
            got,
            want
        );
    }
    Ok(())
}

fn run<S: Strategy>(
    strategy: S,
    cases: u32,
    test: impl Fn(S::Value) -> Result<(), TestCaseError>,
) -> Checked {
    let config = Config {
        failure_persistence: None,
        ..Config::with_cases(cases)
    };
    TestRunner::new(config)
        .run(&strategy, test)
        .map_err(|error| Failed::from(error.to_string()))
}

fn failed(error: Error) -> TestCaseError {
    TestCaseError::fail(error.to_string())
}

/// Inputs of any layouts, with any combination of options, give what row-major ones do.
fn any_layouts<T: Tested<State: Tested>>(engine: &Engine) -> Checked {
    scans::<T>(150, true, |scan| {
        let mut last = vec![T::State::integer(77); scan.states];
        let inclusion = [Inclusion::Inclusive, Inclusion::Exclusive][usize::from(scan.exclusive)];
        let mut options = Options::new().inclusion(inclusion).final_state(&mut last);
        if let Some(initial) = scan.initial {
            options = options.initial(initial);
        }
        if let Some(mask) = scan.mask {
            options = options.reset(mask);
        }
        if let Some(boundaries) = scan.boundaries {
            options = options.boundaries(boundaries);
        }
        if let Some(layouts) = scan.layouts {
            options = options.layouts(layouts);
        }
        let inputs: Vec<_> = scan.inputs.iter().map(Vec::as_slice).collect();
        let Extents { outer, len, inner } = scan.extents;
        let out = engine.scan_with(scan.operation, &inputs, &[outer, len, inner], 1, options)?;
        Ok(Some((out, last)))
    })
}

/// Any combination of options gives what the reference gives, and the reference's final states.
fn any_options<T: Tested<State: Tested>>(engine: &Engine) -> Checked {
    run(randoms(), 150, |random| {
        let operation = random.operation;
        let arrays = random.arrays::<T>();
        let states = arrays.states;
        let (inputs, shape) = (arrays.inputs(), random.shape());
        let mut last = vec![T::State::integer(77); states];
        let options = arrays.options(random.inclusion).final_state(&mut last);
        let got = engine.scan_with(operation, &inputs, &shape, 1, options);
        if operation.operator == Operator::AffineScan && !T::HAS_AFFINE_SCAN {
            let element = T::NAME;
            let expected = Err(Error::UnsupportedElement { operation, element });
            prop_assert_eq!(got, expected);
            return Ok(());
        }
        let got = got.map_err(failed)?;
        let options = arrays.options(random.inclusion);
        let want = reference::scan(operation, &inputs, random.extents, &options);
        compare(&operation.to_string(), &got, &want.out)?;
        compare("final_state", &last, &want.final_state)
    })
}

/// A scan that is to be carried out.
pub struct Scan<'a, T: Element> {
    pub operation: Operation,
    pub extents: Extents,
    pub exclusive: bool,
    pub inputs: &'a [Vec<T>],
    pub initial: Option<&'a [T::State]>,
    /// How many final states there are.
    pub states: usize,
    pub mask: Option<&'a [bool]>,
    pub boundaries: Option<&'a [usize]>,
    pub layouts: Option<&'a [Layout]>,
    pub seed: u64,
}

/// What a scan gives: the output and the final states.
pub type Scanned<T> = (Vec<T>, Vec<<T as Element>::State>);

/// Checks `scan` on so many random scans of elements of a type; it gives nothing where there is nothing to do.
/// Their inputs have layouts, if `is_strided`.
pub fn scans<T: Tested<State: Tested>>(
    cases: u32,
    is_strided: bool,
    scan: impl Fn(Scan<T>) -> Checked<Option<Scanned<T>>>,
) -> Checked {
    run(randoms(), cases, |random| {
        let operation = random.operation;
        if operation.operator == Operator::AffineScan && !T::HAS_AFFINE_SCAN {
            return Ok(());
        }
        let mut arrays = random.arrays::<T>();
        let rng = &mut StdRng::seed_from_u64(random.seed ^ 1);
        let strided = is_strided.then(|| strided(&mut arrays.inputs, random.extents, rng));
        let got = scan(Scan {
            operation,
            extents: random.extents,
            exclusive: random.inclusion == Inclusion::Exclusive,
            inputs: strided
                .as_ref()
                .map_or(&arrays.inputs, |(inputs, _)| inputs),
            layouts: strided.as_ref().map(|(_, layouts)| &layouts[..]),
            initial: arrays.initial.as_deref(),
            states: arrays.states,
            mask: arrays.reset.as_deref(),
            boundaries: arrays.boundaries.as_deref(),
            seed: random.seed,
        });
        let Some((out, last)) = got.map_err(|error| TestCaseError::fail(format!("{error:?}")))?
        else {
            return Ok(());
        };
        let (inputs, options) = (arrays.inputs(), arrays.options(random.inclusion));
        let want = reference::scan(operation, &inputs, random.extents, &options);
        compare(&operation.to_string(), &out, &want.out)?;
        compare("final_state", &last, &want.final_state)?;
        if let Some((inputs, layouts)) = &strided {
            let inputs: Vec<_> = inputs.iter().map(Vec::as_slice).collect();
            let options = arrays.options(random.inclusion).layouts(layouts);
            let strided = reference::scan(operation, &inputs, random.extents, &options);
            compare("the reference", &out, &strided.out)?;
        }
        Ok(())
    })
}

/// A gradient that is to be computed.
pub struct Gradient<'a, T: Element> {
    pub direction: Direction,
    pub extents: Extents,
    /// `[a, h, dh]`.
    pub inputs: [&'a [T]; 3],
    pub initial: Option<&'a [T::State]>,
    pub d_final: Option<&'a [T::State]>,
    /// Whether that of the initial states is asked for.
    pub has_d_initial: bool,
    /// How many states there are.
    pub states: usize,
    pub mask: Option<&'a [bool]>,
    pub boundaries: Option<&'a [usize]>,
    pub layouts: Option<&'a [Layout; 3]>,
    pub seed: u64,
}

/// What a gradient is: `[da, db]`, and that of the initial states, or nothing.
pub type Gradients<T> = ([Vec<T>; 2], Vec<<T as Element>::State>);

/// Checks `gradient` on so many random gradients of elements of a type; it gives nothing where there is nothing to do.
/// Their inputs have layouts, if `is_strided`.
pub fn gradients<T: Tested<State: Tested>>(
    cases: u32,
    is_strided: bool,
    gradient: impl Fn(Gradient<T>) -> Checked<Option<Gradients<T>>>,
) -> Checked {
    run(randoms(), cases, |mut random| {
        let direction = random.operation.direction;
        random.operation = Operation::new(Operator::AffineScan, direction);
        let arrays = random.arrays::<T>();
        let inputs = arrays.inputs();
        let options = arrays.options(Inclusion::Inclusive);
        let h = reference::scan(random.operation, &inputs, random.extents, &options).out;
        let h: Vec<T> = h.into_iter().map(T::round).collect();
        let mut inputs = [inputs[0].to_vec(), h, inputs[1].to_vec()];
        let rng = &mut StdRng::seed_from_u64(random.seed ^ 1);
        let strided = is_strided.then(|| strided(&mut inputs, random.extents, rng));
        let layouts = strided.as_ref().map(|(_, layouts)| {
            let layouts: &[Layout; 3] = layouts[..].try_into().expect("three inputs");
            layouts
        });
        let inputs = inputs.each_ref().map(Vec::as_slice);
        let has_d_initial = !random.seed.is_multiple_of(3);
        let got = gradient(Gradient {
            direction,
            extents: random.extents,
            inputs: strided.as_ref().map_or(inputs, |(inputs, _)| {
                std::array::from_fn(|k| &inputs[k][..])
            }),
            layouts,
            initial: arrays.initial.as_deref(),
            d_final: arrays.d_final.as_deref(),
            has_d_initial,
            states: arrays.states,
            mask: arrays.reset.as_deref(),
            boundaries: arrays.boundaries.as_deref(),
            seed: random.seed,
        });
        let Some(([da, db], d_initial)) =
            got.map_err(|error| TestCaseError::fail(format!("{error:?}")))?
        else {
            return Ok(());
        };
        let options = arrays.backward_options();
        let want = reference::affine_scan_backward(direction, inputs, random.extents, &options);
        compare("da", &da, &want.da)?;
        compare("db", &db, &want.db)?;
        if let (Some((inputs, _)), Some(layouts)) = (&strided, layouts) {
            let inputs = std::array::from_fn(|k| &inputs[k][..]);
            let options = arrays.backward_options().layouts(layouts);
            let strided =
                reference::affine_scan_backward(direction, inputs, random.extents, &options);
            compare("da of the reference", &da, &strided.da)?;
        }
        if !has_d_initial {
            return Ok(());
        }
        compare("d_initial", &d_initial, &want.d_initial)
    })
}

/// The gradient with any combination of options is what the reference gives.
fn any_gradient<T: Tested<State: Tested>>(engine: &Engine) -> Checked {
    gradients::<T>(150, false, |gradient| gradient_of(engine, gradient))
}

/// That of inputs of any layouts is that of row-major ones.
fn any_layouts_gradient<T: Tested<State: Tested>>(engine: &Engine) -> Checked {
    gradients::<T>(150, true, |gradient| gradient_of(engine, gradient))
}

fn gradient_of<T: Tested<State: Tested>>(
    engine: &Engine,
    gradient: Gradient<'_, T>,
) -> Checked<Option<Gradients<T>>> {
    let Extents { outer, len, inner } = gradient.extents;
    let mut d_initial = vec![T::State::integer(77); gradient.states];
    let mut options = BackwardOptions::new();
    if let Some(initial) = gradient.initial {
        options = options.initial(initial);
    }
    if let Some(d_final) = gradient.d_final {
        options = options.d_final(d_final);
    }
    if gradient.has_d_initial {
        options = options.d_initial(&mut d_initial);
    }
    if let Some(mask) = gradient.mask {
        options = options.reset(mask);
    }
    if let Some(boundaries) = gradient.boundaries {
        options = options.boundaries(boundaries);
    }
    let (inputs, shape) = (gradient.inputs, [outer, len, inner]);
    if let Some(layouts) = gradient.layouts {
        options = options.layouts(layouts);
    }
    let out = engine.affine_scan_backward(gradient.direction, inputs, &shape, 1, options)?;
    Ok(Some((out, d_initial)))
}

/// Sequences that come in pieces, each from the final state of the one before, give what they give in one go.
fn pieces(engine: &Engine) -> Checked {
    run((randoms(), any::<u64>()), 150, |(mut random, seed)| {
        random.packed = false;
        random.extents.outer = 1;
        let Extents { len, inner, .. } = random.extents;
        let arrays = random.arrays::<f32>();
        let inputs = arrays.inputs();
        let (operation, inclusion) = (random.operation, random.inclusion);
        let mut whole_last = vec![77.0; inner];
        let options = arrays.options(inclusion).final_state(&mut whole_last);
        let whole = engine
            .scan_with(operation, &inputs, &random.shape(), 1, options)
            .map_err(failed)?;

        let boundaries = boundaries(len, &mut StdRng::seed_from_u64(seed));
        let mut pieces: Vec<_> = boundaries.windows(2).map(|ends| ends[0]..ends[1]).collect();
        if operation.direction == Direction::Reverse {
            pieces.reverse();
        }
        let mut joined = vec![77.0; len * inner];
        let mut carry = arrays.initial.clone();
        for piece in pieces.into_iter().filter(|piece| !piece.is_empty()) {
            let elements = piece.start * inner..piece.end * inner;
            let inputs: Vec<_> = inputs
                .iter()
                .map(|input| &input[elements.clone()])
                .collect();
            let mut last = vec![77.0; inner];
            let mut options = Options::new().inclusion(inclusion).final_state(&mut last);
            if let Some(carry) = &carry {
                options = options.initial(carry);
            }
            if let Some(reset) = &arrays.reset {
                options = options.reset(&reset[piece.clone()]);
            }
            let (shape, out) = ([piece.len(), inner], &mut joined[elements]);
            engine
                .scan_with_into(operation, &inputs, &shape, 0, options, out)
                .map_err(failed)?;
            carry = Some(last);
        }
        let exact = |values: &[f32]| {
            values
                .iter()
                .map(|&value| value.exact())
                .collect::<Vec<_>>()
        };
        compare("in pieces", &joined, &exact(&whole))?;
        compare(
            "the last state",
            &carry.unwrap_or(vec![0.0; inner]),
            &exact(&whole_last),
        )
    })
}

/// Ones in half precision: sums are not stuck where the next integer is not an element.
fn ones_in_halves(engine: &Engine) -> Checked {
    fn last<T: Element>(engine: &Engine, one: T) -> Checked<Vec<T>> {
        let x = vec![one; 5000 * 3];
        let row = engine.cumsum(&x[..5000], &[5000], 0)?;
        let columns = engine.cumsum(&x, &[5000, 3], 0)?;
        Ok(vec![row[4999], columns[14_999]])
    }
    assert_eq!(last(engine, f16::ONE)?, [f16::from_f32(5000.0); 2]);
    assert_eq!(last(engine, bf16::ONE)?, [bf16::from_f32(4992.0); 2]);
    Ok(())
}

/// Affine scans of 4096 steps in half precision, with gates that decay, are within a unit in the last place of the exact
/// result rounded.
fn decay_in_halves(engine: &Engine) -> Checked {
    fn check<T: Element<State = f32, Exact = f64>>(
        engine: &Engine,
        bits: fn(T) -> u16,
        round: fn(f64) -> T,
    ) -> Checked {
        for (inner, operation) in [
            (1, Operation::AFFINE_SCAN),
            (5, Operation::REVERSE_AFFINE_SCAN),
        ] {
            let rng = &mut StdRng::seed_from_u64(7);
            let mut random = |range: std::ops::Range<f32>| -> Vec<T> {
                (0..4096 * inner)
                    .map(|_| T::from_state(rng.random_range(range.clone())))
                    .collect()
            };
            // Terms of one sign: so there is no cancellation.
            let (a, b) = (random(0.5..0.999), random(0.1..1.0));
            let (inputs, shape) = ([&a[..], &b], [4096, inner]);
            let got = engine.scan(operation, &inputs, &shape, 0)?;
            let extents = ptxscan::extents::<T>(operation, &shape, 0)?;
            let want = reference::scan(operation, &inputs, extents, &Options::new()).out;
            for (index, (&got, want)) in got.iter().zip(want).enumerate() {
                let want = round(want);
                // Positive floats are in the order of their bits.
                if bits(got).abs_diff(bits(want)) > 1 {
                    return Err(format!(
                        "{operation} of {}: element {index} is {got:?}, expected {want:?}",
                        T::NAME
                    )
                    .into());
                }
            }
        }
        Ok(())
    }
    check::<f16>(engine, f16::to_bits, f16::from_f64)?;
    check::<bf16>(engine, bf16::to_bits, bf16::from_f64)
}

/// An initial state, for lengths that are no power of two.
fn initial_states(engine: &Engine) -> Checked {
    for operation in OPERATIONS {
        for len in [1, 3, 33, 1000, 4097] {
            for inner in [1, 3] {
                let x = vec![1.0_f32; len * inner];
                let a = vec![-1.0_f32; len * inner];
                let initial: Vec<f32> = (0..inner).map(|i| 5.0 + i as f32).collect();
                let inputs: &[&[f32]] = match operation.operator {
                    Operator::Cumsum => &[&x],
                    Operator::AffineScan => &[&a, &x],
                };
                let mut last = vec![0.0; inner];
                let options = Options::new().initial(&initial).final_state(&mut last);
                let got = engine.scan_with(operation, inputs, &[len, inner], 0, options)?;
                for (channel, &initial) in initial.iter().enumerate() {
                    let mut state = initial;
                    for t in 0..len {
                        state = match operation.operator {
                            Operator::Cumsum => state + 1.0,
                            Operator::AffineScan => 1.0 - state,
                        };
                        let step = match operation.direction {
                            Direction::Forward => t,
                            Direction::Reverse => len - 1 - t,
                        };
                        assert_eq!(
                            got[step * inner + channel],
                            state,
                            "{operation}, {len} steps"
                        );
                    }
                    assert_eq!(last[channel], state, "{operation}, {len} steps");
                }
            }
        }
    }
    Ok(())
}

/// Hand-written: what is used at the first step, at a reset, and of an empty sequence.
fn by_hand(engine: &Engine) -> Checked {
    const INF: f32 = f32::INFINITY;
    const NAN: f32 = f32::NAN;
    let affine = Operation::AFFINE_SCAN;
    // Without an initial state the first gate is not used, whatever it is; zeros are another thing.
    for gate in [INF, NAN] {
        let inputs: [&[f32]; 2] = [&[gate, 2.0], &[1.0, 1.0]];
        assert_eq!(
            engine.scan_with(affine, &inputs, &[2], 0, Options::new())?,
            [1.0, 3.0]
        );
        let options = Options::new().initial(&[0.0]);
        let got = engine.scan_with(affine, &inputs, &[2], 0, options)?;
        assert!(got.iter().all(|h| h.is_nan()), "{got:?}");
    }
    // A reset selects: nothing of an infinite state or gate comes through.
    let inputs: [&[f32]; 2] = [&[1.0, 1.0, NAN, 2.0], &[INF, 1.0, 5.0, 1.0]];
    let reset = [false, false, true, false];
    let options = || Options::new().reset(&reset);
    let got = engine.scan_with(affine, &inputs, &[4], 0, options())?;
    assert_eq!(got, [INF, INF, 5.0, 11.0]);
    let got = engine.scan_with(affine, &inputs, &[4], 0, options().exclusive())?;
    assert_eq!(got, [0.0, INF, 0.0, 5.0]);
    let reverse = Operation::REVERSE_CUMSUM;
    let got = engine.scan_with(reverse, &inputs[1..], &[4], 0, options())?;
    assert_eq!(got, [INF, 6.0, 5.0, 1.0]);

    // Empty sequences, at the start, in the middle and at the end.
    let x: Vec<f32> = (1..=18).map(|x| x as f32).collect();
    let boundaries = [0, 0, 5, 5, 9, 9];
    let initial: Vec<f32> = (0..10).map(|state| 100.0 * state as f32).collect();
    let mut last = [NAN; 10];
    let options = Options::new().boundaries(&boundaries);
    let options = options.initial(&initial).final_state(&mut last);
    let got = engine.scan_with(Operation::CUMSUM, &[&x], &[1, 9, 2], 1, options)?;
    assert_eq!(got[8..12], [225.0, 330.0, 611.0, 712.0]);
    assert_eq!(
        last,
        [
            0.0, 100.0, 225.0, 330.0, 400.0, 500.0, 656.0, 760.0, 800.0, 900.0
        ]
    );
    let mut last = [NAN; 10];
    let options = Options::new()
        .boundaries(&boundaries)
        .final_state(&mut last);
    engine.scan_with(Operation::CUMSUM, &[&x], &[9, 2], 0, options)?;
    assert_eq!(last, [0.0, 0.0, 25.0, 30.0, 0.0, 0.0, 56.0, 60.0, 0.0, 0.0]);

    // No steps, and one step, of an exclusive scan.
    let mut last = [NAN; 3];
    let options = Options::new()
        .exclusive()
        .initial(&[1.0, 2.0, 3.0])
        .final_state(&mut last);
    let empty: [&[f32]; 1] = [&[]];
    assert!(
        engine
            .scan_with(Operation::CUMSUM, &empty, &[3, 0], 1, options)?
            .is_empty()
    );
    assert_eq!(last, [1.0, 2.0, 3.0]);
    let options = Options::new().exclusive();
    assert_eq!(
        engine.scan_with(Operation::CUMSUM, &[&[7.0_f32]], &[1], 0, options)?,
        [0.0]
    );
    // More empty sequences than anyone could go through.
    let options = Options::new().exclusive();
    let shape = [1 << 60, 0];
    assert!(
        engine
            .scan_with(Operation::CUMSUM, &empty, &shape, 1, options)?
            .is_empty()
    );
    // No sequences.
    let options = Options::new().boundaries(&[0]).initial(&[]);
    assert!(
        engine
            .scan_with(Operation::CUMSUM, &empty, &[0], 0, options)?
            .is_empty()
    );
    Ok(())
}

/// The gradient is that of finite differences, in f64.
fn finite_differences(engine: &Engine) -> Checked {
    for direction in [Direction::Forward, Direction::Reverse] {
        for (len, inner) in [(1, 2), (7, 1), (33, 3)] {
            let operation = Operation::new(Operator::AffineScan, direction);
            let rng = &mut StdRng::seed_from_u64(len as u64);
            let count = len * inner;
            let mut random = |count: usize| -> Vec<f64> {
                (0..count).map(|_| rng.random_range(-1.0..1.0)).collect()
            };
            let reset: Vec<bool> = (0..len).map(|step| step % 10 == 6).collect();
            let (dh, d_final) = (random(count), random(inner));
            // a, b and the initial states, one after another.
            let parameters = random(2 * count + inner);
            let loss = |parameters: &[f64]| -> Result<(Vec<f64>, f64), Error> {
                let mut last = vec![0.0; inner];
                let options = Options::new().initial(&parameters[2 * count..]);
                let options = options.reset(&reset).final_state(&mut last);
                let inputs = [&parameters[..count], &parameters[count..2 * count]];
                let h = engine.scan_with(operation, &inputs, &[len, inner], 0, options)?;
                let dot = |x: &[f64], y: &[f64]| x.iter().zip(y).map(|(x, y)| x * y).sum::<f64>();
                let loss = dot(&h, &dh) + dot(&last, &d_final);
                Ok((h, loss))
            };
            let (h, _) = loss(&parameters)?;
            let mut d_initial = vec![0.0; inner];
            let options = BackwardOptions::new().initial(&parameters[2 * count..]);
            let options = options
                .reset(&reset)
                .d_final(&d_final)
                .d_initial(&mut d_initial);
            let inputs = [&parameters[..count], &h, &dh];
            let [da, db] =
                engine.affine_scan_backward(direction, inputs, &[len, inner], 0, options)?;
            let gradient = [da, db, d_initial].concat();
            for (index, &got) in gradient.iter().enumerate() {
                let moved = |by: f64| {
                    let mut moved = parameters.clone();
                    moved[index] += by;
                    loss(&moved).map(|(_, loss)| loss)
                };
                // The loss is linear in each parameter: only roundings, of some 100 terms, are far from it.
                let want = (moved(0.5)? - moved(-0.5)?) / 1.0;
                approx::assert_abs_diff_eq!(got, want, epsilon = 1e-12);
            }
        }
    }
    Ok(())
}

/// Arguments that do not fit, and what is said about them.
fn errors(engine: &Engine) -> Checked {
    fn message<T: Debug>(result: Result<T, Error>) -> String {
        result.expect_err("it does not fit").to_string()
    }
    let x = [1.0_f32; 12];
    let cumsum = |shape: &[usize], axis, options: Options<'_, f32>| {
        message(engine.scan_with(Operation::CUMSUM, &[&x], shape, axis, options))
    };
    let plain = Options::<f32>::new;
    assert_eq!(
        cumsum(&[2, 3, 2], 1, plain().initial(&[0.0; 3])),
        "cumsum: initial has 3 elements, expected 4 for shape [2, 3, 2]"
    );
    assert_eq!(
        cumsum(&[2, 3, 2], 1, plain().final_state(&mut [0.0; 5])),
        "cumsum: final_state has 5 elements, expected 4 for shape [2, 3, 2]"
    );
    assert_eq!(
        cumsum(&[2, 3, 2], -2, plain().reset(&[false; 12])),
        "cumsum: reset has 12 elements, expected 6 for shape [2, 3, 2]"
    );
    assert_eq!(
        cumsum(&[2, 3, 2], 1, plain().boundaries(&[0, 3])),
        "cumsum: boundaries need extents of 1 before the axis, got 2 in all"
    );
    let row = |boundaries: &[usize]| cumsum(&[1, 6, 2], 1, plain().boundaries(boundaries));
    assert_eq!(
        row(&[]),
        "cumsum: boundaries has 0 element(s), expected 2 or more"
    );
    assert_eq!(
        row(&[0]),
        "cumsum: boundaries has 1 element(s), expected 2 or more"
    );
    assert_eq!(row(&[1, 6]), "cumsum: boundaries[0] is 1, expected 0");
    assert_eq!(
        row(&[0, 4, 3, 6]),
        "cumsum: boundaries[2] is 3, expected 4 to 6"
    );
    assert_eq!(
        row(&[0, 7, 6]),
        "cumsum: boundaries[1] is 7, expected 0 to 6"
    );
    assert_eq!(row(&[0, 3, 5]), "cumsum: boundaries[2] is 5, expected 6");
    let packed = plain().boundaries(&[0, 2, 2, 6]);
    assert_eq!(
        cumsum(&[1, 6, 2], 1, packed.initial(&[0.0; 2])),
        "cumsum: initial has 2 elements, expected 6 for shape [1, 6, 2]"
    );
    let backward = |inputs: [&[f32]; 3], options: BackwardOptions<'_, f32>| {
        message(engine.affine_scan_backward(Direction::Reverse, inputs, &[3, 4], 0, options))
    };
    let plain = BackwardOptions::<f32>::new;
    assert_eq!(
        backward([&x, &x[..3], &x], plain()),
        "reverse_affine_scan: h has 3 elements, expected 12 for shape [3, 4]"
    );
    assert_eq!(
        backward([&x, &x, &x[..3]], plain()),
        "reverse_affine_scan: dh has 3 elements, expected 12 for shape [3, 4]"
    );
    assert_eq!(
        backward([&x; 3], plain().d_final(&[0.0])),
        "reverse_affine_scan: d_final has 1 elements, expected 4 for shape [3, 4]"
    );
    assert_eq!(
        backward([&x; 3], plain().d_initial(&mut [0.0])),
        "reverse_affine_scan: d_initial has 1 elements, expected 4 for shape [3, 4]"
    );
    assert_eq!(
        backward([&x; 3], plain().reset(&[true; 4])),
        "reverse_affine_scan: reset has 4 elements, expected 3 for shape [3, 4]"
    );
    let layout = |offset, outer, len, inner| Layout {
        offset,
        outer,
        len,
        inner,
    };
    let layouts = [layout(0, 0, 4, 1); 3];
    let strided = |k: usize, layout| {
        let mut layouts = layouts;
        layouts[k] = layout;
        backward([&x; 3], plain().layouts(&layouts))
    };
    assert_eq!(
        strided(0, layout(1, 0, 4, 1)),
        "reverse_affine_scan: the layout of a goes from element 1 to 12, expected elements of a, which has 12"
    );
    assert_eq!(
        strided(1, layout(1, 0, -4, 1)),
        "reverse_affine_scan: the layout of h goes from element -7 to 4, expected elements of h, which has 12"
    );
    assert_eq!(
        strided(2, layout(0, 0, 5, -1)),
        "reverse_affine_scan: the layout of dh goes from element -3 to 10, expected elements of dh, which has 12"
    );
    let plain = Options::<f32>::new;
    assert_eq!(
        cumsum(&[2, 3], 1, plain().layouts(&[])),
        "cumsum: expected 1 layout(s), one for each input, got 0"
    );
    assert_eq!(
        cumsum(
            &[2, 3],
            1,
            plain().layouts(&[layout(0, isize::MIN, isize::MAX, 1)])
        ),
        "cumsum: the layout of x goes from element -9223372036854775808 to 18446744073709551614, \
         expected elements of x, which has 12"
    );
    let huge = layout(usize::MAX, isize::MAX, 0, 0);
    assert_eq!(
        cumsum(&[1 << 60, 1], 1, plain().layouts(&[huge])),
        format!(
            "cumsum: the layout of x goes from element {} to {}, expected elements of x, which has 12",
            usize::MAX,
            usize::MAX as i128 + ((1 << 60) - 1) * isize::MAX as i128
        )
    );
    let plain = BackwardOptions::<f32>::new;
    let (mut da, mut db) = ([0.0; 12], [0.0; 11]);
    let out = [&mut da[..], &mut db];
    assert_eq!(
        message(engine.affine_scan_backward_into(
            Direction::Forward,
            [&x; 3],
            &[12],
            0,
            plain(),
            out
        )),
        "affine_scan: db has 11 elements, expected 12 for shape [12]"
    );
    assert_eq!(
        message(engine.affine_scan(&[1_i64], &[1], &[1], 0)),
        "affine_scan: elements of type int64 are not supported"
    );
    assert_eq!(
        message(engine.cumsum(&x, &[3, 4], 2)),
        "cumsum: axis 2 is out of range, expected -2 to 1 for rank 2"
    );
    Ok(())
}

type OnEngine = fn(&Engine) -> Checked;

/// All of it.
pub fn suite(prefix: &str, get: GetEngine) -> Vec<Trial> {
    let checks: [(&str, OnEngine); 31] = [
        ("any::float32", any_options::<f32>),
        ("any::float64", any_options::<f64>),
        ("any::float16", any_options::<f16>),
        ("any::bfloat16", any_options::<bf16>),
        ("any::int32", any_options::<i32>),
        ("any::int64", any_options::<i64>),
        ("any::complex64", any_options::<Complex<f32>>),
        ("gradient::float32", any_gradient::<f32>),
        ("gradient::float64", any_gradient::<f64>),
        ("gradient::float16", any_gradient::<f16>),
        ("gradient::bfloat16", any_gradient::<bf16>),
        ("gradient::complex64", any_gradient::<Complex<f32>>),
        ("gradient::finite_differences", finite_differences),
        ("strided::float32", any_layouts::<f32>),
        ("strided::float64", any_layouts::<f64>),
        ("strided::float16", any_layouts::<f16>),
        ("strided::bfloat16", any_layouts::<bf16>),
        ("strided::int32", any_layouts::<i32>),
        ("strided::int64", any_layouts::<i64>),
        ("strided::complex64", any_layouts::<Complex<f32>>),
        ("strided::gradient::float32", any_layouts_gradient::<f32>),
        ("strided::gradient::float64", any_layouts_gradient::<f64>),
        ("strided::gradient::float16", any_layouts_gradient::<f16>),
        ("strided::gradient::bfloat16", any_layouts_gradient::<bf16>),
        (
            "strided::gradient::complex64",
            any_layouts_gradient::<Complex<f32>>,
        ),
        ("pieces", pieces),
        ("ones_in_halves", ones_in_halves),
        ("decay_in_halves", decay_in_halves),
        ("initial_states", initial_states),
        ("by_hand", by_hand),
        ("errors", errors),
    ];
    checks
        .into_iter()
        .map(|(name, check)| {
            Trial::ignorable_test(format!("{prefix}::options::{name}"), move || match get() {
                Ok(engine) => check(engine).map(|()| Completion::Completed),
                Err(reason) => Ok(Completion::ignored_with(reason)),
            })
        })
        .collect()
}
