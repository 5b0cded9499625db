//! What a scan can be asked for besides its operator and its direction.

use crate::element::Element;
use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::operation::Operation;
use crate::shape::Extents;

/// Whether a step's result contains the step.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub enum Inclusion {
    /// The result of a step is the state after it.
    #[default]
    Inclusive,
    /// The result of a step is the state before it.
    Exclusive,
}

/// The options of a scan. By default it is inclusive, and each sequence starts afresh.
///
/// A scan takes each sequence from state to state, `h_t = a_t·h_{t−1} + b_t`, or `h_t = h_{t−1} + x_t`. *First*, *last* and
/// *before* mean the order of the scan: in reverse, the first step of a sequence is the last one in memory.
///
/// States are [`T::State`](Element::State)s: what the scan computes in, before any rounding to `T`. Arrays of states have one
/// for each sequence: outer × inner of them, row-major (the tensor's shape without its axis), or, with
/// [`boundaries`](Self::boundaries), packed sequences × inner.
///
/// # Examples
/// ```
/// use ptxscan::{Engine, Operation, Options};
///
/// let mut last = [0.0];
/// let options = Options::new().exclusive().initial(&[10.0]).final_state(&mut last);
/// let y = Engine::cpu().scan_with(Operation::CUMSUM, &[&[1.0, 2.0, 3.0_f32]], &[3], 0, options)?;
/// assert_eq!((y, last), (vec![10.0, 11.0, 13.0], [16.0]));
/// # Ok::<(), ptxscan::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct Options<'a, T: Element> {
    pub(crate) inclusion: Inclusion,
    pub(crate) initial: Option<&'a [T::State]>,
    pub(crate) final_state: Option<&'a mut [T::State]>,
    pub(crate) reset: Option<&'a [bool]>,
    pub(crate) boundaries: Option<&'a [usize]>,
    pub(crate) layouts: Option<&'a [Layout]>,
}

impl<'a, T: Element> Options<'a, T> {
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

    /// The result of a step is the state before it: of the first step, the initial state, or 0. Where the scan starts
    /// afresh, at a [`reset`](Self::reset), it is 0.
    #[must_use]
    pub fn exclusive(self) -> Self {
        self.inclusion(Inclusion::Exclusive)
    }

    /// The state before the first step of each sequence: `h_0 = a_0·initial + b_0`, `y_0 = initial + x_0`.
    ///
    /// Without it, `h_0 = b_0`, and `a_0` is not used: it is not the same as zeros where `a_0` is infinite or NaN.
    #[must_use]
    pub fn initial(mut self, states: &'a [T::State]) -> Self {
        self.initial = Some(states);
        self
    }

    /// Where to write the state after the last step of each sequence, also of an exclusive scan. That of an empty sequence
    /// is its initial state, or 0.
    ///
    /// As the initial state of the next piece, it continues a sequence that comes in pieces.
    #[must_use]
    pub fn final_state(mut self, states: &'a mut [T::State]) -> Self {
        self.final_state = Some(states);
        self
    }

    /// The steps at which the scan starts afresh: `h_t = b_t`, `y_t = x_t`, whatever the state before it, infinities and
    /// NaNs included, and `a_t` is not used.
    ///
    /// The mask has outer × len elements, row-major: a step's element is for all inner indices.
    #[must_use]
    pub fn reset(mut self, mask: &'a [bool]) -> Self {
        self.reset = Some(mask);
        self
    }

    /// The axis is sequences of several lengths, one after another: sequence `s` is the steps from `boundaries[s]` to before
    /// `boundaries[s + 1]`. (Elsewhere such boundaries are called `cu_seqlens`.)
    ///
    /// They begin with 0, never decrease, and end with the axis's extent. Where two are equal, the sequence between them is
    /// empty. The extents before the axis are 1.
    #[must_use]
    pub fn boundaries(mut self, boundaries: &'a [usize]) -> Self {
        self.boundaries = Some(boundaries);
        self
    }

    /// Where each input has its elements, if not row-major one after another: see [`Layout`], which has an example.
    ///
    /// The input then has any number of elements, of which those that the layout names are read. The shape is that of the result, which
    /// is row-major as ever.
    ///
    /// Of inputs that are not row-major, few long sequences leave most of a GPU idle, as they do with a [`reset`](Self::reset).
    #[must_use]
    pub fn layouts(mut self, layouts: &'a [Layout]) -> Self {
        self.layouts = Some(layouts);
        self
    }

    pub(crate) fn validate(
        &self,
        operation: Operation,
        shape: &[usize],
        extents: Extents,
    ) -> Result<()> {
        let check = Check {
            operation,
            shape,
            extents,
        };
        let states = check.states(self.boundaries)?;
        check.common(states, length(self.reset), length(self.initial))?;
        check.length("final_state", length(self.final_state.as_deref()), states)
    }
}

