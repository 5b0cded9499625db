//! Every tuning constant, and the geometry that follows from it: shared by the kernels and by the host that launches
//! them.
//!
//! A *tile* is what a block holds at once. How a sequence is cut into tiles, and a tile into what a warp and a lane
//! hold, decides the order of the additions, and so the last bits of results.

/// Lanes of a warp.
pub const WARP_THREADS: usize = 32;
/// The most registers of each thread of so many warps on a multiprocessor. It has four parts of 16384 registers each, to which
/// warps are dealt in turn; a warp gets them by the 256.
const fn registers(warps: usize) -> u32 {
    (16384 / warps.div_ceil(4) / 256 * 256 / WARP_THREADS) as u32
}

/// Bytes of the widest access.
pub const ACCESS_BYTES: usize = 16;

/// The tiling of [`scan_rows`](crate::rows::scan_rows): sequences whose steps are neighbours in memory.
///
/// A lane holds some [`subtiles`](rows::subtiles) vectors of some steps.
pub mod rows {
    use super::{ACCESS_BYTES, WARP_THREADS};

    /// Steps that a lane loads and stores in one access of 16 bytes, for elements of so many bytes: those of a vector.
    #[must_use]
    pub const fn vector(element_bytes: usize) -> usize {
        ACCESS_BYTES / element_bytes
    }
    /// Vectors that a lane holds, for an operator with so many inputs: as many as registers allow with the next tile on its way.
    /// The vectors of a warp's 32 lanes are neighbours, and make a subtile.
    #[must_use]
    pub const fn subtiles(inputs: usize, element_bytes: usize) -> usize {
        let of_words = if inputs == 1 { 4 } else { 2 };
        if element_bytes == size_of::<u32>() {
            of_words
        } else {
            of_words / 2
        }
    }
    /// Tiles of a group: see [`chain`](crate::chain).
    pub const GROUP: usize = 16;
    /// Warps of a tile or a block, at most; the scan over them is a warp's, so that there can be no more than 32.
    pub const MAX_WARPS: usize = 16;
    const _: () = assert!(MAX_WARPS <= WARP_THREADS);

    /// Blocks of so many warps among which a launch should share out a multiprocessor's shared memory, or `None`
    /// where it should ask for what it needs alone. What is asked for is no longer L1 cache: one input is read faster
    /// with hardly any, two are not.
    #[must_use]
    pub const fn blocks_per_multiprocessor(inputs: usize, warps: usize) -> Option<usize> {
        if inputs == 1 {
            Some(2 * MAX_WARPS / warps)
        } else {
            None
        }
    }

    /// The most registers that a thread may have: so many that as many warps fit as there are in two of the largest blocks, in one and a
    /// quarter with a mask, or in one with three inputs.
    #[must_use]
    pub const fn registers(inputs: usize, is_masked: bool) -> u32 {
        super::registers(if inputs > 2 {
            MAX_WARPS
        } else if is_masked {
            MAX_WARPS + MAX_WARPS / 4
        } else {
            2 * MAX_WARPS
        })
    }

    /// Steps that a warp holds.
    #[must_use]
    pub const fn warp_items(inputs: usize, element_bytes: usize) -> usize {
        subtiles(inputs, element_bytes) * vector(element_bytes) * WARP_THREADS
    }

    /// Warps of a tile of sequences of `len` steps.
    #[must_use]
    pub const fn warps(inputs: usize, element_bytes: usize, len: usize) -> usize {
        let warps = len.div_ceil(warp_items(inputs, element_bytes));
        if warps > MAX_WARPS {
            MAX_WARPS
        } else if warps == 0 {
            1
        } else {
            warps
        }
    }

