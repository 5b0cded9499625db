//! Emulated memory: allocations of global memory, and the shared memory of a block.

use std::cell::{Cell, RefCell, UnsafeCell};
use std::fmt;
use std::marker::PhantomData;
use std::ptr::{self, NonNull};
use std::rc::Rc;

use thiserror::Error;

use super::fault::Place;
use super::shadow::Granule;
use crate::{Global, Scalar};

/// An allocation of global memory; its granules are its elements.
///
/// Kernels reach it through pointers, one at a time on one OS thread, and each access is over before the
/// next begins: no reference into the cells outlives the function that makes it.
pub(super) struct Allocation {
    pub(super) number: usize,
    pub(super) len: usize,
    /// The address on the emulated GPU.
    address: usize,
    /// The launch that its granules are of.
    launch: Cell<u64>,
    bytes: UnsafeCell<Vec<u8>>,
    granules: UnsafeCell<Vec<Granule>>,
}

impl Allocation {
    pub(super) fn place(&self, element: usize) -> Place {
        Place::Global {
            allocation: self.number,
            element,
        }
    }

    /// # Safety
    /// No other reference to the granules is alive while the result is.
    #[inline]
    #[expect(clippy::mut_from_ref, reason = "that is what the caller vouches for")]
    pub(super) unsafe fn granules(&self, launch: u64) -> &mut [Granule] {
        // SAFETY: the caller's obligation.
        let granules = unsafe { &mut *self.granules.get() };
        if self.launch.replace(launch) != launch {
            granules.iter_mut().for_each(Granule::forget_launch);
        }
        granules
    }

    #[inline]
    pub(super) fn bytes(&self) -> *mut u8 {
        // SAFETY: the vector itself is never changed, and no reference to it outlives such an expression.
        unsafe { (*self.bytes.get()).as_mut_ptr() }
    }

    fn is_written(&self, element: usize) -> bool {
        // SAFETY: the reference ends with the expression.
        unsafe { (&*self.granules.get())[element].is_written() }
    }
}

/// A pointer into global memory: it keeps to the allocation that it was made from.
pub(crate) struct GlobalPointer<T> {
    allocation: NonNull<Allocation>,
    /// Not beyond the allocation's end.
    pub(super) element: usize,
    element_type: PhantomData<*mut T>,
}

impl<T> Clone for GlobalPointer<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for GlobalPointer<T> {}

impl<T> GlobalPointer<T> {
    /// The allocation, which lives, says whoever made the pointer's view or uses it.
    #[inline]
    pub(super) fn allocation<'a>(self) -> &'a Allocation {
        // SAFETY: the allocation lives as long as its `Memory`, to which all accesses of its views are bound.
        unsafe { self.allocation.as_ref() }
    }

    #[inline]
    pub(super) fn with_element(self, element: usize) -> Self {
        Self { element, ..self }
    }

    /// The pointer with its type forgotten: it still counts in elements of that type.
    pub(super) fn erase(self) -> GlobalPointer<()> {
        GlobalPointer {
            allocation: self.allocation,
            element: self.element,
            element_type: PhantomData,
        }
    }

    #[inline]
    pub(super) fn address(self) -> usize {
        self.allocation().address + self.element * size_of::<T>()
    }
}

/// Emulated global memory: it owns the buffers that tests allocate in it.
///
/// A [`Global`] view of a buffer must not be accessed once the memory is gone.
#[derive(Default)]
pub struct Memory {
    allocations: RefCell<Vec<Rc<Allocation>>>,
}

impl Memory {
    /// Memory with no allocations.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A buffer that holds `values`; it begins at a 256-byte boundary.
    pub fn copy_of<T: Scalar>(&self, values: &[T]) -> Buffer<'_, T> {
        self.copy_of_at(0, values)
    }

    /// A buffer that holds `values`; it begins `offset` elements after a 256-byte boundary.
    pub fn copy_of_at<T: Scalar>(&self, offset: usize, values: &[T]) -> Buffer<'_, T> {
        let buffer = self.allocate(offset, values.len(), &Granule::WRITTEN);
        // SAFETY: the allocation has as many elements as the slice.
        unsafe {
            let target = buffer.allocation.bytes();
            ptr::copy_nonoverlapping(values.as_ptr().cast(), target, size_of_val(values));
        }
        buffer
    }

    /// A buffer of `len` elements that nothing has written yet; it begins at a 256-byte boundary.
    pub fn uninit<T: Scalar>(&self, len: usize) -> Buffer<'_, T> {
        self.uninit_at(0, len)
    }

    /// A buffer of `len` elements that nothing has written yet; it begins `offset` elements after a 256-byte
    /// boundary.
    pub fn uninit_at<T: Scalar>(&self, offset: usize, len: usize) -> Buffer<'_, T> {
        self.allocate(offset, len, &Granule::UNWRITTEN)
    }

    fn allocate<T: Scalar>(&self, offset: usize, len: usize, granule: &Granule) -> Buffer<'_, T> {
        let mut allocations = self.allocations.borrow_mut();
        let number = allocations.len();
        let allocation = Rc::new(Allocation {
            number,
            len,
            address: 256 + offset * size_of::<T>(),
            launch: Cell::new(0),
            bytes: UnsafeCell::new(vec![0xff; len * size_of::<T>()]),
            granules: UnsafeCell::new(vec![granule.clone(); len]),
        });
        let pointer = NonNull::from(&*allocation);
        allocations.push(allocation);
        Buffer {
            // SAFETY: the memory never frees an allocation while it is borrowed, and never moves one.
            allocation: unsafe { pointer.as_ref() },
            element_type: PhantomData,
        }
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory")
            .field("allocations", &self.allocations.borrow().len())
            .finish()
    }
}

