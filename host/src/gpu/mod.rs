//! The GPU back end: plans carried out through `cust`. The only launch of a kernel is here.

mod graph;
mod memory;
mod options;
mod prepared;
pub mod ptx;
mod stream;
mod view;

pub use cust;
pub use graph::Graph;
pub use options::{DeviceBackwardOptions, DeviceOptions};
pub use prepared::{Prepared, PreparedBackward};
pub use stream::StreamView;
pub use view::{DeviceView, DeviceViewMut};

use crate::element::Element;
use crate::error::{CudaError, Error, Result};
use crate::layout::Layout;
use crate::methods::methods;
use crate::operation::{Direction, Operation, Operator};
use crate::options::{BackwardOptions, Check, Options};
use crate::plan::{DeviceLimits, Launch, Plan, PlanBuilder};
use crate::shape::Extents;
use cust::context::{Context, CurrentContext};
use cust::device::{Device, DeviceAttribute};
use cust::module::{Module, ModuleJitOption};
use cust::stream::{Stream, StreamFlags};
use cust::sys;
use memory::Memory;
use options::{Request, Task};
use ptxscan_kernels::entry::{KERNELS, Kernel};
use std::ffi::c_void;
use std::fmt;
use std::mem::MaybeUninit;
use std::sync::OnceLock;

/// The oldest compute capability that the kernels run on.
const OLDEST_CAPABILITY: (u32, u32) = (8, 0);

/// A GPU with the kernels that were used so far: made once, used for any number of operations, by any thread.
///
/// It retains the device's primary context, which PyTorch, JAX and the CUDA runtime use too, and makes it current
/// for the calling thread in each call.
pub struct Gpu {
    // Before the context, in which they are.
    modules: Vec<OnceLock<Module>>,
    stream: Stream,
    context: Context,
    device: Device,
    capability: (u32, u32),
    limits: DeviceLimits,
    driver: cuda_driver::Version,
}

impl fmt::Debug for Gpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gpu")
            .field("device", &self.device)
            .field("capability", &self.capability)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

