//! The scan of short rows: a warp scans many of them at once, some lanes each.
//!
//! A row has as many lanes as it has vectors, or a few more: a power of two of them. A warp's rows are one piece of memory. Where each has
//! whole vectors, lanes load and store theirs; else the piece goes through shared memory, so that the memory is accessed in vectors all
//! the same.
//!
//! Vectors, and the scan over the lanes, are those of [`rows`](crate::rows), so that the bits are the same; also where the carry of a row
//! comes out infinite or NaN, and its lanes take it through their steps one after the other.

use crate::{
    arrays::{Arrays, Options},
    block,
    direction::{Order, index, order},
    monoid::{Action, Carry, Monoid, Operator, Step},
    rows::Results,
    tile::Items,
    tiling::{WARP_THREADS, short_rows::WARPS},
};
use cuda_std::{
    Global, Scalar, Shared, shared, thread,
    warp::{FULL_MASK, shuffle_idx, shuffle_up, sync_warp, vote_all, vote_ballot},
};

/// Scans each of `rows` rows of `len` steps, with `width` lanes for each.
///
/// # Safety
/// - The inputs and the outputs have `rows · len` elements; the inputs are written, and do not overlap the outputs. The arrays that the
///   options name have an element for each row.
/// - `width` is a power of two, at most 32, and `width · V ≥ len`.
/// - The grid has a block for every `WARPS · K · 32 / width` rows, counted by [`block::index`]; a block is of
///   [`THREADS`](crate::tiling::short_rows::THREADS) threads, and the launch has
///   [`shared_bytes`](crate::tiling::short_rows::shared_bytes) of dynamic shared memory.
#[inline(always)]
pub unsafe fn scan_short_rows<S, E, D, const I: usize, const K: usize, const V: usize>(
    arrays: &Arrays<S, E, I>,
    rows: u64,
    len: u64,
    width: u64,
    options: u64,
) where
    S: Operator<E, I>,
    E: Scalar,
    D: Order,
{
    let (rows, len, options) = (rows as usize, len as usize, Options(options));
    // At least 1: a division that cannot panic leaves no panic in the PTX.
    let width = (width as u32).max(1);
    let of_subtile = WARP_THREADS as u32 / width;
    let of_warp = K as u32 * of_subtile;
    let lane = thread::thread_idx_x() % WARP_THREADS as u32;
    let warp = thread::thread_idx_x() as usize / WARP_THREADS;
    let first = (block::index() * WARPS + warp) * of_warp as usize;
    if first >= rows {
        return;
    }
    let count = (rows - first).min(of_warp as usize);
    let position = (lane % width) as usize * V;
    let row = |k: usize| (k as u32 * of_subtile + lane / width) as usize;
    let is_there = |k: usize| row(k) < count && position < len;
    let start = first * len;

    // SAFETY: the warp's rows lie in the arrays, and no other warp accesses them in the outputs. It has a buffer for as many elements as it
    // holds. All its lanes are together at each shuffle, vote and barrier.
    unsafe {
        let piece = Piece::<E, K, V> {
            buffer: shared::dynamic_shared_mem::<E>().add(warp * (K * WARP_THREADS * V)),
            len: count * len,
            lane: lane as usize,
        };
        let mut are_vectors = len.is_multiple_of(V);
        let mut i = 0;
        while i < I {
            are_vectors &= arrays.inputs[i].is_aligned_to::<V>();
            i += 1;
        }
        let [output] = arrays.outputs;
        are_vectors &= output.is_aligned_to::<V>();
        // Where the vector of a lane begins, or one of its elements lies, from the first row on.
        let vector_at = |k: usize| row(k) * len + index::<D>(position, V, len);
        let element_at = |k: usize, j: usize| {
            let is_there = row(k) < count && position + j < len;
            is_there.then(|| row(k) * len + index::<D>(position + j, 1, len))
        };

        let mut elements = [S::PADDING_ELEMENTS.map(|element| [element; V]); K];
        if are_vectors {
            let mut k = 0;
            while k < K {
                if is_there(k) {
                    let mut i = 0;
                    while i < I {
                        let vector = arrays.inputs[i].read_vector_streaming(start + vector_at(k));
                        elements[k][i] = order::<D, _, V>(vector);
                        i += 1;
                    }
                }
                k += 1;
            }
        } else {
            let loaded: [_; I] = core::array::from_fn(|i| {
                piece.load(arrays.inputs[i].add(start), S::PADDING_ELEMENTS[i])
            });
            let mut i = 0;
            while i < I {
                if i > 0 {
                    // What others read there is in their registers.
                    sync_warp(FULL_MASK);
                }
                piece.put(&loaded[i]);
                sync_warp(FULL_MASK);
                let mut k = 0;
                while k < K {
                    let mut j = 0;
                    while j < V {
                        if let Some(at) = element_at(k, j) {
                            elements[k][i][j] = piece.buffer.read(at);
                        }
                        j += 1;
                    }
                    k += 1;
                }
                i += 1;
            }
        }
        let mut items: Items<S, K, V> = [[S::PADDING; V]; K];
        let mut carries = [S::Aggregate::START; K];
        let mut k = 0;
        while k < K {
            items[k] = S::gather(|i| elements[k][i]);
            if position == 0 && !options.has(Options::INITIAL) {
                items[k][0] = items[k][0].as_first();
            }
            if row(k) < count {
                carries[k] = arrays.start(options, first + row(k), len);
            }
            k += 1;
        }

        let scanned = scan_lanes_of_rows(&items, lane, width);
        let mut entering = carries;
        let mut after = carries;
        let mut finite = [true; K];
        let mut emitted = [[S::PADDING_ELEMENTS[0]; V]; K];
        let mut careful = false;
        loop {
            let mut all_finite = true;
            let mut k = 0;
            while k < K {
                if !careful {
                    entering[k] = scanned[k].below.apply(carries[k]);
                    after[k] = scanned[k].total.apply(carries[k]);
                }
                let results = Results::new::<S, D, I, V>(&[items[k]], [entering[k]], options);
                emitted[k] = results.vectors[0][0].elements();
                let of_lane = results.finite & S::Aggregate::is_finite_carry(after[k]);
                all_finite &= of_lane;
                finite[k] = of_lane;
                k += 1;
            }
            if careful || vote_all(FULL_MASK, all_finite) {
                break;
            }
            careful = true;
            let mut k = 0;
            while k < K {
                let lanes_of_row =
                    (u32::MAX >> (WARP_THREADS as u32 - width)) << (lane / width * width);
                let is_finite = !vote_ballot(FULL_MASK, finite[k]) & lanes_of_row == 0;
                let (serial_entering, serial) = replay(&items[k], carries[k], lane, width);
                if !is_finite {
                    entering[k] = serial_entering;
                    after[k] = serial;
                }
                k += 1;
            }
        }

        let mut k = 0;
        while k < K {
            if options.has(Options::FINAL) && position == 0 && row(k) < count {
                arrays.last.write(first + row(k), after[k]);
            }
            k += 1;
        }
        let mut k = 0;
        while k < K {
            if !are_vectors {
                // Each lane writes where it has read.
                let vector = order::<D, _, V>(emitted[k]);
                let mut j = 0;
                while j < V {
                    if let Some(at) = element_at(k, j) {
                        piece.buffer.write(at, vector[j]);
                    }
                    j += 1;
                }
            } else if is_there(k) {
                output.write_vector_streaming(start + vector_at(k), emitted[k]);
            }
            k += 1;
        }
        if !are_vectors {
            sync_warp(FULL_MASK);
            piece.store(output.add(start));
        }
    }
}

