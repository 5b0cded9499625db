//! Values in shared memory, word by word, so that threads with neighbouring values access neighbouring words.

use core::cell::Cell;
use core::marker::PhantomData;
use cuda_std::{Shared, warp::Shuffle};

/// `count` values in shared memory: the first words of all of them, then the second words.
pub struct Slots<V> {
    words: Shared<u32>,
    count: usize,
    values: PhantomData<V>,
}

impl<V: Shuffle> Slots<V> {
    /// The `count` values from `words` on.
    #[inline(always)]
    #[must_use]
    pub fn new(words: Shared<u32>, count: usize) -> Self {
        Self {
            words,
            count,
            values: PhantomData,
        }
    }

    /// Writes value `index`.
    ///
    /// # Safety
    /// `index < count`, the values lie in the block's shared memory, and no other thread accesses this one on this side
    /// of a barrier.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn write(&self, index: usize, value: V) {
        let at = Cell::new(index);
        let _ = value.map_words(|word| {
            // SAFETY: says the caller.
            unsafe { self.words.write(at.get(), word) };
            at.set(at.get() + self.count);
            word
        });
    }

    /// Reads value `index`; `like` is any value.
    ///
    /// # Safety
    /// `index < count`, and it was written before the last barrier.
    #[inline(always)]
    #[must_use]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn read(&self, index: usize, like: V) -> V {
        let at = Cell::new(index);
        like.map_words(|_| {
            // SAFETY: says the caller.
            let word = unsafe { self.words.read(at.get()) };
            at.set(at.get() + self.count);
            word
        })
    }
}

/// The 32-bit words of a value, at most.
#[must_use]
pub const fn words<V>() -> usize {
    size_of::<V>() / size_of::<u32>()
}
