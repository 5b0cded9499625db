//! Gradients in device memory, called, prepared, and captured in a graph.

use super::Checked;
use super::checks::same_bits;
use super::data::uniform;
use super::device::{expect, resets, sequences};
use super::gpu::{CANARY, all_memory, little_memory, new_stream};
use super::options::strided as strided_arrays;
use ptxscan::gpu::cust::context::CurrentContext;
use ptxscan::gpu::cust::memory::{CopyDestination, DeviceBuffer};
use ptxscan::gpu::{
    DeviceBackwardOptions, DeviceView, DeviceViewMut, Gpu, Graph, PreparedBackward,
};
use ptxscan::half::bf16;
use ptxscan::plan::split;
use ptxscan::{
    BackwardOptions, Cpu, Direction, Element, Error, Layout, Operation, Operator, extents,
};
use rand::SeedableRng;
use rand::rngs::StdRng;

const DIRECTIONS: [Direction; 2] = [Direction::Forward, Direction::Reverse];

/// Which options there are.
#[derive(Clone, Copy, Debug)]
struct Which {
    initial: bool,
    d_initial: bool,
    d_final: bool,
    reset: bool,
    packed: bool,
}

impl Which {
    const ALL: Self = Self {
        initial: true,
        d_initial: true,
        d_final: true,
        reset: true,
        packed: true,
    };

    fn all() -> impl Iterator<Item = Self> {
        (0..32).map(|bits: u32| {
            let has = |bit: u32| bits >> bit & 1 == 1;
            Self {
                initial: has(0),
                d_initial: has(1),
                d_final: has(2),
                reset: has(3),
                packed: has(4),
            }
        })
    }
}

/// A gradient's arrays on the host.
struct Host {
    direction: Direction,
    shape: [usize; 3],
    which: Which,
    /// a, h and dh.
    inputs: [Vec<f32>; 3],
    initial: Vec<f32>,
    d_final: Vec<f32>,
    reset: Vec<bool>,
    boundaries: Vec<usize>,
}

impl Host {
    /// Of random gates of magnitude 0 or 1 and integers, so that nothing is rounded; others for each `round`.
    fn new(direction: Direction, shape: [usize; 3], which: Which, round: usize) -> Self {
        let [outer, len, inner] = shape;
        let (boundaries, sequences) = sequences(shape, which.packed);
        let number = |array, i| (9.0 * uniform(10 * round + array, i)).floor() - 4.0;
        let numbers = |array, count| (0..count).map(|i| number(array, i)).collect::<Vec<f32>>();
        let elements = outer * len * inner;
        let gate = |number: f32| match number {
            4.0 => 0.0,
            _ => 1.0_f32.copysign(number),
        };
        Self {
            direction,
            shape,
            which,
            inputs: [
                numbers(0, elements).into_iter().map(gate).collect(),
                numbers(1, elements),
                numbers(2, elements),
            ],
            initial: numbers(3, sequences * inner),
            d_final: numbers(4, sequences * inner),
            reset: resets(shape, round),
            boundaries,
        }
    }

    /// The gradients of the tensors and of the initial states, by the CPU; what is not written is [`CANARY`].
    fn gradient(&self) -> Checked<[Vec<f32>; 3]> {
        let canaries = |like: &[f32]| vec![CANARY; like.len()];
        let (mut da, mut db) = (canaries(&self.inputs[0]), canaries(&self.inputs[0]));
        let mut d_initial = canaries(&self.initial);
        let mut options = BackwardOptions::new();
        if self.which.initial {
            options = options.initial(&self.initial);
        }
        if self.which.d_initial {
            options = options.d_initial(&mut d_initial);
        }
        if self.which.d_final {
            options = options.d_final(&self.d_final);
        }
        if self.which.reset {
            options = options.reset(&self.reset);
        }
        if self.which.packed {
            options = options.boundaries(&self.boundaries);
        }
        Cpu::new().affine_scan_backward_into(
            self.direction,
            self.inputs.each_ref().map(Vec::as_slice),
            &self.shape,
            1,
            options,
            [&mut da, &mut db],
        )?;
        Ok([da, db, d_initial])
    }
}

