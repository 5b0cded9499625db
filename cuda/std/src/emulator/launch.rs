//! Launches: their options, and the loop that runs one.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::panic::{self, AssertUnwindSafe, PanicHookInfo};
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};

use super::fault::{Fault, FaultKind, SEED_VARIABLE, Site};
use super::machine::{Machine, in_kernel};

/// The order in which the blocks of a grid start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BlockOrder {
    /// From block 0 on, as GPUs mostly do.
    Ascending,
    /// In an order that the seed chooses. CUDA allows any.
    Seeded,
}

/// A launch of a kernel: how many blocks of how many threads, and how to run them.
///
/// Blocks are one-dimensional.
#[derive(Clone, Debug)]
pub struct Launch {
    /// Blocks along x.
    pub(super) grid_x: u32,
    pub(super) grid_y: u32,
    pub(super) block_threads: u32,
    pub(super) shared_bytes: usize,
    pub(super) seed: u64,
    pub(super) step_limit: u64,
    resident_blocks: Option<u32>,
    block_order: BlockOrder,
    pub(super) removed_barrier: Option<Site>,
}

impl Launch {
    /// The most threads that a block can have.
    pub const MAX_BLOCK_THREADS: u32 = 1024;
    /// The most blocks that are resident if [`resident_blocks`](Self::resident_blocks) does not say more.
    pub const DEFAULT_RESIDENT_BLOCKS: u32 = 4;

    /// `grid_x` blocks of `block_threads` threads, no shared memory, seed 0.
    #[must_use]
    pub fn new(grid_x: u32, block_threads: u32) -> Self {
        Self {
            grid_x,
            grid_y: 1,
            block_threads,
            shared_bytes: 0,
            seed: 0,
            step_limit: 100_000_000,
            resident_blocks: None,
            block_order: BlockOrder::Seeded,
            removed_barrier: None,
        }
    }

    /// Makes the grid one of `grid_y` rows of blocks; 1 if not called. Faults count the blocks of the first
    /// row, then those of the second, and so on.
    #[must_use]
    pub fn grid_y(self, grid_y: u32) -> Self {
        Self { grid_y, ..self }
    }

    /// The bytes of dynamic shared memory of each block; 0 if not called.
    #[must_use]
    pub fn shared_bytes(self, shared_bytes: usize) -> Self {
        Self {
            shared_bytes,
            ..self
        }
    }

    /// The seed of the schedule; 0 if not called. The environment variable `CUDA_STD_EMULATOR_SEED`
    /// overrides it.
    #[must_use]
    pub fn seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    /// The number of steps (accesses, and calls that synchronise) after which the launch is held to be
    /// endless; 10⁸ if not called.
    #[must_use]
    pub fn step_limit(self, step_limit: u64) -> Self {
        Self { step_limit, ..self }
    }

    /// How many blocks are resident at a time, and so can wait for each other; if not called, the seed
    /// chooses 1 to [`DEFAULT_RESIDENT_BLOCKS`](Self::DEFAULT_RESIDENT_BLOCKS).
    #[must_use]
    pub fn resident_blocks(self, resident_blocks: u32) -> Self {
        let resident_blocks = Some(resident_blocks);
        Self {
            resident_blocks,
            ..self
        }
    }

    /// The order in which blocks start; [`BlockOrder::Seeded`] if not called.
    #[must_use]
    pub fn block_order(self, block_order: BlockOrder) -> Self {
        Self {
            block_order,
            ..self
        }
    }

    /// Makes the `sync_threads` or `sync_warp` at `site` do nothing: a test can so show that the barrier
    /// is needed. [`Report::barriers`] has the sites.
    #[must_use]
    pub fn without_barrier(self, site: Site) -> Self {
        let removed_barrier = Some(site);
        Self {
            removed_barrier,
            ..self
        }
    }

