//! A scan: its tensors and options, and what a task does with a part of it.

use super::layouts::{Layouts, Place};
use super::rows::Rows;
use super::steps::Steps;
use super::tensors::{Shared, Tensors};
use super::{NARROWEST_STRIP, TILE_CHANNELS, TILE_STEPS};
use crate::element::Element;
use crate::operation::Direction;
use std::ops::Range;

/// What is scanned, and where the results go. States are rows × inner.
pub struct Scan<'a, T: Element, L, const N: usize, const K: usize> {
    pub tensors: Tensors<'a, T, N, K>,
    /// Where the inputs have their elements.
    pub layouts: L,
    pub rows: Rows<'a>,
    pub inner: usize,
    /// In which the steps are carried out.
    pub direction: Direction,
    /// Of a strip, at most.
    pub width: usize,
    pub reset: Option<&'a [bool]>,
    /// The carries that enter the sequences.
    pub entering: Option<&'a [T::State]>,
    /// The states before the first step of the (forward) scan; without them it starts afresh.
    pub initial: Option<&'a [T::State]>,
    /// Where the carries that leave the sequences go.
    pub leaving: Option<Shared<'a, T::State>>,
}

/// Neighbouring channels of a row.
#[derive(Clone)]
pub struct Strip {
    pub row: usize,
    pub steps: Range<usize>,
    pub channel: usize,
    pub width: usize,
    /// Whether it is scanned in chunks, with the inputs in a cache.
    pub is_cut: bool,
}

impl Strip {
    pub fn len(&self) -> usize {
        self.steps.len()
    }
}