    /// Warps of a block for sequences of `len` steps: as many as a tile has, or fewer, which scan it part by part. With smaller blocks,
    /// fewer warps wait for each other, and while a block ends others read; larger ones do less that is not memory's.
    #[must_use]
    pub const fn block_warps(
        inputs: usize,
        element_bytes: usize,
        is_masked: bool,
        len: usize,
    ) -> usize {
        let is_one_tile = len <= tile(inputs, element_bytes, MAX_WARPS);
        let most = match (inputs, element_bytes) {
            (1, _) if is_masked => MAX_WARPS / 2,
            (2, _) if is_masked => MAX_WARPS / 4,
            (1, 2) => MAX_WARPS / 2,
            (2, 4) | (1, _) if is_one_tile => MAX_WARPS / 2,
            (2, 4) | (1, _) => MAX_WARPS,
            (2, _) => MAX_WARPS / 4,
            _ => MAX_WARPS,
        };
        min(most, warps(inputs, element_bytes, len))
    }

    /// Parts of a sequence that a block scans one after another, where others are far shorter: more of them take long by themselves.
    const MOST_PARTS: usize = 64;

    /// Warps of a block for packed sequences of `mean` steps, of which the longest has `longest`: few, of which most have something to do.
    #[must_use]
    pub const fn packed_block_warps(
        inputs: usize,
        element_bytes: usize,
        is_masked: bool,
        mean: usize,
        longest: usize,
    ) -> usize {
        let held = warp_items(inputs, element_bytes);
        // A power of two: as many parts as a tile has of them fill it.
        let warps = match (mean / (2 * held) + longest / (MOST_PARTS * held)).checked_ilog2() {
            Some(log2) => 1 << log2,
            None => 1,
        };
        min(
            warps,
            block_warps(inputs, element_bytes, is_masked, longest),
        )
    }

    const fn min(a: usize, b: usize) -> usize {
        if a < b { a } else { b }
    }

    /// Steps in a tile with so many warps.
    #[must_use]
    pub const fn tile(inputs: usize, element_bytes: usize, warps: usize) -> usize {
        warps * warp_items(inputs, element_bytes)
    }

    /// Bytes of shared memory before the buffers, given those of an aggregate and of a carry: for each warp of a tile two aggregates, a
    /// carry, and for each warp a word; as many as keep the buffers aligned.
    #[must_use]
    pub const fn bytes_before_buffers(aggregate_bytes: usize, carry_bytes: usize) -> usize {
        let values = 2 * MAX_WARPS * aggregate_bytes + carry_bytes;
        (values + MAX_WARPS * size_of::<u32>()).next_multiple_of(ACCESS_BYTES)
    }

    /// Bytes of shared memory of a block of so many warps, given those of an aggregate, of a carry and of an element. Each warp has a
    /// buffer for the elements of an input that it holds.
    #[must_use]
    pub const fn shared_bytes(
        inputs: usize,
        aggregate_bytes: usize,
        carry_bytes: usize,
        element_bytes: usize,
        warps: usize,
    ) -> usize {
        bytes_before_buffers(aggregate_bytes, carry_bytes)
            + tile(inputs, element_bytes, warps) * element_bytes
    }
}

/// The tiling of [`scan_short_rows`](crate::short_rows::scan_short_rows): a warp scans some rows at once, in subtiles as those of
/// [`rows`]. A subtile has one row or more.
pub mod short_rows {
    use super::{ACCESS_BYTES, WARP_THREADS, rows};

    /// Subtiles that a warp holds, for an operator with so many inputs of elements of so many bytes.
    #[must_use]
    pub const fn subtiles(inputs: usize, element_bytes: usize) -> usize {
        if inputs > 1 && element_bytes < size_of::<u32>() {
            2
        } else {
            4
        }
    }
    /// The most steps of a row.
    #[must_use]
    pub const fn most_steps(element_bytes: usize) -> usize {
        WARP_THREADS * rows::vector(element_bytes)
    }
    /// Lanes for a row of so many steps: a power of two.
    #[must_use]
    pub const fn width(element_bytes: usize, len: usize) -> usize {
        len.div_ceil(rows::vector(element_bytes))
            .next_power_of_two()
    }
    /// Warps of a block. They have nothing to do with each other.
    pub const WARPS: usize = 4;
    /// Threads of a block.
    pub const THREADS: usize = WARPS * WARP_THREADS;
    /// The most registers that a thread may have, for an operator with so many inputs: so many that enough warps fit to keep the memory busy.
    #[must_use]
    pub const fn registers(inputs: usize) -> u32 {
        super::registers(if inputs == 1 { 24 } else { 20 })
    }

