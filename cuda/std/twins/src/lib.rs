//! Kernels in pairs: one reaches memory through `cuda_std`'s views, its twin through bare pointers.
#![no_std]
#![cfg_attr(target_arch = "nvptx64", feature(abi_ptx))]
#![cfg(target_arch = "nvptx64")]

use cuda_std::{Global, Shared, kernel, shared::dynamic_shared_mem, thread, warp};

/// Four floats, aligned as one access of them is.
#[repr(C, align(16))]
#[derive(Clone, Copy)]
struct Four([f32; 4]);

/// Vector accesses.
///
/// # Safety
/// Both arrays have four elements for each thread of the launch, and are aligned to 16 bytes.
#[kernel]
pub unsafe fn vectors_views(x: Global<f32>, y: Global<f32>) {
    let i = 4 * thread::index_1d() as usize;
    // SAFETY: the elements lie in the arrays and are aligned, says the caller.
    unsafe {
        let [a, b, c, d] = x.read_vector(i);
        y.write_vector(i, [d, c, b + a, a]);
    }
}

/// The twin of [`vectors_views`].
///
/// # Safety
/// As for [`vectors_views`].
#[kernel]
pub unsafe fn vectors_bare(x: *mut f32, y: *mut f32) {
    let i = 4 * thread::index_1d() as usize;
    // SAFETY: the elements lie in the arrays and are aligned, says the caller.
    unsafe {
        let Four([a, b, c, d]) = *x.add(i).cast::<Four>();
        *y.add(i).cast::<Four>() = Four([d, c, b + a, a]);
    }
}

/// Guarded accesses.
///
/// # Safety
/// Both arrays have `len` elements.
#[kernel]
pub unsafe fn guarded_views(x: Global<f32>, y: Global<f32>, len: u64) {
    let i = thread::index_1d() as usize;
    // SAFETY: what is accessed lies in the arrays, by the guard.
    unsafe {
        let value = x.read_if(i < len as usize, i, 1.0);
        thread::sync_threads();
        y.write_if(i < len as usize, i, value + 2.0);
    }
}

/// The twin of [`guarded_views`].
///
/// # Safety
/// As for [`guarded_views`].
#[kernel]
pub unsafe fn guarded_bare(x: *mut f32, y: *mut f32, len: u64) {
    let i = thread::index_1d() as usize;
    // SAFETY: what is accessed lies in the arrays, by the guard.
    unsafe {
        let value = if i < len as usize { *x.add(i) } else { 1.0 };
        thread::sync_threads();
        if i < len as usize {
            *y.add(i) = value + 2.0;
        }
    }
}

/// A block-wide exchange through shared memory.
///
/// # Safety
/// Both arrays have an element for each thread of the launch; a block has 256 threads, and 2 KiB of shared memory.
#[kernel]
pub unsafe fn exchange_views(x: Global<f32>, y: Global<f32>) {
    let thread = thread::thread_idx_x() as usize;
    let i = thread::index_1d() as usize;
    let slots = dynamic_shared_mem::<f32>();
    // SAFETY: the elements lie in the arrays, the slots in shared memory; all threads come to the barrier and the shuffle.
    unsafe {
        let upper = slots.add(256);
        let value = x.read(i);
        slots.write(thread, value);
        upper.write(thread, warp::shuffle_xor(warp::FULL_MASK, value, 1));
        thread::sync_threads();
        let [a, b]: [f32; 2] = slots.read_vector(thread / 2 * 2);
        y.write(i, a + b + upper.read(255 - thread));
    }
}

/// The twin of [`exchange_views`].
///
/// # Safety
/// As for [`exchange_views`].
#[kernel]
pub unsafe fn exchange_bare(x: *mut f32, y: *mut f32) {
    #[repr(C, align(8))]
    #[derive(Clone, Copy)]
    struct Two([f32; 2]);

    let thread = thread::thread_idx_x() as usize;
    let i = thread::index_1d() as usize;
    // SAFETY: for the GPU a view is an address. The rest as in the twin.
    unsafe {
        let slots: *mut f32 = core::mem::transmute::<Shared<f32>, *mut f32>(dynamic_shared_mem());
        let upper = slots.add(256);
        let value = *x.add(i);
        *slots.add(thread) = value;
        *upper.add(thread) = warp::shuffle_xor(warp::FULL_MASK, value, 1);
        thread::sync_threads();
        let Two([a, b]) = *slots.add(thread / 2 * 2).cast::<Two>();
        *y.add(i) = a + b + *upper.add(255 - thread);
    }
}
