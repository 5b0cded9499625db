//! The device library of ptxscan's kernels, with the names and meanings of Rust-CUDA's `cuda_std`.
//!
//! The published `cuda_std` needs a compiler back end of its own; this one stands on rustc's NVPTX
//! back end. Kernels import it as `cuda_std` and read as Rust-CUDA kernels do:
//! [`#[kernel]`](macro@kernel), [`thread`], [`warp`], [`shared`]. It is the only crate of the project
//! with intrinsics or assembly.
//!
//! Where Rust-CUDA hands a kernel bare pointers, this library hands it typed views, [`Global`] and
//! [`Shared`]. For `nvptx64` a view is an address and each access one instruction. On any other target a
//! view knows the allocation that it belongs to, and with the feature `emulator` the same kernels run
//! natively, with each access checked.
//!
//! # Features
//! - `emulator` (off by default; for the host): the module `emulator`, which runs kernels natively. Without
//!   it a device function called on the host panics.
#![cfg_attr(target_arch = "nvptx64", no_std)]
#![cfg_attr(
    target_arch = "nvptx64",
    feature(
        asm_experimental_arch,
        core_float_math,
        core_intrinsics,
        gpu_intrinsics,
        gpu_launch_sized_workgroup_mem,
        link_llvm_intrinsics,
        stdarch_nvptx
    )
)]
#![cfg_attr(target_arch = "nvptx64", allow(internal_features))]

#[cfg(target_arch = "nvptx64")]
#[path = "device.rs"]
mod imp;
#[cfg(all(not(target_arch = "nvptx64"), feature = "emulator"))]
use emulator::device as imp;
#[cfg(all(not(target_arch = "nvptx64"), not(feature = "emulator")))]
#[path = "host.rs"]
mod imp;

pub mod async_copy;
#[cfg(all(not(target_arch = "nvptx64"), feature = "emulator"))]
pub mod emulator;
pub mod float;
pub mod global;
pub mod hint;
pub mod shared;
pub mod thread;
pub mod warp;

pub use cuda_std_macros::kernel;
pub use float::{BF16, Complex32, F16, GpuFloat};
pub use global::Global;
pub use shared::Shared;

mod sealed {
    pub trait Sealed {}
}

/// A plain number that memory holds: every bit pattern is a value, and there is no padding.
pub trait Scalar: Copy + sealed::Sealed + 'static {}

/// A scalar on which the GPU-scope atomic operations of [`Global`] exist.
pub trait AtomicScalar: Scalar {}

macro_rules! scalars {
    ($($trait:ident: $($t:ty)*;)*) => { $($(impl $trait for $t {})*)* };
}
scalars! {
    Scalar: u8 i8 u16 i16 u32 i32 f32 u64 i64 f64 F16 BF16 Complex32;
    AtomicScalar: u32 u64;
}
macro_rules! seal { ($($t:ty)*) => { $(impl sealed::Sealed for $t {})* }; }
seal!(u8 i8 u16 i16 u32 i32 f32 u64 i64 f64 F16 BF16 Complex32);
