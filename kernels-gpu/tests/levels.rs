//! Each level of the scan, under the emulator, with a monoid that does not commute: swapped operands give other results.
#![allow(missing_docs, reason = "tests")]

use cuda_std::emulator::{Launch, Memory};
use cuda_std::warp::Shuffle;
use cuda_std::{Global, shared, thread};
use ptxscan_kernels::arrays::{Arrays, Options};
use ptxscan_kernels::block;
use ptxscan_kernels::columns::scan_columns;
use ptxscan_kernels::direction::{Direction, Forward, Order, Reverse};
use ptxscan_kernels::layout::Dense;
use ptxscan_kernels::monoid::{Action, Monoid, Operator, Step};
use ptxscan_kernels::rows::scan_rows;
use ptxscan_kernels::slots::Slots;
use ptxscan_kernels::split_columns::scan_split_columns;
use ptxscan_kernels::split_rows::scan_split_rows;
use ptxscan_kernels::tiling::{
    WARP_THREADS, columns, look_back, rows, sharing, split_columns, split_rows,
};
use ptxscan_kernels::warp;

/// An element of the bicyclic monoid: takes `pops` from a stack's height, as far as there are so many, and adds `pushes`.
///
/// With `SERIAL` no aggregate passes for finite, so that every tile is taken in serial order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Bicyclic<const SERIAL: bool> {
    pops: u32,
    pushes: u32,
}

impl<const SERIAL: bool> Monoid for Bicyclic<SERIAL> {
    const IDENTITY: Self = Self { pops: 0, pushes: 0 };

    fn then(self, next: Self) -> Self {
        let met = self.pushes.min(next.pops);
        Self {
            pops: self.pops + next.pops - met,
            pushes: self.pushes - met + next.pushes,
        }
    }
}

impl<const SERIAL: bool> Shuffle for Bicyclic<SERIAL> {
    fn map_words(self, exchange: impl Fn(u32) -> u32) -> Self {
        Self {
            pops: exchange(self.pops),
            pushes: exchange(self.pushes),
        }
    }
}

impl<const SERIAL: bool> Action for Bicyclic<SERIAL> {
    type Carry = u32;
    const START: u32 = 0;
    const EMPTY: u32 = 0;

    fn apply(self, height: u32) -> u32 {
        height.saturating_sub(self.pops) + self.pushes
    }

    fn is_finite_carry(_: u32) -> bool {
        !SERIAL
    }
}

impl<const SERIAL: bool> Step for Bicyclic<SERIAL> {
    type Aggregate = Self;
    type Outputs = u32;
    type Layout = Dense;
    const PADDING: Self = Self::IDENTITY;

    fn aggregate(self) -> Self {
        self
    }

    fn after(self, height: u32) -> u32 {
        self.apply(height)
    }

    fn outputs(self, _: u32, result: u32) -> u32 {
        result
    }

    fn as_first(self) -> Self {
        Self { pops: 0, ..self }
    }
}

impl<const SERIAL: bool> Operator<u32, 2> for Bicyclic<SERIAL> {
    const PADDING_ELEMENTS: [u32; 2] = [0; 2];

    fn gather<const N: usize>(elements: impl Fn(usize) -> [u32; N]) -> [Self; N] {
        let (pops, pushes) = (elements(0), elements(1));
        std::array::from_fn(|i| Self {
            pops: pops[i],
            pushes: pushes[i],
        })
    }

    fn emit<const N: usize>(heights: [u32; N]) -> [[u32; N]; 1] {
        [heights]
    }
}

type Plain = Bicyclic<false>;

/// Elements of a sequence without period.
fn some(count: usize) -> Vec<Plain> {
    let mut state = 1_u32;
    let mut random = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state >> 29
    };
    (0..count)
        .map(|_| Plain {
            pops: random(),
            pushes: random(),
        })
        .collect()
}

fn compose(elements: &[Plain]) -> Plain {
    elements
        .iter()
        .fold(Plain::IDENTITY, |all, &next| all.then(next))
}

const SEEDS: std::ops::Range<u64> = 0..20;

fn parts(elements: &[Plain]) -> [Vec<u32>; 2] {
    [
        elements.iter().map(|element| element.pops).collect(),
        elements.iter().map(|element| element.pushes).collect(),
    ]
}

