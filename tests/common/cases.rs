//! The cases: shapes and axes at which some level of the tiling is just full, or just not.

use super::Call;
use ptxscan::{Operation, Operator};
use ptxscan_kernels::tiling::{WARP_THREADS, columns, rows};
use std::collections::BTreeSet;
use std::fmt;

/// A shape and an axis.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Case {
    pub shape: Vec<usize>,
    pub axis: isize,
}

impl Case {
    pub fn new(shape: &[usize], axis: isize) -> Self {
        Self {
            shape: shape.to_vec(),
            axis,
        }
    }

    /// The call of `operation` in this case.
    pub fn call<'a>(&'a self, operation: Operation, inputs: &'a [&'a [f32]]) -> Call<'a> {
        Call {
            operation,
            inputs,
            shape: &self.shape,
            axis: self.axis,
        }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "shape {:?}, axis {}", self.shape, self.axis)
    }
}

/// Bytes of an element.
const BYTES: usize = size_of::<f32>();

/// The longest tile of a row.
pub const fn row_tile(operator: Operator) -> usize {
    rows::tile(operator.inputs(), BYTES, rows::MAX_WARPS)
}

/// The lengths that every strategy meets, and those around the units of one.
fn lengths(units: &[usize]) -> BTreeSet<usize> {
    const ALWAYS: [usize; 8] = [0, 1, 2, 31, 32, 33, 101, 1021];
    let around = |&unit: &usize| [unit - 1, unit, unit + 1, 3 * unit + 7];
    ALWAYS
        .into_iter()
        .chain(units.iter().flat_map(around))
        .collect()
}

/// Sequences whose steps are neighbours in memory, few and many at a time.
fn row_cases(operator: Operator) -> impl Iterator<Item = Case> {
    let units = [
        rows::vector(BYTES),
        rows::vector(BYTES) * WARP_THREADS,
        rows::warp_items(operator.inputs(), BYTES),
        row_tile(operator),
    ];
    let outer = [3, 1, 2].into_iter().cycle();
    lengths(&units)
        .into_iter()
        .zip(outer)
        .map(|(len, outer)| Case::new(&[outer, len], if outer == 2 { -1 } else { 1 }))
}

/// Sequences whose steps lie apart.
fn column_cases() -> impl Iterator<Item = Case> {
    let strip = columns::channels(BYTES);
    let inner = BTreeSet::from([
        2,
        3,
        4,
        31,
        32,
        33,
        strip - 1,
        strip,
        strip + 1,
        2 * strip + 1,
        strip + rows::vector(BYTES),
    ]);
    let units = [
        columns::STEPS,
        columns::TILE,
        columns::MAX_STAGES * columns::TILE,
    ];
    let extents = lengths(&units)
        .into_iter()
        .flat_map(|len| inner.clone().into_iter().map(move |inner| (len, inner)));
    let outer = [1, 3, 1, 2].into_iter().cycle();
    extents
        .zip(outer)
        .map(|((len, inner), outer)| {
            Case::new(&[outer, len, inner], if outer == 2 { -2 } else { 1 })
        })
        .collect::<Vec<_>>()
        .into_iter()
}

/// Few channels: sequences of which a turn has many or a few, those of a whole turn, and of some.
fn narrow_cases() -> impl Iterator<Item = Case> {
    [2, 7, 31].into_iter().flat_map(|inner| {
        let turn = columns::channels(BYTES) / inner * columns::TILE;
        [
            Case::new(&[70, 3, inner], 1),
            Case::new(&[37, columns::TILE + 1, inner], 1),
            Case::new(&[1, turn - 1, inner], 1),
            Case::new(&[2, turn, inner], 1),
            Case::new(&[1, turn + 1, inner], 1),
            Case::new(&[1, 2 * turn + columns::TILE + 9, inner], 1),
        ]
    })
}

/// Any rank and axis, empty tensors, and axes of extent 1.
fn odd_cases() -> impl Iterator<Item = Case> {
    const SHAPES: &[&[usize]] = &[
        &[5],
        &[1, 1, 1],
        &[4, 1],
        &[1, 6],
        &[2, 1, 3],
        &[2, 3, 5, 7],
        &[0],
        &[0, 5],
        &[3, 0, 4],
        &[3, 40, 0],
    ];
    SHAPES.iter().flat_map(|shape| {
        let rank = shape.len() as isize;
        (-rank..rank).map(|axis| Case::new(shape, axis))
    })
}

/// The list of cases.
pub fn all(operator: Operator) -> Vec<Case> {
    row_cases(operator)
        .chain(column_cases())
        .chain(narrow_cases())
        .chain(odd_cases())
        .collect()
}

/// A few cases that go everywhere in the kernels, for tools that slow them down.
pub fn small(operator: Operator) -> Vec<Case> {
    let tile = row_tile(operator);
    vec![
        Case::new(&[2, 33], 1),
        Case::new(&[3, rows::warp_items(operator.inputs(), BYTES) + 5], 1),
        Case::new(&[2, tile], 1),
        // A row that is not aligned, and takes a block more than one part.
        Case::new(&[2, tile - 3], 1),
        Case::new(&[1, 4 * tile + 6], 1),
        Case::new(&[2, 7, 6], 1),
        Case::new(&[1, columns::TILE, 36], 1),
        Case::new(&[2, (columns::MAX_STAGES + 1) * columns::TILE + 5, 33], 1),
        // Narrow sequences, many of one tile, several of some; one of several turns, in which groups end.
        Case::new(&[30, 5, 2], 1),
        Case::new(&[9, columns::TILE + 5, 3], 1),
        Case::new(&[1, 45 * columns::TILE + 5, 3], 1),
        // So long that each block of a split scan has more tiles than there is room for.
        Case::new(&[1, 24 * columns::TILE + 5, 36], 1),
    ]
}

/// More sequences than the y and z dimensions of a grid count.
pub fn many(_: Operator) -> Vec<Case> {
    vec![
        Case::new(&[65536, 1], 1),
        Case::new(&[65536, 3], 1),
        Case::new(&[70000, 7], 1),
        Case::new(&[3, 70000, 2], 1),
        Case::new(&[3, 70000, 2], 0),
        Case::new(&[2 * 65536, 3, 2], 1),
    ]
}
