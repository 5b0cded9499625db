//! The GPU back end: plans carried out through `cust`. The only launch of a kernel is here.

pub mod ptx;
mod view;

pub use cust;
pub use view::{DeviceView, DeviceViewMut};

use crate::element::Element;
use crate::error::{CudaError, Error, Result};
use crate::methods::methods;
use crate::operation::Operation;
use crate::options::{BackwardOptions, Options};
use crate::plan::{DeviceLimits, Launch, Plan, plan};
use crate::shape::{self, Extents};
use cust::context::{Context, CurrentContext};
use cust::device::{Device, DeviceAttribute};
use cust::function::{BlockSize, GridSize};
use cust::memory::{DeviceBuffer, DeviceCopy};
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

/// Whether there are kernels for elements of a type.
fn supports<T: Element>(operation: Operation) -> Result<()> {
    if KERNELS
        .iter()
        .any(|kernel| kernel.element == T::KERNEL_NAME)
    {
        return Ok(());
    }
    Err(Error::Unsupported {
        operation,
        what: T::NAME,
    })
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
    pub fn scan_device<T: Element + DeviceCopy>(
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
    pub unsafe fn scan_device_async<T: Element + DeviceCopy>(
        &self,
        operation: Operation,
        inputs: &[DeviceView<'_, T>],
        shape: &[usize],
        axis: isize,
        out: DeviceViewMut<'_, T>,
        stream: &Stream,
    ) -> Result<()> {
        supports::<T>(operation)?;
        let lengths: Vec<usize> = inputs.iter().map(DeviceView::len).collect();
        let extents = shape::validate::<T>(operation, &lengths, shape, axis, Some(out.len()))?;
        let addresses: Vec<u64> = inputs.iter().map(DeviceView::address).collect();
        // SAFETY: the lengths are those of the shape, and the rest is the caller's obligation.
        unsafe { self.enqueue::<T>(operation, extents, &addresses, out.address(), stream) }
    }

    /// Puts an operation on a stream.
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
        let plan = plan(
            operation,
            T::KERNEL_NAME,
            size_of::<T>(),
            extents,
            &self.limits,
        )
        .ok_or(Error::NoPlan { operation, extents })?;
        match &plan {
            Plan::Nothing => Ok(()),
            Plan::Copy { input } => {
                let bytes = extents.elements() * size_of::<T>();
                // SAFETY: both arrays have as many bytes, says the caller.
                let code = unsafe {
                    sys::cuMemcpyDtoDAsync_v2(out, inputs[*input], bytes, stream.as_inner())
                };
                check(code).doing("copy on the device")
            }
            // SAFETY: the plan's kernel takes these arrays and the plan's extents, which are those of the arrays.
            Plan::Launch(launch) => unsafe { self.launch(launch, inputs, out, stream) },
        }
    }

    /// # Safety
    /// As [`enqueue`](Self::enqueue); the launch is the plan for these arrays.
    unsafe fn launch(
        &self,
        launch: &Launch,
        inputs: &[u64],
        out: u64,
        stream: &Stream,
    ) -> Result<()> {
        let kernel = launch.kernel;
        let module = self.module(kernel, launch.registers)?;
        let function = module
            .get_function(kernel.name)
            .doing_with("find the kernel in its module", kernel)?;
        // Each parameter is 64 bits: the arrays, then the numbers.
        let mut arguments: Vec<u64> = [inputs, &[out], &launch.numbers].concat();
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
        supports::<T>(operation)?;
        if !options.are_plain() {
            return Err(Error::Unsupported {
                operation,
                what: "a scan with options",
            });
        }
        if extents.elements() == 0 {
            return Ok(());
        }
        self.make_current()?;
        let allocate = |what: &'static str| {
            let bytes = extents.elements() * size_of::<T>();
            // SAFETY: it is written before it is read: an input by a copy, the output by the kernel.
            match unsafe { DeviceBuffer::<u8>::uninitialized(bytes) } {
                Err(cust::error::CudaError::OutOfMemory) => Err(Error::OutOfDeviceMemory {
                    operation,
                    what,
                    bytes,
                }),
                result => result.doing("allocate device memory"),
            }
        };
        let names = operation.operator.arguments();
        let buffers = names
            .iter()
            .map(|&name| allocate(name))
            .collect::<Result<Vec<_>>>()?;
        let result = allocate("out")?;
        let addresses: Vec<u64> = buffers
            .iter()
            .map(|buffer| buffer.as_device_ptr().as_raw())
            .collect();
        let address = result.as_device_ptr().as_raw();
        let stream = self.stream.as_inner();

        // SAFETY: each copy is of as many bytes as both of its ends have; all of it is on one stream, in order; and it
        // is waited for before the buffers and the slices are given up, also after an error.
        let enqueued = unsafe {
            let copied = inputs
                .iter()
                .zip(&addresses)
                .try_for_each(|(input, &address)| {
                    check(sys::cuMemcpyHtoDAsync_v2(
                        address,
                        input.as_ptr().cast(),
                        size_of_val(*input),
                        stream,
                    ))
                    .doing("copy to the device")
                });
            copied
                .and_then(|()| {
                    self.enqueue::<T>(operation, extents, &addresses, address, &self.stream)
                })
                .and_then(|()| {
                    check(sys::cuMemcpyDtoHAsync_v2(
                        out.as_mut_ptr().cast(),
                        address,
                        size_of_val(out),
                        stream,
                    ))
                    .doing("copy from the device")
                })
        };
        let done = self.stream.synchronize().doing("wait for the stream");
        enqueued.and(done)
    }

    /// As [`methods!`] wants it.
    pub(crate) fn run_backward<T: Element>(
        &self,
        operation: Operation,
        _: [&[T]; 3],
        _: Extents,
        _: BackwardOptions<'_, T>,
        _: [&mut [MaybeUninit<T>]; 2],
    ) -> Result<()> {
        Err(Error::Unsupported {
            operation,
            what: "the gradient",
        })
    }
}

methods!(Gpu);