/// # Safety
/// `index` lies in both arrays, which are written.
unsafe fn read(arrays: [Global<u32>; 2], index: usize) -> Plain {
    // SAFETY: says the caller.
    let [pops, pushes] = arrays.map(|array| unsafe { array.read(index) });
    Plain { pops, pushes }
}

/// # Safety
/// `index` lies in both arrays, and no other thread accesses it.
unsafe fn write(arrays: [Global<u32>; 2], index: usize, value: Plain) {
    // SAFETY: says the caller.
    unsafe {
        arrays[0].write(index, value.pops);
        arrays[1].write(index, value.pushes);
    }
}

#[test]
fn bicyclic_is_a_monoid_that_acts_and_does_not_commute() {
    let elements = some(12);
    for &f in &elements {
        assert_eq!(f.then(Plain::IDENTITY), f);
        assert_eq!(Plain::IDENTITY.then(f), f);
        for &g in &elements {
            for height in 0..20 {
                assert_eq!(f.then(g).apply(height), g.apply(f.apply(height)));
            }
            for &h in &elements {
                assert_eq!(f.then(g).then(h), f.then(g.then(h)));
            }
        }
    }
    assert_ne!(elements[0].then(elements[1]), elements[1].then(elements[0]));
}

#[test]
fn warp_scan() {
    let elements = some(WARP_THREADS);
    for seed in SEEDS {
        let memory = Memory::new();
        let input = parts(&elements).map(|part| memory.copy_of(&part).view());
        let output = [(); 6].map(|()| memory.uninit::<u32>(WARP_THREADS));
        let [inclusive, below, total] = [0, 2, 4].map(|k| [output[k].view(), output[k + 1].view()]);
        let launch = Launch::new(1, WARP_THREADS as u32).seed(seed);
        // SAFETY: the arrays have an element for each lane, and all lanes of the one warp are here.
        let thread = || unsafe {
            let lane = thread::thread_idx_x();
            let scanned = warp::inclusive_scan(lane, read(input, lane as usize));
            write(inclusive, lane as usize, scanned);
            write(below, lane as usize, warp::below(lane, scanned));
            write(total, lane as usize, warp::total(scanned));
        };
        launch
            .run("warp_scan", thread)
            .unwrap_or_else(|fault| panic!("{fault}"));
        let output = output.map(|part| part.to_vec().expect("each lane wrote its element"));
        for lane in 0..WARP_THREADS {
            let got = [0, 2, 4].map(|k| Plain {
                pops: output[k][lane],
                pushes: output[k + 1][lane],
            });
            let expected = [
                compose(&elements[..=lane]),
                compose(&elements[..lane]),
                compose(&elements),
            ];
            assert_eq!(got, expected, "lane {lane}, seed {seed}");
        }
    }
}

#[test]
fn block_exchange() {
    const MOST: usize = 32;
    let elements = some(2 * MOST);
    // In the second round of a block, others' turn comes, or that of the warps after the first ones.
    let blocks = [
        (1, false),
        (2, true),
        (7, false),
        (16, true),
        (31, false),
        (MOST, false),
    ];
    for (seed, (warps, goes_on)) in SEEDS.flat_map(|seed| blocks.map(|block| (seed, block))) {
        let threads = warps * WARP_THREADS;
        let memory = Memory::new();
        let input = parts(&elements).map(|part| memory.copy_of(&part).view());
        let output = [(); 4].map(|()| memory.uninit::<u32>(2 * threads));
        let [before, total] = [0, 2].map(|k| [output[k].view(), output[k + 1].view()]);
        // Two rounds, in a set of aggregates each if they do not go on, as a kernel does.
        let launch = Launch::new(1, threads as u32)
            .seed(seed)
            .shared_bytes(2 * 2 * MOST * size_of::<u32>());
        // SAFETY: the arrays have an element for each warp or thread of each round, and so has shared memory; all
        // threads of the block are here.
        let thread = || unsafe {
            let thread = thread::thread_idx_x() as usize;
            for round in 0..2 {
                let (set, first) = if goes_on {
                    (0, round * warps)
                } else {
                    (round, 0)
                };
                let words = shared::dynamic_shared_mem::<u32>().add(set * 2 * MOST);
                let aggregates = Slots::new(words, MOST);
                let exchanged = block::exchange(
                    &aggregates,
                    first as u32,
                    read(input, set * MOST + first + thread / WARP_THREADS),
                );
                write(before, round * threads + thread, exchanged.before);
                write(total, round * threads + thread, exchanged.total);
            }
        };
        launch
            .run("block_exchange", thread)
            .unwrap_or_else(|fault| panic!("{fault}"));
        let output = output.map(|part| part.to_vec().expect("each thread wrote its element"));
        let [pops_before, pushes_before, pops, pushes] = output;
        for i in 0..2 * threads {
            let (round, warp) = (i / threads, i % threads / WARP_THREADS);
            let (elements, warp) = if goes_on {
                (&elements[..(round + 1) * warps], round * warps + warp)
            } else {
                (&elements[round * MOST..][..warps], warp)
            };
            let before = Plain {
                pops: pops_before[i],
                pushes: pushes_before[i],
            };
            let total = Plain {
                pops: pops[i],
                pushes: pushes[i],
            };
            assert_eq!(
                [before, total],
                [compose(&elements[..warp]), compose(elements)],
                "round {round}, warp {warp} of {warps}, seed {seed}"
            );
        }
    }
}