/// Names what was being done when CUDA reported an error.
trait Doing<T> {
    fn doing(self, doing: &'static str) -> Result<T>;
    fn doing_with(self, doing: &'static str, kernel: &Kernel) -> Result<T>;
}

impl<T, E: Into<CudaError>> Doing<T> for Result<T, E> {
    fn doing(self, doing: &'static str) -> Result<T> {
        self.map_err(|source| Error::Cuda {
            doing,
            kernel: None,
            source: source.into(),
        })
    }

    fn doing_with(self, doing: &'static str, kernel: &Kernel) -> Result<T> {
        self.map_err(|source| Error::Cuda {
            doing,
            kernel: Some(kernel.name),
            source: source.into(),
        })
    }
}

/// A driver call's result.
fn check(code: sys::CUresult) -> Result<(), CudaError> {
    match code {
        sys::CUresult::CUDA_SUCCESS => Ok(()),
        code => Err(CudaError(code as u32)),
    }
}

/// Waits for a stream that work was put on, also after an error. The first error counts.
fn waited(stream: StreamView<'_>, enqueued: Result<()>) -> Result<()> {
    let done = stream.synchronize();
    enqueued.and(done)
}

/// The addresses of what an operation reads and writes; 0 where it is not there.
struct Arrays {
    inputs: Vec<u64>,
    outputs: Vec<u64>,
    initial: u64,
    d_final: u64,
    last: u64,
    mask: u64,
    boundaries: u64,
}

/// How many GPUs the driver shows.
///
/// # Errors
/// There is no usable driver.
pub fn device_count() -> Result<usize> {
    cuda_driver::load()?;
    match cust::init(cust::CudaFlags::empty()).and_then(|()| Device::num_devices()) {
        Ok(count) => Ok(count as usize),
        Err(cust::error::CudaError::NoDevice) => Ok(0),
        Err(source) => Err(source).doing("initialise the driver"),
    }
}

impl Gpu {
    /// The GPU number `ordinal`, counted from 0 as the driver does.
    ///
    /// # Errors
    /// There is no usable driver, no such device, or it is older than compute capability 8.0; or the driver
    /// reports an error.
    pub fn new(ordinal: usize) -> Result<Self> {
        let count = device_count()?;
        if ordinal >= count {
            return Err(Error::NoSuchGpu { ordinal, count });
        }
        let driver = cuda_driver::load()?.version();
        let device = Device::get_device(ordinal as u32).doing("get the device")?;
        let attribute = |attribute| {
            device
                .get_attribute(attribute)
                .map(|value| value.max(0) as u32)
                .doing("read the device's attributes")
        };
        let capability = (
            attribute(DeviceAttribute::ComputeCapabilityMajor)?,
            attribute(DeviceAttribute::ComputeCapabilityMinor)?,
        );
        if capability < OLDEST_CAPABILITY {
            return Err(Error::GpuTooOld {
                ordinal,
                needed: OLDEST_CAPABILITY,
                got: capability,
            });
        }
        let raw_attribute = |attribute: sys::CUdevice_attribute| {
            let mut value = 0;
            // SAFETY: `value` is a place for the result, and the device exists.
            check(unsafe { sys::cuDeviceGetAttribute(&mut value, attribute, device.as_raw()) })
                .map(|()| value.max(0) as u32)
                .doing("read the device's attributes")
        };
        use sys::CUdevice_attribute_enum as raw;
        let limits = DeviceLimits {
            multiprocessors: attribute(DeviceAttribute::MultiprocessorCount)?,
            shared_bytes_per_multiprocessor: attribute(
                DeviceAttribute::MaxSharedMemoryPerMultiprocessor,
            )?,
            shared_bytes_per_block: raw_attribute(
                raw::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
            )?,
            shared_bytes_reserved: raw_attribute(
                raw::CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK,
            )?,
        };
        let context = Context::new(device).doing("retain the device's context")?;
        let stream = Stream::new(StreamFlags::NON_BLOCKING, None).doing("make a stream")?;
        Ok(Self {
            modules: KERNELS.iter().map(|_| OnceLock::new()).collect(),
            stream,
            context,
            device,
            capability,
            limits,
            driver,
        })
    }

    /// The device's name.
    #[must_use]
    pub fn device_name(&self) -> String {
        self.device.name().unwrap_or_else(|_| "GPU".to_string())
    }

    /// The device's compute capability, such as (9, 0).
    #[must_use]
    pub fn compute_capability(&self) -> (u32, u32) {
        self.capability
    }

    /// The newest CUDA version that the driver supports.
    #[must_use]
    pub fn driver_version(&self) -> cuda_driver::Version {
        self.driver
    }

    /// Bytes of device memory: free, and in all.
    ///
    /// # Errors
    /// The driver reports one.
    pub fn memory(&self) -> Result<(usize, usize)> {
        self.make_current()?;
        cust::memory::mem_get_info().doing("ask for the free memory")
    }

    /// What plans for this device are made from.
    #[must_use]
    pub fn limits(&self) -> &DeviceLimits {
        &self.limits
    }

    /// Makes the device's context current for the calling thread. Buffers and streams are made in the current
    /// context.
    ///
    /// # Errors
    /// The driver reports one.
    pub fn make_current(&self) -> Result<()> {
        CurrentContext::set_current(&self.context).doing("make the device's context current")
    }

    /// The scan that `operation` names, along `axis` of `inputs`, which are `[x]` or `[a, b]`, to `out`; all in device
    /// memory. It returns when the result is there.
    ///
    /// # Shapes
    /// The inputs and `out` are row-major tensors of `shape`, but inputs with other [layouts](DeviceOptions::layouts). A negative `axis`
    /// counts from the end. Arrays of the options are as [`Options`] has them.
    ///
    /// # Aliasing
    /// `out`, and the final states, overlap with no other array, nor lie between the elements of an input: no scan is done in place. (A carry that is infinite or NaN makes
    /// kernels read the inputs once more, when some of the result is written.)
    ///
    /// # Errors
    /// [`Error`] says which argument does not fit, or what the driver reports.
    #[expect(
        clippy::too_many_arguments,
        reason = "those of scan_with_into, and a stream"
    )]
    pub fn scan_device<'s, T: Element>(
        &self,
        operation: Operation,
        inputs: &[DeviceView<'_, T>],
        shape: &[usize],
        axis: isize,
        options: DeviceOptions<'_, T>,
        out: DeviceViewMut<'_, T>,
        stream: impl Into<StreamView<'s>>,
    ) -> Result<()> {
        let stream = stream.into();
        // SAFETY: the views borrow their buffers until this returns, and by then the stream is done, also after an error.
        waited(stream, unsafe {
            self.scan_device_async(operation, inputs, shape, axis, options, out, stream)
        })
    }

