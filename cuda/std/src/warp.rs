//! The 32 threads of a warp: shuffles, votes, and the warp's barrier.
//!
//! Each takes the mask of the lanes that take part. Warps are not assumed to run in lockstep.

use crate::imp;

/// The lanes of a warp.
pub const WARP_SIZE: u32 = 32;

/// The mask of all 32 lanes.
pub const FULL_MASK: u32 = 0xffff_ffff;

/// A value that a shuffle can carry: a scalar, or a `struct` of such values that moves each of them.
pub trait Shuffle: Copy {
    /// The value with each of its 32-bit words exchanged by `exchange`.
    #[must_use]
    fn map_words(self, exchange: impl Fn(u32) -> u32) -> Self;
}

impl<T: Shuffle, const N: usize> Shuffle for [T; N] {
    #[inline(always)]
    fn map_words(self, exchange: impl Fn(u32) -> u32) -> Self {
        self.map(|value| value.map_words(&exchange))
    }
}

macro_rules! one_word {
    ($($t:ty: $to:expr, $from:expr;)*) => { $(
        impl Shuffle for $t {
            #[inline(always)]
            fn map_words(self, exchange: impl Fn(u32) -> u32) -> Self {
                $from(exchange($to(self)))
            }
        }
    )* };
}
one_word! {
    u32: |v| v, |w| w;
    i32: |v: i32| v.cast_unsigned(), |w: u32| w.cast_signed();
    f32: f32::to_bits, f32::from_bits;
}

macro_rules! two_words {
    ($($t:ty: $to:expr, $from:expr;)*) => { $(
        impl Shuffle for $t {
            #[inline(always)]
            fn map_words(self, exchange: impl Fn(u32) -> u32) -> Self {
                let bits: u64 = $to(self);
                let low = exchange(bits as u32);
                let high = exchange((bits >> 32) as u32);
                $from(u64::from(high) << 32 | u64::from(low))
            }
        }
    )* };
}
two_words! {
    u64: |v| v, |w| w;
    i64: |v: i64| v.cast_unsigned(), |w: u64| w.cast_signed();
}

impl Shuffle for f64 {
    #[inline(always)]
    fn map_words(self, exchange: impl Fn(u32) -> u32) -> Self {
        let [low, high] = crate::float::words(self);
        let low = exchange(low);
        let high = exchange(high);
        f64::from_bits(u64::from(high) << 32 | u64::from(low))
    }
}

impl Shuffle for crate::Complex32 {
    #[inline(always)]
    fn map_words(self, exchange: impl Fn(u32) -> u32) -> Self {
        Self {
            re: self.re.map_words(&exchange),
            im: self.im.map_words(&exchange),
        }
    }
}

/// The thread's lane in its warp, 0 to 31.
#[inline(always)]
#[must_use]
pub fn lane_id() -> u32 {
    imp::lane_id()
}

macro_rules! shuffles {
    ($($(#[$doc:meta])* $name:ident($argument:ident);)*) => { $(
        $(#[$doc])*
        ///
        /// # Safety
        /// Every lane of `mask` calls it, at the same place and with the same mask, and the calling lane
        /// is in the mask; so is the lane that it reads from.
        #[inline(always)]
        #[must_use]
        #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
        pub unsafe fn $name<T: Shuffle>(mask: u32, value: T, $argument: u32) -> T {
            imp::note_caller();
            // SAFETY: the caller's obligations are the callee's.
            value.map_words(|word| unsafe { imp::$name(mask, word, $argument) })
        }
    )* };
}

shuffles! {
    /// The value of lane `lane`.
    shuffle_idx(lane);
    /// The value of the lane `delta` below; the lanes below `delta` get their own value back.
    shuffle_up(delta);
    /// The value of the lane `delta` above; the topmost `delta` lanes get their own value back.
    shuffle_down(delta);
    /// The value of the lane whose number is this lane's with the bits of `lane_mask` flipped.
    shuffle_xor(lane_mask);
}

macro_rules! votes {
    ($($(#[$doc:meta])* $name:ident -> $result:ty;)*) => { $(
        $(#[$doc])*
        ///
        /// # Safety
        /// Every lane of `mask` calls it, at the same place and with the same mask, and the calling lane
        /// is in the mask.
        #[inline(always)]
        #[must_use]
        #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
        pub unsafe fn $name(mask: u32, predicate: bool) -> $result {
            // SAFETY: the caller's obligations are the callee's.
            unsafe { imp::$name(mask, predicate) }
        }
    )* };
}

votes! {
    /// Whether `predicate` holds in some lane of the mask.
    vote_any -> bool;
    /// Whether `predicate` holds in every lane of the mask.
    vote_all -> bool;
    /// A bit for each lane of the mask in which `predicate` holds.
    vote_ballot -> u32;
}

/// Waits until every lane of `mask` is here; what they wrote to memory before is then seen by all of them.
///
/// # Safety
/// Every lane of `mask` calls it, with the same mask, and the calling lane is in the mask.
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub unsafe fn sync_warp(mask: u32) {
    // SAFETY: the caller's obligations are the callee's.
    unsafe { imp::sync_warp(mask) }
}
