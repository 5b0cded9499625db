//! The seam of the library: its device functions, as the emulator does them.

use std::panic::Location;

use super::access::load_word;
use super::fault::{AccessKind, FaultKind};
use super::machine::{Machine, machine};
use super::thread::{Caller, WarpCall, WarpFunction};
use crate::{AtomicScalar, Scalar};

pub(crate) use super::access::SharedPointer;
pub(crate) use super::memory::GlobalPointer;

macro_rules! coordinates {
    ($($name:ident: $value:expr;)*) => { $(
        #[track_caller]
        pub(crate) fn $name() -> u32 {
            let value: fn(&Machine) -> u32 = $value;
            value(machine())
        }
    )* };
}
coordinates! {
    thread_idx_x: |machine| machine.thread().index.into();
    thread_idx_y: |_| 0;
    thread_idx_z: |_| 0;
    block_idx_x: |machine| machine.thread().block.get() % machine.launch().grid_x;
    block_idx_y: |machine| machine.thread().block.get() / machine.launch().grid_x;
    block_idx_z: |_| 0;
    block_dim_x: |machine| machine.launch().block_threads;
    block_dim_y: |_| 1;
    block_dim_z: |_| 1;
    grid_dim_x: |machine| machine.launch().grid_x;
    grid_dim_y: |machine| machine.launch().grid_y;
    grid_dim_z: |_| 1;
    lane_id: |machine| machine.thread().lane();
}

#[track_caller]
pub(crate) fn trap() -> ! {
    machine().fault(Location::caller(), FaultKind::Trap)
}

#[track_caller]
pub(crate) fn device_fence() {
    machine().device_fence(Location::caller());
}

/// # Safety
/// As [`crate::thread::sync_threads`].
#[track_caller]
pub(crate) unsafe fn sync_threads() {
    machine().sync_threads(Location::caller());
}

/// Notes where the shuffles that follow were asked for: a closure makes them, which does not track it.
#[track_caller]
pub(crate) fn note_caller() {
    machine().thread().noted.set(Location::caller());
}

fn warp_call(caller: Caller, function: WarpFunction, mask: u32, word: u32, argument: u32) -> u32 {
    machine().warp_call(WarpCall {
        function,
        mask,
        word,
        argument,
        caller,
    })
}

macro_rules! shuffles {
    ($($name:ident: $function:ident;)*) => { $(
        /// # Safety
        /// As the function of this name in [`crate::warp`].
        pub(crate) unsafe fn $name(mask: u32, word: u32, argument: u32) -> u32 {
            let caller = machine().thread().noted.get();
            warp_call(caller, WarpFunction::$function, mask, word, argument)
        }
    )* };
}
shuffles! {
    shuffle_idx: ShuffleIdx;
    shuffle_up: ShuffleUp;
    shuffle_down: ShuffleDown;
    shuffle_xor: ShuffleXor;
}

/// # Safety
/// As [`crate::warp::vote_any`].
#[track_caller]
pub(crate) unsafe fn vote_any(mask: u32, predicate: bool) -> bool {
    let caller = Location::caller();
    warp_call(caller, WarpFunction::VoteAny, mask, predicate.into(), 0) != 0
}

/// # Safety
/// As [`crate::warp::vote_all`].
#[track_caller]
pub(crate) unsafe fn vote_all(mask: u32, predicate: bool) -> bool {
    let caller = Location::caller();
    warp_call(caller, WarpFunction::VoteAll, mask, predicate.into(), 0) != 0
}

/// # Safety
/// As [`crate::warp::vote_ballot`].
#[track_caller]
pub(crate) unsafe fn vote_ballot(mask: u32, predicate: bool) -> u32 {
    let caller = Location::caller();
    warp_call(caller, WarpFunction::VoteBallot, mask, predicate.into(), 0)
}

/// # Safety
/// As [`crate::warp::sync_warp`].
#[track_caller]
pub(crate) unsafe fn sync_warp(mask: u32) {
    warp_call(Location::caller(), WarpFunction::SyncWarp, mask, 0, 0);
}

/// # Safety
/// As [`crate::Global::add`].
#[track_caller]
pub(crate) unsafe fn global_add<T>(pointer: GlobalPointer<T>, elements: usize) -> GlobalPointer<T> {
    machine().global_at(Location::caller(), AccessKind::View, pointer, elements, 0)
}

/// # Safety
/// As [`crate::Global::offset`].
#[track_caller]
pub(crate) unsafe fn global_offset<T>(
    pointer: GlobalPointer<T>,
    elements: isize,
) -> GlobalPointer<T> {
    // What is before the allocation is far behind it in wrapping arithmetic.
    let element = pointer.element.wrapping_add_signed(elements);
    let first = pointer.with_element(0);
    machine().global_at(Location::caller(), AccessKind::View, first, element, 0)
}

pub(crate) fn global_address<T>(pointer: GlobalPointer<T>) -> usize {
    pointer.address()
}

