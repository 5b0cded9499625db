//! Sequences whose steps are neighbours: some steps at a time, in lanes that are composed and scanned side by side.

use super::layouts::{Layouts, Place};
use super::scan::{Scan, Strip, from_states};
use super::side_by_side::{Lanes, transposed};
use super::steps::Steps;
use super::{BLOCK, LANES, SQUARE, TILE};
use crate::element::Element;
use crate::element::sealed::Arithmetic;
use crate::operation::Direction;
use std::ops::Range;

/// [`LANES`] lanes of as many steps each, as they lie in memory: the lanes are side by side.
type Square<S> = [Lanes<S>; LANES];

impl<T: Element, L: Layouts<N>, const N: usize, const K: usize> Scan<'_, T, L, N, K> {
    /// Scans the steps at `positions` of a row, which no other task accesses in the outputs, from `carry` to `carry`.
    ///
    /// # Panics
    /// If `inner` is not 1.
    pub fn scan_row<M: Steps<N, K, P>, const P: usize>(
        &self,
        row: &Strip,
        positions: Range<usize>,
        carry: &mut T::State,
    ) {
        assert!(self.inner == 1 && positions.end <= row.len());
        let mut position = positions.start;
        while position < positions.end {
            let plain = self.plain::<M, P>(row, block(position, &positions));
            let squares = squares(position, plain);
            let first = self.at(row, position);
            if plain == 0 {
                let rest = position + 1..position + SQUARE;
                if position.is_multiple_of(SQUARE)
                    && rest.end < positions.end
                    && self.plain::<M, P>(row, rest) == SQUARE - 1
                    && self
                        .last_restart::<M, P>(row, &(position..position + 1))
                        .is_some()
                {
                    // SAFETY: these are steps of the row, and there is one after them.
                    unsafe { self.scan_first_square::<M, P>(first, carry) };
                    position += SQUARE;
                    continue;
                }
                let carry = std::slice::from_mut(carry);
                self.scan_strip::<M, P>(row, position..position + 1, carry);
                position += 1;
                continue;
            }
            if squares == 0 {
                let count = plain.min(SQUARE - position % SQUARE);
                let mut carries = [*carry];
                // SAFETY: these are steps of the row, with all inputs.
                unsafe { self.scan_tile::<M, P, 1>(first, count, &mut carries, false) };
                [*carry] = carries;
                position += count;
                continue;
            }
            let end = position + SQUARE * squares;
            // SAFETY: these are steps of the row, with all inputs.
            let scanned = unsafe {
                match self.direction {
                    Direction::Forward => self.scan_squares::<M, P, false>(first, squares, *carry),
                    Direction::Reverse => self.scan_squares::<M, P, true>(first, squares, *carry),
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

    /// Scans a square, from `first` on, whose first step is a restart, in serial order: to the carry after it. It is written as other
    /// squares are, since a line of memory that does not go past the caches is one that those after it wait for.
    ///
    /// # Safety
    /// There is no other restart at these steps; they have all inputs; and no other task accesses them in the outputs.
    unsafe fn scan_first_square<M: Steps<N, K, P>, const P: usize>(
        &self,
        first: Place<L::Places>,
        carry: &mut T::State,
    ) {
        let mut results = [[T::State::default(); SQUARE]; K];
        for i in 0..SQUARE {
            let place = self.after(first, i);
            let inputs = std::array::from_fn(|k| {
                // SAFETY: says the caller.
                let [input] = unsafe { self.read(k, self.after(place, M::NEXT[k].into())) };
                input
            });
            let (after, outputs) = if i == 0 {
                M::restart(*carry, inputs)
            } else {
                M::step(*carry, inputs)
            };
            *carry = after;
            let at = match self.direction {
                Direction::Forward => i,
                Direction::Reverse => SQUARE - 1 - i,
            };
            for k in 0..K {
                results[k][at] = outputs[k];
            }
        }
        let low = match self.direction {
            Direction::Forward => first.element,
            Direction::Reverse => first.element - (SQUARE - 1),
        };
        for k in 0..K {
            // SAFETY: says the caller.
            unsafe {
                self.tensors
                    .write_on(k, low, from_states::<T, SQUARE>(&results[k]))
            };
        }
    }

    /// Scans `count` squares, from `first` on, from `carry`: to the composed state after them, and that of the last step.
    /// If anything is not finite, the outputs may be wrong.
    ///
    /// # Safety
    /// These are steps at which no restart is; they have all inputs; and no other task accesses them in the outputs.
    #[inline(always)]
    unsafe fn scan_squares<M: Steps<N, K, P>, const P: usize, const REVERSE: bool>(
        &self,
        first: Place<L::Places>,
        count: usize,
        mut carry: T::State,
    ) -> Option<[T::State; 2]> {
        const { assert!(K <= N) };
        let mut last = carry;
        // 0 times what is not finite is NaN, and stays so.
        let zero = Lanes::all(T::State::default());
        let mut zeros = zero;
        let mut done = 0;
        while done + LANES <= count {
            let low = self.low::<REVERSE>(first, done, LANES);
            // SAFETY: says the caller.
            let squares = unsafe { self.fetch_tile(low, after::<N, REVERSE>(M::NEXT)) };
            let (before, all) = join_lanes::<_, M, N, K, P, REVERSE>(&squares);
            let mut entering = zero;
            for number in 0..LANES {
                let square = in_order::<REVERSE>(number);
                entering.0[square] = carry;
                carry = M::apply(std::array::from_fn(|k| all[k].0[square]), carry);
            }
            let mut carries = [entering; LANES];
            for number in 1..LANES {
                carries[in_order::<REVERSE>(number)] = M::apply(before[number], entering);
            }
            let mut carries = transposed(carries);
            for square in 0..LANES {
                let carries = &mut carries[square];
                // SAFETY: says the caller.
                unsafe {
                    let low = low.element + square * SQUARE;
                    self.scan_lanes::<M, P, REVERSE>(low, squares[square], carries);
                }
                zeros = zeros.plus(carries.times(zero));
            }
            let end = in_order::<REVERSE>(LANES - 1);
            last = carries[end].0[end];
            done += LANES;
        }
        for square in done..count {
            let low = self.low::<REVERSE>(first, square, 1);
            // SAFETY: says the caller.
            let steps = unsafe { self.fetch(low, after::<N, REVERSE>(M::NEXT)) };
            let composed = compose_lanes::<_, M, N, K, P, REVERSE>(&steps);
            let mut carries = zero;
            for number in 0..LANES {
                let lane = in_order::<REVERSE>(number);
                carries.0[lane] = carry;
                carry = M::apply(std::array::from_fn(|k| composed[k].0[lane]), carry);
            }
            // SAFETY: says the caller.
            unsafe { self.scan_lanes::<M, P, REVERSE>(low.element, steps, &mut carries) };
            zeros = zeros.plus(carries.times(zero));
            last = carries.0[in_order::<REVERSE>(LANES - 1)];
        }
        let is_finite = carry.is_finite() && zeros.is_finite();
        is_finite.then_some([carry, last])
    }

    /// Takes each lane of a square, whose first element in the outputs is given, through its steps.
    ///
    /// # Safety
    /// The outputs have them, and no other task accesses them.
    #[inline(always)]
    unsafe fn scan_lanes<M: Steps<N, K, P>, const P: usize, const REVERSE: bool>(
        &self,
        low: usize,
        steps: [Square<T::State>; N],
        carries: &mut Lanes<T::State>,
    ) {
        let mut results = [[Lanes::all(T::State::default()); LANES]; K];
        for step in 0..LANES {
            let step = in_order::<REVERSE>(step);
            let (after, outputs) = M::step(*carries, row(&steps, step));
            *carries = after;
            for k in 0..K {
                results[k][step] = outputs[k];
            }
        }
        for k in 0..K {
            let lanes = transposed(results[k]).map(|lane| lane.0);
            let outputs = from_states(lanes.as_flattened());
            // SAFETY: says the caller.
            unsafe { self.tensors.write_on::<SQUARE>(k, low, outputs) };
        }
    }

    /// Composes the steps at `positions`, 1 or more, of a row. After a restart, the last number is the carry, whatever it
    /// was before.
    ///
    /// # Panics
    /// If `inner` is not 1.
    pub fn compose_row<M: Steps<N, K, P>, const P: usize>(
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
            let tiles = squares(position, positions.end - position) / LANES;
            let first = self.at(row, position);
            if tiles == 0 {
                composed = M::then(composed, self.map::<M, P>(first));
                position += 1;
                continue;
            }
            // SAFETY: these are steps of the row.
            composed = unsafe {
                match self.direction {
                    Direction::Forward => self.compose_tiles::<M, P, false>(first, tiles, composed),
                    Direction::Reverse => self.compose_tiles::<M, P, true>(first, tiles, composed),
                }
            };
            position += TILE * tiles;
        }
        composed
    }

    /// Composes `count` tiles more, from `first` on.
    ///
    /// # Safety
    /// The inputs have them.
    #[inline(always)]
    unsafe fn compose_tiles<M: Steps<N, K, P>, const P: usize, const REVERSE: bool>(
        &self,
        first: Place<L::Places>,
        count: usize,
        mut composed: [T::State; P],
    ) -> [T::State; P] {
        for tile in 0..count {
            let low = self.low::<REVERSE>(first, LANES * tile, LANES);
            // SAFETY: says the caller.
            let squares = unsafe { self.fetch_tile(low, [0; N]) };
            let (_, all) = join_lanes::<_, M, N, K, P, REVERSE>(&squares);
            for number in 0..LANES {
                let square = in_order::<REVERSE>(number);
                let next = std::array::from_fn(|k| all[k].0[square]);
                composed = M::then(composed, next);
            }
        }
        composed
    }

    /// The first in memory of `count` squares that come `done` squares after a step.
    #[inline(always)]
    fn low<const REVERSE: bool>(
        &self,
        first: Place<L::Places>,
        done: usize,
        count: usize,
    ) -> Place<L::Places> {
        let steps = if REVERSE {
            1 - (SQUARE * (done + count)) as isize
        } else {
            (SQUARE * done) as isize
        };
        self.moved(first, steps, 0)
    }

    /// The inputs of the squares of a tile, whose first step in memory is given.
    ///
    /// # Safety
    /// The inputs have it, so many steps after that as `after` says.
    #[inline(always)]
    unsafe fn fetch_tile(
        &self,
        low: Place<L::Places>,
        after: [isize; N],
    ) -> [[Square<T::State>; N]; LANES] {
        const { assert!(LANES == 4) };
        let square = |number: usize| self.moved(low, (number * SQUARE) as isize, 0);
        // SAFETY: says the caller.
        unsafe {
            [
                self.fetch(low, after),
                self.fetch(square(1), after),
                self.fetch(square(2), after),
                self.fetch(square(3), after),
            ]
        }
    }

    /// The inputs of a square, as [`fetch_tile`](Self::fetch_tile).
    ///
    /// # Safety
    /// As there.
    #[inline(always)]
    unsafe fn fetch(&self, low: Place<L::Places>, after: [isize; N]) -> [Square<T::State>; N] {
        let mut steps = [[Lanes::all(T::State::default()); LANES]; N];
        for k in 0..N {
            let low = self.moved(low, after[k], 0);
            // SAFETY: says the caller.
            let states: [T::State; SQUARE] = unsafe { self.read_steps(k, low) };
            let mut lanes = steps[k];
            for (lane, states) in lanes.iter_mut().zip(states.as_chunks().0) {
                lane.0 = *states;
            }
            steps[k] = transposed(lanes);
        }
        steps
    }
}

/// How many steps after a step its inputs are in memory, where some are those of the next step.
fn after<const N: usize, const REVERSE: bool>(next: [bool; N]) -> [isize; N] {
    next.map(|next| match (next, REVERSE) {
        (false, _) => 0,
        (true, false) => 1,
        (true, true) => -1,
    })
}

/// Composes the steps of each lane.
#[inline(always)]
fn compose_lanes<
    S: Arithmetic,
    M: Steps<N, K, P>,
    const N: usize,
    const K: usize,
    const P: usize,
    const REVERSE: bool,
>(
    steps: &[Square<S>; N],
) -> [Lanes<S>; P] {
    let mut composed = M::map(row(steps, in_order::<REVERSE>(0)));
    for step in 1..LANES {
        composed = M::then(composed, M::map(row(steps, in_order::<REVERSE>(step))));
    }
    composed
}

/// The compositions of the lanes before each one in its square, but for the first, and those of all of them: side by side, those of
/// a tile's squares.
#[inline(always)]
fn join_lanes<
    S: Arithmetic,
    M: Steps<N, K, P>,
    const N: usize,
    const K: usize,
    const P: usize,
    const REVERSE: bool,
>(
    squares: &[[Square<S>; N]; LANES],
) -> ([[Lanes<S>; P]; LANES], [Lanes<S>; P]) {
    let zero = Lanes::all(S::default());
    let mut lanes = [[zero; LANES]; P];
    for square in 0..LANES {
        let composed = compose_lanes::<_, M, N, K, P, REVERSE>(&squares[square]);
        for k in 0..P {
            lanes[k][square] = composed[k];
        }
    }
    for k in 0..P {
        lanes[k] = transposed(lanes[k]);
    }
    let mut before = [[zero; P]; LANES];
    let mut all: [_; P] = row(&lanes, in_order::<REVERSE>(0));
    for number in 1..LANES {
        before[number] = all;
        all = M::then(all, row(&lanes, in_order::<REVERSE>(number)));
    }
    (before, all)
}

/// A row of each of some squares.
#[inline(always)]
fn row<S: Arithmetic, const N: usize>(squares: &[Square<S>; N], row: usize) -> [Lanes<S>; N] {
    std::array::from_fn(|k| squares[k][row])
}

/// Where in memory that is which comes as `number` in the direction of the scan.
#[inline(always)]
fn in_order<const REVERSE: bool>(number: usize) -> usize {
    if REVERSE { LANES - 1 - number } else { number }
}

/// How many squares there are in some steps from a position on. All begin at a multiple of [`SQUARE`].
fn squares(position: usize, steps: usize) -> usize {
    if position.is_multiple_of(SQUARE) {
        steps / SQUARE
    } else {
        0
    }
}

/// From a position on to the next multiple of [`BLOCK`], or to the last of some positions.
fn block(position: usize, positions: &Range<usize>) -> Range<usize> {
    position..positions.end.min((position / BLOCK + 1) * BLOCK)
}