/// The same arrays in device memory.
struct Device {
    which: Which,
    inputs: [DeviceBuffer<f32>; 3],
    initial: DeviceBuffer<f32>,
    d_final: DeviceBuffer<f32>,
    reset: DeviceBuffer<u8>,
    boundaries: Vec<usize>,
    /// da and db.
    out: [DeviceBuffer<f32>; 2],
    d_initial: DeviceBuffer<f32>,
}

impl Device {
    fn new(host: &Host) -> Checked<Self> {
        let buffer = |values: &[f32]| DeviceBuffer::from_slice(values);
        let canaries = |like: &[f32]| DeviceBuffer::from_slice(&vec![CANARY; like.len()]);
        let [a, h, dh] = &host.inputs;
        // Whatever is not 0.
        let reset = host.reset.iter().map(|&reset| 0x80 * u8::from(reset));
        Ok(Self {
            which: host.which,
            inputs: [buffer(a)?, buffer(h)?, buffer(dh)?],
            initial: buffer(&host.initial)?,
            d_final: buffer(&host.d_final)?,
            reset: DeviceBuffer::from_slice(&reset.collect::<Vec<_>>())?,
            boundaries: host.boundaries.clone(),
            out: [canaries(a)?, canaries(a)?],
            d_initial: canaries(&host.initial)?,
        })
    }

    /// Takes the values of `host`, and clears the outputs.
    fn take(&mut self, host: &Host) -> Checked {
        let new = Self::new(host)?;
        for (to, from) in self.inputs.iter_mut().zip(&new.inputs) {
            to.copy_from(from)?;
        }
        for (to, from) in self.out.iter_mut().zip(&new.out) {
            to.copy_from(from)?;
        }
        self.initial.copy_from(&new.initial)?;
        self.d_final.copy_from(&new.d_final)?;
        self.reset.copy_from(&new.reset)?;
        self.d_initial.copy_from(&new.d_initial)?;
        // Streams of their own do not wait for these copies.
        Ok(CurrentContext::synchronize()?)
    }

    /// What a call gets.
    fn arguments(
        &mut self,
    ) -> (
        [DeviceView<'_, f32>; 3],
        DeviceBackwardOptions<'_, f32>,
        [DeviceViewMut<'_, f32>; 2],
    ) {
        let mut options = DeviceBackwardOptions::new();
        if self.which.initial {
            options = options.initial(&self.initial);
        }
        if self.which.d_initial {
            options = options.d_initial(&mut self.d_initial);
        }
        if self.which.d_final {
            options = options.d_final(&self.d_final);
        }
        if self.which.reset {
            options = options.reset(&self.reset);
        }
        if self.which.packed {
            options = options.boundaries(&self.boundaries);
        }
        let inputs = self.inputs.each_ref().map(DeviceView::from);
        (
            inputs,
            options,
            self.out.each_mut().map(DeviceViewMut::from),
        )
    }

    fn prepare<'gpu>(
        &mut self,
        gpu: &'gpu Gpu,
        host: &Host,
    ) -> Result<PreparedBackward<'gpu, f32>, Error> {
        let (_, options, _) = self.arguments();
        gpu.prepare_backward(host.direction, &host.shape, 1, &options, None)
    }

    /// Checks what was computed, but for the sign of zeros, and that nothing else was written.
    fn expect(&self, want: &[Vec<f32>; 3], context: impl Fn() -> String) -> Checked {
        let [da, db] = &self.out;
        for (name, buffer, want) in [
            ("da", da, &want[0]),
            ("db", db, &want[1]),
            ("d_initial", &self.d_initial, &want[2]),
        ] {
            let got = unsigned_zeros(&buffer.as_host_vec()?);
            same_bits(&got, &unsigned_zeros(want), || {
                format!("{name} of {}", context())
            })?;
        }
        Ok(())
    }
}

fn unsigned_zeros(values: &[f32]) -> Vec<f32> {
    let value = |&value| if value == 0.0 { 0.0 } else { value };
    values.iter().map(value).collect()
}

