//! The GPU back end, with data on the host and on the device.

use super::checks::same_bits;
use super::expected::kernel_depth;
use super::gradient::ByGradient;
use super::{Backend, Call, Checked};
use ptxscan::gpu::cust::context::CurrentContext;
use ptxscan::gpu::cust::memory::DeviceBuffer;
use ptxscan::gpu::cust::stream::{Stream, StreamFlags};
use ptxscan::gpu::{DeviceOptions, DeviceView, DeviceViewMut, Gpu};
use ptxscan::plan::{self, PlanBuilder, Strategy};
use ptxscan::{Element, Engine, Extents, Operation, Operator};
use std::sync::{OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Fills outputs before a run, and what lies around arrays.
pub const CANARY: f32 = f32::from_bits(0x7fc0_dead);

/// The first GPU, or why there is none.
pub fn gpu() -> Result<&'static Gpu, String> {
    static GPU: OnceLock<Result<Gpu, String>> = OnceLock::new();
    let gpu = GPU.get_or_init(|| Gpu::new(0).map_err(|error| error.to_string()));
    gpu.as_ref().map_err(String::clone)
}

/// Tests that need much of the device's memory run alone.
static MEMORY: RwLock<()> = RwLock::new(());

pub fn little_memory() -> RwLockReadGuard<'static, ()> {
    MEMORY.read().unwrap_or_else(PoisonError::into_inner)
}

pub fn all_memory() -> RwLockWriteGuard<'static, ()> {
    MEMORY.write().unwrap_or_else(PoisonError::into_inner)
}

/// A stream that waits for no other: what is on its way to device memory has to be there before it is used.
pub fn new_stream() -> Checked<Stream> {
    CurrentContext::synchronize()?;
    Ok(Stream::new(StreamFlags::NON_BLOCKING, None)?)
}

/// Host slices through the GPU.
struct HostSlices(&'static Gpu);

pub fn host() -> Result<&'static dyn Backend, String> {
    static HOST: OnceLock<HostSlices> = OnceLock::new();
    gpu().map(|gpu| HOST.get_or_init(|| HostSlices(gpu)) as &dyn Backend)
}

impl Backend for HostSlices {
    fn run(&self, call: &Call, _: &[usize]) -> Checked<Vec<f32>> {
        let _little = little_memory();
        let mut out = vec![CANARY; call.extents().elements()];
        self.0
            .scan_into(call.operation, call.inputs, call.shape, call.axis, &mut out)?;
        Ok(out)
    }

    fn depth(&self, operator: Operator, extents: Extents) -> usize {
        kernel_depth(operator, extents)
    }
}

/// Views of device buffers, on a stream of the caller's.
struct DeviceViews {
    gpu: &'static Gpu,
    /// The strategy, whatever the rules say; the plan is then run twice.
    forced: Option<fn(Extents) -> Strategy>,
}

pub fn device() -> Result<&'static dyn Backend, String> {
    static DEVICE: OnceLock<DeviceViews> = OnceLock::new();
    gpu().map(|gpu| DEVICE.get_or_init(|| DeviceViews { gpu, forced: None }) as &dyn Backend)
}

/// Whether a block has as much shared memory as split scans of f32 ask for.
pub fn can_split(gpu: &Gpu) -> bool {
    [[1, 1 << 20, 1], [1, 1 << 16, 64]]
        .into_iter()
        .all(|[outer, len, inner]| {
            let extents = Extents { outer, len, inner };
            let builder = PlanBuilder::new(Operation::AFFINE_SCAN, f32::KERNEL_NAME, extents);
            builder
                .strategy(Some(plan::split(extents)))
                .build(gpu.limits())
                .is_some()
        })
}

pub fn split() -> Result<&'static dyn Backend, String> {
    static SPLIT: OnceLock<DeviceViews> = OnceLock::new();
    let gpu = gpu()?;
    if !can_split(gpu) {
        return Err("the GPU lacks the shared memory for split scans of f32".into());
    }
    let forced = Some(plan::split as fn(_) -> _);
    Ok(SPLIT.get_or_init(|| DeviceViews { gpu, forced }))
}

/// A lane for a few channels.
pub fn lanes() -> Result<&'static dyn Backend, String> {
    static LANES: OnceLock<DeviceViews> = OnceLock::new();
    let forced = Some(super::lanes as fn(_) -> _);
    gpu().map(|gpu| LANES.get_or_init(|| DeviceViews { gpu, forced }) as &dyn Backend)
}

