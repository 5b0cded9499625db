//! The CPU back end.
//!
//! A tensor is a matrix of all its steps × inner, and a row of it consecutive steps: as many as the axis has, or those
//! between two boundaries. (Positions count the steps of a row in the order of the scan.)
//!
//! - Where sequences lie side by side (`inner` > 1), a task scans a strip of channels of a row, some steps of some neighbours at a
//!   time, which the compiler vectorises.
//! - Where the steps of a sequence are neighbours (`inner` = 1), a task scans [`LANES`] rows at a time, so that as
//!   many chains of dependent additions are under way.
//! - Where there are too few strips or rows for that, rows are cut into chunks of [`CHUNK`] steps: tasks compose the
//!   steps of each chunk, the carries go through the results in order, and tasks scan each chunk from its carry.
//!
//! Which of these it is, and so the order of the additions, depends on the shape and the boundaries alone, never on the number of
//! threads.
//!
//! Options make no other scans of these: a carry enters each sequence, and leaves it; a step at which a scan starts afresh
//! is done by itself, between runs of plain ones; and the gradient is a scan with other steps ([`Gradient`]).
//!
//! Composing can meet infinities that the serial recurrence does not, and miss some that it meets. So where a carry between chunks
//! is not finite, the chunks of its channel that are under way are scanned again, in serial order.
//!
//! | module | purpose |
//! |---|---|
//! | `rows`, `tensors` | which steps are a row; the arrays, as tasks share them |
//! | `steps` | what a step does: a sum, an affine map, a gradient |
//! | `scan` | a part of a row: scanned, or composed |
//! | `chunks` | rows that are cut |
#![allow(
    clippy::needless_range_loop,
    reason = "several arrays are walked in step"
)]

mod chunks;
mod rows;
mod scan;
mod steps;
mod tensors;
#[cfg(test)]
mod tests;

use crate::element::Element;
use crate::error::{Error, Result};
use crate::methods::{as_uninit, methods};
use crate::operation::{Direction, Operation, Operator};
use crate::options::{BackwardOptions, Inclusion, Options};
use crate::shape::Extents;
use rayon::prelude::*;
use rows::Rows;
use scan::Scan;
use std::mem::MaybeUninit;
use steps::{Affine, After, Before, Gradient, Steps, Sum};
use tensors::{Shared, Tensors};

/// Chains of dependent operations that a thread has under way, at least, where it is a matter of latency.
const LANES: usize = 8;
/// Steps of a chain that are brought to a buffer at a time: some lines of memory.
const BUFFERED: usize = 128;
/// Steps of [`LANES`] chains that are in registers at a time.
const SQUARE: usize = 4;
/// Steps of neighbouring channels that are scanned before the next channels' turn comes, with the carries in registers.
const TILE_STEPS: usize = 4;
/// So many channels are that.
const TILE_CHANNELS: usize = 16;
/// Steps in a chunk of a sequence that is cut.
const CHUNK: usize = 512;
/// Neighbours of a step that a task takes at a time, at most: the step before is then still in the fastest cache.
const WIDEST_STRIP: usize = 1024;
/// Neighbours of a step that a task takes at a time, if there are as many: some lines of memory.
const NARROWEST_STRIP: usize = 64;
/// Elements of an input that all tasks together compose and then scan, while a cache has them.
const WAVE: usize = 1 << 20;
/// Tasks for which it is not worth while to cut sequences.
const ENOUGH_TASKS: usize = 16;
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
            operation,
            rows,
            inner: extents.inner,
            direction: operation.direction,
            reset: options.reset,
            entering: options.initial,
            initial: options.initial,
            leaving: options.final_state,
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
            operation: forward,
            rows: Rows::new(extents, options.boundaries),
            inner: extents.inner,
            direction: match forward.direction {
                Direction::Forward => Direction::Reverse,
                Direction::Reverse => Direction::Forward,
            },
            reset: options.reset,
            entering: options.d_final,
            initial: options.initial,
            leaving: options.d_initial,
        };
        self.carry_out::<T, Gradient, 3, 2, 2>(call, inputs, out)
    }

    fn carry_out<
        T: Element,
        M: Steps<T::State, N, K, P>,
        const N: usize,
        const K: usize,
        const P: usize,
    >(
        &self,
        call: Call<'_, T>,
        inputs: [&[T]; N],
        outputs: [&mut [MaybeUninit<T>]; K],
    ) -> Result<()> {
        let elements = call.rows.all_steps() * call.inner;
        let states = if call.leaving.is_some() {
            call.rows.count() * call.inner
        } else {
            0
        };
        if elements == 0 && states == 0 {
            return Ok(());
        }
        let scan = Scan {
            tensors: Tensors::new(inputs, outputs),
            rows: call.rows,
            inner: call.inner,
            direction: call.direction,
            width: strip_width(call.rows, call.inner),
            reset: call.reset,
            entering: call.entering,
            initial: call.initial,
            leaving: call.leaving.map(|states| Shared::new(as_uninit(states))),
        };
        let tasks = scan.tasks();
        if elements < 2 * ELEMENTS_PER_TASK {
            (0..tasks).for_each(|task| scan.scan_task::<M, P>(task));
        } else {
            let least = ELEMENTS_PER_TASK.div_ceil((elements / tasks).max(1));
            self.install(|| {
                (0..tasks)
                    .into_par_iter()
                    .with_min_len(least)
                    .for_each(|task| scan.scan_task::<M, P>(task));
            });
        }
        self.install(|| scan.scan_cut_rows::<M, P>(call.operation))
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
    operation: Operation,
    rows: Rows<'a>,
    inner: usize,
    direction: Direction,
    reset: Option<&'a [bool]>,
    entering: Option<&'a [T::State]>,
    initial: Option<&'a [T::State]>,
    leaving: Option<&'a mut [T::State]>,
}

