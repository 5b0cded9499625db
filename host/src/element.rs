//! The types that a tensor's elements may have.

use std::fmt::Debug;
use std::ops::{Add, Mul};

/// A type of tensor elements: `f32`.
///
/// The trait is sealed: each type comes with kernels of its own.
pub trait Element:
    sealed::Sealed
    + Copy
    + Default
    + PartialEq
    + Debug
    + Send
    + Sync
    + Add<Output = Self>
    + Mul<Output = Self>
    + 'static
{
    /// The type's name, as numpy spells it.
    const NAME: &'static str;

    /// The type's name in the table of kernels.
    #[doc(hidden)]
    const KERNEL_NAME: &'static str;

    /// Whether the value is neither infinite nor NaN.
    #[doc(hidden)]
    fn is_finite(self) -> bool;
}

mod sealed {
    #[cfg(not(feature = "cuda"))]
    pub trait Sealed {}
    /// What kernels read and write.
    #[cfg(feature = "cuda")]
    pub trait Sealed: cust::memory::DeviceCopy {}

    impl Sealed for f32 {}
}

impl Element for f32 {
    const NAME: &'static str = "float32";
    const KERNEL_NAME: &'static str = "f32";

    #[inline(always)]
    fn is_finite(self) -> bool {
        f32::is_finite(self)
    }
}
