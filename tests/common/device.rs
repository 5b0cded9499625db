//! Scans with options in device memory, called, prepared, and captured in a graph.

use super::checks::same_bits;
use super::data::uniform;
use super::gpu::{CANARY, all_memory, can_split, little_memory, new_stream};
use super::{Checked, OPERATIONS, options};
use ptxscan::gpu::cust::context::CurrentContext;
use ptxscan::gpu::cust::memory::{CopyDestination, DeviceBuffer};
use ptxscan::gpu::{DeviceOptions, DeviceView, DeviceViewMut, Gpu, Graph, Prepared};
use ptxscan::half::bf16;
use ptxscan::plan::{Strategy, split, whole};
use ptxscan::{Element, Error, Inclusion, Layout, Operation, Options, extents};
use rand::SeedableRng;
use rand::rngs::StdRng;
use std::fmt::Debug;

/// The call fails, and says so.
pub fn expect<T: Debug>(got: Result<T, Error>, expected: &Error) -> Checked {
    match got {
        Err(error) if error == *expected => Ok(()),
        other => Err(format!("{other:?}, expected {expected:?}").into()),
    }
}

/// Which options there are.
#[derive(Clone, Copy, Debug)]
struct Which {
    inclusion: Inclusion,
    initial: bool,
    final_state: bool,
    reset: bool,
    packed: bool,
}

impl Which {
    fn all() -> impl Iterator<Item = Self> {
        (0..32).map(|bits: u32| {
            let has = |bit: u32| bits >> bit & 1 == 1;
            Self {
                inclusion: [Inclusion::Inclusive, Inclusion::Exclusive][usize::from(has(0))],
                initial: has(1),
                final_state: has(2),
                reset: has(3),
                packed: has(4),
            }
        })
    }
}

/// Where packed sequences begin and end, an empty one among them, and how many sequences there are.
pub fn sequences([outer, len, _]: [usize; 3], packed: bool) -> (Vec<usize>, usize) {
    let boundaries = vec![0, len / 3, len / 3, len];
    let count = if packed { boundaries.len() - 1 } else { outer };
    (boundaries, count)
}

/// Some resets, others for each `round`.
pub fn resets([outer, len, _]: [usize; 3], round: usize) -> Vec<bool> {
    (0..outer * len)
        .map(|step| step % 997 == 13 + round)
        .collect()
}

/// A scan's arrays on the host.
struct Host {
    operation: Operation,
    shape: [usize; 3],
    which: Which,
    inputs: Vec<Vec<f32>>,
    initial: Vec<f32>,
    reset: Vec<bool>,
    boundaries: Vec<usize>,
}

impl Host {
    /// Of random numbers, others for each `round`.
    fn new(operation: Operation, shape: [usize; 3], which: Which, round: usize) -> Self {
        let [outer, len, inner] = shape;
        let (boundaries, sequences) = sequences(shape, which.packed);
        let count = operation.operator.inputs();
        let input = |k: usize| {
            let element = |i| match count - k {
                1 => uniform(10 * round + k, i) - 0.5,
                _ => 1.0 - uniform(10 * round + k, i) / 64.0,
            };
            (0..outer * len * inner).map(element).collect()
        };
        Self {
            operation,
            shape,
            which,
            inputs: (0..count).map(input).collect(),
            initial: (0..sequences * inner)
                .map(|i| uniform(10 * round + count, i))
                .collect(),
            reset: resets(shape, round),
            boundaries,
        }
    }

    /// The result and the final states of the scan of the slices; what is not written is [`CANARY`].
    fn scan(&self, gpu: &Gpu) -> Checked<[Vec<f32>; 2]> {
        let mut out = vec![CANARY; self.inputs[0].len()];
        let mut last = vec![CANARY; self.initial.len()];
        let mut options = Options::new().inclusion(self.which.inclusion);
        if self.which.initial {
            options = options.initial(&self.initial);
        }
        if self.which.final_state {
            options = options.final_state(&mut last);
        }
        if self.which.reset {
            options = options.reset(&self.reset);
        }
        if self.which.packed {
            options = options.boundaries(&self.boundaries);
        }
        let inputs: Vec<_> = self.inputs.iter().map(Vec::as_slice).collect();
        gpu.scan_with_into(self.operation, &inputs, &self.shape, 1, options, &mut out)?;
        Ok([out, last])
    }
}

