//! Sequences whose steps are neighbours: some steps at a time, in lanes that are composed and scanned side by side.

use super::scan::{Scan, Strip, from_states, to_states};
use super::steps::Steps;
use super::transpose::transposed;
use super::{BLOCK, LANES, TILE};
use crate::element::Element;
use crate::element::sealed::Arithmetic;
use crate::operation::Direction;
use std::ops::Range;

/// [`LANES`] steps of [`LANES`] lanes, as they lie in memory: numbers side by side are those of a step.
type Square<S> = [[S; LANES]; LANES];

impl<T: Element, const N: usize, const K: usize> Scan<'_, T, N, K> {
    /// Scans the steps at `positions` of a row, which no other task accesses in the outputs, from `carry` to `carry`.
    ///
    /// # Panics
    /// If `inner` is not 1.
    pub fn scan_row<M: Steps<T::State, N, K, P>, const P: usize>(
        &self,
        row: &Strip,
        positions: Range<usize>,
        carry: &mut T::State,
    ) {
        assert!(self.inner == 1 && positions.end <= row.len());
        let mut position = positions.start;
        while position < positions.end {
            let plain = self.plain::<M, P>(row, block(position, &positions));
            let tiles = tiles(position, plain);
            if tiles == 0 {
                let end = position + plain.clamp(1, TILE - position % TILE);
                let carry = std::slice::from_mut(carry);
                self.scan_strip::<M, P>(row, position..end, carry);
                position = end;
                continue;
            }
            let end = position + TILE * tiles;
            let first = self.at(row, position);
            // SAFETY: these are steps of the row, with all inputs.
            let scanned = unsafe {
                match self.direction {
                    Direction::Forward => self.scan_tiles::<M, P, false>(first, tiles, *carry),
                    Direction::Reverse => self.scan_tiles::<M, P, true>(first, tiles, *carry),
                }
            };
            match scanned {
                // On the way, composed carries have fewer roundings.
                Some([next, last]) => *carry = if end == row.len() { last } else { next },
                None => {
                    self.scan_strip::<M, P>(row, position..end, std::slice::from_mut(carry));
                }
            }
            position = end;
        }
    }

    /// Scans `count` tiles, from element `first` on, from `carry`: to the composed state after them, and that of the last step.
    /// If anything is not finite, the outputs may be wrong.
    ///
    /// # Safety
    /// These are steps at which no restart is; they have all inputs; and no other task accesses them in the outputs.
    #[inline(always)]
    unsafe fn scan_tiles<M: Steps<T::State, N, K, P>, const P: usize, const REVERSE: bool>(
        &self,
        first: usize,
        count: usize,
        mut carry: T::State,
    ) -> Option<[T::State; 2]> {
        const { assert!(K <= N) };
        let mut last = carry;
        // 0 times what is not finite is NaN, and stays so.
        let mut zeros = [T::State::default(); LANES];
        for tile in 0..count {
            let low = self.low::<REVERSE>(first, tile);
            // SAFETY: says the caller.
            let mut steps = unsafe { self.fetch::<REVERSE>(low, M::NEXT) };
            let composed = compose_lanes::<_, M, N, K, P, REVERSE>(&steps);
            let mut carries = [carry; LANES];
            let mut before = lane(&composed, in_order::<REVERSE>(0));
            for number in 1..LANES {
                let next = in_order::<REVERSE>(number);
                carries[next] = M::apply(before, carry);
                before = M::then(before, lane(&composed, next));
            }
            carry = M::apply(before, carry);
            for step in 0..LANES {
                let step = in_order::<REVERSE>(step);
                for lane in 0..LANES {
                    let inputs = std::array::from_fn(|k| steps[k][step][lane]);
                    let (after, outputs) = M::step(carries[lane], inputs);
                    carries[lane] = after;
                    for k in 0..K {
                        steps[k][step][lane] = outputs[k];
                    }
                }
            }
            last = carries[in_order::<REVERSE>(LANES - 1)];
            for lane in 0..LANES {
                zeros[lane] = zeros[lane].plus(carries[lane].times(T::State::default()));
            }
            for k in 0..K {
                let outputs = from_states(transposed(&steps[k]).as_flattened());
                // SAFETY: says the caller.
                unsafe { self.tensors.write::<TILE>(k, low, outputs) };
            }
        }
        let is_finite = carry.is_finite() && zeros.iter().all(|zero| zero.is_finite());
        is_finite.then_some([carry, last])
    }

    /// Composes the steps at `positions`, 1 or more, of a row. After a restart, the last number is the carry, whatever it
    /// was before.
    ///
    /// # Panics
    /// If `inner` is not 1.
    pub fn compose_row<M: Steps<T::State, N, K, P>, const P: usize>(
        &self,
        row: &Strip,
        positions: Range<usize>,
    ) -> [T::State; P] {
        assert!(self.inner == 1 && !positions.is_empty() && positions.end <= row.len());
        let restart = self.last_restart::<M, P>(row, &positions);
        let first = restart.unwrap_or(positions.start);
        let mut composed = self.first_map::<M, P>(self.at(row, first), restart.is_some());
        let mut position = first + 1;
        while position < positions.end {
            let tiles = tiles(position, positions.end - position);
            let element = self.at(row, position);
            if tiles == 0 {
                composed = M::then(composed, self.map::<M, P>(element));
                position += 1;
                continue;
            }
            // SAFETY: these are steps of the row.
            composed = unsafe {
                match self.direction {
                    Direction::Forward => {
                        self.compose_tiles::<M, P, false>(element, tiles, composed)
                    }
                    Direction::Reverse => {
                        self.compose_tiles::<M, P, true>(element, tiles, composed)
                    }
                }
            };
            position += TILE * tiles;
        }
        composed
    }

    /// Composes `count` tiles more, from element `first` on.
    ///
    /// # Safety
    /// The inputs have them.
    #[inline(always)]
    unsafe fn compose_tiles<M: Steps<T::State, N, K, P>, const P: usize, const REVERSE: bool>(
        &self,
        first: usize,
        count: usize,
        mut composed: [T::State; P],
    ) -> [T::State; P] {
        for tile in 0..count {
            let low = self.low::<REVERSE>(first, tile);
            // SAFETY: says the caller.
            let steps = unsafe { self.fetch::<REVERSE>(low, [false; N]) };
            let lanes = compose_lanes::<_, M, N, K, P, REVERSE>(&steps);
            let mut next = lane(&lanes, in_order::<REVERSE>(0));
            for number in 1..LANES {
                next = M::then(next, lane(&lanes, in_order::<REVERSE>(number)));
            }
            composed = M::then(composed, next);
        }
        composed
    }

    /// The first element in memory of a tile that comes so many tiles after the one that begins with an element.
    #[inline(always)]
    fn low<const REVERSE: bool>(&self, first: usize, tile: usize) -> usize {
        if REVERSE {
            first + 1 - TILE * (tile + 1)
        } else {
            first + TILE * tile
        }
    }

    /// The inputs of a tile, whose first element in memory is given.
    ///
    /// # Safety
    /// The inputs have it, one step later where `next` says so.
    #[inline(always)]
    unsafe fn fetch<const REVERSE: bool>(
        &self,
        low: usize,
        next: [bool; N],
    ) -> [Square<T::State>; N] {
        let mut steps = [[[T::State::default(); LANES]; LANES]; N];
        for k in 0..N {
            let low = match (next[k], REVERSE) {
                (false, _) => low,
                (true, false) => low + 1,
                (true, true) => low - 1,
            };
            // SAFETY: says the caller.
            let states: [T::State; TILE] = to_states(unsafe { self.tensors.read(k, low) });
            let mut lanes = [[T::State::default(); LANES]; LANES];
            lanes.as_flattened_mut().copy_from_slice(&states);
            steps[k] = transposed(&lanes);
        }
        steps
    }
}

