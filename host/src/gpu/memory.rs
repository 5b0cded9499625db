//! Device memory that is allocated, filled and given up in the order of a stream.

use super::{DeviceView, DeviceViewMut, Doing, StreamView, check};
use crate::element::Element;
use crate::error::{CudaError, Error, Result};
use crate::operation::Operation;
use cust::sys;
use std::mem::MaybeUninit;

const OUT_OF_MEMORY: CudaError = CudaError(sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY as u32);

/// Device memory for work on a stream, or, once that has been waited for, on any.
pub(super) struct Memory<'a> {
    /// 0 where there are no bytes.
    address: u64,
    bytes: usize,
    stream: StreamView<'a>,
}

impl<'a> Memory<'a> {
    /// So many bytes, whatever is in them, for what an error says.
    pub(super) fn new(
        operation: Operation,
        what: &'static str,
        bytes: usize,
        stream: StreamView<'a>,
    ) -> Result<Self> {
        let mut address = 0;
        if bytes > 0 {
            // SAFETY: `address` is a place for the result.
            match check(unsafe { sys::cuMemAllocAsync(&mut address, bytes, stream.as_inner()) }) {
                Err(OUT_OF_MEMORY) => {
                    return Err(Error::OutOfDeviceMemory {
                        operation,
                        what,
                        bytes,
                    });
                }
                result => result.doing("allocate device memory")?,
            }
        }
        Ok(Self {
            address,
            bytes,
            stream,
        })
    }

    /// So many bytes of zeros.
    pub(super) fn zeroed(
        operation: Operation,
        what: &'static str,
        bytes: usize,
        stream: StreamView<'a>,
    ) -> Result<Self> {
        let memory = Self::new(operation, what, bytes, stream)?;
        if bytes > 0 {
            // SAFETY: the memory has as many bytes, and was allocated on the same stream.
            check(unsafe {
                sys::cuMemsetD8Async(memory.address, 0, bytes, memory.stream.as_inner())
            })
            .doing("clear device memory")?;
        }
        Ok(memory)
    }

    /// A copy of values on the host.
    ///
    /// # Safety
    /// They stay as they are until the stream has been waited for, also after an error.
    pub(super) unsafe fn copy_of<V: Plain>(
        operation: Operation,
        what: &'static str,
        values: &[V],
        stream: StreamView<'a>,
    ) -> Result<Self> {
        let memory = Self::new(operation, what, size_of_val(values), stream)?;
        if memory.bytes > 0 {
            // SAFETY: both are as many bytes, all of them initialised, as the type has no padding. The rest says the caller.
            check(unsafe {
                sys::cuMemcpyHtoDAsync_v2(
                    memory.address,
                    values.as_ptr().cast(),
                    memory.bytes,
                    stream.as_inner(),
                )
            })
            .doing("copy to the device")?;
        }
        Ok(memory)
    }

    /// Copies the memory to as many bytes of values on the host.
    ///
    /// # Safety
    /// Work on the stream has written values of the type to the memory; and until the stream has been waited for, also after an
    /// error, nothing accesses those on the host, and they are not given up.
    pub(super) unsafe fn copy_to<V: Plain>(&self, values: &mut [MaybeUninit<V>]) -> Result<()> {
        assert_eq!(self.bytes, size_of_val(values));
        if self.bytes == 0 {
            return Ok(());
        }
        // SAFETY: both are as many bytes. The rest says the caller.
        check(unsafe {
            sys::cuMemcpyDtoHAsync_v2(
                values.as_mut_ptr().cast(),
                self.address,
                self.bytes,
                self.stream.as_inner(),
            )
        })
        .doing("copy from the device")
    }

    pub(super) fn address(&self) -> u64 {
        self.address
    }

    /// The memory as elements, to be read on the stream.
    pub(super) fn view<T: Element>(&self) -> DeviceView<'_, T> {
        // SAFETY: they lie in this memory, which is aligned for all types, and stays as long as it is borrowed.
        unsafe { DeviceView::from_raw_parts(self.address, self.bytes / size_of::<T>()) }
    }

    /// The memory as bytes, to be read on the stream.
    pub(super) fn bytes(&self) -> DeviceView<'_, u8> {
        // SAFETY: they are this memory, which stays as long as it is borrowed.
        unsafe { DeviceView::from_raw_parts(self.address, self.bytes) }
    }

    /// The memory as elements, to be written on the stream.
    pub(super) fn view_mut<T: Element>(&mut self) -> DeviceViewMut<'_, T> {
        // SAFETY: they lie in this memory, which is aligned for all types, and stays as long as it is borrowed, by this alone.
        unsafe { DeviceViewMut::from_raw_parts(self.address, self.bytes / size_of::<T>()) }
    }
}

impl Drop for Memory<'_> {
    fn drop(&mut self) {
        if self.bytes > 0 {
            // If it fails, the context is lost, and its memory with it.
            // SAFETY: the memory was allocated so, and work on the stream that uses it comes before.
            let _ = unsafe { sys::cuMemFreeAsync(self.address, self.stream.as_inner()) };
        }
    }
}

/// A type without padding.
pub(super) trait Plain: Copy {}
impl<T: Element> Plain for T {}
impl Plain for bool {}
impl Plain for usize {}
