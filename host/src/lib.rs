//! Parallel scans at the speed of a memory copy: cumulative sums and affine scans of tensors along any axis, on a GPU
//! with kernels in Rust, or on a CPU.
//!
//! | operation | result along the axis |
//! |---|---|
//! | `cumsum` | y_j = Σ_{k≤j} x_k |
//! | `reverse_cumsum` | y_j = Σ_{k≥j} x_k (inclusive suffix sum) |
//! | `affine_scan` | h_0 = b_0, h_t = a_t·h_{t−1} + b_t |
//!
//! Any of them can be inclusive or exclusive, take an initial state and give a final one, start afresh at steps of a mask, and
//! run over packed sequences of several lengths, and read inputs as they lie in memory, transposed, reversed or sliced ([`Layout`]):
//! see [`Options`]. Elements are `f32`, `f64`, the halves
//! [`f16`](half::f16) and [`bf16`](half::bf16) (summed up in `f32`), [`Complex<f32>`](num_complex::Complex), and, for sums,
//! `i32` and `i64`. The affine scan has its gradient, in one pass.
//!
//! The affine scan is the recurrence of diagonal state-space models and gated linear RNNs, of discounted returns, and
//! of first-order filters.
//!
//! # Quick start
//! ```
//! use ptxscan::Engine;
//!
//! // The first usable GPU, else the CPU; `engine.why_no_gpu()` says why.
//! let engine = Engine::auto();
//!
//! // Row-major tensors, any rank, any axis; negative axes count from the end.
//! let x = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0_f32];
//! assert_eq!(engine.reverse_cumsum(&x, &[2, 3], -1)?, [6.0, 5.0, 3.0, 15.0, 11.0, 6.0]);
//!
//! let (a, b) = ([9.0, 0.5, 0.5_f32], [8.0, 1.0, 1.0_f32]);
//! assert_eq!(engine.affine_scan(&a, &b, &[3], 0)?, [8.0, 5.0, 3.5]);
//! # Ok::<(), ptxscan::Error>(())
//! ```
//!
//! A sequence that comes in pieces goes on from state to state:
//! ```
//! use ptxscan::{Engine, Operation, Options};
//!
//! let engine = Engine::cpu();
//! let (mut state, mut sums) = ([0.0_f32], Vec::new());
//! for piece in [&[1.0, 2.0_f32][..], &[3.0, 4.0, 5.0]] {
//!     let before = state;
//!     let options = Options::new().initial(&before).final_state(&mut state);
//!     sums.extend(engine.scan_with(Operation::CUMSUM, &[piece], &[piece.len()], 0, options)?);
//! }
//! assert_eq!(sums, [1.0, 3.0, 6.0, 10.0, 15.0]);
//! # Ok::<(), ptxscan::Error>(())
//! ```
//!
//! An [`Engine`] is made once and used for any number of operations. Every operation allocates its result, or, with
//! `_into` in its name, writes it to a slice of the caller's. [`gpu::Gpu`] has the operations on device memory
//! and on a stream of the caller's, both of which may be another library's ([`gpu::DeviceView`], [`gpu::StreamView`]).
//!
//! # Numerics
//! Sums are added up in the direction of the scan, never taken as a total less a prefix. Results are the same to the
//! bit from run to run; those of a sequence do not depend on what is in the others. On a GPU they do not depend on how many
//! others there are; on a CPU they depend on the shape, the type, resets and boundaries, and not on the number of threads. A GPU and a CPU may differ in the
//! last bits. An infinity or a NaN reaches only the elements that the serial recurrence takes it to. `a_0` of a sequence is
//! not used.
//!
//! The affine scan composes steps, and so multiplies gates: where the product of gates within some hundred steps underflows
//! to 0, a carry is taken to be forgotten, even if the gates after that would bring it back.
//!
//! # Features
//! Both are on by default.
//! - `cuda`: the GPU back end. It needs no CUDA installation to build, and no driver to start. Outside this workspace,
//!   the build script of its dependency `cust` asks for a folder of CUDA's; [`cuda_driver`] tells how to satisfy it with
//!   an empty archive. Without this feature the library builds anywhere, and [`Engine::auto`] takes the CPU.
//! - `cli`: the program `ptxscan`. A dependent that wants the library alone turns it off.

mod cpu;
mod element;
mod engine;
mod error;
#[cfg(feature = "cuda")]
pub mod gpu;
mod layout;
mod methods;
mod operation;
mod options;
pub mod plan;
pub mod reference;
mod shape;

pub use cpu::Cpu;
pub use element::Element;
pub use engine::{Backend, Engine};
#[cfg(feature = "cuda")]
pub use error::CudaError;
pub use error::{Error, Result};
pub use half;
pub use layout::Layout;
pub use num_complex;
pub use operation::{Direction, Operation, Operator};
pub use options::{BackwardOptions, Inclusion, Options};
pub use shape::{Extents, extents};

/// The README's example compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