    /// Blocks for so many rows of `len` steps.
    #[must_use]
    pub const fn blocks(inputs: usize, element_bytes: usize, rows: usize, len: usize) -> usize {
        let of_subtile = WARP_THREADS / width(element_bytes, len);
        rows.div_ceil(WARPS * subtiles(inputs, element_bytes) * of_subtile)
    }

    /// Bytes of shared memory of a block: for each warp a place for the elements of an input that it holds.
    #[must_use]
    pub const fn shared_bytes(inputs: usize, element_bytes: usize) -> usize {
        THREADS * subtiles(inputs, element_bytes) * ACCESS_BYTES
    }
}

/// The tiling of [`scan_columns`](crate::columns::scan_columns): sequences whose steps lie `inner` elements apart, while
/// neighbouring sequences (*channels*) are neighbours in memory.
///
/// A block scans a strip of some [`channels`](columns::channels), one or two a lane: a row of a strip is 256 bytes of f32, since the
/// memory serves shorter pieces less well. A tile is
/// [`TILE`](columns::TILE) steps of the strip; a thread owns [`STEPS`](columns::STEPS) consecutive ones of a channel.
pub mod columns {
    use super::{ACCESS_BYTES, WARP_THREADS};
    use core::ops::RangeInclusive;

    /// Neighbouring channels that a lane owns, for elements of so many bytes.
    #[must_use]
    pub const fn lane_channels(element_bytes: usize) -> usize {
        if element_bytes > size_of::<u32>() {
            1
        } else {
            2
        }
    }
    /// Channels of a strip.
    #[must_use]
    pub const fn channels(element_bytes: usize) -> usize {
        WARP_THREADS * lane_channels(element_bytes)
    }
    /// Warps of a block.
    pub const WARPS: usize = 8;
    /// Consecutive steps that a thread owns.
    pub const STEPS: usize = 8;
    /// Steps in a tile.
    pub const TILE: usize = WARPS * STEPS;
    /// Tiles of a group: see [`chain`](crate::chain).
    pub const GROUP: usize = 8;
    /// Tiles in shared memory, at most.
    pub const MAX_STAGES: usize = 3;

    /// Whether, with so many inputs, a tile gives its place to another as soon as its steps are in registers. Else one is on its way
    /// less than there are places, which costs a barrier of the warp less.
    #[must_use]
    pub const fn gives_place_early(inputs: usize) -> bool {
        inputs > 2
    }

    /// The fewest and the most tiles in shared memory.
    #[must_use]
    pub const fn stages(inputs: usize) -> RangeInclusive<usize> {
        if gives_place_early(inputs) {
            1..=MAX_STAGES - 1
        } else {
            2..=MAX_STAGES
        }
    }

    /// How many tiles in shared memory are fastest, where each block has a multiprocessor alone or where blocks share one, as measured on an
    /// H200. They have to keep the memory busy; reads beyond that queue up, and keep the writes waiting. Tiles of 2-byte elements are half
    /// as large, and take as long to scan.
    #[must_use]
    pub const fn best_stages(inputs: usize, element_bytes: usize, is_alone: bool) -> usize {
        let is_large = element_bytes >= size_of::<f32>();
        match (gives_place_early(inputs), is_large, is_alone) {
            (true, true, true) | (true, false, false) => 1,
            (true, _, _) | (false, true, false) => 2,
            (false, _, _) => MAX_STAGES,
        }
    }

    /// Threads of a block.
    pub const THREADS: usize = WARPS * WARP_THREADS;

    /// Blocks that a multiprocessor can run at once.
    pub const BLOCKS_PER_MULTIPROCESSOR: usize = 2;

    /// The most registers that a thread may have, so that as many blocks fit: a multiprocessor has 65536.
    pub const REGISTERS: u32 = (65536 / (BLOCKS_PER_MULTIPROCESSOR * THREADS)) as u32;

