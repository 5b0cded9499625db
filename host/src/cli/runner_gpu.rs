//! What measures a case on a GPU, and what there is to say of GPUs.

use super::case::Case;
use super::data::{self, Inputs};
use super::dtype::Measured;
use super::runner::{Runner, Shortage, Times, sets};
use super::{Result, format};
use ptxscan::CudaError;
use ptxscan::gpu::cust::context::CurrentContext;
use ptxscan::gpu::cust::error::CudaResult;
use ptxscan::gpu::cust::event::{Event, EventFlags};
use ptxscan::gpu::cust::memory::{CopyDestination, DeviceBuffer};
use ptxscan::gpu::cust::stream::{Stream, StreamFlags};
use ptxscan::gpu::{
    DeviceOptions, DeviceView, DeviceViewMut, Gpu, Prepared, cust, device_count, ptx,
};
use std::io::Write;

/// Whether the GPU's memory is too small for the case and for the copies.
pub fn shortage(gpu: &Gpu, case: &Case) -> Result<Option<Shortage>> {
    let (available, _) = gpu.memory()?;
    let needed = 2 * sets(case) * case.bytes();
    Ok((available < needed).then_some(Shortage { needed, available }))
}

/// Runs a case in device memory, by the device's clock.
pub struct GpuRunner<'a, T: Measured> {
    gpu: &'a Gpu,
    case: &'a Case,
    prepared: Prepared<'a, T>,
    stream: Stream,
    sets: Vec<Set>,
    /// The set that was used last.
    current: usize,
}

struct Set {
    inputs: Vec<DeviceBuffer<u8>>,
    out: DeviceBuffer<u8>,
    /// The copy's source and destination, half the case's bytes each.
    from: DeviceBuffer<u8>,
    to: DeviceBuffer<u8>,
}

impl<'a, T: Measured> GpuRunner<'a, T> {
    /// Makes the case's buffers.
    pub fn new(gpu: &'a Gpu, case: &'a Case, inputs: &Inputs) -> Result<Self> {
        gpu.make_current()?;
        let bytes = case.extents.elements() * size_of::<T>();
        let copied = case.bytes() / 2;
        let first = inputs.patterns().next().expect("an operation has an input");
        let first = &data::repeated::<T>(first, first.len());
        let set = || -> Result<Set> {
            Ok(Set {
                inputs: inputs
                    .patterns()
                    .map(|pattern| repeated(&data::repeated::<T>(pattern, pattern.len()), bytes))
                    .collect::<Result<_>>()?,
                out: repeated(&[T::NAN; 1024], bytes)?,
                from: repeated(first, copied)?,
                to: repeated(first, copied)?,
            })
        };
        let sets = (0..sets(case)).map(|_| set()).collect::<Result<_>>()?;
        // The buffers were filled on another stream.
        CurrentContext::synchronize().map_err(CudaError::from)?;
        Ok(Self {
            gpu,
            case,
            prepared: gpu.prepare(
                case.operation,
                &case.shape,
                case.axis as isize,
                &DeviceOptions::new(),
                case.strategy,
            )?,
            stream: Stream::new(StreamFlags::NON_BLOCKING, None).map_err(CudaError::from)?,
            sets,
            current: 0,
        })
    }

    /// Puts a run, with the next set, on the stream.
    fn enqueue_run(&mut self) -> Result<()> {
        self.current = (self.current + 1) % self.sets.len();
        let Set { inputs, out, .. } = &mut self.sets[self.current];
        let inputs: Vec<DeviceView<T>> = inputs.iter().map(DeviceView::of_bytes).collect();
        let out = DeviceViewMut::of_bytes(out);
        // SAFETY: the buffers are this runner's, which uses them on this stream only, and waits for it before it reads
        // them or gives them up.
        unsafe {
            self.prepared
                .run_async(&inputs, DeviceOptions::new(), out, &self.stream)
        }?;
        Ok(())
    }

    /// Puts a copy, with the buffers of the next set, on the stream.
    fn enqueue_copy(&mut self) -> Result<()> {
        self.current = (self.current + 1) % self.sets.len();
        let Set { from, to, .. } = &mut self.sets[self.current];
        // SAFETY: both buffers have `from.len()` bytes; as for their use, see `enqueue_run`.
        let code = unsafe {
            cust::sys::cuMemcpyDtoDAsync_v2(
                to.as_device_ptr().as_raw(),
                from.as_device_ptr().as_raw(),
                from.len(),
                self.stream.as_inner(),
            )
        };
        check(code)
    }

    fn event(&self) -> Result<Event> {
        let event = Event::new(EventFlags::DEFAULT).map_err(CudaError::from)?;
        event.record(&self.stream).map_err(CudaError::from)?;
        Ok(event)
    }

    fn synchronize(&self) -> Result<()> {
        Ok(self.stream.synchronize().map_err(CudaError::from)?)
    }

