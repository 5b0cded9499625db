//! For each error that the emulator finds: a small kernel with the error, which it must catch, and the same
//! kernel without, which it must pass, under many schedules.
#![expect(
    clippy::undocumented_unsafe_blocks,
    reason = "every kernel here either keeps the obligations or breaks them on purpose, as its name says"
)]

use std::cell::Cell;
use std::collections::BTreeSet;
use std::rc::Rc;

use cuda_std::emulator::{
    AccessKind, BlockOrder, Fault, FaultKind, GpuThread, Launch, Memory, Place, Report,
    SEED_VARIABLE, Unwritten,
};
use cuda_std::thread::{block_dim_x, block_idx_x, device_fence, sync_threads, thread_idx_x};
use cuda_std::warp::{self, FULL_MASK, lane_id, sync_warp};
use cuda_std::{Global, async_copy, shared, thread};

const SEEDS: u64 = 40;

thread_local! {
    static MARKS: [Cell<u32>; 2] = const { [const { Cell::new(0) }; 2] };
}

/// Evaluates the expression, and notes its line under that number.
macro_rules! mark {
    ($number:literal, $expression:expr) => {{
        MARKS.with(|marks| marks[$number].set(line!()));
        $expression
    }};
}

/// For values that only their making matters of.
fn ignore<T>(_: T) {}

fn marked(number: usize) -> Option<u32> {
    MARKS.with(|marks| Some(marks[number].get()))
}

/// Runs the kernel with many seeds, and gives the reports.
#[track_caller]
fn pass(launch: &Launch, kernel: impl Fn()) -> Vec<Report> {
    let run = |seed| launch.clone().seed(seed).run("correct", &kernel);
    let reports = (0..SEEDS).map(|seed| run(seed).unwrap_or_else(|fault| panic!("{fault}")));
    reports.collect()
}

/// Runs the kernel with many seeds, each of which must end in a fault that `expected` accepts, at the line
/// of mark 0.
#[track_caller]
fn fail(launch: &Launch, kernel: impl Fn(), expected: impl Fn(&FaultKind) -> bool) -> Box<Fault> {
    let run = |seed| {
        let fault = launch
            .clone()
            .seed(seed)
            .run("broken", &kernel)
            .unwrap_err();
        assert!(expected(&fault.kind), "{fault}");
        assert_eq!(fault.site.map(|site| site.line), marked(0), "{fault}");
        assert!(fault.site.is_none_or(|site| site.file == file!()));
        fault
    };
    (0..SEEDS).map(run).last().unwrap()
}

mod memory_errors {
    use super::*;

    #[test]
    fn global_out_of_bounds() {
        let memory = Memory::new();
        let (x, y) = (memory.copy_of(&[1.0f32; 64]), memory.uninit::<f32>(64));
        let kernel = |last: usize| {
            let i = thread::index_1d() as usize;
            unsafe { y.view().write(i, mark!(0, x.view().read(i + last))) };
        };
        pass(&Launch::new(2, 32), || kernel(0));
        let fault = fail(
            &Launch::new(2, 32),
            || kernel(1),
            |kind| {
                *kind
                    == FaultKind::OutOfBounds {
                        access: AccessKind::Read,
                        place: Place::Global {
                            allocation: 0,
                            element: 64,
                        },
                        count: 1,
                        size: 64,
                    }
            },
        );
        let (block, thread) = (1, 31);
        assert_eq!(fault.thread, Some(GpuThread { block, thread }));
        fail(
            &Launch::new(1, 1),
            || kernel(usize::MAX),
            |kind| matches!(kind, FaultKind::OutOfBounds { .. }),
        );
    }

    #[test]
    fn global_vector_out_of_bounds() {
        let memory = Memory::new();
        let x = memory.uninit::<f32>(7);
        let kernel = |i| unsafe { mark!(0, x.view().write_vector_streaming(i, [1.0f32; 4])) };
        pass(&Launch::new(1, 1), || kernel(0));
        fail(
            &Launch::new(1, 1),
            || kernel(4),
            |kind| {
                matches!(
                    kind,
                    FaultKind::OutOfBounds {
                        count: 4,
                        size: 7,
                        ..
                    }
                )
            },
        );
    }

    #[test]
    fn views_out_of_bounds() {
        let memory = Memory::new();
        let x = memory.uninit::<u32>(8);
        let global = |n| unsafe { mark!(0, x.view().add(n)).write_if(n < 8, 0, 1) };
        pass(&Launch::new(1, 1), || global(7));
        pass(&Launch::new(1, 1), || global(8));
        let is_view = |kind: &FaultKind| {
            let access = AccessKind::View;
            matches!(kind, FaultKind::OutOfBounds { access: a, .. } if *a == access)
        };
        fail(&Launch::new(1, 1), || global(9), is_view);
        let from_the_third = |n| unsafe { ignore(mark!(0, x.view().add(2).offset(n))) };
        for inside in [-2, -1, 0, 6] {
            pass(&Launch::new(1, 1), || from_the_third(inside));
        }
        for outside in [-3, 7, isize::MIN, isize::MAX] {
            fail(&Launch::new(1, 1), || from_the_third(outside), is_view);
        }
        let shared = |n| unsafe { mark!(0, shared::dynamic_shared_mem::<u32>().add(n)) };
        let launch = Launch::new(1, 1).shared_bytes(32);
        pass(&launch, || ignore(shared(8)));
        fail(&launch, || ignore(shared(9)), is_view);
    }

    #[test]
    fn shared_out_of_bounds() {
        let launch = Launch::new(2, 32).shared_bytes(128);
        let kernel = |offset: usize| {
            let tile = shared::dynamic_shared_mem::<f32>();
            let i = thread_idx_x() as usize;
            unsafe { mark!(0, tile.write(i + offset, 1.0)) };
        };
        pass(&launch, || kernel(0));
        fail(
            &launch,
            || kernel(1),
            |kind| {
                *kind
                    == FaultKind::OutOfBounds {
                        access: AccessKind::Write,
                        place: Place::Shared { byte: 128 },
                        count: 4,
                        size: 128,
                    }
            },
        );
    }

    #[test]
    fn misaligned() {
        let memory = Memory::new();
        let kernel = |x: Global<f32>| unsafe { mark!(0, x.read_vector::<4>(0)) };
        let values = [1.0; 8];
        for offset in 0..4 {
            let x = memory.copy_of_at(offset, &values).view();
            assert_eq!(x.is_aligned_to::<4>(), offset == 0);
            assert_eq!(x.is_aligned_to::<2>(), offset % 2 == 0);
            if offset == 0 {
                pass(&Launch::new(1, 1), || ignore(kernel(x)));
            } else {
                fail(
                    &Launch::new(1, 1),
                    || ignore(kernel(x)),
                    |kind| matches!(kind, FaultKind::Misaligned { bytes: 16, .. }),
                );
            }
        }
        let launch = Launch::new(1, 1).shared_bytes(64);
        let kernel = |i| {
            let tile = shared::dynamic_shared_mem::<u64>();
            unsafe { mark!(0, tile.write_vector(i, [1, 2])) };
        };
        pass(&launch, || kernel(2));
        fail(
            &launch,
            || kernel(3),
            |kind| {
                let place = Place::Shared { byte: 24 };
                matches!(kind, FaultKind::Misaligned { bytes: 16, place: p, .. } if *p == place)
            },
        );
    }

    #[test]
    fn unwritten_global() {
        let memory = Memory::new();
        let kernel = |x: Global<u32>| unsafe { mark!(0, x.read_vector::<4>(0)) };
        let x = memory.uninit::<u32>(4);
        let write = |i: usize| unsafe { x.view().write(i, 1) };
        pass(&Launch::new(1, 3), || write(thread_idx_x() as usize));
        let (allocation, element) = (0, 3);
        fail(
            &Launch::new(1, 1),
            || ignore(kernel(x.view())),
            |kind| {
                *kind
                    == FaultKind::Unwritten {
                        access: AccessKind::Read,
                        place: Place::Global {
                            allocation,
                            element,
                        },
                    }
            },
        );
        assert_eq!(x.elements(), [Some(1), Some(1), Some(1), None]);
        let unwritten = Unwritten {
            allocation,
            element,
        };
        assert_eq!(x.to_vec(), Err(unwritten));
        pass(&Launch::new(1, 1), || write(3));
        pass(&Launch::new(1, 1), || ignore(kernel(x.view())));
        assert_eq!(x.to_vec(), Ok(vec![1; 4]));
    }