    /// Runs `thread` once for each thread of the launch: it calls the kernel.
    ///
    /// The result of the launch depends on nothing but its options and the kernel's arguments.
    ///
    /// # Errors
    /// The first [`Fault`] that was met; also an impossible launch. The buffers then hold what the
    /// threads wrote up to there.
    pub fn run(&self, kernel: &str, thread: impl Fn()) -> Result<Report, Box<Fault>> {
        static LAUNCHES: AtomicU64 = AtomicU64::new(1);
        let launch = self.validated().map_err(|kind| {
            Box::new(Fault {
                kernel: kernel.to_owned(),
                thread: None,
                site: None,
                seed: self.seed,
                kind,
            })
        })?;
        catch_panics();
        let mut random = fastrand::Rng::with_seed(!launch.seed);
        let default = random.u32(1..=Self::DEFAULT_RESIDENT_BLOCKS);
        let resident = launch.resident_blocks.unwrap_or(default);
        let resident = resident.min(launch.blocks());
        let mut order: Vec<_> = (0..launch.blocks()).collect();
        if launch.block_order == BlockOrder::Seeded {
            random.shuffle(&mut order);
        }
        let id = LAUNCHES.fetch_add(1, Ordering::Relaxed);
        let machine = Machine::new(id, kernel, launch, resident);
        run(&machine, &order, resident as usize, &thread)?;
        let barriers = machine.take_barriers().into_iter();
        Ok(Report {
            seed: machine.launch().seed,
            resident_blocks: resident,
            steps: machine.steps(),
            switches: machine.switches(),
            barriers: barriers
                .map(|(site, count)| Barrier { site, count })
                .collect(),
        })
    }

    /// Blocks of the grid.
    pub(super) fn blocks(&self) -> u32 {
        self.grid_x * self.grid_y
    }

    fn validated(&self) -> Result<Self, FaultKind> {
        /// More could not be told from no block.
        const MAX_BLOCKS: u32 = u32::MAX - 1;
        let invalid = |argument, expected, got: String| {
            Err(FaultKind::InvalidLaunch {
                argument,
                expected,
                got,
            })
        };
        let mut launch = self.clone();
        if let Some(seed) = std::env::var_os(SEED_VARIABLE) {
            let seed = seed.to_string_lossy();
            match seed.parse() {
                Ok(seed) => launch.seed = seed,
                Err(_) => return invalid(SEED_VARIABLE, "a number below 2^64", seed.into_owned()),
            }
        }
        if !matches!(self.grid_x.checked_mul(self.grid_y), Some(1..=MAX_BLOCKS)) {
            let got = format!("{} x {}", self.grid_x, self.grid_y);
            return invalid("grid", "1 to 2^32 - 2 blocks", got);
        }
        if self.block_threads == 0 || self.block_threads > Self::MAX_BLOCK_THREADS {
            return invalid("block_threads", "1 to 1024", self.block_threads.to_string());
        }
        if self.resident_blocks == Some(0) {
            return invalid("resident_blocks", "at least 1", "0".to_owned());
        }
        if in_kernel() {
            return invalid(
                "thread",
                "outside a kernel",
                "a launch in a kernel".to_owned(),
            );
        }
        Ok(launch)
    }
}

/// What a launch did.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Report {
    /// The seed of its schedule.
    pub seed: u64,
    /// How many blocks were resident at a time.
    pub resident_blocks: u32,
    /// Accesses, and calls that synchronise, of all threads.
    pub steps: u64,
    /// How often a thread made room for another.
    pub switches: u64,
    /// The calls of `sync_threads` and `sync_warp` that threads passed, in the order of their sites.
    pub barriers: Vec<Barrier>,
}

/// A barrier that threads passed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Barrier {
    /// Where it is called.
    pub site: Site,
    /// How many times a block (`sync_threads`) or the lanes of a mask (`sync_warp`) passed it together.
    pub count: u64,
}

type ThreadCoroutine = Coroutine<(), (), (), DefaultStack>;

