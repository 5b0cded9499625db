//! The CPU back end.
//!
//! - Where sequences lie side by side (`inner` > 1), a task scans a strip of channels step by step: a step is a loop over
//!   neighbours in memory, which the compiler vectorises.
//! - Where the steps of a sequence are neighbours (`inner` = 1), a task scans [`LANES`] sequences at a time, so that as
//!   many chains of dependent additions are under way.
//! - Where there are too few strips or rows for that, sequences are cut into chunks of [`CHUNK`] steps: tasks compose the
//!   steps of each chunk, the carries go through the results in order, and tasks scan each chunk from its carry.
//!
//! Which of these it is, and so the order of the additions, depends on the shape alone, never on the number of threads.
//!
//! Composing can meet infinities that the serial recurrence does not, and miss some that it meets. So where a chunk ends
//! with a carry that is not finite, the chunks of its channel that are under way are scanned again, in serial order.
#![allow(
    clippy::needless_range_loop,
    reason = "several arrays are walked in step"
)]

mod steps;
mod tensors;
#[cfg(test)]
mod tests;

use crate::element::Element;
use crate::error::{Error, Result};
use crate::methods::methods;
use crate::operation::{Direction, Operation, Operator};
use crate::shape::Extents;
use rayon::prelude::*;
use std::mem::MaybeUninit;
use std::ops::Range;
use steps::{Affine, Steps, Sum};
use tensors::Tensors;

/// Chains of dependent operations that a thread has under way, at least, where it is a matter of latency.
const LANES: usize = 8;
/// Steps of a chain that are brought to a buffer at a time.
const BUFFERED: usize = 32;
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
        out: &mut [MaybeUninit<T>],
    ) -> Result<()> {
        if extents.elements() == 0 {
            return Ok(());
        }
        match (operation.operator, inputs) {
            (Operator::Cumsum, &[x]) => self.scan_with::<T, Sum, 1>(operation, [x], extents, out),
            (Operator::AffineScan, &[a, b]) => {
                self.scan_with::<T, Affine, 2>(operation, [a, b], extents, out)
            }
            _ => unreachable!(
                "{operation} of {} inputs, which are counted before",
                inputs.len()
            ),
        }
    }

    fn scan_with<T: Element, M: Steps<T, N>, const N: usize>(
        &self,
        operation: Operation,
        inputs: [&[T]; N],
        extents: Extents,
        out: &mut [MaybeUninit<T>],
    ) -> Result<()> {
        let problem = Problem {
            tensors: Tensors::new(inputs, out),
            extents,
            direction: operation.direction,
            width: strip_width(extents),
        };
        let tasks = problem.tasks();
        if tasks < ENOUGH_TASKS && extents.len >= 2 * CHUNK {
            return self.install(|| problem.scan_in_chunks::<M>(operation));
        }
        let elements = (extents.elements() / tasks).max(1);
        if extents.elements() < 2 * ELEMENTS_PER_TASK {
            (0..tasks).for_each(|task| problem.scan_task::<M>(task));
        } else {
            self.install(|| {
                (0..tasks)
                    .into_par_iter()
                    .with_min_len(ELEMENTS_PER_TASK.div_ceil(elements))
                    .for_each(|task| problem.scan_task::<M>(task));
            });
        }
        Ok(())
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

/// How many neighbours of a step a task takes: as many as leave enough tasks.
fn strip_width(Extents { outer, inner, .. }: Extents) -> usize {
    let strips = ENOUGH_TASKS.div_ceil(outer);
    let width = inner.div_ceil(strips).next_multiple_of(NARROWEST_STRIP);
    inner.min(width.min(WIDEST_STRIP))
}

/// What is scanned, and where the results go.
struct Problem<'a, T, const N: usize> {
    tensors: Tensors<'a, T, N>,
    extents: Extents,
    direction: Direction,
    /// Of a strip.
    width: usize,
}

/// Neighbouring channels of one outer index.
#[derive(Clone, Copy)]
struct Strip {
    /// The element that is step 0 of the first channel.
    first: usize,
    width: usize,
}

/// Where a scan begins: each channel with a carry, or the sequence itself.
#[derive(Clone, Copy)]
enum Start<'a, T> {
    Sequence,
    Carries(&'a [T]),
}

