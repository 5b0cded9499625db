//! The CPU back end.
//!
//! A tensor is a matrix of all its steps × inner, and a row of it consecutive steps: as many as the axis has, or those
//! between two boundaries. (Positions count the steps of a row in the order of the scan.)
//!
//! - Where sequences lie side by side (`inner` > 1), a task scans a strip of channels of a row, some steps of some neighbours at a
//!   time, which the compiler vectorises.
//! - Where the steps of a sequence are neighbours (`inner` = 1), a task goes straight through a row, a few lines of memory at a
//!   time: [`LANES`] lanes of as many steps each are composed side by side, the carry goes through the results, and the lanes are
//!   scanned side by side from their carries. That way the processor has no chain of dependent additions to wait for, and memory
//!   is under way while it computes.
//! - Where there are too few strips or rows for that, they are cut into chunks of [`CHUNK_BYTES`]. A thread composes the steps of a
//!   chunk, waits for the carry, passes on the next one, and scans the chunk while its cache still has it.
//!
//! Which of these it is, and so the order of the additions, depends on the shape, the boundaries, the resets and the type of the
//! elements alone, never on the number of threads. No memory is allocated on the way.
//!
//! Options make no other scans of these: a carry enters each sequence, and leaves it; a step at which a scan starts afresh
//! is done by itself, between runs of plain ones; and the gradient is a scan with other steps ([`Gradient`]).
//!
//! Composing can meet infinities that the serial recurrence does not, and miss some that it meets. So where a composed carry or
//! the last state of a lane is not finite, the [`BLOCK`] of the row is scanned again in serial order; and from a chunk at whose end
//! either is not finite, its last state goes on in place of the composed carry.
//!
//! | module | purpose |
//! |---|---|
//! | `rows`, `tensors` | which steps are a row; the arrays, as tasks share them |
//! | `layouts` | where the inputs have their elements |
//! | `steps` | what a step does: a sum, an affine map, a gradient |
//! | `scan` | a part of a strip: scanned, or composed |
//! | `lanes`, `side_by_side` | a part of a row likewise, in lanes; arithmetic with all lanes at once |
//! | `chunks` | strips and rows that are cut |
#![allow(
    clippy::needless_range_loop,
    reason = "several arrays are walked in step"
)]

mod chunks;
mod lanes;
mod layouts;
mod rows;
mod scan;
mod side_by_side;
mod steps;
mod tensors;
#[cfg(test)]
mod tests;

use crate::element::Element;
use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::methods::{as_uninit, methods};
use crate::operation::{Direction, Operation, Operator};
use crate::options::{BackwardOptions, Inclusion, Options};
use crate::shape::Extents;
use layouts::{Dense, Layouts, Strided};
use rayon::prelude::*;
use rows::Rows;
use scan::{Scan, Strip};
use std::mem::MaybeUninit;
use std::ops::Range;
use steps::{Affine, After, Before, Gradient, Steps, Sum};
use tensors::{Fence, Shared, Tensors};

/// Where the steps of a sequence are neighbours, so many lanes are scanned side by side …
const LANES: usize = 4;
/// … of as many steps: so many steps of the sequence are a square of them …
const SQUARE: usize = LANES * LANES;
/// … and so many are a tile, of [`LANES`] squares.
const TILE: usize = LANES * SQUARE;
/// So many steps of a row, at most, are scanned again where something is not finite.
const BLOCK: usize = 1024;
/// Steps of neighbouring channels that are scanned before the next channels' turn comes, with the carries in registers.
const TILE_STEPS: usize = 4;
/// So many channels are that.
const TILE_CHANNELS: usize = 16;
/// Neighbours of a step that a task takes at a time, at most: the step before is then still in the fastest cache.
const WIDEST_STRIP: usize = 1024;
/// A strip with fewer neighbours of a step is too narrow to be taken instead of cutting the sequences.
const NARROWEST_STRIP: usize = 256;
/// The part of an input that a thread composes and then scans, while its cache has it.
const CHUNK_BYTES: usize = 1 << 18;
/// Tasks for which it is not worth while to cut sequences.
const ENOUGH_TASKS: usize = 32;
/// Outputs as large as this, or larger, are not looked for in a cache.
const STREAMED_BYTES: usize = 1 << 25;
/// Elements that are worth a thread of their own.
const ELEMENTS_PER_TASK: usize = 1 << 15;

/// The CPU back end: made once, used for any number of operations.
#[derive(Debug, Default)]
pub struct Cpu {
    pool: Option<rayon::ThreadPool>,
}

impl Cpu {
    /// A back end that runs in rayon's current thread pool: the one it is called in, else the global one.
    pub const fn new() -> Self {
        Self { pool: None }
    }

