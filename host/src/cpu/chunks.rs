//! Strips and rows that are cut into chunks.

use super::layouts::Layouts;
use super::scan::{Scan, Strip};
use super::steps::Steps;
use super::tensors::Fence;
use super::{CHUNK_BYTES, WIDEST_STRIP};
use crate::element::Element;
use crate::element::sealed::Arithmetic;
use rayon::prelude::*;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A state for each channel of a strip.
pub type States<S> = [S; WIDEST_STRIP];

/// How the carries go from chunk to chunk. A thread that takes a chunk composes it, so that a cache has it; waits for its turn, that
/// is, for the carries that enter it; passes on those that leave it; and scans it.
struct Chain<S> {
    /// The next chunk to take.
    next: AtomicUsize,
    /// The chunk that `carries` enter.
    turn: AtomicUsize,
    carries: Mutex<States<S>>,
    /// What was passed on after the first chunk of which that turned out wrong, and what had been right.
    mistake: Mutex<Option<(usize, States<S>)>>,
    is_mistaken: AtomicBool,
}

impl<S: Copy> Chain<S> {
    fn new(chunk: usize, carries: States<S>) -> Self {
        Self {
            next: AtomicUsize::new(chunk),
            turn: AtomicUsize::new(chunk),
            carries: Mutex::new(carries),
            mistake: Mutex::new(None),
            is_mistaken: AtomicBool::new(false),
        }
    }

    /// A chunk to scan. Who takes it has to pass on what leaves it.
    fn take(&self, chunks: usize) -> Option<usize> {
        if self.is_mistaken.load(Ordering::Relaxed) {
            return None;
        }
        let chunk = self.next.fetch_add(1, Ordering::Relaxed);
        (chunk < chunks).then_some(chunk)
    }

    /// Waits until it is a chunk's turn.
    fn wait(&self, chunk: usize) -> MutexGuard<'_, States<S>> {
        const SPINS: u32 = 1000;
        let mut spins = 0;
        while self.turn.load(Ordering::Acquire) != chunk {
            if spins < SPINS {
                spins += 1;
                std::hint::spin_loop();
            } else {
                std::thread::yield_now();
            }
        }
        lock(&self.carries)
    }

    /// Passes on what leaves a chunk whose turn it is.
    fn pass(&self, chunk: usize, carries: &[S]) {
        lock(&self.carries)[..carries.len()].copy_from_slice(carries);
        self.turn.store(chunk + 1, Ordering::Release);
    }

    /// Notes that what was passed on after a chunk should have been this.
    fn correct(&self, chunk: usize, carries: &States<S>) {
        self.is_mistaken.store(true, Ordering::Relaxed);
        let mut mistake = lock(&self.mistake);
        if mistake.as_ref().is_none_or(|&(first, _)| chunk < first) {
            *mistake = Some((chunk, *carries));
        }
    }
}

fn lock<S>(mutex: &Mutex<S>) -> MutexGuard<'_, S> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T: Element, L: Layouts<N>, const N: usize, const K: usize> Scan<'_, T, L, N, K> {
    /// Steps in a chunk of a strip that is cut.
    pub fn chunk_steps(&self) -> usize {
        CHUNK_BYTES / size_of::<T>() / self.width
    }

    /// Scans a strip in chunks.
    pub fn scan_in_chunks<M: Steps<N, K, P>, const P: usize>(&self, strip: &Strip) {
        let strip = &Strip {
            is_cut: true,
            ..strip.clone()
        };
        let mut carries = [T::State::default(); WIDEST_STRIP];
        self.enter(strip, &mut carries[..strip.width]);
        let mut first = 0;
        loop {
            let chain = Chain::new(first, carries);
            (0..rayon::current_num_threads())
                .into_par_iter()
                .with_max_len(1)
                .for_each(|_| self.scan_chunks::<M, P>(strip, &chain));
            let mistake = chain.mistake.into_inner();
            match mistake.unwrap_or_else(PoisonError::into_inner) {
                // Chunks after it were scanned from the wrong carries.
                Some((chunk, corrected)) => (first, carries) = (chunk + 1, corrected),
                None => return,
            }
        }
    }

    /// Scans chunks of a strip as long as there are any.
    ///
    /// The carry from a chunk to the next is the composed one, if that and the last state of the chunk are finite, else that
    /// state: which of them does not depend on who does what when.
    fn scan_chunks<M: Steps<N, K, P>, const P: usize>(
        &self,
        strip: &Strip,
        chain: &Chain<T::State>,
    ) {
        let _fence = Fence;
        let width = strip.width;
        let chunks = strip.len().div_ceil(self.chunk_steps());
        let finite = |states: &[T::State]| states.iter().all(|state| state.is_finite());
        let mut composed = [[T::State::default(); WIDEST_STRIP]; P];
        let mut carries = [T::State::default(); WIDEST_STRIP];
        let mut next = carries;
        while let Some(chunk) = chain.take(chunks) {
            let start = chunk * self.chunk_steps();
            let positions = start..strip.len().min(start + self.chunk_steps());
            if chunk + 1 == chunks {
                carries = *chain.wait(chunk);
                self.scan_part::<M, P>(strip, positions, &mut carries[..width]);
                self.leave(strip, &carries[..width]);
                break;
            }
            let composed = &mut composed.as_flattened_mut()[..P * width];
            self.compose_part::<M, P>(strip, positions.clone(), composed);
            let restarts = self.last_restart::<M, P>(strip, &positions).is_some();
            carries = *chain.wait(chunk);
            for channel in 0..width {
                let mut numbers = [T::State::default(); P];
                for k in 0..P {
                    numbers[k] = composed[k * width + channel];
                }
                next[channel] = if restarts {
                    numbers[P - 1]
                } else {
                    M::apply(numbers, carries[channel])
                };
            }
            let is_passed = finite(&next[..width]);
            if is_passed {
                chain.pass(chunk, &next[..width]);
            }
            self.scan_part::<M, P>(strip, positions, &mut carries[..width]);
            if is_passed && finite(&carries[..width]) {
                continue;
            }
            for (next, &last) in next[..width].iter_mut().zip(&carries) {
                if !(next.is_finite() && last.is_finite()) {
                    *next = last;
                }
            }
            if is_passed {
                chain.correct(chunk, &next);
            } else {
                chain.pass(chunk, &next[..width]);
            }
        }
    }
}
