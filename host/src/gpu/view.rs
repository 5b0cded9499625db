//! Parts of device memory.

use cust::memory::{DeviceBuffer, DeviceCopy};
use std::marker::PhantomData;
use std::ops::Range;

/// Elements in device memory, to be read.
///
/// cust's own slices have no lifetime; this one keeps its buffer borrowed.
#[derive(Clone, Copy, Debug)]
pub struct DeviceView<'a, T> {
    address: u64,
    len: usize,
    buffer: PhantomData<&'a [T]>,
}

/// Elements in device memory, to be written.
#[derive(Debug)]
pub struct DeviceViewMut<'a, T> {
    address: u64,
    len: usize,
    buffer: PhantomData<&'a mut [T]>,
}

macro_rules! views {
    ($($name:ident: $buffer:ty, $bytes:ty;)*) => { $(
        impl<'a, T: DeviceCopy> From<$buffer> for $name<'a, T> {
            fn from(buffer: $buffer) -> Self {
                Self {
                    address: buffer.as_device_ptr().as_raw(),
                    len: buffer.len(),
                    buffer: PhantomData,
                }
            }
        }

        impl<'a, T> $name<'a, T> {
            /// A buffer of bytes as elements, of types that cust does not know too; bytes beyond the last whole element are
            /// left out.
            #[must_use]
            pub fn of_bytes(buffer: $bytes) -> Self
            where
                T: crate::Element,
            {
                Self {
                    address: buffer.as_device_ptr().as_raw(),
                    len: buffer.len() / size_of::<T>(),
                    buffer: PhantomData,
                }
            }

            /// `len` elements from `address` on, in memory that something else than cust has allocated.
            ///
            /// # Safety
            /// The elements lie in device memory, and their address is a multiple of their size. While the view is used, and
            /// until the work that got it is done, the memory stays allocated, and nothing accesses it that Rust's rules for a
            /// slice would forbid.
            #[must_use]
            pub unsafe fn from_raw_parts(address: u64, len: usize) -> Self {
                Self {
                    address,
                    len,
                    buffer: PhantomData,
                }
            }

            /// The elements `range` of the view; `None` where it does not have them.
            #[must_use]
            pub fn slice(self, range: Range<usize>) -> Option<Self> {
                let len = range.end.checked_sub(range.start)?;
                (range.end <= self.len).then(|| Self {
                    address: self.address + (range.start * size_of::<T>()) as u64,
                    len,
                    buffer: PhantomData,
                })
            }

            /// How many elements it has.
            #[must_use]
            pub fn len(&self) -> usize {
                self.len
            }

            /// The addresses of its bytes.
            pub(super) fn bytes(&self) -> Range<u64> {
                self.address..self.address.saturating_add((self.len * size_of::<T>()) as u64)
            }

            /// Whether it has no elements.
            #[must_use]
            pub fn is_empty(&self) -> bool {
                self.len == 0
            }

            /// The address of the first element on the device.
            #[must_use]
            pub fn address(&self) -> u64 {
                self.address
            }
        }
    )* };
}
views! {
    DeviceView: &'a DeviceBuffer<T>, &'a DeviceBuffer<u8>;
    DeviceViewMut: &'a mut DeviceBuffer<T>, &'a mut DeviceBuffer<u8>;
}