    #[test]
    fn unwritten_shared() {
        let launch = Launch::new(3, 64).shared_bytes(256);
        // Where nothing of this block's is written, what an earlier block left is not there either.
        let kernel = |writers: u32| {
            let tile = shared::dynamic_shared_mem::<u32>();
            let i = thread_idx_x();
            unsafe {
                if i < writers || block_idx_x() == 0 {
                    tile.write(i as usize, i);
                }
                sync_threads();
                ignore(mark!(0, tile.read(63 - i as usize)));
            }
        };
        pass(&launch, || kernel(64));
        fail(
            &launch,
            || kernel(63),
            |kind| matches!(kind, FaultKind::Unwritten { place, .. } if *place == Place::Shared { byte: 252 }),
        );
    }

    #[test]
    fn unwritten_atomic() {
        let memory = Memory::new();
        let add = |x: Global<u32>| unsafe { mark!(0, x.fetch_add_relaxed(0, 1)) };
        let (x, zero) = (memory.uninit::<u32>(1), memory.copy_of(&[0u32]));
        pass(&Launch::new(1, 1), || ignore(add(zero.view())));
        fail(
            &Launch::new(1, 1),
            || ignore(add(x.view())),
            |kind| matches!(kind, FaultKind::Unwritten { .. }),
        );
    }
}

mod races {
    use super::*;

    fn is_race(first: AccessKind, second: AccessKind) -> impl Fn(&FaultKind) -> bool {
        move |kind| match kind {
            FaultKind::Race { access, other, .. } => {
                // Either may come first in a schedule.
                let (a, b) = (*access, other.kind);
                (a, b) == (first, second) || (b, a) == (first, second)
            }
            _ => false,
        }
    }

    /// As `fail`, where the other access is at the line of mark 1; either may come first.
    #[track_caller]
    fn fail_race(launch: &Launch, kernel: impl Fn(), kinds: [AccessKind; 2]) {
        for seed in 0..SEEDS {
            let fault = launch
                .clone()
                .seed(seed)
                .run("broken", &kernel)
                .unwrap_err();
            assert!(is_race(kinds[0], kinds[1])(&fault.kind), "{fault}");
            let FaultKind::Race { access, other, .. } = fault.kind else {
                unreachable!()
            };
            assert_ne!(fault.thread, Some(other.thread));
            let this = fault.site.map(|site| site.line);
            let mut found = [(access, this), (other.kind, Some(other.site.line))];
            if access != kinds[0] {
                found.reverse();
            }
            let expected = [(kinds[0], marked(0)), (kinds[1], marked(1))];
            assert_eq!(found, expected);
        }
    }

    use AccessKind::{AtomicLoad, AtomicStore, Read, Write};

    /// Each thread writes its element and reads its neighbour's.
    fn neighbours(barriers: [bool; 2]) {
        let tile = shared::dynamic_shared_mem::<u32>();
        let (i, n) = (thread_idx_x() as usize, block_dim_x() as usize);
        for round in 0..3 {
            unsafe {
                mark!(0, tile.write(i, round));
                if barriers[0] {
                    sync_threads();
                }
                let value = mark!(1, tile.read((i + 1) % n));
                assert_eq!(value, round);
                if barriers[1] {
                    sync_threads();
                }
            }
        }
    }

    #[test]
    fn shared_without_a_barrier() {
        let launch = Launch::new(2, 96).shared_bytes(4 * 96);
        pass(&launch, || neighbours([true, true]));
        // The barrier after the reads is missing: the next write races with a slow reader.
        fail_race(&launch, || neighbours([true, false]), [Write, Read]);
        // Without the first, some schedule reads what nothing has written before it meets a race.
        for seed in 0..SEEDS {
            let launch = launch.clone().seed(seed);
            let fault = launch
                .run("broken", || neighbours([false, true]))
                .unwrap_err();
            let kinds = [
                is_race(Write, Read)(&fault.kind),
                matches!(fault.kind, FaultKind::Unwritten { .. }),
            ];
            assert!(kinds.contains(&true), "{fault}");
        }
    }

    #[test]
    fn two_writes() {
        let launch = Launch::new(1, 64).shared_bytes(8);
        let kernel = |modulus: u32| {
            let i = thread_idx_x();
            if i.is_multiple_of(modulus) {
                unsafe { mark!(0, shared::dynamic_shared_mem::<u64>().write(0, 1)) };
            }
        };
        pass(&launch, || kernel(64));
        fail(&launch, || kernel(32), is_race(Write, Write));
    }

    #[test]
    fn many_readers_then_a_write() {
        let launch = Launch::new(1, 128).shared_bytes(4);
        let kernel = |with_barrier: bool| {
            let cell = shared::dynamic_shared_mem::<u32>();
            let i = thread_idx_x();
            for round in 0..3 {
                unsafe {
                    if i == 17 * round {
                        mark!(0, cell.write(0, round));
                    }
                    sync_threads();
                    assert_eq!(mark!(1, cell.read(0)), round);
                    if with_barrier {
                        sync_threads();
                    }
                }
            }
        };
        pass(&launch, || kernel(true));
        fail_race(&launch, || kernel(false), [Write, Read]);
    }

    /// The lanes of a warp exchange values through shared memory.
    fn within_warp(order: impl Fn()) {
        let tile = shared::dynamic_shared_mem::<u32>();
        let i = thread_idx_x() as usize;
        unsafe {
            mark!(0, tile.write(i, 1));
            order();
            ignore(mark!(1, tile.read(i ^ 1)));
            order();
            mark!(0, tile.write(i, 2));
        }
    }

    #[test]
    fn sync_warp_orders_its_lanes() {
        let launch = Launch::new(1, 64).shared_bytes(256);
        pass(&launch, || within_warp(|| unsafe { sync_warp(FULL_MASK) }));
        let pair = || 3 << (lane_id() & !1);
        pass(&launch, || within_warp(|| unsafe { sync_warp(pair()) }));
        let other_pairs = || {
            let lane = lane_id();
            match lane {
                0 | 31 => 0x8000_0001,
                _ => 3 << ((lane - 1) & !1) << 1,
            }
        };
        for seed in 0..SEEDS {
            let launch = launch.clone().seed(seed);
            let kernel = || within_warp(|| unsafe { sync_warp(other_pairs()) });
            let fault = launch.run("broken", kernel).unwrap_err();
            let unwritten = matches!(fault.kind, FaultKind::Unwritten { .. });
            assert!(unwritten || is_race(Write, Read)(&fault.kind), "{fault}");
        }
    }

    #[test]
    fn shuffles_and_votes_order_no_memory() {
        let launch = Launch::new(1, 32).shared_bytes(128);
        let shuffle = || unsafe { ignore(warp::shuffle_xor(FULL_MASK, 0u32, 1)) };
        fail_race(&launch, || within_warp(shuffle), [Write, Read]);
        let vote = || unsafe { ignore(warp::vote_any(FULL_MASK, false)) };
        fail_race(&launch, || within_warp(vote), [Write, Read]);
    }