// Positions count steps in the direction of the scan.
impl<T: Element, const N: usize> Problem<'_, T, N> {
    fn strips_across(&self) -> usize {
        self.extents.inner.div_ceil(self.width)
    }

    /// How many tasks there are if no sequence is cut.
    fn tasks(&self) -> usize {
        match self.extents.inner {
            1 => self.extents.outer.div_ceil(LANES),
            _ => self.extents.outer * self.strips_across(),
        }
    }

    fn strip(&self, number: usize) -> Strip {
        let Extents { len, inner, .. } = self.extents;
        let across = self.strips_across();
        let channel = number % across * self.width;
        Strip {
            first: number / across * len * inner + channel,
            width: self.width.min(inner - channel),
        }
    }

    /// The element of a strip's first channel at a position.
    #[inline(always)]
    fn at(&self, strip: Strip, position: usize) -> usize {
        let step = match self.direction {
            Direction::Forward => position,
            Direction::Reverse => self.extents.len - 1 - position,
        };
        strip.first + step * self.extents.inner
    }

    /// Scans all of a strip, or of some rows.
    fn scan_task<M: Steps<T, N>>(&self, task: usize) {
        let Extents { outer, len, inner } = self.extents;
        if inner > 1 {
            return self.scan_strip::<M>(self.strip(task), 0..len, Start::Sequence);
        }
        let rows = task * LANES..outer.min((task + 1) * LANES);
        if rows.len() < LANES {
            return rows.for_each(|row| {
                self.scan_strip::<M>(self.strip(row), 0..len, Start::Sequence);
            });
        }
        let mut carries = [T::default(); LANES];
        let firsts = std::array::from_fn(|lane| {
            let first = self.at(self.strip(rows.start + lane), 0);
            // SAFETY: the first steps are elements of rows that are this task's alone.
            unsafe {
                carries[lane] = self.tensors.read(first)[N - 1];
                self.tensors.write(first, carries[lane]);
            }
            self.at(self.strip(rows.start + lane), 1.min(len - 1))
        });
        // SAFETY: the rows are this task's alone, and have so many steps more.
        unsafe { self.scan_lanes::<M>(firsts, carries, len - 1) };
    }

    /// Scans `count` steps of single channels at once, which begin at the elements `firsts` with `carries`.
    ///
    /// Some steps of a channel at a time are brought to a buffer and back: rows are often a power of two apart, so that
    /// lines of all of them compete for the same few places in the cache.
    ///
    /// # Safety
    /// `inner` is 1. The steps exist, and no other task accesses them in the output.
    unsafe fn scan_lanes<M: Steps<T, N>>(
        &self,
        firsts: [usize; LANES],
        mut carries: [T; LANES],
        count: usize,
    ) {
        let mut steps = [[[T::default(); BUFFERED]; LANES]; N];
        let mut results = [[T::default(); BUFFERED]; LANES];
        let mut done = 0;
        while done < count {
            let some = BUFFERED.min(count - done);
            // SAFETY: says the caller.
            unsafe {
                self.fetch(
                    firsts.map(|first| self.after(first, done)),
                    some,
                    &mut steps,
                )
            };
            for i in 0..some {
                for lane in 0..LANES {
                    let step = std::array::from_fn(|k| steps[k][lane][i]);
                    carries[lane] = M::apply(carries[lane], step);
                    results[lane][i] = carries[lane];
                }
            }
            for lane in 0..LANES {
                let first = self.after(firsts[lane], done);
                for i in 0..some {
                    // SAFETY: says the caller.
                    unsafe { self.tensors.write(self.after(first, i), results[lane][i]) };
                }
            }
            done += some;
        }
    }

    /// Brings the steps of single channels that begin at the elements `firsts` to a buffer.
    ///
    /// # Safety
    /// `inner` is 1, and the steps exist.
    #[inline(always)]
    unsafe fn fetch(
        &self,
        firsts: [usize; LANES],
        count: usize,
        steps: &mut [[[T; BUFFERED]; LANES]; N],
    ) {
        for lane in 0..LANES {
            for k in 0..N {
                for i in 0..count {
                    // SAFETY: says the caller.
                    steps[k][lane][i] =
                        unsafe { self.tensors.read(self.after(firsts[lane], i)) }[k];
                }
            }
        }
    }

    /// Composes `count` steps, 1 or more, of single channels at once, which begin at the elements `firsts`.
    ///
    /// # Safety
    /// `inner` is 1, and the steps exist.
    unsafe fn compose_lanes<M: Steps<T, N>>(
        &self,
        firsts: [usize; LANES],
        count: usize,
    ) -> [[T; N]; LANES] {
        // SAFETY: says the caller.
        let mut composed = firsts.map(|first| unsafe { self.tensors.read(first) });
        let mut steps = [[[T::default(); BUFFERED]; LANES]; N];
        let mut done = 1;
        while done < count {
            let some = BUFFERED.min(count - done);
            // SAFETY: says the caller.
            unsafe {
                self.fetch(
                    firsts.map(|first| self.after(first, done)),
                    some,
                    &mut steps,
                )
            };
            for i in 0..some {
                for lane in 0..LANES {
                    let step = std::array::from_fn(|k| steps[k][lane][i]);
                    composed[lane] = M::then(composed[lane], step);
                }
            }
            done += some;
        }
        composed
    }

    /// The element `count` steps after one, where `inner` is 1.
    #[inline(always)]
    fn after(&self, element: usize, count: usize) -> usize {
        match self.direction {
            Direction::Forward => element + count,
            Direction::Reverse => element - count,
        }
    }

    /// Scans the steps at `positions` of a strip, which no other task accesses in the output.
    fn scan_strip<M: Steps<T, N>>(
        &self,
        strip: Strip,
        mut positions: Range<usize>,
        start: Start<'_, T>,
    ) {
        let width = strip.width;
        let mut before = match start {
            Start::Carries(carries) => carries,
            Start::Sequence => {
                let Some(position) = positions.next() else {
                    return;
                };
                let at = self.at(strip, position);
                let step = self.tensors.row(at, width);
                // SAFETY: the step is the strip's, and is read from then on.
                unsafe {
                    let out = self.tensors.part(at, width);
                    for (out, &value) in out.iter_mut().zip(step[N - 1]) {
                        out.write(value);
                    }
                    self.tensors.written(at, width)
                }
            }
        };
        for position in positions {
            let at = self.at(strip, position);
            let steps = self.tensors.row(at, width);
            // SAFETY: the step is the strip's; it is not the one before.
            let out = unsafe { self.tensors.part(at, width) };
            for channel in 0..width {
                let step = steps.map(|step| step[channel]);
                out[channel].write(M::apply(before[channel], step));
            }
            // SAFETY: it is written now.
            before = unsafe { self.tensors.written(at, width) };
        }
    }

    /// Composes the steps at `positions`, 1 or more, of each channel of a strip. Element `k` of the composition of a channel is
    /// `composed[k · width + channel]`.
    fn compose_strip<M: Steps<T, N>>(
        &self,
        strip: Strip,
        mut positions: Range<usize>,
        composed: &mut [T],
    ) {
        let width = strip.width;
        let mut planes = composed.chunks_exact_mut(width);
        let mut planes: [&mut [T]; N] =
            std::array::from_fn(|_| planes.next().expect("as many planes as inputs"));
        if let Some(position) = positions.next() {
            let steps = self.tensors.row(self.at(strip, position), width);
            for (plane, step) in planes.iter_mut().zip(steps) {
                plane.copy_from_slice(step);
            }
        }
        for position in positions {
            let steps = self.tensors.row(self.at(strip, position), width);
            for channel in 0..width {
                let first = std::array::from_fn(|k| planes[k][channel]);
                let next = steps.map(|step| step[channel]);
                let both = M::then(first, next);
                for k in 0..N {
                    planes[k][channel] = both[k];
                }
            }
        }
    }

    /// Scans one strip after the other, each cut into chunks.
    fn scan_in_chunks<M: Steps<T, N>>(&self, operation: Operation) -> Result<()> {
        let strips = self.extents.outer * self.strips_across();
        (0..strips)
            .try_for_each(|strip| self.scan_strip_in_chunks::<M>(self.strip(strip), operation))
    }

    /// Scans a strip in waves of chunks.
    fn scan_strip_in_chunks<M: Steps<T, N>>(
        &self,
        strip: Strip,
        operation: Operation,
    ) -> Result<()> {
        let (len, width) = (self.extents.len, strip.width);
        let chunks = (WAVE / (CHUNK * width)).next_multiple_of(LANES).max(LANES);
        let mut composed = scratch(operation, chunks * N * width)?;
        let mut entering = scratch(operation, (chunks + 1) * width)?;
        let mut carries = scratch(operation, width)?;

        let mut wave = 0..len.min(chunks * CHUNK);
        while !wave.is_empty() {
            let count = wave.len().div_ceil(CHUNK);
            let chunk = |index: usize| {
                let start = wave.start + index * CHUNK;
                start..wave.end.min(start + CHUNK)
            };
            let begins = wave.start == 0;
            composed
                .par_chunks_mut(LANES * N * width)
                .take(count.div_ceil(LANES))
                .enumerate()
                .for_each(|(group, composed)| {
                    let group = group * LANES..count.min((group + 1) * LANES);
                    self.compose_group::<M>(strip, group.clone().map(chunk), composed);
                });
            // The carries that enter each chunk, and after them those that leave the wave. The first chunk of the
            // sequence has none, and leaves its last states.
            entering[..width].copy_from_slice(&carries);
            for index in 0..count {
                let (done, next) = entering.split_at_mut((index + 1) * width);
                for channel in 0..width {
                    let chunk: [T; N] =
                        std::array::from_fn(|k| composed[(index * N + k) * width + channel]);
                    next[channel] = if begins && index == 0 {
                        chunk[N - 1]
                    } else {
                        M::apply(done[index * width + channel], chunk)
                    };
                }
            }
            (0..count.div_ceil(LANES))
                .into_par_iter()
                .for_each(|group| {
                    let group = group * LANES..count.min((group + 1) * LANES);
                    let entering = &entering[group.start * width..group.end * width];
                    self.scan_group::<M>(strip, group.map(chunk), entering);
                });

            let last = |index| {
                let at = self.at(strip, chunk(index).end - 1);
                // SAFETY: the tasks have written the strip as far as the wave goes, and are done.
                unsafe { self.tensors.written(at, width) }
            };
            for channel in 0..width {
                let leaving = entering[count * width + channel];
                let finite =
                    leaving.is_finite() && (0..count).all(|index| last(index)[channel].is_finite());
                if finite {
                    carries[channel] = leaving;
                    continue;
                }
                let one = Strip {
                    first: strip.first + channel,
                    width: 1,
                };
                let start = if begins {
                    Start::Sequence
                } else {
                    Start::Carries(&carries[channel..=channel])
                };
                self.scan_strip::<M>(one, wave.clone(), start);
                carries[channel] = last(count - 1)[channel];
            }
            wave = wave.end..len.min(wave.end + chunks * CHUNK);
        }
        Ok(())
    }

    /// Composes each of some chunks.
    fn compose_group<M: Steps<T, N>>(
        &self,
        strip: Strip,
        chunks: impl Iterator<Item = Range<usize>>,
        composed: &mut [T],
    ) {
        let mut chunks: Vec<_> = chunks.collect();
        if self.extents.inner == 1 && chunks.len() == LANES {
            // The last one can be shorter.
            let shortest = chunks[LANES - 1].len();
            let firsts = std::array::from_fn(|lane| self.at(strip, chunks[lane].start));
            // SAFETY: each chunk has at least so many steps.
            let mut lanes = unsafe { self.compose_lanes::<M>(firsts, shortest) };
            for (lane, chunk) in lanes.iter_mut().zip(&chunks) {
                for position in chunk.start + shortest..chunk.end {
                    // SAFETY: it is a step of the strip.
                    *lane = M::then(*lane, unsafe {
                        self.tensors.read(self.at(strip, position))
                    });
                }
            }
            composed.copy_from_slice(lanes.as_flattened());
            return;
        }
        for (chunk, composed) in chunks
            .drain(..)
            .zip(composed.chunks_exact_mut(N * strip.width))
        {
            self.compose_strip::<M>(strip, chunk, composed);
        }
    }

    /// Scans each of some chunks from the carries that enter it.
    fn scan_group<M: Steps<T, N>>(
        &self,
        strip: Strip,
        chunks: impl Iterator<Item = Range<usize>>,
        entering: &[T],
    ) {
        let chunks: Vec<_> = chunks.collect();
        let whole = chunks
            .iter()
            .all(|chunk| chunk.len() == CHUNK && chunk.start > 0);
        if self.extents.inner == 1 && chunks.len() == LANES && whole {
            let firsts = std::array::from_fn(|lane| self.at(strip, chunks[lane].start));
            let carries = std::array::from_fn(|lane| entering[lane]);
            // SAFETY: the chunks are of this task alone, and as long.
            return unsafe { self.scan_lanes::<M>(firsts, carries, CHUNK) };
        }
        for (chunk, entering) in chunks.into_iter().zip(entering.chunks_exact(strip.width)) {
            let start = match chunk.start {
                0 => Start::Sequence,
                _ => Start::Carries(entering),
            };
            self.scan_strip::<M>(strip, chunk, start);
        }
    }
}

/// Memory for intermediate values.
fn scratch<T: Element>(operation: Operation, elements: usize) -> Result<Vec<T>> {
    let mut scratch = Vec::new();
    scratch
        .try_reserve_exact(elements)
        .map_err(|_| Error::OutOfHostMemory {
            operation,
            what: "scratch",
            bytes: elements * size_of::<T>(),
        })?;
    scratch.resize(elements, T::default());
    Ok(scratch)
}
