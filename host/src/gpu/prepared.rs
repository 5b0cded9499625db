//! Operations that are planned once and run any number of times.

use super::options::{Kind, Request};
use super::{
    DeviceBackwardOptions, DeviceOptions, DeviceView, DeviceViewMut, Gpu, Memory, StreamView,
    waited,
};
use crate::element::Element;
use crate::error::{Error, Result};
use crate::operation::{Direction, Operation, Operator};
use crate::options::Check;
use crate::plan::{Plan, Strategy};
use crate::shape;
use std::fmt;
use std::marker::PhantomData;

/// A scan of tensors of one shape, with its plan, its boundaries and its scratch memory on the device: a run allocates no device
/// memory, loads nothing, and touches one stream, so that it can be captured in a [`Graph`](super::Graph).
#[derive(Debug)]
pub struct Prepared<'gpu, T: Element>(Ready<'gpu, T>);

/// The gradient of an affine scan, as [`Prepared`] is a scan.
#[derive(Debug)]
pub struct PreparedBackward<'gpu, T: Element>(Ready<'gpu, T>);

/// Either of them.
struct Ready<'gpu, T: Element> {
    gpu: &'gpu Gpu,
    operation: Operation,
    shape: Vec<usize>,
    axis: isize,
    /// How many states there are.
    states: usize,
    kind: Kind,
    plan: Plan,
    boundaries: Option<Memory<'gpu>>,
    scratch: Memory<'gpu>,
    element: PhantomData<T>,
}

impl<T: Element> fmt::Debug for Ready<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ready")
            .field("operation", &self.operation)
            .field("shape", &self.shape)
            .field("axis", &self.axis)
            .field("plan", &self.plan)
            .finish_non_exhaustive()
    }
}