/// What a lane learns of the other lanes of its row.
#[derive(Clone, Copy)]
struct Scanned<M> {
    /// The composition of the vectors before the lane's.
    below: M,
    /// That of all vectors.
    total: M,
}

/// Scans the vectors of rows of `width` lanes, as [`warp::inclusive_scan`](crate::warp::inclusive_scan) does those of a warp.
///
/// # Safety
/// All lanes of the warp call it together; `lane` is the caller's.
#[inline(always)]
unsafe fn scan_lanes_of_rows<S: Step, const K: usize, const V: usize>(
    items: &Items<S, K, V>,
    lane: u32,
    width: u32,
) -> [Scanned<S::Aggregate>; K] {
    let of_row = lane % width;
    let mut inclusive = [S::Aggregate::IDENTITY; K];
    let mut k = 0;
    while k < K {
        inclusive[k] = items[k][0].aggregate();
        let mut j = 1;
        while j < V {
            inclusive[k] = inclusive[k].then(items[k][j].aggregate());
            j += 1;
        }
        k += 1;
    }
    // SAFETY: all lanes are here, says the caller; the lanes that are read from are in the warp.
    unsafe {
        let mut distance = 1;
        while distance < width {
            let mut k = 0;
            while k < K {
                let before = shuffle_up(FULL_MASK, inclusive[k], distance);
                if of_row >= distance {
                    inclusive[k] = before.then(inclusive[k]);
                }
                k += 1;
            }
            distance *= 2;
        }
        inclusive.map(|inclusive| {
            let before = shuffle_idx(FULL_MASK, inclusive, lane.saturating_sub(1));
            Scanned {
                below: if of_row == 0 {
                    S::Aggregate::IDENTITY
                } else {
                    before
                },
                total: shuffle_idx(FULL_MASK, inclusive, lane - of_row + (width - 1)),
            }
        })
    }
}

