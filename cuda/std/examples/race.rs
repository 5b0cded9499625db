//! A kernel with a data race, and the emulator's report; then the kernel without the race.
//!
//! `cargo run -p ptxscan-cuda-std --features emulator --example race`

use cuda_std::emulator::{Launch, Memory};
use cuda_std::{Global, shared, thread, warp};

const BLOCK_THREADS: u32 = 64;

/// Writes the sum of each block's `BLOCK_THREADS` elements of `x` to `sums`.
///
/// # Safety
/// `x` has an element for each thread, `sums` one for each block; a block has shared memory for its elements;
/// `barrier` is one for the block.
unsafe fn block_sums(x: Global<u32>, sums: Global<u32>, barrier: impl Fn()) {
    let partial = shared::dynamic_shared_mem::<u32>();
    let i = thread::thread_idx_x();
    // SAFETY: indices are below the number of threads; the barrier is between a write and what depends on it.
    unsafe {
        partial.write(i as usize, x.read(thread::index_1d() as usize));
        let mut distance = BLOCK_THREADS / 2;
        while distance > 0 {
            // What is added now was written before.
            barrier();
            if i < distance {
                let sum = partial.read(i as usize) + partial.read((i + distance) as usize);
                partial.write(i as usize, sum);
            }
            distance /= 2;
        }
        if i == 0 {
            sums.write(thread::block_idx_x() as usize, partial.read(0));
        }
    }
}

fn main() {
    const BLOCKS: u32 = 3;
    let memory = Memory::new();
    let elements: Vec<_> = (0..BLOCKS * BLOCK_THREADS).collect();
    let (x, sums) = (memory.copy_of(&elements), memory.uninit(BLOCKS as usize));
    let launch = Launch::new(BLOCKS, BLOCK_THREADS).shared_bytes(4 * BLOCK_THREADS as usize);

    // SAFETY: the buffers and the shared memory are as large as the launch needs. The barrier orders only
    // the lanes of a warp, which is the race that this shows.
    let racing = || unsafe {
        block_sums(x.view(), sums.view(), || warp::sync_warp(warp::FULL_MASK));
    };
    match launch.run("block_sums", racing) {
        Ok(_) => unreachable!("the warps exchange sums"),
        Err(fault) => println!("With a barrier for each warp only:\n{fault}\n"),
    }

    // SAFETY: as above, with a barrier for the block.
    let correct = || unsafe {
        block_sums(x.view(), sums.view(), || thread::sync_threads());
    };
    match launch.run("block_sums", correct) {
        Ok(_) => println!("With a barrier for the block: {:?}", sums.to_vec()),
        Err(fault) => unreachable!("{fault}"),
    }
}