/// The options of the gradient of an affine scan: those of the scan, and the gradients of its states.
///
/// Arrays of states are as those of [`Options`].
#[derive(Debug, Default)]
pub struct BackwardOptions<'a, T: Element> {
    pub(crate) initial: Option<&'a [T::State]>,
    pub(crate) d_initial: Option<&'a mut [T::State]>,
    pub(crate) d_final: Option<&'a [T::State]>,
    pub(crate) reset: Option<&'a [bool]>,
    pub(crate) boundaries: Option<&'a [usize]>,
    pub(crate) layouts: Option<&'a [Layout]>,
}

impl<'a, T: Element> BackwardOptions<'a, T> {
    /// Those of a plain scan.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The scan's [initial states](Options::initial).
    #[must_use]
    pub fn initial(mut self, states: &'a [T::State]) -> Self {
        self.initial = Some(states);
        self
    }

    /// Where to write the gradient of the initial states: zeros where the scan had none, as nothing depends on them.
    #[must_use]
    pub fn d_initial(mut self, gradient: &'a mut [T::State]) -> Self {
        self.d_initial = Some(gradient);
        self
    }

    /// The gradient of the [final states](Options::final_state), besides that of the result; zeros by default.
    #[must_use]
    pub fn d_final(mut self, gradient: &'a [T::State]) -> Self {
        self.d_final = Some(gradient);
        self
    }

    /// The scan's [resets](Options::reset).
    #[must_use]
    pub fn reset(mut self, mask: &'a [bool]) -> Self {
        self.reset = Some(mask);
        self
    }

    /// The scan's [boundaries](Options::boundaries).
    #[must_use]
    pub fn boundaries(mut self, boundaries: &'a [usize]) -> Self {
        self.boundaries = Some(boundaries);
        self
    }

    /// Where a, h and dh have their elements: as the [layouts](Options::layouts) of a scan.
    #[must_use]
    pub fn layouts(mut self, layouts: &'a [Layout; 3]) -> Self {
        self.layouts = Some(layouts);
        self
    }

    pub(crate) fn validate(
        &self,
        operation: Operation,
        shape: &[usize],
        extents: Extents,
    ) -> Result<()> {
        let check = Check {
            operation,
            shape,
            extents,
        };
        let states = check.states(self.boundaries)?;
        check.common(states, length(self.reset), length(self.initial))?;
        check.length("d_initial", length(self.d_initial.as_deref()), states)?;
        check.length("d_final", length(self.d_final), states)
    }
}

fn length<E>(option: Option<&[E]>) -> Option<usize> {
    option.map(<[E]>::len)
}

/// Checks options against a call's shape.
pub(crate) struct Check<'a> {
    pub(crate) operation: Operation,
    pub(crate) shape: &'a [usize],
    pub(crate) extents: Extents,
}

impl Check<'_> {
    /// Checks the boundaries, and says how many states there are.
    pub(crate) fn states(&self, boundaries: Option<&[usize]>) -> Result<usize> {
        let Self {
            operation, extents, ..
        } = *self;
        let Some(boundaries) = boundaries else {
            return Ok(extents.sequences());
        };
        if extents.outer != 1 {
            return Err(Error::BoundariesOfMany {
                operation,
                outer: extents.outer,
            });
        }
        let expected = if extents.len == 0 { 1 } else { 2 };
        if boundaries.len() < expected {
            return Err(Error::TooFewBoundaries {
                operation,
                expected,
                got: boundaries.len(),
            });
        }
        let last = boundaries.len() - 1;
        let mut least = 0;
        for (index, &got) in boundaries.iter().enumerate() {
            let expected = match index {
                _ if index == last => (extents.len, extents.len),
                0 => (0, 0),
                _ => (least, extents.len),
            };
            if got < expected.0 || got > expected.1 {
                return Err(Error::Boundary {
                    operation,
                    index,
                    expected,
                    got,
                });
            }
            least = got;
        }
        // Where that is more than memory can hold, no array is as long.
        Ok(last.saturating_mul(extents.inner))
    }

    /// Checks the lengths of what scans and gradients have in common.
    pub(crate) fn common(
        &self,
        states: usize,
        reset: Option<usize>,
        initial: Option<usize>,
    ) -> Result<()> {
        self.length("reset", reset, self.extents.outer * self.extents.len)?;
        self.length("initial", initial, states)
    }

    /// Checks the length of an option, if it is there.
    pub(crate) fn length(
        &self,
        argument: &'static str,
        option: Option<usize>,
        expected: usize,
    ) -> Result<()> {
        match option {
            Some(got) if got != expected => Err(Error::LengthMismatch {
                operation: self.operation,
                argument,
                shape: self.shape.to_vec(),
                expected,
                got,
            }),
            _ => Ok(()),
        }
    }
}
