//! A lane's part of a tile of a row: guarded, vectorised loads and stores.

use crate::{
    arrays::{Arrays, Options},
    direction::{Direction, Order, first_of, index, order},
    layout::{Layout, Strided},
    monoid::{Action, Carry, Operator},
    tiling::{ACCESS_BYTES, WARP_THREADS},
};
use core::marker::PhantomData;
use cuda_std::{
    Global, Scalar, Shared, hint, shared,
    warp::{FULL_MASK, sync_warp},
};

/// What a lane holds of a tile: the vectors of `V` steps of `K` subtiles.
pub type Items<S, const K: usize, const V: usize> = [[S; V]; K];

/// A vector as memory holds it, in words of 32 bits: so narrower elements share a register until they are used.
#[derive(Clone, Copy)]
pub struct Vector<E, const N: usize> {
    words: [u32; N],
    elements: PhantomData<E>,
}

impl<E: Scalar, const N: usize> Vector<E, N> {
    /// That of these elements, followed by zeros.
    #[inline(always)]
    #[must_use]
    pub fn of<const V: usize>(elements: [E; V]) -> Self {
        const { assert!(size_of::<[E; V]>() <= size_of::<[u32; N]>()) };
        let mut words = [0; N];
        // SAFETY: there are no fewer bytes of words than of elements, and a scalar has no padding.
        unsafe { (&raw mut words).cast::<[E; V]>().write_unaligned(elements) };
        Self {
            words: Self::whole(words),
            elements: PhantomData,
        }
    }

    /// Its first elements.
    #[inline(always)]
    #[must_use]
    pub fn elements<const V: usize>(self) -> [E; V] {
        const { assert!(size_of::<[E; V]>() <= size_of::<[u32; N]>()) };
        let words = Self::whole(self.words);
        // SAFETY: there are no fewer bytes of words than of elements, and any bytes are a scalar.
        unsafe { (&raw const words).cast::<[E; V]>().read_unaligned() }
    }

    /// The words, which the compiler does not take apart before they are used.
    #[inline(always)]
    fn whole(words: [u32; N]) -> [u32; N] {
        if size_of::<E>() < size_of::<u32>() {
            words.map(hint::opaque_word)
        } else {
            words
        }
    }
}

/// A vector of 16 bytes.
pub type Wide<E> = Vector<E, { ACCESS_BYTES / size_of::<u32>() }>;

/// What memory holds of a lane's part of a tile.
#[derive(Clone, Copy)]
pub struct Loaded<E, const I: usize, const K: usize> {
    /// Of each subtile and input a vector.
    vectors: [[Wide<E>; I]; K],
    /// The element of the step after each of them, of inputs of which steps have that.
    nexts: [[E; I]; K],
    /// The mask, if there is one.
    masks: [Vector<u8, 2>; K],
}

impl<E: Scalar, const I: usize, const K: usize> Loaded<E, I, K> {
    /// Where every element of an input is this one.
    #[inline(always)]
    #[must_use]
    pub fn of(elements: [E; I]) -> Self {
        Self {
            vectors: [elements.map(|element| Vector::of([element])); K],
            nexts: [elements; K],
            masks: [Vector::of([]); K],
        }
    }
}

/// A warp's shared memory, where the elements of a tile that is not whole change lanes: as many as the warp holds.
pub struct Buffer<E> {
    elements: Shared<E>,
    /// The same, for a mask.
    bytes: Shared<u8>,
}

impl<E: Scalar> Buffer<E> {
    /// The buffer that begins at byte `start` of the block's shared memory.
    ///
    /// # Safety
    /// It lies there; `start` is a multiple of [`ACCESS_BYTES`].
    #[inline(always)]
    #[must_use]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn new(start: usize) -> Self {
        // SAFETY: says the caller.
        unsafe {
            Self {
                elements: shared::dynamic_shared_mem::<E>().add(start / size_of::<E>()),
                bytes: shared::dynamic_shared_mem::<u8>().add(start),
            }
        }
    }
}

