//! The scan of many short sequences: a lane takes its channels through all their steps, and no lane waits for another.
//!
//! A lane has a few channels, which are neighbours in memory where its accesses can be vectors; else its channels lie a warp apart, so
//! that neighbouring lanes still access neighbours. It loads a run of steps, and takes the carry through them while other warps load.
//!
//! Runs of steps, tiles and groups are those of [`columns`](crate::columns), and are joined as there, so that the bits are the same. Where some
//! carry of a warp comes out infinite or NaN, the warp scans its channels once more, and takes those tiles in serial order in which that
//! happens.

use crate::{
    arrays::{Arrays, Options},
    block,
    chain::Chain,
    direction::{Direction, Order, index},
    monoid::{Action, Carry, Monoid, Operator},
    strip::{Results, Steps, compose_from},
    tiling::{
        WARP_THREADS,
        columns::{GROUP, STEPS, TILE},
        lanes::{RUN, THREADS},
    },
};
use cuda_std::{Global, Scalar, hint::opaque, thread, warp};

/// Scans each channel of `outer` × `len` × `inner` elements along `len`.
///
/// # Safety
/// - The inputs and the outputs have `outer · len · inner` elements; the inputs are written, and do not overlap the outputs. The arrays that
///   the options name have an element for each sequence.
/// - The grid has a [block](crate::tiling::lanes::blocks) for every so many channels, counted by [`block::index`]; a block is of
///   [`THREADS`] threads.
#[inline(always)]
pub unsafe fn scan_lanes<S, E, D, const I: usize, const O: usize, const V: usize, const C: usize>(
    arrays: &Arrays<S, E, I, O>,
    outer: u64,
    len: u64,
    inner: u64,
    options: u64,
) where
    S: Operator<E, I, O>,
    E: Scalar,
    D: Order,
{
    let (outer, len) = (outer as usize, len as usize);
    // At least 1: a division that cannot panic leaves no panic in the PTX.
    let inner = (inner as usize).max(1);
    let options = Options(options);
    let thread = thread::thread_idx_x() as usize;
    let lane = thread % WARP_THREADS;
    let first = (block::index() * THREADS + thread - lane) * C;
    let end = outer * inner;
    if first < end {
        // SAFETY: says the caller; the sequences are the warp's.
        unsafe {
            scan_sequences::<S, E, D, I, O, C>(
                arrays, options, first, end, lane, len, inner, false,
            );
        }
    }
}

