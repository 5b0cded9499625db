//! What scans and gradients in device memory can be asked for.

use super::memory::Memory;
use super::{Arrays, DeviceView, DeviceViewMut, StreamView};
use crate::element::Element;
use crate::error::{Error, Result};
use crate::layout::{self, Layout};
use crate::operation::Operation;
use crate::options::{Check, Inclusion};
use crate::plan::{self, Packed, PlanBuilder};
use crate::shape::{self, Extents, Names};

/// The options of a scan in device memory: those of [`Options`](crate::Options), which says what each of them means, with views in
/// place of slices. By default it is inclusive, and each sequence starts afresh.
///
/// Boundaries are the exception. They stay a slice on the host: how many sequences there are, and how long the longest one is, decides
/// what is launched. Kernels read a copy, which is made on the stream; or once and for all where an operation is
/// [prepared](super::Gpu::prepare).
///
/// # Examples
/// ```no_run
/// use ptxscan::Operation;
/// use ptxscan::gpu::cust::{memory::DeviceBuffer, stream::{Stream, StreamFlags}};
/// use ptxscan::gpu::{DeviceOptions, Gpu};
///
/// let gpu = Gpu::new(0)?;
/// gpu.make_current()?;
/// let stream = Stream::new(StreamFlags::DEFAULT, None)?;
/// let x = DeviceBuffer::from_slice(&[1.0_f32, 2.0, 3.0])?;
/// let initial = DeviceBuffer::from_slice(&[10.0_f32])?;
/// let (mut out, mut last) = (DeviceBuffer::from_slice(&[0.0_f32; 3])?, DeviceBuffer::from_slice(&[0.0_f32])?);
/// let options = DeviceOptions::new().exclusive().initial(&initial).final_state(&mut last);
/// gpu.scan_device(Operation::CUMSUM, &[(&x).into()], &[3], 0, options, (&mut out).into(), &stream)?;
/// // `out` is [10, 11, 13], and `last` [16].
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct DeviceOptions<'a, T: Element>(pub(super) Request<'a, T>);

impl<T: Element> Default for DeviceOptions<'_, T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<'a, T: Element> DeviceOptions<'a, T> {
    /// A plain inclusive scan.
    #[must_use]
    pub fn new() -> Self {
        Self(Request::new(Task::Scan(Inclusion::Inclusive)))
    }

    /// Whether a step's result contains the step.
    #[must_use]
    pub fn inclusion(mut self, inclusion: Inclusion) -> Self {
        self.0.task = Task::Scan(inclusion);
        self
    }

    /// The result of a step is the state before it: see [`Options::exclusive`](crate::Options::exclusive).
    #[must_use]
    pub fn exclusive(self) -> Self {
        self.inclusion(Inclusion::Exclusive)
    }

    /// The state before the first step of each sequence: see [`Options::initial`](crate::Options::initial).
    #[must_use]
    pub fn initial(mut self, states: impl Into<DeviceView<'a, T::State>>) -> Self {
        self.0.initial = Some(states.into());
        self
    }

    /// Where to write the state after the last step of each sequence: see
    /// [`Options::final_state`](crate::Options::final_state).
    #[must_use]
    pub fn final_state(mut self, states: impl Into<DeviceViewMut<'a, T::State>>) -> Self {
        self.0.last = Some(states.into());
        self
    }

    /// The steps at which the scan starts afresh: those whose byte is not 0. See [`Options::reset`](crate::Options::reset).
    #[must_use]
    pub fn reset(mut self, mask: impl Into<DeviceView<'a, u8>>) -> Self {
        self.0.reset = Some(mask.into());
        self
    }

    /// Packed sequences: see [`Options::boundaries`](crate::Options::boundaries). They are a slice on the host.
    #[must_use]
    pub fn boundaries(mut self, boundaries: &'a [usize]) -> Self {
        self.0.boundaries = Some(boundaries);
        self
    }

    /// Where each input has its elements: see [`Options::layouts`](crate::Options::layouts). They are a slice on the host.
    #[must_use]
    pub fn layouts(mut self, layouts: &'a [Layout]) -> Self {
        self.0.layouts = Some(layouts);
        self
    }
}