// Positions count the steps of a row in the direction of the scan.
impl<T: Element, L: Layouts<N>, const N: usize, const K: usize> Scan<'_, T, L, N, K> {
    pub fn strips_across(&self) -> usize {
        self.inner.div_ceil(self.width)
    }

    pub fn strip(&self, row: usize, number: usize) -> Strip {
        let channel = number * self.width;
        Strip {
            row,
            steps: self.rows.steps(row),
            channel,
            width: self.width.min(self.inner - channel),
            is_cut: false,
        }
    }

    /// Where a strip's first channel is at a position.
    #[inline(always)]
    pub fn at(&self, strip: &Strip, position: usize) -> Place<L::Places> {
        let step = match self.direction {
            Direction::Forward => strip.steps.start + position,
            Direction::Reverse => strip.steps.end - 1 - position,
        };
        let (outer, first) = self.rows.outer(strip.row);
        Place {
            element: step * self.inner + strip.channel,
            inputs: self.layouts.at(outer, step - first, strip.channel),
        }
    }

    /// So many steps later in memory, and so many channels on.
    #[inline(always)]
    pub fn moved(
        &self,
        place: Place<L::Places>,
        steps: isize,
        channels: usize,
    ) -> Place<L::Places> {
        let steps_in_elements = (steps as usize).wrapping_mul(self.inner);
        Place {
            element: place
                .element
                .wrapping_add(steps_in_elements)
                .wrapping_add(channels),
            inputs: self.layouts.moved(place.inputs, steps, channels),
        }
    }

    /// Where the same channel is `count` positions after one. It need not exist.
    #[inline(always)]
    pub fn after(&self, place: Place<L::Places>, count: usize) -> Place<L::Places> {
        let steps = match self.direction {
            Direction::Forward => count as isize,
            Direction::Reverse => -(count as isize),
        };
        self.moved(place, steps, 0)
    }

    /// What input `k` has of `B` channels of a step.
    ///
    /// # Safety
    /// There are so many channels of the strip from this one on, and it is one of its steps.
    #[inline(always)]
    pub unsafe fn read<const B: usize>(&self, k: usize, place: Place<L::Places>) -> [T::State; B] {
        let ([_, stride], element) = (self.layouts.strides(k), self.layouts.element(k, place));
        // SAFETY: the inputs have the elements of all strips.
        to_states(unsafe { self.tensors.read(k, element, stride) })
    }

    /// What input `k` has of `B` steps of a channel, one after another in memory.
    ///
    /// # Safety
    /// There are so many steps from this one on, of the one channel.
    #[inline(always)]
    pub unsafe fn read_steps<const B: usize>(
        &self,
        k: usize,
        place: Place<L::Places>,
    ) -> [T::State; B] {
        let ([stride, _], element) = (self.layouts.strides(k), self.layouts.element(k, place));
        // SAFETY: the inputs have the elements of all rows.
        to_states(unsafe { self.tensors.read(k, element, stride) })
    }

    /// The carries that enter the sequences of a strip.
    pub fn enter(&self, strip: &Strip, carries: &mut [T::State]) {
        // Nothing goes through to a state that is not there.
        let nowhere = strip.steps.is_empty() && self.initial.is_none();
        match self.entering {
            Some(entering) if !nowhere => carries.copy_from_slice(self.states(strip, entering)),
            _ => carries.fill(T::State::default()),
        }
    }

    /// Notes the carries that leave the sequences of a strip, if anyone asks for them.
    pub fn leave(&self, strip: &Strip, carries: &[T::State]) {
        let Some(leaving) = self.leaving else {
            return;
        };
        let first = strip.row * self.inner + strip.channel;
        for (channel, &carry) in carries.iter().enumerate() {
            // SAFETY: the states are rows × inner, and those of the strip are this task's alone.
            unsafe { leaving.write(first + channel, [carry]) };
        }
    }

    fn states<'s, S>(&self, strip: &Strip, states: &'s [S]) -> &'s [S] {
        let first = strip.row * self.inner + strip.channel;
        &states[first..first + strip.width]
    }

    /// The position of the step that the (forward) scan begins with.
    fn first_position<M: Steps<N, K, P>, const P: usize>(&self, strip: &Strip) -> usize {
        if M::BACKWARD { strip.len() - 1 } else { 0 }
    }

    /// The resets at some positions, in memory order.
    fn resets(&self, strip: &Strip, positions: &Range<usize>) -> Option<&[bool]> {
        let steps = match self.direction {
            Direction::Forward => {
                strip.steps.start + positions.start..strip.steps.start + positions.end
            }
            Direction::Reverse => {
                strip.steps.end - positions.end..strip.steps.end - positions.start
            }
        };
        self.reset.map(|reset| &reset[steps])
    }

    /// How many of the positions, from the first on, are neither a restart nor lack an input.
    pub fn plain<M: Steps<N, K, P>, const P: usize>(
        &self,
        strip: &Strip,
        mut positions: Range<usize>,
    ) -> usize {
        let first = self.first_position::<M, P>(strip);
        if (M::BACKWARD || self.initial.is_none()) && positions.contains(&first) {
            positions.end = first;
        }
        let before_reset = self
            .resets(strip, &positions)
            .and_then(|mask| match self.direction {
                Direction::Forward => mask.iter().position(|&reset| reset),
                Direction::Reverse => mask.iter().rev().position(|&reset| reset),
            });
        before_reset.unwrap_or(positions.len())
    }

    /// The last one of the positions at which the scan starts afresh.
    pub fn last_restart<M: Steps<N, K, P>, const P: usize>(
        &self,
        strip: &Strip,
        positions: &Range<usize>,
    ) -> Option<usize> {
        let first = self.first_position::<M, P>(strip);
        let first = (self.initial.is_none() && positions.contains(&first)).then_some(first);
        let from_end = self
            .resets(strip, positions)
            .and_then(|mask| match self.direction {
                Direction::Forward => mask.iter().rev().position(|&reset| reset),
                Direction::Reverse => mask.iter().position(|&reset| reset),
            });
        first.max(from_end.map(|count| positions.end - 1 - count))
    }

    /// Scans the steps at `positions` of a strip, which no other task accesses in the outputs, from `carries` to `carries`.
    pub fn scan_strip<M: Steps<N, K, P>, const P: usize>(
        &self,
        strip: &Strip,
        positions: Range<usize>,
        carries: &mut [T::State],
    ) {
        assert!(positions.end <= strip.len() && carries.len() == strip.width);
        // Where each step follows the one before in memory, nothing is faster than going straight on.
        let is_all = strip.width == self.inner;
        let straight_on = is_all && strip.width >= 4 * TILE_CHANNELS && !strip.is_cut;
        let on = is_all && strip.width <= NARROWEST_STRIP && strip.is_cut;
        let most = if straight_on { 1 } else { TILE_STEPS };
        let mut position = positions.start;
        while position < positions.end {
            let end = positions.end.min(position + most);
            let count = self.plain::<M, P>(strip, position..end);
            if count == 0 {
                self.scan_step::<M, P>(strip, position, carries);
                position += 1;
                continue;
            }
            let first = self.at(strip, position);
            let (tiles, rest) = carries.as_chunks_mut::<TILE_CHANNELS>();
            let mut channel = 0;
            for tile in tiles {
                // SAFETY: these are channels of the strip, and steps of theirs that have all inputs.
                unsafe {
                    let first = self.moved(first, 0, channel);
                    self.scan_tile::<M, P, TILE_CHANNELS>(first, count, tile, on);
                };
                channel += TILE_CHANNELS;
            }
            let (tiles, rest) = rest.as_chunks_mut::<4>();
            for tile in tiles {
                // SAFETY: as above.
                unsafe {
                    let first = self.moved(first, 0, channel);
                    self.scan_tile::<M, P, 4>(first, count, tile, false);
                };
                channel += 4;
            }
            for carry in rest.as_chunks_mut::<1>().0 {
                // SAFETY: as above.
                unsafe {
                    let first = self.moved(first, 0, channel);
                    self.scan_tile::<M, P, 1>(first, count, carry, false);
                };
                channel += 1;
            }
            position += count;
        }
    }

    /// Scans `count` steps of `B` channels, from `first` on; `on` says whether one line of the outputs comes after the other.
    ///
    /// # Safety
    /// These are steps at which no restart is; they have all inputs; and no other task accesses them in the outputs.
    #[inline(always)]
    pub unsafe fn scan_tile<M: Steps<N, K, P>, const P: usize, const B: usize>(
        &self,
        first: Place<L::Places>,
        count: usize,
        carries: &mut [T::State; B],
        on: bool,
    ) {
        let mut carry = *carries;
        for i in 0..count {
            let place = self.after(first, i);
            let element = place.element;
            let mut inputs = [[T::State::default(); B]; N];
            for k in 0..N {
                // SAFETY: says the caller.
                inputs[k] = unsafe { self.read(k, self.after(place, M::NEXT[k].into())) };
            }
            let mut outputs = [[T::State::default(); B]; K];
            for channel in 0..B {
                let (after, out) =
                    M::step(carry[channel], std::array::from_fn(|k| inputs[k][channel]));
                carry[channel] = after;
                for k in 0..K {
                    outputs[k][channel] = out[k];
                }
            }
            for (k, output) in outputs.into_iter().enumerate() {
                let output = from_states::<T, B>(&output);
                // SAFETY: says the caller.
                unsafe {
                    if B == TILE_CHANNELS && on {
                        self.tensors.write_on(k, element, output);
                    } else {
                        self.tensors.write(k, element, output);
                    }
                }
            }
        }
        *carries = carry;
    }

    /// Scans any step of a strip.
    fn scan_step<M: Steps<N, K, P>, const P: usize>(
        &self,
        strip: &Strip,
        position: usize,
        carries: &mut [T::State],
    ) {
        let at = self.at(strip, position);
        let restarts = self
            .last_restart::<M, P>(strip, &(position..position + 1))
            .is_some();
        let has_next = position + 1 < strip.len();
        for (channel, carry) in carries.iter_mut().enumerate() {
            let inputs = std::array::from_fn(|k| {
                if M::NEXT[k] && !has_next {
                    return self.initial.map_or(T::State::default(), |initial| {
                        self.states(strip, initial)[channel]
                    });
                }
                let place = self.after(self.moved(at, 0, channel), M::NEXT[k].into());
                // SAFETY: there is such a channel of the strip, and the position is one of its steps.
                let [input] = unsafe { self.read(k, place) };
                input
            });
            let (after, outputs) = if restarts {
                M::restart(*carry, inputs)
            } else {
                M::step(*carry, inputs)
            };
            *carry = after;
            for (k, output) in outputs.into_iter().enumerate() {
                // SAFETY: as above, and the strip is this task's alone.
                unsafe {
                    let element = at.element + channel;
                    self.tensors.write(k, element, [T::from_state(output)]);
                }
            }
        }
    }

    /// A step as a composition.
    #[inline(always)]
    pub fn map<M: Steps<N, K, P>, const P: usize>(&self, place: Place<L::Places>) -> [T::State; P] {
        M::map(self.inputs(place))
    }

    /// A step as a composition's first. Where the scan starts afresh, the last number is the carry after it.
    pub fn first_map<M: Steps<N, K, P>, const P: usize>(
        &self,
        place: Place<L::Places>,
        restarts: bool,
    ) -> [T::State; P] {
        if !restarts {
            return self.map::<M, P>(place);
        }
        let mut constant = [T::State::default(); P];
        constant[P - 1] = M::restart(T::State::default(), self.inputs(place)).0;
        constant
    }

    /// What the inputs have of a step of a channel.
    #[inline(always)]
    fn inputs(&self, place: Place<L::Places>) -> [T::State; N] {
        std::array::from_fn(|k| {
            // SAFETY: it is one of a strip.
            let [input] = unsafe { self.read(k, place) };
            input
        })
    }

    /// Composes the steps at `positions`, 1 or more, of each channel of a strip. Number `k` of the composition of a channel is
    /// `composed[k · width + channel]`. After a restart, the last number is the carry, whatever it was before.
    pub fn compose_strip<M: Steps<N, K, P>, const P: usize>(
        &self,
        strip: &Strip,
        positions: Range<usize>,
        composed: &mut [T::State],
    ) {
        let width = strip.width;
        assert!(!positions.is_empty() && positions.end <= strip.len());
        assert!(composed.len() == P * width);
        let restart = self.last_restart::<M, P>(strip, &positions);
        let first = restart.unwrap_or(positions.start);
        for channel in 0..width {
            let place = self.moved(self.at(strip, first), 0, channel);
            let numbers = self.first_map::<M, P>(place, restart.is_some());
            for k in 0..P {
                composed[k * width + channel] = numbers[k];
            }
        }
        let mut position = first + 1;
        while position < positions.end {
            let count = TILE_STEPS.min(positions.end - position);
            let first = self.at(strip, position);
            let mut channel = 0;
            while channel + TILE_CHANNELS <= width {
                self.compose_tile::<M, P, TILE_CHANNELS>(first, count, channel, composed);
                channel += TILE_CHANNELS;
            }
            while channel < width {
                self.compose_tile::<M, P, 1>(first, count, channel, composed);
                channel += 1;
            }
            position += count;
        }
    }

    /// Composes `count` steps more of `B` channels, from `channel` on, of a strip whose first channel is at `first`.
    #[inline(always)]
    fn compose_tile<M: Steps<N, K, P>, const P: usize, const B: usize>(
        &self,
        first: Place<L::Places>,
        count: usize,
        channel: usize,
        composed: &mut [T::State],
    ) {
        let width = composed.len() / P;
        let mut numbers: [[T::State; B]; P] = std::array::from_fn(|k| {
            std::array::from_fn(|lane| composed[k * width + channel + lane])
        });
        for i in 0..count {
            let place = self.moved(self.after(first, i), 0, channel);
            // Tiles are no order of accesses that a processor foresees.
            let ahead = self.after(place, TILE_STEPS);
            let mut inputs = [[T::State::default(); B]; N];
            for k in 0..N {
                self.tensors.prefetch(k, self.layouts.element(k, ahead));
                // SAFETY: these are channels and steps of the strip.
                inputs[k] = unsafe { self.read(k, place) };
            }
            for lane in 0..B {
                let before = std::array::from_fn(|k| numbers[k][lane]);
                let next = M::map(std::array::from_fn(|k| inputs[k][lane]));
                let both = M::then(before, next);
                for k in 0..P {
                    numbers[k][lane] = both[k];
                }
            }
        }
        for k in 0..P {
            composed[k * width + channel..][..B].copy_from_slice(&numbers[k]);
        }
    }
}

/// Elements as states.
#[inline(always)]
pub fn to_states<T: Element, const B: usize>(elements: [T; B]) -> [T::State; B] {
    let mut states = [T::State::default(); B];
    let mut room = states;
    states.copy_from_slice(T::as_states(&elements, &mut room));
    states
}

/// States as elements.
#[inline(always)]
pub fn from_states<T: Element, const B: usize>(states: &[T::State]) -> [T; B] {
    let mut elements = [T::default(); B];
    let mut room = elements;
    elements.copy_from_slice(T::as_elements(states, &mut room));
    elements
}
