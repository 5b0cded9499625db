//! The scan of narrow columns: of so few channels that a strip of [`columns`](crate::columns) would leave most lanes idle.
//!
//! A block takes several tiles at once: in a *turn*, as many as its lanes have room for their channels. Each channel of each tile is a
//! *virtual channel*, and they are those of a strip: a warp has the same 8 steps of every tile. Tiles of one sequence follow each
//! other; or, where they are few, there are those of several sequences. Either way what a turn reads of an input is one range of memory. The
//! block copies it to shared memory as it lies there, in vectors; results take the place of the first input, and leave in the same way.
//!
//! The tiles are joined as [`Chain`](crate::chain::Chain) joins them, but side by side: each lane composes the aggregates of those before
//! its own in the group, and takes what enters the turn through the groups that end before. So the results are those of
//! [`columns`](crate::columns), to the bit. Where some carry comes out infinite or NaN, the block's sequences are
//! scanned once more, each by a [lane](crate::lanes).

use crate::{
    arrays::{Arrays, Options},
    block,
    direction::{Direction, Order, index},
    lanes::scan_sequences,
    monoid::{Action, Carry, Monoid, Operator},
    slots::{Slots, words},
    strip::{Results, compose},
    tiling::{
        WARP_THREADS,
        columns::{self, GROUP, STEPS, THREADS, TILE, WARPS},
        narrow::{self, Turns, paddings, turns},
    },
};
use core::marker::PhantomData;
use cuda_std::{
    Scalar, async_copy,
    hint::{opaque, opaque_word},
    shared, thread, warp,
};

/// A turn: the sequences from `unit · sequences` on, or one of the turns of one.
#[derive(Clone, Copy)]
struct Turn {
    unit: usize,
    number: u32,
}

impl Turn {
    /// The one after it.
    #[inline(always)]
    fn next(self, turns: u32) -> Self {
        if self.number + 1 < turns {
            Self {
                number: self.number + 1,
                ..self
            }
        } else {
            Self {
                unit: self.unit + 1,
                number: 0,
            }
        }
    }
}

/// The sequences, and how they are taken.
struct Tensor<D> {
    outer: usize,
    len: usize,
    inner: usize,
    turns: Turns,
    order: PhantomData<D>,
}

/// What a turn has of the tensor.
#[derive(Clone, Copy)]
struct Range {
    /// The first element.
    first: usize,
    /// Sequences.
    sequences: u32,
    /// Steps of each.
    steps: u32,
    /// Elements.
    count: u32,
}

impl<D: Order> Tensor<D> {
    /// Tiles of a sequence, and one where there are no steps.
    #[inline(always)]
    fn tiles(&self) -> usize {
        self.len.div_ceil(TILE).max(1)
    }

    #[inline(always)]
    fn range(&self, turn: Turn) -> Range {
        let Turns {
            sequences, steps, ..
        } = self.turns;
        let sequence = turn.unit * sequences;
        let position = turn.number as usize * steps;
        let steps = steps.min(self.len - position);
        let sequences = sequences.min(self.outer - sequence) as u32;
        Range {
            first: (sequence * self.len + index::<D>(position, steps, self.len)) * self.inner,
            sequences,
            steps: steps as u32,
            count: sequences * steps as u32 * self.inner as u32,
        }
    }
}

/// A virtual channel, of a lane.
#[derive(Clone, Copy)]
struct Virtual {
    /// Its number. Lanes that are more than there are have the last one too, and write nothing.
    number: u32,
    is_own: bool,
    channel: u32,
    /// Of the turn's.
    sequence: u32,
    /// Of the turn's tiles of the sequence.
    tile: u32,
}

impl Virtual {
    #[inline(always)]
    fn new(number: u32, inner: u32, turns: &Turns) -> Self {
        let count = turns.sequences as u32 * turns.tiles as u32 * inner;
        let own = number;
        let number = number.min(count - 1);
        // Not 0: a division that cannot panic leaves no panic in the PTX.
        let (inner, tiles) = (inner.max(1), (turns.tiles as u32).max(1));
        Self {
            number,
            is_own: number == own,
            channel: number % inner,
            sequence: number / inner / tiles,
            tile: number / inner % tiles,
        }
    }