/// Several tiles of few channels at once.
pub fn narrow() -> Result<&'static dyn Backend, String> {
    static NARROW: OnceLock<DeviceViews> = OnceLock::new();
    let forced = Some(super::narrow as fn(_) -> _);
    gpu().map(|gpu| NARROW.get_or_init(|| DeviceViews { gpu, forced }) as &dyn Backend)
}

/// The GPU as an engine.
pub fn engine() -> Result<&'static Engine, String> {
    static ENGINE: OnceLock<Result<Engine, String>> = OnceLock::new();
    let engine = ENGINE.get_or_init(|| Engine::gpu(0).map_err(|error| error.to_string()));
    engine.as_ref().map_err(String::clone)
}

/// Scans as gradients.
pub fn gradient() -> Result<&'static dyn Backend, String> {
    static GRADIENT: OnceLock<ByGradient> = OnceLock::new();
    let engine = engine()?;
    Ok(GRADIENT.get_or_init(|| ByGradient {
        engine,
        depth: |operator, extents| kernel_depth(operator, extents) + 1,
    }))
}

/// An array in device memory with NaN around it.
struct Guarded {
    buffer: DeviceBuffer<f32>,
    before: Vec<f32>,
    start: usize,
    end: usize,
}

impl Guarded {
    /// Elements around the array: a multiple of 16 bytes.
    const GUARD: usize = 64;

    fn new(offset: usize, values: &[f32]) -> Checked<Self> {
        let (start, end) = (Self::GUARD + offset, Self::GUARD + offset + values.len());
        let mut before = vec![CANARY; end + Self::GUARD];
        before[start..end].copy_from_slice(values);
        let buffer = DeviceBuffer::from_slice(&before)?;
        Ok(Self {
            buffer,
            before,
            start,
            end,
        })
    }

    fn view(&self) -> DeviceView<'_, f32> {
        DeviceView::from(&self.buffer)
            .slice(self.start..self.end)
            .expect("it has these elements")
    }

    fn view_mut(&mut self) -> DeviceViewMut<'_, f32> {
        DeviceViewMut::from(&mut self.buffer)
            .slice(self.start..self.end)
            .expect("it has these elements")
    }
}

impl Backend for DeviceViews {
    /// Checks too that the scan leaves the inputs as they are, and what lies around the output.
    fn run(&self, call: &Call, offsets: &[usize]) -> Checked<Vec<f32>> {
        let _little = little_memory();
        self.gpu.make_current()?;
        let offset = |k: usize| offsets.get(k).copied().unwrap_or(0);
        let inputs = (0..)
            .zip(call.inputs)
            .map(|(k, input)| Guarded::new(offset(k), input));
        let inputs = inputs.collect::<Checked<Vec<_>>>()?;
        let mut output = Guarded::new(
            offset(inputs.len()),
            &vec![CANARY; call.extents().elements()],
        )?;
        let stream = new_stream()?;
        let views: Vec<_> = inputs.iter().map(Guarded::view).collect();
        let extents = call.extents();
        let forced = self
            .forced
            .filter(|_| extents.elements() > 0 && extents.len > 1);
        if let Some(forced) = forced {
            let plain = DeviceOptions::new;
            let mut prepared = self.gpu.prepare(
                call.operation,
                call.shape,
                call.axis,
                &plain(),
                Some(forced(extents)),
            )?;
            for _ in 0..2 {
                prepared.run(&views, plain(), output.view_mut(), &stream)?;
            }
        } else {
            self.gpu.scan_device(
                call.operation,
                &views,
                call.shape,
                call.axis,
                DeviceOptions::new(),
                output.view_mut(),
                &stream,
            )?;
        }

        let context = |what| {
            format!(
                "{what} {}, shape {:?}, axis {}",
                call.operation, call.shape, call.axis
            )
        };
        for input in &inputs {
            same_bits(&input.buffer.as_host_vec()?, &input.before, || {
                context("an input after")
            })?;
        }
        let Guarded {
            buffer,
            before,
            start,
            end,
        } = output;
        let after = buffer.as_host_vec()?;
        same_bits(&after[..start], &before[..start], || {
            context("below the output of")
        })?;
        same_bits(&after[end..], &before[end..], || {
            context("above the output of")
        })?;
        Ok(after[start..end].to_vec())
    }

    fn depth(&self, operator: Operator, extents: Extents) -> usize {
        kernel_depth(operator, extents)
    }
}