/// The heights after each step of each sequence, from a stack that is empty before.
fn heights(
    direction: Direction,
    elements: &[Plain],
    outer: usize,
    len: usize,
    inner: usize,
) -> Vec<u32> {
    let mut heights = vec![0; elements.len()];
    for (o, i) in (0..outer).flat_map(|o| (0..inner).map(move |i| (o, i))) {
        let mut height = 0;
        for t in 0..len {
            let t = match direction {
                Direction::Forward => t,
                Direction::Reverse => len - 1 - t,
            };
            let at = (o * len + t) * inner + i;
            height = elements[at].apply(height);
            heights[at] = height;
        }
    }
    heights
}

/// Runs a strategy on outer × len × inner elements, with an initial and a final height of each sequence.
fn scan<D: Order, const SERIAL: bool>(outer: usize, len: usize, inner: usize, split: bool) {
    const INPUTS: usize = 2;
    const CARRY: usize = size_of::<u32>();
    const SUBTILES: usize = rows::subtiles(INPUTS, CARRY);
    const VECTOR: usize = rows::vector(CARRY);
    const CHANNELS: usize = columns::lane_channels(CARRY);
    const SPLIT_CHANNELS: usize = split_columns::lane_channels(INPUTS, CARRY);
    const AGGREGATE: usize = size_of::<Plain>();
    let elements = some(outer * len * inner);
    let expected = heights(D::DIRECTION, &elements, outer, len, inner);
    // Blocks that split scans have, whatever there is to do.
    const BLOCKS: usize = 3;
    let tile = rows::tile(INPUTS, CARRY, rows::MAX_WARPS);
    let launch_of = |parts: usize| match (inner == 1, split) {
        (true, false) => {
            let warps = match rows::warps(INPUTS, CARRY, len) {
                rows::MAX_WARPS => rows::MAX_WARPS / parts,
                fewer => fewer,
            };
            (
                outer,
                warps * WARP_THREADS,
                rows::shared_bytes(INPUTS, AGGREGATE, CARRY, CARRY, warps),
                0,
            )
        }
        (true, true) => (
            BLOCKS,
            split_rows::THREADS,
            split_rows::shared_bytes(INPUTS, AGGREGATE, CARRY, CARRY),
            look_back::words(outer, len.div_ceil(tile), AGGREGATE),
        ),
        (false, false) => (
            columns::strips(outer, inner, CARRY),
            columns::THREADS,
            columns::shared_bytes(INPUTS, AGGREGATE, CARRY, CARRY, columns::MAX_STAGES),
            0,
        ),
        (false, true) => (
            BLOCKS,
            split_columns::THREADS,
            split_columns::shared_bytes(INPUTS, AGGREGATE, CARRY, CARRY),
            sharing::words(
                split_columns::strips(outer, inner, INPUTS, CARRY),
                split_columns::channels(INPUTS, CARRY),
                len.div_ceil(split_columns::GROUP_STEPS),
                AGGREGATE + CARRY,
            ),
        ),
    };
    let context = format!(
        "{:?}, {outer} × {len} × {inner}, serial: {SERIAL}, split: {split}",
        D::DIRECTION
    );
    // A block of rows has a whole tile, or a part of one.
    for (seed, parts_of_tile) in SEEDS.zip([1, 2, 16]) {
        let (blocks, threads, shared, scratch) = launch_of(parts_of_tile);
        let memory = Memory::new();
        let inputs = parts(&elements).map(|part| memory.copy_of(&part).view());
        let output = memory.uninit::<u32>(elements.len());
        let initial = memory.copy_of(&vec![0_u32; outer * inner]);
        let last = memory.uninit::<u32>(outer * inner);
        let scratch = memory.copy_of(&vec![0_u64; scratch]);
        let launch = Launch::new(blocks as u32, threads as u32)
            .seed(seed)
            .resident_blocks(BLOCKS as u32)
            .shared_bytes(shared);
        let [outer, len, inner] = [outer, len, inner].map(|extent| extent as u64);
        let mask = memory.uninit::<u8>(0).view();
        let boundaries = memory.uninit::<u64>(0).view();
        let options = Options::INITIAL.and(Options::FINAL).0;
        // SAFETY: the arrays have as many elements as the extents say, and the launch is the strategy's.
        let thread = || unsafe {
            let arrays = Arrays::<Bicyclic<SERIAL>, u32, INPUTS> {
                inputs,
                outputs: [output.view()],
                initial: initial.view(),
                d_final: initial.view(),
                last: last.view(),
                mask,
                boundaries,
                scratch: scratch.view(),
            };
            match (inner == 1, split) {
                (true, false) => {
                    scan_rows::<_, _, D, INPUTS, 1, SUBTILES, VECTOR>(
                        &arrays,
                        outer,
                        len,
                        0,
                        options,
                        [Dense; INPUTS],
                    );
                }
                (true, true) => {
                    scan_split_rows::<_, _, D, INPUTS, SUBTILES, VECTOR>(
                        &arrays, outer, len, options,
                    );
                }
                (false, false) => {
                    let stages = columns::MAX_STAGES as u64;
                    scan_columns::<_, _, D, INPUTS, 1, VECTOR, CHANNELS>(
                        &arrays,
                        outer,
                        len,
                        inner,
                        stages,
                        0,
                        options,
                        [Dense; INPUTS],
                    );
                }
                (false, true) => {
                    scan_split_columns::<_, _, D, INPUTS, 1, VECTOR, SPLIT_CHANNELS>(
                        &arrays, outer, len, inner, options,
                    );
                }
            }
        };
        launch
            .run("scan", thread)
            .unwrap_or_else(|fault| panic!("{context}, seed {seed}: {fault}"));
        let got = output.to_vec().expect("all of the output is written");
        let wrong = got
            .iter()
            .zip(&expected)
            .position(|(got, expected)| got != expected);
        assert_eq!(wrong, None, "{context}, seed {seed}");
        let last = last.to_vec().expect("all final heights are written");
        let len = len as usize;
        for (sequence, height) in last.into_iter().enumerate() {
            let (o, i) = (sequence / inner as usize, sequence % inner as usize);
            let t = match D::DIRECTION {
                Direction::Forward => len - 1,
                Direction::Reverse => 0,
            };
            let at = (o * len + t) * inner as usize + i;
            assert_eq!(height, expected[at], "{context}, sequence {sequence}");
        }
    }
}

