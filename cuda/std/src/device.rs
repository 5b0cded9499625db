//! The library for `nvptx64`: each function is an intrinsic or an instruction.

use crate::{AtomicScalar, Scalar};
use core::arch::{asm, nvptx};

#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    trap()
}

macro_rules! registers {
    ($($name:ident $intrinsic:ident;)*) => { $(
        #[inline(always)]
        pub(crate) fn $name() -> u32 {
            // SAFETY: reading a special register has no preconditions.
            unsafe { nvptx::$intrinsic() }
        }
    )* };
}
registers! {
    thread_idx_x _thread_idx_x;
    thread_idx_y _thread_idx_y;
    thread_idx_z _thread_idx_z;
    block_idx_x _block_idx_x;
    block_idx_y _block_idx_y;
    block_idx_z _block_idx_z;
    block_dim_x _block_dim_x;
    block_dim_y _block_dim_y;
    block_dim_z _block_dim_z;
    grid_dim_x _grid_dim_x;
    grid_dim_y _grid_dim_y;
    grid_dim_z _grid_dim_z;
}

// Barriers, shuffles and votes are LLVM intrinsics, never `asm!`: only of the intrinsics does LLVM know that
// they are convergent, so that it keeps them out of branches that it makes or merges.
unsafe extern "C" {
    #[link_name = "llvm.nvvm.read.ptx.sreg.laneid"]
    fn llvm_lane_id() -> u32;
    #[link_name = "llvm.nvvm.shfl.sync.idx.i32"]
    fn llvm_shuffle_idx(mask: u32, value: u32, lane: u32, clamp: u32) -> u32;
    #[link_name = "llvm.nvvm.shfl.sync.up.i32"]
    fn llvm_shuffle_up(mask: u32, value: u32, delta: u32, clamp: u32) -> u32;
    #[link_name = "llvm.nvvm.shfl.sync.down.i32"]
    fn llvm_shuffle_down(mask: u32, value: u32, delta: u32, clamp: u32) -> u32;
    #[link_name = "llvm.nvvm.shfl.sync.bfly.i32"]
    fn llvm_shuffle_xor(mask: u32, value: u32, lane_mask: u32, clamp: u32) -> u32;
    #[link_name = "llvm.nvvm.vote.any.sync"]
    fn llvm_vote_any(mask: u32, predicate: bool) -> bool;
    #[link_name = "llvm.nvvm.vote.all.sync"]
    fn llvm_vote_all(mask: u32, predicate: bool) -> bool;
    #[link_name = "llvm.nvvm.vote.ballot.sync"]
    fn llvm_vote_ballot(mask: u32, predicate: bool) -> u32;
    #[link_name = "llvm.nvvm.bar.warp.sync"]
    fn llvm_sync_warp(mask: u32);
    #[link_name = "llvm.nvvm.membar.gl"]
    fn llvm_device_fence();
}

#[inline(always)]
pub(crate) fn trap() -> ! {
    // SAFETY: it has no preconditions.
    unsafe { nvptx::trap() }
}

#[inline(always)]
pub(crate) fn device_fence() {
    // SAFETY: a fence has no preconditions.
    unsafe { llvm_device_fence() }
}

/// # Safety
/// As [`crate::thread::sync_threads`].
#[inline(always)]
pub(crate) unsafe fn sync_threads() {
    // SAFETY: every thread of the block comes here, says the caller.
    unsafe { nvptx::_syncthreads() }
}

#[inline(always)]
pub(crate) fn lane_id() -> u32 {
    // SAFETY: reading a special register has no preconditions.
    unsafe { llvm_lane_id() }
}

macro_rules! shuffles {
    ($($name:ident($intrinsic:ident, $clamp:literal);)*) => { $(
        /// # Safety
        /// As the function of this name in [`crate::warp`].
        #[inline(always)]
        pub(crate) unsafe fn $name(mask: u32, word: u32, argument: u32) -> u32 {
            // SAFETY: all lanes of the mask come here, says the caller.
            unsafe { $intrinsic(mask, word, argument, $clamp) }
        }
    )* };
}
shuffles! {
    shuffle_idx(llvm_shuffle_idx, 31);
    shuffle_up(llvm_shuffle_up, 0);
    shuffle_down(llvm_shuffle_down, 31);
    shuffle_xor(llvm_shuffle_xor, 31);
}

