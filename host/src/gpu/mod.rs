//! The GPU back end: plans carried out through `cust`. The only launch of a kernel is here.

mod prepared;
pub mod ptx;
mod view;

pub use cust;
pub use prepared::Prepared;
pub use view::{DeviceView, DeviceViewMut};

use crate::element::Element;
use crate::error::{CudaError, Error, Result};
use crate::methods::methods;
use crate::operation::Operation;
use crate::options::{BackwardOptions, Inclusion, Options};
use crate::plan::{self, DeviceLimits, Launch, Packed, Plan, PlanBuilder};
use crate::shape::{self, Extents};
use cust::context::{Context, CurrentContext};
use cust::device::{Device, DeviceAttribute};
use cust::function::{BlockSize, GridSize};
use cust::memory::DeviceBuffer;
use cust::module::{Module, ModuleJitOption};
use cust::stream::{Stream, StreamFlags};
use cust::sys;
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

/// The addresses of what an operation reads and writes besides its inputs and its outputs; 0 where it is not there.
#[derive(Clone, Copy, Default)]
struct Extras {
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
    /// All of them are row-major tensors of `shape`. A negative `axis` counts from the end.
    ///
    /// # Errors
    /// [`Error`] says which argument does not fit, or what the driver reports.
    pub fn scan_device<T: Element>(
        &self,
        operation: Operation,
        inputs: &[DeviceView<'_, T>],
        shape: &[usize],
        axis: isize,
        out: DeviceViewMut<'_, T>,
        stream: &Stream,
    ) -> Result<()> {
        // SAFETY: the views borrow their buffers until this returns, and by then the stream is done.
        unsafe { self.scan_device_async(operation, inputs, shape, axis, out, stream)? };
        stream.synchronize().doing("wait for the stream")
    }

    /// As [`scan_device`](Self::scan_device), but it returns when the work is on the stream.
    ///
    /// # Errors
    /// As for [`scan_device`](Self::scan_device). An error of the work itself is seen when the stream is waited for.
    ///
    /// # Safety
    /// Until the stream has done the work, the buffers live, and nothing else writes the inputs or accesses `out`.
    pub unsafe fn scan_device_async<T: Element>(
        &self,
        operation: Operation,
        inputs: &[DeviceView<'_, T>],
        shape: &[usize],
        axis: isize,
        out: DeviceViewMut<'_, T>,
        stream: &Stream,
    ) -> Result<()> {
        let lengths: Vec<usize> = inputs.iter().map(DeviceView::len).collect();
        let extents = shape::validate::<T>(operation, &lengths, shape, axis, Some(out.len()))?;
        let addresses: Vec<u64> = inputs.iter().map(DeviceView::address).collect();
        // SAFETY: the lengths are those of the shape, and the rest is the caller's obligation.
        unsafe { self.enqueue::<T>(operation, extents, &addresses, out.address(), stream) }
    }

    /// Puts an operation on a stream. Its scratch memory, if it needs some, is allocated and given up on the stream too.
    ///
    /// # Safety
    /// The addresses are of arrays of as many elements as `extents` has, aligned to an element; they stay valid until
    /// the stream has done the work, and nothing else writes the inputs or accesses `out` until then.
    unsafe fn enqueue<T: Element>(
        &self,
        operation: Operation,
        extents: Extents,
        inputs: &[u64],
        out: u64,
        stream: &Stream,
    ) -> Result<()> {
        self.make_current()?;
        let plan = self.plan(Self::planned::<T>(operation, extents), operation, extents)?;
        // SAFETY: says the caller.
        unsafe { self.execute_once(operation, &plan, inputs, &[out], Extras::default(), stream) }
    }

    /// Puts a plan's work on a stream, with scratch memory of its own, which is allocated and given up on the stream too.
    ///
    /// # Safety
    /// As [`execute`](Self::execute), but for the scratch memory.
    unsafe fn execute_once(
        &self,
        operation: Operation,
        plan: &Plan,
        inputs: &[u64],
        outputs: &[u64],
        extras: Extras,
        stream: &Stream,
    ) -> Result<()> {
        let words = plan.scratch_words();
        if words == 0 {
            // SAFETY: says the caller.
            return unsafe { self.execute(plan, inputs, outputs, extras, 0, stream) };
        }
        let bytes = words * size_of::<u64>();
        let raw = stream.as_inner();
        let mut scratch = 0;
        // SAFETY: the memory is used on the stream, between its allocation and its release there. The rest says the caller.
        unsafe {
            match sys::cuMemAllocAsync(&mut scratch, bytes, raw) {
                sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY => {
                    return Err(Error::OutOfDeviceMemory {
                        operation,
                        what: "scratch",
                        bytes,
                    });
                }
                code => check(code).doing("allocate scratch memory")?,
            }
            let run = check(sys::cuMemsetD8Async(scratch, 0, bytes, raw))
                .doing("clear scratch memory")
                .and_then(|()| self.execute(plan, inputs, outputs, extras, scratch, stream));
            let freed = check(sys::cuMemFreeAsync(scratch, raw)).doing("give up scratch memory");
            run.and(freed)
        }
    }

    /// What is planned for an operation.
    fn planned<T: Element>(operation: Operation, extents: Extents) -> PlanBuilder {
        PlanBuilder::new(operation, T::KERNEL_NAME, extents)
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
    /// As [`enqueue`](Self::enqueue); the plan is for these arrays; the scratch memory has as many words as it says, which were zero
    /// before the first run, and no other run uses it until the stream has done the work.
    unsafe fn execute(
        &self,
        plan: &Plan,
        inputs: &[u64],
        outputs: &[u64],
        extras: Extras,
        scratch: u64,
        stream: &Stream,
    ) -> Result<()> {
        match plan {
            Plan::Nothing => Ok(()),
            Plan::Copy { input, bytes } => {
                // SAFETY: both arrays have as many bytes, says the caller.
                let code = unsafe {
                    sys::cuMemcpyDtoDAsync_v2(outputs[0], inputs[*input], *bytes, stream.as_inner())
                };
                check(code).doing("copy on the device")
            }
            Plan::Scan { launches, .. } => launches.iter().try_for_each(|launch| {
                let Extras {
                    initial,
                    d_final,
                    last,
                    mask,
                    boundaries,
                } = extras;
                let extras = [initial, d_final, last, mask, boundaries, scratch];
                let arrays = [inputs, outputs, &extras].concat();
                // SAFETY: the plan's kernels take these arrays and the plan's extents, which are those of the arrays.
                unsafe { self.launch(launch, &arrays, stream) }
            }),
        }
    }

    /// # Safety
    /// As [`execute`](Self::execute); the launch is one of the plan for these arrays.
    unsafe fn launch(&self, launch: &Launch, arrays: &[u64], stream: &Stream) -> Result<()> {
        let kernel = launch.kernel;
        let module = self.module(kernel, launch.registers)?;
        let function = module
            .get_function(kernel.name)
            .doing_with("find the kernel in its module", kernel)?;
        // Each parameter is 64 bits: the arrays, then the numbers.
        let mut arguments: Vec<u64> = [arrays, &launch.numbers].concat();
        debug_assert_eq!(arguments.len(), kernel.parameters.len());
        let pointers: Vec<*mut c_void> = arguments
            .iter_mut()
            .map(|argument| std::ptr::from_mut(argument).cast())
            .collect();
        let (x, y) = launch.grid;
        // SAFETY: the arguments are as many as the kernel has parameters, of their size, and in their order; the arrays
        // are valid for the extents, says the caller; the block and its shared memory are what the kernel asks for.
        unsafe {
            stream.launch(
                &function,
                GridSize::xy(x, y),
                BlockSize::x(launch.block),
                launch.shared_bytes,
                &pointers,
            )
        }
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
        let Options {
            inclusion,
            initial,
            final_state,
            reset,
            boundaries,
        } = options;
        let exclusive = plan::Options::EXCLUSIVE.only_if(inclusion == Inclusion::Exclusive);
        let names = operation.operator.arguments();
        self.run_on_host(OnHost {
            operation,
            extents,
            planned: Self::planned::<T>(operation, extents).options(exclusive),
            inputs: names.iter().copied().zip(inputs.iter().copied()).collect(),
            outputs: vec![("out", out)],
            initial,
            d_final: None,
            last: final_state.map(|states| ("final_state", states)),
            reset,
            boundaries,
        })
    }

    /// As [`methods!`] wants it: host slices through device memory.
    pub(crate) fn run_backward<T: Element>(
        &self,
        forward: Operation,
        [a, h, dh]: [&[T]; 3],
        extents: Extents,
        options: BackwardOptions<'_, T>,
        [da, db]: [&mut [MaybeUninit<T>]; 2],
    ) -> Result<()> {
        let BackwardOptions {
            initial,
            d_initial,
            d_final,
            reset,
            boundaries,
        } = options;
        self.run_on_host(OnHost {
            operation: forward,
            extents,
            planned: Self::planned::<T>(forward, extents).gradient(true),
            inputs: vec![("a", a), ("h", h), ("dh", dh)],
            outputs: vec![("da", da), ("db", db)],
            initial,
            d_final,
            last: d_initial.map(|states| ("d_initial", states)),
            reset,
            boundaries,
        })
    }

    /// Carries out a call with host slices through device memory.
    fn run_on_host<T: Element>(&self, call: OnHost<'_, T>) -> Result<()> {
        let OnHost {
            operation,
            extents,
            planned,
            inputs,
            outputs,
            initial,
            d_final,
            last,
            reset,
            boundaries,
        } = call;
        let planned = planned
            .options(plan::Options::INITIAL.only_if(initial.is_some()))
            .options(plan::Options::D_FINAL.only_if(d_final.is_some()))
            .options(plan::Options::FINAL.only_if(last.is_some()))
            .masked(reset.is_some())
            .packed(boundaries.map(Packed::between));
        let plan = self.plan(planned, operation, extents)?;
        if plan == Plan::Nothing {
            return Ok(());
        }
        self.make_current()?;
        let boundaries: Option<Vec<u64>> = boundaries
            .map(|boundaries| boundaries.iter().map(|&boundary| boundary as u64).collect());
        let begin = || {
            // SAFETY: the stream is waited for below, also after an error.
            let upload = |what, bytes: &[u8]| unsafe { self.upload(operation, what, bytes) };
            let inputs = inputs
                .iter()
                .map(|&(name, input)| upload(name, bytes_of(input)))
                .collect::<Result<Vec<_>>>()?;
            let initial = initial
                .map(|states| upload("initial", bytes_of(states)))
                .transpose()?;
            let d_final = d_final
                .map(|states| upload("d_final", bytes_of(states)))
                .transpose()?;
            let mask = reset
                .map(|mask| upload("reset", bytes_of(mask)))
                .transpose()?;
            let boundaries = boundaries
                .as_deref()
                .map(|boundaries| upload("boundaries", bytes_of(boundaries)))
                .transpose()?;
            let results = outputs
                .iter()
                .map(|(name, out)| self.allocate(operation, name, size_of_val(*out)))
                .collect::<Result<Vec<_>>>()?;
            let states = last
                .as_ref()
                .map(|(name, states)| self.allocate(operation, name, size_of_val(*states)))
                .transpose()?;
            let optional = |buffer: &Option<DeviceBuffer<u8>>| buffer.as_ref().map_or(0, address);
            let extras = Extras {
                initial: optional(&initial),
                d_final: optional(&d_final),
                last: optional(&states),
                mask: optional(&mask),
                boundaries: optional(&boundaries),
            };
            let addresses = |buffers: &[DeviceBuffer<u8>]| -> Vec<u64> {
                buffers.iter().map(address).collect()
            };
            // SAFETY: the buffers are as long as the plan's extents and options say, and outlive the work.
            let run = unsafe {
                self.execute_once(
                    operation,
                    &plan,
                    &addresses(&inputs),
                    &addresses(&results),
                    extras,
                    &self.stream,
                )
            };
            // Buffers are given up after this, here or by the caller.
            let done = self.stream.synchronize().doing("wait for the stream");
            run.and(done).map(|()| (results, states))
        };
        let begun = begin();
        let done = self.stream.synchronize().doing("wait for the stream");
        let (results, states) = begun?;
        done?;
        for (result, (_, out)) in results.iter().zip(outputs) {
            download(result, out)?;
        }
        match (states, last) {
            (Some(states), Some((_, last))) => download(&states, crate::methods::as_uninit(last)),
            _ => Ok(()),
        }
    }

    /// Device memory for `bytes` bytes.
    fn allocate(
        &self,
        operation: Operation,
        what: &'static str,
        bytes: usize,
    ) -> Result<DeviceBuffer<u8>> {
        // SAFETY: it is written before it is read: by a copy, or by a kernel.
        match unsafe { DeviceBuffer::uninitialized(bytes) } {
            Err(cust::error::CudaError::OutOfMemory) => Err(Error::OutOfDeviceMemory {
                operation,
                what,
                bytes,
            }),
            result => result.doing("allocate device memory"),
        }
    }

    /// Device memory with these bytes, as soon as the stream has copied them: a copy that no stream orders may be under way when it
    /// returns.
    ///
    /// # Safety
    /// The stream is waited for before the bytes are given up.
    unsafe fn upload(
        &self,
        operation: Operation,
        what: &'static str,
        bytes: &[u8],
    ) -> Result<DeviceBuffer<u8>> {
        let buffer = self.allocate(operation, what, bytes.len())?;
        if !bytes.is_empty() {
            // SAFETY: both are as many bytes. The rest says the caller.
            check(unsafe {
                sys::cuMemcpyHtoDAsync_v2(
                    address(&buffer),
                    bytes.as_ptr().cast(),
                    bytes.len(),
                    self.stream.as_inner(),
                )
            })
            .doing("copy to the device")?;
        }
        Ok(buffer)
    }
}

methods!(Gpu);

/// A call with host slices: what is read and written by name, for errors.
struct OnHost<'a, T: Element> {
    operation: Operation,
    extents: Extents,
    planned: PlanBuilder,
    inputs: Vec<(&'static str, &'a [T])>,
    outputs: Vec<(&'static str, &'a mut [MaybeUninit<T>])>,
    initial: Option<&'a [T::State]>,
    d_final: Option<&'a [T::State]>,
    /// The carries after the sequences.
    last: Option<(&'static str, &'a mut [T::State])>,
    reset: Option<&'a [bool]>,
    boundaries: Option<&'a [usize]>,
}

/// A buffer's address; that of an empty one may be anything.
fn address(buffer: &DeviceBuffer<u8>) -> u64 {
    buffer.as_device_ptr().as_raw()
}

/// The bytes of plain values.
fn bytes_of<V: Plain>(values: &[V]) -> &[u8] {
    // SAFETY: the values have no padding, so that all of their bytes are initialised.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}

/// Copies a buffer to as many bytes of values.
fn download<V: Plain>(buffer: &DeviceBuffer<u8>, values: &mut [MaybeUninit<V>]) -> Result<()> {
    if values.is_empty() {
        return Ok(());
    }
    assert_eq!(buffer.len(), size_of_val(values));
    // SAFETY: both are as many bytes, and the device wrote values of this type to the buffer.
    check(unsafe {
        sys::cuMemcpyDtoH_v2(values.as_mut_ptr().cast(), address(buffer), buffer.len())
    })
    .doing("copy from the device")
}

/// A type without padding.
trait Plain: Copy {}
impl<T: Element> Plain for T {}
impl Plain for bool {}
impl Plain for u64 {}
