//! ptxscan behind a C interface: scans and gradients, prepared once, and run on the device memory and the stream of another
//! library. `ptxscan_peer.py` calls it from Python, on tensors of PyTorch's.
//!
//! A function that fails says so by what it returns, and [`ptxscan_last_error`] says why. No panic leaves a function.

use ptxscan::gpu::{
    DeviceBackwardOptions, DeviceOptions, DeviceView, DeviceViewMut, Gpu, Prepared,
    PreparedBackward, StreamView,
};
use ptxscan::half::{bf16, f16};
use ptxscan::num_complex::Complex;
use ptxscan::{Direction, Element, Operation, Operator};
use std::any::Any;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;
use std::sync::{Mutex, PoisonError};

/// What a function does, or the text that C gets of an error.
type Outcome<T> = Result<T, String>;

/// A scan or a gradient that is prepared for tensors of one shape.
pub struct Scan {
    prepared: Box<dyn Run>,
    /// How many elements each tensor has.
    elements: usize,
}

/// What is prepared, whatever its elements are.
trait Run {
    /// Puts a run on the stream.
    ///
    /// # Safety
    /// As for [`ptxscan_run`]; each array has so many `elements`.
    unsafe fn run(&self, arrays: &[u64], elements: usize, stream: StreamView<'_>) -> Outcome<()>;
}

impl<T: Element> Run for Prepared<'static, T> {
    unsafe fn run(&self, arrays: &[u64], elements: usize, stream: StreamView<'_>) -> Outcome<()> {
        let Some((&out, inputs)) = arrays.split_last() else {
            return Err("expected the inputs and the output, got no arrays".to_owned());
        };
        // SAFETY: says the caller.
        let input = |&address| unsafe { DeviceView::from_raw_parts(address, elements) };
        let inputs: Vec<_> = inputs.iter().map(input).collect();
        // SAFETY: says the caller.
        unsafe {
            let out = DeviceViewMut::from_raw_parts(out, elements);
            self.run_async(&inputs, DeviceOptions::new(), out, stream)
        }
        .map_err(text)
    }
}

impl<T: Element> Run for PreparedBackward<'static, T> {
    unsafe fn run(&self, arrays: &[u64], elements: usize, stream: StreamView<'_>) -> Outcome<()> {
        let Ok([a, h, dh, da, db]) = <[u64; 5]>::try_from(arrays) else {
            return Err(format!(
                "expected the 5 arrays a, h, dh, da and db, got {}",
                arrays.len()
            ));
        };
        // SAFETY: says the caller.
        unsafe {
            let inputs = [a, h, dh].map(|address| DeviceView::from_raw_parts(address, elements));
            let outputs = [da, db].map(|address| DeviceViewMut::from_raw_parts(address, elements));
            self.run_async(inputs, DeviceBackwardOptions::new(), outputs, stream)
        }
        .map_err(text)
    }
}

/// What can be prepared.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Task {
    Scan(Operation),
    Gradient(Direction),
}

impl Task {
    /// The task of a name: that of an operation, followed by `_backward` for its gradient.
    fn of_name(name: &str) -> Option<Self> {
        let (scan, is_backward) = match name.strip_suffix("_backward") {
            Some(scan) => (scan, true),
            None => (name, false),
        };
        let operation = [
            Operation::CUMSUM,
            Operation::REVERSE_CUMSUM,
            Operation::AFFINE_SCAN,
            Operation::REVERSE_AFFINE_SCAN,
        ]
        .into_iter()
        .find(|operation| operation.name() == scan)?;
        match (is_backward, operation.operator) {
            (false, _) => Some(Self::Scan(operation)),
            (true, Operator::AffineScan) => Some(Self::Gradient(operation.direction)),
            (true, Operator::Cumsum) => None,
        }
    }
}

/// The GPU of a number. It is made once and stays: what is prepared on it borrows it.
fn gpu(ordinal: usize) -> Outcome<&'static Gpu> {
    static GPUS: Mutex<BTreeMap<usize, &'static Gpu>> = Mutex::new(BTreeMap::new());
    let mut gpus = GPUS.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(match gpus.entry(ordinal) {
        Entry::Occupied(gpu) => gpu.get(),
        Entry::Vacant(place) => place.insert(Box::leak(Box::new(Gpu::new(ordinal).map_err(text)?))),
    })
}