    /// As [`scan_device`](Self::scan_device), but it returns when the work is on the stream. Memory for boundaries and for scratch is
    /// allocated and given up on the stream too.
    ///
    /// # Errors
    /// As for [`scan_device`](Self::scan_device). An error of the work itself is seen when the stream is waited for.
    ///
    /// # Safety
    /// Until the stream has done the work, and also after an error, which can come when some of it is on the stream:
    /// - the buffers live, and so do the boundaries;
    /// - nothing else writes what the scan reads, or accesses what it writes.
    #[expect(
        clippy::too_many_arguments,
        reason = "those of scan_with_into, and a stream"
    )]
    pub unsafe fn scan_device_async<'s, T: Element>(
        &self,
        operation: Operation,
        inputs: &[DeviceView<'_, T>],
        shape: &[usize],
        axis: isize,
        options: DeviceOptions<'_, T>,
        out: DeviceViewMut<'_, T>,
        stream: impl Into<StreamView<'s>>,
    ) -> Result<()> {
        let (request, stream) = (&options.0, stream.into());
        // SAFETY: says the caller.
        unsafe { self.call(operation, inputs, shape, axis, request, &[out], stream) }
    }

    /// The gradient of an affine scan in `direction`, along `axis`, from `[a, h, dh]` to `[da, db]`; all in device memory. It returns when
    /// the result is there. [`affine_scan_backward`](Self::affine_scan_backward), which has slices, says what is what.
    ///
    /// # Shapes
    /// All inputs and both outputs are row-major tensors of `shape`, but inputs with other
    /// [layouts](DeviceBackwardOptions::layouts). A negative `axis` counts from the end. Arrays of the options are as
    /// [`BackwardOptions`] has them.
    ///
    /// # Aliasing
    /// The outputs, and the gradient of the initial states, overlap with no other array, as for [`scan_device`](Self::scan_device).
    ///
    /// # Errors
    /// [`Error`] says which argument does not fit, or what the driver reports. It names the scan.
    #[expect(
        clippy::too_many_arguments,
        reason = "those of affine_scan_backward_into, and a stream"
    )]
    pub fn affine_scan_backward_device<'s, T: Element>(
        &self,
        direction: Direction,
        inputs: [DeviceView<'_, T>; 3],
        shape: &[usize],
        axis: isize,
        options: DeviceBackwardOptions<'_, T>,
        out: [DeviceViewMut<'_, T>; 2],
        stream: impl Into<StreamView<'s>>,
    ) -> Result<()> {
        let stream = stream.into();
        // SAFETY: the views borrow their buffers until this returns, and by then the stream is done, also after an error.
        waited(stream, unsafe {
            self.affine_scan_backward_device_async(
                direction, inputs, shape, axis, options, out, stream,
            )
        })
    }

    /// As [`affine_scan_backward_device`](Self::affine_scan_backward_device), but it returns when the work is on the stream.
    ///
    /// # Errors
    /// As for [`affine_scan_backward_device`](Self::affine_scan_backward_device). An error of the work itself is seen when the stream is
    /// waited for.
    ///
    /// # Safety
    /// As for [`scan_device_async`](Self::scan_device_async).
    #[expect(
        clippy::too_many_arguments,
        reason = "those of affine_scan_backward_into, and a stream"
    )]
    pub unsafe fn affine_scan_backward_device_async<'s, T: Element>(
        &self,
        direction: Direction,
        inputs: [DeviceView<'_, T>; 3],
        shape: &[usize],
        axis: isize,
        options: DeviceBackwardOptions<'_, T>,
        out: [DeviceViewMut<'_, T>; 2],
        stream: impl Into<StreamView<'s>>,
    ) -> Result<()> {
        let operation = Operation::new(Operator::AffineScan, direction);
        let (request, stream) = (&options.0, stream.into());
        // SAFETY: says the caller.
        unsafe { self.call(operation, &inputs, shape, axis, request, &out, stream) }
    }

    /// Checks a scan or a gradient, and puts it on a stream.
    ///
    /// # Safety
    /// As for [`scan_device_async`](Self::scan_device_async).
    #[expect(clippy::too_many_arguments, reason = "those of the public methods")]
    unsafe fn call<T: Element>(
        &self,
        operation: Operation,
        inputs: &[DeviceView<'_, T>],
        shape: &[usize],
        axis: isize,
        request: &Request<'_, T>,
        outputs: &[DeviceViewMut<'_, T>],
        stream: StreamView<'_>,
    ) -> Result<()> {
        let extents = request.extents(operation, inputs, outputs, shape, axis)?;
        let check = Check {
            operation,
            shape,
            extents,
        };
        let states = check.states(request.boundaries)?;
        request.validate_lengths(&check, states)?;
        let inputs = request.parts(inputs, extents);
        request.validate_places(operation, &inputs, outputs)?;
        self.make_current()?;
        // SAFETY: the lengths are those of the shape, and the rest is the caller's obligation.
        unsafe { self.enqueue(operation, extents, &inputs, request, outputs, stream) }
    }

    /// Puts a scan or a gradient on a stream.
    ///
    /// # Safety
    /// The arrays are as many as the task has, and as long as the extents and the options say; of the inputs they are the parts that are
    /// read. The rest is as for [`scan_device_async`](Self::scan_device_async).
    unsafe fn enqueue<T: Element>(
        &self,
        operation: Operation,
        extents: Extents,
        inputs: &[DeviceView<'_, T>],
        request: &Request<'_, T>,
        outputs: &[DeviceViewMut<'_, T>],
        stream: StreamView<'_>,
    ) -> Result<()> {
        let plan = self.plan(request.planned(operation, extents), operation, extents)?;
        // SAFETY: the boundaries live until the stream has done the work, says the caller.
        let boundaries = unsafe { request.copy_boundaries(operation, stream)? };
        let scratch = Memory::zeroed(operation, "scratch", plan.scratch_bytes(), stream)?;
        let boundaries = boundaries.as_ref().map_or(0, Memory::address);
        let arrays = request.arrays(inputs, outputs, boundaries);
        // SAFETY: the plan is for these arrays, and the scratch memory is its own. The rest says the caller.
        unsafe { self.execute(&plan, &arrays, scratch.address(), stream) }
    }

    /// The plan on this device.
    fn plan(&self, planned: PlanBuilder, operation: Operation, extents: Extents) -> Result<Plan> {
        planned
            .build(&self.limits)
            .ok_or(Error::NoPlan { operation, extents })
    }

    /// Puts a plan's work on a stream.
    ///
    /// # Safety
    /// The plan is for these arrays; the scratch memory has as many words as it says, which were zero before the first run, and no
    /// other run uses it until the stream has done the work. The rest is as for [`scan_device_async`](Self::scan_device_async).
    unsafe fn execute(
        &self,
        plan: &Plan,
        arrays: &Arrays,
        scratch: u64,
        stream: StreamView<'_>,
    ) -> Result<()> {
        match plan {
            Plan::Nothing => Ok(()),
            Plan::Copy { input, bytes } => {
                let (out, input) = (arrays.outputs[0], arrays.inputs[*input]);
                // SAFETY: both arrays have as many bytes, says the caller.
                let code =
                    unsafe { sys::cuMemcpyDtoDAsync_v2(out, input, *bytes, stream.as_inner()) };
                check(code).doing("copy on the device")
            }
            Plan::Scan { launches, .. } => {
                let Arrays {
                    inputs,
                    outputs,
                    initial,
                    d_final,
                    last,
                    mask,
                    boundaries,
                } = arrays;
                let others = [*initial, *d_final, *last, *mask, *boundaries, scratch];
                let arrays = [inputs.as_slice(), outputs, &others].concat();
                launches.iter().try_for_each(|launch| {
                    // SAFETY: the plan's kernels take these arrays and the plan's extents, which are those of the arrays.
                    unsafe { self.launch(launch, &arrays, stream) }
                })
            }
        }
    }

    /// # Safety
    /// As [`execute`](Self::execute); the launch is one of the plan for these arrays.
    unsafe fn launch(&self, launch: &Launch, arrays: &[u64], stream: StreamView<'_>) -> Result<()> {
        let kernel = launch.kernel;
        let module = self.module(kernel, launch.registers)?;
        let function = module
            .get_function(kernel.name)
            .doing_with("find the kernel in its module", kernel)?;
        // Each parameter is 64 bits: the arrays, then the numbers.
        let mut arguments: Vec<u64> = [arrays, &launch.numbers].concat();
        debug_assert_eq!(arguments.len(), kernel.parameters.len());
        let mut pointers: Vec<*mut c_void> = arguments
            .iter_mut()
            .map(|argument| std::ptr::from_mut(argument).cast())
            .collect();
        let (x, y) = launch.grid;
        let (threads, shared) = (launch.block, launch.shared_bytes);
        let (function, stream) = (function.to_raw(), stream.as_inner());
        let pointers = pointers.as_mut_ptr();
        // SAFETY: the arguments are as many as the kernel has parameters, of their size, and in their order; the arrays
        // are valid for the extents, says the caller; the block and its shared memory are what the kernel asks for.
        check(unsafe {
            let extra = std::ptr::null_mut();
            sys::cuLaunchKernel(
                function, x, y, 1, threads, 1, 1, shared, stream, pointers, extra,
            )
        })
        .doing_with("launch", kernel)
    }

    /// The module with a kernel, loaded when it is first asked for.
    fn module(&self, kernel: &'static Kernel, registers: u32) -> Result<&Module> {
        let index = KERNELS
            .iter()
            .position(|known| known == kernel)
            .expect("a plan's kernel is one of the table");
        if let Some(module) = self.modules[index].get() {
            return Ok(module);
        }
        let text = ptx::module(kernel).ok_or(Error::KernelMissing {
            kernel: kernel.name,
        })?;
        let module = Module::from_ptx(text, &[ModuleJitOption::MaxRegisters(registers)])
            .doing_with("load the PTX", kernel)?;
        let function = module
            .get_function(kernel.name)
            .doing_with("find the kernel in its module", kernel)?;
        // SAFETY: the function is of a module that is loaded.
        let code = unsafe {
            sys::cuFuncSetAttribute(
                function.to_raw(),
                sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                self.limits.shared_bytes_per_block as i32,
            )
        };
        check(code).doing_with("allow the kernel's shared memory", kernel)?;
        // Where two threads load it at once, one of the modules is dropped.
        Ok(self.modules[index].get_or_init(|| module))
    }

    /// As [`methods!`] wants it: host slices through device memory.
    pub(crate) fn run<T: Element>(
        &self,
        operation: Operation,
        inputs: &[&[T]],
        extents: Extents,
        options: Options<'_, T>,
        out: &mut [MaybeUninit<T>],
    ) -> Result<()> {
        let slices = Slices {
            inputs,
            initial: options.initial,
            d_final: None,
            reset: options.reset,
            boundaries: options.boundaries,
            layouts: options.layouts,
            outputs: &mut [out],
            last: options.final_state,
        };
        self.run_slices(operation, Task::Scan(options.inclusion), extents, slices)
    }

    /// As [`methods!`] wants it: host slices through device memory.
    pub(crate) fn run_backward<T: Element>(
        &self,
        forward: Operation,
        inputs: [&[T]; 3],
        extents: Extents,
        options: BackwardOptions<'_, T>,
        mut out: [&mut [MaybeUninit<T>]; 2],
    ) -> Result<()> {
        let slices = Slices {
            inputs: &inputs,
            initial: options.initial,
            d_final: options.d_final,
            reset: options.reset,
            boundaries: options.boundaries,
            layouts: options.layouts,
            outputs: &mut out,
            last: options.d_initial,
        };
        self.run_slices(forward, Task::Gradient, extents, slices)
    }

    fn run_slices<T: Element>(
        &self,
        operation: Operation,
        task: Task,
        extents: Extents,
        slices: Slices<'_, '_, T>,
    ) -> Result<()> {
        self.make_current()?;
        // SAFETY: the slices are borrowed until this returns, and by then the stream is done, also after an error.
        waited((&self.stream).into(), unsafe {
            self.enqueue_slices(operation, task, extents, slices)
        })
    }

    /// Puts a scan or a gradient of host slices on this GPU's stream: the copies to the device, the work, and the copies back.
    ///
    /// # Safety
    /// The slices are as many as the task has, and as long as the extents and the options say; and until the stream has been waited for,
    /// also after an error, they are neither accessed nor given up.
    unsafe fn enqueue_slices<T: Element>(
        &self,
        operation: Operation,
        task: Task,
        extents: Extents,
        slices: Slices<'_, '_, T>,
    ) -> Result<()> {
        let (stream, names) = (StreamView::from(&self.stream), task.names(operation));
        let inputs = names.inputs.iter().zip(slices.inputs);
        let inputs = inputs
            // SAFETY: says the caller.
            .map(|(&name, input)| unsafe { Memory::copy_of(operation, name, input, stream) })
            .collect::<Result<Vec<_>>>()?;
        let states = |name, states: Option<&[T::State]>| {
            // SAFETY: says the caller.
            let copy = |states| unsafe { Memory::copy_of(operation, name, states, stream) };
            states.map(copy).transpose()
        };
        let (initial, d_final) = (
            states("initial", slices.initial)?,
            states("d_final", slices.d_final)?,
        );
        let copy = |mask: &[bool]| {
            // SAFETY: says the caller.
            unsafe { Memory::copy_of(operation, "reset", mask, stream) }
        };
        let reset = slices.reset.map(copy).transpose()?;
        let outputs = names.outputs.iter().zip(slices.outputs.iter());
        let mut outputs = outputs
            .map(|(&name, output)| Memory::new(operation, name, size_of_val(*output), stream))
            .collect::<Result<Vec<_>>>()?;
        let mut last = slices
            .last
            .as_deref()
            .map(|states| Memory::new(operation, task.last(), size_of_val(states), stream))
            .transpose()?;

        let request = Request::<T> {
            task,
            initial: initial.as_ref().map(Memory::view),
            d_final: d_final.as_ref().map(Memory::view),
            last: last.as_mut().map(Memory::view_mut),
            reset: reset.as_ref().map(Memory::bytes),
            boundaries: slices.boundaries,
            layouts: slices.layouts,
        };
        let read: Vec<_> = inputs.iter().map(Memory::view).collect();
        let written: Vec<_> = outputs.iter_mut().map(Memory::view_mut).collect();
        // SAFETY: all of the memory is as long as its slice, and is given up on the stream.
        unsafe { self.enqueue(operation, extents, &read, &request, &written, stream) }?;
        for (output, slice) in outputs.iter().zip(slices.outputs) {
            // SAFETY: the work writes all of it; the rest says the caller.
            unsafe { output.copy_to(slice) }?;
        }
        if let (Some(last), Some(states)) = (last, slices.last) {
            // SAFETY: as above.
            unsafe { last.copy_to(crate::methods::as_uninit(states)) }?;
        }
        Ok(())
    }
}

/// The arrays of a scan or of a gradient on the host.
struct Slices<'a, 'out, T: Element> {
    inputs: &'a [&'a [T]],
    initial: Option<&'a [T::State]>,
    d_final: Option<&'a [T::State]>,
    reset: Option<&'a [bool]>,
    boundaries: Option<&'a [usize]>,
    layouts: Option<&'a [Layout]>,
    outputs: &'a mut [&'out mut [MaybeUninit<T>]],
    /// Final states, or the gradient of initial ones.
    last: Option<&'a mut [T::State]>,
}

methods!(Gpu);
