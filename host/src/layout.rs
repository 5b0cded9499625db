//! Where inputs have their elements.

use crate::error::{Error, Result};
use crate::operation::Operation;
use crate::shape::Extents;
use std::ops::Range;

/// Where an input has its elements, counted in elements of its slice: that of step `t` of sequence `(o, i)`, which the
/// [extents](crate::Extents) count, is `offset + o·outer + t·len + i·inner`.
///
/// A stride can be 0, where an extent is a repetition, and negative, where it is turned round. So a transposed view, a slice of
/// a larger tensor or a row for all channels is scanned as it lies in memory.
///
/// # Examples
/// The columns of a row-major matrix, scanned as if they were the rows:
/// ```
/// use ptxscan::{Engine, Layout, Operation, Options};
///
/// let matrix = [1.0, 2.0, 3.0, 10.0, 20.0, 30.0_f32];
/// // The shape and the strides of the transposed view, as `ndarray`'s `view.t()` has them.
/// let (shape, strides) = ([3, 2], [1, 3]);
/// let layout = Layout::new(&shape, &strides, 1).expect("one axis before it, and none after it");
/// let layouts = [layout];
/// let options = Options::new().layouts(&layouts);
/// let y = Engine::cpu().scan_with(Operation::CUMSUM, &[&matrix], &shape, 1, options)?;
/// assert_eq!(y, [1.0, 11.0, 2.0, 22.0, 3.0, 33.0]);
///
/// // Every second column, from the right: the slice begins with the matrix, and the view with its element 2.
/// let layouts = [Layout { offset: 2, ..Layout::new(&[2, 2], &[3, -2], 1).expect("likewise") }];
/// let options = Options::new().layouts(&layouts);
/// let y = Engine::cpu().scan_with(Operation::CUMSUM, &[&matrix], &[2, 2], 1, options)?;
/// assert_eq!(y, [3.0, 4.0, 30.0, 40.0]);
/// # Ok::<(), ptxscan::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub struct Layout {
    /// The element of the first step of sequence (0, 0).
    pub offset: usize,
    /// From an outer index to the next.
    pub outer: isize,
    /// From a step to the next in the order of the tensor, also where the scan is a reverse one.
    pub len: isize,
    /// From an inner index to the next.
    pub inner: isize,
}

impl Layout {
    /// The layout of a tensor of `shape` around `axis`, with so many elements from an index to the next along each axis, and its first
    /// element at offset 0. A negative `axis` counts from the end.
    ///
    /// `None` where there is no such axis, where there are not as many strides as extents, or where the axes before `axis`, or those
    /// after it, have no common stride: each has to be as far apart as the next one of them is long.
    #[must_use]
    pub fn new(shape: &[usize], strides: &[isize], axis: isize) -> Option<Self> {
        let axis = if axis < 0 {
            axis.checked_add_unsigned(shape.len())?
        } else {
            axis
        };
        let axis = usize::try_from(axis)
            .ok()
            .filter(|&axis| axis < shape.len())?;
        if strides.len() != shape.len() {
            return None;
        }
        if shape.contains(&0) {
            return Some(Self::default());
        }
        let merged = |axes: Range<usize>| {
            // The last one's stride, and the product of the extents so far.
            let mut common = (0, 1_usize);
            for axis in axes.rev().filter(|&axis| shape[axis] > 1) {
                let (stride, elements) = common;
                if elements == 1 {
                    common.0 = strides[axis];
                } else if strides[axis] as i128 != stride as i128 * elements as i128 {
                    return None;
                }
                common.1 = elements.checked_mul(shape[axis])?;
            }
            Some(common.0)
        };
        Some(Self {
            offset: 0,
            outer: merged(0..axis)?,
            len: strides[axis],
            inner: merged(axis + 1..shape.len())?,
        })
    }

    /// That of a tensor whose elements are one after another.
    pub(crate) const fn dense(extents: Extents) -> Self {
        Self {
            offset: 0,
            outer: (extents.len * extents.inner) as isize,
            len: extents.inner as isize,
            inner: 1,
        }
    }

    /// The element of step `t` of sequence `(o, i)`. Arithmetic wraps around, and is exact where the element is one of a slice.
    #[inline(always)]
    pub(crate) const fn at(self, o: usize, t: usize, i: usize) -> usize {
        self.offset
            .wrapping_add(o.wrapping_mul(self.outer as usize))
            .wrapping_add(t.wrapping_mul(self.len as usize))
            .wrapping_add(i.wrapping_mul(self.inner as usize))
    }

    /// The first and the last of the elements of a tensor that has some.
    fn reach(self, extents: Extents) -> (i128, i128) {
        let (mut first, mut last) = (self.offset as i128, self.offset as i128);
        for (extent, stride) in [
            (extents.outer, self.outer),
            (extents.len, self.len),
            (extents.inner, self.inner),
        ] {
            // Of less than 2¹²⁶, as extents of a tensor are less than 2⁶³ in all.
            let way = (extent as i128 - 1) * stride as i128;
            if way < 0 {
                first += way;
            } else {
                last += way;
            }
        }
        (first, last)
    }

    /// Whether an input of so many elements has all that are read.
    pub(crate) fn fits(self, extents: Extents, elements: usize) -> bool {
        let (first, last) = self.reach(extents);
        extents.elements() == 0 || first >= 0 && last < elements as i128
    }

    /// Checks that it [`fits`](Self::fits) an input.
    pub(crate) fn validate(
        self,
        operation: Operation,
        argument: &'static str,
        extents: Extents,
        elements: usize,
    ) -> Result<()> {
        if self.fits(extents, elements) {
            return Ok(());
        }
        Err(Error::LayoutOutOfBounds {
            operation,
            argument,
            expected: elements,
            got: self.reach(extents),
        })
    }