#[test]
fn strategies() {
    let tile = rows::tile(2, size_of::<u32>(), rows::MAX_WARPS);
    let warp = rows::warp_items(2, size_of::<u32>());
    let of_rows = [
        (3, 5, 1),
        (2, warp + 3, 1),
        (1, tile, 1),
        (1, 2 * tile + warp + 7, 1),
    ];
    let of_columns = [
        (2, 7, 3),
        (1, columns::TILE, columns::channels(size_of::<u32>())),
        (
            2,
            4 * columns::TILE + 5,
            columns::channels(size_of::<u32>()) + 1,
        ),
    ];
    for (outer, len, inner) in of_rows.into_iter().chain(of_columns) {
        for split in [false, true] {
            scan::<Forward, false>(outer, len, inner, split);
            scan::<Reverse, false>(outer, len, inner, split);
        }
        scan::<Forward, true>(outer, len, inner, false);
        scan::<Reverse, true>(outer, len, inner, false);
    }
}

/// Sequences of several groups of tiles, of which no block has all.
#[test]
fn groups() {
    let tile = rows::tile(2, size_of::<u32>(), rows::MAX_WARPS);
    scan::<Forward, false>(2, 35 * tile + 9, 1, true);
    scan::<Reverse, false>(1, 17 * tile + 9, 1, false);
    scan::<Forward, false>(1, 35 * columns::TILE + 9, 5, true);
    scan::<Reverse, false>(1, 20 * columns::TILE + 9, 66, true);
}
