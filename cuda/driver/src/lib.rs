//! The CUDA driver, bound when a program first asks for it.
//!
//! A program linked to `libcuda.so.1` does not start on a machine without a driver, and does not link on a
//! machine without CUDA. Here the functions that [cust]'s bindings declare are defined as jumps through a
//! table, and [`load`] fills the table from the driver's library. So one binary builds without a CUDA
//! installation, starts anywhere, and finds out at run time whether there is a driver:
//!
//! ```
//! match cuda_driver::load() {
//!     Ok(driver) => println!("CUDA driver {}", driver.version()),
//!     Err(error) => println!("no GPU: {error}"),
//! }
//! ```
//!
//! Call [`load`] before anything of cust's. Calls before that, or after it failed, do nothing and return
//! `CUDA_ERROR_NO_DEVICE`. (cust asks the driver for the text of its errors, so such an error has no text:
//! printing it fails.) Once a driver is bound, functions that it does not have return
//! `CUDA_ERROR_NOT_FOUND`, and [`Driver::lacks`] lists them.
//!
//! Supported on Linux, x86-64 and aarch64; elsewhere [`load`] is an error.
//!
//! # Building without CUDA
//!
//! cust's build script asks for the linker flag `-lcuda`, and panics where it finds no folder of CUDA's. It
//! looks for `lib64` in the folders of the environment variable `CUDA_LIBRARY_PATH`, in `/opt/cuda`, and in
//! `/usr/local/cuda*`. Where a CUDA toolkit is installed there, nothing is needed. Elsewhere an empty
//! archive satisfies both the script and the linker. This package's sources have one in `libcuda/`, but a
//! package cannot set a variable for another's build script, so a project that depends on this crate
//! makes its own, once:
//!
//! ```sh
//! mkdir -p libcuda/lib64
//! printf '!<arch>\n' > libcuda/lib64/libcuda.a
//! ```
//!
//! and names it in its `.cargo/config.toml`:
//!
//! ```toml
//! [env]
//! CUDA_LIBRARY_PATH = { value = "libcuda", relative = true }
//! ```
//!
//! `cargo install` and builds from another folder do not read that file: there, set the variable to the
//! folder's absolute path.
//!
//! [cust]: https://docs.rs/cust

#[cfg(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]
mod linux;
#[cfg(not(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64")
)))]
mod linux {
    pub(crate) fn bind() -> Result<crate::Driver, crate::LoadError> {
        Err(crate::LoadError::UnsupportedTarget)
    }

    pub(crate) fn error_text(_: u32) -> Option<(String, String)> {
        None
    }
}

use std::fmt;
use std::sync::OnceLock;

/// The oldest driver that [`load`] accepts: CUDA 11.4, the first to take PTX 7.4.
pub const OLDEST_SUPPORTED: Version = Version {
    major: 11,
    minor: 4,
};

/// The functions without which [`load`] refuses a driver: what it takes to pick a device, load a module,
/// move memory, launch a kernel and time it.
pub const REQUIRED: &[&str] = &[
    "cuCtxGetCurrent",
    "cuCtxSetCurrent",
    "cuCtxSynchronize",
    "cuDeviceGet",
    "cuDeviceGetAttribute",
    "cuDeviceGetCount",
    "cuDeviceGetName",
    "cuDevicePrimaryCtxRelease_v2",
    "cuDevicePrimaryCtxRetain",
    "cuDriverGetVersion",
    "cuEventCreate",
    "cuEventDestroy_v2",
    "cuEventElapsedTime",
    "cuEventRecord",
    "cuEventSynchronize",
    "cuFuncGetAttribute",
    "cuFuncSetAttribute",
    "cuGetErrorName",
    "cuGetErrorString",
    "cuInit",
    "cuLaunchKernel",
    "cuMemAlloc_v2",
    "cuMemFree_v2",
    "cuMemcpyDtoDAsync_v2",
    "cuMemcpyDtoD_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuMemcpyDtoH_v2",
    "cuMemcpyHtoDAsync_v2",
    "cuMemcpyHtoD_v2",
    "cuMemsetD32Async",
    "cuMemsetD32_v2",
    "cuMemsetD8Async",
    "cuMemsetD8_v2",
    "cuModuleGetFunction",
    "cuModuleLoadDataEx",
    "cuModuleUnload",
    "cuStreamCreateWithPriority",
    "cuStreamDestroy_v2",
    "cuStreamSynchronize",
    "cuStreamWaitEvent",
];

/// The driver that the process is bound to.
#[derive(Debug)]
pub struct Driver {
    version: Version,
    lacks: Vec<&'static str>,
}

impl Driver {
    /// The newest CUDA version that the driver supports.
    pub fn version(&self) -> Version {
        self.version
    }

    /// The functions of cust's bindings that the driver does not have; calling one returns
    /// `CUDA_ERROR_NOT_FOUND`. None of them is in [`REQUIRED`].
    pub fn lacks(&self) -> &[&'static str] {
        &self.lacks
    }
}

/// A version of CUDA.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Version {
    /// The 11 of 11.4.
    pub major: u32,
    /// The 4 of 11.4.
    pub minor: u32,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// Why no driver is bound.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The program was built for a system or processor that this crate does not know.
    #[error(
        "the CUDA driver is supported on x86-64 and aarch64 Linux, and this program is built for {} {}",
        std::env::consts::ARCH,
        std::env::consts::OS
    )]
    UnsupportedTarget,
    /// The driver's library is not installed, or cannot be loaded.
    #[error("the CUDA driver's library {library} was not loaded: {reason}")]
    LibraryNotFound {
        /// The name that was looked up.
        library: &'static str,
        /// What the system's loader said.
        reason: String,
    },
    /// The driver is older than [`OLDEST_SUPPORTED`].
    #[error(
        "the CUDA driver is too old: it supports CUDA {got}, and at least CUDA {needed} is needed"
    )]
    TooOld {
        /// The driver's version.
        got: Version,
        /// The oldest version that is accepted.
        needed: Version,
    },
    /// The driver does not tell its version, as the stub library of a CUDA toolkit does not.
    #[error("the CUDA driver did not tell its version: cuDriverGetVersion returned error {code}")]
    VersionUnknown {
        /// The `CUresult` that came back.
        code: i32,
    },
    /// The driver lacks functions of [`REQUIRED`].
    #[error("the CUDA driver's library {library} lacks {}", .names.join(", "))]
    MissingSymbols {
        /// The name of the library.
        library: &'static str,
        /// The functions that it lacks.
        names: Vec<&'static str>,
    },
}

/// Binds the process to the machine's CUDA driver.
///
/// The first call decides: later ones, from any thread, return the same driver or the same error. A bound
/// driver stays until the process ends. This does not initialise it: `cuInit` (or `cust::init`) comes next.
///
/// # Errors
///
/// Any [`LoadError`]; nothing is bound then.
pub fn load() -> Result<&'static Driver, LoadError> {
    static DRIVER: OnceLock<Result<Driver, LoadError>> = OnceLock::new();
    DRIVER
        .get_or_init(linux::bind)
        .as_ref()
        .map_err(Clone::clone)
}

/// The name and the description of an error code (a `CUresult`), such as `CUDA_ERROR_OUT_OF_MEMORY` and "out of
/// memory"; `None` where no driver is bound, or it does not know the code.
pub fn error_text(code: u32) -> Option<(String, String)> {
    linux::error_text(code)
}