/// The same arrays in device memory.
struct Device {
    which: Which,
    inputs: Vec<DeviceBuffer<f32>>,
    initial: DeviceBuffer<f32>,
    last: DeviceBuffer<f32>,
    reset: DeviceBuffer<u8>,
    boundaries: Vec<usize>,
    out: DeviceBuffer<f32>,
}

impl Device {
    fn new(host: &Host) -> Checked<Self> {
        let canaries = |like: &[f32]| DeviceBuffer::from_slice(&vec![CANARY; like.len()]);
        Ok(Self {
            which: host.which,
            inputs: host
                .inputs
                .iter()
                .map(|input| DeviceBuffer::from_slice(input))
                .collect::<Result<_, _>>()?,
            initial: DeviceBuffer::from_slice(&host.initial)?,
            last: canaries(&host.initial)?,
            // Whatever is not 0.
            reset: DeviceBuffer::from_slice(
                &host
                    .reset
                    .iter()
                    .map(|&reset| 0x80 * u8::from(reset))
                    .collect::<Vec<_>>(),
            )?,
            boundaries: host.boundaries.clone(),
            out: canaries(&host.inputs[0])?,
        })
    }

    /// Takes the values of `host`, and clears the outputs.
    fn take(&mut self, host: &Host) -> Checked {
        let Self {
            inputs,
            initial,
            last,
            reset,
            out,
            ..
        } = Self::new(host)?;
        for (to, from) in self.inputs.iter_mut().zip(&inputs) {
            to.copy_from(from)?;
        }
        self.initial.copy_from(&initial)?;
        self.reset.copy_from(&reset)?;
        self.last.copy_from(&last)?;
        self.out.copy_from(&out)?;
        // Streams of their own do not wait for these copies.
        Ok(CurrentContext::synchronize()?)
    }

    /// Clears the outputs.
    fn clear(&mut self, host: &Host) -> Checked {
        let new = Self::new(host)?;
        self.last.copy_from(&new.last)?;
        self.out.copy_from(&new.out)?;
        // Streams of their own do not wait for these copies.
        Ok(CurrentContext::synchronize()?)
    }

    /// What a call gets.
    fn arguments(
        &mut self,
    ) -> (
        Vec<DeviceView<'_, f32>>,
        DeviceOptions<'_, f32>,
        DeviceViewMut<'_, f32>,
    ) {
        let mut options = DeviceOptions::new().inclusion(self.which.inclusion);
        if self.which.initial {
            options = options.initial(&self.initial);
        }
        if self.which.final_state {
            options = options.final_state(&mut self.last);
        }
        if self.which.reset {
            options = options.reset(&self.reset);
        }
        if self.which.packed {
            options = options.boundaries(&self.boundaries);
        }
        let inputs = self.inputs.iter().map(DeviceView::from).collect();
        (inputs, options, (&mut self.out).into())
    }

    fn prepare<'gpu>(
        &mut self,
        gpu: &'gpu Gpu,
        host: &Host,
        strategy: Option<Strategy>,
    ) -> Result<Prepared<'gpu, f32>, Error> {
        let (_, options, _) = self.arguments();
        gpu.prepare(host.operation, &host.shape, 1, &options, strategy)
    }

    fn expect(&self, [out, last]: &[Vec<f32>; 2], context: impl Fn() -> String) -> Checked {
        same_bits(&self.out.as_host_vec()?, out, &context)?;
        same_bits(&self.last.as_host_vec()?, last, || {
            format!("final states of {}", context())
        })
    }
}

