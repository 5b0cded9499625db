//! CUDA graphs: work that is captured once, and launched any number of times.

use super::{Doing, StreamView, check};
use crate::error::{Error, Result};
use cust::sys;
use std::fmt;
use std::ptr::null_mut;

/// Work captured from a stream: to launch it takes the host less time than to put it on the stream anew.
///
/// # Examples
/// ```no_run
/// use ptxscan::Operation;
/// use ptxscan::gpu::cust::{memory::DeviceBuffer, stream::{Stream, StreamFlags}};
/// use ptxscan::gpu::{DeviceOptions, Gpu, Graph};
///
/// let gpu = Gpu::new(0)?;
/// gpu.make_current()?;
/// let stream = Stream::new(StreamFlags::NON_BLOCKING, None)?;
/// let x = DeviceBuffer::from_slice(&[1.0_f32; 1024])?;
/// let mut y = DeviceBuffer::from_slice(&[0.0_f32; 1024])?;
/// let prepared = gpu.prepare(Operation::CUMSUM, &[1024], 0, &DeviceOptions::new(), None)?;
/// let graph = Graph::captured(&stream, || {
///     // SAFETY: `x`, `y` and `prepared` live until the stream has done all launches, and nothing else uses them until then.
///     unsafe { prepared.run_async(&[(&x).into()], DeviceOptions::new(), (&mut y).into(), &stream) }
/// })?;
/// for _ in 0..10 {
///     // SAFETY: as above.
///     unsafe { graph.launch(&stream)? };
/// }
/// stream.synchronize()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Graph {
    executable: sys::CUgraphExec,
}

impl fmt::Debug for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Graph").finish_non_exhaustive()
    }
}

impl Graph {
    /// What `enqueue` puts on the stream. It does not run yet.
    ///
    /// Runs of a [`Prepared`](super::Prepared) and of a [`PreparedBackward`](super::PreparedBackward) can be captured. What waits for the stream cannot.
    ///
    /// # Errors
    /// Those of `enqueue`; or the driver's, where something cannot be captured.
    pub fn captured<'s, E: From<Error>>(
        stream: impl Into<StreamView<'s>>,
        enqueue: impl FnOnce() -> Result<(), E>,
    ) -> Result<Self, E> {
        let stream = stream.into();
        // What other threads do meanwhile is theirs.
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream exists.
        check(unsafe { sys::cuStreamBeginCapture_v2(stream.as_inner(), mode) })
            .doing("capture a stream")?;
        let enqueued = enqueue();
        let mut graph = null_mut();
        // SAFETY: the capture has begun on this stream, and `graph` is a place for the result.
        let ended = check(unsafe { sys::cuStreamEndCapture(stream.as_inner(), &mut graph) })
            .doing("capture a stream");
        let mut executable = null_mut();
        let made = ended.and_then(|()| {
            // SAFETY: the graph is complete, and `executable` is a place for the result.
            check(unsafe { sys::cuGraphInstantiateWithFlags(&mut executable, graph, 0) })
                .doing("instantiate a graph")
        });
        if !graph.is_null() {
            // SAFETY: it was made above; what was instantiated does not need it.
            let _ = unsafe { sys::cuGraphDestroy(graph) };
        }
        // From here on it is given up with this.
        let graph = made.map(|()| Self { executable });
        enqueued?;
        Ok(graph?)
    }

    /// Puts the work on a stream.
    ///
    /// # Errors
    /// The driver reports one.
    ///
    /// # Safety
    /// Each launch has the obligations of the calls that were captured; and until the stream has done the work, the graph lives.
    pub unsafe fn launch<'s>(&self, stream: impl Into<StreamView<'s>>) -> Result<()> {
        let stream = stream.into();
        // SAFETY: the graph was instantiated. The rest says the caller.
        check(unsafe { sys::cuGraphLaunch(self.executable, stream.as_inner()) })
            .doing("launch a graph")
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: it was instantiated by this, and its work is done, says the caller of `launch`.
        let _ = unsafe { sys::cuGraphExecDestroy(self.executable) };
    }
}