macro_rules! votes {
    ($($name:ident($intrinsic:ident) -> $result:ty;)*) => { $(
        /// # Safety
        /// As the function of this name in [`crate::warp`].
        #[inline(always)]
        pub(crate) unsafe fn $name(mask: u32, predicate: bool) -> $result {
            // SAFETY: all lanes of the mask come here, says the caller.
            unsafe { $intrinsic(mask, predicate) }
        }
    )* };
}
votes! {
    vote_any(llvm_vote_any) -> bool;
    vote_all(llvm_vote_all) -> bool;
    vote_ballot(llvm_vote_ballot) -> u32;
}

/// On the host, where the shuffles that follow were asked for.
#[inline(always)]
pub(crate) fn note_caller() {}

/// # Safety
/// As [`crate::warp::sync_warp`].
#[inline(always)]
pub(crate) unsafe fn sync_warp(mask: u32) {
    // SAFETY: all lanes of the mask come here, says the caller.
    unsafe { llvm_sync_warp(mask) }
}

pub(crate) type GlobalPointer<T> = *mut T;
pub(crate) type SharedPointer<T> = *mut T;

// The size of an access is the alignment that its type promises to LLVM.
#[repr(C, align(2))]
#[derive(Clone, Copy)]
struct Align2<V>(V);
#[repr(C, align(4))]
#[derive(Clone, Copy)]
struct Align4<V>(V);
#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct Align8<V>(V);
#[repr(C, align(16))]
#[derive(Clone, Copy)]
struct Align16<V>(V);

/// # Safety
/// `pointer` is valid for a read of `N` elements and aligned to their size.
#[inline(always)]
unsafe fn read<T: Scalar, const N: usize>(pointer: *const T) -> [T; N] {
    // SAFETY: the pointer is valid and as aligned as the type that is read through, says the caller.
    unsafe {
        match N * size_of::<T>() {
            16 => (*pointer.cast::<Align16<[T; N]>>()).0,
            8 => (*pointer.cast::<Align8<[T; N]>>()).0,
            4 => (*pointer.cast::<Align4<[T; N]>>()).0,
            2 => (*pointer.cast::<Align2<[T; N]>>()).0,
            _ => *pointer.cast::<[T; N]>(),
        }
    }
}

/// # Safety
/// `pointer` is valid for a write of `N` elements and aligned to their size.
#[inline(always)]
unsafe fn write<T: Scalar, const N: usize>(pointer: *mut T, values: [T; N]) {
    // SAFETY: the pointer is valid and as aligned as the type that is written through, says the caller.
    unsafe {
        match N * size_of::<T>() {
            16 => *pointer.cast::<Align16<[T; N]>>() = Align16(values),
            8 => *pointer.cast::<Align8<[T; N]>>() = Align8(values),
            4 => *pointer.cast::<Align4<[T; N]>>() = Align4(values),
            2 => *pointer.cast::<Align2<[T; N]>>() = Align2(values),
            _ => *pointer.cast::<[T; N]>() = values,
        }
    }
}

/// # Safety
/// As [`crate::Global::add`].
#[inline(always)]
pub(crate) unsafe fn global_add<T>(pointer: *mut T, elements: usize) -> *mut T {
    // SAFETY: the result stays in the allocation, says the caller.
    unsafe { pointer.add(elements) }
}

/// # Safety
/// As [`crate::Global::offset`].
#[inline(always)]
pub(crate) unsafe fn global_offset<T>(pointer: *mut T, elements: isize) -> *mut T {
    // SAFETY: the result stays in the allocation, says the caller.
    unsafe { pointer.offset(elements) }
}

#[inline(always)]
pub(crate) fn global_address<T>(pointer: *mut T) -> usize {
    pointer.addr()
}