    /// Seconds of each of `samples` pieces of work after `warm_up` ones. They are queued without a pause, so that the
    /// device never waits for a launch.
    fn time_queued(
        &mut self,
        enqueue: fn(&mut Self) -> Result<()>,
        warm_up: usize,
        samples: usize,
    ) -> Result<Vec<f64>> {
        for _ in 0..warm_up {
            enqueue(self)?;
        }
        let mut events = vec![self.event()?];
        for _ in 0..samples {
            enqueue(self)?;
            events.push(self.event()?);
        }
        self.synchronize()?;
        events
            .windows(2)
            .map(|pair| {
                let milliseconds = pair[1]
                    .elapsed_time_f32(&pair[0])
                    .map_err(CudaError::from)?;
                Ok(f64::from(milliseconds) * 1e-3)
            })
            .collect()
    }
}

impl<T: Measured> Runner for GpuRunner<'_, T> {
    fn run(&mut self) -> Result<()> {
        self.enqueue_run()?;
        self.synchronize()
    }

    fn time(&mut self, warm_up: usize, samples: usize) -> Result<Times> {
        Ok(Times {
            runs: self.time_queued(Self::enqueue_run, warm_up, samples)?,
            copies: self.time_queued(Self::enqueue_copy, warm_up, samples)?,
        })
    }

    fn sequence(&self, outer: usize, inner: usize) -> Result<Vec<f64>> {
        let element = size_of::<T>();
        let extents = self.case.extents;
        let mut sequence = vec![T::default(); extents.len];
        let first = outer * extents.len * extents.inner + inner;
        let out = &self.sets[self.current].out;
        // A column of a matrix of `len` rows and `inner` columns.
        let copy = cust::sys::CUDA_MEMCPY2D {
            srcXInBytes: 0,
            srcY: 0,
            srcMemoryType: cust::sys::CUmemorytype::CU_MEMORYTYPE_DEVICE,
            srcHost: std::ptr::null(),
            srcDevice: out.as_device_ptr().as_raw() + (first * element) as u64,
            srcArray: std::ptr::null_mut(),
            srcPitch: extents.inner * element,
            dstXInBytes: 0,
            dstY: 0,
            dstMemoryType: cust::sys::CUmemorytype::CU_MEMORYTYPE_HOST,
            dstHost: sequence.as_mut_ptr().cast(),
            dstDevice: 0,
            dstArray: std::ptr::null_mut(),
            dstPitch: element,
            WidthInBytes: element,
            Height: extents.len,
        };
        assert!(outer < extents.outer && inner < extents.inner);
        self.gpu.make_current()?;
        // SAFETY: by the assertion, step t is element `first + t·inner < elements` of the output, and `sequence` has
        // `len` elements; the stream has been waited for, and the copy returns when it is done.
        check(unsafe { cust::sys::cuMemcpy2DUnaligned_v2(&copy) })?;
        Ok(sequence.into_iter().map(T::to_f64).collect())
    }
}

impl<T: Measured> Drop for GpuRunner<'_, T> {
    fn drop(&mut self) {
        // After an error there may still be work on the stream. If waiting fails, the context is lost, and its buffers with it.
        let _ = self.stream.synchronize();
    }
}

/// A buffer of `bytes` bytes that repeats `pattern`.
fn repeated<T: Measured>(pattern: &[T], bytes: usize) -> Result<DeviceBuffer<u8>> {
    // SAFETY: numbers have no padding, so that all of their bytes are initialised.
    let pattern =
        unsafe { std::slice::from_raw_parts(pattern.as_ptr().cast::<u8>(), size_of_val(pattern)) };
    let fill = || -> CudaResult<_> {
        // SAFETY: every byte is written below before the buffer is returned.
        let buffer = unsafe { DeviceBuffer::uninitialized(bytes) }?;
        let mut filled = pattern.len().min(bytes);
        buffer.index(..filled).copy_from(&pattern[..filled])?;
        while filled < bytes {
            let next = filled.min(bytes - filled);
            buffer
                .index(filled..filled + next)
                .copy_from(&buffer.index(..next))?;
            filled += next;
        }
        Ok(buffer)
    };
    Ok(fill().map_err(CudaError::from)?)
}

/// A driver call's result.
fn check(code: cust::sys::CUresult) -> Result<()> {
    match code {
        cust::sys::CUresult::CUDA_SUCCESS => Ok(()),
        code => Err(CudaError(code as u32).into()),
    }
}

/// The lines of `info` on the driver, on each GPU and on the kernels.
pub fn info(out: &mut dyn Write) -> Result<()> {
    for ordinal in 0..device_count().unwrap_or(0) {
        let gpu = match Gpu::new(ordinal) {
            Ok(gpu) => gpu,
            Err(error) => {
                writeln!(out, "gpu {ordinal}     not usable: {error}")?;
                continue;
            }
        };
        if ordinal == 0 {
            writeln!(out, "driver    CUDA {}", gpu.driver_version())?;
        }
        let (free, all) = gpu.memory()?;
        let (major, minor) = gpu.compute_capability();
        writeln!(
            out,
            "gpu {ordinal}     {}, compute capability {major}.{minor}, {} of {} free",
            gpu.device_name(),
            format::bytes(free),
            format::bytes(all)
        )?;
    }
    if let (Some(target), Some(version)) = (ptx::directive(".target"), ptx::directive(".version")) {
        writeln!(out, "kernels   PTX {version} for {target} or newer")?;
    }
    Ok(())
}