    #[test]
    fn sync_warp_passes_on_what_a_lane_knows() {
        let launch = Launch::new(1, 32).shared_bytes(4);
        // From lane `order[0]` by way of `order[1]` to `order[2]`, in two pairs; or not quite.
        let kernel = |order: [u32; 3], chained: bool| {
            let cell = shared::dynamic_shared_mem::<u32>();
            let lane = lane_id();
            let pair = |a: u32, b: u32| {
                if lane == a || lane == b {
                    unsafe { sync_warp(1 << a | 1 << b) };
                }
            };
            if lane == order[0] {
                unsafe { cell.write(0, 5) };
            }
            pair(order[0], order[1]);
            pair(order[2], if chained { order[1] } else { 3 });
            if lane == order[2] {
                assert_eq!(unsafe { cell.read(0) }, 5);
            }
        };
        let orders = [[0, 1, 2], [2, 1, 0], [1, 0, 2], [0, 2, 1]];
        for order in orders {
            pass(&launch, || kernel(order, true));
            for seed in 0..SEEDS {
                let launch = launch.clone().seed(seed);
                let fault = launch.run("broken", || kernel(order, false)).unwrap_err();
                let unwritten = matches!(fault.kind, FaultKind::Unwritten { .. });
                assert!(unwritten || is_race(Write, Read)(&fault.kind), "{fault}");
            }
        }
    }

    #[test]
    fn each_of_several_readers_counts() {
        let memory = Memory::new();
        let x = memory.copy_of(&[0u32]).view();
        // Lanes 0 to 2 read; lane 1 has met some of the others when it writes.
        let kernel = |mask: u32, write: &dyn Fn()| unsafe {
            let lane = lane_id();
            if lane < 3 {
                mark!(0, ignore(x.read(0)));
            }
            if mask & 1 << lane != 0 {
                sync_warp(mask);
            }
            if lane == 1 {
                write();
            }
        };
        let store = || unsafe { mark!(1, x.store_relaxed(0, 1)) };
        let write = || unsafe { mark!(1, x.write(0, 1)) };
        let launch = Launch::new(1, 32);
        pass(&launch, || kernel(0b111, &write));
        pass(&launch, || kernel(0b111, &store));
        for mask in [0b011, 0b110] {
            fail_race(&launch, || kernel(mask, &write), [Read, Write]);
            fail_race(&launch, || kernel(mask, &store), [Read, AtomicStore]);
        }
    }

    #[test]
    fn bytes_are_apart() {
        let launch = Launch::new(1, 64).shared_bytes(64);
        let kernel = |step: usize| {
            let (bytes, words) = (
                shared::dynamic_shared_mem::<u8>(),
                shared::dynamic_shared_mem::<u32>(),
            );
            let i = thread_idx_x() as usize;
            unsafe {
                if i < 16 {
                    words.write(i, 0);
                }
                sync_threads();
                mark!(0, bytes.write(i / step, 1));
                sync_threads();
                if step == 1 {
                    assert_eq!(words.read(i / 4), 0x0101_0101);
                }
            }
        };
        pass(&launch, || kernel(1));
        fail(&launch, || kernel(2), is_race(Write, Write));
    }

    #[test]
    fn global_within_a_block() {
        let memory = Memory::new();
        let x = memory.copy_of(&[0u32; 64]);
        let kernel = |with_barrier: bool| {
            let i = thread_idx_x() as usize;
            unsafe {
                mark!(0, x.view().write(i, 1));
                if with_barrier {
                    sync_threads();
                }
                ignore(mark!(1, x.view().read(63 - i)));
            }
        };
        pass(&Launch::new(1, 64), || kernel(true));
        fail_race(&Launch::new(1, 64), || kernel(false), [Write, Read]);
    }

    /// Block 0 writes data and raises a flag; block 1 waits for the flag and reads the data, with another
    /// thread than the one that waited.
    fn message(
        memory: &Memory,
        raise: impl Fn(Global<u32>),
        poll: impl Fn(Global<u32>) -> u32,
    ) -> impl Fn() {
        let data = memory.copy_of(&[0u32; 32]).view();
        let flag = memory.copy_of(&[0u32; 1]).view();
        // The flag is raised once: every launch begins by lowering it.
        let ready = memory.copy_of(&[0u32; 1]).view();
        move || unsafe {
            let i = thread_idx_x();
            if block_idx_x() == 0 {
                if i == 0 {
                    flag.store_relaxed(0, 0);
                    ready.store_release(0, 1);
                }
                mark!(0, data.write(i as usize, i + 1));
                sync_threads();
                if i == 0 {
                    raise(flag);
                }
            } else {
                if i == 0 {
                    while ready.load_acquire(0) == 0 {}
                    while poll(flag) == 0 {}
                    ready.store_relaxed(0, 0);
                }
                sync_threads();
                ignore(mark!(1, data.read(31 - i as usize)));
            }
        }
    }

    #[test]
    fn release_and_acquire_order_blocks() {
        let memory = Memory::new();
        let launch = Launch::new(2, 32).resident_blocks(2);
        let release = |flag: Global<u32>| unsafe { flag.store_release(0, 1) };
        let relaxed = |flag: Global<u32>| unsafe { flag.store_relaxed(0, 1) };
        let acquire = |flag: Global<u32>| unsafe { flag.load_acquire(0) };
        let relaxed_load = |flag: Global<u32>| unsafe { flag.load_relaxed(0) };
        let add = |flag: Global<u32>| unsafe { ignore(flag.fetch_add_relaxed(0, 1)) };
        pass(&launch, message(&memory, release, acquire));
        fail_race(&launch, message(&memory, relaxed, acquire), [Write, Read]);
        fail_race(&launch, message(&memory, add, acquire), [Write, Read]);
        fail_race(
            &launch,
            message(&memory, release, relaxed_load),
            [Write, Read],
        );
        let fenced_store = |flag| {
            device_fence();
            relaxed(flag);
        };
        let fenced_add = |flag| {
            device_fence();
            add(flag);
        };
        let late_fence = |flag| {
            relaxed(flag);
            device_fence();
        };
        let fenced_load = |flag| {
            let value = relaxed_load(flag);
            device_fence();
            value
        };
        pass(&launch, message(&memory, fenced_store, acquire));
        pass(&launch, message(&memory, fenced_add, acquire));
        pass(&launch, message(&memory, release, fenced_load));
        pass(&launch, message(&memory, fenced_store, fenced_load));
        fail_race(
            &launch,
            message(&memory, late_fence, acquire),
            [Write, Read],
        );
        // An addition passes on what the flag's earlier store released.
        let release_and_add = |flag| {
            release(flag);
            add(flag);
        };
        pass(&launch, message(&memory, release_and_add, acquire));
        // A store does not, though it is the same thread's, and the second block may see only that.
        let release_and_store = |flag: Global<u32>| {
            release(flag);
            unsafe { flag.store_relaxed(0, 2) };
        };
        let acquire_two = |flag: Global<u32>| u32::from(acquire(flag) == 2);
        let kernel = message(&memory, release_and_store, acquire_two);
        // The first poll that sees 1 still acquires.
        let faults = (0..SEEDS).filter(|&seed| {
            let result = launch.clone().seed(seed).run("broken", &kernel);
            result.is_err_and(|fault| is_race(Write, Read)(&fault.kind))
        });
        assert!(faults.count() > 0);
    }

    /// Lane 1 of block 0 writes, lane 0 tells lane 0 of block 1, and lane 1 there reads.
    fn message_by_warps(flag: Global<u32>, data: Global<u32>, syncs: [bool; 2]) {
        let lane = lane_id();
        unsafe {
            if block_idx_x() == 0 {
                if lane == 1 {
                    mark!(0, data.write(0, 1));
                }
                if syncs[0] {
                    sync_warp(FULL_MASK);
                }
                if lane == 0 {
                    flag.store_release(0, 1);
                }
            } else {
                if lane == 0 {
                    while flag.load_acquire(0) == 0 {}
                }
                if syncs[1] {
                    sync_warp(FULL_MASK);
                }
                if lane == 1 {
                    mark!(1, ignore(data.read(0)));
                }
            }
        }
    }

    #[test]
    fn sync_warp_passes_on_messages() {
        let launch = Launch::new(2, 32).resident_blocks(2);
        for seed in 0..SEEDS {
            for syncs in [[true, true], [false, true], [true, false]] {
                let memory = Memory::new();
                let (flag, data) = (memory.copy_of(&[0]).view(), memory.copy_of(&[0]).view());
                let result = launch.clone().seed(seed).run("message", || {
                    message_by_warps(flag, data, syncs);
                });
                if syncs == [true, true] {
                    result.unwrap();
                } else {
                    assert!(is_race(Write, Read)(&result.unwrap_err().kind));
                }
            }
        }
    }