/// # Safety
/// As the accesses of [`crate::Global`].
#[inline(always)]
pub(crate) unsafe fn global_read<T: Scalar, const N: usize>(
    pointer: *mut T,
    index: usize,
) -> [T; N] {
    // SAFETY: the elements are valid and aligned, says the caller.
    unsafe { read(pointer.add(index)) }
}

/// # Safety
/// As the accesses of [`crate::Global`].
#[inline(always)]
pub(crate) unsafe fn global_write<T: Scalar, const N: usize>(
    pointer: *mut T,
    index: usize,
    values: [T; N],
) {
    // SAFETY: the elements are valid and aligned, says the caller.
    unsafe { write(pointer.add(index), values) }
}

/// The policy of streaming accesses for the L2 cache.
///
/// Lines that the driver's device-to-device copies leave in the cache have the priority `evict_last`, and accesses of
/// normal priority never displace them: they find the cache smaller than it is, for good. So streaming accesses have
/// that priority too, and all lines are replaced in turn.
#[inline(always)]
fn streaming_policy() -> u64 {
    let policy: u64;
    // SAFETY: making a policy has no preconditions and no effects.
    unsafe {
        asm!("createpolicy.fractional.L2::evict_last.b64 {0}, 1.0;", out(reg64) policy,
            options(pure, nomem, nostack, preserves_flags));
    }
    policy
}

/// # Safety
/// As the accesses of [`crate::Global`].
#[inline(always)]
pub(crate) unsafe fn global_read_streaming<T: Scalar, const N: usize>(
    pointer: *mut T,
    index: usize,
) -> [T; N] {
    // SAFETY: the elements are valid and aligned, says the caller; the words that an instruction gives are
    // as many bytes as the array, which has no padding and for which every bit pattern is a value.
    unsafe {
        let pointer = pointer.add(index);
        match N * size_of::<T>() {
            16 => {
                let (w0, w1, w2, w3): (u32, u32, u32, u32);
                asm!("ld.global.L1::no_allocate.L2::cache_hint.v4.b32 {{{0}, {1}, {2}, {3}}}, [{4}], {5};",
                    out(reg32) w0, out(reg32) w1, out(reg32) w2, out(reg32) w3, in(reg64) pointer,
                    in(reg64) streaming_policy(),
                    options(nostack, readonly, preserves_flags));
                core::mem::transmute_copy(&[w0, w1, w2, w3])
            }
            8 => {
                let word: u64;
                asm!("ld.global.L1::no_allocate.L2::cache_hint.b64 {0}, [{1}], {2};", out(reg64) word,
                    in(reg64) pointer, in(reg64) streaming_policy(), options(nostack, readonly, preserves_flags));
                core::mem::transmute_copy(&word)
            }
            4 => {
                let word: u32;
                asm!("ld.global.L1::no_allocate.L2::cache_hint.b32 {0}, [{1}], {2};", out(reg32) word,
                    in(reg64) pointer, in(reg64) streaming_policy(), options(nostack, readonly, preserves_flags));
                core::mem::transmute_copy(&word)
            }
            _ => read(pointer),
        }
    }
}

/// # Safety
/// As the accesses of [`crate::Global`].
#[inline(always)]
pub(crate) unsafe fn global_write_streaming<T: Scalar, const N: usize>(
    pointer: *mut T,
    index: usize,
    values: [T; N],
) {
    // SAFETY: the elements are valid and aligned, says the caller; the array has no padding and is as many
    // bytes as the words that an instruction takes.
    unsafe {
        let pointer = pointer.add(index);
        match N * size_of::<T>() {
            16 => {
                let [w0, w1, w2, w3]: [u32; 4] = core::mem::transmute_copy(&values);
                asm!("st.global.L1::no_allocate.L2::cache_hint.v4.b32 [{4}], {{{0}, {1}, {2}, {3}}}, {5};",
                    in(reg32) w0, in(reg32) w1, in(reg32) w2, in(reg32) w3, in(reg64) pointer,
                    in(reg64) streaming_policy(),
                    options(nostack, preserves_flags));
            }
            8 => {
                let word: u64 = core::mem::transmute_copy(&values);
                asm!("st.global.L1::no_allocate.L2::cache_hint.b64 [{1}], {0}, {2};", in(reg64) word,
                    in(reg64) pointer, in(reg64) streaming_policy(), options(nostack, preserves_flags));
            }
            4 => {
                let word: u32 = core::mem::transmute_copy(&values);
                asm!("st.global.L1::no_allocate.L2::cache_hint.b32 [{1}], {0}, {2};", in(reg32) word,
                    in(reg64) pointer, in(reg64) streaming_policy(), options(nostack, preserves_flags));
            }
            _ => write(pointer, values),
        }
    }
}

