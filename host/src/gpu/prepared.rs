//! Operations that are planned once and run any number of times.

use super::options::Kind;
use super::{DeviceOptions, DeviceView, DeviceViewMut, Doing, Gpu, Memory};
use crate::element::Element;
use crate::error::{Error, Result};
use crate::operation::Operation;
use crate::plan::{Plan, Strategy};
use crate::shape::{self, Extents};
use cust::stream::Stream;
use std::fmt;
use std::marker::PhantomData;

/// An operation on tensors of one shape, with its plan, its boundaries and its scratch memory on the device: a run allocates no device
/// memory, loads nothing, and touches one stream, so that it can be captured in a [`Graph`](super::Graph).
pub struct Prepared<'gpu, T: Element> {
    gpu: &'gpu Gpu,
    operation: Operation,
    shape: Vec<usize>,
    axis: isize,
    extents: Extents,
    /// How many states there are.
    states: usize,
    kind: Kind,
    plan: Plan,
    boundaries: Option<Memory<'gpu>>,
    scratch: Memory<'gpu>,
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
    /// Plans an operation along `axis` of tensors of `shape`, loads its kernels, allocates its scratch memory and copies the boundaries
    /// to the device. A `strategy` overrides the choice of [the rules](crate::plan).
    ///
    /// Runs have the same `options`, with these arrays or others, and always the same boundaries.
    ///
    /// # Errors
    /// The shape, the axis or the options do not fit, no launch covers them with that strategy, device memory cannot be had, or the
    /// driver reports an error.
    pub fn prepare<T: Element>(
        &self,
        operation: Operation,
        shape: &[usize],
        axis: isize,
        options: &DeviceOptions<'_, T>,
        strategy: Option<Strategy>,
    ) -> Result<Prepared<'_, T>> {
        let extents = shape::supported_extents::<T>(operation, shape, axis)?;
        let states = options.states(operation, shape, extents)?;
        options.validate_lengths(operation, shape, extents, states)?;
        self.make_current()?;
        let planned = options.planned(operation, extents).strategy(strategy);
        let plan = self.plan(planned, operation, extents)?;
        if let Plan::Scan { launches, .. } = &plan {
            for launch in launches {
                self.module(launch.kernel, launch.registers)?;
            }
        }
        let stream = &self.stream;
        let copy = |boundaries: &[usize]| {
            // SAFETY: they are borrowed until this returns, and by then the stream is done, also after an error.
            unsafe { Memory::copy_of(operation, "boundaries", boundaries, stream) }
        };
        let boundaries = options.host_boundaries().map(copy).transpose();
        let scratch = Memory::zeroed(operation, "scratch", plan.scratch_bytes(), stream);
        // Other streams use the memory.
        stream.synchronize().doing("wait for the stream")?;
        Ok(Prepared {
            gpu: self,
            operation,
            shape: shape.to_vec(),
            axis,
            extents,
            states,
            kind: options.kind(),
            plan,
            boundaries: boundaries?,
            scratch: scratch?,
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
    /// The options are those that it was [prepared](Gpu::prepare) with; arrays may be others. Boundaries, which are the same anyway, can
    /// be left out.
    ///
    /// # Aliasing
    /// As for [`scan_device`](Gpu::scan_device).
    ///
    /// # Errors
    /// [`Error`] says which argument does not fit, or what the driver reports.
    pub fn run(
        &mut self,
        inputs: &[DeviceView<'_, T>],
        options: DeviceOptions<'_, T>,
        out: DeviceViewMut<'_, T>,
        stream: &Stream,
    ) -> Result<()> {
        // SAFETY: the views borrow their buffers and this its own memory until this returns, and by then the stream is done, also
        // after an error.
        let enqueued = unsafe { self.run_async(inputs, options, out, stream) };
        let done = stream.synchronize().doing("wait for the stream");
        enqueued.and(done)
    }

    /// As [`run`](Self::run), but it returns when the work is on the stream.
    ///
    /// # Errors
    /// As for [`run`](Self::run). An error of the work itself is seen when the stream is waited for.
    ///
    /// # Safety
    /// Until the stream has done the work, and also after an error, which can come when some of it is on the stream:
    /// - the buffers and this live;
    /// - nothing else writes what the scan reads, or accesses what it writes;
    /// - no other run of this begins, but on the same stream.
    ///
    /// Where the work is captured in a graph, that goes for each launch of the graph.
    pub unsafe fn run_async(
        &self,
        inputs: &[DeviceView<'_, T>],
        options: DeviceOptions<'_, T>,
        out: DeviceViewMut<'_, T>,
        stream: &Stream,
    ) -> Result<()> {
        let (operation, shape) = (self.operation, &self.shape);
        let lengths: Vec<usize> = inputs.iter().map(DeviceView::len).collect();
        let extents = shape::validate::<T>(operation, &lengths, shape, self.axis, Some(out.len()))?;
        options.validate(operation, inputs, shape, extents, self.states, &out)?;
        if let Some(option) = options.difference(&self.kind) {
            return Err(Error::NotAsPrepared { operation, option });
        }
        self.gpu.make_current()?;
        let boundaries = self.boundaries.as_ref().map_or(0, Memory::address);
        let arrays = options.arrays(inputs, &out, boundaries);
        // SAFETY: the lengths and the options are those that the plan is for, and the scratch memory is the plan's. The rest says the
        // caller.
        unsafe {
            self.gpu
                .execute(&self.plan, &arrays, self.scratch.address(), stream)
        }
    }
}

impl<T: Element> Drop for Prepared<'_, T> {
    fn drop(&mut self) {
        // The memory is given up in it. If it cannot be made current, it is lost, and its memory with it.
        let _ = self.gpu.make_current();
    }
}
