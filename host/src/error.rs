//! What can go wrong.

use crate::operation::Operation;

/// A result of this library.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an operation was not carried out. Where an argument does not fit, an output passed in is untouched.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A scalar has no axis to scan along.
    #[error("{operation}: shape has rank 0, expected 1 or more")]
    RankZero {
        /// The operation asked for.
        operation: Operation,
    },

    /// The axis is not one of the tensor's.
    #[error("{operation}: axis {axis} is out of range, expected -{rank} to {last} for rank {rank}", last = rank - 1)]
    AxisOutOfRange {
        /// The operation asked for.
        operation: Operation,
        /// The axis asked for.
        axis: isize,
        /// The tensor's rank.
        rank: usize,
    },

    /// The shape has more elements than memory can hold. Extents of 0 count as 1 here, as they do in numpy.
    #[error("{operation}: shape {shape:?} of {element_bytes}-byte elements is more than {max} bytes", max = isize::MAX)]
    ShapeTooLarge {
        /// The operation asked for.
        operation: Operation,
        /// The tensor's shape.
        shape: Vec<usize>,
        /// The size of an element in bytes.
        element_bytes: usize,
    },

    /// The operation takes another number of input tensors.
    #[error("{operation}: expected {expected} input(s), got {got}")]
    InputCount {
        /// The operation asked for.
        operation: Operation,
        /// How many inputs it takes.
        expected: usize,
        /// How many it was given.
        got: usize,
    },

    /// A tensor or an option has not as many elements as the shape says.
    #[error("{operation}: {argument} has {got} elements, expected {expected} for shape {shape:?}")]
    LengthMismatch {
        /// The operation asked for.
        operation: Operation,
        /// The name of the tensor or the option.
        argument: &'static str,
        /// The shape asked for.
        shape: Vec<usize>,
        /// The number of elements that go with the shape.
        expected: usize,
        /// The number of elements that there are.
        got: usize,
    },

    /// There is not a layout for each input.
    #[error("{operation}: expected {expected} layout(s), one for each input, got {got}")]
    LayoutCount {
        /// The operation asked for.
        operation: Operation,
        /// How many inputs it takes.
        expected: usize,
        /// How many layouts it was given.
        got: usize,
    },

    /// A layout says of an input that it has elements where it has none.
    #[error(
        "{operation}: the layout of {argument} goes from element {} to {}, expected elements of {argument}, which has {expected}",
        got.0, got.1
    )]
    LayoutOutOfBounds {
        /// The operation asked for.
        operation: Operation,
        /// The name of the input.
        argument: &'static str,
        /// How many elements the input has.
        expected: usize,
        /// The first and the last element that the scan would read.
        got: (i128, i128),
    },

    /// Boundaries are for an axis with nothing before it.
    #[error("{operation}: boundaries need extents of 1 before the axis, got {outer} in all")]
    BoundariesOfMany {
        /// The operation asked for.
        operation: Operation,
        /// The product of the extents before the axis.
        outer: usize,
    },

    /// There are not enough boundaries for a sequence, or for an axis without steps.
    #[error("{operation}: boundaries has {got} element(s), expected {expected} or more")]
    TooFewBoundaries {
        /// The operation asked for.
        operation: Operation,
        /// How many there are at least.
        expected: usize,
        /// How many there are.
        got: usize,
    },

    /// Boundaries do not go from 0 up to the axis's extent.
    #[error("{operation}: boundaries[{index}] is {got}, expected {}", from_to(*expected))]
    Boundary {
        /// The operation asked for.
        operation: Operation,
        /// The boundary's index.
        index: usize,
        /// The least and the greatest that it can be.
        expected: (usize, usize),
        /// What it is.
        got: usize,
    },

    /// The operation is not for elements of that type.
    #[error("{operation}: elements of type {element} are not supported")]
    UnsupportedElement {
        /// The operation asked for.
        operation: Operation,
        /// The type's name.
        element: &'static str,
    },

    /// Memory for an output cannot be had.
    #[error("{operation}: cannot allocate {bytes} bytes of host memory for {what}")]
    OutOfHostMemory {
        /// The operation asked for.
        operation: Operation,
        /// What the memory was for.
        what: &'static str,
        /// The size asked for.
        bytes: usize,
    },

    /// The threads of a CPU back end could not be started.
    #[error("cannot start {threads} threads: {reason}")]
    Threads {
        /// How many were asked for.
        threads: usize,
        /// What the system says.
        reason: String,
    },

    /// The library has no GPU back end.
    #[cfg(not(feature = "cuda"))]
    #[error("this build has no GPU back end: the cargo feature `cuda` is off")]
    BuiltWithoutGpu,

    /// There is no usable CUDA driver.
    #[cfg(feature = "cuda")]
    #[error(transparent)]
    Driver(#[from] cuda_driver::LoadError),

    /// There is no GPU of that number.
    #[cfg(feature = "cuda")]
    #[error("GPU {ordinal} does not exist: the driver shows {count} GPU(s)")]
    NoSuchGpu {
        /// The number asked for.
        ordinal: usize,
        /// How many GPUs there are.
        count: usize,
    },

    /// The GPU lacks instructions that the kernels use.
    #[cfg(feature = "cuda")]
    #[error(
        "GPU {ordinal} has compute capability {}.{}, expected {}.{} or newer", got.0, got.1, needed.0, needed.1
    )]
    GpuTooOld {
        /// The GPU's number.
        ordinal: usize,
        /// The oldest compute capability that will do.
        needed: (u32, u32),
        /// The GPU's.
        got: (u32, u32),
    },

    /// There is no kernel for the elements' type; a launch cannot have as many blocks as the extents ask for; or the strategy that was
    /// asked for does not fit the extents, the options or the device.
    #[cfg(feature = "cuda")]
    #[error(
        "{operation}: no kernel, or none of the strategy asked for, covers {extents:?} on this device"
    )]
    NoPlan {
        /// The operation asked for.
        operation: Operation,
        /// The tensor's extents.
        extents: crate::shape::Extents,
    },

    /// The PTX that this library was built with lacks a kernel.
    #[cfg(feature = "cuda")]
    #[error("the library's PTX has no kernel {kernel}")]
    KernelMissing {
        /// The kernel's name.
        kernel: &'static str,
    },

    /// An output overlaps with another array of the same call.
    #[cfg(feature = "cuda")]
    #[error("{operation}: {output} overlaps with {argument}, expected memory of its own")]
    Overlap {
        /// The operation asked for.
        operation: Operation,
        /// The name of the output.
        output: &'static str,
        /// The name of the other array.
        argument: &'static str,
    },

    /// A run has other options than those that it was prepared with.
    #[cfg(feature = "cuda")]
    #[error(
        "{operation}: {option} is not as it was prepared, expected the same options with other arrays at most"
    )]
    NotAsPrepared {
        /// The operation asked for.
        operation: Operation,
        /// The name of the option.
        option: &'static str,
    },

    /// Device memory for tensors on the host, for boundaries or for scratch cannot be had.
    #[cfg(feature = "cuda")]
    #[error("{operation}: cannot allocate {bytes} bytes of device memory for {what}")]
    OutOfDeviceMemory {
        /// The operation asked for.
        operation: Operation,
        /// What the memory was for.
        what: &'static str,
        /// The size asked for.
        bytes: usize,
    },

    /// The CUDA driver reported an error. It can come from work that was started before.
    #[cfg(feature = "cuda")]
    #[error("CUDA could not {doing}{}: {source}", .kernel.map(|name| format!(" ({name})")).unwrap_or_default())]
    Cuda {
        /// What was being done.
        doing: &'static str,
        /// The kernel that was being loaded or launched.
        kernel: Option<&'static str>,
        /// The driver's error.
        source: CudaError,
    },
}

/// A range in words.
fn from_to((least, most): (usize, usize)) -> String {
    if least == most {
        least.to_string()
    } else {
        format!("{least} to {most}")
    }
}

/// An error code of the CUDA driver (a `CUresult`).
#[cfg(feature = "cuda")]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CudaError(pub u32);

#[cfg(feature = "cuda")]
impl From<cust::error::CudaError> for CudaError {
    fn from(error: cust::error::CudaError) -> Self {
        Self(error as u32)
    }
}

#[cfg(feature = "cuda")]
impl std::error::Error for CudaError {}

#[cfg(feature = "cuda")]
impl std::fmt::Display for CudaError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match cuda_driver::error_text(self.0) {
            Some((name, text)) => write!(f, "{name} ({}): {text}", self.0),
            None => write!(f, "error {} of the CUDA driver", self.0),
        }
    }
}
