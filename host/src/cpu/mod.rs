//! The CPU back end.

use crate::element::Element;
use crate::error::{Error, Result};
use crate::methods::methods;
use crate::operation::Operation;
use crate::shape::Extents;
use std::mem::MaybeUninit;

/// The CPU back end.
#[derive(Debug, Default)]
pub struct Cpu {
    pool: Option<rayon::ThreadPool>,
}

impl Cpu {
    /// A back end that runs in rayon's current thread pool: the one it is called in, else the global one.
    pub const fn new() -> Self {
        Self { pool: None }
    }

    /// A back end with a pool of `threads` threads of its own; 0 means as many as there are CPUs.
    ///
    /// # Errors
    /// [`Error::Threads`] where the system cannot start them.
    pub fn with_threads(threads: usize) -> Result<Self> {
        rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .map(|pool| Self { pool: Some(pool) })
            .map_err(|error| Error::Threads {
                threads,
                reason: error.to_string(),
            })
    }

    /// The number of threads that work on a large operation.
    pub fn threads(&self) -> usize {
        self.pool.as_ref().map_or_else(
            rayon::current_num_threads,
            rayon::ThreadPool::current_num_threads,
        )
    }

    pub(crate) fn device_name(&self) -> String {
        format!("CPU, {} threads", self.threads())
    }

    pub(crate) fn run<T: Element>(
        &self,
        operation: Operation,
        inputs: &[&[T]],
        extents: Extents,
        out: &mut [MaybeUninit<T>],
    ) -> Result<()> {
        use crate::operation::{Direction, Operator};
        for outer in 0..extents.outer {
            for inner in 0..extents.inner {
                let mut state: Option<T> = None;
                for t in 0..extents.len {
                    let t = if operation.direction == Direction::Forward {
                        t
                    } else {
                        extents.len - 1 - t
                    };
                    let i = (outer * extents.len + t) * extents.inner + inner;
                    let h = match (operation.operator, state) {
                        (_, None) => inputs[inputs.len() - 1][i],
                        (Operator::Cumsum, Some(h)) => h + inputs[0][i],
                        (Operator::AffineScan, Some(h)) => inputs[0][i] * h + inputs[1][i],
                    };
                    state = Some(h);
                    out[i].write(h);
                }
            }
        }
        Ok(())
    }
}

methods!(Cpu);
