//! Which steps make up a sequence.
//!
//! A tensor is a matrix of all its steps × inner; a row is consecutive steps of it, and has a sequence for each channel.

use crate::shape::Extents;
use std::ops::Range;

/// The rows of a tensor.
#[derive(Clone, Copy)]
pub enum Rows<'a> {
    /// So many, of so many steps each.
    Equal { count: usize, len: usize },
    /// Between one boundary and the next.
    Packed(&'a [usize]),
}

impl<'a> Rows<'a> {
    pub fn new(extents: Extents, boundaries: Option<&'a [usize]>) -> Self {
        boundaries.map_or(
            Rows::Equal {
                count: extents.outer,
                len: extents.len,
            },
            Rows::Packed,
        )
    }

    pub fn count(self) -> usize {
        match self {
            Rows::Equal { count, .. } => count,
            Rows::Packed(boundaries) => boundaries.len() - 1,
        }
    }

    /// The number of steps of all rows.
    pub fn all_steps(self) -> usize {
        match self {
            Rows::Equal { count, len } => count * len,
            Rows::Packed(boundaries) => boundaries[boundaries.len() - 1],
        }
    }

    /// The outer index of a row, and the first step of that.
    pub fn outer(self, row: usize) -> (usize, usize) {
        match self {
            Rows::Equal { len, .. } => (row, row * len),
            Rows::Packed(_) => (0, 0),
        }
    }

    /// The steps of a row.
    pub fn steps(self, row: usize) -> Range<usize> {
        match self {
            Rows::Equal { len, .. } => row * len..(row + 1) * len,
            Rows::Packed(boundaries) => boundaries[row]..boundaries[row + 1],
        }
    }
}
