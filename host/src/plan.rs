//! Plans: which kernels compute an operation, in which launches. A plan is inert data, made and tested without a GPU.
//!
//! The rules:
//! 1. With no elements there is nothing to do.
//! 2. With one step and nothing that enters or leaves it, the result is the last input: a copy.
//! 3. Where the steps of a sequence are neighbours in memory (`inner` = 1), the sequences are rows, else columns.
//! 4. A block scans a row with as many warps as the row's length can use, or fewer ([`rows::block_warps`], [`rows::packed_block_warps`]
//!    and [`Strategy::Rows`]), or a strip of neighbouring channels with as many tiles in shared memory as are fastest
//!    ([`columns::best_stages`]), or as it can hold ([`Strategy::Columns`]). So are gradients computed.
//! 5. But where columns have few steps, and there are enough of them, side by side in more than a few channels, a lane scans its channels
//!    alone ([`Strategy::Lanes`]), and of hardly any steps always; and rows that are so short that a warp holds one or more of them are
//!    scanned by a few lanes each ([`Strategy::ShortRows`]).
//! 6. Where there are few channels, a block scans several tiles of them at once ([`Strategy::Narrow`]), unless that makes few blocks and rule 7
//!    gains something.
//! 7. And where there are so few rows or strips that the device would not be kept busy by them, their tiles are spread over as many
//!    blocks as the device can run at once ([`Strategy::SplitRows`], [`Strategy::SplitColumns`]), if a block has as much shared memory,
//!    if the sequences are not packed, and if there are kernels for that: there are none for masks and layouts, and none that split the
//!    rows of a gradient. What either would take is reckoned in tiles: those that a block scans one after another, twice as long where two
//!    blocks share a multiprocessor, and in the last wave as long as the memory takes for all of them; against all tiles divided by the
//!    multiprocessors, and some to get under way. A second launch, of the strategy for whole rows or strips, then scans those in which
//!    infinities or NaNs were met.
//!
//! [`PlanBuilder::strategy`] overrides the choice. The results are the same, to the bit.

use crate::layout::Layout;
use crate::operation::Operation;
use crate::shape::{Extents, Names};
pub use ptxscan_kernels::arrays::Options;
pub use ptxscan_kernels::entry::Strategy;
use ptxscan_kernels::entry::{Kernel, find};
use ptxscan_kernels::layout::{MOST_INPUTS, Strided};
use ptxscan_kernels::tiling::{
    ACCESS_BYTES, WARP_THREADS, columns, lanes, look_back, narrow, rows, sharing, short_rows,
    split_columns, split_rows,
};

/// What a plan needs to know of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeviceLimits {
    /// Multiprocessors.
    pub multiprocessors: u32,
    /// Bytes of shared memory of a multiprocessor.
    pub shared_bytes_per_multiprocessor: u32,
    /// Bytes of shared memory that a block can ask for.
    pub shared_bytes_per_block: u32,
    /// Bytes of shared memory that the system takes of each block's share.
    pub shared_bytes_reserved: u32,
}

/// What a device does to compute an operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Plan {
    /// Nothing: there are no elements.
    Nothing,
    /// It copies an input to the output.
    Copy {
        /// The input's index.
        input: usize,
        /// The bytes of each.
        bytes: usize,
    },
    /// It runs kernels.
    Scan {
        /// The launches, one after another.
        launches: Vec<Launch>,
        /// Words of 64 bits of scratch memory, which are zeroed before its first use.
        scratch_words: usize,
    },
}

impl Plan {
    /// Bytes of scratch memory, which are zeroed before its first use.
    #[must_use]
    pub fn scratch_bytes(&self) -> usize {
        match self {
            Self::Nothing | Self::Copy { .. } => 0,
            Self::Scan { scratch_words, .. } => scratch_words * size_of::<u64>(),
        }
    }
}

/// A launch of a kernel, but for the addresses of the arrays.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Launch {
    /// The kernel.
    pub kernel: &'static Kernel,
    /// Blocks along x and y.
    pub grid: (u32, u32),
    /// Threads of a block.
    pub block: u32,
    /// Bytes of dynamic shared memory that the kernel uses.
    pub shared_bytes_used: u32,
    /// Bytes of dynamic shared memory to ask for. They can be more: see [`rows::blocks_per_multiprocessor`].
    pub shared_bytes: u32,
    /// The most registers that a thread may have.
    pub registers: u32,
    /// The arguments after the arrays, in the order of the kernel's parameters.
    pub numbers: Vec<u64>,
}

/// The most blocks along x, and along y, that a launch may have.
const GRID_LIMITS: (u64, u64) = (i32::MAX as u64, u16::MAX as u64);

/// Sequences that are packed one after another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packed {
    /// How many they are.
    pub sequences: usize,
    /// Steps of the longest one.
    pub longest: usize,
}

impl Packed {
    /// The sequences between boundaries, of which there is one at least.
    #[must_use]
    pub fn between(boundaries: &[usize]) -> Self {
        let lengths = boundaries.windows(2).map(|pair| pair[1] - pair[0]);
        Self {
            sequences: lengths.len(),
            longest: lengths.max().unwrap_or(0),
        }
    }
}

/// The strategy for whole rows or strips of tensors of such extents, which can do whatever there is.
#[must_use]
pub fn whole(extents: Extents) -> Strategy {
    strategies(extents)[0]
}

/// The strategy that splits the rows or strips of tensors of such extents.
#[must_use]
pub fn split(extents: Extents) -> Strategy {
    strategies(extents)[1]
}

/// The strategies that can scan tensors of such extents: first those for [`whole`] and for [`split`] ones.
#[must_use]
pub fn strategies(extents: Extents) -> &'static [Strategy] {
    if extents.inner == 1 {
        &[Strategy::Rows, Strategy::SplitRows, Strategy::ShortRows]
    } else if extents.inner <= narrow::MOST_CHANNELS {
        &[
            Strategy::Columns,
            Strategy::SplitColumns,
            Strategy::Lanes,
            Strategy::Narrow,
        ]
    } else {
        &[Strategy::Columns, Strategy::SplitColumns, Strategy::Lanes]
    }
}

/// Makes a [`Plan`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PlanBuilder {
    operation: Operation,
    is_gradient: bool,
    element: &'static str,
    packed: Option<Packed>,
    is_masked: bool,
    layouts: Option<[Layout; MOST_INPUTS]>,
    extents: Extents,
    options: Options,
    strategy: Option<Strategy>,
}