/// The coroutines of the threads of the resident blocks; none where a thread has ended.
struct Coroutines(Vec<Option<ThreadCoroutine>>);

impl Coroutines {
    /// # Safety
    /// The machine and `thread` outlive the coroutines.
    unsafe fn start(&mut self, machine: &Machine, numbers: Range<usize>, thread: &dyn Fn()) {
        for number in numbers {
            let body = move |yielder: &Yielder<(), ()>, ()| {
                machine.thread().yielder.set(yielder);
                thread();
            };
            // SAFETY: what the closure borrows outlives the coroutine, says the caller.
            let coroutine = unsafe { Coroutine::with_stack_unchecked(take_stack(), body) };
            self.0[number] = Some(coroutine);
        }
    }

    fn end(&mut self, number: usize) {
        let coroutine = self.0[number].take().expect("it has just run");
        STACKS.with_borrow_mut(|stacks| stacks.push(coroutine.into_stack()));
    }
}

impl Drop for Coroutines {
    /// Unwinds the threads that have not ended.
    fn drop(&mut self) {
        for mut coroutine in self.0.drain(..).flatten() {
            coroutine.force_unwind();
            STACKS.with_borrow_mut(|stacks| stacks.push(coroutine.into_stack()));
        }
    }
}

fn run(
    machine: &Machine,
    order: &[u32],
    resident: usize,
    thread: &dyn Fn(),
) -> Result<(), Box<Fault>> {
    let threads = resident * machine.launch().block_threads as usize;
    let mut coroutines = Coroutines((0..threads).map(|_| None).collect());
    let mut order = order.iter().copied();
    for (slot, block) in (0..resident).zip(&mut order) {
        let numbers = machine.start_block(slot, block);
        // SAFETY: the machine and `thread` outlive this function.
        unsafe { coroutines.start(machine, numbers, thread) };
    }
    while let Some(number) = machine.next() {
        let coroutine = coroutines.0[number]
            .as_mut()
            .expect("only live threads run");
        let resume = AssertUnwindSafe(|| coroutine.resume(()));
        match machine.while_running(number, || panic::catch_unwind(resume)) {
            Ok(CoroutineResult::Yield(())) => {}
            Ok(CoroutineResult::Return(())) => {
                coroutines.end(number);
                if let Some(slot) = machine.end_thread(number)
                    && let Some(block) = order.next()
                {
                    let numbers = machine.start_block(slot, block);
                    // SAFETY: the machine and `thread` outlive this function.
                    unsafe { coroutines.start(machine, numbers, thread) };
                }
            }
            Err(_) => machine.panicked(number, PANIC.take()),
        }
        if let Some(fault) = machine.take_fault() {
            return Err(fault);
        }
    }
    machine.take_fault().map_or(Ok(()), Err)
}

/// Enough for a kernel, and for a panic in it; pages that are not touched cost nothing.
const STACK_BYTES: usize = 128 << 10;

thread_local! {
    /// Stacks that wait for a thread.
    static STACKS: RefCell<Vec<DefaultStack>> = const { RefCell::new(Vec::new()) };
    /// The message and the place of the last panic in a kernel.
    static PANIC: Cell<String> = const { Cell::new(String::new()) };
}

fn take_stack() -> DefaultStack {
    let pooled = STACKS.with_borrow_mut(Vec::pop);
    pooled.unwrap_or_else(|| DefaultStack::new(STACK_BYTES).expect("memory for a stack"))
}

/// Keeps the message of a panic in a kernel for its fault, instead of printing it.
fn catch_panics() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let outer = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if in_kernel() {
                PANIC.set(panic_message(info));
            } else {
                outer(info);
            }
        }));
    });
}

fn panic_message(info: &PanicHookInfo<'_>) -> String {
    let payload = info.payload();
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    let text = text.unwrap_or("(no message)");
    match info.location() {
        Some(location) => format!("{text}, at {location}"),
        None => text.to_owned(),
    }
}