macro_rules! atomic_loads {
    ($($name:ident $instruction:literal;)*) => { $(
        /// # Safety
        /// As the atomics of [`crate::Global`].
        #[inline(always)]
        pub(crate) unsafe fn $name<T: AtomicScalar>(pointer: *mut T, index: usize) -> T {
            // SAFETY: the element is valid and aligned, says the caller; the register is as wide as T.
            unsafe {
                let pointer = pointer.add(index);
                if size_of::<T>() == 8 {
                    let word: u64;
                    asm!(concat!($instruction, ".b64 {0}, [{1}];"), out(reg64) word,
                        in(reg64) pointer, options(nostack, preserves_flags));
                    core::mem::transmute_copy(&word)
                } else {
                    let word: u32;
                    asm!(concat!($instruction, ".b32 {0}, [{1}];"), out(reg32) word,
                        in(reg64) pointer, options(nostack, preserves_flags));
                    core::mem::transmute_copy(&word)
                }
            }
        }
    )* };
}
atomic_loads! {
    atomic_load_acquire "ld.acquire.gpu.global";
    atomic_load_relaxed "ld.relaxed.gpu.global";
}

macro_rules! atomic_stores {
    ($($name:ident $instruction:literal;)*) => { $(
        /// # Safety
        /// As the atomics of [`crate::Global`].
        #[inline(always)]
        pub(crate) unsafe fn $name<T: AtomicScalar>(pointer: *mut T, index: usize, value: T) {
            // SAFETY: the element is valid and aligned, says the caller; the register is as wide as T.
            unsafe {
                let pointer = pointer.add(index);
                if size_of::<T>() == 8 {
                    let word: u64 = core::mem::transmute_copy(&value);
                    asm!(concat!($instruction, ".b64 [{1}], {0};"), in(reg64) word,
                        in(reg64) pointer, options(nostack, preserves_flags));
                } else {
                    let word: u32 = core::mem::transmute_copy(&value);
                    asm!(concat!($instruction, ".b32 [{1}], {0};"), in(reg32) word,
                        in(reg64) pointer, options(nostack, preserves_flags));
                }
            }
        }
    )* };
}
atomic_stores! {
    atomic_store_release "st.release.gpu.global";
    atomic_store_relaxed "st.relaxed.gpu.global";
}

/// # Safety
/// As the atomics of [`crate::Global`].
#[inline(always)]
pub(crate) unsafe fn atomic_fetch_add_relaxed<T: AtomicScalar>(
    pointer: *mut T,
    index: usize,
    value: T,
) -> T {
    // SAFETY: the element is valid and aligned, says the caller; the registers are as wide as T.
    unsafe {
        let pointer = pointer.add(index);
        if size_of::<T>() == 8 {
            let value: u64 = core::mem::transmute_copy(&value);
            let word: u64;
            asm!("atom.relaxed.gpu.global.add.u64 {0}, [{1}], {2};", out(reg64) word,
                in(reg64) pointer, in(reg64) value, options(nostack, preserves_flags));
            core::mem::transmute_copy(&word)
        } else {
            let value: u32 = core::mem::transmute_copy(&value);
            let word: u32;
            asm!("atom.relaxed.gpu.global.add.u32 {0}, [{1}], {2};", out(reg32) word,
                in(reg64) pointer, in(reg32) value, options(nostack, preserves_flags));
            core::mem::transmute_copy(&word)
        }
    }
}

#[inline(always)]
pub(crate) fn dynamic_shared_mem<T: Scalar>() -> *mut T {
    // The launch's dynamic shared memory begins at an address that suits every type here.
    core::intrinsics::gpu::gpu_launch_sized_workgroup_mem::<Align16<[u32; 4]>>().cast()
}