/// Every combination of options, of a call and of two runs of a prepared operation, gives what it gives of host slices.
pub fn options(gpu: &Gpu) -> Checked {
    let _little = little_memory();
    for operation in OPERATIONS {
        // Whole and split rows, and whole and split columns.
        for [outer, len, inner] in [[5, 1000, 1], [1, 300_000, 1], [2, 500, 40], [1, 20_000, 3]] {
            for which in Which::all() {
                let outer = if which.packed { 1 } else { outer };
                let shape = [outer, len, inner];
                let stream = new_stream()?;
                let host = Host::new(operation, shape, which, 0);
                let context = |what: &str| format!("{what} {operation}, {shape:?}, {which:?}");

                let mut device = Device::new(&host)?;
                CurrentContext::synchronize()?;
                let (inputs, options, out) = device.arguments();
                gpu.scan_device(operation, &inputs, &shape, 1, options, out, &stream)?;
                device.expect(&host.scan(gpu)?, || context("a call of"))?;

                let mut prepared = device.prepare(gpu, &host, None)?;
                for round in [1, 2] {
                    let host = Host::new(operation, shape, which, round);
                    device.take(&host)?;
                    let (inputs, options, out) = device.arguments();
                    prepared.run(&inputs, options, out, &stream)?;
                    device.expect(&host.scan(gpu)?, || context("a run of"))?;
                }
            }
        }
    }
    Ok(())
}

/// Inputs of any layouts, called and prepared, give the bits that row-major ones give; with and without other options.
pub fn strided(gpu: &Gpu) -> Checked {
    let _little = little_memory();
    let plain = Which {
        inclusion: Inclusion::Inclusive,
        initial: false,
        final_state: true,
        reset: false,
        packed: false,
    };
    let full = Which {
        inclusion: Inclusion::Exclusive,
        initial: true,
        reset: true,
        packed: true,
        ..plain
    };
    for operation in OPERATIONS {
        for shape in [[5, 1000, 1], [1, 70_000, 1], [2, 500, 40], [1, 5000, 67]] {
            for (seed, which) in (0..6).flat_map(|seed| [(seed, plain), (seed, full)]) {
                let which = Which {
                    packed: which.packed && shape[0] == 1,
                    ..which
                };
                let stream = new_stream()?;
                let mut host = Host::new(operation, shape, which, 0);
                let extents = extents::<f32>(operation, &shape, 1)?;
                let rng = &mut StdRng::seed_from_u64(seed);
                let (arrays, layouts) = options::strided(&mut host.inputs, extents, rng);
                let context =
                    |what: &str| format!("{what} {operation}, {shape:?}, {which:?}, {layouts:?}");
                let want = host.scan(gpu)?;

                let mut device = Device::new(&host)?;
                device.inputs = arrays
                    .iter()
                    .map(|array| DeviceBuffer::from_slice(array))
                    .collect::<Result<_, _>>()?;
                CurrentContext::synchronize()?;
                let (inputs, options, out) = device.arguments();
                let options = options.layouts(&layouts);
                gpu.scan_device(operation, &inputs, &shape, 1, options, out, &stream)?;
                device.expect(&want, || context("a call of"))?;

                let (_, options, _) = device.arguments();
                let options = options.layouts(&layouts);
                let mut prepared = gpu.prepare(operation, &shape, 1, &options, None)?;
                for _ in 0..2 {
                    device.clear(&host)?;
                    let (inputs, options, out) = device.arguments();
                    prepared.run(&inputs, options.layouts(&layouts), out, &stream)?;
                    device.expect(&want, || context("a run of"))?;
                }
            }
        }
    }
    Ok(())
}