/// The options of the gradient of an affine scan in device memory: those of [`BackwardOptions`](crate::BackwardOptions), which says what
/// each of them means, with views in place of slices. By default they are those of a plain scan.
///
/// Boundaries stay a slice on the host, as those of [`DeviceOptions`] do.
///
/// # Examples
/// ```no_run
/// use ptxscan::Direction;
/// use ptxscan::gpu::cust::{memory::DeviceBuffer, stream::{Stream, StreamFlags}};
/// use ptxscan::gpu::{DeviceBackwardOptions, Gpu};
///
/// let gpu = Gpu::new(0)?;
/// gpu.make_current()?;
/// let stream = Stream::new(StreamFlags::DEFAULT, None)?;
/// let a = DeviceBuffer::from_slice(&[2.0_f32, 2.0, 3.0])?;
/// let h = DeviceBuffer::from_slice(&[21.0_f32, 43.0, 130.0])?;
/// let dh = DeviceBuffer::from_slice(&[0.0_f32, 0.0, 1.0])?;
/// let initial = DeviceBuffer::from_slice(&[10.0_f32])?;
/// let mut d_initial = DeviceBuffer::from_slice(&[0.0_f32])?;
/// let (mut da, mut db) = (DeviceBuffer::from_slice(&[0.0_f32; 3])?, DeviceBuffer::from_slice(&[0.0_f32; 3])?);
/// let options = DeviceBackwardOptions::new().initial(&initial).d_initial(&mut d_initial);
/// let (inputs, outputs) = ([(&a).into(), (&h).into(), (&dh).into()], [(&mut da).into(), (&mut db).into()]);
/// gpu.affine_scan_backward_device(Direction::Forward, inputs, &[3], 0, options, outputs, &stream)?;
/// // `da` is [60, 63, 43], `db` [6, 3, 1], and `d_initial` [12].
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct DeviceBackwardOptions<'a, T: Element>(pub(super) Request<'a, T>);

impl<T: Element> Default for DeviceBackwardOptions<'_, T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<'a, T: Element> DeviceBackwardOptions<'a, T> {
    /// Those of a plain scan.
    #[must_use]
    pub fn new() -> Self {
        Self(Request::new(Task::Gradient))
    }

    /// The scan's [initial states](crate::Options::initial).
    #[must_use]
    pub fn initial(mut self, states: impl Into<DeviceView<'a, T::State>>) -> Self {
        self.0.initial = Some(states.into());
        self
    }

    /// Where to write the gradient of the initial states: see
    /// [`BackwardOptions::d_initial`](crate::BackwardOptions::d_initial).
    #[must_use]
    pub fn d_initial(mut self, gradient: impl Into<DeviceViewMut<'a, T::State>>) -> Self {
        self.0.last = Some(gradient.into());
        self
    }

    /// The gradient of the final states: see [`BackwardOptions::d_final`](crate::BackwardOptions::d_final).
    #[must_use]
    pub fn d_final(mut self, gradient: impl Into<DeviceView<'a, T::State>>) -> Self {
        self.0.d_final = Some(gradient.into());
        self
    }

    /// The scan's resets: the steps whose byte is not 0. See [`Options::reset`](crate::Options::reset).
    #[must_use]
    pub fn reset(mut self, mask: impl Into<DeviceView<'a, u8>>) -> Self {
        self.0.reset = Some(mask.into());
        self
    }

    /// The scan's [boundaries](crate::Options::boundaries). They are a slice on the host.
    #[must_use]
    pub fn boundaries(mut self, boundaries: &'a [usize]) -> Self {
        self.0.boundaries = Some(boundaries);
        self
    }

    /// Where a, h and dh have their elements: as the [layouts](crate::Options::layouts) of a scan, on the host.
    #[must_use]
    pub fn layouts(mut self, layouts: &'a [Layout; 3]) -> Self {
        self.0.layouts = Some(layouts);
        self
    }
}

/// What is done with an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Task {
    /// It is carried out.
    Scan(Inclusion),
    /// Its gradient is.
    Gradient,
}