/// # Safety
/// As [`crate::Shared::add`].
#[inline(always)]
pub(crate) unsafe fn shared_add<T>(pointer: *mut T, elements: usize) -> *mut T {
    // SAFETY: the result stays in shared memory, says the caller.
    unsafe { pointer.add(elements) }
}

/// # Safety
/// As the accesses of [`crate::Shared`].
#[inline(always)]
pub(crate) unsafe fn shared_read<T: Scalar, const N: usize>(
    pointer: *mut T,
    index: usize,
) -> [T; N] {
    // SAFETY: the elements are valid and aligned, says the caller.
    unsafe { read(pointer.add(index)) }
}

/// # Safety
/// As the accesses of [`crate::Shared`].
#[inline(always)]
pub(crate) unsafe fn shared_write<T: Scalar, const N: usize>(
    pointer: *mut T,
    index: usize,
    values: [T; N],
) {
    // SAFETY: the elements are valid and aligned, says the caller.
    unsafe { write(pointer.add(index), values) }
}

/// # Safety
/// As [`crate::Shared::copy_async`].
#[inline(always)]
#[expect(
    clippy::pointers_in_nomem_asm_block,
    reason = "the address is converted, and nothing is accessed through it"
)]
pub(crate) unsafe fn copy_async<T: Scalar, const N: usize>(
    target: *mut T,
    index: usize,
    source: *mut T,
    from: usize,
) {
    // SAFETY: both ends are valid and aligned, says the caller; the dynamic shared memory has an address in that state space, and so has
    // what lies in it.
    unsafe {
        let (target, source) = (target.add(index), source.add(from));
        let base = dynamic_shared_mem::<u8>();
        let start: u64;
        asm!("cvta.to.shared.u64 {0}, {1};", out(reg64) start, in(reg64) base,
            options(pure, nomem, nostack, preserves_flags));
        // One conversion for all copies, and for each an offset, which 32 bits hold.
        let shared = (start as u32).wrapping_add((target.addr() - base.addr()) as u32);
        let policy = streaming_policy();
        // Only copies of 16 bytes can pass by the L1 cache. The rest of a line is for another block, where this one takes half of it.
        match N * size_of::<T>() {
            16 => asm!("cp.async.cg.shared.global.L2::cache_hint.L2::128B [{0}], [{1}], 16, {2};",
                in(reg32) shared, in(reg64) source, in(reg64) policy,
                options(nostack, preserves_flags)),
            8 => asm!("cp.async.ca.shared.global.L2::cache_hint [{0}], [{1}], 8, {2};",
                in(reg32) shared, in(reg64) source, in(reg64) policy,
                options(nostack, preserves_flags)),
            _ => asm!("cp.async.ca.shared.global.L2::cache_hint [{0}], [{1}], 4, {2};",
                in(reg32) shared, in(reg64) source, in(reg64) policy,
                options(nostack, preserves_flags)),
        }
    }
}

#[inline(always)]
pub(crate) fn opaque(value: u64) -> u64 {
    let same;
    // SAFETY: a register is copied. It is not `pure`: else it could be done before a loop.
    unsafe {
        asm!("mov.b64 {0}, {1};", out(reg64) same, in(reg64) value, options(nomem, nostack, preserves_flags))
    }
    same
}

#[inline(always)]
pub(crate) fn opaque_word(value: u32) -> u32 {
    let same;
    // SAFETY: a register is copied.
    unsafe {
        asm!("mov.b32 {0}, {1};", out(reg32) same, in(reg32) value, options(pure, nomem, nostack, preserves_flags))
    }
    same
}

#[inline(always)]
pub(crate) fn copy_commit() {
    // SAFETY: closing a group of copies has no preconditions.
    unsafe { asm!("cp.async.commit_group;", options(nostack, preserves_flags)) }
}

#[inline(always)]
pub(crate) fn copy_wait<const PENDING: u32>() {
    // SAFETY: waiting for groups of copies has no preconditions.
    unsafe { asm!("cp.async.wait_group {0};", const PENDING, options(nostack, preserves_flags)) }
}