impl PlanBuilder {
    /// A plan for an operation on tensors of these extents, whose elements are of the type of that name in the table of kernels.
    #[must_use]
    pub fn new(operation: Operation, element: &'static str, extents: Extents) -> Self {
        Self {
            operation,
            element,
            extents,
            is_gradient: false,
            packed: None,
            is_masked: false,
            layouts: None,
            options: Options::default(),
            strategy: None,
        }
    }

    /// Of the gradient of the operation, if there is a kernel for that, in place of the operation.
    #[must_use]
    pub fn gradient(self, is_gradient: bool) -> Self {
        Self {
            is_gradient,
            ..self
        }
    }

    /// With packed sequences along the axis, in place of one for each outer index.
    #[must_use]
    pub fn packed(self, packed: Option<Packed>) -> Self {
        Self { packed, ..self }
    }

    /// With a mask of steps at which the scan starts afresh.
    #[must_use]
    pub fn masked(self, is_masked: bool) -> Self {
        Self { is_masked, ..self }
    }

    /// With inputs that have these layouts, in place of row-major ones.
    #[must_use]
    pub fn layouts(self, layouts: Option<&[Layout]>) -> Self {
        let all = |layouts: &[Layout]| {
            let dense = Layout::dense(self.extents);
            std::array::from_fn(|k| layouts.get(k).copied().unwrap_or(dense))
        };
        Self {
            layouts: layouts.map(all),
            ..self
        }
    }

    /// With these options, besides those that it has.
    #[must_use]
    pub fn options(self, options: Options) -> Self {
        Self {
            options: self.options.and(options),
            ..self
        }
    }

    /// With this strategy, whatever the rules say.
    #[must_use]
    pub fn strategy(self, strategy: Option<Strategy>) -> Self {
        Self { strategy, ..self }
    }

    /// The plan for a device; `None` where there is no kernel for it, where the device lacks the shared memory, or where a launch
    /// cannot have as many blocks.
    #[must_use]
    pub fn build(&self, limits: &DeviceLimits) -> Option<Plan> {
        let Sequences { outer, len, inner } = self.sequences();
        if outer == 0 || inner == 0 || len == 0 && !self.options.has(Options::FINAL) {
            return Some(Plan::Nothing);
        }
        let (whole, split) = (whole(self.extents), split(self.extents));
        let kernel = self.kernel(whole)?;
        let is_plain = !self.is_gradient
            && !self.is_masked
            && self.layouts.is_none()
            && self.options == Options::default();
        if len == 1 && is_plain {
            return Some(Plan::Copy {
                input: self.inputs() - 1,
                bytes: self.extents.elements() * kernel.element_bytes,
            });
        }
        let whole_launch = |flags| match whole {
            Strategy::Rows => self.rows(flags, limits),
            _ => self.columns(flags, limits),
        };
        let split_launch = || match split {
            Strategy::SplitRows => self.split_rows(limits),
            _ => self.split_columns(limits),
        };
        let strategy = match self.strategy {
            None if self.can_use_lanes() && self.gains_by_lanes(limits) => Strategy::Lanes,
            None if self.can_use_short_rows() => Strategy::ShortRows,
            None if self.can_use_narrow(limits) && self.gains_by_narrow(limits) => Strategy::Narrow,
            None if self.can_split()
                && self.gains_by_splitting(limits)
                && split_launch().is_some() =>
            {
                split
            }
            None => whole,
            Some(strategy) => strategy,
        };
        let (launches, scratch_words) = match strategy {
            strategy if strategy == whole => (vec![whole_launch(0)?], 0),
            strategy if strategy == split && self.can_split() => (
                vec![split_launch()?, whole_launch(sharing::FLAGS)?],
                self.scratch_words(kernel),
            ),
            Strategy::Lanes if self.can_use_lanes() => (vec![self.lanes()?], 0),
            Strategy::ShortRows if self.can_use_short_rows() => (vec![self.short_rows()?], 0),
            Strategy::Narrow if self.can_use_narrow(limits) => (vec![self.narrow(limits)?], 0),
            _ => return None,
        };
        Some(Plan::Scan {
            launches,
            scratch_words,
        })
    }

