//! The running thread's accesses to memory: checked, then made.

use std::ptr;
use std::rc::Rc;

use super::clock::{Clock, Stamp};
use super::fault::{Access, AccessKind, FaultKind, GpuThread, Place};
use super::machine::Machine;
use super::memory::GlobalPointer;
use super::shadow::{Conflict, Granule};
use super::thread::{AsyncCopy, Caller, Now};
use crate::{AtomicScalar, Scalar};

/// A pointer into the shared memory of the thread's block.
pub(crate) struct SharedPointer<T> {
    /// The offset in bytes: a multiple of the size of `T`, not beyond the end.
    byte: usize,
    element_type: std::marker::PhantomData<*mut T>,
}

impl<T> Clone for SharedPointer<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for SharedPointer<T> {}

impl<T> SharedPointer<T> {
    pub(super) const START: Self = Self::new(0);

    const fn new(byte: usize) -> Self {
        Self {
            byte,
            element_type: std::marker::PhantomData,
        }
    }
}

/// The value of the atomic at `pointer`.
///
/// # Safety
/// `pointer` is valid for reads of a `T`.
pub(super) unsafe fn load_word<T: AtomicScalar>(pointer: *const T) -> u64 {
    // SAFETY: the caller's obligation; an atomic scalar is a `u32` or a `u64`.
    unsafe {
        match size_of::<T>() {
            4 => pointer.cast::<u32>().read_unaligned().into(),
            _ => pointer.cast::<u64>().read_unaligned(),
        }
    }
}

/// Applies `change` to each granule, in order, up to the first conflict.
#[inline]
fn check_each(
    granules: &mut [Granule],
    mut check: impl FnMut(&mut Granule) -> Result<(), Conflict>,
) -> Result<(), (usize, Conflict)> {
    for (i, granule) in granules.iter_mut().enumerate() {
        check(granule).map_err(|conflict| (i, conflict))?;
    }
    Ok(())
}

#[inline]
fn check_access(
    kind: AccessKind,
    granules: &mut [Granule],
    now: &Now<'_>,
) -> Result<(), (usize, Conflict)> {
    match kind {
        AccessKind::Read => check_each(granules, |granule| granule.read(now)),
        AccessKind::Write => check_each(granules, |granule| granule.write(now)),
        AccessKind::AtomicLoad => check_each(granules, |granule| granule.atomic_load(now)),
        AccessKind::AtomicStore => check_each(granules, |granule| granule.atomic_store(now)),
        AccessKind::AsyncCopy | AccessKind::View => unreachable!("no access of its own"),
    }
}

impl Machine {
    fn access(&self, kind: AccessKind, stamp: Stamp) -> Access {
        Access {
            kind,
            thread: GpuThread {
                block: stamp.block,
                thread: stamp.thread.into(),
            },
            site: self.site(stamp.site),
        }
    }

    #[cold]
    fn conflict(&self, caller: Caller, access: AccessKind, place: Place, conflict: Conflict) -> ! {
        let kind = match conflict {
            Conflict::Unwritten => FaultKind::Unwritten { access, place },
            Conflict::InFlight(copy) => FaultKind::InFlight {
                access,
                place,
                copy: self.access(AccessKind::AsyncCopy, copy),
            },
            Conflict::Race(kind, stamp) => FaultKind::Race {
                access,
                place,
                other: self.access(kind, stamp),
            },
        };
        self.fault(caller, kind)
    }

    #[cold]
    fn misaligned(&self, caller: Caller, access: AccessKind, place: Place, bytes: usize) -> ! {
        let kind = FaultKind::Misaligned {
            access,
            place,
            bytes,
        };
        self.fault(caller, kind)
    }

    #[cold]
    fn out_of_bounds(
        &self,
        caller: Caller,
        access: AccessKind,
        place: Place,
        count: usize,
        size: usize,
    ) -> ! {
        let kind = FaultKind::OutOfBounds {
            access,
            place,
            count,
            size,
        };
        self.fault(caller, kind)
    }