/// Layouts that do not fit, or are not those that a run was prepared with; and a part of a larger array is as good as an array.
pub fn layouts_that_do_not_fit(gpu: &Gpu) -> Checked {
    let _little = little_memory();
    let (operation, stream) = (Operation::CUMSUM, new_stream()?);
    let memory: Vec<f32> = (0..16).map(|i| i as f32).collect();
    let memory = DeviceBuffer::from_slice(&memory)?;
    let mut out = DeviceBuffer::from_slice(&[CANARY; 6])?;
    CurrentContext::synchronize()?;
    let plain = DeviceOptions::<f32>::new;
    let layout = Layout {
        offset: 9,
        outer: 3,
        len: 1,
        inner: 0,
    };
    let mut scan = |layouts: &[Layout]| {
        let (inputs, out, options) = ([(&memory).into()], (&mut out).into(), plain());
        let options = options.layouts(layouts);
        gpu.scan_device(operation, &inputs, &[2, 3], 1, options, out, &stream)
    };
    let (expected, got) = (1, 2);
    let error = Error::LayoutCount {
        operation,
        expected,
        got,
    };
    expect(scan(&[layout; 2]), &error)?;
    let outside = |got| Error::LayoutOutOfBounds {
        operation,
        argument: "x",
        expected: 16,
        got,
    };
    let wrong = [
        (
            Layout {
                offset: 11,
                ..layout
            },
            (11, 16),
        ),
        (
            Layout {
                outer: -10,
                ..layout
            },
            (-1, 11),
        ),
    ];
    for (layout, got) in wrong {
        expect(scan(&[layout]), &outside(got))?;
    }
    scan(&[layout])?;
    let sums = [9.0, 19.0, 30.0, 12.0, 25.0, 39.0];
    same_bits(&out.as_host_vec()?, &sums, || "a part".to_owned())?;
    // It needs no kernel that knows of layouts, and can be split.
    let layouts = [layout];
    let options = plain().layouts(&layouts);
    let prepared = gpu.prepare(operation, &[2, 3], 1, &options, Some(Strategy::SplitRows));
    if can_split(gpu) {
        prepared?;
    }

    let layouts = [Layout { len: 2, ..layout }];
    let options = || plain().layouts(&layouts);
    let negative = [Layout {
        offset: 1,
        len: -1,
        ..layout
    }];
    let error = Error::LayoutOutOfBounds {
        operation,
        argument: "x",
        expected: isize::MAX as usize / size_of::<f32>(),
        got: (-1, 4),
    };
    let got = gpu.prepare(operation, &[2, 3], 1, &plain().layouts(&negative), None);
    expect(got, &error)?;
    let mut prepared = gpu.prepare(operation, &[2, 3], 1, &options(), None)?;
    let error = Error::NotAsPrepared {
        operation,
        option: "layouts",
    };
    let others = [layout];
    let got = prepared.run(
        &[(&memory).into()],
        plain().layouts(&others),
        (&mut out).into(),
        &stream,
    );
    expect(got, &error)?;
    let short = DeviceView::from(&memory).slice(0..15).ok_or("a part")?;
    let got = prepared.run(&[short], options(), (&mut out).into(), &stream);
    let error = Error::LayoutOutOfBounds {
        operation,
        argument: "x",
        expected: 15,
        got: (9, 16),
    };
    expect(got, &error)?;

    // An output between the elements of the input.
    let address = memory.as_device_ptr().as_raw();
    // SAFETY: the elements lie in `memory`, and nothing is written to them.
    let between = unsafe { DeviceViewMut::from_raw_parts(address + 4 * 5, 6) };
    let layouts = [Layout {
        offset: 0,
        outer: 12,
        ..layout
    }];
    let (inputs, options) = ([(&memory).into()], plain().layouts(&layouts));
    let got = gpu.scan_device(operation, &inputs, &[2, 3], 1, options, between, &stream);
    let error = Error::Overlap {
        operation,
        output: "out",
        argument: "x",
    };
    expect(got, &error)
}

/// States of halves are `f32`, in buffers of bytes.
pub fn states_of_halves(gpu: &Gpu) -> Checked {
    let _little = little_memory();
    let stream = new_stream()?;
    let x: Vec<u8> = [1.0, 2.0, 3.0, 4.0]
        .into_iter()
        .flat_map(|x| bf16::from_f32(x).to_le_bytes())
        .collect();
    let x = DeviceBuffer::from_slice(&x)?;
    // 1 + 2⁻¹⁰ is no bf16.
    let initial = DeviceBuffer::from_slice(&[1.0 + 1.0 / 1024.0, 100.0_f32])?;
    let mut last = DeviceBuffer::from_slice(&[CANARY; 2])?;
    let mut out = DeviceBuffer::from_slice(&[0_u8; 8])?;
    CurrentContext::synchronize()?;
    let options = DeviceOptions::<bf16>::new()
        .initial(&initial)
        .final_state(&mut last);
    gpu.scan_device(
        Operation::CUMSUM,
        &[DeviceView::of_bytes(&x)],
        &[2, 2],
        1,
        options,
        DeviceViewMut::of_bytes(&mut out),
        &stream,
    )?;
    let got: Vec<f32> = out
        .as_host_vec()?
        .chunks(2)
        .map(|bytes| bf16::from_le_bytes([bytes[0], bytes[1]]).to_f32())
        .collect();
    same_bits(&got, &[2.0, 4.0, 103.0, 107.0], || "the sums".to_owned())?;
    let states = [4.0 + 1.0 / 1024.0, 107.0];
    same_bits(&last.as_host_vec()?, &states, || "the states".to_owned())
}