/// The vectors of a lane, given values that are from as many lanes on as there are. Unless it is the first such change since a barrier,
/// it waits for what others read in the one before.
///
/// # Safety
/// The lanes of the warp call it together. `places` are in the warp's shared memory, one for each value.
#[inline(always)]
unsafe fn change_lanes<T: Scalar, const K: usize, const V: usize>(
    places: Shared<T>,
    lane: u32,
    apart: [[T; V]; K],
    is_first: bool,
) -> [[T; V]; K] {
    // SAFETY: there is a place for each value. A barrier is between writing and reading them, and one before they are written again.
    unsafe {
        if !is_first {
            sync_warp(FULL_MASK);
        }
        let mut k = 0;
        while k < K {
            let mut j = 0;
            while j < V {
                places.write((k * V + j) * WARP_THREADS + lane as usize, apart[k][j]);
                j += 1;
            }
            k += 1;
        }
        sync_warp(FULL_MASK);
        core::array::from_fn(|k| places.read_vector((k * WARP_THREADS + lane as usize) * V))
    }
}

/// What the steps of a lane's part of a tile give: of each subtile and output a vector, in the order of memory.
pub type Emitted<E, const O: usize, const K: usize> = [[Wide<E>; O]; K];

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
    /// Whether the vectors that begin at multiples of `V` positions are aligned in every array.
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
                row.aligned &= arrays.mask.add(begin).is_aligned_to::<V>();
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

    /// Where in memory the step at `position` lies, which is in the row.
    #[inline(always)]
    fn first(&self, position: usize) -> usize {
        index::<D>(position, 1, self.len)
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

    /// What memory holds of the items of lane `lane` whose first vector is at `position`: if `whole`, its vectors; else, as
    /// [`arrange`](Self::arrange) wants it, each of their elements from as many lanes on. Nothing here waits for the memory.
    ///
    /// # Safety
    /// `position` is a multiple of `V`, and the lanes of the warp have neighbouring vectors; if `whole`,
    /// [`is_whole`](Self::is_whole) holds for the end of the items.
    #[inline(always)]
    #[must_use]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn load<const K: usize>(
        &self,
        position: usize,
        whole: bool,
        lane: u32,
    ) -> Loaded<E, I, K> {
        let mut loaded = Loaded::of(S::PADDING_ELEMENTS);
        // SAFETY: whole items lie in the row and are aligned; those that are valid lie in the row, and so do the next ones.
        unsafe {
            if whole {
                let first = self.first(position);
                let mut k = 0;
                while k < K {
                    let at = first_of::<D>(first, k * Self::SUBTILE, V);
                    let mut i = 0;
                    while i < I {
                        loaded.vectors[k][i] = Vector::of(if S::IS_OF_NEXT[i] {
                            // Not read as what is read once: the next lane reads a part of it too.
                            self.inputs[i].read_vector::<V>(at)
                        } else {
                            self.inputs[i].read_vector_streaming::<V>(at)
                        });
                        i += 1;
                    }
                    if self.is_masked {
                        loaded.masks[k] = Vector::of(self.mask.read_vector::<V>(at));
                    }
                    k += 1;
                }
            } else {
                let (first, valid) = self.guard(Self::of_lane(position, lane));
                let mut k = 0;
                while k < K {
                    let mut vectors = S::PADDING_ELEMENTS.map(|element| [element; V]);
                    let mut mask = [0; V];
                    let mut j = 0;
                    while j < V {
                        let ahead = (k * V + j) * WARP_THREADS;
                        if (ahead as u32) < valid {
                            let at = first_of::<D>(first, ahead, 1);
                            let mut i = 0;
                            while i < I {
                                vectors[i][j] = self.read(i, at);
                                i += 1;
                            }
                            if self.is_masked {
                                mask[j] = self.mask.read(at);
                            }
                        }
                        j += 1;
                    }
                    loaded.vectors[k] = vectors.map(Vector::of);
                    loaded.masks[k] = Vector::of(mask);
                    k += 1;
                }
            }
            let mut i = 0;
            while i < I {
                if S::IS_OF_NEXT[i] {
                    let (first, valid) = self.guard(position);
                    let mut k = 0;
                    while k < K {
                        let last = k * Self::SUBTILE + V - 1;
                        if (last as u32) < valid {
                            let next = self.next(first, last, valid);
                            loaded.nexts[k][i] = self.read(i, next);
                        }
                        k += 1;
                    }
                }
                i += 1;
            }
        }
        loaded
    }

    /// The element of input `i` of the step at `at`.
    ///
    /// # Safety
    /// The step lies in the row.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    unsafe fn read(&self, i: usize, at: usize) -> E {
        // SAFETY: says the caller.
        unsafe {
            if S::IS_MASKED {
                // Multiples of strides are not to take registers where there are vectors.
                let way = self.layouts[i].strided().opaque().way(at, 0);
                self.inputs[i].offset(way).read(0)
            } else {
                self.inputs[i].read(at)
            }
        }
    }

    /// The position of the first of the elements that a lane loads or stores where a tile is not whole.
    #[inline(always)]
    fn of_lane(position: usize, lane: u32) -> usize {
        position - lane as usize * V + lane as usize
    }

    /// What was loaded of a tile that is not whole, as if it were: neighbouring lanes load neighbouring elements there.
    ///
    /// # Safety
    /// The lanes of the warp call it together, each with what [`load`](Self::load) gave it. `buffer` is the warp's, which passed a
    /// barrier since it last accessed it.
    #[inline(always)]
    #[must_use]
    pub unsafe fn arrange<const K: usize>(
        &self,
        mut loaded: Loaded<E, I, K>,
        lane: u32,
        buffer: &Buffer<E>,
    ) -> Loaded<E, I, K> {
        // SAFETY: the buffer has a place for each of the warp's elements; the rest is the caller's obligation.
        unsafe {
            let mut i = 0;
            while i < I {
                let apart = loaded.vectors.map(|vectors| vectors[i].elements::<V>());
                let vectors = change_lanes(buffer.elements, lane, apart, i == 0);
                let mut k = 0;
                while k < K {
                    loaded.vectors[k][i] = Vector::of(order::<D, _, V>(vectors[k]));
                    k += 1;
                }
                i += 1;
            }
            if self.is_masked {
                let apart = loaded.masks.map(|mask| mask.elements::<V>());
                let masks = change_lanes(buffer.bytes, lane, apart, false);
                loaded.masks = masks.map(|mask| Vector::of(order::<D, _, V>(mask)));
            }
        }
        loaded
    }

    /// The items that were loaded from `position`.
    #[inline(always)]
    #[must_use]
    pub fn items<const K: usize>(
        &self,
        position: usize,
        loaded: &Loaded<E, I, K>,
    ) -> Items<S, K, V> {
        let mut items = [[S::PADDING; V]; K];
        let mut k = 0;
        while k < K {
            items[k] = S::gather(|i| {
                let own = order::<D, _, V>(loaded.vectors[k][i].elements::<V>());
                if S::IS_OF_NEXT[i] {
                    core::array::from_fn(|j| {
                        if j + 1 < V {
                            own[j + 1]
                        } else {
                            loaded.nexts[k][i]
                        }
                    })
                } else {
                    own
                }
            });
            k += 1;
        }
        if S::IS_BACKWARD {
            self.end(position, &mut items);
        } else if position == 0 && self.fresh {
            items[0][0] = items[0][0].as_first();
        }
        if self.is_masked {
            let mut k = 0;
            while k < K {
                let mask = order::<D, _, V>(loaded.masks[k].elements::<V>());
                let mut j = 0;
                while j < V {
                    if mask[j] != 0 {
                        items[k][j] = items[k][j].restart();
                    }
                    j += 1;
                }
                k += 1;
            }
        }
        items
    }

    /// Where in memory the step lies that comes after the one that is `ahead` steps after `first`; at the last step, that one.
    #[inline(always)]
    fn next(&self, first: usize, ahead: usize, valid: u32) -> usize {
        let is_last = ahead as u32 + 1 >= valid;
        first_of::<D>(first, if is_last { ahead } else { ahead + 1 }, 1)
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

    /// What [`copy`](Self::copy) brought to shared memory.
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
    ) -> Loaded<E, I, K> {
        let mut loaded = Loaded::of(S::PADDING_ELEMENTS);
        let (_, valid) = self.guard(position);
        // SAFETY: what is read was copied.
        unsafe {
            let mut k = 0;
            while k < K {
                let mut i = 0;
                while i < I {
                    let at = slot + (i * K + k) * stride;
                    loaded.vectors[k][i] = Vector::of(if whole {
                        stage.read_vector::<V>(at)
                    } else {
                        let mut vector = [S::PADDING_ELEMENTS[i]; V];
                        let mut j = 0;
                        while j < V {
                            if ((k * Self::SUBTILE + j) as u32) < valid {
                                let place = index::<D>(j, 1, V);
                                vector[place] = stage.read(at + place);
                            }
                            j += 1;
                        }
                        vector
                    });
                    i += 1;
                }
                k += 1;
            }
        }
        loaded
    }

    /// Stores the results of the items whose first vector is at `position`.
    ///
    /// # Safety
    /// `position` is a multiple of `V`; if `whole`, [`is_whole`](Self::is_whole) holds for the end of the items. No other thread accesses
    /// these steps of the outputs.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn store<const K: usize>(
        &self,
        position: usize,
        whole: bool,
        results: &Emitted<E, O, K>,
    ) {
        // SAFETY: whole items lie in the row and are aligned; those that are valid lie in the row.
        unsafe {
            if whole {
                self.store_whole(position, results);
                return;
            }
            let (first, valid) = self.guard(position);
            let mut k = 0;
            while k < K {
                let mut o = 0;
                while o < O {
                    let vector = results[k][o].elements::<V>();
                    let mut j = 0;
                    while j < V {
                        let ahead = k * Self::SUBTILE + j;
                        if (ahead as u32) < valid {
                            let at = first_of::<D>(first, ahead, 1);
                            self.outputs[o].write(at, vector[index::<D>(j, 1, V)]);
                        }
                        j += 1;
                    }
                    o += 1;
                }
                k += 1;
            }
        }
    }

    /// As [`store`](Self::store), where neighbouring lanes store neighbouring elements of a tile that is not whole.
    ///
    /// # Safety
    /// As there; and as [`arrange`](Self::arrange).
    #[inline(always)]
    pub unsafe fn store_arranged<const K: usize>(
        &self,
        position: usize,
        whole: bool,
        results: &Emitted<E, O, K>,
        lane: u32,
        buffer: &Buffer<E>,
    ) {
        // SAFETY: as for `arrange` and `store`. What a lane writes next where it reads here is its own.
        unsafe {
            if whole {
                self.store_whole(position, results);
                return;
            }
            let (first, valid) = self.guard(Self::of_lane(position, lane));
            let mut o = 0;
            while o < O {
                if o > 0 {
                    sync_warp(FULL_MASK);
                }
                let mut k = 0;
                while k < K {
                    let at = (k * WARP_THREADS + lane as usize) * V;
                    let vector = order::<D, _, V>(results[k][o].elements::<V>());
                    buffer.elements.write_vector(at, vector);
                    k += 1;
                }
                sync_warp(FULL_MASK);
                let mut m = 0;
                while m < K * V {
                    let ahead = m * WARP_THREADS;
                    if (ahead as u32) < valid {
                        let element = buffer.elements.read(ahead + lane as usize);
                        self.outputs[o].write(first_of::<D>(first, ahead, 1), element);
                    }
                    m += 1;
                }
                o += 1;
            }
        }
    }

    /// # Safety
    /// As [`store`](Self::store); the items are whole.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    unsafe fn store_whole<const K: usize>(&self, position: usize, results: &Emitted<E, O, K>) {
        let first = self.first(position);
        let mut k = 0;
        while k < K {
            let at = first_of::<D>(first, k * Self::SUBTILE, V);
            let mut o = 0;
            while o < O {
                let vector = results[k][o].elements::<V>();
                // SAFETY: says the caller.
                unsafe { self.outputs[o].write_vector_streaming(at, vector) };
                o += 1;
            }
            k += 1;
        }
    }
}
