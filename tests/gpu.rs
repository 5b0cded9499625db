//! The GPU back end on a GPU. Where there is none, the tests are ignored, with the reason.
//!
//! The tests named `small::…` go everywhere in the kernels with little data: for tools that slow kernels down.

mod common;

use common::cases::{self, Case};
use common::checks::{same_bits, suite};
use common::data::{self, Data, uniform};
use common::emulator::Emulator;
use common::expected::{Accuracy, compare, kernel_depth};
use common::gpu::{
    CANARY, all_memory, device, engine as gpu_engine, gpu, gradient, host, lanes, little_memory,
    narrow, new_stream, split,
};
use common::{
    Backend, Checked, Completion, OPERATIONS, Trial, checks, device as on_device,
    device_backward as backward, options,
};
use libtest_mimic::Arguments;
use ptxscan::gpu::cust::context::CurrentContext;
use ptxscan::gpu::cust::event::{Event, EventFlags};
use ptxscan::gpu::cust::memory::{CopyDestination, DeviceBuffer, LockedBuffer};
use ptxscan::gpu::cust::stream::StreamWaitEventFlags;
use ptxscan::gpu::cust::sys;
use ptxscan::gpu::{
    DeviceOptions, DeviceView, DeviceViewMut, Gpu, Graph, StreamView, device_count,
};
use ptxscan::{Backend as Kind, Direction, Engine, Error, Extents, Operation, extents};
use rayon::prelude::*;
use std::collections::BTreeSet;
use std::ops::Range;
use std::ptr::null_mut;