    /// The [`strategies`] for the tensors.
    #[must_use]
    pub fn strategies(&self) -> &'static [Strategy] {
        strategies(self.extents)
    }

    /// Sequences of one length, a kernel that splits them, and tiles that 32 bits count.
    fn can_split(&self) -> bool {
        let (units, tiles) = self.split_units_and_tiles();
        let counted = units
            .checked_mul(tiles)
            .is_some_and(|count| count <= MOST_SPLIT_TILES);
        self.packed.is_none() && self.kernel(split(self.extents)).is_some() && counted
    }

    /// Channels of sequences of one length, and a kernel for that.
    fn can_use_lanes(&self) -> bool {
        let is_columns = strategies(self.extents).contains(&Strategy::Lanes);
        is_columns && self.packed.is_none() && self.kernel(Strategy::Lanes).is_some()
    }

    /// Rows of one length, which a warp can hold, and a kernel for that.
    fn can_use_short_rows(&self) -> bool {
        let kernel = self.kernel(Strategy::ShortRows);
        kernel.is_some_and(|kernel| {
            let most = short_rows::most_steps(kernel.element_bytes);
            let is_short = (1..=most).contains(&self.extents.len);
            self.extents.inner == 1 && self.packed.is_none() && is_short
        })
    }

    /// Rule 5.
    fn gains_by_lanes(&self, limits: &DeviceLimits) -> bool {
        let Extents { outer, len, inner } = self.extents;
        let warps = outer
            .saturating_mul(inner)
            .div_ceil(WARP_THREADS * lanes::channels(self.element_bytes()));
        let are_enough = warps >= WARPS_OF_LANES * limits.multiprocessors as usize;
        let are_side_by_side = inner > narrow::MOST_CHANNELS;
        len <= lanes::FEW_STEPS || len <= lanes::MOST_STEPS && are_enough && are_side_by_side
    }

    /// Few channels, sequences of one length, turns that 32 bits count, a kernel for that, and as much shared memory as it asks for.
    fn can_use_narrow(&self, limits: &DeviceLimits) -> bool {
        let is_narrow = strategies(self.extents).contains(&Strategy::Narrow);
        let has_steps = self.extents.len > 0;
        is_narrow && has_steps && self.packed.is_none() && self.narrow(limits).is_some()
    }

    /// Rule 6: but where few blocks keep less of the device busy than lanes that have a channel keep of split strips.
    fn gains_by_narrow(&self, limits: &DeviceLimits) -> bool {
        let Extents { outer, len, inner } = self.extents;
        let bytes = self.element_bytes();
        let units = narrow::units(outer, &narrow::turns(len, inner, bytes));
        let at_once = BLOCKS_PER_MULTIPROCESSOR * limits.multiprocessors as usize;
        let channels = split_columns::channels(self.inputs(), bytes);
        let is_busy = units.saturating_mul(channels) >= at_once * inner.min(channels);
        is_busy || !self.can_split() || !self.gains_by_splitting(limits)
    }

    /// Bytes of an element; of a type without kernels, which has no plan, any number will do.
    fn element_bytes(&self) -> usize {
        let kernel = self.kernel(whole(self.extents));
        kernel.map_or(size_of::<f32>(), |kernel| kernel.element_bytes)
    }

    /// Outer indices or packed sequences, steps of the longest one, and channels.
    fn sequences(&self) -> Sequences {
        let Extents { outer, len, inner } = self.extents;
        match self.packed {
            None => Sequences { outer, len, inner },
            Some(Packed { sequences, longest }) => Sequences {
                outer: sequences,
                len: longest,
                inner,
            },
        }
    }

    /// The options with those that kernels have besides.
    fn all_options(&self) -> u64 {
        self.options
            .and(Options::PACKED.only_if(self.packed.is_some()))
            .and(Options::MASKED.only_if(self.is_masked))
            .0
    }

    /// The numbers of a launch for whole rows or strips: these, the options, and with a mask those of the layouts.
    fn all_numbers(&self, kernel: &Kernel, numbers: &[u64]) -> Vec<u64> {
        let mut all = [numbers, &[self.all_options()]].concat();
        if kernel.is_masked {
            let dense = [Layout::dense(self.extents); MOST_INPUTS];
            all.extend(self.layouts.unwrap_or(dense).into_iter().flat_map(strided));
        }
        all
    }

    /// Rule 7.
    fn gains_by_splitting(&self, limits: &DeviceLimits) -> bool {
        let (units, tiles) = self.units_and_tiles();
        let multiprocessors = limits.multiprocessors.max(1) as usize;
        let cost = if self.extents.inner == 1 {
            ROWS_COST
        } else if (self.extents.inner * self.element_bytes()).is_multiple_of(ACCESS_BYTES) {
            COLUMNS_COST
        } else {
            UNALIGNED_COLUMNS_COST
        };
        let at_once = BLOCKS_PER_MULTIPROCESSOR * multiprocessors;
        let share = |units: usize| units as f64 / multiprocessors as f64;
        let (waves, rest) = (units / at_once, units % at_once);
        let last = match rest {
            0 => 0.0,
            _ => share(rest).max(cost.alone),
        };
        let tail = if waves > 0 { cost.tail } else { 0.0 };
        let whole = tiles as f64 * ((BLOCKS_PER_MULTIPROCESSOR * waves) as f64 + last + tail);
        let [of_one, of_more] = cost.split;
        let split = if self.inputs() == 1 { of_one } else { of_more };
        split * share(units) * tiles as f64 + cost.start < whole
    }

    /// Rows or strips, and tiles of each.
    fn units_and_tiles(&self) -> (usize, usize) {
        let Sequences { outer, len, inner } = self.sequences();
        let bytes = self.element_bytes();
        if inner == 1 {
            let tile = rows::tile(self.inputs(), bytes, rows::MAX_WARPS);
            (outer, len.div_ceil(tile))
        } else {
            (
                columns::strips(outer, inner, bytes),
                len.div_ceil(columns::TILE),
            )
        }
    }

    /// Rows, and tiles of each; or strips, and groups of each: what the blocks of a split scan take.
    fn split_units_and_tiles(&self) -> (usize, usize) {
        let Sequences { outer, len, inner } = self.sequences();
        if inner == 1 {
            return self.units_and_tiles();
        }
        (
            split_columns::strips(outer, inner, self.inputs(), self.element_bytes()),
            len.div_ceil(split_columns::GROUP_STEPS),
        )
    }

    fn inputs(&self) -> usize {
        if self.is_gradient {
            Names::GRADIENT.inputs.len()
        } else {
            self.operation.operator.inputs()
        }
    }

    fn kernel(&self, strategy: Strategy) -> Option<&'static Kernel> {
        let Operation {
            operator,
            direction,
        } = self.operation;
        // Layouts are for the kernels that take a mask.
        let is_masked = self.is_masked || self.layouts.is_some();
        find(
            operator,
            direction,
            self.is_gradient,
            strategy,
            is_masked,
            self.element,
        )
    }

    fn scratch_words(&self, kernel: &Kernel) -> usize {
        let (units, tiles) = self.split_units_and_tiles();
        let (aggregate, carry) = (kernel.aggregate_bytes, kernel.carry_bytes);
        if self.extents.inner == 1 {
            look_back::words(units, tiles, aggregate)
        } else {
            let channels = split_columns::channels(self.inputs(), kernel.element_bytes);
            sharing::words(units, channels, tiles, aggregate + carry)
        }
    }

    fn rows(&self, flags: usize, limits: &DeviceLimits) -> Option<Launch> {
        let Sequences { outer, len, .. } = self.sequences();
        let kernel = self.kernel(Strategy::Rows)?;
        let warps = match self.packed {
            None => rows::block_warps(self.inputs(), kernel.element_bytes, kernel.is_masked, len),
            Some(Packed { sequences, longest }) => rows::packed_block_warps(
                self.inputs(),
                kernel.element_bytes,
                kernel.is_masked,
                self.extents.outer * self.extents.len / sequences.max(1),
                longest,
            ),
        };
        let used = rows::shared_bytes(
            self.inputs(),
            kernel.aggregate_bytes,
            kernel.carry_bytes,
            kernel.element_bytes,
            warps,
        ) as u32;
        let shared = rows::blocks_per_multiprocessor(self.inputs(), warps)
            .map_or(used, |blocks| share(used, blocks as u32, limits));
        let numbers = [outer, len, flags].map(|number| number as u64);
        Some(Launch {
            kernel,
            grid: grid(outer as u64)?,
            block: (warps * WARP_THREADS) as u32,
            shared_bytes_used: used,
            shared_bytes: shared,
            registers: rows::registers(self.inputs(), kernel.is_masked),
            numbers: self.all_numbers(kernel, &numbers),
        })
    }

    fn columns(&self, flags: usize, limits: &DeviceLimits) -> Option<Launch> {
        let Sequences { outer, len, inner } = self.sequences();
        let kernel = self.kernel(Strategy::Columns)?;
        let shared = |stages| {
            let (aggregate, carry) = (kernel.aggregate_bytes, kernel.carry_bytes);
            columns::shared_bytes(
                self.inputs(),
                aggregate,
                carry,
                kernel.element_bytes,
                stages,
            ) as u32
        };
        let strips = columns::strips(outer, inner, kernel.element_bytes);
        let is_alone = strips <= limits.multiprocessors as usize;
        let best = columns::best_stages(self.inputs(), kernel.element_bytes, is_alone);
        let stages = (*columns::stages(self.inputs()).start()..=best)
            .rev()
            .find(|&stages| shared(stages) <= limits.shared_bytes_per_block)?;
        let numbers = [outer, len, inner, stages, flags].map(|number| number as u64);
        Some(Launch {
            kernel,
            grid: grid(strips as u64)?,
            block: columns::THREADS as u32,
            shared_bytes_used: shared(stages),
            shared_bytes: shared(stages),
            registers: columns::REGISTERS,
            numbers: self.all_numbers(kernel, &numbers),
        })
    }

    fn lanes(&self) -> Option<Launch> {
        let Extents { outer, len, inner } = self.extents;
        let kernel = self.kernel(Strategy::Lanes)?;
        let numbers = [outer, len, inner].map(|number| number as u64);
        Some(Launch {
            kernel,
            grid: grid(lanes::blocks(outer.checked_mul(inner)?, kernel.element_bytes) as u64)?,
            block: lanes::THREADS as u32,
            shared_bytes_used: 0,
            shared_bytes: 0,
            registers: lanes::registers(self.inputs()),
            numbers: self.all_numbers(kernel, &numbers),
        })
    }

    fn short_rows(&self) -> Option<Launch> {
        let Extents { outer, len, .. } = self.extents;
        let kernel = self.kernel(Strategy::ShortRows)?;
        let (inputs, bytes) = (self.inputs(), kernel.element_bytes);
        let shared = short_rows::shared_bytes(inputs, bytes) as u32;
        let width = short_rows::width(bytes, len);
        let numbers = [outer, len, width].map(|number| number as u64);
        Some(Launch {
            kernel,
            grid: grid(short_rows::blocks(inputs, bytes, outer, len) as u64)?,
            block: short_rows::THREADS as u32,
            shared_bytes_used: shared,
            shared_bytes: shared,
            registers: short_rows::registers(inputs),
            numbers: self.all_numbers(kernel, &numbers),
        })
    }

    fn narrow(&self, limits: &DeviceLimits) -> Option<Launch> {
        let Extents { outer, len, inner } = self.extents;
        let kernel = self.kernel(Strategy::Narrow)?;
        let bytes = kernel.element_bytes;
        let shared = |stages| {
            let (aggregate, carry) = (kernel.aggregate_bytes, kernel.carry_bytes);
            narrow::shared_bytes(self.inputs(), aggregate, carry, bytes, stages) as u32
        };
        let stages = (2..=narrow::best_stages(self.inputs(), bytes))
            .rev()
            .find(|&stages| shared(stages) <= limits.shared_bytes_per_block)?;
        let turns = narrow::turns(len, inner, bytes);
        if u32::try_from(turns.turns).is_err() {
            return None;
        }
        let units = narrow::units(outer, &turns);
        let at_once = BLOCKS_PER_MULTIPROCESSOR * limits.multiprocessors as usize;
        let of_block = narrow::units_of_block(units, &turns, at_once);
        let numbers = [outer, len, inner, stages, of_block].map(|number| number as u64);
        Some(Launch {
            kernel,
            grid: grid(units.div_ceil(of_block) as u64)?,
            block: columns::THREADS as u32,
            shared_bytes_used: shared(stages),
            shared_bytes: shared(stages),
            registers: columns::REGISTERS,
            numbers: self.all_numbers(kernel, &numbers),
        })
    }

    fn split_rows(&self, limits: &DeviceLimits) -> Option<Launch> {
        let Extents { outer, len, .. } = self.extents;
        let kernel = self.kernel(Strategy::SplitRows)?;
        let (aggregate, carry) = (kernel.aggregate_bytes, kernel.carry_bytes);
        let shared =
            split_rows::shared_bytes(self.inputs(), aggregate, carry, kernel.element_bytes);
        Some(Launch {
            kernel,
            grid: (
                self.split_blocks(shared, split_rows::BLOCKS_PER_MULTIPROCESSOR, limits)?,
                1,
            ),
            block: split_rows::THREADS as u32,
            shared_bytes_used: shared as u32,
            shared_bytes: shared as u32,
            registers: split_rows::REGISTERS,
            numbers: vec![outer as u64, len as u64, self.options.0],
        })
    }

    fn split_columns(&self, limits: &DeviceLimits) -> Option<Launch> {
        let Extents { outer, len, inner } = self.extents;
        let kernel = self.kernel(Strategy::SplitColumns)?;
        let (aggregate, carry) = (kernel.aggregate_bytes, kernel.carry_bytes);
        let shared =
            split_columns::shared_bytes(self.inputs(), aggregate, carry, kernel.element_bytes);
        let numbers = [outer, len, inner].map(|number| number as u64);
        Some(Launch {
            kernel,
            grid: (
                self.split_blocks(shared, split_columns::BLOCKS_PER_MULTIPROCESSOR, limits)?,
                1,
            ),
            block: split_columns::THREADS as u32,
            shared_bytes_used: shared as u32,
            shared_bytes: shared as u32,
            registers: split_columns::REGISTERS,
            numbers: [&numbers[..], &[self.options.0]].concat(),
        })
    }

    /// As many blocks as the device can run at once, or one for each tile; `None` if it can run none.
    fn split_blocks(
        &self,
        shared_bytes: usize,
        blocks_per_multiprocessor: usize,
        limits: &DeviceLimits,
    ) -> Option<u32> {
        let shared = shared_bytes as u32;
        let fit = limits.shared_bytes_per_multiprocessor / (shared + limits.shared_bytes_reserved);
        let at_once = limits.multiprocessors * fit.min(blocks_per_multiprocessor as u32);
        let (units, tiles) = self.split_units_and_tiles();
        let blocks = units.saturating_mul(tiles).min(at_once as usize);
        let fits = shared <= limits.shared_bytes_per_block && blocks > 0;
        fits.then_some(blocks as u32)
    }
}