/// The carry that enters the lane's vector, and the one after its row, found by taking the row's carry through all steps in serial order.
///
/// # Safety
/// All lanes of the warp call it together, those of a row with the same `carry`; `lane` is the caller's.
#[inline(always)]
unsafe fn replay<S: Step, const V: usize>(
    items: &[S; V],
    carry: Carry<S>,
    lane: u32,
    width: u32,
) -> (Carry<S>, Carry<S>) {
    let of_row = lane % width;
    let (mut entering, mut state) = (carry, carry);
    let mut owner = 0;
    while owner < width {
        if owner == of_row {
            entering = state;
        }
        let mut j = 0;
        while j < V {
            state = items[j].after(state);
            j += 1;
        }
        // SAFETY: all lanes are here, says the caller; the owner is in the warp.
        state = unsafe { shuffle_idx(FULL_MASK, state, lane - of_row + owner) };
        owner += 1;
    }
    (entering, state)
}

/// The piece of memory that a warp's rows are, and a place for it in shared memory.
struct Piece<E, const K: usize, const V: usize> {
    buffer: Shared<E>,
    /// Elements.
    len: usize,
    lane: usize,
}

impl<E: Scalar, const K: usize, const V: usize> Piece<E, K, V> {
    /// Element `j` of the lane's vector `k`, if it is there: lanes side by side have neighbouring vectors, or where those are not aligned
    /// neighbouring elements.
    #[inline(always)]
    fn at(&self, is_aligned: bool, k: usize, j: usize) -> (usize, bool) {
        let at = if is_aligned {
            (k * WARP_THREADS + self.lane) * V + j
        } else {
            (k * V + j) * WARP_THREADS + self.lane
        };
        (at, at < self.len)
    }

    /// What memory holds of the lane's vectors of the piece that begins at `source`, and whether it is aligned; `otherwise` where the piece
    /// has no element.
    ///
    /// # Safety
    /// The piece lies there, and is not written.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    unsafe fn load(&self, source: Global<E>, otherwise: E) -> ([[E; V]; K], bool) {
        let is_aligned = source.is_aligned_to::<V>();
        let mut vectors = [[otherwise; V]; K];
        let mut k = 0;
        while k < K {
            // SAFETY: what is read lies in the piece.
            unsafe {
                let (first, _) = self.at(is_aligned, k, 0);
                if is_aligned && first + V <= self.len {
                    vectors[k] = source.read_vector_streaming(first);
                } else {
                    let mut j = 0;
                    while j < V {
                        let (at, is_there) = self.at(is_aligned, k, j);
                        if is_there {
                            vectors[k][j] = source.read(at);
                        }
                        j += 1;
                    }
                }
            }
            k += 1;
        }
        (vectors, is_aligned)
    }

    /// Puts what was [loaded](Self::load) where it belongs in shared memory.
    ///
    /// # Safety
    /// No other warp accesses the buffer, and since a lane of this one did the warp was together.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    unsafe fn put(&self, (vectors, is_aligned): &([[E; V]; K], bool)) {
        let mut k = 0;
        while k < K {
            let (first, _) = self.at(*is_aligned, k, 0);
            // SAFETY: the buffer has a place for each element that the warp can hold.
            unsafe {
                if *is_aligned {
                    self.buffer.write_vector(first, vectors[k]);
                } else {
                    let mut j = 0;
                    while j < V {
                        self.buffer.write(self.at(false, k, j).0, vectors[k][j]);
                        j += 1;
                    }
                }
            }
            k += 1;
        }
    }

    /// Stores what shared memory holds of the piece, which begins at `target`.
    ///
    /// # Safety
    /// The piece is there, no other thread accesses it, and the warp was together since it was written to shared memory.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    unsafe fn store(&self, target: Global<E>) {
        let is_aligned = target.is_aligned_to::<V>();
        let mut k = 0;
        while k < K {
            // SAFETY: what is written lies in the piece, and has its place in shared memory.
            unsafe {
                let (first, _) = self.at(is_aligned, k, 0);
                if is_aligned && first + V <= self.len {
                    let vector = self.buffer.read_vector::<V>(first);
                    target.write_vector_streaming(first, vector);
                } else {
                    let mut j = 0;
                    while j < V {
                        let (at, is_there) = self.at(is_aligned, k, j);
                        if is_there {
                            target.write_vector_streaming(at, [self.buffer.read(at)]);
                        }
                        j += 1;
                    }
                }
            }
            k += 1;
        }
    }
}
