//! What measures cases on a GPU, and what there is to say of GPUs.

use super::case::{Case, Sequence};
use super::data::{self, Inputs};
use super::dtype::Measured;
use super::runner::{Choice, Results, Room, Runner, Shortage, Times, place, sets};
use super::{Result, format};
use ptxscan::gpu::cust::context::CurrentContext;
use ptxscan::gpu::cust::error::CudaResult;
use ptxscan::gpu::cust::event::{Event, EventFlags};
use ptxscan::gpu::cust::memory::{CopyDestination, DeviceBuffer};
use ptxscan::gpu::cust::stream::{Stream, StreamFlags};
use ptxscan::gpu::{
    DeviceBackwardOptions, DeviceOptions, DeviceView, DeviceViewMut, Gpu, Prepared,
    PreparedBackward, cust, device_count, ptx,
};
use ptxscan::plan::{Plan, Strategy, strategies};
use ptxscan::{CudaError, Error};
use std::io::Write;

/// Whether the GPU's memory is too small for the case and for the copies.
pub fn shortage(gpu: &Gpu, case: &Case) -> Result<Option<Shortage>> {
    let (available, _) = gpu.memory()?;
    let needed = (2 * sets(case)).saturating_mul(case.bytes());
    Ok((available < needed).then_some(Shortage { needed, available }))
}

/// Runs cases in device memory, by the device's clock.
pub struct GpuRunner<'a, T: Measured<State: Measured>> {
    gpu: &'a Gpu,
    case: Case,
    prepared: Option<Ready<'a, T>>,
    stream: Stream,
    /// The set that is next.
    current: usize,
    buffers: Buffers,
}

/// Room for the arrays of each set.
struct Buffers {
    inputs: Vec<DeviceBuffer<u8>>,
    outputs: Vec<DeviceBuffer<u8>>,
    /// States that are read.
    states: Vec<DeviceBuffer<u8>>,
    /// States that are written.
    last: DeviceBuffer<u8>,
    mask: DeviceBuffer<u8>,
    /// The copy's source and destination.
    from: DeviceBuffer<u8>,
    to: DeviceBuffer<u8>,
}