type OnGpu = fn(&'static Gpu) -> Checked;
type OnTensor = (&'static str, Operation, &'static [usize], isize);

const TESTS: &[(&str, OnGpu)] = &[
    ("engine", engine),
    ("errors", errors),
    ("views", views),
    ("repeatable", repeatable),
    ("same_as_emulator", same_as_emulator),
    ("two_threads", two_threads),
    ("two_streams", two_streams),
    ("ordered_by_an_event", ordered_by_an_event),
    ("foreign_streams", foreign_streams),
    ("out_of_memory", out_of_memory),
    ("device_options", on_device::options),
    ("strided", on_device::strided),
    ("strided::errors", on_device::layouts_that_do_not_fit),
    ("states_of_halves", on_device::states_of_halves),
    (
        "options_that_do_not_fit",
        on_device::options_that_do_not_fit,
    ),
    ("overlap", on_device::overlap),
    ("unsupported", on_device::unsupported),
    ("graph", on_device::graph),
    ("backward::options", backward::options),
    ("backward::strided", backward::strided),
    ("backward::halves", backward::halves),
    ("backward::errors", backward::errors),
    ("backward::overlap", backward::overlap),
    ("backward::graph", backward::graph),
];

/// Tensors as large as those that the speed is measured on.
const FULL_SIZE: &[OnTensor] = &[
    ("r1", Operation::REVERSE_CUMSUM, &[32768, 32768], 1),
    ("r2", Operation::REVERSE_CUMSUM, &[1024, 1_048_576], 1),
    ("r5", Operation::REVERSE_CUMSUM, &[32768, 32768], 0),
    ("a1", Operation::AFFINE_SCAN, &[32, 4096, 256], 1),
    ("a4", Operation::AFFINE_SCAN, &[1, 1_048_576, 64], 1),
    ("a1t", Operation::AFFINE_SCAN, &[32, 256, 4096], 2),
    ("narrow", Operation::CUMSUM, &[1_048_576, 2], 0),
    ("narrow_32", Operation::CUMSUM, &[1_048_576, 32], 0),
];

/// Tensors of more than 2³² elements, or of more sequences than a grid has blocks along x.
const HUGE: &[OnTensor] = &[
    ("copy", Operation::CUMSUM, &[309_504, 1, 16384], 1),
    ("rows", Operation::REVERSE_CUMSUM, &[309_504, 1, 16384], 2),
    ("one_row", Operation::CUMSUM, &[(1 << 32) + 5], 0),
    (
        "one_row_reversed",
        Operation::REVERSE_CUMSUM,
        &[(1 << 32) + 5],
        0,
    ),
    ("columns", Operation::AFFINE_SCAN, &[65536, 33, 2048], 1),
    ("grid_along_y", Operation::CUMSUM, &[(1 << 31) + 5, 2], 1),
];

fn main() {
    let mut trials = checks::all_on("small", device, cases::small);
    trials.push(checks::trial("small::vectors", device, checks::vectors));
    trials.push(checks::trial(
        "small::misaligned",
        device,
        checks::misaligned,
    ));
    trials.extend(suite("device", device));
    trials.extend(suite("host", host));
    trials.extend(suite("split", split));
    trials.extend(suite("lanes", lanes));
    trials.extend(suite("narrow", narrow));
    trials.extend(checks::all_on("small::split", split, cases::small));
    trials.extend(checks::all_on("small::lanes", lanes, cases::small));
    trials.extend(checks::all_on("small::narrow", narrow, cases::small));
    trials.extend(options::suite("gpu", gpu_engine));
    trials.extend(suite("gradient", gradient));
    trials.extend(checks::bitwise("device", device));
    trials.extend(checks::integers_on("device::many", device, cases::many));
    trials.extend(TESTS.iter().map(|&(name, check)| {
        trial(name.to_owned(), move |gpu| {
            check(gpu).map(|()| Completion::Completed)
        })
    }));
    let tensors = [
        ("full_size", FULL_SIZE, full_size as fn(_, _) -> _),
        ("huge", HUGE, huge),
    ];
    for (kind, tensors, check) in tensors {
        trials.extend(tensors.iter().map(|tensor| {
            trial(format!("{kind}::{}", tensor.0), move |gpu| {
                check(gpu, tensor)
            })
        }));
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

fn trial(
    name: String,
    check: impl FnOnce(&'static Gpu) -> Checked<Completion> + Send + 'static,
) -> Trial {
    Trial::ignorable_test(name, || match gpu() {
        Ok(gpu) => {
            gpu.make_current()?;
            check(gpu)
        }
        Err(reason) => Ok(Completion::ignored_with(reason)),
    })
}

fn ensure(holds: bool, message: impl FnOnce() -> String) -> Checked {
    if holds { Ok(()) } else { Err(message().into()) }
}

fn engine(gpu: &Gpu) -> Checked {
    let engine = Engine::auto();
    ensure(engine.backend() == Kind::Gpu, || {
        format!("auto took a CPU: {:?}", engine.why_no_gpu())
    })?;
    ensure(engine.device_name() == gpu.device_name(), || {
        engine.device_name()
    })?;
    ensure(gpu.compute_capability() >= (8, 0), || format!("{gpu:?}"))?;
    let got = engine.reverse_cumsum(&[1.0_f32, 2.0, 3.0, 4.0], &[4], 0)?;
    ensure(got == [10.0, 9.0, 7.0, 4.0], || format!("{got:?}"))?;

    let count = device_count()?;
    let expected = Error::NoSuchGpu {
        ordinal: count,
        count,
    };
    match Gpu::new(count) {
        Err(error) if error == expected => Ok(()),
        other => Err(format!("{other:?}, expected {expected}").into()),
    }
}

/// What does not fit is an error that says what, and the output stays as it is.
fn errors(gpu: &Gpu) -> Checked {
    let _little = little_memory();
    let (sum, affine) = (Operation::CUMSUM, Operation::AFFINE_SCAN);
    let length = |operation, argument, got| Error::LengthMismatch {
        operation,
        argument,
        shape: vec![2, 3],
        expected: 6,
        got,
    };
    let axis = |operation, axis| Error::AxisOutOfRange {
        operation,
        axis,
        rank: 2,
    };
    let too_large = vec![usize::MAX / 2, 3];
    type Wrong<'a> = (Operation, &'a [usize], &'a [usize], isize, usize, Error);
    let wrong: [Wrong; 10] = [
        (sum, &[5], &[2, 3], 1, 6, length(sum, "x", 5)),
        (sum, &[6], &[2, 3], 1, 7, length(sum, "out", 7)),
        (affine, &[7, 6], &[2, 3], 1, 6, length(affine, "a", 7)),
        (affine, &[6, 1], &[2, 3], 1, 6, length(affine, "b", 1)),
        (affine, &[6, 6], &[2, 3], 0, 0, length(affine, "out", 0)),
        (sum, &[6], &[2, 3], 2, 6, axis(sum, 2)),
        (affine, &[6, 6], &[2, 3], -3, 6, axis(affine, -3)),
        (sum, &[1], &[], 0, 1, Error::RankZero { operation: sum }),
        (
            sum,
            &[6, 6],
            &[2, 3],
            1,
            6,
            Error::InputCount {
                operation: sum,
                expected: 1,
                got: 2,
            },
        ),
        (
            sum,
            &[6],
            &too_large,
            1,
            6,
            Error::ShapeTooLarge {
                operation: sum,
                shape: too_large.clone(),
                element_bytes: 4,
            },
        ),
    ];
    for (operation, inputs, shape, axis, out, expected) in wrong {
        let inputs: Vec<_> = inputs.iter().map(|&len| vec![1.0; len]).collect();
        let slices: Vec<_> = inputs.iter().map(Vec::as_slice).collect();
        let untouched = vec![CANARY; out];

        let mut output = untouched.clone();
        let got = gpu.scan_into(operation, &slices, shape, axis, &mut output);
        ensure(got == Err(expected.clone()), || {
            format!("host slices: {got:?}, expected {expected}")
        })?;
        same_bits(&output, &untouched, || {
            format!("host slices: the output after {expected}")
        })?;

        let buffers = slices
            .iter()
            .map(|slice| DeviceBuffer::from_slice(slice))
            .collect::<Result<Vec<_>, _>>()?;
        let views: Vec<_> = buffers.iter().map(DeviceView::from).collect();
        let mut output = DeviceBuffer::from_slice(&untouched)?;
        let stream = new_stream()?;
        let got = gpu.scan_device(
            operation,
            &views,
            shape,
            axis,
            DeviceOptions::new(),
            (&mut output).into(),
            &stream,
        );
        ensure(got == Err(expected.clone()), || {
            format!("device buffers: {got:?}, expected {expected}")
        })?;
        same_bits(&output.as_host_vec()?, &untouched, || {
            format!("device buffers: the output after {expected}")
        })?;
    }
    Ok(())
}

fn views(_: &Gpu) -> Checked {
    let mut buffer = DeviceBuffer::from_slice(&[0.0_f32; 8])?;
    let start = buffer.as_device_ptr().as_raw();
    let slice = |range: Range<usize>| {
        let view = DeviceView::from(&buffer).slice(range)?;
        Some((view.address() - start, view.len(), view.is_empty()))
    };
    let reversed = Range { start: 5, end: 3 };
    let got = [
        slice(0..8),
        slice(3..5),
        slice(8..8),
        slice(0..9),
        slice(9..9),
        slice(reversed),
    ];
    let expected = [
        Some((0, 8, false)),
        Some((12, 2, false)),
        Some((32, 0, true)),
        None,
        None,
        None,
    ];
    ensure(got == expected, || {
        format!("{got:?}, expected {expected:?}")
    })?;
    let twice = DeviceViewMut::from(&mut buffer)
        .slice(2..7)
        .and_then(|view| view.slice(1..3));
    let got = twice.map(|view| (view.address() - start, view.len()));
    ensure(got == Some((12, 2)), || format!("{got:?}"))
}

/// Twenty runs on x_i = frac(i·π) give the same bits.
fn repeatable(_: &Gpu) -> Checked {
    let device = device()?;
    let x: Vec<_> = (0..1_000_000)
        .map(|i| (f64::from(i) * std::f64::consts::PI).fract() as f32)
        .collect();
    for operation in OPERATIONS {
        let inputs = vec![x.as_slice(); operation.operator.inputs()];
        for (shape, axis) in [([1_000_000, 1], 0), ([1000, 1000], 1), ([1000, 1000], 0)] {
            let case = Case::new(&shape, axis);
            let call = case.call(operation, &inputs);
            let first = device.run(&call, &[])?;
            let accuracy = Accuracy::Depth(device.depth(operation.operator, call.extents()));
            compare(&call, &first, accuracy, &case)?;
            for run in 1..20 {
                same_bits(&device.run(&call, &[])?, &first, || {
                    format!("{operation}, {case}, run {run}")
                })?;
            }
        }
    }
    Ok(())
}

/// The GPU gives the bits that the emulator gives.
fn same_as_emulator(_: &Gpu) -> Checked {
    let (device, emulator) = (
        device()?,
        Emulator {
            schedules: 1,
            gradient: false,
        },
    );
    for operation in OPERATIONS {
        for case in cases::small(operation.operator) {
            let data = Data::new(data::floats, operation, &case);
            let inputs = data.inputs();
            let call = case.call(operation, &inputs);
            same_bits(&device.run(&call, &[])?, &emulator.run(&call, &[])?, || {
                format!(
                    "{operation}, {} on the GPU, compared with the emulator",
                    data.named(&case)
                )
            })?;
        }
    }
    Ok(())
}

/// Two threads share an engine, with data on the host and on the device.
fn two_threads(_: &Gpu) -> Checked {
    let work = |operation: Operation| -> Checked {
        for round in 0..10 {
            for case in cases::small(operation.operator) {
                let data = Data::new(data::integers, operation, &case);
                let inputs = data.inputs();
                let call = case.call(operation, &inputs);
                for backend in [device()?, host()?] {
                    let context =
                        format!("{}, round {round} beside another thread", data.named(&case));
                    compare(&call, &backend.run(&call, &[])?, Accuracy::Exact, &context)?;
                }
            }
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let threads = OPERATIONS.map(|operation| scope.spawn(move || work(operation)));
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().expect("no panic"))
    })
}

/// Work on two streams at once.
fn two_streams(gpu: &Gpu) -> Checked {
    let _little = little_memory();
    let setups = [
        (Operation::CUMSUM, Case::new(&[700, 5000], 1)),
        (Operation::REVERSE_CUMSUM, Case::new(&[20, 1000, 100], 1)),
    ];
    let mut works = Vec::new();
    for (operation, case) in &setups {
        let data = Data::new(data::integers, *operation, case);
        let x = DeviceBuffer::from_slice(data.inputs()[0])?;
        let y = DeviceBuffer::from_slice(&vec![CANARY; x.len()])?;
        works.push((operation, case, data, x, y, new_stream()?));
    }
    for _ in 0..20 {
        for (operation, case, _, x, y, stream) in &mut works {
            let inputs = [DeviceView::from(&*x)];
            // SAFETY: the buffers live until the streams are waited for below; until then nothing else writes x or
            // accesses y but the same scan, on the same stream.
            unsafe {
                gpu.scan_device_async(
                    **operation,
                    &inputs,
                    &case.shape,
                    case.axis,
                    DeviceOptions::new(),
                    (&mut *y).into(),
                    &*stream,
                )?
            };
        }
    }
    for (.., stream) in &works {
        stream.synchronize()?;
    }
    for (operation, case, data, _, y, _) in &works {
        let inputs = data.inputs();
        let call = case.call(**operation, &inputs);
        compare(&call, &y.as_host_vec()?, Accuracy::Exact, &data.named(case))?;
    }
    Ok(())
}

/// A stream waits for another's result by an event.
fn ordered_by_an_event(gpu: &Gpu) -> Checked {
    let _all = all_memory();
    let shape = [4096, 8192];
    let elements = shape.iter().product();
    let x = filled(elements, |i| uniform(0, i))?;
    let mut middle = filled(elements, |_| CANARY)?;
    let mut out = filled(elements, |_| CANARY)?;
    let (first, second) = (new_stream()?, new_stream()?);
    let (forward, reverse) = (Operation::CUMSUM, Operation::REVERSE_CUMSUM);

    gpu.scan_device(
        forward,
        &[(&x).into()],
        &shape,
        1,
        DeviceOptions::new(),
        (&mut middle).into(),
        &first,
    )?;
    gpu.scan_device(
        reverse,
        &[(&middle).into()],
        &shape,
        0,
        DeviceOptions::new(),
        (&mut out).into(),
        &first,
    )?;
    let expected = out.as_host_vec()?;

    middle.set_32(CANARY.to_bits())?;
    out.set_32(CANARY.to_bits())?;
    CurrentContext::synchronize()?;
    let event = Event::new(EventFlags::DISABLE_TIMING)?;
    // SAFETY: the buffers live until both streams are waited for. The second scan begins when the first is done, says the
    // event; nothing else accesses the buffers until then.
    unsafe {
        gpu.scan_device_async(
            forward,
            &[(&x).into()],
            &shape,
            1,
            DeviceOptions::new(),
            (&mut middle).into(),
            &first,
        )?;
        event.record(&first)?;
        second.wait_event(event, StreamWaitEventFlags::DEFAULT)?;
        gpu.scan_device_async(
            reverse,
            &[(&middle).into()],
            &shape,
            0,
            DeviceOptions::new(),
            (&mut out).into(),
            &second,
        )?;
    }
    second.synchronize()?;
    first.synchronize()?;
    same_bits(&out.as_host_vec()?, &expected, || {
        "the second scan".to_owned()
    })
}

/// A stream of the driver's own, which waits for no other, as PyTorch's do not.
struct Foreign(sys::CUstream);

impl Foreign {
    fn new() -> Checked<Self> {
        let mut stream = null_mut();
        let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: `stream` is a place for the result.
        let code = unsafe { sys::cuStreamCreate(&mut stream, flags) };
        ensure(code == sys::CUresult::CUDA_SUCCESS, || format!("{code:?}"))?;
        Ok(Self(stream))
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        // SAFETY: it was made by this, and nothing uses it any more. The driver lets its work end.
        let _ = unsafe { sys::cuStreamDestroy_v2(self.0) };
    }
}

/// Work on a stream that cust has not made is done there, after what was put there before; on the default stream too.
fn foreign_streams(gpu: &Gpu) -> Checked {
    let _all = all_memory();
    let shape = [2048, 8192];
    let elements = shape.iter().product();
    let (rows, steps) = (Operation::REVERSE_CUMSUM, Operation::CUMSUM);
    let plain = DeviceOptions::new;
    let x = filled(elements, |_| CANARY)?;
    let mut middle = filled(elements, |_| CANARY)?;
    let mut out = filled(elements, |_| CANARY)?;
    let prepared = gpu.prepare::<f32>(rows, &shape, 1, &plain(), None)?;
    // Sums of ones: at most 2²⁴, so exact.
    let place = |i| (i / shape[1], i % shape[1]);
    let of_rows = |i| (shape[1] - place(i).1) as f32;
    let of_both = |i| (place(i).0 + 1) as f32 * of_rows(i);
    let expect = |got: &DeviceBuffer<f32>, expected: &dyn Fn(usize) -> f32, what: &str| {
        let expected: Vec<f32> = (0..elements).map(expected).collect();
        same_bits(&got.as_host_vec()?, &expected, || what.to_owned())
    };

    let foreign = Foreign::new()?;
    for (handle, name) in [(foreign.0, "a stream"), (null_mut(), "the default stream")] {
        // SAFETY: both are of the device's context, which is current, and exist until the end of this function, by when their
        // work is done.
        let stream = unsafe { StreamView::from_raw(handle.cast()) };
        ensure(stream.as_raw() == handle.cast(), || {
            format!("{name} has another handle")
        })?;
        middle.set_32(CANARY.to_bits())?;
        out.set_32(CANARY.to_bits())?;
        CurrentContext::synchronize()?;
        // A millisecond in which a scan that did not wait would find other values.
        for value in std::iter::repeat_n(2.0_f32, 50).chain([1.0]) {
            let address = x.as_device_ptr().as_raw();
            // SAFETY: the buffer has as many elements, and nothing but this stream uses it until the stream is waited for.
            let code = unsafe { sys::cuMemsetD32Async(address, value.to_bits(), elements, handle) };
            ensure(code == sys::CUresult::CUDA_SUCCESS, || format!("{code:?}"))?;
        }
        // SAFETY: all of it lives until the stream is waited for, which uses it alone until then.
        unsafe { prepared.run_async(&[(&x).into()], plain(), (&mut middle).into(), stream)? };
        let (inputs, sums) = ([(&middle).into()], (&mut out).into());
        gpu.scan_device(steps, &inputs, &shape, 0, plain(), sums, stream)?;
        expect(&middle, &of_rows, name)?;
        expect(&out, &of_both, name)?;
    }

    // SAFETY: as above.
    let stream = unsafe { StreamView::from_raw(foreign.0.cast()) };
    let graph = Graph::captured(stream, || {
        // SAFETY: as above; the graph is launched here alone.
        unsafe { prepared.run_async(&[(&x).into()], plain(), (&mut out).into(), stream) }
    })?;
    // SAFETY: as above.
    unsafe { graph.launch(stream)? };
    stream.synchronize()?;
    expect(&out, &of_rows, "a graph of a stream")
}

/// No memory for host slices is an error that says how much was asked for; afterwards all is as before.
fn out_of_memory(gpu: &Gpu) -> Checked {
    const LEAST: usize = 1 << 20;
    let _all = all_memory();
    let operation = Operation::CUMSUM;
    let elements = 16 * LEAST;
    let x = vec![0.0_f32; elements];
    let untouched = vec![CANARY; elements];
    let mut out = untouched.clone();

    let mut reserved = Vec::new();
    let mut bytes = gpu.memory()?.0;
    while bytes >= LEAST {
        // SAFETY: nothing reads it.
        match unsafe { DeviceBuffer::<u8>::uninitialized(bytes) } {
            Ok(buffer) => reserved.push(buffer),
            Err(_) => bytes /= 2,
        }
    }
    let got = gpu.scan_into(operation, &[&x], &[elements], 0, &mut out);
    let expected = Error::OutOfDeviceMemory {
        operation,
        what: "x",
        bytes: elements * size_of::<f32>(),
    };
    ensure(got == Err(expected.clone()), || {
        format!("{got:?}, expected {expected}")
    })?;
    same_bits(&out, &untouched, || format!("the output after {expected}"))?;

    drop(reserved);
    gpu.scan_into(operation, &[&x], &[elements], 0, &mut out)?;
    ensure(out.iter().all(|&y| y == 0.0), || {
        "sums of zeros are not all zero".to_owned()
    })
}

/// Elements that are copied between host and device at once.
const CHUNK: usize = 1 << 26;

fn chunks(elements: usize) -> impl Iterator<Item = Range<usize>> {
    (0..elements)
        .step_by(CHUNK)
        .map(move |start| start..elements.min(start + CHUNK))
}

/// Device memory whose elements are what `value` gives for their indices.
fn filled(elements: usize, value: impl Fn(usize) -> f32 + Sync) -> Checked<DeviceBuffer<f32>> {
    // SAFETY: all of it is written here.
    let buffer = unsafe { DeviceBuffer::uninitialized(elements)? };
    let mut staging = LockedBuffer::new(&0.0, CHUNK.min(elements))?;
    for range in chunks(elements) {
        let part = &mut staging[..range.len()];
        part.par_iter_mut()
            .zip(range.clone())
            .for_each(|(element, i)| *element = value(i));
        buffer.index(range).copy_from(&*part)?;
    }
    Ok(buffer)
}

/// Device memory all of whose elements are the same.
fn constant(elements: usize, value: f32) -> Checked<DeviceBuffer<f32>> {
    // SAFETY: all of it is written here.
    let mut buffer = unsafe { DeviceBuffer::uninitialized(elements)? };
    buffer.set_32(value.to_bits())?;
    Ok(buffer)
}

/// A scan without options of buffers that are as long as the shape says.
fn scan_plain(
    gpu: &Gpu,
    operation: Operation,
    inputs: &[DeviceBuffer<f32>],
    shape: &[usize],
    axis: isize,
    out: &mut DeviceBuffer<f32>,
) -> Checked {
    let views: Vec<_> = inputs.iter().map(DeviceView::from).collect();
    let plain = DeviceOptions::new();
    let stream = new_stream()?;
    gpu.scan_device(operation, &views, shape, axis, plain, out.into(), &stream)?;
    Ok(())
}

/// Checks all of a buffer, in pieces and on all processors: `check` gets the index of a piece's first element.
fn check_all(
    buffer: &DeviceBuffer<f32>,
    check: impl Fn(usize, &[f32]) -> Result<(), String> + Sync,
) -> Checked {
    const PIECE: usize = 1 << 18;
    let mut staging = LockedBuffer::new(&0.0, CHUNK.min(buffer.len()))?;
    for range in chunks(buffer.len()) {
        let part = &mut staging[..range.len()];
        buffer.index(range.clone()).copy_to(&mut *part)?;
        part.par_chunks(PIECE)
            .enumerate()
            .try_for_each(|(k, piece)| check(range.start + k * PIECE, piece))?;
    }
    Ok(())
}

/// Whether buffers of a shape fit in the free memory; if not, why the test is ignored.
fn missing_memory(gpu: &Gpu, buffers: usize, extents: Extents) -> Checked<Option<Completion>> {
    const SPARE: usize = 1 << 30;
    let (needed, (free, _)) = (
        buffers * extents.elements() * size_of::<f32>() + SPARE,
        gpu.memory()?,
    );
    let reason = || format!("{} GiB are free, and {} needed", free >> 30, needed >> 30);
    Ok((free < needed).then(|| Completion::ignored_with(reason())))
}

/// Random floats: some outer indices are compared with the recurrence; and all of the output is written, each sequence
/// with its first element as it is.
fn full_size(gpu: &Gpu, &(_, operation, shape, axis): &OnTensor) -> Checked<Completion> {
    let _all = all_memory();
    let extents = extents::<f32>(operation, shape, axis)?;
    let Extents { outer, len, inner } = extents;
    let inputs = operation.operator.inputs();
    if let Some(ignored) = missing_memory(gpu, inputs + 1, extents)? {
        return Ok(ignored);
    }
    // x and b; or the gate a, which forgets within a few hundred steps.
    let element = |array: usize, i: usize| match inputs - array {
        1 => uniform(array, i),
        _ => 1.0 - uniform(array, i) / 64.0,
    };
    let buffers = (0..inputs)
        .map(|k| filled(extents.elements(), |i| element(k, i)))
        .collect::<Checked<Vec<_>>>()?;
    let mut out = constant(extents.elements(), CANARY)?;
    scan_plain(gpu, operation, &buffers, shape, axis, &mut out)?;

    // As many channels, from the last one back, as make some million elements.
    let channels = inner.min(((1 << 24) / len).max(1));
    let sampled = BTreeSet::from([
        0,
        1,
        outer / 3,
        outer / 2,
        outer.saturating_sub(2),
        outer - 1,
    ]);
    for o in sampled.into_iter().filter(|&o| o < outer) {
        let steps = || {
            (o * len..(o + 1) * len).map(|step| (step + 1) * inner - channels..(step + 1) * inner)
        };
        let own = (0..inputs).map(|k| steps().flatten().map(|i| element(k, i)).collect());
        let own: Vec<Vec<_>> = own.collect();
        let own: Vec<_> = own.iter().map(Vec::as_slice).collect();
        let start = o * len * inner;
        let all = out.index(start..start + len * inner).as_host_vec()?;
        let got: Vec<_> = steps()
            .flat_map(|range| &all[range.start - start..range.end - start])
            .copied()
            .collect();
        let (case, depth) = (
            Case::new(&[len, channels], 0),
            kernel_depth(operation.operator, extents),
        );
        compare(
            &case.call(operation, &own),
            &got,
            Accuracy::Depth(depth),
            &format!("outer {o}"),
        )?;
    }

    let first = match operation.direction {
        Direction::Forward => 0,
        Direction::Reverse => len - 1,
    };
    check_all(&out, |start, piece| {
        let is_wrong = |(i, got): (usize, &f32)| {
            got.to_bits() == CANARY.to_bits()
                || i / inner % len == first && *got != element(inputs - 1, i)
        };
        match (start..).zip(piece).find(|&pair| is_wrong(pair)) {
            None => Ok(()),
            Some((i, got)) => Err(format!("{operation}: element {i} is {got}")),
        }
    })?;
    Ok(Completion::Completed)
}

/// Zeros but for a few ones (and gates of 1): every element of the output is the number of ones that the scan has met.
fn huge(gpu: &Gpu, &(_, operation, shape, axis): &OnTensor) -> Checked<Completion> {
    let _all = all_memory();
    let extents = extents::<f32>(operation, shape, axis)?;
    let Extents { len, inner, .. } = extents;
    let elements = extents.elements();
    let inputs = operation.operator.inputs();
    if let Some(ignored) = missing_memory(gpu, inputs + 1, extents)? {
        return Ok(ignored);
    }
    let mut buffers = vec![constant(elements, 0.0)?];
    let ones: BTreeSet<_> = [0, (1 << 31) + 1, elements / 2, (1 << 32) + 2, elements - 1]
        .into_iter()
        .filter(|&i| i < elements)
        .collect();
    for &i in &ones {
        buffers[0].index(i..i + 1).copy_from(&[1.0])?;
    }
    if inputs == 2 {
        buffers.insert(0, constant(elements, 1.0)?);
    }
    let mut out = constant(elements, CANARY)?;
    scan_plain(gpu, operation, &buffers, shape, axis, &mut out)?;

    // The first and the last element, in memory, that a one reaches.
    let reached = |one: usize| {
        let (outer, step) = (one / inner / len, one / inner % len);
        match operation.direction {
            Direction::Forward => (one, one + (len - 1 - step) * inner),
            Direction::Reverse => (outer * len * inner + one % inner, one),
        }
    };
    check_all(&out, |start, piece| {
        let end = start + piece.len();
        let mut expected = vec![0.0; piece.len()];
        for (first, last) in ones.iter().map(|&one| reached(one)) {
            let first = first.max(start + (first + inner - start % inner) % inner);
            for i in (first..end.min(last + 1)).step_by(inner) {
                expected[i - start] += 1.0;
            }
        }
        match piece
            .iter()
            .zip(&expected)
            .position(|(got, expected)| got != expected)
        {
            None => Ok(()),
            Some(k) => Err(format!(
                "{operation}: element {} is {}, expected {}",
                start + k,
                piece[k],
                expected[k]
            )),
        }
    })?;
    Ok(Completion::Completed)
}