/// Tiles of a split scan, at most: 32 bits count them, and the tickets that blocks take beyond the last one.
const MOST_SPLIT_TILES: usize = (u32::MAX - (1 << 20)) as usize;

/// The numbers of a layout, as kernels take them.
fn strided(layout: Layout) -> [u64; Strided::NUMBERS] {
    let Layout {
        offset,
        outer,
        len,
        inner,
    } = layout;
    Strided {
        offset,
        outer: outer as usize,
        step: len as usize,
        channel: inner as usize,
        ..Strided::default()
    }
    .numbers()
}

/// What a plan sees of a tensor.
struct Sequences {
    outer: usize,
    len: usize,
    inner: usize,
}

/// Warps of a multiprocessor that are enough for lanes to keep the memory busy.
const WARPS_OF_LANES: usize = 4;

/// Blocks for whole rows or strips that a multiprocessor can run at once.
const BLOCKS_PER_MULTIPROCESSOR: usize = 2;

/// What strategies cost, in the time that a multiprocessor takes for a tile when all of them share the memory. The figures are from an
/// H200.
struct Cost {
    /// A tile of a whole row or strip, with a multiprocessor to itself, where hardly any others share the memory.
    alone: f64,
    /// What the last wave of whole rows or strips waits for its slowest block, for each of its tiles.
    tail: f64,
    /// A tile of a split row or strip, of one input and of more.
    split: [f64; 2],
    /// To get the tiles of a split scan under way.
    start: f64,
}