    #[test]
    fn a_release_orders_nothing_that_comes_after() {
        let launch = Launch::new(2, 1).resident_blocks(2);
        for seed in 0..SEEDS {
            for late in [false, true] {
                let memory = Memory::new();
                let (flag, data) = (
                    memory.copy_of(&[0u32]).view(),
                    memory.copy_of(&[0u32]).view(),
                );
                let result = launch.clone().seed(seed).run("late", || unsafe {
                    if block_idx_x() == 1 {
                        while flag.load_acquire(0) == 0 {}
                        return ignore(data.read(0));
                    }
                    if !late {
                        data.write(0, 1);
                    }
                    flag.store_release(0, 1);
                    if late {
                        data.write(0, 1);
                    }
                });
                match result {
                    Ok(_) => assert!(!late),
                    Err(fault) => assert!(late && is_race(Write, Read)(&fault.kind), "{fault}"),
                }
            }
        }
    }

    #[test]
    fn the_last_block_sums_up() {
        const BLOCKS: u32 = 5;
        let launch = Launch::new(BLOCKS, 1);
        for seed in 0..SEEDS {
            for fences in [[true, true], [false, true], [true, false]] {
                let memory = Memory::new();
                let partial = memory.uninit::<u32>(BLOCKS as usize).view();
                let (done, sum) = (memory.copy_of(&[0u32]).view(), memory.uninit(1));
                let result = launch.clone().seed(seed).run("last_block", || unsafe {
                    partial.write(block_idx_x() as usize, block_idx_x());
                    if fences[0] {
                        device_fence();
                    }
                    if done.fetch_add_relaxed(0, 1) == BLOCKS - 1 {
                        if fences[1] {
                            device_fence();
                        }
                        let values = (0..BLOCKS as usize).map(|i| partial.read(i));
                        sum.view().write(0, values.sum::<u32>());
                    }
                });
                if fences == [true, true] {
                    result.unwrap();
                    assert_eq!(sum.to_vec(), Ok(vec![10]));
                } else {
                    assert!(is_race(Write, Read)(&result.unwrap_err().kind));
                }
            }
        }
    }

    /// A block takes the place of one that has ended, but not what that knew.
    #[test]
    fn blocks_share_no_knowledge() {
        #[track_caller]
        fn race_in_block_2(kernel: impl Fn(Global<u32>, Global<u32>)) {
            for seed in 0..SEEDS {
                for resident in 1..=2 {
                    let memory = Memory::new();
                    let flags = memory.copy_of(&[0u32; 2]).view();
                    let data = memory.copy_of(&[0u32; 32]).view();
                    let launch = Launch::new(3, 32).shared_bytes(128).seed(seed);
                    let launch = launch
                        .block_order(BlockOrder::Ascending)
                        .resident_blocks(resident);
                    let fault = launch.run("broken", || kernel(flags, data)).unwrap_err();
                    let FaultKind::Race { other, .. } = fault.kind else {
                        panic!("{fault}")
                    };
                    let blocks = [fault.thread.unwrap().block, other.thread.block];
                    assert!(blocks.contains(&2));
                }
            }
        }
        let only_lane_0 = |body: &dyn Fn()| {
            if lane_id() == 0 {
                body();
            }
        };
        // Block 1 learnt of the data.
        race_in_block_2(|flags, data| {
            only_lane_0(&|| unsafe {
                match block_idx_x() {
                    0 => {
                        data.write(0, 1);
                        flags.store_release(0, 1);
                    }
                    1 => while flags.load_acquire(0) == 0 {},
                    _ => ignore(data.read(0)),
                }
            });
        });
        // Block 1 would have learnt of them at a fence.
        race_in_block_2(|flags, data| {
            only_lane_0(&|| unsafe {
                match block_idx_x() {
                    0 => {
                        data.write(0, 1);
                        flags.store_release(0, 1);
                    }
                    1 => while flags.load_relaxed(0) == 0 {},
                    _ => {
                        device_fence();
                        ignore(data.read(0));
                    }
                }
            });
        });
        // Block 0 passed a fence, block 1 stores after none.
        race_in_block_2(|flags, data| {
            only_lane_0(&|| unsafe {
                match block_idx_x() {
                    0 => {
                        data.write(0, 1);
                        device_fence();
                    }
                    1 => flags.store_relaxed(0, 1),
                    _ => {
                        while flags.load_acquire(0) == 0 {}
                        ignore(data.read(0));
                    }
                }
            });
        });
        // The lanes of the blocks before met.
        race_in_block_2(|_, _| unsafe {
            if block_idx_x() < 2 {
                (0..3).for_each(|_| sync_warp(FULL_MASK));
            } else {
                shared::dynamic_shared_mem::<u32>().write(0, 1);
            }
        });
    }

    #[test]
    fn blocks_without_a_message() {
        let memory = Memory::new();
        let x = memory.copy_of(&[0u32; 1]);
        let kernel =
            |own: usize| unsafe { mark!(0, x.view().write(block_idx_x() as usize * own, 1)) };
        pass(&Launch::new(1, 1), || kernel(0));
        fail(&Launch::new(5, 1), || kernel(0), is_race(Write, Write));
        // Also if the blocks run one after the other.
        let launch = Launch::new(5, 1).resident_blocks(1);
        fail(&launch, || kernel(0), is_race(Write, Write));
    }

    #[test]
    fn atomic_and_plain() {
        let memory = Memory::new();
        let x = memory.copy_of(&[0u32; 1]).view();
        let launch = Launch::new(1, 64);
        let run = |first: &dyn Fn(), second: &dyn Fn()| {
            if thread_idx_x() == 0 {
                first()
            } else {
                second()
            }
        };
        let one = |action: &dyn Fn()| {
            if thread_idx_x() == 63 {
                action();
            }
        };
        let read = || unsafe { mark!(0, ignore(x.read(0))) };
        let write = || unsafe { mark!(0, x.write(0, 1)) };
        let load = || unsafe { mark!(1, ignore(x.load_relaxed(0))) };
        let store = || unsafe { mark!(1, x.store_relaxed(0, 1)) };
        pass(&launch, || run(&load, &store));
        pass(&launch, || run(&load, &read));
        fail_race(&launch, || run(&read, &|| one(&store)), [Read, AtomicStore]);
        fail_race(&launch, || run(&write, &|| one(&load)), [Write, AtomicLoad]);
        fail_race(
            &launch,
            || run(&write, &|| one(&store)),
            [Write, AtomicStore],
        );
    }

    #[test]
    fn launches_are_ordered() {
        let memory = Memory::new();
        let x = memory.uninit::<u32>(64).view();
        pass(&Launch::new(2, 32), || unsafe {
            x.write(thread::index_1d() as usize, 7);
        });
        pass(&Launch::new(4, 16), || unsafe {
            assert_eq!(x.read(63 - thread::index_1d() as usize), 7);
        });
    }
}

mod barriers {
    use super::*;

    #[test]
    fn two_sites() {
        let kernel = |split: u32| unsafe {
            if thread_idx_x() < split {
                mark!(0, sync_threads());
            } else {
                mark!(1, sync_threads());
            }
        };
        pass(&Launch::new(2, 64), || kernel(64));
        for seed in 0..SEEDS {
            let launch = Launch::new(2, 64).seed(seed);
            let fault = launch.run("broken", || kernel(32)).unwrap_err();
            let FaultKind::BarrierDivergence { other, call } = fault.kind else {
                panic!("{fault}")
            };
            let this = fault.thread.unwrap();
            assert_eq!(this.block, other.block);
            assert_ne!(this.thread < 32, other.thread < 32);
            let lines = BTreeSet::from([fault.site.unwrap().line, call.site.line]);
            assert_eq!(
                lines,
                BTreeSet::from([marked(0).unwrap(), marked(1).unwrap()])
            );
        }
    }