/// Every combination of options, of a call and of two runs of a prepared gradient, gives what the CPU gives of host slices.
pub fn options(gpu: &Gpu) -> Checked {
    let _little = little_memory();
    for direction in DIRECTIONS {
        // Rows and columns, of one tile, of some, and of some groups of them.
        for [outer, len, inner] in [
            [5, 37, 1],
            [3, 5000, 1],
            [1, 300_000, 1],
            [2, 50, 7],
            [2, 500, 40],
            [1, 20_000, 3],
        ] {
            for which in Which::all() {
                let outer = if which.packed { 1 } else { outer };
                let shape = [outer, len, inner];
                let stream = new_stream()?;
                let host = Host::new(direction, shape, which, 0);
                let context = |what: &str| {
                    format!("{what} the gradient, {direction:?}, {shape:?}, {which:?}")
                };

                let mut device = Device::new(&host)?;
                CurrentContext::synchronize()?;
                let (inputs, options, out) = device.arguments();
                gpu.affine_scan_backward_device(
                    direction, inputs, &shape, 1, options, out, &stream,
                )?;
                device.expect(&host.gradient()?, || context("a call of"))?;

                let mut prepared = device.prepare(gpu, &host)?;
                for round in [1, 2] {
                    let host = Host::new(direction, shape, which, round);
                    device.take(&host)?;
                    let (inputs, options, out) = device.arguments();
                    prepared.run(inputs, options, out, &stream)?;
                    device.expect(&host.gradient()?, || context("a run of"))?;
                }
            }
        }
    }
    Ok(())
}

/// The gradient from inputs of any layouts is that from row-major ones, with every option or none.
pub fn strided(gpu: &Gpu) -> Checked {
    let _little = little_memory();
    let none = Which {
        initial: false,
        d_initial: false,
        d_final: false,
        reset: false,
        packed: false,
    };
    for direction in DIRECTIONS {
        for shape in [[1, 5000, 1], [1, 500, 40], [1, 3000, 67]] {
            for (seed, which) in (0..5).flat_map(|seed| [(seed, none), (seed, Which::ALL)]) {
                let stream = new_stream()?;
                let mut host = Host::new(direction, shape, which, 0);
                let extents = extents::<f32>(Operation::AFFINE_SCAN, &shape, 1)?;
                let rng = &mut StdRng::seed_from_u64(seed);
                let (arrays, layouts) = strided_arrays(&mut host.inputs, extents, rng);
                let layouts: [Layout; 3] = layouts[..].try_into()?;
                let context = |what: &str| {
                    format!("{what} the gradient, {direction:?}, {shape:?}, {which:?}, {layouts:?}")
                };
                let want = host.gradient()?;

                let mut device = Device::new(&host)?;
                for (to, from) in device.inputs.iter_mut().zip(&arrays) {
                    *to = DeviceBuffer::from_slice(from)?;
                }
                CurrentContext::synchronize()?;
                let (inputs, options, out) = device.arguments();
                let options = options.layouts(&layouts);
                gpu.affine_scan_backward_device(
                    direction, inputs, &shape, 1, options, out, &stream,
                )?;
                device.expect(&want, || context("a call of"))?;

                let (_, options, _) = device.arguments();
                let options = options.layouts(&layouts);
                let mut prepared = gpu.prepare_backward(direction, &shape, 1, &options, None)?;
                let (inputs, options, out) = device.arguments();
                prepared.run(inputs, options.layouts(&layouts), out, &stream)?;
                device.expect(&want, || context("a run of"))?;
                let error = Error::NotAsPrepared {
                    operation: Operation::new(Operator::AffineScan, direction),
                    option: "layouts",
                };
                let (inputs, options, out) = device.arguments();
                let other = layouts.map(|layout| Layout {
                    outer: layout.outer + 1,
                    ..layout
                });
                let got = prepared.run(inputs, options.layouts(&other), out, &stream);
                expect(got, &error)?;
            }
        }
    }
    Ok(())
}