    /// Elements of one input in a stage of so many steps, of strips `width` lanes wide with so many channels each.
    ///
    /// Where lanes side by side have steps of the same channels, there is a row of padding after the steps of each: so the banks of
    /// shared memory in which their steps lie are different ones.
    #[must_use]
    pub const fn stage_of(steps: usize, width: usize, lane_channels: usize) -> usize {
        let padding = if width == WARP_THREADS {
            0
        } else {
            steps / (TILE * width / WARP_THREADS)
        };
        (steps + padding) * width * lane_channels
    }

    /// Bytes of shared memory before the stages, given those of an aggregate, of a carry and of an element: two aggregates of each
    /// warp and channel, a carry of each channel, and a word for each warp; as many as keep the stages aligned.
    #[must_use]
    pub const fn bytes_before_stages(
        aggregate_bytes: usize,
        carry_bytes: usize,
        element_bytes: usize,
    ) -> usize {
        let values = (2 * aggregate_bytes * WARPS + carry_bytes) * channels(element_bytes);
        (values + WARPS * size_of::<u32>()).next_multiple_of(ACCESS_BYTES)
    }

    /// Strips of a tensor.
    #[must_use]
    pub const fn strips(outer: usize, inner: usize, element_bytes: usize) -> usize {
        outer * inner.div_ceil(channels(element_bytes))
    }

    /// Bytes of shared memory in all, given those of an aggregate, of a carry and of an element.
    #[must_use]
    pub const fn shared_bytes(
        inputs: usize,
        aggregate_bytes: usize,
        carry_bytes: usize,
        element_bytes: usize,
        stages: usize,
    ) -> usize {
        bytes_before_stages(aggregate_bytes, carry_bytes, element_bytes)
            + stages
                * inputs
                * stage_of(TILE, WARP_THREADS, lane_channels(element_bytes))
                * element_bytes
    }
}

/// The tiling of [`scan_lanes`](crate::lanes::scan_lanes): a lane takes its channels through all steps, in runs and tiles as those of
/// [`columns`].
pub mod lanes {
    use super::{ACCESS_BYTES, columns};

    /// Channels of a lane, for elements of so many bytes: those of the widest access, or as many as there are registers for.
    #[must_use]
    pub const fn channels(element_bytes: usize) -> usize {
        if element_bytes < size_of::<u32>() {
            ACCESS_BYTES / size_of::<u32>()
        } else {
            ACCESS_BYTES / element_bytes
        }
    }
    /// Steps that a lane loads at once.
    pub const RUN: usize = columns::STEPS / 2;
    const _: () = assert!(columns::STEPS.is_multiple_of(RUN));
    /// Threads of a block. Its warps have nothing to do with each other.
    pub const THREADS: usize = 128;
    /// The most registers that a thread may have, for an operator with so many inputs: so many that enough warps fit to keep the memory busy.
    #[must_use]
    pub const fn registers(inputs: usize) -> u32 {
        super::registers(if inputs == 1 { 24 } else { 20 })
    }
    /// The most steps of sequences for which this is the fastest way, if there are enough of them.
    pub const MOST_STEPS: usize = columns::TILE;
    /// Sequences of at most so many steps leave nothing to share between lanes.
    pub const FEW_STEPS: usize = columns::STEPS;

    /// Blocks for so many sequences.
    #[must_use]
    pub const fn blocks(sequences: usize, element_bytes: usize) -> usize {
        sequences.div_ceil(THREADS * channels(element_bytes))
    }
}

/// The tiling of [`scan_narrow`](crate::narrow::scan_narrow): columns of so few channels that a block's lanes have room for those of several
/// tiles of [`columns`]. It takes them in one turn: tiles of a sequence one after another, or those of several sequences. Either way
/// their steps are one range of memory.
pub mod narrow {
    use super::columns::{self, TILE, WARPS};
    use super::rows::vector;
    use super::{ACCESS_BYTES, WARP_THREADS};

    /// The most channels.
    pub const MOST_CHANNELS: usize = WARP_THREADS - 1;
    /// Ranges in shared memory, at most.
    pub const MAX_STAGES: usize = 3;
    /// How many ranges in shared memory keep the memory busy, with two blocks on a multiprocessor.
    #[must_use]
    pub const fn best_stages(inputs: usize, element_bytes: usize) -> usize {
        if inputs > 1 && element_bytes >= size_of::<f32>() {
            MAX_STAGES - 1
        } else {
            MAX_STAGES
        }
    }

