//! What the blocks that share sequences have in common: tickets for tiles, and words in scratch memory by which they tell each other.
//!
//! Tiles are handed out by a ticket, so that the tiles before one are done or under way, whatever the order in which blocks
//! run.
//!
//! What is published lies in *scratch* memory, in words of 64 bits: a 32-bit word of the value, and above it the number of the
//! run as a tag. So a value and the fact that it is there are one access, no two of which need an order, and words of an earlier
//! run are as good as none: scratch memory is zeroed once, not for each run.

use crate::{
    slots::words,
    tiling::{
        WARP_THREADS,
        sharing::{FINISHED, FLAGS, PLACE_WORDS, RUNS, STRIPS_TOGETHER, TICKET},
    },
};
use core::cell::Cell;
use core::marker::PhantomData;
use cuda_std::{Global, Shared, hint::opaque_word, thread, warp::Shuffle};

/// The flags of the rows or strips in which a split scan met infinities or NaNs, and which are to be scanned again.
pub struct Flags {
    words: Global<u64>,
}

impl Flags {
    /// The flags that begin at word `first` of the scratch memory; none if that is 0.
    #[inline(always)]
    #[must_use]
    pub fn new(scratch: Global<u64>, first: u64) -> Option<Self> {
        (first != 0).then(|| Self {
            // SAFETY: the flags lie in the scratch memory.
            words: unsafe { scratch.add(first as usize) },
        })
    }

    /// Whether a flag is raised.
    ///
    /// # Safety
    /// There are more than `index` flags, and no other thread raises or lowers this one.
    #[inline(always)]
    #[must_use]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn is_raised(&self, index: usize) -> bool {
        // SAFETY: says the caller.
        unsafe { self.words.load_relaxed(index) != 0 }
    }

    /// Raises a flag.
    ///
    /// # Safety
    /// There are more than `index` flags.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn raise(&self, index: usize) {
        // SAFETY: says the caller.
        unsafe { self.words.store_relaxed(index, 1) };
    }

    /// Lowers a flag.
    ///
    /// # Safety
    /// There are more than `index` flags.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn lower(&self, index: usize) {
        // SAFETY: says the caller.
        unsafe { self.words.store_relaxed(index, 0) };
    }
}

/// Values of one kind in scratch memory: for each tile, one for each of its channels.
pub struct Published<V> {
    words: Global<u64>,
    channels: usize,
    tag: u32,
    values: PhantomData<V>,
}

impl<V: Shuffle> Published<V> {
    /// The values of the `tiles` tiles of all units that begin at word `first`, and the word after them.
    ///
    /// # Safety
    /// The values lie in the scratch memory of `sharing`.
    #[inline(always)]
    #[must_use]
    pub unsafe fn new(sharing: &Sharing, first: usize, channels: usize) -> (Self, usize) {
        let published = Self {
            // SAFETY: says the caller.
            words: unsafe { sharing.scratch.add(first) },
            channels,
            tag: sharing.tag,
            values: PhantomData,
        };
        let count = sharing.units * sharing.tiles * channels;
        (published, first + count * words::<V>())
    }

    /// The first word of a value; the others are `channels` words apart.
    #[inline(always)]
    fn first_word(&self, index: usize, channel: usize) -> usize {
        index * words::<V>() * self.channels + channel
    }