/// Options that do not fit, and those that are not what a run was prepared with; the output stays as it is.
pub fn options_that_do_not_fit(gpu: &Gpu) -> Checked {
    let _little = little_memory();
    let operation = Operation::CUMSUM;
    let stream = new_stream()?;
    let buffer = |len| DeviceBuffer::from_slice(&vec![1.0_f32; len]);
    let (x, states, mask) = (
        buffer(6)?,
        buffer(3)?,
        DeviceBuffer::from_slice(&[0_u8; 5])?,
    );
    let (mut out, mut last) = (buffer(6)?, buffer(1)?);
    let length = |argument, expected, got| Error::LengthMismatch {
        operation,
        argument,
        shape: vec![2, 3],
        expected,
        got,
    };
    let plain = DeviceOptions::<f32>::new;
    let wrong = [
        (plain().initial(&states), length("initial", 2, 3)),
        (plain().final_state(&mut last), length("final_state", 2, 1)),
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
        let prepared = gpu.prepare(operation, &[2, 3], 1, &options, None);
        expect(prepared, &expected)?;
        let (inputs, out) = ([(&x).into()], (&mut out).into());
        let got = gpu.scan_device(operation, &inputs, &[2, 3], 1, options, out, &stream);
        expect(got, &expected)?;
    }

    let (initial, reset) = (buffer(2)?, DeviceBuffer::from_slice(&[0_u8; 6])?);
    let mut last = buffer(2)?;
    let mut prepared =
        gpu.prepare::<f32>(operation, &[2, 3], 1, &plain().initial(&initial), None)?;
    let other = [
        (plain(), "initial"),
        (plain().initial(&initial).exclusive(), "inclusion"),
        (
            plain().initial(&initial).final_state(&mut last),
            "final_state",
        ),
        (plain().initial(&initial).reset(&reset), "reset"),
    ];
    for (options, option) in other {
        let (inputs, out) = ([(&x).into()], (&mut out).into());
        let got = prepared.run(&inputs, options, out, &stream);
        expect(got, &Error::NotAsPrepared { operation, option })?;
    }
    let packed = plain().boundaries(&[0, 2, 6]);
    let mut prepared = gpu.prepare::<f32>(operation, &[6], 0, &packed, None)?;
    let (inputs, option) = ([(&x).into()], "boundaries");
    let others = plain().boundaries(&[0, 3, 6]);
    let got = prepared.run(&inputs, others, (&mut out).into(), &stream);
    expect(got, &Error::NotAsPrepared { operation, option })?;
    same_bits(&out.as_host_vec()?, &[1.0; 6], || {
        "the output after errors".to_owned()
    })?;
    // They are known.
    prepared.run(&inputs, plain(), (&mut out).into(), &stream)?;
    let sums = [1.0, 2.0, 1.0, 2.0, 3.0, 4.0];
    same_bits(&out.as_host_vec()?, &sums, || {
        "packed sums without boundaries".to_owned()
    })
}

/// An output that overlaps with another array, if only by an element.
pub fn overlap(gpu: &Gpu) -> Checked {
    let _little = little_memory();
    let (operation, stream) = (Operation::CUMSUM, new_stream()?);
    let memory = DeviceBuffer::from_slice(&[1.0_f32; 16])?;
    let address = |element: usize| memory.as_device_ptr().as_raw() + 4 * element as u64;
    // SAFETY: the elements lie in `memory`, and nothing but the scans uses it, which end before it is read.
    let view = |first, len| unsafe { DeviceView::<f32>::from_raw_parts(address(first), len) };
    // SAFETY: as above.
    let view_mut = |first, len| unsafe { DeviceViewMut::from_raw_parts(address(first), len) };
    let (plain, x) = (DeviceOptions::new, [view(0, 6)]);
    let mut prepared = gpu.prepare::<f32>(operation, &[2, 3], 1, &plain(), None)?;
    let expected = Error::Overlap {
        operation,
        output: "out",
        argument: "x",
    };
    for first in [0, 5] {
        let out = || view_mut(first, 6);
        let got = gpu.scan_device(operation, &x, &[2, 3], 1, plain(), out(), &stream);
        expect(got, &expected)?;
        expect(prepared.run(&x, plain(), out(), &stream), &expected)?;
    }
    same_bits(&memory.as_host_vec()?, &[1.0; 16], || {
        "memory after errors".to_owned()
    })?;

    // Neighbours do not overlap.
    let options = plain().initial(view(12, 2)).final_state(view_mut(14, 2));
    let out = view_mut(6, 6);
    gpu.scan_device(operation, &x, &[2, 3], 1, options, out, &stream)?;
    let mut expected = [1.0; 16];
    expected[6..12].copy_from_slice(&[2.0, 3.0, 4.0, 2.0, 3.0, 4.0]);
    expected[14..].fill(4.0);
    same_bits(&memory.as_host_vec()?, &expected, || {
        "a scan beside its inputs".to_owned()
    })
}