impl Task {
    pub(super) fn names(self, operation: Operation) -> Names {
        match self {
            Self::Scan(_) => Names::of_scan(operation.operator),
            Self::Gradient => Names::GRADIENT,
        }
    }

    /// The name of the states that are written.
    pub(super) fn last(self) -> &'static str {
        match self {
            Self::Scan(_) => "final_state",
            Self::Gradient => "d_initial",
        }
    }
}

/// The options of a scan or of a gradient, by what kernels do with them.
#[derive(Debug)]
pub(super) struct Request<'a, T: Element> {
    pub(super) task: Task,
    pub(super) initial: Option<DeviceView<'a, T::State>>,
    pub(super) d_final: Option<DeviceView<'a, T::State>>,
    /// What leaves each sequence: final states, or the gradient of initial ones.
    pub(super) last: Option<DeviceViewMut<'a, T::State>>,
    pub(super) reset: Option<DeviceView<'a, u8>>,
    pub(super) boundaries: Option<&'a [usize]>,
    pub(super) layouts: Option<&'a [Layout]>,
}

impl<T: Element> Request<'_, T> {
    fn new(task: Task) -> Self {
        Self {
            task,
            initial: None,
            d_final: None,
            last: None,
            reset: None,
            boundaries: None,
            layouts: None,
        }
    }

    /// What is planned for it.
    pub(super) fn planned(&self, operation: Operation, extents: Extents) -> PlanBuilder {
        use plan::Options;
        PlanBuilder::new(operation, T::KERNEL_NAME, extents)
            .gradient(self.task == Task::Gradient)
            .options(
                Options::INITIAL
                    .only_if(self.initial.is_some())
                    .and(Options::D_FINAL.only_if(self.d_final.is_some()))
                    .and(Options::FINAL.only_if(self.last.is_some()))
                    .and(Options::EXCLUSIVE.only_if(self.task == Task::Scan(Inclusion::Exclusive))),
            )
            .masked(self.reset.is_some())
            .packed(self.boundaries.map(Packed::between))
            .layouts(layout::narrowed(self.layouts, extents).as_deref())
    }

    /// Checks the tensors of a call by themselves, and gives their extents.
    pub(super) fn extents(
        &self,
        operation: Operation,
        inputs: &[DeviceView<'_, T>],
        outputs: &[DeviceViewMut<'_, T>],
        shape: &[usize],
        axis: isize,
    ) -> Result<Extents> {
        let inputs: Vec<usize> = inputs.iter().map(DeviceView::len).collect();
        let outputs: Vec<usize> = outputs.iter().map(DeviceViewMut::len).collect();
        let names = self.task.names(operation);
        let layouts = self.layouts;
        shape::validate::<T>(operation, names, &inputs, layouts, &outputs, shape, axis)
    }

    /// Checks the layouts of a call whose tensors are not there yet: against all that memory could hold.
    pub(super) fn validate_layouts(&self, operation: Operation, extents: Extents) -> Result<()> {
        let (names, most) = (
            self.task.names(operation),
            isize::MAX as usize / size_of::<T>(),
        );
        let most = vec![most; names.inputs.len()];
        shape::validate_layouts(operation, names, self.layouts, extents, &most)
    }

    /// The parts of the inputs that are read; of layouts that fit.
    pub(super) fn parts<'v>(
        &self,
        inputs: &[DeviceView<'v, T>],
        extents: Extents,
    ) -> Vec<DeviceView<'v, T>> {
        let part = |(k, view): (usize, &DeviceView<'v, T>)| {
            view.slice(layout::part(self.layouts, k, extents))
                .expect("layouts fit, and so do lengths")
        };
        inputs.iter().enumerate().map(part).collect()
    }

    /// Checks the arrays of the options, of which those of states have so many.
    pub(super) fn validate_lengths(&self, check: &Check<'_>, states: usize) -> Result<()> {
        let length = |view: &Option<DeviceView<'_, T::State>>| view.as_ref().map(DeviceView::len);
        let reset = self.reset.as_ref().map(DeviceView::len);
        check.common(states, reset, length(&self.initial))?;
        let last = self.last.as_ref().map(DeviceViewMut::len);
        check.length(self.task.last(), last, states)?;
        check.length("d_final", length(&self.d_final), states)
    }

    /// Checks that each output is memory of its own.
    pub(super) fn validate_places(
        &self,
        operation: Operation,
        inputs: &[DeviceView<'_, T>],
        outputs: &[DeviceViewMut<'_, T>],
    ) -> Result<()> {
        let names = self.task.names(operation);
        let tensors = names.inputs.iter().zip(inputs);
        let mut others: Vec<_> = tensors
            .map(|(&name, input)| (name, input.bytes()))
            .chain(self.initial.iter().map(|view| ("initial", view.bytes())))
            .chain(self.d_final.iter().map(|view| ("d_final", view.bytes())))
            .chain(self.reset.iter().map(|view| ("reset", view.bytes())))
            .collect();
        let last = self
            .last
            .iter()
            .map(|view| (self.task.last(), view.bytes()));
        let tensors = names.outputs.iter().zip(outputs);
        let written = tensors.map(|(&name, output)| (name, output.bytes()));
        for (output, bytes) in written.chain(last) {
            if let Some(&(argument, _)) = others.iter().find(|(_, other)| {
                // Arrays of no bytes are nowhere.
                bytes.start.max(other.start) < bytes.end.min(other.end)
            }) {
                return Err(Error::Overlap {
                    operation,
                    output,
                    argument,
                });
            }
            others.push((output, bytes));
        }
        Ok(())
    }

    /// A copy of the boundaries in device memory, if there are some.
    ///
    /// # Safety
    /// They stay as they are until the stream has been waited for, also after an error.
    pub(super) unsafe fn copy_boundaries<'s>(
        &self,
        operation: Operation,
        stream: StreamView<'s>,
    ) -> Result<Option<Memory<'s>>> {
        // SAFETY: says the caller.
        let copy =
            |values: &[usize]| unsafe { Memory::copy_of(operation, "boundaries", values, stream) };
        self.boundaries.map(copy).transpose()
    }

    /// The addresses of a call's arrays; that of the boundaries is another's to say.
    pub(super) fn arrays(
        &self,
        inputs: &[DeviceView<'_, T>],
        outputs: &[DeviceViewMut<'_, T>],
        boundaries: u64,
    ) -> Arrays {
        Arrays {
            inputs: inputs.iter().map(DeviceView::address).collect(),
            outputs: outputs.iter().map(DeviceViewMut::address).collect(),
            initial: self.initial.as_ref().map_or(0, DeviceView::address),
            d_final: self.d_final.as_ref().map_or(0, DeviceView::address),
            last: self.last.as_ref().map_or(0, DeviceViewMut::address),
            mask: self.reset.as_ref().map_or(0, DeviceView::address),
            boundaries,
        }
    }

    /// The first option that is not as it was prepared, but for the arrays. Boundaries may be left out.
    pub(super) fn difference(&self, other: &Kind) -> Option<&'static str> {
        let Kind {
            task,
            initial,
            d_final,
            last,
            reset,
            boundaries,
            layouts,
        } = other;
        [
            ("inclusion", self.task == *task),
            ("initial", self.initial.is_some() == *initial),
            ("d_final", self.d_final.is_some() == *d_final),
            (self.task.last(), self.last.is_some() == *last),
            ("reset", self.reset.is_some() == *reset),
            (
                "boundaries",
                self.boundaries.is_none() || self.boundaries == boundaries.as_deref(),
            ),
            ("layouts", self.layouts == layouts.as_deref()),
        ]
        .into_iter()
        .find_map(|(name, is_alike)| (!is_alike).then_some(name))
    }

    /// What is left of it without the arrays.
    pub(super) fn kind(&self) -> Kind {
        Kind {
            task: self.task,
            initial: self.initial.is_some(),
            d_final: self.d_final.is_some(),
            last: self.last.is_some(),
            reset: self.reset.is_some(),
            boundaries: self.boundaries.map(<[_]>::to_vec),
            layouts: self.layouts.map(<[_]>::to_vec),
        }
    }
}

/// A request without its arrays: which there are.
pub(super) struct Kind {
    task: Task,
    initial: bool,
    d_final: bool,
    last: bool,
    reset: bool,
    boundaries: Option<Vec<usize>>,
    layouts: Option<Vec<Layout>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUM: Operation = Operation::CUMSUM;
    const AFFINE: Operation = Operation::AFFINE_SCAN;

    /// `len` elements from byte `address` on, of no memory: they are never accessed.
    fn view<T>(address: u64, len: usize) -> DeviceView<'static, T> {
        // SAFETY: nothing is done with it but to compare its address and its length.
        unsafe { DeviceView::from_raw_parts(address, len) }
    }

    fn view_mut<T>(address: u64, len: usize) -> DeviceViewMut<'static, T> {
        // SAFETY: as for `view`.
        unsafe { DeviceViewMut::from_raw_parts(address, len) }
    }

    /// A part of an array, one with gaps, and one that is reversed.
    const LAYOUTS: [Layout; 3] = [
        layout::layout(2, 3, 1, 0),
        layout::layout(0, 4, 1, 0),
        layout::layout(5, -3, -1, 0),
    ];

    fn options() -> DeviceOptions<'static, f32> {
        DeviceOptions::new()
    }

    fn backward() -> DeviceBackwardOptions<'static, f32> {
        DeviceBackwardOptions::new()
    }

    /// Checks a call for two sequences of three steps, whose tensors begin at these addresses, of 24 bytes each.
    fn validate(
        operation: Operation,
        inputs: &[u64],
        outputs: &[u64],
        request: &Request<'_, f32>,
    ) -> Result<()> {
        let inputs: Vec<_> = inputs.iter().map(|&address| view(address, 6)).collect();
        let outputs = outputs.iter().map(|&address| view_mut(address, 6));
        let outputs: Vec<_> = outputs.collect();
        let (shape, axis) = (&[2, 3], 1);
        let check = Check {
            operation,
            shape,
            extents: request.extents(operation, &inputs, &outputs, shape, axis)?,
        };
        request.validate_lengths(&check, 2)?;
        request.validate_places(operation, &inputs, &outputs)
    }

    #[test]
    fn an_output_overlaps_with_nothing() {
        type Wrong<'a> = (
            Operation,
            &'a [u64],
            u64,
            DeviceOptions<'a, f32>,
            &'static str,
            &'static str,
        );
        let last = |address| options().final_state(view_mut(address, 2));
        let wrong: [Wrong; 12] = [
            (SUM, &[64], 64, options(), "out", "x"),
            (SUM, &[64], 84, options(), "out", "x"),
            (SUM, &[64], 44, options(), "out", "x"),
            (AFFINE, &[64, 88], 68, options(), "out", "a"),
            (AFFINE, &[64, 88], 108, options(), "out", "b"),
            (
                SUM,
                &[0],
                64,
                options().initial(view(84, 2)),
                "out",
                "initial",
            ),
            (SUM, &[0], 64, options().reset(view(59, 6)), "out", "reset"),
            (SUM, &[0], 64, last(20), "final_state", "x"),
            (SUM, &[0], 64, last(84), "final_state", "out"),
            (SUM, &[0], 64, last(60), "final_state", "out"),
            (
                SUM,
                &[0],
                64,
                last(200).initial(view(200, 2)),
                "final_state",
                "initial",
            ),
            (
                SUM,
                &[0],
                64,
                last(200).reset(view(207, 6)),
                "final_state",
                "reset",
            ),
        ];
        for (operation, inputs, out, options, output, argument) in wrong {
            let expected = Error::Overlap {
                operation,
                output,
                argument,
            };
            let got = validate(operation, inputs, &[out], &options.0);
            assert_eq!(got, Err(expected));
        }
        // Neighbours do not overlap, and inputs may.
        let neighbours = last(88).initial(view(56, 2)).reset(view(96, 6));
        let neighbours = validate(AFFINE, &[32, 32], &[64], &neighbours.0);
        assert_eq!(neighbours, Ok(()));
        // Nor do arrays without elements, wherever they are.
        let empty = DeviceOptions::<f32>::new()
            .initial(view(8, 0))
            .final_state(view_mut(8, 0));
        let none = empty
            .0
            .validate_places(SUM, &[view(8, 0)], &[view_mut(8, 0)]);
        assert_eq!(none, Ok(()));
    }

    #[test]
    fn an_output_of_a_gradient_overlaps_with_nothing() {
        let last = |address| backward().d_initial(view_mut(address, 2));
        let (inputs, apart) = ([0, 24, 48], [72, 96]);
        let wrong = [
            ([4, 96], backward(), "da", "a"),
            ([72, 44], backward(), "db", "h"),
            ([68, 96], backward(), "da", "dh"),
            ([72, 92], backward(), "db", "da"),
            (apart, backward().initial(view(116, 2)), "db", "initial"),
            (apart, backward().d_final(view(68, 2)), "da", "d_final"),
            (apart, backward().reset(view(119, 6)), "db", "reset"),
            (apart, last(20), "d_initial", "a"),
            (apart, last(92), "d_initial", "da"),
            (apart, last(116), "d_initial", "db"),
            (
                apart,
                last(200).d_final(view(204, 2)),
                "d_initial",
                "d_final",
            ),
        ];
        for (outputs, options, output, argument) in wrong {
            let expected = Error::Overlap {
                operation: AFFINE,
                output,
                argument,
            };
            let got = validate(AFFINE, &inputs, &outputs, &options.0);
            assert_eq!(got, Err(expected));
        }
        let neighbours = last(120)
            .initial(view(128, 2))
            .d_final(view(128, 2))
            .reset(view(136, 6));
        let neighbours = validate(AFFINE, &[0, 24, 48], &apart, &neighbours.0);
        assert_eq!(neighbours, Ok(()));
    }

    #[test]
    fn arrays_are_as_long_as_the_shape_says() {
        let length = |argument, expected, got| Error::LengthMismatch {
            operation: SUM,
            argument,
            shape: vec![2, 3],
            expected,
            got,
        };
        let wrong = [
            (options().initial(view(200, 3)), length("initial", 2, 3)),
            (
                options().final_state(view_mut(200, 1)),
                length("final_state", 2, 1),
            ),
            (options().reset(view(200, 2)), length("reset", 6, 2)),
        ];
        for (options, expected) in wrong {
            assert_eq!(validate(SUM, &[0], &[64], &options.0), Err(expected));
        }
    }

    #[test]
    fn arrays_of_a_gradient_are_as_long_as_the_shape_says() {
        let length = |argument, expected, got| Error::LengthMismatch {
            operation: AFFINE,
            argument,
            shape: vec![2, 3],
            expected,
            got,
        };
        let wrong = [
            (backward().initial(view(200, 3)), length("initial", 2, 3)),
            (
                backward().d_initial(view_mut(200, 1)),
                length("d_initial", 2, 1),
            ),
            (backward().d_final(view(200, 6)), length("d_final", 2, 6)),
            (backward().reset(view(200, 2)), length("reset", 6, 2)),
        ];
        for (options, expected) in wrong {
            let got = validate(AFFINE, &[0, 24, 48], &[72, 96], &options.0);
            assert_eq!(got, Err(expected));
        }
        let extents = |inputs: [usize; 3], outputs: [usize; 2]| {
            let (inputs, outputs) = (
                inputs.map(|len| view(0, len)),
                outputs.map(|len| view_mut(0, len)),
            );
            backward().0.extents(AFFINE, &inputs, &outputs, &[2, 3], 1)
        };
        let wrong = [
            ([5, 6, 6], [6, 6], length("a", 6, 5)),
            ([6, 7, 6], [6, 6], length("h", 6, 7)),
            ([6, 6, 0], [6, 6], length("dh", 6, 0)),
            ([6, 6, 6], [3, 6], length("da", 6, 3)),
            ([6, 6, 6], [6, 5], length("db", 6, 5)),
        ];
        for (inputs, outputs, expected) in wrong {
            assert_eq!(extents(inputs, outputs), Err(expected));
        }
        assert!(extents([6, 6, 6], [6, 6]).is_ok());
    }

    #[test]
    fn a_run_has_the_options_that_were_prepared() {
        let full = || {
            options()
                .exclusive()
                .initial(view(0, 2))
                .final_state(view_mut(8, 2))
                .reset(view(16, 6))
                .boundaries(&[0, 2, 6])
                .layouts(&LAYOUTS[..1])
        };
        assert_eq!(full().0.difference(&full().0.kind()), None);
        assert_eq!(options().0.difference(&options().0.kind()), None);
        // Other arrays, and boundaries left out.
        let others = options()
            .exclusive()
            .initial(view(100, 2))
            .final_state(view_mut(108, 2))
            .reset(view(116, 6))
            .layouts(&LAYOUTS[..1]);
        assert_eq!(others.0.difference(&full().0.kind()), None);
        let different = [
            (options().exclusive(), "inclusion"),
            (options().initial(view(0, 2)), "initial"),
            (options().final_state(view_mut(8, 2)), "final_state"),
            (options().reset(view(16, 6)), "reset"),
            (options().boundaries(&[0, 6]), "boundaries"),
            (options().layouts(&LAYOUTS[..1]), "layouts"),
        ];
        for (other, option) in different {
            assert_eq!(other.0.difference(&options().0.kind()), Some(option));
        }
        let layouts = options().layouts(&LAYOUTS[1..2]);
        let difference = options()
            .layouts(&LAYOUTS[..1])
            .0
            .difference(&layouts.0.kind());
        assert_eq!(difference, Some("layouts"));
        let difference = options().0.difference(&layouts.0.kind());
        assert_eq!(difference, Some("layouts"));
        let boundaries = full().boundaries(&[0, 3, 6]);
        assert_eq!(
            boundaries.0.difference(&full().0.kind()),
            Some("boundaries")
        );
    }

    #[test]
    fn a_gradient_has_the_options_that_were_prepared() {
        let full = || {
            backward()
                .initial(view(0, 2))
                .d_initial(view_mut(8, 2))
                .d_final(view(16, 2))
                .reset(view(24, 6))
                .boundaries(&[0, 2, 6])
        };
        assert_eq!(full().0.difference(&full().0.kind()), None);
        let different = [
            (backward().initial(view(0, 2)), "initial"),
            (backward().d_initial(view_mut(0, 2)), "d_initial"),
            (backward().d_final(view(0, 2)), "d_final"),
            (backward().reset(view(16, 6)), "reset"),
            (backward().boundaries(&[0, 6]), "boundaries"),
            (backward().layouts(&LAYOUTS), "layouts"),
        ];
        for (other, option) in different {
            assert_eq!(other.0.difference(&backward().0.kind()), Some(option));
        }
    }

    /// What is asked for is what is planned for.
    #[test]
    fn a_plan_has_the_options() {
        let extents = Extents {
            outer: 2,
            len: 3,
            inner: 1,
        };
        let builder = || PlanBuilder::new(AFFINE, "f32", extents);
        let full = backward()
            .initial(view(0, 2))
            .d_initial(view_mut(8, 2))
            .d_final(view(16, 2))
            .reset(view(24, 6))
            .boundaries(&[0, 2, 6]);
        use plan::Options;
        let options = Options::INITIAL.and(Options::FINAL).and(Options::D_FINAL);
        let expected = builder()
            .gradient(true)
            .options(options)
            .masked(true)
            .packed(Some(Packed {
                sequences: 2,
                longest: 4,
            }));
        assert_eq!(full.0.planned(AFFINE, extents), expected);
        let strided = backward().layouts(&LAYOUTS).0.planned(AFFINE, extents);
        let narrowed = layout::narrowed(Some(&LAYOUTS), extents);
        assert!(narrowed.is_some());
        let expected = builder().gradient(true).layouts(narrowed.as_deref());
        assert_eq!(strided, expected);
        let exclusive = builder().options(Options::EXCLUSIVE);
        let scan = self::options().exclusive();
        assert_eq!(scan.0.planned(AFFINE, extents), exclusive);
    }
}
