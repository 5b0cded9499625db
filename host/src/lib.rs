//! Parallel scans at the speed of a memory copy.

mod cpu;
mod element;
mod engine;
mod error;
#[cfg(feature = "cuda")]
pub mod gpu;
mod methods;
mod operation;
#[cfg(feature = "cuda")]
pub mod plan;
pub mod reference;
mod shape;

pub use cpu::Cpu;
pub use element::Element;
pub use engine::{Backend, Engine};
#[cfg(feature = "cuda")]
pub use error::CudaError;
pub use error::{Error, Result};
pub use operation::{Direction, Operation, Operator};
pub use shape::{Extents, extents};
