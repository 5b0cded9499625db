//! Operations that are planned once and run any number of times.

use super::{DeviceView, DeviceViewMut, Doing, Extras, Gpu};
use crate::element::Element;
use crate::error::{Error, Result};
use crate::operation::Operation;
use crate::plan::{Plan, Strategy};
use crate::shape::{self, Extents};
use cust::memory::DeviceBuffer;
use cust::stream::Stream;
use std::fmt;
use std::marker::PhantomData;

/// An operation on tensors of one shape, with its plan and its scratch memory: a run allocates nothing, loads nothing, and touches one
/// stream, so that it can be captured in a CUDA graph.
pub struct Prepared<'gpu, T: Element> {
    gpu: &'gpu Gpu,
    operation: Operation,
    shape: Vec<usize>,
    axis: isize,
    extents: Extents,
    plan: Plan,
    scratch: Option<DeviceBuffer<u64>>,
    element: PhantomData<T>,
}

impl<T: Element> fmt::Debug for Prepared<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prepared")
            .field("operation", &self.operation)
            .field("extents", &self.extents)
            .field("plan", &self.plan)
            .finish_non_exhaustive()
    }
}

impl Gpu {
    /// Plans an operation along `axis` of tensors of `shape`, loads its kernels and allocates its scratch memory. A `strategy`
    /// overrides the choice of [the rules](crate::plan).
    ///
    /// # Errors
    /// The shape or the axis does not fit, no launch covers them with that strategy, scratch memory cannot be had, or the driver
    /// reports an error.
    pub fn prepare<T: Element>(
        &self,
        operation: Operation,
        shape: &[usize],
        axis: isize,
        strategy: Option<Strategy>,
    ) -> Result<Prepared<'_, T>> {
        let extents = shape::extents::<T>(operation, shape, axis)?;
        self.make_current()?;
        let planned = Self::planned::<T>(operation, extents).strategy(strategy);
        let plan = self.plan(planned, operation, extents)?;
        if let Plan::Scan { launches, .. } = &plan {
            for launch in launches {
                self.module(launch.kernel, launch.registers)?;
            }
        }
        let words = plan.scratch_words();
        let scratch = match words {
            0 => None,
            _ => match DeviceBuffer::zeroed(words) {
                Err(cust::error::CudaError::OutOfMemory) => {
                    return Err(Error::OutOfDeviceMemory {
                        operation,
                        what: "scratch",
                        bytes: words * size_of::<u64>(),
                    });
                }
                result => Some(result.doing("allocate scratch memory")?),
            },
        };
        Ok(Prepared {
            gpu: self,
            operation,
            shape: shape.to_vec(),
            axis,
            extents,
            plan,
            scratch,
            element: PhantomData,
        })
    }
}

impl<T: Element> Prepared<'_, T> {
    /// What a run does.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Runs the operation on `inputs`, which are `[x]` or `[a, b]`, to `out`. It returns when the result is there.
    ///
    /// # Errors
    /// [`Error`] says which argument does not fit, or what the driver reports.
    pub fn run(
        &mut self,
        inputs: &[DeviceView<'_, T>],
        out: DeviceViewMut<'_, T>,
        stream: &Stream,
    ) -> Result<()> {
        // SAFETY: the views borrow their buffers and this its scratch memory until this returns, and by then the stream is done.
        unsafe { self.run_async(inputs, out, stream)? };
        stream.synchronize().doing("wait for the stream")
    }

    /// As [`run`](Self::run), but it returns when the work is on the stream.
    ///
    /// # Errors
    /// As for [`run`](Self::run). An error of the work itself is seen when the stream is waited for.
    ///
    /// # Safety
    /// Until the stream has done the work, the buffers and this live, nothing else writes the inputs or accesses `out`, and no other
    /// run of this begins, but on the same stream.
    pub unsafe fn run_async(
        &self,
        inputs: &[DeviceView<'_, T>],
        out: DeviceViewMut<'_, T>,
        stream: &Stream,
    ) -> Result<()> {
        let lengths: Vec<usize> = inputs.iter().map(DeviceView::len).collect();
        let out_len = Some(out.len());
        shape::validate::<T>(self.operation, &lengths, &self.shape, self.axis, out_len)?;
        let addresses: Vec<u64> = inputs.iter().map(DeviceView::address).collect();
        let scratch = self
            .scratch
            .as_ref()
            .map_or(0, |buffer| buffer.as_device_ptr().as_raw());
        self.gpu.make_current()?;
        // SAFETY: the lengths are those of the plan's shape, and the scratch memory is the plan's. The rest says the caller.
        unsafe {
            self.gpu.execute(
                &self.plan,
                &addresses,
                &[out.address()],
                Extras::default(),
                scratch,
                stream,
            )
        }
    }
}