    /// How many of the [`STEPS`] from the warp's first one on are there.
    #[inline(always)]
    fn present(&self, row: u32, range: &Range) -> u32 {
        if self.sequence < range.sequences {
            let steps = range.steps.saturating_sub(self.tile * TILE as u32 + row);
            steps.min(STEPS as u32)
        } else {
            0
        }
    }

    /// Where in the stage the first of them is, if it is there, of a range that begins at `head`.
    #[inline(always)]
    fn first<D: Order>(&self, row: u32, inner: u32, range: &Range, head: u32) -> u32 {
        let step = self.tile * TILE as u32 + row;
        let step = match D::DIRECTION {
            Direction::Forward => step,
            Direction::Reverse => range.steps.wrapping_sub(1 + step),
        };
        (self.sequence * range.steps)
            .wrapping_add(step)
            .wrapping_mul(inner)
            .wrapping_add(self.channel + head)
    }
}

/// Where a range lies in a stage: from element `head` on. So element 0 is there for `base` of the arrays, where vectors are aligned.
#[derive(Clone, Copy)]
struct Span {
    base: usize,
    head: u32,
    end: u32,
}

impl Span {
    #[inline(always)]
    fn new<const V: usize>(range: &Range, aligned: bool) -> Self {
        let head = if aligned { range.first % V } else { 0 };
        Self {
            base: range.first - head,
            head: head as u32,
            end: head as u32 + range.count,
        }
    }

    /// Gives the vectors and the elements that are the thread's to `vector` and `element`. An element of a stage is always the same
    /// thread's, unless vectors are `aligned` in one span and not in another.
    #[inline(always)]
    fn each<const V: usize>(&self, aligned: bool, vector: impl Fn(u32), element: impl Fn(u32)) {
        let thread = thread::thread_idx_x();
        let (threads, width) = (THREADS as u32, V as u32);
        if !aligned {
            let mut at = thread;
            while at < self.end {
                element(at);
                at = opaque_word(at + threads);
            }
            return;
        }
        let first = thread * width;
        let mut at = first;
        if first < self.head {
            at += threads * width;
        }
        while at + width <= self.end {
            vector(at);
            at = opaque_word(at + threads * width);
        }
        // What is no whole vector, at the beginning and at the end.
        if self.head > 0 || !self.end.is_multiple_of(width) {
            let mut edge = if first < self.head { first } else { at };
            while edge < self.end {
                let mut one = edge.max(self.head);
                while one < self.end.min(edge + width) {
                    element(one);
                    one = opaque_word(one + 1);
                }
                edge = if edge < at { at } else { self.end };
            }
        }
    }
}