    #[test]
    fn a_thread_that_waits_elsewhere() {
        let kernel = |all: bool| unsafe {
            if all || lane_id() != 5 {
                mark!(0, sync_threads());
            }
            mark!(1, sync_warp(FULL_MASK));
        };
        pass(&Launch::new(1, 64), || kernel(true));
        let fault = fail(
            &Launch::new(1, 64),
            || kernel(false),
            |kind| match kind {
                FaultKind::BarrierDivergence { other, call } => {
                    other.lane() == 5
                        && call.function == "sync_warp"
                        && Some(call.site.line) == marked(1)
                }
                _ => false,
            },
        );
        assert_ne!(fault.thread.unwrap().lane(), 5);
    }

    #[test]
    fn threads_that_have_ended_do_not_count() {
        let launch = Launch::new(3, 96).shared_bytes(4 * 96);
        pass(&launch, || unsafe {
            let tile = shared::dynamic_shared_mem::<u32>();
            let i = thread_idx_x();
            for round in 0..3 {
                if i > 64 * (3 - round) / 2 {
                    return;
                }
                tile.write(i as usize, round);
                sync_threads();
                assert_eq!(tile.read(31 - (i % 32) as usize), round);
                sync_threads();
            }
        });
    }

    #[test]
    fn sites_are_counted_and_can_be_removed() {
        let launch = Launch::new(3, 64).shared_bytes(256);
        let kernel = || unsafe {
            let tile = shared::dynamic_shared_mem::<u32>();
            let i = thread_idx_x() as usize;
            for _ in 0..2 {
                tile.write(i, 1);
                mark!(0, sync_threads());
                ignore(tile.read(63 - i));
                mark!(1, sync_threads());
                tile.write(i, 1);
                sync_warp(FULL_MASK);
                ignore(tile.read(i ^ 31));
                sync_threads();
            }
        };
        let reports = pass(&launch, kernel);
        let barriers = &reports[0].barriers;
        assert!(reports.iter().all(|report| report.barriers == *barriers));
        let counts: Vec<_> = barriers.iter().map(|barrier| barrier.count).collect();
        assert_eq!(counts, [6, 6, 12, 6]);
        assert_eq!(Some(barriers[0].site.line), marked(0));
        assert_eq!(Some(barriers[1].site.line), marked(1));
        for barrier in barriers {
            for seed in 0..SEEDS {
                let launch = launch.clone().seed(seed).without_barrier(barrier.site);
                let fault = launch.run("mutant", kernel).unwrap_err();
                assert!(matches!(
                    fault.kind,
                    FaultKind::Race { .. } | FaultKind::Unwritten { .. }
                ));
            }
        }
    }
}

mod warps {
    use super::*;

    /// For each lane, what a kernel gives there.
    fn lanes<T: cuda_std::Scalar>(kernel: impl Fn(u32) -> T) -> Vec<T> {
        let memory = Memory::new();
        let results = memory.uninit::<T>(32);
        pass(&Launch::new(1, 32), || unsafe {
            let lane = lane_id();
            results.view().write(lane as usize, kernel(lane));
        });
        results.to_vec().unwrap()
    }

    #[test]
    fn shuffles() {
        let expect = |expected: fn(u32) -> u32| (0..32).map(expected).collect::<Vec<_>>();
        let value = |lane: u32| 100 + lane;
        unsafe {
            let index = |lane| warp::shuffle_idx(FULL_MASK, value(lane), 3 * lane % 32);
            assert_eq!(lanes(index), expect(|lane| 100 + 3 * lane % 32));
            let up = |lane| warp::shuffle_up(FULL_MASK, value(lane), 5);
            assert_eq!(
                lanes(up),
                expect(|lane| 100 + if lane < 5 { lane } else { lane - 5 })
            );
            let down = |lane| warp::shuffle_down(FULL_MASK, value(lane), 5);
            assert_eq!(
                lanes(down),
                expect(|lane| 100 + if lane > 26 { lane } else { lane + 5 })
            );
            let xor = |lane| warp::shuffle_xor(FULL_MASK, value(lane), 17);
            assert_eq!(lanes(xor), expect(|lane| 100 + (lane ^ 17)));
            // Each pair has a mask and an argument of its own.
            let pairs = |lane| warp::shuffle_idx(3u32 << (lane & !1), value(lane), lane ^ 1);
            assert_eq!(lanes(pairs), expect(|lane| 100 + (lane ^ 1)));
            let wide = |lane| warp::shuffle_xor(FULL_MASK, f64::from(lane) + 0.1, 1);
            let expected: Vec<_> = (0..32).map(|lane| f64::from(lane ^ 1) + 0.1).collect();
            assert_eq!(lanes(wide), expected);
        }
    }

    #[test]
    fn votes() {
        let mask = |lane| if lane < 8 { 0xff } else { !0xff };
        unsafe {
            let ballot = |lane| warp::vote_ballot(mask(lane), lane % 3 == 0);
            let expected = |lane| if lane < 8 { 0x49 } else { 0x4924_9200 };
            assert_eq!(lanes(ballot), (0..32).map(expected).collect::<Vec<_>>());
            let any = |lane| u32::from(warp::vote_any(mask(lane), lane == 31));
            assert_eq!(
                lanes(any),
                (0..32).map(|lane| u32::from(lane >= 8)).collect::<Vec<_>>()
            );
            let all = |lane| u32::from(warp::vote_all(mask(lane), lane < 9));
            assert_eq!(
                lanes(all),
                (0..32).map(|lane| u32::from(lane < 8)).collect::<Vec<_>>()
            );
        }
    }

    #[test]
    fn branches_with_their_own_masks() {
        pass(&Launch::new(1, 32), || unsafe {
            let lane = lane_id();
            if lane.is_multiple_of(2) {
                assert_eq!(warp::shuffle_down(0x5555_5555, lane, 2), (lane + 2).min(30));
            } else {
                assert!(warp::vote_all(0xaaaa_aaaa, true));
            }
            sync_warp(FULL_MASK);
        });
    }

    #[test]
    fn a_lane_that_is_not_in_the_mask() {
        let kernel = |mask: u32| unsafe { mark!(0, sync_warp(mask)) };
        pass(&Launch::new(1, 4), || kernel(0xf));
        let fault = fail(
            &Launch::new(1, 4),
            || kernel(0x7),
            |kind| matches!(kind, FaultKind::NotInMask { lane: 3, call } if call.mask == Some(7)),
        );
        assert_eq!(fault.thread.unwrap().thread, 3);
    }

    #[test]
    fn a_lane_that_does_not_exist() {
        let kernel = || unsafe { ignore(mark!(0, warp::vote_any(FULL_MASK, true))) };
        pass(&Launch::new(1, 64), kernel);
        fail(&Launch::new(1, 63), kernel, |kind| {
            matches!(
                kind,
                FaultKind::LaneMissing {
                    lane: 31,
                    ended: false,
                    ..
                }
            )
        });
    }

    #[test]
    fn a_lane_that_has_ended() {
        let kernel = |last: u32| unsafe {
            if lane_id() <= last {
                ignore(mark!(0, warp::shuffle_xor(FULL_MASK, 1.0f32, 1)));
            }
        };
        pass(&Launch::new(2, 32), || kernel(31));
        fail(
            &Launch::new(2, 32),
            || kernel(30),
            |kind| {
                matches!(
                    kind,
                    FaultKind::LaneMissing {
                        lane: 31,
                        ended: true,
                        ..
                    }
                )
            },
        );
    }

