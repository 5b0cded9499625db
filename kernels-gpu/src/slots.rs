//! Values in shared memory, in pieces that are accessed at once, so that threads with neighbouring values access neighbouring pieces.

use core::array;
use core::cell::Cell;
use core::marker::PhantomData;
use cuda_std::{Shared, warp::Shuffle};

/// `count` values in shared memory: the first pieces of all of them, then the second ones.
pub struct Slots<V> {
    words: Shared<u32>,
    count: usize,
    values: PhantomData<V>,
}

/// The most words of a value.
const MOST_WORDS: usize = 8;

/// The words of a value, one after another.
struct Words {
    words: [Cell<u32>; MOST_WORDS],
    next: Cell<usize>,
}

impl Words {
    const fn new() -> Self {
        Self {
            words: [const { Cell::new(0) }; MOST_WORDS],
            next: Cell::new(0),
        }
    }

    /// Word `index`: none is beyond the last one, and a check that cannot fail leaves no panic in the PTX.
    fn get(&self, index: usize) -> u32 {
        self.words.get(index).map_or(0, Cell::get)
    }

    fn set(&self, index: usize, word: u32) {
        if let Some(place) = self.words.get(index) {
            place.set(word);
        }
    }

    /// The index after the one that it gave last.
    fn advance(&self) -> usize {
        self.next.replace(self.next.get() + 1)
    }
}

impl<V: Shuffle> Slots<V> {
    /// Words of a piece: the most that one access can have and that divide those of a value.
    const PIECE: usize = {
        assert!(words::<V>() <= MOST_WORDS);
        if words::<V>().is_multiple_of(4) {
            4
        } else if words::<V>().is_multiple_of(2) {
            2
        } else {
            1
        }
    };

    /// The `count` values from `words` on, which are aligned to pieces.
    #[inline(always)]
    #[must_use]
    pub fn new(words: Shared<u32>, count: usize) -> Self {
        Self {
            words,
            count,
            values: PhantomData,
        }
    }

    /// Where the piece of value `index` begins that has its word `word`.
    #[inline(always)]
    fn place(&self, index: usize, word: usize) -> usize {
        word * self.count + index * Self::PIECE
    }

    /// Writes value `index`.
    ///
    /// # Safety
    /// `index < count`, the values lie in the block's shared memory, and no other thread accesses this one on this side
    /// of a barrier.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn write(&self, index: usize, value: V) {
        let words = Words::new();
        let _ = value.map_words(|word| {
            words.set(words.advance(), word);
            word
        });
        let mut word = 0;
        while word < self::words::<V>() {
            let at = self.place(index, word);
            // SAFETY: says the caller.
            unsafe {
                match Self::PIECE {
                    4 => {
                        let piece = array::from_fn::<_, 4, _>(|w| words.get(word + w));
                        self.words.write_vector(at, piece);
                    }
                    2 => {
                        let piece = array::from_fn::<_, 2, _>(|w| words.get(word + w));
                        self.words.write_vector(at, piece);
                    }
                    _ => self.words.write(at, words.get(word)),
                }
            }
            word += Self::PIECE;
        }
    }

    /// Reads value `index`; `like` is any value.
    ///
    /// # Safety
    /// `index < count`, and it was written before the last barrier.
    #[inline(always)]
    #[must_use]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn read(&self, index: usize, like: V) -> V {
        let words = Words::new();
        let mut word = 0;
        while word < self::words::<V>() {
            let at = self.place(index, word);
            // SAFETY: says the caller.
            unsafe {
                match Self::PIECE {
                    4 => {
                        let piece = self.words.read_vector::<4>(at);
                        let mut w = 0;
                        while w < 4 {
                            words.set(word + w, piece[w]);
                            w += 1;
                        }
                    }
                    2 => {
                        let [low, high] = self.words.read_vector(at);
                        words.set(word, low);
                        words.set(word + 1, high);
                    }
                    _ => words.set(word, self.words.read(at)),
                }
            }
            word += Self::PIECE;
        }
        like.map_words(|_| words.get(words.advance()))
    }
}

/// The 32-bit words of a value, at most.
#[must_use]
pub const fn words<V>() -> usize {
    size_of::<V>() / size_of::<u32>()
}