/// Gradients of states of halves are `f32`, in buffers of bytes.
pub fn halves(gpu: &Gpu) -> Checked {
    let _little = little_memory();
    let stream = new_stream()?;
    let bytes = |values: [f32; 3]| -> Checked<DeviceBuffer<u8>> {
        let bytes = values.map(|value| bf16::from_f32(value).to_le_bytes());
        Ok(DeviceBuffer::from_slice(bytes.as_flattened())?)
    };
    let (a, h, dh) = (
        bytes([2.0, 2.0, 3.0])?,
        bytes([21.0, 43.0, 130.0])?,
        bytes([0.0, 0.0, 1.0])?,
    );
    let (mut da, mut db) = (bytes([CANARY; 3])?, bytes([CANARY; 3])?);
    let initial = DeviceBuffer::from_slice(&[10.0_f32])?;
    // 2⁻¹⁰ is lost beside 1 in a bf16.
    let d_final = DeviceBuffer::from_slice(&[1.0 / 1024.0_f32])?;
    let mut d_initial = DeviceBuffer::from_slice(&[CANARY])?;
    CurrentContext::synchronize()?;
    let options = DeviceBackwardOptions::<bf16>::new()
        .initial(&initial)
        .d_final(&d_final)
        .d_initial(&mut d_initial);
    gpu.affine_scan_backward_device(
        Direction::Forward,
        [&a, &h, &dh].map(DeviceView::of_bytes),
        &[3],
        0,
        options,
        [&mut da, &mut db].map(DeviceViewMut::of_bytes),
        &stream,
    )?;
    for (name, buffer, want) in [("da", da, [60.0, 63.0, 43.0]), ("db", db, [6.0, 3.0, 1.0])] {
        let got: Vec<f32> = buffer
            .as_host_vec()?
            .chunks(2)
            .map(|bytes| bf16::from_le_bytes([bytes[0], bytes[1]]).to_f32())
            .collect();
        same_bits(&got, &want, || name.to_owned())?;
    }
    let want = [12.0 + 12.0 / 1024.0];
    same_bits(&d_initial.as_host_vec()?, &want, || "d_initial".to_owned())
}