    /// The pointer `index` elements on, which must have `count` elements from there on.
    #[inline]
    pub(super) fn global_at<T>(
        &self,
        caller: Caller,
        access: AccessKind,
        pointer: GlobalPointer<T>,
        index: usize,
        count: usize,
    ) -> GlobalPointer<T> {
        let allocation = pointer.allocation();
        let element = pointer.element.saturating_add(index);
        if element.saturating_add(count) > allocation.len {
            let place = allocation.place(element);
            self.out_of_bounds(caller, access, place, count, allocation.len);
        }
        let pointer = pointer.with_element(element);
        let bytes = count * size_of::<T>();
        if count > 1 && !pointer.address().is_multiple_of(bytes) {
            self.misaligned(caller, access, allocation.place(element), bytes);
        }
        pointer
    }

    /// Checks an access of `count` elements from `pointer` on, which are there.
    #[inline]
    fn check_global<T>(
        &self,
        caller: Caller,
        kind: AccessKind,
        pointer: GlobalPointer<T>,
        count: usize,
    ) {
        let now = self.thread().at_site(self.site_number(caller));
        let (allocation, first) = (pointer.allocation(), pointer.element);
        // SAFETY: the reference ends before any other thread runs, and this one makes no other.
        let granules = unsafe { &mut allocation.granules(self.id)[first..first + count] };
        if let Err((i, conflict)) = check_access(kind, granules, &now) {
            self.conflict(caller, kind, allocation.place(first + i), conflict);
        }
    }

    /// Makes an access of `N` elements ready: gives the address to make it at.
    #[inline]
    pub(super) fn global<T: Scalar, const N: usize>(
        &self,
        caller: Caller,
        kind: AccessKind,
        pointer: GlobalPointer<T>,
        index: usize,
    ) -> *mut [T; N] {
        self.step(caller);
        self.made_progress();
        let pointer = self.global_at(caller, kind, pointer, index, N);
        self.check_global(caller, kind, pointer, N);
        let bytes = pointer.allocation().bytes().cast::<T>();
        bytes.wrapping_add(pointer.element).cast()
    }

    /// The pointer `index` elements on, which must have `count` elements from there on.
    #[inline]
    pub(super) fn shared_at<T>(
        &self,
        caller: Caller,
        access: AccessKind,
        pointer: SharedPointer<T>,
        index: usize,
        count: usize,
    ) -> SharedPointer<T> {
        let size = self.launch().shared_bytes;
        let byte = index.saturating_mul(size_of::<T>());
        let byte = byte.saturating_add(pointer.byte);
        let bytes = count * size_of::<T>();
        let place = Place::Shared { byte };
        if byte.saturating_add(bytes) > size {
            self.out_of_bounds(caller, access, place, bytes, size);
        }
        if count > 1 && !byte.is_multiple_of(bytes) {
            self.misaligned(caller, access, place, bytes);
        }
        SharedPointer::new(byte)
    }

    /// Makes an access of `N` elements ready: gives the address to make it at.
    #[inline]
    pub(super) fn shared_access<T: Scalar, const N: usize>(
        &self,
        caller: Caller,
        kind: AccessKind,
        pointer: SharedPointer<T>,
        index: usize,
    ) -> *mut [T; N] {
        self.step(caller);
        self.made_progress();
        let SharedPointer { byte, .. } = self.shared_at(caller, kind, pointer, index, N);
        let now = self.thread().at_site(self.site_number(caller));
        // SAFETY: the reference ends before any other thread runs, and this one makes no other.
        let shared = unsafe { &mut *self.shared() };
        let (size, granules) = shared.granules(byte, N * size_of::<T>(), size_of::<T>());
        if let Err((i, conflict)) = check_access(kind, granules, &now) {
            let byte = byte + i * size;
            self.conflict(caller, kind, Place::Shared { byte }, conflict);
        }
        shared.bytes().wrapping_add(byte).cast()
    }