/// Scans as many sequences from number `first` on as the warp's lanes have channels, as far as they come before `end`. If `careful`, at once
/// in serial order.
///
/// # Safety
/// As [`scan_lanes`], but for the grid: no other thread accesses what the sequences have in the outputs. All lanes of the warp call it
/// together, each with its number; `first < end`.
#[inline(always)]
#[expect(
    clippy::too_many_arguments,
    reason = "those of the kernels, and what a warp has of them"
)]
pub unsafe fn scan_sequences<S, E, D, const I: usize, const O: usize, const C: usize>(
    arrays: &Arrays<S, E, I, O>,
    options: Options,
    first: usize,
    end: usize,
    lane: usize,
    len: usize,
    inner: usize,
    mut careful: bool,
) where
    S: Operator<E, I, O>,
    E: Scalar,
    D: Order,
{
    // SAFETY: the sequences lie in the arrays; only this lane writes them. The warp's lanes go through the same tiles, and vote together.
    unsafe {
        let channels = Channels::<S, E, D, I, O, C>::new(arrays, first, end, lane, len, inner);
        let tiles = len.div_ceil(TILE);
        loop {
            let mut carries = channels.carries(|sequence| arrays.start(options, sequence, len));
            let mut chains = carries.map(Chain::<S::Aggregate, GROUP>::new);
            let mut finite = true;
            let mut tile = 0;
            // A tile is looked at before it is stored, if it is not known which of its channels to take in serial order.
            let mut is_look = careful;
            let mut chosen = [false; C];
            while tile < tiles {
                let mut total = [S::Aggregate::IDENTITY; C];
                let mut aggregates = total;
                let mut last = carries;
                let mut found = [false; C];
                // Half a part at a time: for more of it there are no registers.
                let mut run = 0;
                while run < opaque(TILE / RUN) {
                    let position = tile * TILE + run * RUN;
                    if position >= len {
                        break;
                    }
                    let mut steps = channels.steps(position);
                    if position == 0 && !options.has(Options::INITIAL) {
                        steps[0] = steps[0].map(S::as_first);
                    }
                    let begins_part = run % (STEPS / RUN) == 0;
                    let ends_part = run % (STEPS / RUN) == STEPS / RUN - 1 || position + RUN >= len;
                    let mut entering = last;
                    if begins_part {
                        let mut c = 0;
                        while c < C {
                            if !chosen[c] {
                                entering[c] = total[c].apply(carries[c]);
                            }
                            c += 1;
                        }
                        aggregates = compose_from(1, steps[0].map(S::aggregate), &steps);
                    } else {
                        aggregates = compose_from(0, aggregates, &steps);
                    }
                    let results = Results::new(&steps, entering, options);
                    last = results.last;
                    if ends_part {
                        let worst = results.worst(entering);
                        let mut c = 0;
                        while c < C {
                            found[c] |= !S::Aggregate::is_finite_carry(worst[c]);
                            total[c] = if run < STEPS / RUN {
                                aggregates[c]
                            } else {
                                total[c].then(aggregates[c])
                            };
                            c += 1;
                        }
                    }
                    if !is_look {
                        channels.store(position, &results.values);
                    }
                    run += 1;
                }
                let mut after = [Chain::<S::Aggregate, GROUP>::new(S::Aggregate::START); C];
                let mut c = 0;
                while c < C {
                    after[c] = chains[c];
                    after[c].advance(tile as u32, total[c]);
                    found[c] |= !S::Aggregate::is_finite_carry(after[c].carry(tile as u32 + 1));
                    c += 1;
                }
                if is_look {
                    is_look = false;
                    chosen = found;
                    continue;
                }
                let mut c = 0;
                while c < C {
                    chains[c] = if chosen[c] {
                        Chain::new(last[c])
                    } else {
                        after[c]
                    };
                    carries[c] = chains[c].carry(tile as u32 + 1);
                    finite &= !found[c];
                    c += 1;
                }
                chosen = [false; C];
                is_look = careful;
                tile += 1;
            }
            if careful || warp::vote_all(warp::FULL_MASK, finite) {
                if options.has(Options::FINAL) {
                    channels.each(|sequence, c| arrays.last.write(sequence, carries[c]));
                }
                return;
            }
            careful = true;
        }
    }
}

/// The channels of a lane.
struct Channels<S: Operator<E, I, O>, E: Scalar, D, const I: usize, const O: usize, const C: usize>
{
    inputs: [Global<E>; I],
    outputs: [Global<E>; O],
    /// Where the sequences of the channels begin: of neighbours, the first one's.
    starts: [usize; C],
    /// Sequence numbers, of which those from `end` on are not there.
    first: usize,
    apart: usize,
    end: usize,
    /// Whether the channels are neighbours, and accesses to all of them at once are aligned.
    is_aligned: bool,
    len: usize,
    inner: usize,
    scan: core::marker::PhantomData<(S, D)>,
}