/// What does not fit, or is not what a run was prepared with; the outputs stay as they are.
pub fn errors(gpu: &Gpu) -> Checked {
    let _little = little_memory();
    let (operation, direction) = (Operation::REVERSE_AFFINE_SCAN, Direction::Reverse);
    let stream = new_stream()?;
    let buffer = |len| DeviceBuffer::from_slice(&vec![1.0_f32; len]);
    let (x, short, states) = (buffer(6)?, buffer(5)?, buffer(3)?);
    let mask = DeviceBuffer::from_slice(&[0_u8; 5])?;
    let (mut da, mut db, mut short_out) = (buffer(6)?, buffer(6)?, buffer(5)?);
    let mut d_initial = buffer(1)?;
    let length = |argument, expected, got| Error::LengthMismatch {
        operation,
        argument,
        shape: vec![2, 3],
        expected,
        got,
    };
    let plain = DeviceBackwardOptions::<f32>::new;
    let inputs = || [DeviceView::from(&x); 3];

    let wrong = [
        (plain().initial(&states), length("initial", 2, 3)),
        (plain().d_final(&states), length("d_final", 2, 3)),
        (plain().d_initial(&mut d_initial), length("d_initial", 2, 1)),
        (plain().reset(&mask), length("reset", 6, 5)),
        (
            plain().boundaries(&[0, 3]),
            Error::BoundariesOfMany {
                operation,
                outer: 2,
            },
        ),
    ];
    for (options, expected) in wrong {
        let prepared = gpu.prepare_backward(direction, &[2, 3], 1, &options, None);
        expect(prepared, &expected)?;
        let out = [&mut da, &mut db].map(DeviceViewMut::from);
        let got =
            gpu.affine_scan_backward_device(direction, inputs(), &[2, 3], 1, options, out, &stream);
        expect(got, &expected)?;
    }

    let mut prepared = gpu.prepare_backward(direction, &[2, 3], 1, &plain(), None)?;
    for (index, argument) in ["a", "h", "dh"].into_iter().enumerate() {
        let mut inputs = inputs();
        inputs[index] = (&short).into();
        let out = || [&da, &db].map(|buffer| view_mut(buffer, 0, 6));
        let expected = length(argument, 6, 5);
        let got =
            gpu.affine_scan_backward_device(direction, inputs, &[2, 3], 1, plain(), out(), &stream);
        expect(got, &expected)?;
        expect(prepared.run(inputs, plain(), out(), &stream), &expected)?;
    }
    let out = [(&mut short_out).into(), (&mut db).into()];
    let got = prepared.run(inputs(), plain(), out, &stream);
    expect(got, &length("da", 6, 5))?;
    let out = [(&mut da).into(), (&mut short_out).into()];
    let got = prepared.run(inputs(), plain(), out, &stream);
    expect(got, &length("db", 6, 5))?;

    let (states, reset) = (buffer(2)?, DeviceBuffer::from_slice(&[0_u8; 6])?);
    let mut d_initial = buffer(2)?;
    let other = [
        (plain().initial(&states), "initial"),
        (plain().d_final(&states), "d_final"),
        (plain().d_initial(&mut d_initial), "d_initial"),
        (plain().reset(&reset), "reset"),
    ];
    for (options, option) in other {
        let out = [&mut da, &mut db].map(DeviceViewMut::from);
        let got = prepared.run(inputs(), options, out, &stream);
        expect(got, &Error::NotAsPrepared { operation, option })?;
    }
    let packed = plain().boundaries(&[0, 2, 6]);
    let mut prepared = gpu.prepare_backward(direction, &[6], 0, &packed, None)?;
    let out = [&mut da, &mut db].map(DeviceViewMut::from);
    let others = plain().boundaries(&[0, 3, 6]);
    let option = "boundaries";
    let got = prepared.run(inputs(), others, out, &stream);
    expect(got, &Error::NotAsPrepared { operation, option })?;
    for buffer in [&da, &db] {
        same_bits(&buffer.as_host_vec()?, &[1.0; 6], || {
            "an output after errors".to_owned()
        })?;
    }
    // They are known. In reverse, the gradient goes forward.
    let out = [&mut da, &mut db].map(DeviceViewMut::from);
    prepared.run(inputs(), plain(), out, &stream)?;
    let want = [1.0, 0.0, 1.0, 2.0, 3.0, 0.0];
    same_bits(&da.as_host_vec()?, &want, || "da, packed".to_owned())?;
    let want = [1.0, 2.0, 1.0, 2.0, 3.0, 4.0];
    same_bits(&db.as_host_vec()?, &want, || "db, packed".to_owned())?;

    let got = gpu.prepare_backward(
        direction,
        &[2, 3],
        1,
        &DeviceBackwardOptions::<i32>::new(),
        None,
    );
    let element = i32::NAME;
    expect(got, &Error::UnsupportedElement { operation, element })?;
    // Gradients of rows are not split.
    let extents = extents::<f32>(operation, &[6, 1], 0)?;
    let got = gpu.prepare_backward(direction, &[6, 1], 0, &plain(), Some(split(extents)));
    expect(got, &Error::NoPlan { operation, extents })?;
    Ok(())
}

/// `len` elements of a buffer from number `first` on.
///
/// It is for calls that fail before they write, or write elements that nothing else is given.
fn view_mut(buffer: &DeviceBuffer<f32>, first: usize, len: usize) -> DeviceViewMut<'_, f32> {
    assert!(first + len <= buffer.len());
    let address = buffer.as_device_ptr().as_raw() + 4 * first as u64;
    // SAFETY: the elements are the buffer's, which is borrowed; and who calls this says the rest.
    unsafe { DeviceViewMut::from_raw_parts(address, len) }
}