    /// Publishes the value of a tile and channel.
    ///
    /// # Safety
    /// The value is in the scratch memory, and no other thread publishes it in this run.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn publish(&self, index: usize, channel: usize, value: V) {
        let at = Cell::new(self.first_word(index, channel));
        let _ = value.map_words(|word| {
            let tagged = u64::from(self.tag) << 32 | u64::from(word);
            // SAFETY: says the caller.
            unsafe { self.words.store_relaxed(at.get(), tagged) };
            at.set(at.get() + self.channels);
            word
        });
    }

    /// Asks for a value, and does not wait for it.
    ///
    /// # Safety
    /// The value is in the scratch memory.
    #[inline(always)]
    #[must_use]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn ask(&self, index: usize, channel: usize) -> Asked {
        let mut asked = Asked::NOTHING;
        let first = self.first_word(index, channel);
        let mut w = 0;
        while w < words::<V>() {
            // SAFETY: says the caller.
            asked.0[w] = unsafe { self.words.load_relaxed(first + w * self.channels) };
            w += 1;
        }
        asked
    }

    /// What was asked for, and whether it was there; `like` is any value.
    #[inline(always)]
    #[must_use]
    pub fn answer(&self, asked: &Asked, like: V) -> (V, bool) {
        let w = Cell::new(0);
        let there = Cell::new(true);
        let value = like.map_words(|_| {
            let tagged = asked.0[w.get()];
            w.set(w.get() + 1);
            there.set(there.get() & ((tagged >> 32) as u32 == self.tag));
            tagged as u32
        });
        (value, there.get())
    }

    /// Asks for a value until it is there.
    ///
    /// # Safety
    /// The value is in the scratch memory.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn wait(&self, index: usize, channel: usize) -> Asked {
        let mut asked = Asked::NOTHING;
        let first = self.first_word(index, channel);
        let mut w = 0;
        while w < words::<V>() {
            while (asked.0[w] >> 32) as u32 != self.tag {
                // SAFETY: says the caller.
                asked.0[w] = unsafe { self.words.load_relaxed(first + w * self.channels) };
            }
            w += 1;
        }
        asked
    }
}

/// Words of a value, at most.
const MOST_WORDS: usize = 4;

/// The words of a value that was asked for.
#[derive(Clone, Copy)]
pub struct Asked([u64; MOST_WORDS]);

impl Asked {
    /// What nobody asked for.
    pub const NOTHING: Self = Self([0; MOST_WORDS]);
}

/// Bits of a place's [`start`](Place::start): memory has fewer elements. Its detail lies in those above.
const START_BITS: u32 = 48;

/// A tile that a ticket stands for.
#[derive(Clone, Copy)]
pub struct Place {
    /// The row or strip.
    pub unit: u32,
    /// The tile's number in it.
    pub tile: u32,
    /// The element with which its first sequence begins.
    pub start: usize,
    /// What else the strategy wants to know of it.
    pub detail: u32,
}

/// The tiles of a block's last `TURNS` tickets, in shared memory, in turn.
#[derive(Clone, Copy)]
pub struct Places<const TURNS: u32>(pub Shared<u32>);

impl<const TURNS: u32> Places<TURNS> {
    /// Writes that of a turn.
    ///
    /// # Safety
    /// A barrier lies between this and the accesses of others.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn write(&self, turn: u32, place: Option<Place>) {
        let words_of = |place: Place| {
            let start = (u64::from(place.detail) << START_BITS) | place.start as u64;
            [place.unit, place.tile, start as u32, (start >> 32) as u32]
        };
        // SAFETY: says the caller.
        unsafe {
            let words = self.0.add((turn % TURNS) as usize * PLACE_WORDS);
            words.write_vector(0, place.map_or([u32::MAX; 4], words_of));
        }
    }

    /// Reads that of a turn.
    ///
    /// # Safety
    /// It was written before the last barrier.
    #[inline(always)]
    #[must_use]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn read(&self, turn: u32) -> Option<Place> {
        // SAFETY: says the caller.
        unsafe {
            let words = self.0.add((turn % TURNS) as usize * PLACE_WORDS);
            let [unit, tile, low, high] = words.read_vector(0);
            let start = u64::from(high) << 32 | u64::from(low);
            (unit != u32::MAX).then_some(Place {
                unit,
                tile,
                start: (start % (1 << START_BITS)) as usize,
                detail: (start >> START_BITS) as u32,
            })
        }
    }

    /// Whether a turn has no tile.
    ///
    /// # Safety
    /// As [`read`](Self::read).
    #[inline(always)]
    #[must_use]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn is_none(&self, turn: u32) -> bool {
        // SAFETY: says the caller.
        unsafe { self.0.read((turn % TURNS) as usize * PLACE_WORDS) == u32::MAX }
    }
}

