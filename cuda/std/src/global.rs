//! Global memory: a typed view, its accesses of 1, 2 and 4 elements, and its GPU-scope atomics.

use crate::{AtomicScalar, Scalar, imp};

/// A view of global memory as elements of type `T`, from some element of an allocation on.
///
/// It is `Copy`, has no lifetime and no length, and allows reads and writes: it is what a kernel gets for a
/// pointer. As a kernel's parameter it is one 64-bit address.
#[repr(transparent)]
pub struct Global<T> {
    pub(crate) pointer: imp::GlobalPointer<T>,
}

impl<T> Clone for Global<T> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Global<T> {}

/// # Safety of the accesses
/// In each of them, elements `index .. index + N` lie in the view's allocation; for an access of `N`
/// elements at once, their address is a multiple of `N` times the size of `T`. What is read has been
/// written; what is written is read or written by no other thread without synchronisation.
impl<T: Scalar> Global<T> {
    /// The view from element `elements` of this one on.
    ///
    /// # Safety
    /// The new start lies in the allocation or at its end.
    #[inline(always)]
    #[must_use]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn add(self, elements: usize) -> Self {
        // SAFETY: the caller's obligation is the callee's.
        let pointer = unsafe { imp::global_add(self.pointer, elements) };
        Self { pointer }
    }

    /// The view from element `elements` of this one on, which may be one before it.
    ///
    /// # Safety
    /// The new start lies in the allocation or at its end.
    #[inline(always)]
    #[must_use]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn offset(self, elements: isize) -> Self {
        // SAFETY: the caller's obligation is the callee's.
        let pointer = unsafe { imp::global_offset(self.pointer, elements) };
        Self { pointer }
    }

    /// Whether accesses of `N` elements at once are aligned from the view's start on.
    #[inline(always)]
    #[must_use]
    pub fn is_aligned_to<const N: usize>(self) -> bool {
        imp::global_address(self.pointer).is_multiple_of(N * size_of::<T>())
    }

    /// Reads one element.
    ///
    /// # Safety
    /// As above.
    #[inline(always)]
    #[must_use]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn read(self, index: usize) -> T {
        // SAFETY: the caller's obligation is the callee's.
        let [value] = unsafe { imp::global_read::<T, 1>(self.pointer, index) };
        value
    }

    /// Reads one element where `guard` holds, and gives `otherwise` where it does not.
    ///
    /// # Safety
    /// As above, where `guard` holds.
    #[inline(always)]
    #[must_use]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn read_if(self, guard: bool, index: usize, otherwise: T) -> T {
        if guard {
            // SAFETY: the guard holds, and the rest is the caller's obligation.
            unsafe { self.read(index) }
        } else {
            otherwise
        }
    }

    /// Reads 1, 2 or 4 elements in one access.
    ///
    /// # Safety
    /// As above.
    #[inline(always)]
    #[must_use]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn read_vector<const N: usize>(self, index: usize) -> [T; N] {
        // SAFETY: the caller's obligation is the callee's.
        unsafe { imp::global_read::<T, N>(self.pointer, index) }
    }

    /// As [`read_vector`](Self::read_vector), for data that is read once: it takes no place in the L1
    /// cache, and in the L2 cache it displaces what copies have left there.
    ///
    /// # Safety
    /// As above.
    #[inline(always)]
    #[must_use]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn read_vector_streaming<const N: usize>(self, index: usize) -> [T; N] {
        // SAFETY: the caller's obligation is the callee's.
        unsafe { imp::global_read_streaming::<T, N>(self.pointer, index) }
    }

    /// Writes one element.
    ///
    /// # Safety
    /// As above.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn write(self, index: usize, value: T) {
        // SAFETY: the caller's obligation is the callee's.
        unsafe { imp::global_write(self.pointer, index, [value]) }
    }

    /// Writes one element where `guard` holds.
    ///
    /// # Safety
    /// As above, where `guard` holds.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn write_if(self, guard: bool, index: usize, value: T) {
        if guard {
            // SAFETY: the guard holds, and the rest is the caller's obligation.
            unsafe { self.write(index, value) }
        }
    }

    /// Writes 1, 2 or 4 elements in one access.
    ///
    /// # Safety
    /// As above.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn write_vector<const N: usize>(self, index: usize, values: [T; N]) {
        // SAFETY: the caller's obligation is the callee's.
        unsafe { imp::global_write(self.pointer, index, values) }
    }

    /// As [`write_vector`](Self::write_vector), for data that is not read again soon: it takes no place
    /// in the L1 cache, and in the L2 cache it displaces what copies have left there.
    ///
    /// # Safety
    /// As above.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn write_vector_streaming<const N: usize>(self, index: usize, values: [T; N]) {
        // SAFETY: the caller's obligation is the callee's.
        unsafe { imp::global_write_streaming(self.pointer, index, values) }
    }
}

macro_rules! atomics {
    ($($(#[$doc:meta])* $name:ident => $imp:ident($($argument:ident),*) $(-> $result:ident)?;)*) => {
        /// # GPU-scope atomics
        /// They are atomic and ordered among all threads of the GPU. (`core::sync::atomic` would order
        /// them among all processors of the system, which costs more.)
        impl<T: AtomicScalar> Global<T> { $(
            $(#[$doc])*
            ///
            /// # Safety
            /// Element `index` lies in the view's allocation and is aligned; all its concurrent accesses
            /// are atomic.
            #[inline(always)]
            #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
            pub unsafe fn $name(self, index: usize $(, $argument: T)*) $(-> $result)? {
                // SAFETY: the caller's obligation is the callee's.
                unsafe { imp::$imp(self.pointer, index $(, $argument)*) }
            }
        )* }
    };
}

atomics! {
    /// Reads an element; what its writer released before is seen by what follows.
    load_acquire => atomic_load_acquire() -> T;
    /// Reads an element, ordering nothing else.
    load_relaxed => atomic_load_relaxed() -> T;
    /// Writes an element, after all that the thread did before.
    store_release => atomic_store_release(value);
    /// Writes an element, ordering nothing else.
    store_relaxed => atomic_store_relaxed(value);
    /// Adds to an element, ordering nothing else, and gives what it was before.
    fetch_add_relaxed => atomic_fetch_add_relaxed(value) -> T;
}