    #[test]
    fn lanes_in_different_calls() {
        let votes = |split: u32, masks: [u32; 2]| unsafe {
            if lane_id() < split {
                ignore(warp::vote_any(masks[0], true));
            } else {
                ignore(warp::vote_any(masks[1], true));
            }
        };
        let barriers = |split: u32, masks: [u32; 2]| unsafe {
            if lane_id() < split {
                sync_warp(masks[0]);
            } else {
                sync_warp(masks[1]);
            }
        };
        let launch = Launch::new(1, 32);
        pass(&launch, || votes(32, [FULL_MASK; 2]));
        pass(&launch, || votes(16, [0xffff, 0xffff_0000]));
        // The lanes of `sync_warp` may be at different places.
        pass(&launch, || barriers(16, [FULL_MASK; 2]));
        let fault = |kernel: &dyn Fn()| {
            (0..SEEDS).for_each(|seed| {
                let fault = launch.clone().seed(seed).run("broken", kernel).unwrap_err();
                assert!(
                    matches!(fault.kind, FaultKind::LaneElsewhere { .. }),
                    "{fault}"
                );
            });
        };
        // Two places.
        fault(&|| votes(16, [FULL_MASK; 2]));
        // Two masks.
        fault(&|| barriers(16, [0x1_ffff, FULL_MASK]));
        // Two functions at one place.
        fault(&|| unsafe {
            let vote = if lane_id() < 16 {
                warp::vote_any
            } else {
                warp::vote_all
            };
            vote(FULL_MASK, true);
        });
        // Each waits for the next of a ring, and none for one that waits for it.
        fault(&|| unsafe {
            match lane_id() {
                0 => sync_warp(0b011),
                1 => sync_warp(0b110),
                2 => sync_warp(0b101),
                _ => {}
            }
        });
    }

    #[test]
    fn shuffles_from_a_lane_that_takes_no_part() {
        let kernel = |source: u32| unsafe {
            if lane_id() < 16 {
                ignore(mark!(0, warp::shuffle_idx(0xffff, 1u32, source)));
            }
        };
        let launch = Launch::new(1, 32);
        pass(&launch, || kernel(15));
        let reads_from = |lane| move |kind: &FaultKind| matches!(kind, FaultKind::ShuffleSource { source_lane, .. } if *source_lane == lane);
        fail(&launch, || kernel(16), reads_from(16));
        fail(&launch, || kernel(32), reads_from(32));
        let down = || unsafe {
            if lane_id() < 16 {
                ignore(mark!(0, warp::shuffle_down(0xffff, 1u32, 1)));
            }
        };
        fail(&launch, down, reads_from(16));
    }
}

mod blocks {
    use super::*;

    const BLOCKS: u32 = 7;

    /// A chained scan: each block adds its value to what the block before it published.
    ///
    /// `flags` are 0; flag `i + 1` becomes 1 plus the sum of blocks `0..=i`.
    unsafe fn chain(order: Global<u32>, flags: Global<u32>, sums: Global<u32>, ticketed: bool) {
        let turn = shared::dynamic_shared_mem::<u32>();
        let i = thread_idx_x();
        unsafe {
            if i == 0 {
                let ticket = order.fetch_add_relaxed(0, 1);
                turn.write(0, if ticketed { ticket } else { block_idx_x() });
            }
            sync_threads();
            let block = turn.read(0);
            if i < 32 {
                // Only lane 0 needs it; all poll, as a look-back does.
                let mut before;
                loop {
                    before = mark!(0, flags.load_acquire(block as usize));
                    if warp::vote_all(FULL_MASK, before != 0) {
                        break;
                    }
                }
                if i == 0 {
                    if block > 0 {
                        assert_eq!(sums.read(block as usize - 1), before - 1);
                    }
                    sums.write(block as usize, before - 1 + block);
                    flags.store_release(block as usize + 1, before + block);
                }
            }
        }
    }

    /// Each launch needs new flags.
    fn run_chain(launch: &Launch, ticketed: bool) -> Result<Vec<u32>, Box<Fault>> {
        let memory = Memory::new();
        let mut flags = [0; BLOCKS as usize + 1];
        flags[0] = 1;
        let (order, flags) = (memory.copy_of(&[0]), memory.copy_of(&flags));
        let sums = memory.uninit(BLOCKS as usize);
        launch.run("chain", || unsafe {
            chain(order.view(), flags.view(), sums.view(), ticketed);
        })?;
        Ok(sums.to_vec().unwrap())
    }

    #[test]
    fn a_chained_scan() {
        let launch = Launch::new(BLOCKS, 64).shared_bytes(4);
        for seed in 0..5 * SEEDS {
            let launch = launch.clone().seed(seed);
            let sums = run_chain(&launch, true).unwrap_or_else(|fault| panic!("{fault}"));
            assert_eq!(sums, [0, 1, 3, 6, 10, 15, 21]);
            // In ascending order, even the block's own index will do.
            let launch = launch.block_order(BlockOrder::Ascending).resident_blocks(2);
            assert!(run_chain(&launch, false).is_ok());
        }
    }

    #[test]
    fn a_block_that_waits_for_one_that_cannot_start() {
        let launch = Launch::new(BLOCKS, 64).shared_bytes(4).resident_blocks(1);
        let mut deadlocks = 0;
        for seed in 0..SEEDS {
            // Only in ascending order could this end.
            if let Err(fault) = run_chain(&launch.clone().seed(seed), false) {
                assert!(
                    matches!(
                        fault.kind,
                        FaultKind::Deadlock {
                            unstarted: 1..,
                            polling: 32,
                            ..
                        }
                    ),
                    "{fault}"
                );
                assert_eq!(fault.site.map(|site| site.line), marked(0));
                deadlocks += 1;
            }
        }
        assert!(deadlocks > SEEDS * 9 / 10);
    }

    #[test]
    fn waiting_for_a_higher_block() {
        let memory = Memory::new();
        let kernel = |towards: fn(u32) -> Option<u32>| {
            let flags = memory.copy_of(&[0u32; BLOCKS as usize]).view();
            move || unsafe {
                let block = block_idx_x();
                if thread_idx_x() == 0 {
                    if let Some(other) = towards(block) {
                        while mark!(0, flags.load_acquire(other as usize)) == 0 {}
                    }
                    flags.store_release(block as usize, 1);
                }
                sync_threads();
            }
        };
        let launch = Launch::new(BLOCKS, 32).block_order(BlockOrder::Ascending);
        pass(&launch, kernel(|block| block.checked_sub(1)));
        let up = kernel(|block| Some(block + 1).filter(|&next| next < BLOCKS));
        let deadlock = |unstarted| move |kind: &FaultKind| matches!(kind, FaultKind::Deadlock { unstarted: n, .. } if *n == unstarted);
        fail(&launch.clone().resident_blocks(3), up, deadlock(4));
        // All resident, but in a ring.
        let ring = kernel(|block| Some((block + 1) % BLOCKS));
        fail(&launch.clone().resident_blocks(BLOCKS), ring, deadlock(0));
    }

    #[test]
    fn loads_that_are_no_polls() {
        let memory = Memory::new();
        let x = memory.copy_of(&[0u32, 0]).view();
        pass(&Launch::new(2, 2), || unsafe {
            (0..100).for_each(|_| assert_eq!(x.load_relaxed(0), 0));
        });
        let launch = Launch::new(1, 1);
        pass(&launch, || unsafe {
            for _ in 0..1000 {
                ignore(x.load_relaxed(0));
                x.store_relaxed(1, 1);
            }
        });
        pass(&launch, || unsafe {
            let one = x.add(1);
            for _ in 0..1000 {
                ignore(x.load_relaxed(0));
                ignore(one.read(0));
            }
        });
    }

    #[test]
    fn a_store_wakes_those_who_poll() {
        for seed in 0..SEEDS {
            let memory = Memory::new();
            let flags = memory.copy_of(&[0u32; 3]).view();
            let launch = Launch::new(2, 1).resident_blocks(2).seed(seed);
            let result = launch.step_limit(10_000).run("answer", || unsafe {
                if block_idx_x() == 0 {
                    while flags.load_acquire(0) == 0 {}
                    flags.store_release(1, 1);
                } else {
                    // It polls two atomics in turn, and so always has something to do.
                    (0..100).for_each(|_| ignore(flags.load_relaxed(2)));
                    flags.store_release(0, 1);
                    while flags.load_acquire(1) + flags.load_acquire(2) == 0 {}
                }
            });
            result.unwrap();
        }
    }