/// Scans each channel of `outer` × `len` × `inner` elements along `len`, with `stages` turns in shared memory.
///
/// # Safety
/// - The inputs and the output have `outer · len · inner` elements; the inputs are written, and do not overlap the output. The arrays
///   that the options name have as many elements as there are sequences.
/// - `inner` is not 0, and at most [`MOST_CHANNELS`](narrow::MOST_CHANNELS). 32 bits count the [`turns`].
/// - The grid has a block for every `units` of the [`units`](narrow::units), counted by [`block::index`]; a block is of
///   [`THREADS`] threads.
/// - `stages` is 2 or [`MAX_STAGES`](narrow::MAX_STAGES), and the launch has [`shared_bytes`](narrow::shared_bytes) of dynamic shared
///   memory for them.
#[inline(always)]
pub unsafe fn scan_narrow<S, E, D, const I: usize, const O: usize, const V: usize, const C: usize>(
    arrays: &Arrays<S, E, I, O>,
    outer: u64,
    len: u64,
    inner: u64,
    stages: u64,
    units: u64,
    options: u64,
) where
    S: Operator<E, I, O>,
    E: Scalar,
    D: Order,
{
    let (outer, len, inner) = (outer as usize, len as usize, inner as usize);
    let (stages, options) = (stages as u32, Options(options));
    let tensor = Tensor::<D> {
        outer,
        len,
        inner,
        turns: turns(len, inner, size_of::<E>()),
        order: PhantomData,
    };
    let Turns {
        sequences,
        tiles,
        turns,
        ..
    } = tensor.turns;
    let first_unit = block::index() * units as usize;
    let end_unit = (first_unit + units as usize).min(narrow::units(outer, &tensor.turns));
    if first_unit >= end_unit {
        return;
    }
    let channels = inner as u32;
    let lane = thread::thread_idx_x() % WARP_THREADS as u32;
    let warp = thread::thread_idx_x() / WARP_THREADS as u32;
    let row = warp * STEPS as u32;
    let (tiles, turns) = (tiles as u32, turns as u32);
    let virtuals: [Virtual; C] = core::array::from_fn(|c| {
        Virtual::new(lane + (c * WARP_THREADS) as u32, channels, &tensor.turns)
    });
    let mut aligned = arrays.outputs[0].is_aligned_to::<V>();
    let mut k = 0;
    while k < I {
        aligned &= arrays.inputs[k].is_aligned_to::<V>();
        k += 1;
    }

    // SAFETY: shared memory holds the aggregates of each warp, where `columns` has them, a line of aggregates for each warp, and the stages. The
    // ranges lie in the arrays; only this block writes them. All threads of the block go through the same turns, so that they are together
    // at each barrier and vote.
    unsafe {
        let shared = shared::dynamic_shared_mem::<u32>();
        let aggregates = Slots::<[S::Aggregate; C]>::new(shared, WARPS * WARP_THREADS);
        let (aggregate, carry, element) = (
            size_of::<S::Aggregate>(),
            size_of::<Carry<S>>(),
            size_of::<E>(),
        );
        let after_columns =
            shared.add(columns::bytes_before_stages(aggregate, carry, element) / size_of::<u32>());
        let length = const { narrow::line(size_of::<E>()) };
        let line = Slots::<S::Aggregate>::new(
            after_columns.add(warp as usize * (words::<S::Aggregate>() * length)),
            length,
        );
        let before = narrow::bytes_before_stages(aggregate, carry, element) / element;
        let stage_elements = const { narrow::stage(size_of::<E>()) };
        let stage = |number: u32| {
            shared::dynamic_shared_mem::<E>().add(before + number as usize * (I * stage_elements))
        };
        let place = |element: u32| {
            let before = opaque_word(paddings(element));
            (element + before * V as u32) as usize
        };

        let mut turn = Turn {
            unit: first_unit,
            number: 0,
        };
        // The turn that is copied next, and its stage; how many turns are under way.
        let mut ahead = turn;
        let mut ahead_stage = 0;
        let mut under_way = 0;
        let mut current = 0;
        let mut bases = [S::Aggregate::START; C];
        let mut finite = true;
        while turn.unit < end_unit {
            if under_way < stages {
                if ahead.unit < end_unit {
                    let range = tensor.range(ahead);
                    let span = Span::new::<V>(&range, aligned);
                    let stage = stage(ahead_stage);
                    let inputs = arrays.inputs.map(|input| input.add(span.base));
                    // No other thread accesses the thread's part of the stage: it stored what was there last.
                    span.each::<V>(
                        aligned,
                        |at| {
                            let to = stage.add(place(at));
                            let mut k = 0;
                            while k < I {
                                to.copy_async::<V>(k * stage_elements, inputs[k], at as usize);
                                k += 1;
                            }
                        },
                        |at| {
                            let to = stage.add(place(at));
                            let mut k = 0;
                            while k < I {
                                to.copy_async::<1>(k * stage_elements, inputs[k], at as usize);
                                k += 1;
                            }
                        },
                    );
                    ahead = ahead.next(turns);
                }
                async_copy::commit();
                ahead_stage = if ahead_stage + 1 == stages {
                    0
                } else {
                    ahead_stage + 1
                };
                under_way += 1;
                continue;
            }
            under_way -= 1;
            let range = tensor.range(turn);
            let span = Span::new::<V>(&range, aligned);
            let present = virtuals.map(|v| v.present(row, &range));
            // What enters the sequences of a unit; then what enters the group that goes on in the next turn.
            if turn.number == 0 {
                let mut c = 0;
                while c < C {
                    bases[c] = S::Aggregate::START;
                    if virtuals[c].sequence < range.sequences {
                        let sequence = turn.unit * sequences + virtuals[c].sequence as usize;
                        let sequence = sequence * inner + virtuals[c].channel as usize;
                        bases[c] = arrays.start(options, sequence, len);
                    }
                    c += 1;
                }
            }
            if stages == 2 {
                async_copy::wait::<1>();
            } else {
                async_copy::wait::<2>();
            }
            // After this every thread sees the copies of this turn.
            thread::sync_threads();
            let stage = stage(current);
            let is_whole = warp::vote_all(warp::FULL_MASK, present == [STEPS as u32; C]);
            // Where in the stage the steps of the lane lie; of one that is not there, anywhere.
            let firsts = virtuals.map(|v| v.first::<D>(row, channels, &range, span.head));
            let next = |at: u32| match D::DIRECTION {
                Direction::Forward => at.wrapping_add(channels),
                Direction::Reverse => at.wrapping_sub(channels),
            };
            let step_at = |at: u32| -> S {
                let at = stage.add(place(at));
                let [step] = S::gather(|k| [at.read(k * stage_elements)]);
                step
            };
            let mut steps = [[S::PADDING; C]; STEPS];
            let mut c = 0;
            while c < C {
                let mut at = firsts[c];
                let mut t = 0;
                if is_whole {
                    while t < STEPS {
                        steps[t][c] = step_at(at);
                        at = next(at);
                        t += 1;
                    }
                } else {
                    while t < STEPS {
                        if (t as u32) < present[c] {
                            steps[t][c] = step_at(at);
                        }
                        at = next(at);
                        t += 1;
                    }
                }
                let is_first = turn.number == 0 && warp == 0 && virtuals[c].tile == 0;
                if is_first && !options.has(Options::INITIAL) {
                    steps[0][c] = steps[0][c].as_first();
                }
                c += 1;
            }

            let slot = |warp: u32| (warp * WARP_THREADS as u32 + lane) as usize;
            aggregates.write(slot(warp), compose(&steps));
            // The aggregates are read after all of them are written.
            thread::sync_threads();
            let mut before = [S::Aggregate::IDENTITY; C];
            let mut total = before;
            // Else the comparisons with it take a register from before the loop on.
            let this_warp = opaque(warp as usize) as u32;
            let mut w = 0;
            while w < WARPS as u32 {
                if w == this_warp {
                    before = total;
                }
                let of_warp = aggregates.read(slot(w), total);
                let mut c = 0;
                while c < C {
                    total[c] = if w == 0 {
                        of_warp[c]
                    } else {
                        total[c].then(of_warp[c])
                    };
                    c += 1;
                }
                w += 1;
            }

            // What enters the group of each lane's tile, the aggregate of what is before the tile there, if something is, and with the tile.
            let mut groups = bases;
            let mut counts = [0; C];
            let mut within = total;
            let mut through = total;
            if tiles > 1 || turns > 1 {
                let of_virtual = |c: usize| (channels + virtuals[c].number) as usize;
                let mut c = 0;
                while c < C {
                    if virtuals[c].is_own {
                        line.write(of_virtual(c), total[c]);
                    }
                    c += 1;
                }
                // They are read after all of them are written.
                warp::sync_warp(warp::FULL_MASK);
                // Of the sequence's tiles, the first one of the turn. What is before it counts as one.
                let first_tile = turn.number.wrapping_mul(tiles);
                counts = virtuals.map(|v| {
                    let position = first_tile.wrapping_add(v.tile) % GROUP as u32;
                    position.min(v.tile + 1)
                });
                let mut places = counts;
                let mut c = 0;
                while c < C {
                    places[c] = channels + virtuals[c].number - counts[c] * channels;
                    if counts[c] > 0 {
                        within[c] = line.read(places[c] as usize, total[c]);
                    }
                    c += 1;
                }
                let most = tiles.min(GROUP as u32 - 1);
                let mut i = 1;
                while i < most {
                    let mut c = 0;
                    while c < C {
                        places[c] += channels;
                        if i < counts[c] {
                            let of_tile = line.read(places[c] as usize, total[c]);
                            within[c] = within[c].then(of_tile);
                        }
                        c += 1;
                    }
                    i = opaque_word(i + 1);
                }
                // They are read before others take their place.
                warp::sync_warp(warp::FULL_MASK);
                let mut c = 0;
                while c < C {
                    if counts[c] > 0 {
                        through[c] = within[c].then(total[c]);
                    }
                    if virtuals[c].is_own {
                        line.write(of_virtual(c), through[c]);
                        // For the next turn.
                        if turns > 1 && virtuals[c].tile == tiles - 1 {
                            line.write(virtuals[c].channel as usize, through[c]);
                        }
                    }
                    c += 1;
                }
                // Those are read after all of them are written.
                warp::sync_warp(warp::FULL_MASK);
                let mut last = opaque_word(GROUP as u32 - 1 - first_tile % GROUP as u32);
                while last < tiles {
                    let mut c = 0;
                    while c < C {
                        let at = of_virtual(c) + (last * channels) as usize
                            - (virtuals[c].tile * channels) as usize;
                        bases[c] = line.read(at, total[c]).apply(bases[c]);
                        if last < virtuals[c].tile {
                            groups[c] = bases[c];
                        }
                        c += 1;
                    }
                    last = opaque_word(last + GROUP as u32);
                }
            }
            let mut entering = groups;
            let mut after = groups;
            let mut c = 0;
            while c < C {
                let carry = if counts[c] > 0 {
                    within[c].apply(groups[c])
                } else {
                    groups[c]
                };
                entering[c] = before[c].apply(carry);
                after[c] = through[c].apply(groups[c]);
                c += 1;
            }
            let results = Results::new(&steps, entering, options);
            // What is reckoned from these once more takes no registers meanwhile.
            let mut places = firsts.map(opaque_word);
            let mut t = 0;
            if is_whole {
                while t < STEPS {
                    let elements = S::emit(results.values[t])[0];
                    let mut c = 0;
                    while c < C {
                        if virtuals[c].is_own {
                            stage.write(place(places[c]), elements[c]);
                        }
                        places[c] = next(places[c]);
                        c += 1;
                    }
                    t += 1;
                }
            } else {
                while t < STEPS {
                    let elements = S::emit(results.values[t])[0];
                    let mut c = 0;
                    while c < C {
                        if virtuals[c].is_own && (t as u32) < present[c] {
                            stage.write(place(places[c]), elements[c]);
                        }
                        places[c] = next(places[c]);
                        c += 1;
                    }
                    t += 1;
                }
            }
            let worst = results.worst(entering);
            let mut c = 0;
            while c < C {
                finite &= S::Aggregate::is_finite_carry(worst[c])
                    & S::Aggregate::is_finite_carry(after[c]);
                let v = virtuals[c];
                let tile = turn.number as usize * tiles as usize + v.tile as usize;
                let is_last = tile + 1 == tensor.tiles() && v.sequence < range.sequences;
                if options.has(Options::FINAL) && warp == 0 && v.is_own && is_last {
                    let sequence = turn.unit * sequences + v.sequence as usize;
                    arrays
                        .last
                        .write(sequence * inner + v.channel as usize, after[c]);
                }
                c += 1;
            }
            // The results are stored after all of them are written.
            thread::sync_threads();
            let output = arrays.outputs[0].add(span.base);
            span.each::<V>(
                aligned,
                |at| output.write_vector_streaming::<V>(at as usize, stage.read_vector(place(at))),
                |at| output.write(at as usize, stage.read(place(at))),
            );
            turn = turn.next(turns);
            current = if current == stages - 1 {
                0
            } else {
                current + 1
            };
        }
        // Behind the aggregates, where `columns` has its votes.
        let votes = shared
            .add((2 * words::<S::Aggregate>() * WARPS + words::<Carry<S>>()) * (WARP_THREADS * C));
        if block::all(votes, finite) {
            return;
        }
        let end = outer.min(end_unit * sequences) * inner;
        let mut first = first_unit * sequences * inner + (warp as usize * WARP_THREADS);
        while first < end {
            scan_sequences::<S, E, D, I, O, 1>(
                arrays,
                options,
                first,
                end,
                lane as usize,
                len,
                inner,
                true,
            );
            first += THREADS;
        }
    }
}
