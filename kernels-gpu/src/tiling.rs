//! Every tuning constant, and the geometry that follows from it: shared by the kernels and by the host that launches
//! them.
//!
//! A *tile* is what a block holds at once. How a sequence is cut into tiles, and a tile into what a warp and a lane
//! hold, decides the order of the additions, and so the last bits of results.

/// Lanes of a warp.
pub const WARP_THREADS: usize = 32;

/// The tiling of [`scan_rows`](crate::rows::scan_rows): sequences whose steps are neighbours in memory.
///
/// A lane holds `SUBTILES` vectors of [`VECTOR`](rows::VECTOR) steps; the vectors of a warp's 32 lanes are neighbours,
/// and make a subtile.
pub mod rows {
    use super::WARP_THREADS;

    /// Steps that a lane loads and stores in one access of 16 bytes (of f32).
    pub const VECTOR: usize = 4;
    /// Steps in a subtile.
    pub const SUBTILE: usize = WARP_THREADS * VECTOR;
    /// Subtiles that a warp holds, for an operator with so many inputs: as many as registers allow with the next
    /// tile on its way.
    #[must_use]
    pub const fn subtiles(inputs: usize) -> usize {
        if inputs == 1 { 4 } else { 2 }
    }
    /// Warps of a block, at most; the scan over them is a warp's, so that there can be no more than 32.
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

    /// The most registers that a thread may have, so that as many threads fit: a multiprocessor has 65536.
    pub const REGISTERS: u32 = (65536 / (2 * MAX_WARPS * WARP_THREADS)) as u32;

    /// Steps that a warp holds.
    #[must_use]
    pub const fn warp_items(inputs: usize) -> usize {
        subtiles(inputs) * SUBTILE
    }

    /// Warps of a block for sequences of `len` steps.
    #[must_use]
    pub const fn warps(inputs: usize, len: usize) -> usize {
        let warps = len.div_ceil(warp_items(inputs));
        if warps > MAX_WARPS {
            MAX_WARPS
        } else if warps == 0 {
            1
        } else {
            warps
        }
    }

    /// Bytes of shared memory: for each warp two aggregates of `inputs` elements each, a carry, and for each warp a word.
    #[must_use]
    pub const fn shared_bytes(inputs: usize, element_bytes: usize) -> usize {
        (2 * inputs * MAX_WARPS + 1) * element_bytes + MAX_WARPS * size_of::<u32>()
    }
}

/// The tiling of [`scan_columns`](crate::columns::scan_columns): sequences whose steps lie `inner` elements apart, while
/// neighbouring sequences (*channels*) are neighbours in memory.
///
/// A block scans a strip of [`CHANNELS`](columns::CHANNELS) channels, [`LANE_CHANNELS`](columns::LANE_CHANNELS) a lane:
/// with one, a row of a strip is 128 bytes of f32, and the memory serves such short pieces less well. A tile is
/// [`TILE`](columns::TILE) steps of the strip; a thread owns [`STEPS`](columns::STEPS) consecutive ones of a channel.
pub mod columns {
    use super::WARP_THREADS;

    /// Neighbouring channels that a lane owns.
    pub const LANE_CHANNELS: usize = 2;
    /// Channels of a strip.
    pub const CHANNELS: usize = WARP_THREADS * LANE_CHANNELS;
    /// Warps of a block.
    pub const WARPS: usize = 8;
    /// Consecutive steps that a thread owns.
    pub const STEPS: usize = 8;
    /// Steps in a tile.
    pub const TILE: usize = WARPS * STEPS;
    /// Tiles in shared memory, one that is scanned and the others on their way; fewer where shared memory does not hold
    /// as many, and never fewer than two.
    pub const MAX_STAGES: usize = 3;
    /// Threads of a block.
    pub const THREADS: usize = WARPS * WARP_THREADS;
    /// Elements that a thread copies in one access of 16 bytes (of f32).
    pub const VECTOR: usize = 4;

    /// Blocks that a multiprocessor can run at once.
    pub const BLOCKS_PER_MULTIPROCESSOR: usize = 2;

    /// The most registers that a thread may have, so that as many blocks fit: a multiprocessor has 65536.
    pub const REGISTERS: u32 = (65536 / (BLOCKS_PER_MULTIPROCESSOR * THREADS)) as u32;

    /// Elements of one input in a stage.
    pub const STAGE: usize = TILE * CHANNELS;

    /// Bytes of shared memory before the stages: an aggregate of each warp and channel, a carry of each channel, and a word
    /// for each warp; as many as keep the stages aligned.
    #[must_use]
    pub const fn bytes_before_stages(inputs: usize, element_bytes: usize) -> usize {
        let elements = (inputs * WARPS + 1) * CHANNELS * element_bytes;
        (elements + WARPS * size_of::<u32>()).next_multiple_of(VECTOR * element_bytes)
    }

    const _: () = assert!((STAGE / VECTOR).is_multiple_of(THREADS));

    /// Strips of a tensor.
    #[must_use]
    pub const fn strips(outer: usize, inner: usize) -> usize {
        outer * inner.div_ceil(CHANNELS)
    }

    /// Bytes of shared memory in all.
    #[must_use]
    pub const fn shared_bytes(inputs: usize, element_bytes: usize, stages: usize) -> usize {
        bytes_before_stages(inputs, element_bytes) + stages * inputs * STAGE * element_bytes
    }
}