/// How many neighbours of a step a task takes: as many as leave enough tasks.
fn strip_width(rows: Rows<'_>, inner: usize) -> usize {
    let strips = ENOUGH_TASKS.div_ceil(rows.count());
    let width = inner.div_ceil(strips).next_multiple_of(NARROWEST_STRIP);
    inner.min(width.min(WIDEST_STRIP))
}

impl<T: Element, const N: usize, const K: usize> Scan<'_, T, N, K> {
    /// How many tasks there are for rows that are not cut.
    fn tasks(&self) -> usize {
        match self.inner {
            1 => self.rows.count().div_ceil(LANES),
            _ => self.rows.count() * self.strips_across(),
        }
    }

    /// Whether a row is cut: it is so much of all the work that there would be too few tasks.
    fn is_cut(&self, row: usize) -> bool {
        let len = self.rows.steps(row).len();
        let tasks_a_row = match self.inner {
            1 => 1.0 / LANES as f64,
            _ => self.strips_across() as f64,
        };
        let tasks = self.rows.all_steps() as f64 / len as f64 * tasks_a_row;
        len >= 2 * CHUNK && tasks < ENOUGH_TASKS as f64
    }

    /// Scans all of a strip, or of some rows, but for what is cut.
    fn scan_task<M: Steps<T::State, N, K, P>, const P: usize>(&self, task: usize) {
        if self.inner > 1 {
            let (row, number) = (task / self.strips_across(), task % self.strips_across());
            if !self.is_cut(row) {
                let strip = self.strip(row, number);
                let mut carries = vec![T::State::default(); strip.width];
                self.enter(&strip, &mut carries);
                self.scan_strip::<M, P>(&strip, 0..strip.len(), &mut carries);
                self.leave(&strip, &carries);
            }
            return;
        }
        let rows = task * LANES..self.rows.count().min((task + 1) * LANES);
        let lanes: Vec<_> = rows
            .filter(|&row| !self.is_cut(row))
            .map(|row| (self.strip(row, 0), 0))
            .collect();
        let mut carries = [T::State::default(); LANES];
        for ((strip, _), carry) in lanes.iter().zip(&mut carries) {
            self.enter(strip, std::slice::from_mut(carry));
        }
        let mut done = 0;
        if let Ok(lanes) = <&[_; LANES]>::try_from(&lanes[..]) {
            done = lanes
                .iter()
                .map(|(strip, _)| strip.len())
                .min()
                .unwrap_or(0);
            self.scan_lanes::<M, P>(lanes, done, &mut carries);
        }
        for ((strip, _), carry) in lanes.iter().zip(&mut carries) {
            let carry = std::slice::from_mut(carry);
            self.scan_strip::<M, P>(strip, done..strip.len(), carry);
            self.leave(strip, carry);
        }
    }

    /// Scans the rows that are cut, one strip of theirs after the other.
    fn scan_cut_rows<M: Steps<T::State, N, K, P>, const P: usize>(
        &self,
        operation: Operation,
    ) -> Result<()> {
        let rows = (0..self.rows.count()).filter(|&row| self.is_cut(row));
        let mut strips =
            rows.flat_map(|row| (0..self.strips_across()).map(move |number| (row, number)));
        strips.try_for_each(|(row, number)| {
            self.scan_in_chunks::<M, P>(&self.strip(row, number), operation)
        })
    }
}