fn prepare(task: &str, element: &str, shape: [usize; 3], device: usize) -> Outcome<Scan> {
    let task = Task::of_name(task).ok_or_else(|| format!("there is no operation {task:?}"))?;
    macro_rules! by_name {
        ($($type:ty),*) => {
            match element {
                $(<$type as Element>::NAME => prepare_of::<$type>(task, shape, device),)*
                _ => Err(format!("there are no elements of type {element:?}")),
            }
        };
    }
    by_name!(f32, f64, f16, bf16, i32, i64, Complex<f32>)
}

fn prepare_of<T: Element>(task: Task, shape: [usize; 3], device: usize) -> Outcome<Scan> {
    let gpu = gpu(device)?;
    let prepared: Box<dyn Run> = match task {
        Task::Scan(operation) => {
            let options = DeviceOptions::<T>::new();
            let prepared = gpu.prepare(operation, &shape, 1, &options, None);
            Box::new(prepared.map_err(text)?)
        }
        Task::Gradient(direction) => {
            let options = DeviceBackwardOptions::<T>::new();
            let prepared = gpu.prepare_backward(direction, &shape, 1, &options, None);
            Box::new(prepared.map_err(text)?)
        }
    };
    Ok(Scan {
        prepared,
        // It does not overflow: such a shape is not prepared.
        elements: shape.iter().product(),
    })
}

fn text(error: ptxscan::Error) -> String {
    error.to_string()
}

/// A string of C's.
///
/// # Safety
/// It is null, or a string that ends with a 0 and outlives the result.
unsafe fn string<'a>(what: &str, string: *const c_char) -> Outcome<&'a str> {
    if string.is_null() {
        return Err(format!("{what} is null"));
    }
    // SAFETY: it is not null, and the rest says the caller.
    let string = unsafe { CStr::from_ptr(string) };
    string
        .to_str()
        .map_err(|error| format!("{what} is not UTF-8: {error}"))
}

thread_local! {
    static LAST_ERROR: RefCell<CString> = RefCell::default();
}

/// What `body` gives; or `failed`, with the reason kept for [`ptxscan_last_error`].
fn guarded<T>(failed: T, body: impl FnOnce() -> Outcome<T>) -> T {
    // What a panic breaks off is seen by nobody: a body changes nothing that outlives it but the list of GPUs, which gets one as
    // the last step.
    let outcome = catch_unwind(AssertUnwindSafe(body));
    outcome
        .unwrap_or_else(|panic| Err(format!("a panic: {}", message(&*panic))))
        .unwrap_or_else(|error| {
            // Texts from elsewhere could have zeros in them.
            let error = CString::new(error.replace('\0', " ")).unwrap_or_default();
            LAST_ERROR.set(error);
            failed
        })
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("of no text")
}

/// Prepares an operation along the middle axis of row-major tensors (`outer`, `len`, `inner`), on the GPU of that number as the driver,
/// and so PyTorch, counts them. It is in the primary context, which is PyTorch's too, and which is current for this thread afterwards.
///
/// `operation` is `cumsum`, `reverse_cumsum`, `affine_scan`, `reverse_affine_scan`, or one of the latter two followed by
/// `_backward`: its gradient. `element` is the type of the elements as numpy spells it, such as `float32`.
///
/// It returns null where that fails. What it returns otherwise is given up by [`ptxscan_destroy`].
///
/// # Safety
/// The strings are null, or end with a 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ptxscan_prepare(
    operation: *const c_char,
    element: *const c_char,
    outer: usize,
    len: usize,
    inner: usize,
    device: usize,
) -> *mut Scan {
    guarded(null_mut(), || {
        // SAFETY: says the caller, and they are used in this call alone.
        let (operation, element) =
            unsafe { (string("operation", operation)?, string("element", element)?) };
        let scan = prepare(operation, element, [outer, len, inner], device)?;
        Ok(Box::into_raw(Box::new(scan)))
    })
}