    /// A back end with a pool of `threads` threads of its own; 0 means as many as there are CPUs.
    ///
    /// # Errors
    /// [`Error::Threads`] where the system cannot start them.
    pub fn with_threads(threads: usize) -> Result<Self> {
        rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .map(|pool| Self { pool: Some(pool) })
            .map_err(|error| Error::Threads {
                threads,
                reason: error.to_string(),
            })
    }

    /// The number of threads that work on a large operation.
    pub fn threads(&self) -> usize {
        self.pool.as_ref().map_or_else(
            rayon::current_num_threads,
            rayon::ThreadPool::current_num_threads,
        )
    }

    pub(crate) fn device_name(&self) -> String {
        format!("CPU, {} threads", self.threads())
    }

    pub(crate) fn run<T: Element>(
        &self,
        operation: Operation,
        inputs: &[&[T]],
        extents: Extents,
        options: Options<'_, T>,
        out: &mut [MaybeUninit<T>],
    ) -> Result<()> {
        use Inclusion::{Exclusive, Inclusive};
        let rows = Rows::new(extents, options.boundaries);
        let scan = Call {
            rows,
            extents,
            direction: operation.direction,
            reset: options.reset,
            entering: options.initial,
            initial: options.initial,
            leaving: options.final_state,
            layouts: options.layouts,
        };
        match (operation.operator, options.inclusion, inputs) {
            (Operator::Cumsum, Inclusive, &[x]) => {
                self.carry_out::<T, Sum<After>, 1, 1, 1>(scan, [x], [out])
            }
            (Operator::Cumsum, Exclusive, &[x]) => {
                self.carry_out::<T, Sum<Before>, 1, 1, 1>(scan, [x], [out])
            }
            (Operator::AffineScan, Inclusive, &[a, b]) => {
                self.carry_out::<T, Affine<After>, 2, 1, 2>(scan, [a, b], [out])
            }
            (Operator::AffineScan, Exclusive, &[a, b]) => {
                self.carry_out::<T, Affine<Before>, 2, 1, 2>(scan, [a, b], [out])
            }
            _ => unreachable!(
                "{operation} of {} inputs, which are counted before",
                inputs.len()
            ),
        }
        Ok(())
    }

    pub(crate) fn run_backward<T: Element>(
        &self,
        forward: Operation,
        inputs: [&[T]; 3],
        extents: Extents,
        options: BackwardOptions<'_, T>,
        out: [&mut [MaybeUninit<T>]; 2],
    ) -> Result<()> {
        let call = Call {
            rows: Rows::new(extents, options.boundaries),
            extents,
            direction: match forward.direction {
                Direction::Forward => Direction::Reverse,
                Direction::Reverse => Direction::Forward,
            },
            reset: options.reset,
            entering: options.d_final,
            initial: options.initial,
            leaving: options.d_initial,
            layouts: options.layouts,
        };
        self.carry_out::<T, Gradient, 3, 2, 2>(call, inputs, out);
        Ok(())
    }

    fn carry_out<T: Element, M: Steps<N, K, P>, const N: usize, const K: usize, const P: usize>(
        &self,
        call: Call<'_, T>,
        inputs: [&[T]; N],
        outputs: [&mut [MaybeUninit<T>]; K],
    ) {
        match call.layouts {
            None => self.carry_out_with::<T, M, _, N, K, P>(call, inputs, Dense, outputs),
            Some(layouts) => {
                let layouts = Strided(std::array::from_fn(|k| layouts[k]));
                self.carry_out_with::<T, M, _, N, K, P>(call, inputs, layouts, outputs);
            }
        }
    }

    fn carry_out_with<
        T: Element,
        M: Steps<N, K, P>,
        L: Layouts<N>,
        const N: usize,
        const K: usize,
        const P: usize,
    >(
        &self,
        call: Call<'_, T>,
        inputs: [&[T]; N],
        layouts: L,
        outputs: [&mut [MaybeUninit<T>]; K],
    ) {
        let inner = call.extents.inner;
        let elements = call.rows.all_steps() * inner;
        let states = if call.leaving.is_some() {
            call.rows.count() * inner
        } else {
            0
        };
        if elements == 0 && states == 0 {
            return;
        }
        let scan = Scan {
            tensors: Tensors::new(inputs, outputs),
            layouts,
            rows: call.rows,
            inner,
            direction: call.direction,
            width: strip_width(call.rows, inner),
            reset: call.reset,
            entering: call.entering,
            initial: call.initial,
            leaving: call.leaving.map(|states| Shared::new(as_uninit(states))),
        };
        assert!(layouts.fit(scan.tensors.lengths(), call.extents));
        let tasks = scan.tasks();
        if elements < 2 * ELEMENTS_PER_TASK {
            let _fence = Fence;
            (0..tasks).for_each(|task| scan.scan_task::<M, P>(task));
        } else {
            let least = ELEMENTS_PER_TASK.div_ceil((elements / tasks).max(1));
            self.install(|| {
                (0..tasks)
                    .into_par_iter()
                    .with_min_len(least)
                    .for_each_init(|| Fence, |_, task| scan.scan_task::<M, P>(task));
            });
        }
        self.install(|| scan.scan_cut_rows::<M, P>());
    }