/// The state that the blocks of a scan share.
pub struct Sharing {
    scratch: Global<u64>,
    /// Rows or strips.
    units: usize,
    /// Tiles of each.
    pub tiles: usize,
    /// The number of the run.
    tag: u32,
    /// Where a scan meets infinities or NaNs.
    pub flags: Flags,
}

impl Sharing {
    /// That of a scan of `units` rows or strips, of so many `tiles` each, and the first word of the scratch memory that is for what
    /// is published.
    ///
    /// # Safety
    /// The scratch memory has a header and a flag for each row or strip, all of it was zeroed before its first run, and no other run
    /// has it at the same time.
    #[inline(always)]
    #[must_use]
    pub unsafe fn new(scratch: Global<u64>, units: usize, tiles: usize) -> (Self, usize) {
        // SAFETY: all of it lies in the scratch memory. Nobody writes the number of runs before all blocks are done.
        let sharing = unsafe {
            Self {
                scratch,
                units,
                tiles,
                // Never 0, which is what memory holds that nobody has written.
                tag: (scratch.load_relaxed(RUNS) % u64::from(u32::MAX)) as u32 + 1,
                flags: Flags {
                    words: scratch.add(FLAGS),
                },
            }
        };
        (sharing, FLAGS + units)
    }

    /// A tile's number among those of all rows or strips.
    #[inline(always)]
    #[must_use]
    pub fn index(&self, unit: u32, tile: u32) -> usize {
        unit as usize * self.tiles + tile as usize
    }

    /// Takes the next ticket.
    ///
    /// # Safety
    /// As [`new`](Self::new); the thread is the first lane of its warp.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn take_ticket(&self) -> u32 {
        // Where all lanes would add the same, ptxas adds it up, and waits for what the lanes are to share.
        let lane = opaque_word(thread::thread_idx_x() % WARP_THREADS as u32);
        // SAFETY: the scratch memory has a header.
        unsafe { self.scratch.fetch_add_relaxed(TICKET, u64::from(1 + lane)) as u32 }
    }

    /// Row and tile of a ticket, if there is such a tile: row after row, so that memory is passed through in order.
    #[inline(always)]
    #[must_use]
    pub fn by_rows(&self, ticket: u32) -> Option<(u32, u32)> {
        let tiles = (self.tiles as u32).max(1);
        (ticket < self.units as u32 * tiles).then(|| (ticket / tiles, ticket % tiles))
    }

    /// Strip and tile of a ticket, if there is such a tile: for the `across` strips side by side the first tiles, then the second
    /// ones, and so on, so that memory is passed through in order. Where those are few, it is as many outer indices at once as have
    /// [`STRIPS_TOGETHER`]: the blocks that are under way look back the less far.
    #[inline(always)]
    #[must_use]
    pub fn by_strips(&self, ticket: u32, across: u32) -> Option<(u32, u32)> {
        let (units, tiles) = (self.units as u32, self.tiles as u32);
        let across = across.max(1);
        let together = (across * STRIPS_TOGETHER.div_ceil(across))
            .min(units)
            .max(1);
        let slab = ticket / (together * tiles).max(1);
        let (first, rest) = (slab * together, ticket - slab * together * tiles);
        // The last slab can have fewer.
        let strips = together.min(units.wrapping_sub(first)).max(1);
        let exists = ticket < units * tiles;
        exists.then(|| (first + rest % strips, rest / strips))
    }

    /// Ends the block's part in the run. The last block makes the scratch memory ready for the next run.
    ///
    /// # Safety
    /// As [`new`](Self::new); one thread of each block calls it, when the block has no more tickets to take.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn finish(&self) {
        // The ticket is not reset before all were taken.
        thread::device_fence();
        // SAFETY: the scratch memory has a header, which only the last block writes so.
        unsafe {
            let before = self.scratch.fetch_add_relaxed(FINISHED, 1);
            if before + 1 == u64::from(thread::grid_dim_x()) {
                self.scratch.store_relaxed(TICKET, 0);
                self.scratch.store_relaxed(FINISHED, 0);
                self.scratch.fetch_add_relaxed(RUNS, 1);
            }
        }
    }
}