/// What a run gets.
enum Arguments<'a, T: Measured<State: Measured>> {
    Scan(
        Vec<DeviceView<'a, T>>,
        DeviceOptions<'a, T>,
        DeviceViewMut<'a, T>,
    ),
    Gradient(
        [DeviceView<'a, T>; 3],
        DeviceBackwardOptions<'a, T>,
        [DeviceViewMut<'a, T>; 2],
    ),
}

/// What is run.
enum Ready<'a, T: Measured<State: Measured>> {
    Scan(Prepared<'a, T>),
    Gradient(PreparedBackward<'a, T>),
}

impl<T: Measured<State: Measured>> Ready<'_, T> {
    fn plan(&self) -> &Plan {
        match self {
            Self::Scan(prepared) => prepared.plan(),
            Self::Gradient(prepared) => prepared.plan(),
        }
    }
}

impl Buffers {
    fn new<T: Measured<State: Measured>>(
        case: &Case,
        room: &Room,
        inputs: &Inputs,
    ) -> Result<Self> {
        let tensor = |pattern: &[f32]| {
            let pattern = data::repeated::<T>(pattern, pattern.len());
            repeated(&pattern, room.elements * size_of::<T>())
        };
        let states = |pattern: &[f32]| {
            let pattern = data::repeated::<T::State>(pattern, pattern.len());
            repeated(&pattern, room.states * size_of::<T::State>())
        };
        let first = inputs.patterns().next().unwrap_or_default();
        let copied = || {
            let pattern = data::repeated::<T>(first, first.len());
            repeated(&pattern, room.copied)
        };
        let buffers = Self {
            inputs: inputs.patterns().map(tensor).collect::<Result<_>>()?,
            outputs: (0..case.outputs())
                .map(|_| tensor(&[0.0]))
                .collect::<Result<_>>()?,
            states: inputs.states().map(states).collect::<Result<_>>()?,
            last: states(&[0.0])?,
            mask: repeated(inputs.mask(), room.steps)?,
            from: copied()?,
            to: copied()?,
        };
        // They were filled on another stream.
        CurrentContext::synchronize().map_err(CudaError::from)?;
        Ok(buffers)
    }

    /// The arguments of a case with set number `set`.
    fn arguments<'a, T: Measured<State: Measured>>(
        &'a mut self,
        case: &'a Case,
        set: usize,
    ) -> Arguments<'a, T> {
        const FITS: &str = "there is room for the cases that the buffers were made for";
        let elements = place(set, case.extents.elements());
        let states = place(set, case.sequences());
        let inputs = self.inputs.iter().map(|buffer| {
            let view = DeviceView::of_bytes(buffer);
            view.slice(elements.clone()).expect(FITS)
        });
        let outputs = self.outputs.iter_mut().map(|buffer| {
            let view = DeviceViewMut::of_bytes(buffer);
            view.slice(elements.clone()).expect(FITS)
        });
        let read = self.states.iter().map(|buffer| {
            let view = DeviceView::<T::State>::of_bytes(buffer);
            view.slice(states.clone()).expect(FITS)
        });
        let (inputs, mut outputs, read): (Vec<_>, Vec<_>, Vec<_>) =
            (inputs.collect(), outputs.collect(), read.collect());
        let written = case.variation.initial.then(|| {
            let view = DeviceViewMut::<T::State>::of_bytes(&mut self.last);
            view.slice(states).expect(FITS)
        });
        let mask = case.variation.reset.then(|| {
            let view = DeviceView::from(&self.mask);
            view.slice(place(set, case.steps())).expect(FITS)
        });
        let boundaries = case.boundaries.as_deref();
        if let &[a, h, dh] = &inputs[..] {
            let mut options = DeviceBackwardOptions::new();
            if let (&[initial, d_final], Some(d_initial)) = (&read[..], written) {
                options = options
                    .initial(initial)
                    .d_final(d_final)
                    .d_initial(d_initial);
            }
            if let Some(mask) = mask {
                options = options.reset(mask);
            }
            if let Some(boundaries) = boundaries {
                options = options.boundaries(boundaries);
            }
            let outputs = outputs.try_into().expect("a gradient has two outputs");
            Arguments::Gradient([a, h, dh], options, outputs)
        } else {
            let mut options = DeviceOptions::new().inclusion(case.inclusion());
            if let (&[initial], Some(last)) = (&read[..], written) {
                options = options.initial(initial).final_state(last);
            }
            if let Some(mask) = mask {
                options = options.reset(mask);
            }
            if let Some(boundaries) = boundaries {
                options = options.boundaries(boundaries);
            }
            let out = outputs.pop().expect("a scan has an output");
            Arguments::Scan(inputs, options, out)
        }
    }
}

impl<'a, T: Measured<State: Measured>> GpuRunner<'a, T> {
    /// Makes buffers for the cases.
    ///
    /// # Errors
    /// What the driver reports.
    pub fn new(gpu: &'a Gpu, cases: &[Case], inputs: &Inputs) -> Result<Self> {
        let case = cases[0].clone();
        gpu.make_current()?;
        Ok(Self {
            gpu,
            prepared: None,
            stream: Stream::new(StreamFlags::NON_BLOCKING, None).map_err(CudaError::from)?,
            current: 0,
            buffers: Buffers::new::<T>(&case, &Room::for_all(cases), inputs)?,
            case,
        })
    }