impl<S: Operator<E, I, O>, E: Scalar, D: Order, const I: usize, const O: usize, const C: usize>
    Channels<S, E, D, I, O, C>
{
    /// Those of lane `lane` of a warp whose first sequence has number `first`, as far as they come before `end`.
    ///
    /// # Safety
    /// The arrays have all the sequences, of which there is one at least.
    #[inline(always)]
    unsafe fn new(
        arrays: &Arrays<S, E, I, O>,
        first: usize,
        end: usize,
        lane: usize,
        len: usize,
        inner: usize,
    ) -> Self {
        let mut is_aligned = inner.is_multiple_of(C);
        let mut k = 0;
        while k < I {
            is_aligned &= arrays.inputs[k].is_aligned_to::<C>();
            k += 1;
        }
        let mut o = 0;
        while o < O {
            is_aligned &= arrays.outputs[o].is_aligned_to::<C>();
            o += 1;
        }
        let mut channels = Self {
            inputs: arrays.inputs,
            outputs: arrays.outputs,
            starts: [0; C],
            first: first + if is_aligned { lane * C } else { lane },
            apart: if is_aligned { 1 } else { WARP_THREADS },
            end,
            is_aligned,
            len,
            inner,
            scan: core::marker::PhantomData,
        };
        // What is beyond the last sequence reads the last ones, and writes nothing.
        if is_aligned {
            channels.starts[0] = channels.start(channels.end - C, 0);
        } else {
            let mut c = 0;
            while c < C {
                channels.starts[c] = channels.start(channels.end - 1, c);
                c += 1;
            }
        }
        channels
    }

    /// Where the sequence of channel `c` begins, or sequence `last` if that comes before it.
    #[inline(always)]
    fn start(&self, last: usize, c: usize) -> usize {
        let sequence = self.sequence(c).min(last);
        // A division of 32 bits takes a fraction of the time.
        let (outer, channel) = match (u32::try_from(sequence), u32::try_from(self.inner)) {
            (Ok(sequence), Ok(inner)) => {
                let inner = inner.max(1);
                ((sequence / inner) as usize, (sequence % inner) as usize)
            }
            _ => (sequence / self.inner.max(1), sequence % self.inner.max(1)),
        };
        outer * (self.len * self.inner) + channel
    }

    #[inline(always)]
    fn sequence(&self, c: usize) -> usize {
        self.first + c * self.apart
    }

    /// Calls `each` with the number of every sequence of the lane, and of its channel.
    #[inline(always)]
    fn each(&self, each: impl Fn(usize, usize)) {
        let mut c = 0;
        while c < C {
            if self.sequence(c) < self.end {
                each(self.sequence(c), c);
            }
            c += 1;
        }
    }

    /// A carry for each channel; `carry` gives that of a sequence.
    #[inline(always)]
    fn carries(&self, carry: impl Fn(usize) -> Carry<S>) -> [Carry<S>; C] {
        let mut carries = [S::Aggregate::START; C];
        let mut c = 0;
        while c < C {
            if self.sequence(c) < self.end {
                carries[c] = carry(self.sequence(c));
            }
            c += 1;
        }
        carries
    }

    /// Where the steps at `position` and after lie, from the first ones in memory on. It is reckoned anew for each run of steps: addresses of
    /// all steps of all channels would take registers all the time.
    #[inline(always)]
    fn places(&self, position: usize) -> impl Fn(usize) -> usize {
        let inner = opaque(self.inner);
        let first = opaque(index::<D>(position, 1, self.len) * self.inner);
        move |t| match D::DIRECTION {
            Direction::Forward => first.wrapping_add(t * inner),
            Direction::Reverse => first.wrapping_sub(t * inner),
        }
    }

    /// The steps at `position` and after, padding after the last one.
    ///
    /// # Safety
    /// As [`new`](Self::new), and no thread writes them.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    unsafe fn steps(&self, position: usize) -> Steps<S, C, RUN> {
        let at = self.places(position);
        let count = self.len - position;
        // SAFETY: the steps that are read lie in the sequences, at an aligned address where they are read at once.
        unsafe {
            if self.is_aligned {
                let start = opaque(self.starts[0]);
                Self::up_to(count, |t| {
                    S::gather(|k| self.inputs[k].read_vector_streaming(start + at(t)))
                })
            } else {
                // Other lanes and later steps may read the same lines.
                let starts = self.starts.map(opaque);
                Self::up_to(count, |t| {
                    S::gather(|k| starts.map(|start| self.inputs[k].read(start + at(t))))
                })
            }
        }
    }

    /// So many steps or a whole run of them, and padding; `step` gives each.
    #[inline(always)]
    fn up_to(count: usize, step: impl Fn(usize) -> [S; C]) -> Steps<S, C, RUN> {
        let mut steps = [[S::PADDING; C]; RUN];
        // A whole run is a case of its own, so that all loads are under way before the first of them is waited for.
        if count >= RUN {
            let mut t = 0;
            while t < RUN {
                steps[t] = step(t);
                t += 1;
            }
        } else {
            let mut t = 0;
            while t < RUN {
                if t < count {
                    steps[t] = step(t);
                }
                t += 1;
            }
        }
        steps
    }

    /// Stores the results of the steps at `position` and after.
    ///
    /// # Safety
    /// As [`new`](Self::new), and no other thread accesses them.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    unsafe fn store(&self, position: usize, results: &Steps<S::Outputs, C, RUN>) {
        let at = self.places(position);
        let starts = self.starts.map(opaque);
        let count = self.len - position;
        let mut t = 0;
        while t < RUN {
            if t < count {
                let at = at(t);
                let elements = S::emit(results[t]);
                let mut o = 0;
                while o < O {
                    // SAFETY: the step lies in the sequences that are there, and its address is aligned if it is stored at once: then all channels
                    // of the lane are there if one is.
                    unsafe {
                        if !self.is_aligned {
                            self.each(|_, c| {
                                self.outputs[o]
                                    .write_vector_streaming(starts[c] + at, [elements[o][c]]);
                            });
                        } else if self.first < self.end {
                            self.outputs[o].write_vector_streaming(starts[0] + at, elements[o]);
                        }
                    }
                    o += 1;
                }
            }
            t += 1;
        }
    }
}