    /// What a turn takes.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Turns {
        /// Sequences.
        pub sequences: usize,
        /// Steps of each: all, or those of whole tiles.
        pub steps: usize,
        /// Tiles of each.
        pub tiles: usize,
        /// How many turns that makes: 1, unless a turn has one sequence.
        pub turns: usize,
    }

    const fn at_least_1(number: usize) -> usize {
        if number == 0 { 1 } else { number }
    }

    /// The turns of sequences of `len` steps, side by side in so many channels.
    #[must_use]
    pub const fn turns(len: usize, inner: usize, element_bytes: usize) -> Turns {
        let most = at_least_1(columns::channels(element_bytes) / at_least_1(inner));
        let tiles = at_least_1(len.div_ceil(TILE));
        if tiles <= most {
            Turns {
                sequences: most / tiles,
                steps: len,
                tiles,
                turns: 1,
            }
        } else {
            Turns {
                sequences: 1,
                steps: most * TILE,
                tiles: most,
                turns: tiles.div_ceil(most),
            }
        }
    }

    /// How often a tensor has the sequences of a turn.
    #[must_use]
    pub const fn units(outer: usize, turns: &Turns) -> usize {
        outer.div_ceil(at_least_1(turns.sequences))
    }

    /// Turns that a block should have, if there are as many.
    const FEW_TURNS: usize = 8;

    /// Units of a block, one after another: while it scans one, the next ones are on their way. There are to be some rounds of blocks, of
    /// which the device has `at_once`.
    #[must_use]
    pub const fn units_of_block(units: usize, turns: &Turns, at_once: usize) -> usize {
        const ROUNDS: usize = 4;
        let most = at_least_1(FEW_TURNS / at_least_1(turns.turns));
        let shared = at_least_1(units / at_least_1(ROUNDS * at_once));
        if shared < most { shared } else { most }
    }

    /// How many vectors of padding a stage has before an element of the range: so lanes whose steps lie a power of two apart access
    /// different banks.
    #[inline(always)]
    #[must_use]
    pub const fn paddings(element: u32) -> u32 {
        element / 128
    }

    /// Elements of an input in a stage: those of a turn, and as many more as let the first be anywhere in a vector.
    #[must_use]
    pub const fn stage(element_bytes: usize) -> usize {
        let most = TILE * columns::channels(element_bytes) + vector(element_bytes);
        most + paddings(most as u32) as usize * vector(element_bytes)
    }

    /// Aggregates in the line of a warp: of each virtual channel, and of each channel before a turn.
    #[must_use]
    pub const fn line(element_bytes: usize) -> usize {
        columns::channels(element_bytes) + WARP_THREADS
    }

    /// Bytes of shared memory before the stages: what [`columns`] has there, and the lines.
    #[must_use]
    pub const fn bytes_before_stages(
        aggregate_bytes: usize,
        carry_bytes: usize,
        element_bytes: usize,
    ) -> usize {
        let lines = WARPS * line(element_bytes) * aggregate_bytes;
        columns::bytes_before_stages(aggregate_bytes, carry_bytes, element_bytes)
            + lines.next_multiple_of(ACCESS_BYTES)
    }

    /// Bytes of shared memory in all.
    #[must_use]
    pub const fn shared_bytes(
        inputs: usize,
        aggregate_bytes: usize,
        carry_bytes: usize,
        element_bytes: usize,
        stages: usize,
    ) -> usize {
        bytes_before_stages(aggregate_bytes, carry_bytes, element_bytes)
            + stages * inputs * stage(element_bytes) * element_bytes
    }
}

/// What split scans have in common: see [`sharing`](crate::sharing).
pub mod sharing {
    /// Words of shared memory for a ticket's tile.
    pub const PLACE_WORDS: usize = 4;

    /// Strips whose tiles are handed out in turn, at least, if there are as many.
    pub const STRIPS_TOGETHER: u32 = 64;

