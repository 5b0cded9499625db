//! A lane's part of a tile of a row: guarded, vectorised loads and stores.

use crate::{
    arrays::{Arrays, Options},
    direction::{Direction, Order, first_of, index, order},
    layout::{Layout, Strided},
    monoid::{Action, Carry, Operator},
    tiling::WARP_THREADS,
};
use core::marker::PhantomData;
use cuda_std::{Global, Scalar, Shared};

/// What a lane holds of a tile: the vectors of `V` steps of `K` subtiles.
pub type Items<S, const K: usize, const V: usize> = [[S; V]; K];

/// A sequence whose steps are neighbours in memory.
pub struct Row<
    S: Operator<E, I, O>,
    E: Scalar,
    D,
    const I: usize,
    const V: usize,
    const O: usize = 1,
> {
    /// From the row on; with a mask, from its first step in memory on.
    inputs: [Global<E>; I],
    layouts: [S::Layout; I],
    outputs: [Global<E>; O],
    /// Steps.
    len: usize,
    /// Whether what begins at multiples of `V` positions is a vector, and aligned, in every array.
    aligned: bool,
    /// Whether the row has no initial state.
    fresh: bool,
    /// The initial state, in a backward scan.
    initial: Carry<S>,
    /// Whether there is a mask, and the row's part of it.
    is_masked: bool,
    mask: Global<u8>,
    scan: PhantomData<D>,
}