    /// Calls `work` where rayon finds this back end's threads.
    fn install<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        match &self.pool {
            Some(pool) => pool.install(work),
            None => work(),
        }
    }
}

methods!(Cpu);

/// What a scan is, but for its inputs and outputs.
struct Call<'a, T: Element> {
    rows: Rows<'a>,
    extents: Extents,
    direction: Direction,
    reset: Option<&'a [bool]>,
    entering: Option<&'a [T::State]>,
    initial: Option<&'a [T::State]>,
    leaving: Option<&'a mut [T::State]>,
    layouts: Option<&'a [Layout]>,
}

/// How many neighbours of a step a task takes: as many as leave enough tasks, if these are not too few.
fn strip_width(rows: Rows<'_>, inner: usize) -> usize {
    let strips = ENOUGH_TASKS.div_ceil(rows.count().max(1));
    let width = inner.div_ceil(strips).next_multiple_of(LANES);
    let width = if width < NARROWEST_STRIP {
        WIDEST_STRIP
    } else {
        width.min(WIDEST_STRIP)
    };
    width.min(inner)
}

impl<T: Element, L: Layouts<N>, const N: usize, const K: usize> Scan<'_, T, L, N, K> {
    /// How many tasks there are for rows that are not cut.
    fn tasks(&self) -> usize {
        self.rows.count() * self.strips_across()
    }

    /// Whether a row is cut: it is so much of all the work that there would be too few tasks.
    fn is_cut(&self, row: usize) -> bool {
        let len = self.rows.steps(row).len();
        let tasks = self.rows.all_steps() as f64 / len as f64 * self.strips_across() as f64;
        len >= 2 * self.chunk_steps() && tasks < ENOUGH_TASKS as f64
    }

    /// Scans all of a strip, or of some rows, but for what is cut.
    fn scan_task<M: Steps<N, K, P>, const P: usize>(&self, task: usize) {
        let (row, number) = (task / self.strips_across(), task % self.strips_across());
        // One row after the other in memory, in the direction of the steps.
        let row = match self.direction {
            Direction::Forward => row,
            Direction::Reverse => self.rows.count() - 1 - row,
        };
        if self.is_cut(row) {
            return;
        }
        let strip = self.strip(row, number);
        let (mut one, mut many);
        let carries = if strip.width == 1 {
            one = [T::State::default()];
            &mut one[..]
        } else {
            many = [T::State::default(); WIDEST_STRIP];
            &mut many[..strip.width]
        };
        self.enter(&strip, carries);
        self.scan_part::<M, P>(&strip, 0..strip.len(), carries);
        self.leave(&strip, carries);
    }

    /// Scans the strips of rows that are cut, one after the other.
    fn scan_cut_rows<M: Steps<N, K, P>, const P: usize>(&self) {
        for row in (0..self.rows.count()).filter(|&row| self.is_cut(row)) {
            for number in 0..self.strips_across() {
                self.scan_in_chunks::<M, P>(&self.strip(row, number));
            }
        }
    }

    /// Scans the steps at `positions` of a strip from `carries` to `carries`.
    fn scan_part<M: Steps<N, K, P>, const P: usize>(
        &self,
        strip: &Strip,
        positions: Range<usize>,
        carries: &mut [T::State],
    ) {
        if self.inner == 1 {
            self.scan_row::<M, P>(strip, positions, &mut carries[0]);
        } else {
            self.scan_strip::<M, P>(strip, positions, carries);
        }
    }

    /// Composes the steps at `positions` of a strip, as [`compose_strip`](Self::compose_strip) does.
    fn compose_part<M: Steps<N, K, P>, const P: usize>(
        &self,
        strip: &Strip,
        positions: Range<usize>,
        composed: &mut [T::State],
    ) {
        if self.inner == 1 {
            composed.copy_from_slice(&self.compose_row::<M, P>(strip, positions));
        } else {
            self.compose_strip::<M, P>(strip, positions, composed);
        }
    }
}
