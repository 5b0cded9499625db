//! One engine over all back ends.

use crate::cpu::Cpu;
use crate::element::Element;
use crate::error::{Error, Result};
#[cfg(feature = "cuda")]
use crate::gpu::Gpu;
use crate::methods::methods;
use crate::operation::Operation;
use crate::options::{BackwardOptions, Options};
use crate::shape::Extents;
use std::mem::MaybeUninit;

/// What an engine computes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Backend {
    /// A GPU.
    Gpu,
    /// The CPU.
    Cpu,
}

impl Backend {
    /// `gpu` or `cpu`.
    pub const fn name(self) -> &'static str {
        match self {
            Backend::Gpu => "gpu",
            Backend::Cpu => "cpu",
        }
    }
}

/// A back end with all that it needs, made once and used for any number of operations, by any thread.
#[derive(Debug)]
pub struct Engine {
    device: Device,
    why_no_gpu: Option<Error>,
}

#[derive(Debug)]
enum Device {
    #[cfg(feature = "cuda")]
    Gpu(Gpu),
    Cpu(Cpu),
}

impl Engine {
    /// The first usable GPU, else the CPU.
    pub fn auto() -> Self {
        match Self::first_gpu() {
            Ok(engine) => engine,
            Err(error) => Self {
                why_no_gpu: Some(error),
                ..Self::cpu()
            },
        }
    }

    /// The CPU.
    pub fn cpu() -> Self {
        Self {
            device: Device::Cpu(Cpu::new()),
            why_no_gpu: None,
        }
    }

    /// The GPU number `ordinal`, counted from 0 as the CUDA driver does.
    ///
    /// # Errors
    /// The library was built without the feature `cuda`, or as for [`Gpu::new`](crate::gpu::Gpu::new).
    pub fn gpu(ordinal: usize) -> Result<Self> {
        #[cfg(feature = "cuda")]
        {
            Ok(Self {
                device: Device::Gpu(Gpu::new(ordinal)?),
                why_no_gpu: None,
            })
        }
        #[cfg(not(feature = "cuda"))]
        {
            let _ = ordinal;
            Err(Error::BuiltWithoutGpu)
        }
    }

    /// The first GPU that can be used; where there is none, why the first one cannot be.
    fn first_gpu() -> Result<Self> {
        let first = Self::gpu(0);
        #[cfg(feature = "cuda")]
        if first.is_err() {
            let others = 1..crate::gpu::device_count().unwrap_or(0);
            if let Some(engine) = others.filter_map(|ordinal| Self::gpu(ordinal).ok()).next() {
                return Ok(engine);
            }
        }
        first
    }

    /// What the engine computes on.
    pub fn backend(&self) -> Backend {
        match self.device {
            #[cfg(feature = "cuda")]
            Device::Gpu(_) => Backend::Gpu,
            Device::Cpu(_) => Backend::Cpu,
        }
    }

    /// The GPU, with the operations on device memory, if the engine computes on one.
    #[cfg(feature = "cuda")]
    pub fn as_gpu(&self) -> Option<&Gpu> {
        match &self.device {
            Device::Gpu(gpu) => Some(gpu),
            Device::Cpu(_) => None,
        }
    }

    /// The device's name, for people.
    pub fn device_name(&self) -> String {
        match &self.device {
            #[cfg(feature = "cuda")]
            Device::Gpu(gpu) => gpu.device_name(),
            Device::Cpu(cpu) => cpu.device_name(),
        }
    }

    /// Why [`auto`](Self::auto) did not take a GPU, if it did not.
    pub fn why_no_gpu(&self) -> Option<&Error> {
        self.why_no_gpu.as_ref()
    }

    fn run<T: Element>(
        &self,
        operation: Operation,
        inputs: &[&[T]],
        extents: Extents,
        options: Options<'_, T>,
        out: &mut [MaybeUninit<T>],
    ) -> Result<()> {
        match &self.device {
            #[cfg(feature = "cuda")]
            Device::Gpu(gpu) => gpu.run(operation, inputs, extents, options, out),
            Device::Cpu(cpu) => cpu.run(operation, inputs, extents, options, out),
        }
    }

    fn run_backward<T: Element>(
        &self,
        forward: Operation,
        inputs: [&[T]; 3],
        extents: Extents,
        options: BackwardOptions<'_, T>,
        out: [&mut [MaybeUninit<T>]; 2],
    ) -> Result<()> {
        match &self.device {
            #[cfg(feature = "cuda")]
            Device::Gpu(gpu) => gpu.run_backward(forward, inputs, extents, options, out),
            Device::Cpu(cpu) => cpu.run_backward(forward, inputs, extents, options, out),
        }
    }
}

methods!(Engine);