    #[test]
    fn a_kernel_that_never_ends() {
        let memory = Memory::new();
        let x = memory.copy_of(&[0u32]);
        let kernel = |rounds: u32| unsafe {
            for _ in 0..rounds {
                ignore(mark!(0, x.view().read(0)));
            }
        };
        let launch = Launch::new(1, 32).step_limit(10_000);
        pass(&launch, || kernel(100));
        fail(
            &launch,
            || kernel(u32::MAX),
            |kind| *kind == FaultKind::StepLimit { limit: 10_000 },
        );
    }

    #[test]
    fn additions_are_atomic() {
        let memory = Memory::new();
        let counts = memory.copy_of(&[0u64, 0]);
        let tickets = memory.uninit::<u64>(5 * 64);
        let narrow = memory.copy_of(&[u32::MAX]);
        Launch::new(5, 64)
            .run("count", || unsafe {
                let ticket = counts.view().fetch_add_relaxed(0, 1);
                counts.view().fetch_add_relaxed(1, ticket << 32);
                tickets.view().write(thread::index_1d() as usize, ticket);
                narrow.view().fetch_add_relaxed(0, 1);
            })
            .unwrap();
        assert_eq!(counts.to_vec().unwrap(), [320, (320 * 319 / 2) << 32]);
        assert_eq!(narrow.to_vec().unwrap(), [319]);
        let tickets = tickets.to_vec().unwrap();
        assert_eq!(tickets.iter().copied().collect::<BTreeSet<_>>().len(), 320);
        assert!(!tickets.is_sorted(), "threads take turns");
    }
}

mod asynchronous_copies {
    use super::*;

    const TILES: usize = 4;
    const THREADS: usize = 64;

    #[derive(Clone, Copy, PartialEq)]
    enum Mistake {
        None,
        NoWait,
        WaitForTooFew,
        NoCommit,
        NoBarrier,
        NoBarrierBeforeReuse,
    }

    /// Copies tiles to shared memory, two ahead, and writes them out in another thread.
    unsafe fn pipeline(x: Global<f32>, y: Global<f32>, mistake: Mistake) {
        let tile = shared::dynamic_shared_mem::<f32>();
        let i = thread_idx_x() as usize;
        let fetch = |t: usize| unsafe {
            if t < TILES {
                let target = 4 * (t % 2 * THREADS + i);
                tile.copy_async::<4>(target, x, 4 * (t * THREADS + i));
            }
            if mistake != Mistake::NoCommit {
                async_copy::commit();
            }
        };
        fetch(0);
        for t in 0..TILES {
            fetch(t + 1);
            match mistake {
                Mistake::NoWait => {}
                Mistake::WaitForTooFew => async_copy::wait::<2>(),
                _ => async_copy::wait::<1>(),
            }
            unsafe {
                if mistake != Mistake::NoBarrier {
                    sync_threads();
                }
                let source = THREADS - 1 - i;
                let values: [f32; 4] = tile.read_vector(4 * (t % 2 * THREADS + source));
                y.write_vector(4 * (t * THREADS + source), values);
                if mistake != Mistake::NoBarrierBeforeReuse {
                    sync_threads();
                }
            }
        }
    }

    #[test]
    fn a_pipeline() {
        let memory = Memory::new();
        let values: Vec<_> = (0..4 * TILES * THREADS).map(|i| i as f32).collect();
        let x = memory.copy_of(&values);
        let launch = Launch::new(1, THREADS as u32).shared_bytes(2 * 16 * THREADS);
        let run = |seed, mistake| {
            let y = memory.uninit(values.len());
            let kernel = || unsafe { pipeline(x.view(), y.view(), mistake) };
            let result = launch.clone().seed(seed).run("pipeline", kernel);
            result.map(|_| assert_eq!(y.to_vec().unwrap(), values))
        };
        for seed in 0..SEEDS {
            assert_eq!(run(seed, Mistake::None), Ok(()));
            for mistake in [Mistake::NoWait, Mistake::WaitForTooFew, Mistake::NoCommit] {
                let fault = run(seed, mistake).unwrap_err();
                assert!(matches!(fault.kind, FaultKind::InFlight { .. }), "{fault}");
            }
            for mistake in [Mistake::NoBarrier, Mistake::NoBarrierBeforeReuse] {
                let fault = run(seed, mistake).unwrap_err();
                assert!(
                    matches!(
                        fault.kind,
                        FaultKind::Race { .. }
                            | FaultKind::InFlight { .. }
                            | FaultKind::Unwritten { .. }
                    ),
                    "{fault}"
                );
            }
        }
    }

    #[test]
    fn the_target_while_the_copy_is_under_way() {
        let memory = Memory::new();
        let x = memory.copy_of(&[1u32, 2, 3, 4]).view();
        let launch = Launch::new(1, 1).shared_bytes(16);
        let kernel = |early: bool, action: fn(shared::Shared<u32>)| unsafe {
            let tile = shared::dynamic_shared_mem::<u32>();
            mark!(1, tile.copy_async::<2>(2, x, 0));
            async_copy::commit();
            if early {
                action(tile);
            }
            async_copy::wait::<0>();
            action(tile);
        };
        let in_flight = |access| {
            move |kind: &FaultKind| match kind {
                FaultKind::InFlight {
                    access: a, copy, ..
                } => *a == access && Some(copy.site.line) == marked(1),
                _ => false,
            }
        };
        let read = |tile: shared::Shared<u32>| unsafe { assert_eq!(mark!(0, tile.read(3)), 2) };
        pass(&launch, || kernel(false, read));
        fail(&launch, || kernel(true, read), in_flight(AccessKind::Read));
        let write = |tile: shared::Shared<u32>| unsafe { mark!(0, tile.write(2, 0)) };
        pass(&launch, || kernel(false, write));
        fail(
            &launch,
            || kernel(true, write),
            in_flight(AccessKind::Write),
        );
        // What lies beside it may be used.
        let beside = |tile: shared::Shared<u32>| unsafe { mark!(0, tile.write(1, 0)) };
        pass(&launch, || kernel(true, beside));
    }

    #[test]
    fn the_source_while_the_copy_is_under_way() {
        let memory = Memory::new();
        let x = memory.copy_of(&[1u32, 2, 3, 4]).view();
        let launch = Launch::new(1, 1).shared_bytes(16);
        let kernel = |early: bool| unsafe {
            let tile = shared::dynamic_shared_mem::<u32>();
            x.write(3, 4);
            mark!(0, tile.copy_async::<4>(0, x, 0));
            async_copy::commit();
            if early {
                x.write(3, 5);
            }
            async_copy::wait::<0>();
            assert_eq!(tile.read_vector(0), [1, 2, 3, 4]);
            x.write(3, 5);
        };
        pass(&launch, || kernel(false));
        fail(
            &launch,
            || kernel(true),
            |kind| matches!(kind, FaultKind::SourceChanged { .. }),
        );
    }

    #[test]
    fn the_source_while_another_thread_writes_it() {
        let memory = Memory::new();
        let x = memory.copy_of(&[1u32; 4]).view();
        let launch = Launch::new(1, 2).shared_bytes(16);
        // The two meet before the copy is waited for, or after.
        let kernel = |early: bool| unsafe {
            if lane_id() == 0 {
                shared::dynamic_shared_mem::<u32>().copy_async::<4>(0, x, 0);
                async_copy::commit();
            }
            if early {
                sync_warp(0b11);
            }
            if lane_id() == 0 {
                async_copy::wait::<0>();
            }
            if !early {
                sync_warp(0b11);
            }
            if lane_id() == 1 {
                // It changes nothing: that is no better.
                x.write(0, 1);
            }
        };
        pass(&launch, || kernel(false));
        for seed in 0..SEEDS {
            let launch = launch.clone().seed(seed);
            let fault = launch.run("broken", || kernel(true)).unwrap_err();
            assert!(matches!(fault.kind, FaultKind::Race { .. }), "{fault}");
        }
    }

    #[test]
    fn copies_end_with_their_block() {
        let memory = Memory::new();
        let x = memory.copy_of(&[1u32; 4]).view();
        let launch = Launch::new(4, 1).shared_bytes(32).resident_blocks(1);
        pass(&launch, || unsafe {
            let tile = shared::dynamic_shared_mem::<u32>();
            tile.write(0, 7);
            async_copy::wait::<0>();
            assert_eq!(tile.read(0), 7);
            tile.copy_async::<4>(0, x, 0);
            async_copy::commit();
        });
    }