    fn prepare(&mut self, case: &Case, strategy: Option<Strategy>) -> Result<Ready<'a, T>, Error> {
        let (operation, shape, axis) = (case.operation, &case.shape, case.axis as isize);
        Ok(match self.buffers.arguments(case, 0) {
            Arguments::Scan(_, options, _) => Ready::Scan(
                self.gpu
                    .prepare(operation, shape, axis, &options, strategy)?,
            ),
            Arguments::Gradient(_, options, _) => Ready::Gradient(self.gpu.prepare_backward(
                operation.direction,
                shape,
                axis,
                &options,
                strategy,
            )?),
        })
    }

    /// The next set is the one after it.
    fn next(&mut self) -> usize {
        let set = self.current;
        self.current = (set + 1) % sets(&self.case);
        set
    }

    /// Puts a run, with the next set, on the stream.
    fn enqueue_run(&mut self) -> Result<()> {
        let set = self.next();
        let prepared = self.prepared.as_ref();
        let prepared = prepared.expect("a case is taken before it is run");
        // SAFETY: the buffers are this runner's, which uses them on this stream only, and waits for it before it reads
        // them or gives them up.
        unsafe {
            match (prepared, self.buffers.arguments(&self.case, set)) {
                (Ready::Scan(prepared), Arguments::Scan(inputs, options, out)) => {
                    prepared.run_async(&inputs, options, out, &self.stream)
                }
                (Ready::Gradient(prepared), Arguments::Gradient(inputs, options, out)) => {
                    prepared.run_async(inputs, options, out, &self.stream)
                }
                _ => unreachable!("all cases of a runner are scans, or gradients"),
            }
        }?;
        Ok(())
    }

    /// Puts a copy, with the buffers of the next set, on the stream.
    fn enqueue_copy(&mut self) -> Result<()> {
        let set = self.next();
        let bytes = place(set, self.case.bytes() / 2);
        let Buffers { from, to, .. } = &self.buffers;
        assert!(bytes.end <= from.len() && bytes.end <= to.len());
        // SAFETY: both buffers have these bytes; as for their use, see `enqueue_run`.
        let code = unsafe {
            cust::sys::cuMemcpyDtoDAsync_v2(
                to.as_device_ptr().as_raw() + bytes.start as u64,
                from.as_device_ptr().as_raw() + bytes.start as u64,
                bytes.len(),
                self.stream.as_inner(),
            )
        };
        check(code)
    }

    /// Fills the arrays of the first set in `buffer` with NaNs: of all types, that is what has every bit set.
    fn fill_with_nan(&self, buffer: &DeviceBuffer<u8>, bytes: usize) -> Result<()> {
        assert!(bytes <= buffer.len());
        if bytes == 0 {
            return Ok(());
        }
        let address = buffer.as_device_ptr().as_raw();
        // SAFETY: the buffer has as many bytes; as for its use, see `enqueue_run`.
        check(unsafe { cust::sys::cuMemsetD8Async(address, 0xff, bytes, self.stream.as_inner()) })
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

impl<T: Measured<State: Measured>> Runner for GpuRunner<'_, T> {
    fn choices(&mut self, case: &Case) -> Result<Vec<Choice>> {
        let mut plans: Vec<Plan> = Vec::new();
        let mut choices = Vec::new();
        let all = strategies(case.extents).iter().copied();
        for strategy in std::iter::once(None).chain(all.map(Some)) {
            let plan = match self.prepare(case, strategy) {
                Err(Error::NoPlan { .. }) if strategy.is_some() => continue,
                prepared => prepared?.plan().clone(),
            };
            if plans.contains(&plan) {
                continue;
            }
            choices.push(Choice {
                name: name(&plan),
                strategy,
                is_picked: strategy.is_none(),
            });
            plans.push(plan);
        }
        Ok(choices)
    }

    fn take(&mut self, case: &Case) -> Result<()> {
        self.prepared = Some(self.prepare(case, case.strategy)?);
        for output in &self.buffers.outputs {
            self.fill_with_nan(output, case.extents.elements() * size_of::<T>())?;
        }
        self.fill_with_nan(&self.buffers.last, self.buffers.last.len())?;
        self.case = case.clone();
        Ok(())
    }

    fn run(&mut self) -> Result<()> {
        self.current = 0;
        self.enqueue_run()?;
        self.synchronize()
    }

    fn time(&mut self, warm_up: usize, samples: usize) -> Result<Times> {
        Ok(Times {
            runs: self.time_queued(Self::enqueue_run, warm_up, samples)?,
            copies: self.time_queued(Self::enqueue_copy, warm_up, samples)?,
        })
    }

    fn results(&self, sequence: &Sequence) -> Result<Results> {
        let Sequence {
            steps,
            channel,
            state,
        } = sequence;
        let inner = self.case.extents.inner;
        self.gpu.make_current()?;
        let output = |buffer: &DeviceBuffer<u8>| -> Result<Vec<f64>> {
            let first = steps.start * inner + channel;
            let values = strided::<T>(buffer, first, inner, steps.len())?;
            Ok(values.into_iter().map(T::to_f64).collect())
        };
        let outputs = self.buffers.outputs.iter().map(output);
        let has_states = self.case.variation.initial;
        let state = has_states
            .then(|| strided::<T::State>(&self.buffers.last, *state, 1, 1))
            .transpose()?;
        Ok(Results {
            outputs: outputs.collect::<Result<_>>()?,
            state: state.map(|state| state[0].to_f64()),
        })
    }
}

