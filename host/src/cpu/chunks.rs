//! Rows that are cut into chunks.

use super::scan::{Scan, Strip};
use super::steps::Steps;
use super::{CHUNK, LANES, WAVE};
use crate::element::Element;
use crate::element::sealed::Arithmetic;
use crate::error::{Error, Result};
use crate::operation::Operation;
use rayon::prelude::*;
use std::ops::Range;

impl<T: Element, const N: usize, const K: usize> Scan<'_, T, N, K> {
    /// Scans a strip in waves of chunks.
    pub fn scan_in_chunks<M: Steps<T::State, N, K, P>, const P: usize>(
        &self,
        strip: &Strip,
        operation: Operation,
    ) -> Result<()> {
        let (len, width) = (strip.len(), strip.width);
        let chunks = (WAVE / (CHUNK * width))
            .next_multiple_of(LANES)
            .max(LANES)
            .min(len.div_ceil(CHUNK).next_multiple_of(LANES));
        let mut composed = scratch::<T::State>(operation, chunks * P * width)?;
        let mut entering = scratch::<T::State>(operation, (chunks + 1) * width)?;
        let mut leaving = scratch::<T::State>(operation, chunks * width)?;
        let mut carries = scratch(operation, width)?;
        self.enter(strip, &mut carries);

        let mut wave = 0..len.min(chunks * CHUNK);
        while !wave.is_empty() {
            let count = wave.len().div_ceil(CHUNK);
            let groups = count.div_ceil(LANES);
            let chunk = |index: usize| {
                let start = wave.start + index * CHUNK;
                start..wave.end.min(start + CHUNK)
            };
            let group = |number: usize| {
                let chunks = number * LANES..count.min((number + 1) * LANES);
                chunks.map(chunk).collect::<Vec<_>>()
            };
            composed
                .par_chunks_mut(LANES * P * width)
                .take(groups)
                .enumerate()
                .for_each(|(number, composed)| {
                    self.compose_group::<M, P>(strip, &group(number), composed);
                });
            // The carries that enter each chunk, and after them those that leave the wave.
            entering[..width].copy_from_slice(&carries);
            for index in 1..=count {
                let (done, next) = entering.split_at_mut(index * width);
                let before = index - 1;
                let restarts = self.last_restart::<M, P>(strip, &chunk(before)).is_some();
                for channel in 0..width {
                    let composed: [T::State; P] =
                        std::array::from_fn(|k| composed[(before * P + k) * width + channel]);
                    next[channel] = if restarts {
                        composed[P - 1]
                    } else {
                        M::apply(composed, done[before * width + channel])
                    };
                }
            }
            leaving
                .par_chunks_mut(LANES * width)
                .zip(entering.par_chunks(LANES * width))
                .take(groups)
                .enumerate()
                .for_each(|(number, (carries, entering))| {
                    carries.copy_from_slice(entering);
                    self.scan_group::<M, P>(strip, &group(number), carries);
                });

            for (channel, carry) in carries.iter_mut().enumerate() {
                let mut ends = (0..count).flat_map(|index| {
                    let channel = index * width + channel;
                    [leaving[channel], entering[channel + width]]
                });
                if ends.all(T::State::is_finite) {
                    // The last state is that of the last step; on the way, composed carries have fewer roundings.
                    let next = if wave.end == len {
                        &leaving[(count - 1) * width..]
                    } else {
                        &entering[count * width..]
                    };
                    *carry = next[channel];
                } else {
                    let carry = std::slice::from_mut(carry);
                    self.scan_strip::<M, P>(&strip.one(channel), wave.clone(), carry);
                }
            }
            wave = wave.end..len.min(wave.end + chunks * CHUNK);
        }
        self.leave(strip, &carries);
        Ok(())
    }

    /// Composes each of some chunks.
    fn compose_group<M: Steps<T::State, N, K, P>, const P: usize>(
        &self,
        strip: &Strip,
        chunks: &[Range<usize>],
        composed: &mut [T::State],
    ) {
        let restarts = |chunk| self.last_restart::<M, P>(strip, chunk).is_some();
        if let Some((lanes, shortest)) = self.lanes(strip, chunks)
            && shortest > 0
            && !chunks.iter().any(restarts)
        {
            let mut lanes = self.compose_lanes::<M, P>(&lanes, shortest);
            for (lane, chunk) in lanes.iter_mut().zip(chunks) {
                for position in chunk.start + shortest..chunk.end {
                    *lane = M::then(*lane, self.map::<M, P>(self.at(strip, position)));
                }
            }
            composed.copy_from_slice(lanes.as_flattened());
            return;
        }
        for (chunk, composed) in chunks
            .iter()
            .zip(composed.chunks_exact_mut(P * strip.width))
        {
            self.compose_strip::<M, P>(strip, chunk.clone(), composed);
        }
    }

    /// Scans each of some chunks from the carry that enters it to the one that leaves it.
    fn scan_group<M: Steps<T::State, N, K, P>, const P: usize>(
        &self,
        strip: &Strip,
        chunks: &[Range<usize>],
        carries: &mut [T::State],
    ) {
        let mut done = 0;
        if let Some((lanes, shortest)) = self.lanes(strip, chunks)
            && let Ok(carries) = carries.as_mut().try_into()
        {
            self.scan_lanes::<M, P>(&lanes, shortest, carries);
            done = shortest;
        }
        for (chunk, carries) in chunks.iter().zip(carries.chunks_exact_mut(strip.width)) {
            self.scan_strip::<M, P>(strip, chunk.start + done..chunk.end, carries);
        }
    }

    /// Where the chunks begin, if they can be scanned side by side, and how many steps all of them have.
    fn lanes(
        &self,
        strip: &Strip,
        chunks: &[Range<usize>],
    ) -> Option<([(Strip, usize); LANES], usize)> {
        let chunks: &[_; LANES] = chunks.try_into().ok().filter(|_| self.inner == 1)?;
        let shortest = chunks.iter().map(Range::len).min().unwrap_or(0);
        Some((
            chunks.each_ref().map(|chunk| (strip.clone(), chunk.start)),
            shortest,
        ))
    }
}

/// Memory for intermediate values.
fn scratch<S: Clone + Default>(operation: Operation, elements: usize) -> Result<Vec<S>> {
    let mut scratch = Vec::new();
    scratch
        .try_reserve_exact(elements)
        .map_err(|_| Error::OutOfHostMemory {
            operation,
            what: "scratch",
            bytes: elements * size_of::<S>(),
        })?;
    scratch.resize(elements, S::default());
    Ok(scratch)
}