/// An output that overlaps with another array, if only by an element.
pub fn overlap(gpu: &Gpu) -> Checked {
    let _little = little_memory();
    let (operation, stream) = (Operation::AFFINE_SCAN, new_stream()?);
    let memory = DeviceBuffer::from_slice(&[1.0_f32; 36])?;
    let view = |first: usize, len: usize| {
        let view = DeviceView::from(&memory).slice(first..first + len);
        view.expect("it has these elements")
    };
    let out = |first, len| view_mut(&memory, first, len);
    let plain = DeviceBackwardOptions::<f32>::new;
    // a, h and dh; then da and db come, and d_initial.
    let inputs = [view(0, 6), view(6, 6), view(12, 6)];
    let mut prepared = gpu.prepare_backward(Direction::Forward, &[2, 3], 1, &plain(), None)?;
    let wrong = [
        (5, 24, "da", "a"),
        (18, 6, "db", "h"),
        (13, 24, "da", "dh"),
        (18, 23, "db", "da"),
    ];
    for (da, db, output, argument) in wrong {
        let expected = Error::Overlap {
            operation,
            output,
            argument,
        };
        let out = || [out(da, 6), out(db, 6)];
        let got = gpu.affine_scan_backward_device(
            Direction::Forward,
            inputs,
            &[2, 3],
            1,
            plain(),
            out(),
            &stream,
        );
        expect(got, &expected)?;
        expect(prepared.run(inputs, plain(), out(), &stream), &expected)?;
    }
    let wrong = [
        (plain().d_initial(out(29, 2)), "d_initial", "db"),
        (plain().d_initial(out(17, 2)), "d_initial", "dh"),
        (plain().d_final(view(23, 2)), "da", "d_final"),
        (plain().initial(view(29, 2)), "db", "initial"),
    ];
    for (options, output, argument) in wrong {
        let got = gpu.affine_scan_backward_device(
            Direction::Forward,
            inputs,
            &[2, 3],
            1,
            options,
            [out(18, 6), out(24, 6)],
            &stream,
        );
        let expected = Error::Overlap {
            operation,
            output,
            argument,
        };
        expect(got, &expected)?;
    }
    same_bits(&memory.as_host_vec()?, &[1.0; 36], || {
        "memory after errors".to_owned()
    })?;

    // Neighbours do not overlap.
    let options = plain()
        .initial(view(32, 2))
        .d_final(view(34, 2))
        .d_initial(out(30, 2));
    gpu.affine_scan_backward_device(
        Direction::Forward,
        inputs,
        &[2, 3],
        1,
        options,
        [out(18, 6), out(24, 6)],
        &stream,
    )?;
    let mut expected = [1.0; 36];
    for gradient in [18, 24] {
        expected[gradient..gradient + 6].copy_from_slice(&[4.0, 3.0, 2.0, 4.0, 3.0, 2.0]);
    }
    expected[30..32].fill(4.0);
    same_bits(&memory.as_host_vec()?, &expected, || {
        "a gradient beside its inputs".to_owned()
    })
}

/// A run that is captured in a graph runs anew with each launch of it.
pub fn graph(gpu: &Gpu) -> Checked {
    // What others do with the device meanwhile can make a capture invalid.
    let _all = all_memory();
    for direction in DIRECTIONS {
        for shape in [[1, 20_000, 1], [1, 3000, 40]] {
            let stream = new_stream()?;
            let host = |round| Host::new(direction, shape, Which::ALL, round);
            let mut device = Device::new(&host(0))?;
            let prepared = device.prepare(gpu, &host(0))?;
            let graph = Graph::captured(&stream, || {
                let (inputs, options, out) = device.arguments();
                // SAFETY: `device` and `prepared` live as long as the graph, which is launched here alone, and waited for before
                // anything else is done with the buffers.
                unsafe { prepared.run_async(inputs, options, out, &stream) }
            })?;
            for round in 0..3 {
                let host = host(round);
                device.take(&host)?;
                // SAFETY: as above.
                unsafe { graph.launch(&stream)? };
                stream.synchronize()?;
                device.expect(&host.gradient()?, || {
                    format!("round {round} of a graph of the gradient, {direction:?}, {shape:?}")
                })?;
            }
        }
    }
    Ok(())
}