    #[test]
    fn misaligned_ends() {
        let memory = Memory::new();
        let launch = Launch::new(1, 1).shared_bytes(32);
        let kernel = |offset: usize, target: usize| {
            let x = memory.copy_of_at(offset, &[1u32; 4]).view();
            move || {
                let tile = shared::dynamic_shared_mem::<u32>();
                unsafe { mark!(0, tile.copy_async::<4>(target, x, 0)) };
            }
        };
        let misaligned = |kind: &FaultKind| matches!(kind, FaultKind::Misaligned { bytes: 16, .. });
        pass(&launch, kernel(0, 4));
        fail(&launch, kernel(1, 4), misaligned);
        fail(&launch, kernel(0, 2), misaligned);
    }
}

mod panics {
    use super::*;

    /// Counts its drops.
    struct Guard(Rc<Cell<u32>>);

    impl Drop for Guard {
        fn drop(&mut self) {
            self.0.set(self.0.get() + 1);
        }
    }

    #[test]
    fn a_panic_is_a_fault() {
        let drops = Rc::new(Cell::new(0));
        let kernel = |values: &[u32], i: u32| {
            let _guard = Guard(Rc::clone(&drops));
            // Other threads hang in the barrier.
            unsafe { sync_threads() };
            if block_idx_x() == 1 && thread_idx_x() == 40 {
                mark!(0, values[i as usize]);
            }
            unsafe { sync_threads() };
        };
        let launch = Launch::new(2, 64).resident_blocks(2);
        launch.run("correct", || kernel(&[1; 3], 2)).unwrap();
        assert_eq!(drops.replace(0), 128);
        for seed in 0..SEEDS {
            let launch = launch.clone().seed(seed);
            let fault = launch.run("broken", || kernel(&[1; 3], 3)).unwrap_err();
            assert_eq!(
                fault.thread.map(|thread| (thread.block, thread.thread)),
                Some((1, 40))
            );
            let FaultKind::Panic { message } = &fault.kind else {
                panic!("{fault}")
            };
            assert!(message.contains("index out of bounds: the len is 3 but the index is 3"));
            let place = format!("{}:{}", file!(), marked(0).unwrap());
            assert!(message.contains(&place), "{message}");
            // Whoever began was unwound.
            assert!((64..=128).contains(&drops.replace(0)));
        }
        // The next launch on this OS thread is as any other.
        launch.run("correct", || kernel(&[1; 3], 2)).unwrap();
    }

    #[test]
    fn trap_is_a_fault() {
        let kernel = || {
            if thread_idx_x() == 3 {
                mark!(0, thread::trap());
            }
        };
        let fault = fail(&Launch::new(1, 32), kernel, |kind| *kind == FaultKind::Trap);
        assert_eq!(fault.thread.map(|thread| thread.thread), Some(3));
    }

    #[test]
    #[should_panic(expected = "outside a launch of the emulator")]
    fn outside_a_launch() {
        ignore(thread_idx_x());
    }
}

mod launches {
    use super::*;

    #[test]
    fn coordinates() {
        let memory = Memory::new();
        let seen = memory.copy_of(&[0u32; 3 * 70]);
        let launch = Launch::new(3, 70);
        launch
            .run("coordinates", || unsafe {
                let i = thread::index_1d() as usize;
                assert_eq!(i as u32, block_idx_x() * 70 + thread_idx_x());
                assert_eq!((block_dim_x(), thread::grid_dim_x()), (70, 3));
                assert_eq!((thread::block_dim_y(), thread::grid_dim_y()), (1, 1));
                assert_eq!((thread::thread_idx_y(), thread::block_idx_y()), (0, 0));
                assert_eq!(lane_id(), thread_idx_x() % 32);
                seen.view().fetch_add_relaxed(i, 1);
            })
            .unwrap();
        assert_eq!(seen.to_vec().unwrap(), [1; 3 * 70]);
    }

    #[test]
    fn grids_of_rows() {
        let memory = Memory::new();
        let seen = memory.copy_of(&[0u32; 6]);
        let kernel = || unsafe {
            let (x, y) = (block_idx_x(), thread::block_idx_y());
            assert_eq!((thread::grid_dim_x(), thread::grid_dim_y()), (3, 2));
            seen.view().fetch_add_relaxed((3 * y + x) as usize, 1 + y);
        };
        Launch::new(3, 32).grid_y(2).run("rows", kernel).unwrap();
        assert_eq!(seen.to_vec().unwrap(), [32, 32, 32, 64, 64, 64]);
    }

    /// The order in which threads pass an atomic.
    fn order(seed: u64) -> (Vec<u32>, Report) {
        let memory = Memory::new();
        let (next, order) = (memory.copy_of(&[0u32]), memory.uninit::<u32>(96));
        let report = Launch::new(3, 32).seed(seed).run("order", || unsafe {
            let turn = next.view().fetch_add_relaxed(0, 1);
            order.view().write(turn as usize, thread::index_1d() as u32);
        });
        (order.to_vec().unwrap(), report.unwrap())
    }

    #[test]
    fn a_seed_is_a_schedule() {
        let orders: Vec<_> = (0..SEEDS).map(order).collect();
        assert!((0..SEEDS).map(order).eq(orders.iter().cloned()));
        let different: BTreeSet<_> = orders.iter().map(|(order, _)| order).collect();
        assert_eq!(different.len(), orders.len());
        let residents: BTreeSet<_> = orders
            .iter()
            .map(|(_, report)| report.resident_blocks)
            .collect();
        assert_eq!(residents, BTreeSet::from([1, 2, 3]));
    }

    #[test]
    fn the_environment_overrides_the_seed() {
        match std::env::var(SEED_VARIABLE) {
            Ok(seed) => assert_eq!(order(1).1.seed.to_string(), seed),
            Err(_) => {
                let test = "launches::the_environment_overrides_the_seed";
                let status = std::process::Command::new(std::env::current_exe().unwrap())
                    .args(["--exact", test])
                    .env(SEED_VARIABLE, "12345")
                    .stdout(std::process::Stdio::null())
                    .status();
                assert!(status.unwrap().success());
            }
        }
    }

    #[test]
    fn launches_that_cannot_be() {
        let argument = |launch: Launch| match launch.run("none", || {}).unwrap_err().kind {
            FaultKind::InvalidLaunch { argument, .. } => argument,
            kind => panic!("{kind}"),
        };
        assert_eq!(argument(Launch::new(0, 32)), "grid");
        assert_eq!(argument(Launch::new(1 << 16, 32).grid_y(1 << 16)), "grid");
        assert_eq!(argument(Launch::new(1, 0)), "block_threads");
        assert_eq!(argument(Launch::new(1, 1025)), "block_threads");
        assert_eq!(
            argument(Launch::new(1, 32).resident_blocks(0)),
            "resident_blocks"
        );
        let nested = Launch::new(1, 1).run("outer", || {
            assert_eq!(argument(Launch::new(1, 1)), "thread");
        });
        nested.unwrap();
    }

    #[test]
    fn several_at_a_time() {
        let expected = order(7);
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| order(7))).collect();
            for thread in threads {
                assert_eq!(thread.join().unwrap(), expected);
            }
        });
    }

    #[test]
    fn a_fault_says_all() {
        let launch = Launch::new(1, 33).shared_bytes(4).seed(9);
        let fault = launch.run("both_write", || unsafe {
            shared::dynamic_shared_mem::<u32>().write(0, thread_idx_x());
        });
        let text = fault.unwrap_err().to_string();
        for part in [
            "kernel `both_write`, block 0, thread ",
            "(warp ",
            "data race: write of byte 0 of shared memory; nothing orders it after the write by block 0, thread ",
            "emulator.rs:",
            "CUDA_STD_EMULATOR_SEED=9 ",
        ] {
            assert!(text.contains(part), "{text}");
        }
    }
}