/// Puts a run on a stream, a `cudaStream_t`, and returns 0; or not 0 where that fails. It waits for nothing, and can be captured in a
/// CUDA graph.
///
/// `arrays` are `count` addresses in device memory, others in each run if need be, of as many elements as the tensors have: x and y of
/// a sum; a, b and h of an affine scan; and a, h, dh, da and db of its gradient.
///
/// # Safety
/// - `scan` is null, or comes from [`ptxscan_prepare`] and is not given up.
/// - `arrays` are `count` addresses; each is a multiple of the size of an element.
/// - The stream is one of the device's primary context, or null.
/// - Until the stream has done the work, also after an error, the arrays and the scan are not given up, nothing else writes the
///   inputs or accesses the outputs, and no other run of the scan begins but on the same stream. Where the work is captured in a
///   graph, that goes for each launch of the graph.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ptxscan_run(
    scan: *const Scan,
    arrays: *const u64,
    count: usize,
    stream: *mut c_void,
) -> c_int {
    guarded(1, || {
        // SAFETY: it is null, or a scan, says the caller.
        let scan = unsafe { scan.as_ref() }.ok_or("the scan is null")?;
        if arrays.is_null() {
            return Err("the arrays are null".to_owned());
        }
        // SAFETY: says the caller.
        unsafe {
            let arrays = std::slice::from_raw_parts(arrays, count);
            let stream = StreamView::from_raw(stream);
            scan.prepared.run(arrays, scan.elements, stream)?;
        }
        Ok(0)
    })
}

/// Gives up what was prepared, and its device memory.
///
/// # Safety
/// `scan` is null, or comes from [`ptxscan_prepare`], is not given up yet, and its runs are done.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ptxscan_destroy(scan: *mut Scan) {
    guarded((), || {
        if !scan.is_null() {
            // SAFETY: it was made by `Box::into_raw`, and nobody uses it any more, says the caller.
            drop(unsafe { Box::from_raw(scan) });
        }
        Ok(())
    });
}

/// Why the last call of this thread that failed did so: a text that stays until the next one fails; empty before the first.
#[unsafe(no_mangle)]
pub extern "C" fn ptxscan_last_error() -> *const c_char {
    LAST_ERROR.with_borrow(|error| error.as_ptr())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last_error() -> String {
        // SAFETY: it is a string, and no call fails meanwhile.
        unsafe { CStr::from_ptr(ptxscan_last_error()) }
            .to_string_lossy()
            .into_owned()
    }

    #[test]
    fn tasks_have_the_names_of_operations() {
        let names = [
            ("cumsum", Some(Task::Scan(Operation::CUMSUM))),
            (
                "reverse_cumsum",
                Some(Task::Scan(Operation::REVERSE_CUMSUM)),
            ),
            (
                "affine_scan_backward",
                Some(Task::Gradient(Direction::Forward)),
            ),
            (
                "reverse_affine_scan_backward",
                Some(Task::Gradient(Direction::Reverse)),
            ),
            ("cumsum_backward", None),
            ("_backward", None),
            ("scan", None),
        ];
        for (name, task) in names {
            assert_eq!(Task::of_name(name), task, "{name}");
        }
    }

    #[test]
    fn errors_become_text() {
        let prepare = |operation: *const c_char, element: &CStr| {
            // SAFETY: they are null or strings.
            unsafe { ptxscan_prepare(operation, element.as_ptr(), 1, 2, 3, 0) }
        };
        assert!(prepare(c"scan".as_ptr(), c"float32").is_null());
        assert_eq!(last_error(), r#"there is no operation "scan""#);
        assert!(prepare(c"cumsum".as_ptr(), c"f32").is_null());
        assert_eq!(last_error(), r#"there are no elements of type "f32""#);
        assert!(prepare(std::ptr::null(), c"float32").is_null());
        assert_eq!(last_error(), "operation is null");
        // SAFETY: there is no scan.
        let code = unsafe { ptxscan_run(std::ptr::null(), [0].as_ptr(), 1, null_mut()) };
        assert_ne!(code, 0);
        assert_eq!(last_error(), "the scan is null");
        // SAFETY: as above.
        unsafe { ptxscan_destroy(null_mut()) };
    }

    #[test]
    fn panics_become_text() {
        assert_eq!(guarded(7, || panic!("step {}", 3)), 7);
        assert_eq!(last_error(), "a panic: step 3");
        assert_eq!(guarded(7, || panic!("zero \0")), 7);
        assert_eq!(last_error(), "a panic: zero  ");
    }
}
