//! Parts of device buffers.

use cust::memory::{DeviceBuffer, DeviceCopy, DevicePointer};
use std::marker::PhantomData;
use std::ops::Range;

/// Elements of a device buffer, to be read.
///
/// cust's own slices have no lifetime; this one keeps its buffer borrowed.
#[derive(Clone, Copy, Debug)]
pub struct DeviceView<'a, T: DeviceCopy> {
    pointer: DevicePointer<T>,
    len: usize,
    buffer: PhantomData<&'a DeviceBuffer<T>>,
}

/// Elements of a device buffer, to be written.
#[derive(Debug)]
pub struct DeviceViewMut<'a, T: DeviceCopy> {
    pointer: DevicePointer<T>,
    len: usize,
    buffer: PhantomData<&'a mut DeviceBuffer<T>>,
}

macro_rules! views {
    ($($name:ident: $buffer:ty;)*) => { $(
        impl<'a, T: DeviceCopy> From<$buffer> for $name<'a, T> {
            fn from(buffer: $buffer) -> Self {
                Self {
                    pointer: buffer.as_device_ptr(),
                    len: buffer.len(),
                    buffer: PhantomData,
                }
            }
        }

        impl<'a, T: DeviceCopy> $name<'a, T> {
            /// The elements `range` of the view; `None` where it does not have them.
            #[must_use]
            pub fn slice(self, range: Range<usize>) -> Option<Self> {
                let len = range.end.checked_sub(range.start)?;
                (range.end <= self.len).then(|| Self {
                    // SAFETY: range.start ≤ range.end ≤ len, so the sum stays in the buffer or at its end.
                    pointer: unsafe { self.pointer.add(range.start) },
                    len,
                    buffer: PhantomData,
                })
            }

            /// How many elements it has.
            #[must_use]
            pub fn len(&self) -> usize {
                self.len
            }

            /// Whether it has no elements.
            #[must_use]
            pub fn is_empty(&self) -> bool {
                self.len == 0
            }

            /// The address of the first element on the device.
            #[must_use]
            pub fn address(&self) -> u64 {
                self.pointer.as_raw()
            }
        }
    )* };
}
views! {
    DeviceView: &'a DeviceBuffer<T>;
    DeviceViewMut: &'a mut DeviceBuffer<T>;
}
