//! What a scan in device memory can be asked for.

use super::{Arrays, DeviceView, DeviceViewMut};
use crate::element::Element;
use crate::error::{Error, Result};
use crate::operation::Operation;
use crate::options::{Check, Inclusion};
use crate::plan::{self, Packed, PlanBuilder};
use crate::shape::Extents;

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
#[derive(Debug, Default)]
pub struct DeviceOptions<'a, T: Element> {
    inclusion: Inclusion,
    initial: Option<DeviceView<'a, T::State>>,
    final_state: Option<DeviceViewMut<'a, T::State>>,
    reset: Option<DeviceView<'a, u8>>,
    boundaries: Option<&'a [usize]>,
}

impl<'a, T: Element> DeviceOptions<'a, T> {
    /// A plain inclusive scan.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether a step's result contains the step.
    #[must_use]
    pub fn inclusion(mut self, inclusion: Inclusion) -> Self {
        self.inclusion = inclusion;
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
        self.initial = Some(states.into());
        self
    }

    /// Where to write the state after the last step of each sequence: see
    /// [`Options::final_state`](crate::Options::final_state).
    #[must_use]
    pub fn final_state(mut self, states: impl Into<DeviceViewMut<'a, T::State>>) -> Self {
        self.final_state = Some(states.into());
        self
    }

    /// The steps at which the scan starts afresh: those whose byte is not 0. See [`Options::reset`](crate::Options::reset).
    #[must_use]
    pub fn reset(mut self, mask: impl Into<DeviceView<'a, u8>>) -> Self {
        self.reset = Some(mask.into());
        self
    }

    /// Packed sequences: see [`Options::boundaries`](crate::Options::boundaries). They are a slice on the host.
    #[must_use]
    pub fn boundaries(mut self, boundaries: &'a [usize]) -> Self {
        self.boundaries = Some(boundaries);
        self
    }

    pub(super) fn host_boundaries(&self) -> Option<&'a [usize]> {
        self.boundaries
    }

    /// What is planned with them.
    pub(super) fn planned(&self, operation: Operation, extents: Extents) -> PlanBuilder {
        use plan::Options;
        PlanBuilder::new(operation, T::KERNEL_NAME, extents)
            .options(
                Options::INITIAL
                    .only_if(self.initial.is_some())
                    .and(Options::FINAL.only_if(self.final_state.is_some()))
                    .and(Options::EXCLUSIVE.only_if(self.inclusion == Inclusion::Exclusive)),
            )
            .masked(self.reset.is_some())
            .packed(self.boundaries.map(Packed::between))
    }

    /// Checks the boundaries of a call, and says how many states there are.
    pub(super) fn states(
        &self,
        operation: Operation,
        shape: &[usize],
        extents: Extents,
    ) -> Result<usize> {
        let check = Check {
            operation,
            shape,
            extents,
        };
        check.states(self.boundaries)
    }

    /// Checks the arrays of a call of so many states.
    pub(super) fn validate(
        &self,
        operation: Operation,
        inputs: &[DeviceView<'_, T>],
        shape: &[usize],
        extents: Extents,
        states: usize,
        out: &DeviceViewMut<'_, T>,
    ) -> Result<()> {
        self.validate_lengths(operation, shape, extents, states)?;
        let tensors = operation.operator.arguments().iter().zip(inputs);
        let read: Vec<_> = tensors
            .map(|(&name, input)| (name, input.bytes()))
            .chain(self.initial.iter().map(|view| ("initial", view.bytes())))
            .chain(self.reset.iter().map(|view| ("reset", view.bytes())))
            .collect();
        let last = self.final_state.as_ref().map(DeviceViewMut::bytes);
        let written = [("out", Some(out.bytes())), ("final_state", last)];
        for (index, (output, bytes)) in written.iter().enumerate() {
            let Some(bytes) = bytes else { continue };
            let before = written[..index].iter();
            let before = before.filter_map(|(name, bytes)| Some((*name, bytes.clone()?)));
            let mut others = read.iter().cloned().chain(before);
            if let Some((argument, _)) = others.find(|(_, other)| {
                // Arrays of no bytes are nowhere.
                bytes.start.max(other.start) < bytes.end.min(other.end)
            }) {
                return Err(Error::Overlap {
                    operation,
                    output,
                    argument,
                });
            }
        }
        Ok(())
    }

    /// Checks the arrays of the options by themselves.
    pub(super) fn validate_lengths(
        &self,
        operation: Operation,
        shape: &[usize],
        extents: Extents,
        states: usize,
    ) -> Result<()> {
        let check = Check {
            operation,
            shape,
            extents,
        };
        let reset = self.reset.as_ref().map(DeviceView::len);
        let initial = self.initial.as_ref().map(DeviceView::len);
        check.common(states, reset, initial)?;
        let last = self.final_state.as_ref().map(DeviceViewMut::len);
        check.length("final_state", last, states)
    }

    /// The addresses of a call's arrays; that of the boundaries is another's to say.
    pub(super) fn arrays(
        &self,
        inputs: &[DeviceView<'_, T>],
        out: &DeviceViewMut<'_, T>,
        boundaries: u64,
    ) -> Arrays {
        Arrays {
            inputs: inputs.iter().map(DeviceView::address).collect(),
            outputs: vec![out.address()],
            d_final: 0,
            initial: self.initial.as_ref().map_or(0, DeviceView::address),
            last: self.final_state.as_ref().map_or(0, DeviceViewMut::address),
            mask: self.reset.as_ref().map_or(0, DeviceView::address),
            boundaries,
        }
    }

    /// The first option that is not as it was prepared, but for the arrays. Boundaries may be left out.
    pub(super) fn difference(&self, other: &Kind) -> Option<&'static str> {
        let Kind {
            inclusion,
            initial,
            final_state,
            reset,
            boundaries,
        } = other;
        [
            ("inclusion", self.inclusion == *inclusion),
            ("initial", self.initial.is_some() == *initial),
            ("final_state", self.final_state.is_some() == *final_state),
            ("reset", self.reset.is_some() == *reset),
            (
                "boundaries",
                self.boundaries.is_none() || self.boundaries == boundaries.as_deref(),
            ),
        ]
        .into_iter()
        .find_map(|(name, is_alike)| (!is_alike).then_some(name))
    }

    /// What is left of them without the arrays.
    pub(super) fn kind(&self) -> Kind {
        Kind {
            inclusion: self.inclusion,
            initial: self.initial.is_some(),
            final_state: self.final_state.is_some(),
            reset: self.reset.is_some(),
            boundaries: self.boundaries.map(<[_]>::to_vec),
        }
    }
}