    pub(super) fn copy_async<T: Scalar, const N: usize>(
        &self,
        caller: Caller,
        target: (SharedPointer<T>, usize),
        source: (GlobalPointer<T>, usize),
    ) {
        let (target, index) = target;
        let (source, from) = source;
        let values = self.global::<T, N>(caller, AccessKind::Read, source, from);
        let source = self.global_at(caller, AccessKind::Read, source, from, N);
        self.shared_access::<T, N>(caller, AccessKind::Write, target, index);
        let SharedPointer { byte, .. } =
            self.shared_at(caller, AccessKind::Write, target, index, N);
        let element_bytes = size_of::<T>();
        let mut bytes = [0; 16];
        // SAFETY: `global` gives an address to read `N` elements at, which are at most 16 bytes; the
        // reference to shared memory ends before any other thread runs, and this one makes no other.
        unsafe {
            ptr::copy_nonoverlapping(values.cast(), bytes.as_mut_ptr(), N * element_bytes);
            let shared = &mut *self.shared();
            let (_, granules) = shared.granules(byte, N * element_bytes, element_bytes);
            granules.iter_mut().for_each(Granule::depart);
        }
        self.thread().copies.borrow_mut().open.push(AsyncCopy {
            target: byte,
            source: source.erase(),
            element_bytes,
            count: N,
            bytes,
            caller,
        });
    }

    pub(super) fn copy_commit(&self, caller: Caller) {
        self.step(caller);
        let copies = &mut *self.thread().copies.borrow_mut();
        copies.committed.push_back(std::mem::take(&mut copies.open));
    }

    pub(super) fn copy_wait(&self, caller: Caller, pending: u32) {
        self.step(caller);
        self.switch();
        let oldest = || {
            let committed = &mut self.thread().copies.borrow_mut().committed;
            let is_due = committed.len() > pending as usize;
            is_due.then(|| committed.pop_front()).flatten()
        };
        while let Some(group) = oldest() {
            group.into_iter().for_each(|copy| self.land(&copy));
        }
    }

    /// An asynchronous copy arrives.
    fn land(&self, copy: &AsyncCopy) {
        let AsyncCopy { caller, count, .. } = *copy;
        self.check_global(caller, AccessKind::Read, copy.source, count);
        let allocation = copy.source.allocation();
        let len = count * copy.element_bytes;
        let place = allocation.place(copy.source.element);
        // SAFETY: the source is in bounds since the copy began. The references to both memories end before
        // any other thread runs, and this one makes no others.
        let is_unchanged = unsafe {
            let source = allocation.bytes();
            let source = source.add(copy.source.element * copy.element_bytes);
            let is_unchanged = std::slice::from_raw_parts(source, len) == &copy.bytes[..len];
            let shared = &mut *self.shared();
            let target = shared.bytes().add(copy.target);
            ptr::copy_nonoverlapping(copy.bytes.as_ptr(), target, len);
            let (_, granules) = shared.granules(copy.target, len, copy.element_bytes);
            let epoch = self.thread().epoch.get();
            granules.iter_mut().for_each(|granule| granule.land(epoch));
            is_unchanged
        };
        if !is_unchanged {
            self.fault(caller, FaultKind::SourceChanged { place });
        }
    }

    /// Atomically loads an element, and gives its value with what its stores released.
    fn load<T: AtomicScalar>(
        &self,
        caller: Caller,
        pointer: GlobalPointer<T>,
        index: usize,
    ) -> (u64, Option<Rc<Clock>>) {
        let kind = AccessKind::AtomicLoad;
        self.step(caller);
        let pointer = self.global_at(caller, kind, pointer, index, 1);
        let (allocation, element) = (pointer.allocation(), pointer.element);
        let address = allocation.bytes().cast::<T>().wrapping_add(element);
        // SAFETY: the element is in bounds.
        let value = || unsafe { load_word(address) };
        self.before_load(caller, address.addr(), value());
        self.check_global(caller, kind, pointer, 1);
        self.thread().polled.set((address.addr(), value()));
        // SAFETY: the reference ends with the statement.
        let released = unsafe { allocation.granules(self.id)[element].released() };
        (value(), released)
    }