    /// The word of the scratch memory that counts the tickets taken.
    pub const TICKET: usize = 0;
    /// The word that counts the blocks that are done.
    pub const FINISHED: usize = 16;
    /// The word that counts the runs.
    pub const RUNS: usize = 32;
    /// The first of the flags, a word for each row or strip.
    pub const FLAGS: usize = 48;

    /// Words of scratch memory for so many rows or strips of so many channels, of so many tiles each, given the bytes that are
    /// published for a tile and channel.
    #[must_use]
    pub const fn words(units: usize, channels: usize, tiles: usize, bytes: usize) -> usize {
        FLAGS + units + units * channels * tiles * (bytes / size_of::<u32>())
    }
}

/// What a warp of [`look_back`](crate::look_back) asks for.
pub mod look_back {
    /// Aggregates that a lane asks for at once.
    pub const SPAN: usize = 5;
    /// Aggregates that a warp asks for at once.
    pub const WINDOW: usize = SPAN * super::WARP_THREADS;

    /// Words of scratch memory for so many rows of so many tiles each.
    #[must_use]
    pub const fn words(rows: usize, tiles: usize, aggregate_bytes: usize) -> usize {
        super::sharing::words(rows, 1, tiles, aggregate_bytes)
    }
}

/// The tiling of [`scan_split_rows`](crate::split_rows::scan_split_rows): tiles as those of [`rows`], with two warps more, which publish and
/// look back.
pub mod split_rows {
    use super::sharing::PLACE_WORDS;
    use super::{ACCESS_BYTES, WARP_THREADS, look_back, registers, rows};

    /// Blocks that a multiprocessor can run at once.
    pub const BLOCKS_PER_MULTIPROCESSOR: usize = 1;

    /// Tiles that a block composes between publishing the aggregate of one and needing what enters it: time for the aggregates of the
    /// tiles before to get there, while the memory is busy.
    pub const LAG: u32 = 3;
    /// Tiles on their way, besides the one that is waited for. More are not faster, and make others wait.
    pub const AHEAD: u32 = 1;
    /// Tiles in shared memory: those that lag, one that is composed, and those ahead.
    pub const STAGES: u32 = LAG + 1 + AHEAD;
    /// Turns in which what is kept of a tile is needed, at most; a power of two, so that a turn's place is found with a mask.
    pub const RING: u32 = (LAG + 3).next_power_of_two();
    /// Tickets that a block holds at once: one for each stage, one of a tile that is stored, and two of those that come next.
    pub const PLACES: u32 = (STAGES + 3).next_power_of_two();

    /// Threads of a block.
    pub const THREADS: usize = (rows::MAX_WARPS + 2) * WARP_THREADS;
    /// The most registers that a thread may have, so that as many blocks fit.
    pub const REGISTERS: u32 = registers(BLOCKS_PER_MULTIPROCESSOR * THREADS / WARP_THREADS);

    /// Bytes of shared memory before the stages: the tickets, the aggregates of other tiles, those of the subtiles and of the warps
    /// of the tiles that lag and of some more, and two carries for each warp.
    #[must_use]
    pub const fn bytes_before_stages(
        inputs: usize,
        aggregate_bytes: usize,
        carry_bytes: usize,
        element_bytes: usize,
    ) -> usize {
        let subtiles = rows::MAX_WARPS * rows::subtiles(inputs, element_bytes);
        let aggregates = 2 * look_back::WINDOW + RING as usize * (subtiles + rows::MAX_WARPS + 1);
        let values = aggregates * aggregate_bytes + 2 * rows::MAX_WARPS * carry_bytes;
        let places = PLACES as usize * PLACE_WORDS * size_of::<u32>();
        (places + values).next_multiple_of(ACCESS_BYTES)
    }

    /// Bytes of shared memory in all, given those of an aggregate, of a carry and of an element.
    #[must_use]
    pub const fn shared_bytes(
        inputs: usize,
        aggregate_bytes: usize,
        carry_bytes: usize,
        element_bytes: usize,
    ) -> usize {
        let stage = inputs * rows::tile(inputs, element_bytes, rows::MAX_WARPS) * element_bytes;
        bytes_before_stages(inputs, aggregate_bytes, carry_bytes, element_bytes)
            + STAGES as usize * stage
    }
}