/// Composes the steps of each lane.
#[inline(always)]
fn compose_lanes<
    S: Arithmetic,
    M: Steps<S, N, K, P>,
    const N: usize,
    const K: usize,
    const P: usize,
    const REVERSE: bool,
>(
    steps: &[Square<S>; N],
) -> [[S; LANES]; P] {
    let mut composed = [[S::default(); LANES]; P];
    for step in 0..LANES {
        let is_first = step == 0;
        let step = in_order::<REVERSE>(step);
        for lane in 0..LANES {
            let mut numbers = M::map(std::array::from_fn(|k| steps[k][step][lane]));
            if !is_first {
                numbers = M::then(std::array::from_fn(|k| composed[k][lane]), numbers);
            }
            for k in 0..P {
                composed[k][lane] = numbers[k];
            }
        }
    }
    composed
}

#[inline(always)]
fn lane<S: Copy, const P: usize>(composed: &[[S; LANES]; P], lane: usize) -> [S; P] {
    std::array::from_fn(|k| composed[k][lane])
}

/// Where in memory that is which comes as `number` in the direction of the scan.
#[inline(always)]
fn in_order<const REVERSE: bool>(number: usize) -> usize {
    if REVERSE { LANES - 1 - number } else { number }
}

/// How many tiles there are in some steps from a position on. All begin at a multiple of [`TILE`].
fn tiles(position: usize, steps: usize) -> usize {
    if position.is_multiple_of(TILE) {
        steps / TILE
    } else {
        0
    }
}

/// From a position on to the next multiple of [`BLOCK`], or to the last of some positions.
fn block(position: usize, positions: &Range<usize>) -> Range<usize> {
    position..positions.end.min((position / BLOCK + 1) * BLOCK)
}
