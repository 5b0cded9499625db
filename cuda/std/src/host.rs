//! The library on the host without the feature `emulator`: it compiles, and every device function panics.

use crate::{AtomicScalar, Scalar};
use core::convert::Infallible;
use core::marker::PhantomData;

/// A pointer to memory that only the emulator has: no value of it exists.
pub(crate) struct GlobalPointer<T>(Infallible, PhantomData<*mut T>);
pub(crate) type SharedPointer<T> = GlobalPointer<T>;

impl<T> Clone for GlobalPointer<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for GlobalPointer<T> {}

#[track_caller]
fn absent(function: &str) -> ! {
    panic!(
        "the device function `{function}` was called on the host, where kernels run only under the feature \
         `emulator` of ptxscan-cuda-std"
    )
}

macro_rules! absent {
    ($([$($unsafe:ident)?] $name:ident [$($generics:tt)*] ($($argument:ty),*) $(-> $result:ty)?;)*) => { $(
        #[track_caller]
        pub(crate) $($unsafe)? fn $name<$($generics)*>($(_: $argument),*) $(-> $result)? {
            absent(stringify!($name))
        }
    )* };
}

absent! {
    [] thread_idx_x[]() -> u32;
    [] thread_idx_y[]() -> u32;
    [] thread_idx_z[]() -> u32;
    [] block_idx_x[]() -> u32;
    [] block_idx_y[]() -> u32;
    [] block_idx_z[]() -> u32;
    [] block_dim_x[]() -> u32;
    [] block_dim_y[]() -> u32;
    [] block_dim_z[]() -> u32;
    [] grid_dim_x[]() -> u32;
    [] grid_dim_y[]() -> u32;
    [] grid_dim_z[]() -> u32;
    [] trap[]() -> !;
    [] device_fence[]();
    [unsafe] sync_threads[]();
    [] lane_id[]() -> u32;
    [] note_caller[]();
    [unsafe] shuffle_idx[](u32, u32, u32) -> u32;
    [unsafe] shuffle_up[](u32, u32, u32) -> u32;
    [unsafe] shuffle_down[](u32, u32, u32) -> u32;
    [unsafe] shuffle_xor[](u32, u32, u32) -> u32;
    [unsafe] vote_any[](u32, bool) -> bool;
    [unsafe] vote_all[](u32, bool) -> bool;
    [unsafe] vote_ballot[](u32, bool) -> u32;
    [unsafe] sync_warp[](u32);
    [unsafe] global_add[T](GlobalPointer<T>, usize) -> GlobalPointer<T>;
    [unsafe] global_offset[T](GlobalPointer<T>, isize) -> GlobalPointer<T>;
    [] global_address[T](GlobalPointer<T>) -> usize;
    [unsafe] global_read[T: Scalar, const N: usize](GlobalPointer<T>, usize) -> [T; N];
    [unsafe] global_read_streaming[T: Scalar, const N: usize](GlobalPointer<T>, usize) -> [T; N];
    [unsafe] global_write[T: Scalar, const N: usize](GlobalPointer<T>, usize, [T; N]);
    [unsafe] global_write_streaming[T: Scalar, const N: usize](GlobalPointer<T>, usize, [T; N]);
    [unsafe] atomic_load_acquire[T: AtomicScalar](GlobalPointer<T>, usize) -> T;
    [unsafe] atomic_load_relaxed[T: AtomicScalar](GlobalPointer<T>, usize) -> T;
    [unsafe] atomic_store_release[T: AtomicScalar](GlobalPointer<T>, usize, T);
    [unsafe] atomic_store_relaxed[T: AtomicScalar](GlobalPointer<T>, usize, T);
    [unsafe] atomic_fetch_add_relaxed[T: AtomicScalar](GlobalPointer<T>, usize, T) -> T;
    [] dynamic_shared_mem[T: Scalar]() -> SharedPointer<T>;
    [unsafe] shared_add[T](SharedPointer<T>, usize) -> SharedPointer<T>;
    [unsafe] shared_read[T: Scalar, const N: usize](SharedPointer<T>, usize) -> [T; N];
    [unsafe] shared_write[T: Scalar, const N: usize](SharedPointer<T>, usize, [T; N]);
    [unsafe] copy_async[T: Scalar, const N: usize](SharedPointer<T>, usize, GlobalPointer<T>, usize);
    [] copy_commit[]();
    [] copy_wait[const PENDING: u32]();
}