/// The tiling of [`scan_split_columns`](crate::split_columns::scan_split_columns): a block holds a [group](crate::chain) of tiles as those of
/// [`columns`], a warp one of them. So that a group is not too large, a strip is narrow: two lanes of a warp have the same channels.
pub mod split_columns {
    use super::sharing::PLACE_WORDS;
    use super::{ACCESS_BYTES, WARP_THREADS, columns, registers};

    /// Lanes that have different channels.
    pub const WIDTH: usize = 16;
    /// Lanes that have the same channels, and consecutive steps of the tile.
    pub const SIDES: usize = WARP_THREADS / WIDTH;
    /// Neighbouring channels that a lane owns, for so many inputs of elements of so many bytes.
    #[must_use]
    pub const fn lane_channels(inputs: usize, element_bytes: usize) -> usize {
        if element_bytes < size_of::<f32>() || inputs * element_bytes == size_of::<f32>() {
            2
        } else {
            1
        }
    }
    /// Channels of a strip.
    #[must_use]
    pub const fn channels(inputs: usize, element_bytes: usize) -> usize {
        WIDTH * lane_channels(inputs, element_bytes)
    }
    /// Strips of a tensor.
    #[must_use]
    pub const fn strips(outer: usize, inner: usize, inputs: usize, element_bytes: usize) -> usize {
        outer * inner.div_ceil(channels(inputs, element_bytes))
    }
    /// Steps of a group.
    pub const GROUP_STEPS: usize = columns::GROUP * columns::TILE;
    /// Runs of [`STEPS`](columns::STEPS) steps that a lane has of its tile, one after another.
    pub const PARTS: usize = columns::WARPS / SIDES;
    /// Parts whose steps a lane keeps in registers while it looks back, for so many inputs of elements of so many bytes, so that their
    /// place in shared memory is free for those of the next group. Two of f32 are as many as there are registers for; for one input it
    /// does not pay.
    #[must_use]
    pub const fn held(inputs: usize, element_bytes: usize) -> usize {
        if inputs == 2 && element_bytes == size_of::<f32>() {
            2
        } else {
            0
        }
    }
    /// Groups that a warp asks for at once.
    pub const ASKED: usize = 4;
    /// Groups that a block looks back, at most.
    pub const WINDOW: usize = ASKED * columns::GROUP;
    /// Tickets that a block holds at once.
    pub const PLACES: u32 = 2;
    /// Threads of a block: a warp for each tile.
    pub const THREADS: usize = columns::GROUP * WARP_THREADS;
    /// Blocks that a multiprocessor can run at once, at most.
    pub const BLOCKS_PER_MULTIPROCESSOR: usize = 2;
    /// The most registers that a thread may have, so that as many blocks fit.
    pub const REGISTERS: u32 = registers(BLOCKS_PER_MULTIPROCESSOR * columns::GROUP);

    /// Bytes of shared memory before the stage: the tickets; a word for each warp; for each channel an aggregate of each tile, and an
    /// aggregate and a carry of each group that is asked for.
    #[must_use]
    pub const fn bytes_before_stage(
        aggregate_bytes: usize,
        carry_bytes: usize,
        lane_channels: usize,
    ) -> usize {
        let values = (columns::GROUP + WINDOW) * aggregate_bytes + WINDOW * carry_bytes;
        let words = (PLACES as usize * PLACE_WORDS + columns::GROUP) * size_of::<u32>();
        (words + values * WIDTH * lane_channels).next_multiple_of(ACCESS_BYTES)
    }

    /// Bytes of shared memory in all, given those of an aggregate, of a carry and of an element.
    #[must_use]
    pub const fn shared_bytes(
        inputs: usize,
        aggregate_bytes: usize,
        carry_bytes: usize,
        element_bytes: usize,
    ) -> usize {
        let channels = lane_channels(inputs, element_bytes);
        bytes_before_stage(aggregate_bytes, carry_bytes, channels)
            + inputs * columns::stage_of(GROUP_STEPS, WIDTH, channels) * element_bytes
    }
}