impl Gpu {
    /// Plans an operation along `axis` of tensors of `shape`, loads its kernels, allocates its scratch memory and copies the boundaries
    /// to the device. A `strategy` overrides the choice of [the rules](crate::plan).
    ///
    /// Runs have the same `options`, with these arrays or others, and always the same boundaries and layouts.
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
        self.ready(operation, shape, axis, &options.0, strategy)
            .map(Prepared)
    }

    /// [`prepare`](Self::prepare)s the gradient of an affine scan in `direction`.
    ///
    /// # Errors
    /// As for [`prepare`](Self::prepare). They name the scan.
    pub fn prepare_backward<T: Element>(
        &self,
        direction: Direction,
        shape: &[usize],
        axis: isize,
        options: &DeviceBackwardOptions<'_, T>,
        strategy: Option<Strategy>,
    ) -> Result<PreparedBackward<'_, T>> {
        let operation = Operation::new(Operator::AffineScan, direction);
        self.ready(operation, shape, axis, &options.0, strategy)
            .map(PreparedBackward)
    }

    fn ready<T: Element>(
        &self,
        operation: Operation,
        shape: &[usize],
        axis: isize,
        request: &Request<'_, T>,
        strategy: Option<Strategy>,
    ) -> Result<Ready<'_, T>> {
        let extents = shape::supported_extents::<T>(operation, shape, axis)?;
        let check = Check {
            operation,
            shape,
            extents,
        };
        let states = check.states(request.boundaries)?;
        request.validate_lengths(&check, states)?;
        request.validate_layouts(operation, extents)?;
        self.make_current()?;
        let planned = request.planned(operation, extents).strategy(strategy);
        let plan = self.plan(planned, operation, extents)?;
        if let Plan::Scan { launches, .. } = &plan {
            for launch in launches {
                self.module(launch.kernel, launch.registers)?;
            }
        }
        let stream = StreamView::from(&self.stream);
        // SAFETY: they are borrowed until this returns, and by then the stream is done, also after an error.
        let boundaries = unsafe { request.copy_boundaries(operation, stream) };
        let scratch = Memory::zeroed(operation, "scratch", plan.scratch_bytes(), stream);
        // Other streams use the memory.
        stream.synchronize()?;
        Ok(Ready {
            gpu: self,
            operation,
            shape: shape.to_vec(),
            axis,
            states,
            kind: request.kind(),
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
        &self.0.plan
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
    pub fn run<'s>(
        &mut self,
        inputs: &[DeviceView<'_, T>],
        options: DeviceOptions<'_, T>,
        out: DeviceViewMut<'_, T>,
        stream: impl Into<StreamView<'s>>,
    ) -> Result<()> {
        let stream = stream.into();
        // SAFETY: the views borrow their buffers and this its own memory until this returns, and by then the stream is done, also
        // after an error.
        waited(stream, unsafe {
            self.run_async(inputs, options, out, stream)
        })
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
    pub unsafe fn run_async<'s>(
        &self,
        inputs: &[DeviceView<'_, T>],
        options: DeviceOptions<'_, T>,
        out: DeviceViewMut<'_, T>,
        stream: impl Into<StreamView<'s>>,
    ) -> Result<()> {
        // SAFETY: says the caller.
        unsafe { self.0.run_async(inputs, &options.0, &[out], stream.into()) }
    }
}

impl<T: Element> PreparedBackward<'_, T> {
    /// What a run does.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.0.plan
    }

    /// Runs the gradient on `[a, h, dh]` to `[da, db]`. It returns when the result is there.
    ///
    /// The options are those that it was [prepared](Gpu::prepare_backward) with, as for [`Prepared::run`].
    ///
    /// # Aliasing
    /// As for [`affine_scan_backward_device`](Gpu::affine_scan_backward_device).
    ///
    /// # Errors
    /// [`Error`] says which argument does not fit, or what the driver reports.
    pub fn run<'s>(
        &mut self,
        inputs: [DeviceView<'_, T>; 3],
        options: DeviceBackwardOptions<'_, T>,
        out: [DeviceViewMut<'_, T>; 2],
        stream: impl Into<StreamView<'s>>,
    ) -> Result<()> {
        let stream = stream.into();
        // SAFETY: the views borrow their buffers and this its own memory until this returns, and by then the stream is done, also
        // after an error.
        waited(stream, unsafe {
            self.run_async(inputs, options, out, stream)
        })
    }

    /// As [`run`](Self::run), but it returns when the work is on the stream.
    ///
    /// # Errors
    /// As for [`run`](Self::run). An error of the work itself is seen when the stream is waited for.
    ///
    /// # Safety
    /// As for [`Prepared::run_async`].
    pub unsafe fn run_async<'s>(
        &self,
        inputs: [DeviceView<'_, T>; 3],
        options: DeviceBackwardOptions<'_, T>,
        out: [DeviceViewMut<'_, T>; 2],
        stream: impl Into<StreamView<'s>>,
    ) -> Result<()> {
        // SAFETY: says the caller.
        unsafe { self.0.run_async(&inputs, &options.0, &out, stream.into()) }
    }
}

impl<T: Element> Ready<'_, T> {
    /// # Safety
    /// As for [`Prepared::run_async`].
    unsafe fn run_async(
        &self,
        inputs: &[DeviceView<'_, T>],
        request: &Request<'_, T>,
        outputs: &[DeviceViewMut<'_, T>],
        stream: StreamView<'_>,
    ) -> Result<()> {
        let (operation, shape) = (self.operation, &self.shape[..]);
        let extents = request.extents(operation, inputs, outputs, shape, self.axis)?;
        let check = Check {
            operation,
            shape,
            extents,
        };
        request.validate_lengths(&check, self.states)?;
        let inputs = request.parts(inputs, extents);
        request.validate_places(operation, &inputs, outputs)?;
        if let Some(option) = request.difference(&self.kind) {
            return Err(Error::NotAsPrepared { operation, option });
        }
        self.gpu.make_current()?;
        let boundaries = self.boundaries.as_ref().map_or(0, Memory::address);
        let arrays = request.arrays(&inputs, outputs, boundaries);
        // SAFETY: the lengths and the options are those that the plan is for, and the scratch memory is the plan's. The rest says the
        // caller.
        unsafe {
            self.gpu
                .execute(&self.plan, &arrays, self.scratch.address(), stream)
        }
    }
}

impl<T: Element> Drop for Ready<'_, T> {
    fn drop(&mut self) {
        // The memory is given up in it. If it cannot be made current, it is lost, and its memory with it.
        let _ = self.gpu.make_current();
    }
}
