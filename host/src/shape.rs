//! Shapes and axes: a row-major tensor seen as outer × len × inner around the axis of a scan.

use crate::element::Element;
use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::operation::{Operation, Operator};

/// A row-major tensor as an operation along one axis sees it.
///
/// There are `outer · inner` sequences of `len` steps. Step `t` of sequence `(o, i)` is element `(o·len + t)·inner + i`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Extents {
    /// The product of the extents before the axis.
    pub outer: usize,
    /// The extent of the axis.
    pub len: usize,
    /// The product of the extents after the axis, which is also the distance in elements from a step to the next.
    pub inner: usize,
}

impl Extents {
    /// The number of elements.
    pub const fn elements(self) -> usize {
        self.outer * self.len * self.inner
    }

    /// The number of sequences.
    pub const fn sequences(self) -> usize {
        self.outer * self.inner
    }
}

/// The extents of a tensor of `shape` around `axis`, where a negative axis counts from the end.
///
/// # Errors
/// [`Error::RankZero`], [`Error::AxisOutOfRange`], or [`Error::ShapeTooLarge`] where `T`s of that shape are more than
/// `isize::MAX` bytes. An extent of 0 does not make an otherwise impossible shape possible.
///
/// # Examples
/// ```
/// use ptxscan::{Extents, Operation, extents};
///
/// let shape = [2, 3, 5, 7];
/// assert_eq!(extents::<f32>(Operation::CUMSUM, &shape, -2)?, Extents { outer: 6, len: 5, inner: 7 });
/// # Ok::<(), ptxscan::Error>(())
/// ```
pub fn extents<T: Element>(operation: Operation, shape: &[usize], axis: isize) -> Result<Extents> {
    let rank = shape.len();
    if rank == 0 {
        return Err(Error::RankZero { operation });
    }
    let from_start = if axis < 0 {
        axis.checked_add_unsigned(rank)
    } else {
        Some(axis)
    };
    let index = from_start
        .and_then(|axis| usize::try_from(axis).ok())
        .filter(|&axis| axis < rank)
        .ok_or(Error::AxisOutOfRange {
            operation,
            axis,
            rank,
        })?;

    shape
        .iter()
        .try_fold(size_of::<T>(), |bytes, &extent| {
            bytes.checked_mul(extent.max(1))
        })
        .filter(|&bytes| bytes <= isize::MAX as usize)
        .ok_or_else(|| Error::ShapeTooLarge {
            operation,
            shape: shape.to_vec(),
            element_bytes: size_of::<T>(),
        })?;
    Ok(Extents {
        outer: shape[..index].iter().product(),
        len: shape[index],
        inner: shape[index + 1..].iter().product(),
    })
}

/// The [`extents`], if the operation is for elements of the type.
pub(crate) fn supported_extents<T: Element>(
    operation: Operation,
    shape: &[usize],
    axis: isize,
) -> Result<Extents> {
    let extents = extents::<T>(operation, shape, axis)?;
    if operation.operator == Operator::AffineScan && !T::HAS_AFFINE_SCAN {
        return Err(Error::UnsupportedElement {
            operation,
            element: T::NAME,
        });
    }
    Ok(extents)
}

/// What errors call the tensors of a call.
#[derive(Clone, Copy)]
pub(crate) struct Names {
    pub(crate) inputs: &'static [&'static str],
    pub(crate) outputs: &'static [&'static str],
}

impl Names {
    pub(crate) const GRADIENT: Self = Self {
        inputs: &["a", "h", "dh"],
        outputs: &["da", "db"],
    };

    pub(crate) const fn of_scan(operator: Operator) -> Self {
        Self {
            inputs: operator.arguments(),
            outputs: &["out"],
        }
    }
}

/// Checks the lengths of a call's tensors against its shape and the layouts of the inputs, once for all back ends. Where there are no
/// outputs yet, nor are their lengths.
pub(crate) fn validate<T: Element>(
    operation: Operation,
    names: Names,
    inputs: &[usize],
    layouts: Option<&[Layout]>,
    outputs: &[usize],
    shape: &[usize],
    axis: isize,
) -> Result<Extents> {
    let extents = supported_extents::<T>(operation, shape, axis)?;
    if inputs.len() != names.inputs.len() {
        return Err(Error::InputCount {
            operation,
            expected: names.inputs.len(),
            got: inputs.len(),
        });
    }
    validate_layouts(operation, names, layouts, extents, inputs)?;
    let expected = extents.elements();
    let dense = if layouts.is_some() { &[] } else { inputs };
    let inputs = names.inputs.iter().zip(dense);
    let mut tensors = inputs.chain(names.outputs.iter().zip(outputs));
    match tensors.find(|&(_, &got)| got != expected) {
        None => Ok(extents),
        Some((&argument, &got)) => Err(Error::LengthMismatch {
            operation,
            argument,
            shape: shape.to_vec(),
            expected,
            got,
        }),
    }
}

/// Checks the layouts of inputs that have so many elements.
pub(crate) fn validate_layouts(
    operation: Operation,
    names: Names,
    layouts: Option<&[Layout]>,
    extents: Extents,
    elements: &[usize],
) -> Result<()> {
    let Some(layouts) = layouts else {
        return Ok(());
    };
    let (expected, got) = (names.inputs.len(), layouts.len());
    if got != expected {
        return Err(Error::LayoutCount {
            operation,
            expected,
            got,
        });
    }
    let inputs = names.inputs.iter().zip(elements);
    layouts
        .iter()
        .zip(inputs)
        .try_for_each(|(layout, (&argument, &elements))| {
            layout.validate(operation, argument, extents, elements)
        })
}