/// What a GPU does not do is an error.
pub fn unsupported(gpu: &Gpu) -> Checked {
    let operation = Operation::AFFINE_SCAN;
    let got = gpu.prepare::<i32>(operation, &[2, 3], 1, &DeviceOptions::new(), None);
    let element = i32::NAME;
    expect(got, &Error::UnsupportedElement { operation, element })?;
    // Columns are not scanned as rows, nor the other way round; and masked sequences are not split.
    let operation = Operation::CUMSUM;
    let mask = DeviceBuffer::from_slice(&[0_u8; 6])?;
    let plain = DeviceOptions::<f32>::new;
    let wrong = [
        ([6, 1], plain(), Strategy::Columns),
        ([6, 1], plain(), Strategy::SplitColumns),
        ([6, 2], plain(), Strategy::Rows),
        ([6, 2], plain(), Strategy::SplitRows),
        ([6, 1], plain().reset(&mask), Strategy::SplitRows),
        (
            [6, 2],
            plain().boundaries(&[0, 4, 6]),
            Strategy::SplitColumns,
        ),
    ];
    for (shape, options, strategy) in wrong {
        let got = gpu.prepare(operation, &shape, 0, &options, Some(strategy));
        let extents = extents::<f32>(operation, &shape, 0)?;
        expect(got, &Error::NoPlan { operation, extents })?;
    }
    Ok(())
}

/// A run that is captured in a graph runs anew with each launch of it, whole and split, and through infinities.
pub fn graph(gpu: &Gpu) -> Checked {
    // What others do with the device meanwhile can make a capture invalid.
    let _all = all_memory();
    let which = Which {
        inclusion: Inclusion::Inclusive,
        initial: true,
        final_state: true,
        reset: false,
        packed: false,
    };
    for operation in OPERATIONS {
        for shape in [[3, 100_000, 1], [2, 3000, 40]] {
            let extents = extents::<f32>(operation, &shape, 1)?;
            let split = can_split(gpu).then(|| split(extents));
            for strategy in [Some(whole(extents)), split].into_iter().flatten() {
                let stream = new_stream()?;
                let mut device = Device::new(&Host::new(operation, shape, which, 0))?;
                let host = Host::new(operation, shape, which, 0);
                let prepared = device.prepare(gpu, &host, Some(strategy))?;
                let graph = Graph::captured(&stream, || {
                    let (inputs, options, out) = device.arguments();
                    // SAFETY: `device` and `prepared` live as long as the graph, which is launched here alone, and waited for before
                    // anything else is done with the buffers.
                    unsafe { prepared.run_async(&inputs, options, out, &stream) }
                })?;
                for round in 0..4 {
                    let mut host = Host::new(operation, shape, which, round);
                    if round == 2 {
                        let b = host.inputs.last_mut().ok_or("an input")?;
                        let middle = b.len() / 2;
                        b[middle] = f32::INFINITY;
                    }
                    device.take(&host)?;
                    // SAFETY: as above.
                    unsafe { graph.launch(&stream)? };
                    stream.synchronize()?;
                    device.expect(&host.scan(gpu)?, || {
                        format!("round {round} of a graph of {operation}, {shape:?}, {strategy:?}")
                    })?;
                }
            }
        }
    }
    Ok(())
}