    /// The elements that are read of an input, and the layout in these alone; of a layout that fits.
    fn narrowed(self, extents: Extents) -> (Range<usize>, Self) {
        if extents.elements() == 0 {
            return (0..0, Self::dense(extents));
        }
        let (first, last) = self.reach(extents);
        let (first, end) = (first as usize, last as usize + 1);
        // Strides of what there is one of say nothing.
        let dense = Self::dense(extents);
        let stride = |extent, own, dense| if extent > 1 { own } else { dense };
        let narrowed = Self {
            offset: self.offset - first,
            outer: stride(extents.outer, self.outer, dense.outer),
            len: stride(extents.len, self.len, dense.len),
            inner: stride(extents.inner, self.inner, dense.inner),
        };
        (first..end, narrowed)
    }
}

/// The elements that a call reads of input `k`; of layouts that fit.
pub(crate) fn part(layouts: Option<&[Layout]>, k: usize, extents: Extents) -> Range<usize> {
    match layouts {
        Some(layouts) => layouts[k].narrowed(extents).0,
        None => 0..extents.elements(),
    }
}

/// The layouts of the [`part`]s of the inputs; `None` where all have their elements one after another.
pub(crate) fn narrowed(layouts: Option<&[Layout]>, extents: Extents) -> Option<Vec<Layout>> {
    let narrowed = layouts?.iter().map(|layout| layout.narrowed(extents).1);
    let narrowed: Vec<_> = narrowed.collect();
    let is_dense = |&layout: &Layout| layout == Layout::dense(extents);
    (!narrowed.iter().all(is_dense)).then_some(narrowed)
}

/// A layout, for tests.
#[cfg(test)]
pub(crate) const fn layout(offset: usize, outer: isize, len: isize, inner: isize) -> Layout {
    Layout {
        offset,
        outer,
        len,
        inner,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_with_a_common_stride_are_one() {
        type Views<'a> = (&'a [usize], &'a [isize], isize, Option<Layout>);
        let views: [Views; 14] = [
            (&[2, 3, 5], &[15, 5, 1], 1, Some(layout(0, 15, 5, 1))),
            (&[2, 3, 5], &[15, 5, 1], -1, Some(layout(0, 5, 1, 0))),
            (&[2, 3, 5], &[15, 5, 1], 0, Some(layout(0, 0, 15, 1))),
            // In Fortran order only the axes beside the middle one.
            (&[2, 3, 5], &[1, 2, 6], 1, Some(layout(0, 1, 2, 6))),
            (&[2, 3, 5], &[1, 2, 6], 0, None),
            (&[2, 3, 5], &[1, 2, 6], 2, None),
            // An extent of 1 has any stride, and gaps are between the axes and that of the scan alone.
            (&[1, 3, 1], &[77, -2, 88], 1, Some(layout(0, 0, -2, 0))),
            (
                &[2, 3, 4, 5],
                &[99, 30, 5, 1],
                1,
                Some(layout(0, 99, 30, 1)),
            ),
            (&[2, 3, 4, 5], &[99, 30, 6, 1], 1, None),
            (&[4, 3, 2], &[-6, -2, 100], 2, Some(layout(0, -2, 100, 0))),
            (&[2, 3, 0], &[1, 1, 1], 0, Some(Layout::default())),
            (&[2, 3], &[3, 1], 2, None),
            (&[2, 3], &[3, 1], -3, None),
            (&[2, 3], &[3, 1, 1], 0, None),
        ];
        for (shape, strides, axis, expected) in views {
            let got = Layout::new(shape, strides, axis);
            assert_eq!(got, expected, "{shape:?}, {strides:?}, axis {axis}");
        }
        let wide = [1 << 40, 1 << 40, 1 << 40, 2];
        assert_eq!(Layout::new(&wide, &[0; 4], 3), None);
    }

    #[test]
    fn what_is_read_is_what_the_layout_reaches() {
        let extents = Extents {
            outer: 2,
            len: 3,
            inner: 4,
        };
        let dense = Layout::dense(extents);
        let reaches = [
            (dense, 0..24, dense),
            (layout(5, 12, 4, 1), 5..29, dense),
            (layout(20, -10, 2, 1), 10..28, layout(10, -10, 2, 1)),
            (layout(3, 0, 0, 0), 3..4, layout(0, 0, 0, 0)),
        ];
        for (layout, range, narrowed) in reaches {
            assert!(layout.fits(extents, range.end) && !layout.fits(extents, range.end - 1));
            assert_eq!(layout.narrowed(extents), (range, narrowed));
            assert_eq!(narrowed.narrowed(extents).1, narrowed);
        }
        assert!(!layout(19, -20, 0, 1).fits(extents, 1000));
        assert_eq!(super::narrowed(Some(&[dense; 2]), extents), None);
        let both = [dense, layout(0, 0, 4, 1)];
        assert_eq!(super::narrowed(Some(&both), extents), Some(both.to_vec()));
        // Without elements, and with strides of what there is one of, every layout is dense.
        let any = layout(usize::MAX, isize::MAX, isize::MIN, 1);
        for extents in [
            Extents { len: 0, ..extents },
            Extents {
                outer: 1,
                len: 1,
                ..extents
            },
        ] {
            let layouts = [layout(7, any.outer, any.len, 1)];
            assert_eq!(super::narrowed(Some(&layouts), extents), None);
        }
    }
}