const ROWS_COST: Cost = Cost {
    alone: 0.7,
    tail: 0.5,
    split: [1.03, 1.2],
    start: 6.0,
};
const COLUMNS_COST: Cost = Cost {
    alone: 0.7,
    tail: 0.5,
    split: [1.2, 1.2],
    start: 6.0,
};

/// Where steps are not aligned, so that their elements are copied one by one.
const UNALIGNED_COLUMNS_COST: Cost = Cost {
    alone: 1.7,
    tail: 0.5,
    split: [1.9, 1.9],
    start: 6.0,
};

/// A grid of `blocks` blocks or a few more, along x and then y.
fn grid(blocks: u64) -> Option<(u32, u32)> {
    let y = blocks.div_ceil(GRID_LIMITS.0);
    let x = blocks.div_ceil(y.max(1));
    (y <= GRID_LIMITS.1).then_some((x as u32, y as u32))
}

/// The shared memory of a block if `blocks` of them, which need `needed` bytes each, share a multiprocessor's.
fn share(needed: u32, blocks: u32, limits: &DeviceLimits) -> u32 {
    (limits.shared_bytes_per_multiprocessor / blocks)
        .saturating_sub(limits.shared_bytes_reserved)
        .min(limits.shared_bytes_per_block)
        .max(needed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operation::{Direction, Operator};
    use ptxscan_kernels::entry::KERNELS;

    const KIB: u32 = 1024;
    /// What devices say of themselves.
    const DEVICES: [(&str, DeviceLimits); 3] = [
        ("A100, 8.0", limits(108, 164)),
        ("GeForce RTX 30 and 40, 8.6 and 8.9", limits(84, 100)),
        ("H200, 9.0", H200),
    ];
    const H200: DeviceLimits = limits(132, 228);
    /// Registers of a quarter of a multiprocessor.
    const REGISTERS: u32 = 16384;
    const fn limits(multiprocessors: u32, shared_kib: u32) -> DeviceLimits {
        DeviceLimits {
            multiprocessors,
            shared_bytes_per_multiprocessor: shared_kib * KIB,
            shared_bytes_per_block: (shared_kib - 1) * KIB,
            shared_bytes_reserved: KIB,
        }
    }

    fn operations() -> impl Iterator<Item = Operation> {
        let directions = [Direction::Forward, Direction::Reverse];
        [Operator::Cumsum, Operator::AffineScan]
            .into_iter()
            .flat_map(move |operator| {
                directions.map(|direction| Operation::new(operator, direction))
            })
    }

    fn builder(operation: Operation, extents: Extents) -> PlanBuilder {
        PlanBuilder::new(operation, "f32", extents)
    }

    /// The launches of a plan, and its scratch words.
    fn launches(builder: PlanBuilder, limits: &DeviceLimits) -> (Vec<Launch>, usize) {
        match builder.build(limits) {
            Some(Plan::Scan {
                launches,
                scratch_words,
            }) => (launches, scratch_words),
            other => panic!("{builder:?}: {other:?}"),
        }
    }

    fn strategies(builder: PlanBuilder, limits: &DeviceLimits) -> Vec<Strategy> {
        let (launches, _) = launches(builder, limits);
        launches
            .iter()
            .map(|launch| launch.kernel.strategy)
            .collect()
    }

    const fn extents(outer: usize, len: usize, inner: usize) -> Extents {
        Extents { outer, len, inner }
    }

    #[test]
    fn no_elements_are_nothing_to_do() {
        for operation in operations() {
            for extents in [
                extents(0, 5, 1),
                extents(3, 0, 4),
                extents(3, 1, 0),
                extents(0, 0, 0),
            ] {
                let plan = builder(operation, extents).build(&H200);
                assert_eq!(plan, Some(Plan::Nothing));
            }
        }
    }

    #[test]
    fn one_step_is_a_copy_of_the_last_input() {
        for operation in operations() {
            let input = operation.operator.inputs() - 1;
            for extents in [extents(1, 1, 1), extents(7, 1, 1), extents(7, 1, 5)] {
                let bytes = 4 * extents.elements();
                let builder = builder(operation, extents);
                assert_eq!(builder.build(&H200), Some(Plan::Copy { input, bytes }));
                let with_state = builder.options(Options::FINAL);
                assert_eq!(launches(with_state, &H200).0.len(), 1);
            }
        }
    }

    #[test]
    fn every_kernel_is_launched_with_what_its_parameters_are() {
        let mut reached = Vec::new();
        for operation in operations() {
            for extents in [extents(3, 70000, 1), extents(3, 70, 1), extents(3, 5000, 2)] {
                for &strategy in builder(operation, extents).strategies() {
                    let builder = builder(operation, extents)
                        .options(Options::EXCLUSIVE)
                        .strategy(Some(strategy));
                    // Not all rows are short.
                    if strategy == Strategy::ShortRows && !builder.can_use_short_rows() {
                        continue;
                    }
                    let (launches, _) = launches(builder, &H200);
                    for launch in &launches {
                        let kernel = launch.kernel;
                        let same = (kernel.operator, kernel.direction, kernel.element);
                        let Operation {
                            operator,
                            direction,
                        } = operation;
                        assert_eq!(same, (operator, direction, "f32"));
                        // The inputs, the output, three of states, the mask, the boundaries, and scratch memory.
                        let passed = operator.inputs() + 7 + launch.numbers.len();
                        assert_eq!(kernel.parameters.len(), passed, "{}", kernel.name);
                        let named = kernel.parameters.iter().rev();
                        for (&name, &number) in named.zip(launch.numbers.iter().rev()) {
                            let expected = match name {
                                "rows" | "outer" => extents.outer,
                                "len" => extents.len,
                                "inner" => extents.inner,
                                "stages" if strategy == Strategy::Narrow => {
                                    narrow::best_stages(operator.inputs(), size_of::<f32>())
                                }
                                "stages" => columns::MAX_STAGES,
                                "units" => 1,
                                "width" => short_rows::width(size_of::<f32>(), extents.len),
                                "flags" if launches.len() == 1 => 0,
                                "flags" => sharing::FLAGS,
                                "options" => Options::EXCLUSIVE.0 as usize,
                                _ => panic!("{} gets a number for `{name}`", kernel.name),
                            };
                            assert_eq!(number, expected as u64, "{name} of {}", kernel.name);
                        }
                        reached.push(kernel.name);
                    }
                    assert_eq!(launches[0].kernel.strategy, strategy);
                }
            }
        }
        for kernel in KERNELS.iter().filter(|kernel| kernel.element == "f32") {
            let is_reached = reached.contains(&kernel.name);
            let is_plain = !kernel.is_masked && !kernel.is_gradient;
            assert_eq!(is_reached, is_plain, "{}", kernel.name);
        }
    }

    #[test]
    fn packed_and_masked_scans_have_plans_of_whole_sequences() {
        let packed = Some(Packed {
            sequences: 7,
            longest: 900,
        });
        for kernel in KERNELS {
            let operation = Operation::new(kernel.operator, kernel.direction);
            for inner in [1, 3] {
                let extents = extents(1, 1 << 24, inner);
                let builder = PlanBuilder::new(operation, kernel.element, extents)
                    .gradient(kernel.is_gradient);
                for builder in [builder.packed(packed), builder.masked(true)] {
                    let (launches, _) = launches(builder, &H200);
                    assert_eq!(launches.len(), 1, "{builder:?}");
                    let got = (launches[0].kernel.is_masked, launches[0].numbers[0]);
                    let sequences = if builder.is_masked { 1 } else { 7 };
                    let expected = (builder.is_masked, sequences);
                    assert_eq!(got, expected, "{builder:?}");
                    let split = builder.strategy(Some(split(builder.extents)));
                    assert_eq!(split.build(&H200), None, "{split:?}");
                }
            }
        }
    }

    #[test]
    fn layouts_have_plans_of_whole_sequences() {
        let layout = |outer, inner| Layout {
            offset: 7,
            outer,
            len: -5,
            inner,
        };
        let layouts = [layout(1, 2), layout(-3, 4), layout(5, -6)];
        for kernel in KERNELS.iter().filter(|kernel| kernel.is_masked) {
            let operation = Operation::new(kernel.operator, kernel.direction);
            for (inner, len) in [(1, 1), (3, 1), (1, 1 << 20), (3, 1 << 20)] {
                let builder = PlanBuilder::new(operation, kernel.element, extents(2, len, inner))
                    .gradient(kernel.is_gradient);
                let split = split(builder.extents);
                let split = builder.layouts(Some(&layouts)).strategy(Some(split));
                assert_eq!(split.build(&H200), None, "{split:?}");
                let dense = Layout::dense(extents(2, len, inner));
                for (builder, expected) in [
                    (builder.layouts(Some(&layouts)), layouts),
                    (builder.masked(true), [dense; 3]),
                    (
                        builder.layouts(Some(&layouts[..1])),
                        [layouts[0], dense, dense],
                    ),
                ] {
                    let (launches, _) = launches(builder, &H200);
                    assert_eq!(launches.len(), 1, "{builder:?}");
                    let Launch {
                        kernel, numbers, ..
                    } = &launches[0];
                    assert!(kernel.is_masked, "{builder:?}");
                    let named = kernel.parameters.iter().rev().zip(numbers.iter().rev());
                    for (&name, &number) in named.take(3 * Strided::NUMBERS) {
                        let (what, k) = name.split_once('_').expect("a number of a layout");
                        let layout = expected[k.parse::<usize>().expect("an input")];
                        let expected = match what {
                            "offset" => layout.offset as isize,
                            "outer" => layout.outer,
                            "step" => layout.len,
                            "channel" => layout.inner,
                            _ => panic!("{name} of {}", kernel.name),
                        };
                        assert_eq!(number as isize, expected, "{name} of {builder:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn gradients_have_plans() {
        for kernel in KERNELS.iter().filter(|kernel| kernel.is_gradient) {
            let operation = Operation::new(kernel.operator, kernel.direction);
            for (device, limits) in &DEVICES {
                for (inner, len) in [1, 3].into_iter().flat_map(|i| [(i, 1), (i, 1 << 20)]) {
                    let builder =
                        PlanBuilder::new(operation, kernel.element, extents(2, len, inner))
                            .gradient(true)
                            .masked(kernel.is_masked);
                    let (launches, scratch_words) = launches(builder, limits);
                    let context = format!("{device}: {builder:?}: {launches:?}");
                    // There are no kernels that split rows, nor any with a mask.
                    let shared = split_columns::shared_bytes(
                        builder.inputs(),
                        kernel.aggregate_bytes,
                        kernel.carry_bytes,
                        kernel.element_bytes,
                    );
                    let fits = shared <= limits.shared_bytes_per_block as usize;
                    let can_split = inner > 1 && !kernel.is_masked && fits;
                    let is_split = can_split && len > 1;
                    assert_eq!(launches.len(), 1 + usize::from(is_split), "{context}");
                    assert_eq!(scratch_words > 0, is_split, "{context}");
                    for launch in &launches {
                        assert!(launch.kernel.is_gradient, "{context}");
                        // The inputs, two outputs, three arrays of states, the mask, the boundaries, and scratch memory.
                        let passed = builder.inputs() + 2 + 6 + launch.numbers.len();
                        assert_eq!(launch.kernel.parameters.len(), passed, "{context}");
                        let warps = (launch.block / 32).div_ceil(4);
                        assert!(launch.registers * 32 * warps <= REGISTERS, "{context}");
                        assert!(
                            launch.shared_bytes <= limits.shared_bytes_per_block,
                            "{context}"
                        );
                    }
                    let split = builder.strategy(Some(split(builder.extents)));
                    assert_eq!(split.build(limits).is_some(), can_split, "{split:?}");
                }
            }
        }
        // Two blocks on a multiprocessor.
        let builder = builder(Operation::AFFINE_SCAN, extents(32, 4096, 256)).gradient(true);
        let (launches, _) = launches(builder, &H200);
        let taken = launches[0].shared_bytes + H200.shared_bytes_reserved;
        assert!(2 * taken <= H200.shared_bytes_per_multiprocessor);
    }

    #[test]
    fn sequences_without_steps_have_final_states() {
        for operation in operations() {
            for inner in [1, 3] {
                let builder = builder(operation, extents(4, 0, inner));
                let with_state = builder.options(Options::FINAL.and(Options::INITIAL));
                assert_eq!(builder.build(&H200), Some(Plan::Nothing));
                assert_eq!(launches(with_state, &H200).0.len(), 1);
            }
            // So many sequences of so many channels that no number counts them.
            let packed = Packed::between(&[0; 9]);
            let builder = builder(operation, extents(1, 0, 1 << 62)).packed(Some(packed));
            assert_eq!(builder.build(&H200), Some(Plan::Nothing));
        }
    }

    #[test]
    fn few_long_sequences_are_split_and_many_are_not() {
        use Strategy::{Columns, Lanes, Rows, SplitColumns, SplitRows};
        let split_rows = vec![SplitRows, Rows];
        let split_columns = vec![SplitColumns, Columns];
        let rows = vec![Rows];
        for operation in operations() {
            for (extents, expected) in [
                (extents(1, 1 << 28, 1), &split_rows),
                (extents(50, 1 << 20, 1), &split_rows),
                (
                    extents(1 << 10, 1 << 20, 1),
                    if operation.operator == Operator::Cumsum {
                        &split_rows
                    } else {
                        &rows
                    },
                ),
                (extents(264, 1 << 14, 1), &vec![Rows]),
                (extents(32768, 32768, 1), &vec![Rows]),
                (extents(1, 4000, 1), &vec![Rows]),
                (extents(1, 65536, 1024), &split_columns),
                (extents(32, 4096, 256), &vec![Columns]),
                (extents(1, 64, 64), &vec![Columns]),
                (extents(1000, 64, 4096), &vec![Lanes]),
                (extents(5, 7, 64), &vec![Lanes]),
            ] {
                let got = strategies(builder(operation, extents), &H200);
                assert_eq!(&got, expected, "{operation}, {extents:?}");
            }
        }
    }

    #[test]
    fn few_channels_are_scanned_side_by_side_if_there_are_blocks_for_all() {
        use Strategy::{Columns, Narrow, SplitColumns};
        for operation in operations() {
            for (extents, expected) in [
                (extents(264, 4096, 7), Narrow),
                (extents(5000, 100, 2), Narrow),
                (extents(264, 4096, 31), Narrow),
                (extents(1, 1 << 22, 7), SplitColumns),
            ] {
                let builder = builder(operation, extents);
                assert_eq!(strategies(builder, &H200)[0], expected, "{builder:?}");
                let builder = builder.strategy(Some(Columns));
                assert_eq!(strategies(builder, &H200), [Columns]);
            }
        }
    }

    #[test]
    fn turns_of_narrow_columns_have_all_steps() {
        for (bytes, inner) in [2, 4, 8]
            .into_iter()
            .flat_map(|bytes| (2..=narrow::MOST_CHANNELS).map(move |inner| (bytes, inner)))
        {
            for len in [0, 1, 63, 64, 65, 500, 512, 513, 2048, 2049, 1 << 20] {
                let turns = narrow::turns(len, inner, bytes);
                let context = format!("{len} steps, {inner} channels of {bytes} bytes: {turns:?}");
                assert!(turns.steps * turns.turns >= len, "{context}");
                assert!(turns.turns == 1 || turns.sequences == 1, "{context}");
                let lanes = turns.sequences * turns.tiles * inner;
                assert!(lanes <= columns::channels(bytes), "{context}");
                for outer in [0, 1, 7, 1 << 20] {
                    let units = narrow::units(outer, &turns);
                    assert!(units * turns.sequences >= outer, "{context}");
                    let of_block = narrow::units_of_block(units, &turns, 264);
                    assert!(of_block >= 1 && of_block <= units.max(1), "{context}");
                }
            }
        }
    }

    #[test]
    fn a_strategy_can_be_asked_for_where_it_fits() {
        use Strategy::{Columns, Rows, SplitColumns, SplitRows};
        let (rows, columns) = (extents(5, 100, 1), extents(5, 100, 7));
        for operation in operations() {
            for (extents, strategy) in [
                (rows, Rows),
                (rows, SplitRows),
                (columns, Columns),
                (columns, SplitColumns),
            ] {
                let builder = builder(operation, extents).strategy(Some(strategy));
                assert_eq!(strategies(builder, &H200)[0], strategy);
            }
            for (extents, strategy) in [
                (rows, Columns),
                (rows, SplitColumns),
                (columns, Rows),
                (columns, SplitRows),
            ] {
                let builder = builder(operation, extents).strategy(Some(strategy));
                assert_eq!(builder.build(&H200), None);
            }
        }
    }

    #[test]
    fn scratch_memory_is_for_split_scans_alone() {
        for operation in operations() {
            for extents in [extents(3, 70000, 1), extents(3, 5000, 200)] {
                let (whole, split) = (whole(extents), split(extents));
                let words = |strategy| {
                    launches(builder(operation, extents).strategy(Some(strategy)), &H200).1
                };
                assert_eq!(words(whole), 0);
                let (units, tiles) = builder(operation, extents).units_and_tiles();
                assert!(words(split) > units * tiles, "{operation}, {extents:?}");
            }
        }
    }

    #[test]
    fn every_launch_is_admissible() {
        let lengths = [2, 31, 33, 511, 513, 1 << 13, (1 << 13) + 1, 1 << 20];
        let inner = [1, 2, 31, 33, 257, 4096];
        for (device, limits) in &DEVICES {
            for operation in operations() {
                let all = lengths
                    .into_iter()
                    .flat_map(|len| inner.map(|inner| extents(5, len, inner)));
                for builder in all.map(|extents| builder(operation, extents)) {
                    let plans: Vec<_> = builder
                        .strategies()
                        .iter()
                        .map(|&strategy| builder.strategy(Some(strategy)).build(limits))
                        .collect();
                    assert!(plans[0].is_some(), "{device}: {builder:?}");
                    for plan in plans.into_iter().flatten() {
                        let Plan::Scan { launches, .. } = &plan else {
                            panic!("{device}: {plan:?}");
                        };
                        for launch in launches {
                            let context = format!("{device}: {builder:?}: {launch:?}");
                            assert!(launch.block.is_multiple_of(32), "{context}");
                            assert!((1..=1024).contains(&launch.block), "{context}");
                            // Warps are dealt to the quarters of a multiprocessor.
                            let warps = (launch.block / 32).div_ceil(4);
                            assert!(launch.registers * 32 * warps <= REGISTERS, "{context}");
                            assert!(launch.shared_bytes_used <= launch.shared_bytes, "{context}");
                            assert!(
                                launch.shared_bytes <= limits.shared_bytes_per_block,
                                "{context}"
                            );
                            assert!(launch.grid.0 > 0 && launch.grid.1 == 1, "{context}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn shared_memory_is_shared_out_where_that_is_asked_for() {
        for (device, limits) in &DEVICES {
            for len in [2, 600, 5000, 1 << 20] {
                let builder = builder(Operation::CUMSUM, extents(5, len, 1));
                let (launches, _) = launches(builder.strategy(Some(Strategy::Rows)), limits);
                let launch = &launches[0];
                let warps = launch.block as usize / WARP_THREADS;
                let blocks =
                    rows::blocks_per_multiprocessor(1, warps).expect("sums share it out") as u32;
                let taken = launch.shared_bytes + limits.shared_bytes_reserved;
                let fit = limits.shared_bytes_per_multiprocessor / taken;
                let is_needed = launch.shared_bytes == launch.shared_bytes_used;
                assert!(
                    fit == blocks || fit < blocks && is_needed,
                    "{device}, {len} steps: {launch:?}"
                );
            }
        }
    }

    #[test]
    fn blocks_of_rows_scan_whole_tiles_part_by_part() {
        for kernel in KERNELS
            .iter()
            .filter(|kernel| kernel.strategy == Strategy::Rows)
        {
            let inputs = if kernel.is_gradient {
                Names::GRADIENT.inputs.len()
            } else {
                kernel.operator.inputs()
            };
            let (bytes, is_masked) = (kernel.element_bytes, kernel.is_masked);
            let held = rows::warp_items(inputs, bytes);
            for longest in [0, 1, held, 3 * held, 16 * held, 16 * held + 1, 5000 * held] {
                let of_tile = rows::warps(inputs, bytes, longest);
                let means = [0, 1, held, 3 * held, longest].map(|mean| mean.min(longest));
                let packed = means
                    .map(|mean| rows::packed_block_warps(inputs, bytes, is_masked, mean, longest));
                let dense = rows::block_warps(inputs, bytes, is_masked, longest);
                for warps in packed.into_iter().chain([dense]) {
                    let context = format!("{}: {longest} steps: {warps}", kernel.name);
                    assert!((1..=of_tile).contains(&warps), "{context}");
                    // Else one part is all.
                    let fills = rows::MAX_WARPS.is_multiple_of(warps);
                    assert!(fills || warps == of_tile, "{context}");
                }
            }
        }
        // A warp has something to do in most blocks.
        assert_eq!(rows::packed_block_warps(1, 4, false, 1024, 2048), 1);
        // A long one among short ones is not left to a single warp.
        assert!(rows::packed_block_warps(1, 4, false, 100, 1 << 20) > 8);
    }

    #[test]
    fn a_grid_goes_on_along_y() {
        let (x, y) = GRID_LIMITS;
        for blocks in [
            1,
            2,
            65535,
            65536,
            x - 1,
            x,
            x + 1,
            2 * x,
            2 * x + 1,
            1 << 40,
            x * y,
        ] {
            let (gx, gy) = grid(blocks).expect("a grid has as many blocks");
            let (gx, gy) = (u64::from(gx), u64::from(gy));
            assert!(gx <= x && gy <= y, "{blocks} blocks: {gx} × {gy}");
            assert!(
                (blocks..blocks + gy).contains(&(gx * gy)),
                "{blocks} blocks: {gx} × {gy}"
            );
        }
        assert_eq!(grid(x), Some((x as u32, 1)));
        assert_eq!(grid(x * y + 1), None);
        // So many channels that no number counts them.
        for strategy in [None, Some(Strategy::Lanes)] {
            let builder = builder(Operation::CUMSUM, extents(1 << 62, 2, 4)).strategy(strategy);
            assert_eq!(builder.build(&H200), None, "{strategy:?}");
        }
        // Two steps each of more rows than a grid has blocks.
        let extents = extents((x * y) as usize + 1, 2, 1);
        let builder = builder(Operation::CUMSUM, extents).strategy(Some(Strategy::Rows));
        assert_eq!(builder.build(&H200), None);
    }

    #[test]
    fn a_type_without_kernels_has_no_plan() {
        for operation in operations() {
            for inner in [1, 2] {
                let builder = PlanBuilder::new(operation, "u128", extents(2, 3, inner));
                assert_eq!(builder.build(&H200), None);
            }
        }
    }
}
