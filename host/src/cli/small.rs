//! `bench --small`: what a small scan takes beside a kernel that does nothing.

use super::bench::write_json;
use super::format::{self, Column, Table, Tuple};
use super::{Outcome, Result, command_name};
use ptxscan::gpu::cust::context::CurrentContext;
use ptxscan::gpu::cust::event::{Event, EventFlags};
use ptxscan::gpu::cust::function::{BlockSize, GridSize};
use ptxscan::gpu::cust::memory::{CopyDestination, DeviceBuffer};
use ptxscan::gpu::cust::module::Module;
use ptxscan::gpu::cust::stream::{Stream, StreamFlags};
use ptxscan::gpu::{DeviceOptions, DeviceView, Gpu, Graph};
use ptxscan::{CudaError, Operation};
use std::io::Write;
use std::path::Path;

const SHAPES: [[usize; 2]; 2] = [[64, 1024], [1, 8192]];
/// Runs in a graph, so that its launch does not count.
const RUNS: usize = 100;
/// Launches of a graph, of which the median is told.
const LAUNCHES: usize = 21;
/// A kernel that does nothing.
const EMPTY: &str =
    ".version 7.4\n.target sm_80\n.address_size 64\n.visible .entry empty() { ret; }\n";

/// A row of the results.
#[derive(serde::Serialize)]
struct Row {
    op: String,
    shape: [usize; 2],
    axis: usize,
    device: String,
    us: f64,
    empty_us: f64,
    /// Whether the result is, to the bit, that of a call.
    same: bool,
}

/// Runs the command.
pub fn run(gpu: &Gpu, json: Option<&Path>, out: &mut dyn Write) -> Result<Outcome> {
    gpu.make_current()?;
    let stream = Stream::new(StreamFlags::NON_BLOCKING, None).map_err(CudaError::from)?;
    let module = Module::from_ptx(EMPTY, &[]).map_err(CudaError::from)?;
    let empty = module.get_function("empty").map_err(CudaError::from)?;
    let (grid, block) = (GridSize::x(1), BlockSize::x(32));
    let nothing = || {
        // SAFETY: the kernel has no parameters, and accesses nothing.
        let launched = unsafe { stream.launch(&empty, grid, block, 0, &[]) };
        Ok(launched.map_err(CudaError::from)?)
    };
    let empty = time(&stream, nothing)?;

    let device = gpu.device_name();
    writeln!(
        out,
        "f32 on {device}, by replay of a graph of {RUNS} runs, one after another; an empty kernel takes {}\n",
        format::time(empty)
    )?;
    let table = Table::new([
        Column::left("operation", "reverse-cumsum".len()),
        Column::left("shape", "(64, 1024)".len()),
        Column::right("time", 8),
        Column::right("over an empty kernel", 0),
        Column::left("result", 0),
    ]);
    table.head(out)?;
    let mut rows = Vec::new();
    for operation in [Operation::REVERSE_CUMSUM, Operation::AFFINE_SCAN] {
        for shape in SHAPES {
            let (seconds, same) = scan(gpu, operation, &shape, &stream)?;
            table.row(
                out,
                [
                    command_name(operation),
                    Tuple(&shape).to_string(),
                    format::time(seconds),
                    format::time(seconds - empty),
                    if same { "same" } else { "DIFFERENT" }.to_owned(),
                ],
            )?;
            rows.push(Row {
                op: command_name(operation),
                shape,
                axis: 1,
                device: device.clone(),
                us: seconds * 1e6,
                empty_us: empty * 1e6,
                same,
            });
        }
    }
    write_json(json, &rows)?;
    Ok(match rows.iter().all(|row| row.same) {
        true => Outcome::Good,
        false => Outcome::Wrong,
    })
}

/// Seconds that a scan takes, and whether its result is that of a call.
fn scan(gpu: &Gpu, operation: Operation, shape: &[usize], stream: &Stream) -> Result<(f64, bool)> {
    let elements: usize = shape.iter().product();
    let input: Vec<f32> = (0..elements).map(|i| (i % 97) as f32 / 97.0).collect();
    let inputs = vec![input.as_slice(); operation.operator.inputs()];
    let expected = gpu.scan(operation, &inputs, shape, 1)?;

    let x = DeviceBuffer::from_slice(&input).map_err(CudaError::from)?;
    let mut y = DeviceBuffer::from_slice(&vec![f32::NAN; elements]).map_err(CudaError::from)?;
    CurrentContext::synchronize().map_err(CudaError::from)?;
    let plain = DeviceOptions::new;
    let prepared = gpu.prepare(operation, shape, 1, &plain(), None)?;
    let views = vec![DeviceView::from(&x); inputs.len()];
    let seconds = time(stream, || {
        // SAFETY: `time` waits for the stream, on which all runs are, and nothing else uses the buffers until then.
        unsafe { prepared.run_async(&views, plain(), (&mut y).into(), stream) }?;
        Ok(())
    })?;
    let mut got = vec![0.0_f32; elements];
    y.copy_to(&mut got).map_err(CudaError::from)?;
    let same = got.iter().zip(&expected);
    Ok((
        seconds,
        same.into_iter()
            .all(|(got, expected)| got.to_bits() == expected.to_bits()),
    ))
}

/// The median of the seconds that what `enqueue` puts on the stream takes. The stream is waited for.
fn time(stream: &Stream, mut enqueue: impl FnMut() -> Result<()>) -> Result<f64> {
    let graph = Graph::captured(stream, || (0..RUNS).try_for_each(|_| enqueue()))?;
    let event = || Event::new(EventFlags::DEFAULT).map_err(CudaError::from);
    let mut times = Vec::new();
    for launch in 0..=LAUNCHES {
        let (start, end) = (event()?, event()?);
        start.record(stream).map_err(CudaError::from)?;
        // SAFETY: the stream is waited for below; the rest says who had the work captured.
        let launched = unsafe { graph.launch(stream) };
        let recorded = end.record(stream);
        stream.synchronize().map_err(CudaError::from)?;
        launched?;
        recorded.map_err(CudaError::from)?;
        let milliseconds = end.elapsed_time_f32(&start).map_err(CudaError::from)?;
        // The first one warms up.
        if launch > 0 {
            times.push(f64::from(milliseconds) * 1e-3 / RUNS as f64);
        }
    }
    times.sort_by(f64::total_cmp);
    Ok(times[LAUNCHES / 2])
}
