//! Streams, whoever made them.

use super::{Doing, check};
use crate::error::Result;
use cust::stream::Stream;
use cust::sys;
use std::ffi::c_void;
use std::marker::PhantomData;

/// A stream to put work on: one of cust's, or, by its handle, one that something else has made.
///
/// # Examples
/// ```no_run
/// use ptxscan::Operation;
/// use ptxscan::gpu::{DeviceOptions, DeviceView, DeviceViewMut, Gpu, StreamView};
///
/// /// The cumulative sum of `len` elements at `x`, to `y`: what a binding for PyTorch, say, does with its tensors and its stream.
/// ///
/// /// # Safety
/// /// The stream is of the GPU's primary context. Until it has done the work, `x` and `y` are that many elements in device memory
/// /// that only this stream uses.
/// unsafe fn cumsum(
///     gpu: &Gpu,
///     x: u64,
///     y: u64,
///     len: usize,
///     stream: *mut std::ffi::c_void,
/// ) -> Result<(), ptxscan::Error> {
///     // SAFETY: says the caller.
///     unsafe {
///         let stream = StreamView::from_raw(stream);
///         let (x, y) = (DeviceView::<f32>::from_raw_parts(x, len), DeviceViewMut::from_raw_parts(y, len));
///         gpu.scan_device_async(Operation::CUMSUM, &[x], &[len], 0, DeviceOptions::new(), y, stream)
///     }
/// }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct StreamView<'a> {
    handle: sys::CUstream,
    stream: PhantomData<&'a Stream>,
}

// SAFETY: a handle of a stream means the same to every thread, and the driver's functions may be called by any; cust's streams,
// which a view can stand for, are `Send` and `Sync` too.
unsafe impl Send for StreamView<'_> {}
// SAFETY: as above.
unsafe impl Sync for StreamView<'_> {}

impl<'a> From<&'a Stream> for StreamView<'a> {
    fn from(stream: &'a Stream) -> Self {
        Self {
            handle: stream.as_inner(),
            stream: PhantomData,
        }
    }
}

impl StreamView<'_> {
    /// The stream with a handle of CUDA's: a `CUstream`, or, as they are the same, a `cudaStream_t`. Null is the default stream.
    ///
    /// # Safety
    /// While the view is used, and until the work that was put on the stream by it is done, the stream exists. It is one of the
    /// primary context of the device that the work is for; null, as it is of the current context, always is.
    #[must_use]
    pub const unsafe fn from_raw(handle: *mut c_void) -> Self {
        Self {
            handle: handle.cast(),
            stream: PhantomData,
        }
    }

    /// The handle.
    #[must_use]
    pub const fn as_raw(self) -> *mut c_void {
        self.handle.cast()
    }

    /// The handle, as cust's functions have it.
    pub(super) fn as_inner(self) -> sys::CUstream {
        self.handle
    }

    /// Waits until all work on the stream is done.
    ///
    /// # Errors
    /// The driver reports one, which can come from the work; or the stream is being captured.
    pub fn synchronize(self) -> Result<()> {
        // SAFETY: the stream exists, as whoever made the view borrowed it or said so.
        check(unsafe { sys::cuStreamSynchronize(self.handle) }).doing("wait for the stream")
    }
}