/// Options without their arrays: which there are.
pub(super) struct Kind {
    inclusion: Inclusion,
    initial: bool,
    final_state: bool,
    reset: bool,
    boundaries: Option<Vec<usize>>,
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

    fn options() -> DeviceOptions<'static, f32> {
        DeviceOptions::new()
    }

    /// Checks a scan of two sequences of three steps, whose tensors begin at these addresses, of 24 bytes each.
    fn validate(
        operation: Operation,
        inputs: &[u64],
        out: u64,
        options: &DeviceOptions<'_, f32>,
    ) -> Result<()> {
        let inputs: Vec<_> = inputs.iter().map(|&address| view(address, 6)).collect();
        let extents = Extents {
            outer: 2,
            len: 3,
            inner: 1,
        };
        options.validate(operation, &inputs, &[2, 3], extents, 2, &view_mut(out, 6))
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
            assert_eq!(validate(operation, inputs, out, &options), Err(expected));
        }
        // Neighbours do not overlap, and inputs may.
        let neighbours = last(88).initial(view(56, 2)).reset(view(96, 6));
        assert_eq!(validate(AFFINE, &[32, 32], 64, &neighbours), Ok(()));
        // Nor do arrays without elements, wherever they are.
        let empty = DeviceOptions::<f32>::new()
            .initial(view(8, 0))
            .final_state(view_mut(8, 0));
        let extents = Extents {
            outer: 0,
            len: 3,
            inner: 1,
        };
        let none = empty.validate(SUM, &[view(8, 0)], &[0, 3], extents, 0, &view_mut(8, 0));
        assert_eq!(none, Ok(()));
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
            assert_eq!(validate(SUM, &[0], 64, &options), Err(expected));
        }
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
        };
        assert_eq!(full().difference(&full().kind()), None);
        assert_eq!(options().difference(&options().kind()), None);
        // Other arrays, and boundaries left out.
        let others = options()
            .exclusive()
            .initial(view(100, 2))
            .final_state(view_mut(108, 2))
            .reset(view(116, 6));
        assert_eq!(others.difference(&full().kind()), None);
        let different = [
            (options().exclusive(), "inclusion"),
            (options().initial(view(0, 2)), "initial"),
            (options().final_state(view_mut(8, 2)), "final_state"),
            (options().reset(view(16, 6)), "reset"),
            (options().boundaries(&[0, 6]), "boundaries"),
        ];
        for (other, option) in different {
            assert_eq!(other.difference(&options().kind()), Some(option));
        }
        let boundaries = full().boundaries(&[0, 3, 6]);
        assert_eq!(boundaries.difference(&full().kind()), Some("boundaries"));
    }
}