    pub(super) fn load_acquire<T: AtomicScalar>(
        &self,
        caller: Caller,
        pointer: GlobalPointer<T>,
        index: usize,
    ) -> u64 {
        let (value, released) = self.load(caller, pointer, index);
        if let Some(released) = released {
            self.thread().acquire(&released);
        }
        value
    }

    pub(super) fn load_relaxed<T: AtomicScalar>(
        &self,
        caller: Caller,
        pointer: GlobalPointer<T>,
        index: usize,
    ) -> u64 {
        let (value, released) = self.load(caller, pointer, index);
        if let Some(released) = released {
            self.thread().loaded.borrow_mut().join(&released);
        }
        value
    }

    /// Atomically changes an element by `change`, which gives its new value and what an acquiring load of it
    /// learns, from those that it had. Gives the old value. `kinds` are the accesses that this is.
    fn store<T: AtomicScalar>(
        &self,
        caller: Caller,
        kinds: &[AccessKind],
        pointer: GlobalPointer<T>,
        index: usize,
        change: impl FnOnce(u64, Option<Rc<Clock>>) -> (u64, Option<Rc<Clock>>),
    ) -> u64 {
        self.step(caller);
        let pointer = self.global_at(caller, AccessKind::AtomicStore, pointer, index, 1);
        self.switch();
        for &kind in kinds {
            self.check_global(caller, kind, pointer, 1);
        }
        let (allocation, element) = (pointer.allocation(), pointer.element);
        let address = allocation.bytes().cast::<T>().wrapping_add(element);
        // SAFETY: the element is in bounds, and the reference to its granule ends before any other thread
        // runs; an atomic scalar is a `u32` or a `u64`.
        let old = unsafe {
            let granule = &mut allocation.granules(self.id)[element];
            let old = load_word(address);
            let (new, released) = change(old, granule.released());
            granule.release(released);
            match size_of::<T>() {
                4 => address.cast::<u32>().write_unaligned(new as u32),
                _ => address.cast::<u64>().write_unaligned(new),
            }
            old
        };
        self.after_store(address.addr());
        old
    }

    pub(super) fn store_release<T: AtomicScalar>(
        &self,
        caller: Caller,
        pointer: GlobalPointer<T>,
        index: usize,
        value: u64,
    ) {
        self.store(
            caller,
            &[AccessKind::AtomicStore],
            pointer,
            index,
            |_, _| (value, Some(self.thread().publish())),
        );
    }

    pub(super) fn store_relaxed<T: AtomicScalar>(
        &self,
        caller: Caller,
        pointer: GlobalPointer<T>,
        index: usize,
        value: u64,
    ) {
        self.store(
            caller,
            &[AccessKind::AtomicStore],
            pointer,
            index,
            |_, _| (value, self.thread().fenced.borrow().clone()),
        );
    }

    pub(super) fn fetch_add_relaxed<T: AtomicScalar>(
        &self,
        caller: Caller,
        pointer: GlobalPointer<T>,
        index: usize,
        value: u64,
    ) -> u64 {
        let thread = self.thread();
        // A read-modify-write operation continues the release sequence of what it reads.
        let change = |old: u64, released: Option<Rc<Clock>>| {
            if let Some(released) = &released {
                thread.loaded.borrow_mut().join(released);
            }
            let fenced = thread.fenced.borrow().clone();
            let clocks = [released, fenced].into_iter().flatten();
            let released = clocks.reduce(|mut left, right| {
                left.join(&right);
                left
            });
            (old.wrapping_add(value), released)
        };
        let kinds = [AccessKind::AtomicLoad, AccessKind::AtomicStore];
        self.store(caller, &kinds, pointer, index, change)
    }

    pub(super) fn device_fence(&self, caller: Caller) {
        self.step(caller);
        let thread = self.thread();
        thread.acquire(&thread.loaded.borrow());
        thread.fenced.replace(Some(thread.publish()));
    }
}