/// # Safety
/// As the accesses of [`crate::Global`].
#[inline]
#[track_caller]
pub(crate) unsafe fn global_read<T: Scalar, const N: usize>(
    pointer: GlobalPointer<T>,
    index: usize,
) -> [T; N] {
    let address = machine().global(Location::caller(), AccessKind::Read, pointer, index);
    // SAFETY: the machine gives an address to read at; any bytes are scalars.
    unsafe { address.read_unaligned() }
}

/// # Safety
/// As the accesses of [`crate::Global`].
#[inline]
#[track_caller]
pub(crate) unsafe fn global_write<T: Scalar, const N: usize>(
    pointer: GlobalPointer<T>,
    index: usize,
    values: [T; N],
) {
    let address = machine().global(Location::caller(), AccessKind::Write, pointer, index);
    // SAFETY: the machine gives an address to write at.
    unsafe { address.write_unaligned(values) }
}

/// # Safety
/// As the accesses of [`crate::Global`].
#[inline]
#[track_caller]
pub(crate) unsafe fn global_read_streaming<T: Scalar, const N: usize>(
    pointer: GlobalPointer<T>,
    index: usize,
) -> [T; N] {
    // SAFETY: the caller's obligation is the callee's.
    unsafe { global_read(pointer, index) }
}

/// # Safety
/// As the accesses of [`crate::Global`].
#[inline]
#[track_caller]
pub(crate) unsafe fn global_write_streaming<T: Scalar, const N: usize>(
    pointer: GlobalPointer<T>,
    index: usize,
    values: [T; N],
) {
    // SAFETY: the caller's obligation is the callee's.
    unsafe { global_write(pointer, index, values) }
}

fn to_word<T: AtomicScalar>(value: T) -> u64 {
    // SAFETY: the pointer is to a local.
    unsafe { load_word(&raw const value) }
}

fn from_word<T: AtomicScalar>(word: u64) -> T {
    // SAFETY: an atomic scalar is a `u32` or a `u64`.
    unsafe {
        match size_of::<T>() {
            4 => std::mem::transmute_copy(&(word as u32)),
            _ => std::mem::transmute_copy(&word),
        }
    }
}

macro_rules! atomics {
    ($($name:ident($($value:ident)?) $(-> $result:ident)? = $function:ident;)*) => { $(
        /// # Safety
        /// As the atomics of [`crate::Global`].
        #[track_caller]
        pub(crate) unsafe fn $name<T: AtomicScalar>(
            pointer: GlobalPointer<T>,
            index: usize,
            $($value: T,)?
        ) $(-> $result)? {
            let result = machine()
                .$function(Location::caller(), pointer, index, $(to_word($value))?);
            $(from_word::<$result>)? (result)
        }
    )* };
}
atomics! {
    atomic_load_acquire() -> T = load_acquire;
    atomic_load_relaxed() -> T = load_relaxed;
    atomic_store_release(value) = store_release;
    atomic_store_relaxed(value) = store_relaxed;
    atomic_fetch_add_relaxed(value) -> T = fetch_add_relaxed;
}

#[track_caller]
pub(crate) fn dynamic_shared_mem<T: Scalar>() -> SharedPointer<T> {
    SharedPointer::START
}

/// # Safety
/// As [`crate::Shared::add`].
#[inline]
#[track_caller]
pub(crate) unsafe fn shared_add<T>(pointer: SharedPointer<T>, elements: usize) -> SharedPointer<T> {
    machine().shared_at(Location::caller(), AccessKind::View, pointer, elements, 0)
}

/// # Safety
/// As the accesses of [`crate::Shared`].
#[inline]
#[track_caller]
pub(crate) unsafe fn shared_read<T: Scalar, const N: usize>(
    pointer: SharedPointer<T>,
    index: usize,
) -> [T; N] {
    let address = machine().shared_access(Location::caller(), AccessKind::Read, pointer, index);
    // SAFETY: the machine gives an address to read at; any bytes are scalars.
    unsafe { address.read_unaligned() }
}

/// # Safety
/// As the accesses of [`crate::Shared`].
#[inline]
#[track_caller]
pub(crate) unsafe fn shared_write<T: Scalar, const N: usize>(
    pointer: SharedPointer<T>,
    index: usize,
    values: [T; N],
) {
    let address = machine().shared_access(Location::caller(), AccessKind::Write, pointer, index);
    // SAFETY: the machine gives an address to write at.
    unsafe { address.write_unaligned(values) }
}

/// # Safety
/// As [`crate::Shared::copy_async`].
#[track_caller]
pub(crate) unsafe fn copy_async<T: Scalar, const N: usize>(
    target: SharedPointer<T>,
    index: usize,
    source: GlobalPointer<T>,
    from: usize,
) {
    machine().copy_async::<T, N>(Location::caller(), (target, index), (source, from));
}

#[track_caller]
pub(crate) fn copy_commit() {
    machine().copy_commit(Location::caller());
}

#[track_caller]
pub(crate) fn copy_wait<const PENDING: u32>() {
    machine().copy_wait(Location::caller(), PENDING);
}
