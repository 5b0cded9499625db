//! Shared memory: the dynamic shared memory of a block, as a typed view.

use crate::{Global, Scalar, imp};

/// A view of the block's shared memory as elements of type `T`, from some address on.
#[repr(transparent)]
pub struct Shared<T> {
    pub(crate) pointer: imp::SharedPointer<T>,
}

impl<T> Clone for Shared<T> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Shared<T> {}

/// The dynamic shared memory of the block: as many bytes as the launch asked for, aligned to 16 bytes.
#[inline(always)]
#[must_use]
pub fn dynamic_shared_mem<T: Scalar>() -> Shared<T> {
    Shared {
        pointer: imp::dynamic_shared_mem(),
    }
}

/// # Safety of the accesses
/// In each of them, elements `index .. index + N` lie in the block's shared memory; for an access of
/// `N` elements at once, their address is a multiple of `N` times the size of `T`. What is read has been
/// written; what another thread writes or reads is on the other side of a barrier.
impl<T: Scalar> Shared<T> {
    /// The view from element `elements` of this one on.
    ///
    /// # Safety
    /// The new start lies in the block's shared memory or at its end.
    #[inline(always)]
    #[must_use]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn add(self, elements: usize) -> Self {
        // SAFETY: the caller's obligation is the callee's.
        let pointer = unsafe { imp::shared_add(self.pointer, elements) };
        Self { pointer }
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
        let [value] = unsafe { imp::shared_read::<T, 1>(self.pointer, index) };
        value
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
        unsafe { imp::shared_read::<T, N>(self.pointer, index) }
    }

    /// Writes one element.
    ///
    /// # Safety
    /// As above.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn write(self, index: usize, value: T) {
        // SAFETY: the caller's obligation is the callee's.
        unsafe { imp::shared_write(self.pointer, index, [value]) }
    }

    /// Writes 1, 2 or 4 elements in one access.
    ///
    /// # Safety
    /// As above.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn write_vector<const N: usize>(self, index: usize, values: [T; N]) {
        // SAFETY: the caller's obligation is the callee's.
        unsafe { imp::shared_write(self.pointer, index, values) }
    }

    /// Starts to copy `N` elements of `source`, from its element `from` on, to element `index` on; `N`
    /// elements are 4, 8 or 16 bytes, or 2, which are copied at once. See [`async_copy`](crate::async_copy) for when it is done.
    ///
    /// # Safety
    /// As above for both ends, from the call on until the copy is done.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn copy_async<const N: usize>(self, index: usize, source: Global<T>, from: usize) {
        const { assert!(matches!(N * size_of::<T>(), 2 | 4 | 8 | 16)) }
        if N * size_of::<T>() == 2 {
            // SAFETY: the caller's obligation is the callees'.
            unsafe { self.write_vector::<N>(index, source.read_vector::<N>(from)) };
            return;
        }
        // SAFETY: the caller's obligation is the callee's.
        unsafe { imp::copy_async::<T, N>(self.pointer, index, source.pointer, from) }
    }
}