/// An element that nothing has written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("nothing has written element {element} of global allocation {allocation}")]
pub struct Unwritten {
    /// The allocation's number.
    pub allocation: usize,
    /// The first such element.
    pub element: usize,
}

/// A buffer in emulated global memory.
pub struct Buffer<'m, T> {
    allocation: &'m Allocation,
    element_type: PhantomData<T>,
}

impl<T> Clone for Buffer<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Buffer<'_, T> {}

impl<T> fmt::Debug for Buffer<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer")
            .field("allocation", &self.allocation.number)
            .field("len", &self.allocation.len)
            .finish()
    }
}

impl<T: Scalar> Buffer<'_, T> {
    /// The view to give to a kernel: from the buffer's first element on.
    #[must_use]
    pub fn view(self) -> Global<T> {
        let pointer = GlobalPointer {
            allocation: NonNull::from(self.allocation),
            element: 0,
            element_type: PhantomData,
        };
        Global { pointer }
    }

    /// The number of elements.
    #[must_use]
    #[expect(
        clippy::len_without_is_empty,
        reason = "whether it is empty, its maker knows"
    )]
    pub fn len(self) -> usize {
        self.allocation.len
    }

    /// Each element, or `None` where nothing has written it.
    #[must_use]
    pub fn elements(self) -> Vec<Option<T>> {
        let element = |i| {
            // SAFETY: the element is in the allocation; any bytes are a scalar.
            let value = || unsafe { self.allocation.bytes().cast::<T>().add(i).read_unaligned() };
            self.allocation.is_written(i).then(value)
        };
        (0..self.len()).map(element).collect()
    }

    /// The elements.
    ///
    /// # Errors
    /// [`Unwritten`], if nothing has written one of them.
    pub fn to_vec(self) -> Result<Vec<T>, Unwritten> {
        let unwritten = |element| Unwritten {
            allocation: self.allocation.number,
            element,
        };
        let elements = self.elements().into_iter().enumerate();
        elements
            .map(|(i, element)| element.ok_or_else(|| unwritten(i)))
            .collect()
    }
}

/// The shared memory of a block.
pub(super) struct SharedMemory {
    bytes: Vec<u8>,
    granules: Vec<Granule>,
    granule_bytes: usize,
}

impl SharedMemory {
    /// The granules begin as large as most kernels' elements.
    const GRANULE_BYTES: usize = 4;

    pub(super) fn new(bytes: usize) -> Self {
        let granule_bytes = Self::GRANULE_BYTES;
        Self {
            bytes: vec![0xff; bytes],
            granules: vec![Granule::UNWRITTEN; bytes.div_ceil(granule_bytes)],
            granule_bytes,
        }
    }

    pub(super) fn forget(&mut self) {
        self.granules.fill(Granule::UNWRITTEN);
    }

    pub(super) fn bytes(&mut self) -> *mut u8 {
        self.bytes.as_mut_ptr()
    }

    /// The granules of `count` bytes from byte `first` on, which are elements of `element_bytes` bytes, with
    /// the size of one.
    #[inline]
    pub(super) fn granules(
        &mut self,
        first: usize,
        count: usize,
        element_bytes: usize,
    ) -> (usize, &mut [Granule]) {
        if element_bytes < self.granule_bytes {
            self.refine(element_bytes);
        }
        let size = self.granule_bytes;
        (
            size,
            &mut self.granules[first / size..(first + count) / size],
        )
    }

    /// Splits the granules into ones of `bytes` bytes.
    #[cold]
    fn refine(&mut self, bytes: usize) {
        let pieces = self.granule_bytes / bytes;
        let split = |granule: &Granule| vec![granule.clone(); pieces];
        self.granules = self.granules.iter().flat_map(split).collect();
        self.granule_bytes = bytes;
    }
}