/// What a plan does first.
fn name(plan: &Plan) -> &'static str {
    match plan {
        Plan::Nothing => "nothing",
        Plan::Copy { .. } => "copy",
        Plan::Scan { launches, .. } => match launches[0].kernel.strategy {
            Strategy::Rows => "rows",
            Strategy::Columns => "columns",
            Strategy::Lanes => "lanes",
            Strategy::ShortRows => "short rows",
            Strategy::Narrow => "narrow",
            Strategy::SplitRows => "split rows",
            Strategy::SplitColumns => "split columns",
        },
    }
}

/// Elements of a buffer that nothing is writing: `len` of them, `stride` apart, from number `first` on.
fn strided<T: Measured>(
    buffer: &DeviceBuffer<u8>,
    first: usize,
    stride: usize,
    len: usize,
) -> Result<Vec<T>> {
    let element = size_of::<T>();
    let mut values = vec![T::default(); len];
    if len == 0 {
        return Ok(values);
    }
    // A column of a matrix of `len` rows and `stride` columns.
    let copy = cust::sys::CUDA_MEMCPY2D {
        srcXInBytes: 0,
        srcY: 0,
        srcMemoryType: cust::sys::CUmemorytype::CU_MEMORYTYPE_DEVICE,
        srcHost: std::ptr::null(),
        srcDevice: buffer.as_device_ptr().as_raw() + (first * element) as u64,
        srcArray: std::ptr::null_mut(),
        srcPitch: stride * element,
        dstXInBytes: 0,
        dstY: 0,
        dstMemoryType: cust::sys::CUmemorytype::CU_MEMORYTYPE_HOST,
        dstHost: values.as_mut_ptr().cast(),
        dstDevice: 0,
        dstArray: std::ptr::null_mut(),
        dstPitch: element,
        WidthInBytes: element,
        Height: len,
    };
    assert!((first + (len - 1) * stride + 1) * element <= buffer.len());
    // SAFETY: by the assertion the buffer has the elements, and `values` has as many; the copy returns when it is done.
    check(unsafe { cust::sys::cuMemcpy2DUnaligned_v2(&copy) })?;
    Ok(values)
}

impl<T: Measured<State: Measured>> Drop for GpuRunner<'_, T> {
    fn drop(&mut self) {
        // After an error there may still be work on the stream. If waiting fails, the context is lost, and its buffers with it.
        let _ = self.stream.synchronize();
    }
}

/// A buffer of `bytes` bytes that repeats `pattern`, which is of numbers or of booleans.
fn repeated<V: Copy>(pattern: &[V], bytes: usize) -> Result<DeviceBuffer<u8>> {
    // SAFETY: they have no padding, so that all of their bytes are initialised.
    let pattern =
        unsafe { std::slice::from_raw_parts(pattern.as_ptr().cast::<u8>(), size_of_val(pattern)) };
    let fill = || -> CudaResult<_> {
        // SAFETY: every byte is written below before the buffer is returned.
        let buffer = unsafe { DeviceBuffer::uninitialized(bytes) }?;
        if bytes == 0 {
            return Ok(buffer);
        }
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