impl<S: Operator<E, I, O>, E: Scalar, D: Order, const I: usize, const V: usize, const O: usize>
    Row<S, E, D, I, V, O>
{
    /// Steps of a subtile.
    const SUBTILE: usize = WARP_THREADS * V;
    /// Whether a backward scan's end is seen to when items are there. With a mask they are waited for at once.
    const ENDS_LATE: bool = S::IS_BACKWARD && !S::IS_MASKED;

    /// The row of `len` steps that begins at element `start` of the arrays. With a mask, the inputs have
    /// [`layouts`](Self::with_layouts).
    ///
    /// # Safety
    /// Elements `start .. start + len` lie in the inputs, which are written, and in the outputs.
    #[inline(always)]
    #[must_use]
    pub unsafe fn new(
        arrays: &Arrays<S, E, I, O>,
        options: Options,
        start: usize,
        len: usize,
    ) -> Self {
        let Arrays {
            inputs, outputs, ..
        } = arrays;
        // The vectors are counted from the end of the row in memory at which the scan begins.
        let begin = start + index::<D>(0, 0, len);
        // SAFETY: the row lies in the arrays, says the caller, and `begin` is one of its ends.
        unsafe {
            let mut row = Self {
                inputs: *inputs,
                layouts: [S::Layout::of(Strided::default()); I],
                outputs: *outputs,
                len,
                aligned: true,
                fresh: !options.has(Options::INITIAL),
                initial: S::Aggregate::START,
                is_masked: S::IS_MASKED && options.has(Options::MASKED),
                mask: arrays.mask,
                scan: PhantomData,
            };
            let mut o = 0;
            while o < O {
                row.outputs[o] = outputs[o].add(start);
                row.aligned &= outputs[o].add(begin).is_aligned_to::<V>();
                o += 1;
            }
            if S::IS_MASKED {
                // `with_layouts` does that.
            } else {
                let mut i = 0;
                while i < I {
                    row.inputs[i] = inputs[i].add(start);
                    row.aligned &= inputs[i].add(begin).is_aligned_to::<V>();
                    i += 1;
                }
            }
            if row.is_masked {
                row.mask = arrays.mask.add(start);
            }
            row
        }
    }

    /// As [`new`](Self::new), where it is known already whether the vectors are aligned.
    ///
    /// # Safety
    /// As there.
    #[inline(always)]
    #[must_use]
    pub unsafe fn with_alignment(
        arrays: &Arrays<S, E, I, O>,
        options: Options,
        start: usize,
        len: usize,
        aligned: bool,
    ) -> Self {
        // SAFETY: says the caller.
        let row = unsafe { Self::new(arrays, options, start, len) };
        Self { aligned, ..row }
    }

    /// The row with inputs that have its elements there, with a mask.
    ///
    /// # Safety
    /// The inputs have as many elements as the row has steps, from the offsets on.
    #[inline(always)]
    #[must_use]
    pub unsafe fn with_layouts(mut self, layouts: [S::Layout; I]) -> Self {
        let mut i = 0;
        while i < I {
            let layout = layouts[i].strided();
            // Without steps, nothing is there.
            if self.len > 0 {
                // Vectors are counted from the end of the row in memory at which the scan begins.
                let begin = index::<D>(0, 0, self.len);
                // SAFETY: there is a step; where steps follow each other, the row has both its ends in the input.
                self.aligned &= unsafe {
                    self.inputs[i] = self.inputs[i].add(layout.offset);
                    layout.step == 1 && self.inputs[i].add(begin).is_aligned_to::<V>()
                };
            }
            self.layouts[i] = layouts[i];
            i += 1;
        }
        self
    }

    /// The row with this initial state, for a backward scan.
    #[inline(always)]
    #[must_use]
    pub fn with_initial(self, initial: Carry<S>) -> Self {
        Self { initial, ..self }
    }

    /// Whether every access to the steps before position `end` can be of whole vectors.
    #[inline(always)]
    #[must_use]
    pub fn is_whole(&self, end: usize) -> bool {
        self.aligned && end <= self.len
    }

    /// Where in memory the step at `position` lies, if it is in the row, and how many steps of the row are at
    /// `position` and after, as far as a tile can reach.
    #[inline(always)]
    fn guard(&self, position: usize) -> (usize, u32) {
        let left = self.len.saturating_sub(position);
        let first = match D::DIRECTION {
            Direction::Forward => position,
            Direction::Reverse => left.wrapping_sub(1),
        };
        (first, left.min(u32::MAX as usize) as u32)
    }

    /// The items whose first vector is at `position`, which [`finish`](Self::finish) has to finish.
    ///
    /// # Safety
    /// `position` is a multiple of `V`; if `whole`, [`is_whole`](Self::is_whole) holds for the end of the items.
    #[inline(always)]
    #[must_use]
    pub unsafe fn load<const K: usize>(&self, position: usize, whole: bool) -> Items<S, K, V> {
        let mut items = [[S::PADDING; V]; K];
        let (first, valid) = self.guard(position);
        if whole {
            let mut k = 0;
            while k < K {
                let at = first_of::<D>(first, k * Self::SUBTILE, V);
                // SAFETY: the vector lies in the row and is aligned, since the items are whole.
                let vectors = S::gather(|i| unsafe {
                    if S::IS_OF_NEXT[i] {
                        let next = self.next(first, k * Self::SUBTILE + V - 1, valid);
                        self.vector_of_next(i, at, next)
                    } else {
                        self.inputs[i].read_vector_streaming(at)
                    }
                });
                items[k] = order::<D, _, V>(vectors);
                k += 1;
            }
        } else {
            // Multiples of strides are not to take registers where there are vectors.
            let layouts = if S::IS_MASKED {
                self.layouts.map(|layout| layout.strided().opaque())
            } else {
                [Strided::default(); I]
            };
            let mut k = 0;
            while k < K {
                let mut j = 0;
                while j < V {
                    let ahead = k * Self::SUBTILE + j;
                    if (ahead as u32) < valid {
                        let at = first_of::<D>(first, ahead, 1);
                        let next = self.next(first, ahead, valid);
                        let [item] = S::gather(|i| {
                            let at = if S::IS_OF_NEXT[i] { next } else { at };
                            // SAFETY: the item lies in the row, since it is valid, and so does the next.
                            [unsafe {
                                if S::IS_MASKED {
                                    self.inputs[i].offset(layouts[i].way(at, 0)).read(0)
                                } else {
                                    self.inputs[i].read(at)
                                }
                            }]
                        });
                        items[k][j] = item;
                    }
                    j += 1;
                }
                k += 1;
            }
        }
        // SAFETY: the row lies in the mask, says the caller of `new`.
        unsafe { self.begin(position, &mut items) };
        items
    }

    /// Where in memory the step lies that comes after the one that is `ahead` steps after `first`; at the last step, that one.
    #[inline(always)]
    fn next(&self, first: usize, ahead: usize, valid: u32) -> usize {
        let is_last = ahead as u32 + 1 >= valid;
        first_of::<D>(first, if is_last { ahead } else { ahead + 1 }, 1)
    }

    /// The elements of input `i` of the steps after those of the vector at `at`, the last of which is at `next`.
    ///
    /// # Safety
    /// The vector lies in the row and is aligned; `next` lies in the row.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    unsafe fn vector_of_next(&self, i: usize, at: usize, next: usize) -> [E; V] {
        // Not read as what is read once: the next lane reads a part of it too.
        // SAFETY: says the caller.
        let (own, last) = unsafe {
            let own: [E; V] = self.inputs[i].read_vector(at);
            (order::<D, _, V>(own), self.inputs[i].read(next))
        };
        order::<D, _, V>(core::array::from_fn(|j| {
            if j + 1 < V { own[j + 1] } else { last }
        }))
    }

    /// Makes the steps at which the scan, or the one that it goes backwards through, starts what they are: the first one of the row, and
    /// those that the mask says.
    ///
    /// # Safety
    /// The row lies in the mask, if there is one.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    unsafe fn begin<const K: usize>(&self, position: usize, items: &mut Items<S, K, V>) {
        if S::IS_BACKWARD && !Self::ENDS_LATE {
            self.end(position, items);
        } else if !S::IS_BACKWARD && position == 0 && self.fresh {
            items[0][0] = items[0][0].as_first();
        }
        if self.is_masked {
            let (first, valid) = self.guard(position);
            let mut k = 0;
            while k < K {
                let mut j = 0;
                while j < V {
                    let ahead = k * Self::SUBTILE + j;
                    if (ahead as u32) < valid {
                        // SAFETY: the step lies in the row.
                        if unsafe { self.mask.read(first_of::<D>(first, ahead, 1)) } != 0 {
                            items[k][j] = items[k][j].restart();
                        }
                    }
                    j += 1;
                }
                k += 1;
            }
        }
    }

    /// Makes the items that were loaded what they are, as far as [`load`](Self::load) would have to wait for them.
    #[inline(always)]
    pub fn finish<const K: usize>(&self, position: usize, items: &mut Items<S, K, V>) {
        if Self::ENDS_LATE {
            self.end(position, items);
        }
    }

    /// Makes the step with which a backward scan ends what it is, if it is one of the items.
    #[inline(always)]
    fn end<const K: usize>(&self, position: usize, items: &mut Items<S, K, V>) {
        let (_, valid) = self.guard(position);
        let mut k = 0;
        while k < K {
            let mut j = 0;
            while j < V {
                if (k * Self::SUBTILE + j) as u32 + 1 == valid {
                    items[k][j] = if self.fresh {
                        items[k][j].as_first()
                    } else {
                        items[k][j].with_initial(self.initial)
                    };
                }
                j += 1;
            }
            k += 1;
        }
    }

    /// Starts to copy the items whose first vector is at `position` to shared memory, where the lane's vector `k` of input `i`
    /// begins at element `slot + (i · K + k) · stride`, in memory order. What lies outside the row is left as it is.
    ///
    /// # Safety
    /// As [`load`](Self::load) and [`Shared::copy_async`]. The lane's vectors in shared memory are aligned.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn copy<const K: usize>(
        &self,
        position: usize,
        whole: bool,
        stage: Shared<E>,
        slot: usize,
        stride: usize,
    ) {
        let (first, valid) = self.guard(position);
        // SAFETY: the vectors of a whole tile lie in the row and are aligned; an item that is valid lies in the row.
        unsafe {
            if whole {
                let mut k = 0;
                while k < K {
                    let at = first_of::<D>(first, k * Self::SUBTILE, V);
                    let mut i = 0;
                    while i < I {
                        let to = slot + (i * K + k) * stride;
                        stage.copy_async::<V>(to, self.inputs[i], at);
                        i += 1;
                    }
                    k += 1;
                }
            } else {
                let mut k = 0;
                while k < K {
                    let mut j = 0;
                    while j < V {
                        let ahead = k * Self::SUBTILE + j;
                        if (ahead as u32) < valid {
                            let at = first_of::<D>(first, ahead, 1);
                            let mut i = 0;
                            while i < I {
                                let to = slot + (i * K + k) * stride + index::<D>(j, 1, V);
                                stage.write(to, self.inputs[i].read(at));
                                i += 1;
                            }
                        }
                        j += 1;
                    }
                    k += 1;
                }
            }
        }
    }

    /// The items that [`copy`](Self::copy) brought to shared memory.
    ///
    /// # Safety
    /// As [`copy`](Self::copy), which this thread called with the same arguments, and whose copies are done.
    #[inline(always)]
    #[must_use]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn copied<const K: usize>(
        &self,
        position: usize,
        whole: bool,
        stage: Shared<E>,
        slot: usize,
        stride: usize,
    ) -> Items<S, K, V> {
        let mut items = [[S::PADDING; V]; K];
        let (_, valid) = self.guard(position);
        // SAFETY: what is read was copied.
        unsafe {
            if whole {
                let mut k = 0;
                while k < K {
                    let vectors =
                        S::gather(|i| stage.read_vector::<V>(slot + (i * K + k) * stride));
                    items[k] = order::<D, _, V>(vectors);
                    k += 1;
                }
            } else {
                let mut k = 0;
                while k < K {
                    let mut j = 0;
                    while j < V {
                        if ((k * Self::SUBTILE + j) as u32) < valid {
                            let at = slot + k * stride + index::<D>(j, 1, V);
                            let [item] = S::gather(|i| [stage.read(at + i * K * stride)]);
                            items[k][j] = item;
                        }
                        j += 1;
                    }
                    k += 1;
                }
            }
        }
        // SAFETY: the row lies in the mask, says the caller of `new`.
        unsafe { self.begin(position, &mut items) };
        items
    }

    /// Stores the results of the items whose first vector is at `position`.
    ///
    /// # Safety
    /// As [`load`](Self::load); no other thread accesses these steps of the outputs.
    #[inline(always)]
    pub unsafe fn store<const K: usize>(
        &self,
        position: usize,
        whole: bool,
        results: Items<S::Outputs, K, V>,
    ) {
        let (first, valid) = self.guard(position);
        // SAFETY: as for `load`.
        unsafe {
            if whole {
                let mut k = 0;
                while k < K {
                    let at = first_of::<D>(first, k * Self::SUBTILE, V);
                    let vectors = order::<D, _, V>(results[k].map(S::emit));
                    let mut o = 0;
                    while o < O {
                        self.outputs[o].write_vector_streaming(at, vectors.map(|all| all[o]));
                        o += 1;
                    }
                    k += 1;
                }
            } else {
                let mut k = 0;
                while k < K {
                    let mut j = 0;
                    while j < V {
                        let ahead = k * Self::SUBTILE + j;
                        if (ahead as u32) < valid {
                            let at = first_of::<D>(first, ahead, 1);
                            let elements = S::emit(results[k][j]);
                            let mut o = 0;
                            while o < O {
                                self.outputs[o].write(at, elements[o]);
                                o += 1;
                            }
                        }
                        j += 1;
                    }
                    k += 1;
                }
            }
        }
    }
}
