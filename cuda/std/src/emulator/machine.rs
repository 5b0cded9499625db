//! A launch under way: which thread runs, and what the others wait for.
//!
//! All threads are coroutines on one OS thread. Their state is in cells that nobody borrows over a switch:
//! whatever can switch ([`Machine::suspend`] and what calls it) is called with no borrow alive.

use std::cell::{Cell, RefCell, UnsafeCell};
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::panic::Location;
use std::ptr;
use std::rc::Rc;

use super::clock::Clock;
use super::fault::{Fault, FaultKind, Site};
use super::launch::Launch;
use super::memory::SharedMemory;
use super::thread::{Caller, Thread, Wait, WarpCall, WarpFunction, is_same_site};
use crate::warp::WARP_SIZE;

thread_local! {
    /// The machine whose thread runs now on this OS thread; null if none does.
    static CURRENT: Cell<*const Machine> = const { Cell::new(ptr::null()) };
}

/// Whether a thread of a launch runs now on this OS thread.
pub(super) fn in_kernel() -> bool {
    !CURRENT.get().is_null()
}

/// The machine of the thread that calls.
#[inline]
#[track_caller]
pub(super) fn machine<'a>() -> &'a Machine {
    let machine = CURRENT.get();
    assert!(
        !machine.is_null(),
        "a device function was called on the host outside a launch of the emulator"
    );
    // SAFETY: `Machine::while_running` sets it while a thread runs, and the machine outlives its threads.
    unsafe { &*machine }
}

/// The sites of a launch's accesses, numbered as they are first met.
struct Sites {
    recent: [Cell<Option<(Caller, u16)>>; 64],
    numbers: RefCell<HashMap<Caller, u16>>,
    callers: RefCell<Vec<Caller>>,
}

impl Sites {
    fn new() -> Self {
        Self {
            recent: [const { Cell::new(None) }; 64],
            numbers: RefCell::default(),
            callers: RefCell::default(),
        }
    }

    #[inline]
    fn number(&self, caller: Caller) -> u16 {
        let place = ptr::from_ref(caller).addr() / size_of::<Location<'_>>() % self.recent.len();
        match self.recent[place].get() {
            Some((recent, number)) if ptr::eq(recent, caller) => number,
            _ => self.look_up(caller, place),
        }
    }

    #[cold]
    fn look_up(&self, caller: Caller, place: usize) -> u16 {
        let mut callers = self.callers.borrow_mut();
        let mut numbers = self.numbers.borrow_mut();
        let number = *numbers.entry(caller).or_insert_with(|| {
            callers.push(caller);
            u16::try_from(callers.len() - 1)
                .expect("in the emulator a kernel has at most 2^16 sites")
        });
        self.recent[place].set(Some((caller, number)));
        number
    }

    fn site(&self, number: u16) -> Site {
        self.callers.borrow()[usize::from(number)].into()
    }
}

/// A resident block, or the place for one.
struct Block {
    /// The threads that have not ended.
    live: Cell<u32>,
    /// Those of them that wait at the barrier.
    arrived: Cell<u32>,
    /// The first of these.
    first: Cell<Option<(u32, Caller)>>,
    shared: UnsafeCell<SharedMemory>,
}

/// A thread that polls: it runs again when its atomic is written, or when all others wait, too.
struct Parked {
    thread: u32,
    address: usize,
    caller: Caller,
}

pub(super) struct Machine {
    /// Of the launch, not 0.
    pub(super) id: u64,
    kernel: String,
    launch: Launch,
    blocks: Vec<Block>,
    threads: Vec<Thread>,
    /// For each warp, the call in which lanes were last seen to wait, with those that do.
    gathering: Vec<Cell<Option<(WarpCall, u32)>>>,
    /// How many threads the scheduler draws, to run the one with the highest priority.
    candidates: u32,
    current: Cell<usize>,
    runnable: RefCell<Vec<u32>>,
    parked: RefCell<Vec<Parked>>,
    /// Counts what may end a wait: accesses (but no polls), barriers, the starts and ends of threads.
    progress: Cell<u64>,
    /// What it was when last all polled in vain, and how many times they did since.
    vain_rounds: Cell<(u64, u32)>,
    unstarted: Cell<u32>,
    random: RefCell<fastrand::Rng>,
    /// Steps until the running thread is interrupted.
    fuel: Cell<u32>,
    /// Steps taken when the fuel is spent.
    steps: Cell<u64>,
    switches: Cell<u64>,
    sites: Sites,
    barriers: RefCell<BTreeMap<Site, u64>>,
    fault: RefCell<Option<Box<Fault>>>,
}

impl Machine {
    /// Rounds of vain polls that make a deadlock: no thread reads an atomic so often for another reason.
    const VAIN_ROUNDS: u32 = 256;
    /// Steps between two interruptions, at most.
    const FUEL: u32 = 128;

    pub(super) fn new(id: u64, kernel: &str, launch: Launch, resident: u32) -> Self {
        let slots = 0..resident as usize;
        let block = |_| Block {
            live: Cell::new(0),
            arrived: Cell::new(0),
            first: Cell::new(None),
            shared: UnsafeCell::new(SharedMemory::new(launch.shared_bytes)),
        };
        let block_threads = launch.block_threads;
        let threads = |slot| (0..block_threads as u16).map(move |i| Thread::new(slot, i));
        let warps = resident * block_threads.div_ceil(WARP_SIZE);
        let mut random = fastrand::Rng::with_seed(launch.seed);
        let fuel = random.u32(1..=Self::FUEL);
        Self {
            id,
            kernel: kernel.to_owned(),
            blocks: slots.clone().map(block).collect(),
            threads: slots.flat_map(threads).collect(),
            gathering: (0..warps).map(|_| Cell::new(None)).collect(),
            candidates: random.u32(1..=4),
            current: Cell::new(0),
            runnable: RefCell::default(),
            parked: RefCell::default(),
            progress: Cell::new(0),
            vain_rounds: Cell::new((0, 0)),
            unstarted: Cell::new(launch.blocks()),
            random: RefCell::new(random),
            fuel: Cell::new(fuel),
            steps: Cell::new(fuel.into()),
            switches: Cell::new(0),
            sites: Sites::new(),
            barriers: RefCell::default(),
            fault: RefCell::default(),
            launch,
        }
    }

    #[inline]
    pub(super) fn launch(&self) -> &Launch {
        &self.launch
    }

    /// The thread that runs.
    #[inline]
    pub(super) fn thread(&self) -> &Thread {
        &self.threads[self.current.get()]
    }

    /// The shared memory of the running thread's block.
    #[inline]
    pub(super) fn shared(&self) -> *mut SharedMemory {
        self.blocks[self.thread().slot].shared.get()
    }

    fn block_threads(&self, slot: usize) -> Range<usize> {
        let count = self.launch.block_threads as usize;
        slot * count..(slot + 1) * count
    }

    /// The lanes of a thread's warp.
    fn warp(&self, thread: &Thread) -> (usize, &[Thread]) {
        let block = self.block_threads(thread.slot);
        let first = block.start + usize::from(thread.index) - thread.lane() as usize;
        let end = block.end.min(first + WARP_SIZE as usize);
        (first, &self.threads[first..end])
    }

    fn gathering(&self, thread: &Thread) -> &Cell<Option<(WarpCall, u32)>> {
        let warps = self.launch.block_threads.div_ceil(WARP_SIZE) as usize;
        let warp = usize::from(thread.index) / WARP_SIZE as usize;
        &self.gathering[thread.slot * warps + warp]
    }

    #[inline]
    pub(super) fn site_number(&self, caller: Caller) -> u16 {
        self.sites.number(caller)
    }

    pub(super) fn site(&self, number: u16) -> Site {
        self.sites.site(number)
    }

    pub(super) fn steps(&self) -> u64 {
        self.steps.get() - u64::from(self.fuel.get())
    }

    pub(super) fn switches(&self) -> u64 {
        self.switches.get()
    }

    pub(super) fn take_barriers(&self) -> BTreeMap<Site, u64> {
        self.barriers.take()
    }
}

/// What the scheduler calls.
impl Machine {
    /// Makes a block of the grid resident, and gives the numbers of its threads.
    pub(super) fn start_block(&self, slot: usize, block: u32) -> Range<usize> {
        let place = &self.blocks[slot];
        place.live.set(self.launch.block_threads);
        // SAFETY: no thread runs, so that there is no other reference.
        unsafe { (*place.shared.get()).forget() };
        let numbers = self.block_threads(slot);
        for warp in self.threads[numbers.clone()].chunks(WARP_SIZE as usize) {
            let priority = self.random.borrow_mut().u32(..);
            warp.iter().for_each(|thread| thread.start(block, priority));
        }
        let threads = numbers.clone().map(|number| number as u32);
        self.runnable.borrow_mut().extend(threads);
        self.unstarted.set(self.unstarted.get() - 1);
        self.made_progress();
        numbers
    }

    /// The number of the thread to run next; `None` when all have ended, or on a fault.
    pub(super) fn next(&self) -> Option<usize> {
        if self.runnable.borrow().is_empty() {
            self.wake_polling();
        }
        let mut runnable = self.runnable.borrow_mut();
        let mut random = self.random.borrow_mut();
        let mut draw = || random.usize(..runnable.len());
        let priority = |i: usize| self.threads[runnable[i] as usize].priority.get();
        if runnable.is_empty() {
            return None;
        }
        let mut best = draw();
        for _ in 1..self.candidates {
            let other = draw();
            if priority(other) > priority(best) {
                best = other;
            }
        }
        Some(runnable.swap_remove(best) as usize)
    }

    /// No thread can run: lets those run that poll, unless they did too often in vain.
    #[cold]
    fn wake_polling(&self) {
        let parked = self.parked.take();
        let Some(first) = parked.first() else {
            return self.find_divergence();
        };
        let progress = self.progress.get();
        let rounds = match self.vain_rounds.get() {
            (before, rounds) if before == progress => rounds + 1,
            _ => 0,
        };
        self.vain_rounds.set((progress, rounds));
        if rounds > Self::VAIN_ROUNDS {
            let waits = |t: &&Thread| matches!(t.wait.get(), Wait::Barrier(_) | Wait::Warp(_));
            let kind = FaultKind::Deadlock {
                polling: parked.len(),
                waiting: self.threads.iter().filter(waits).count(),
                unstarted: self.unstarted.get(),
            };
            let thread = &self.threads[first.thread as usize];
            return self.set_fault(thread, Some(first.caller.into()), kind);
        }
        let threads = parked.iter().map(|parked| parked.thread);
        self.runnable.borrow_mut().extend(threads);
    }

    /// No thread can run, and none polls: either all have ended, or they wait for each other.
    fn find_divergence(&self) {
        for thread in &self.threads {
            if let Wait::Barrier(caller) = thread.wait.get() {
                let block = &self.threads[self.block_threads(thread.slot)];
                let elsewhere = block.iter().find_map(|other| match other.wait.get() {
                    Wait::Warp(call) => Some((other.gpu_thread(), call.call())),
                    _ => None,
                });
                let (other, call) = elsewhere.expect("a barrier that all reach is passed");
                let kind = FaultKind::BarrierDivergence { other, call };
                return self.set_fault(thread, Some(caller.into()), kind);
            }
        }
        for thread in &self.threads {
            if let Wait::Warp(call) = thread.wait.get() {
                let (_, warp) = self.warp(thread);
                let elsewhere = (0..)
                    .zip(warp)
                    .find_map(|(lane, other)| match other.wait.get() {
                        Wait::Warp(other) if call.has_lane(lane) && !call.meets(&other) => {
                            Some((lane, other.call()))
                        }
                        _ => None,
                    });
                let (lane, other) = elsewhere.expect("a warp function that all reach returns");
                let call = call.call();
                let kind = FaultKind::LaneElsewhere { call, lane, other };
                return self.set_fault(thread, Some(call.site), kind);
            }
        }
    }

    /// Runs `resume`, which runs thread `number`.
    pub(super) fn while_running<R>(&self, number: usize, resume: impl FnOnce() -> R) -> R {
        self.current.set(number);
        CURRENT.set(self);
        let result = resume();
        CURRENT.set(ptr::null());
        result
    }

    /// Thread `number` has returned. Gives the place of its block, if it was the last.
    pub(super) fn end_thread(&self, number: usize) -> Option<usize> {
        let thread = &self.threads[number];
        thread.wait.set(Wait::Ended);
        self.made_progress();
        for mate in self.warp(thread).1 {
            if let Wait::Warp(call) = mate.wait.get()
                && call.has_lane(thread.lane())
            {
                let kind = FaultKind::LaneMissing {
                    call: call.call(),
                    lane: thread.lane(),
                    ended: true,
                };
                self.set_fault(mate, Some(call.caller.into()), kind);
            }
        }
        let block = &self.blocks[thread.slot];
        block.live.set(block.live.get() - 1);
        if block.live.get() == 0 {
            return Some(thread.slot);
        }
        self.try_barrier(thread.slot);
        None
    }

    pub(super) fn panicked(&self, number: usize, message: String) {
        let kind = FaultKind::Panic { message };
        self.set_fault(&self.threads[number], None, kind);
    }

    pub(super) fn take_fault(&self) -> Option<Box<Fault>> {
        self.fault.take()
    }

    fn set_fault(&self, thread: &Thread, site: Option<Site>, kind: FaultKind) {
        self.fault.borrow_mut().get_or_insert_with(|| {
            Box::new(Fault {
                kernel: self.kernel.clone(),
                thread: Some(thread.gpu_thread()),
                site,
                seed: self.launch.seed,
                kind,
            })
        });
    }
}

/// What the running thread calls.
impl Machine {
    /// Lets other threads run until the scheduler comes back to this one.
    fn suspend(&self) {
        self.switches.set(self.switches.get() + 1);
        // SAFETY: the running thread set it, and it lives as long as the thread runs.
        unsafe { (*self.thread().yielder.get()).suspend(()) }
    }

    /// Ends the launch. The thread never runs again; its frames are unwound when it is dropped.
    #[cold]
    pub(super) fn fault(&self, caller: Caller, kind: FaultKind) -> ! {
        self.set_fault(self.thread(), Some(caller.into()), kind);
        loop {
            self.suspend();
        }
    }

    /// Lets another thread run.
    pub(super) fn switch(&self) {
        self.runnable.borrow_mut().push(self.current.get() as u32);
        self.suspend();
    }

    /// Counts a step, and lets another thread run now and then.
    #[inline]
    pub(super) fn step(&self, caller: Caller) {
        let fuel = self.fuel.get() - 1;
        self.fuel.set(fuel);
        if fuel == 0 {
            self.refuel(caller);
        }
    }

    #[cold]
    fn refuel(&self, caller: Caller) {
        let limit = self.launch.step_limit;
        if self.steps.get() >= limit {
            self.fault(caller, FaultKind::StepLimit { limit });
        }
        let fuel = self.random.borrow_mut().u32(1..=Self::FUEL);
        self.fuel.set(fuel);
        self.steps.set(self.steps.get() + u64::from(fuel));
        self.switch();
    }

    #[inline]
    pub(super) fn made_progress(&self) {
        self.progress.set(self.progress.get() + 1);
    }

    /// Lets other threads run before an atomic load that would now give `value`.
    pub(super) fn before_load(&self, caller: Caller, address: usize, value: u64) {
        if self.thread().polled.get() != (address, value) {
            self.made_progress();
            return self.switch();
        }
        self.parked.borrow_mut().push(Parked {
            thread: self.current.get() as u32,
            address,
            caller,
        });
        self.suspend();
    }

    /// Wakes the threads that poll an atomic.
    pub(super) fn after_store(&self, address: usize) {
        self.made_progress();
        let mut parked = self.parked.borrow_mut();
        let woken = parked.extract_if(.., |parked| parked.address == address);
        let threads = woken.map(|parked| parked.thread);
        self.runnable.borrow_mut().extend(threads);
    }

    fn is_removed(&self, caller: Caller) -> bool {
        self.launch.removed_barrier == Some(caller.into())
    }

    fn count_barrier(&self, caller: Caller) {
        *self.barriers.borrow_mut().entry(caller.into()).or_default() += 1;
    }

    pub(super) fn sync_threads(&self, caller: Caller) {
        if self.is_removed(caller) {
            return;
        }
        self.step(caller);
        let thread = self.thread();
        let block = &self.blocks[thread.slot];
        match block.first.get() {
            None => block.first.set(Some((thread.index.into(), caller))),
            Some((_, first_caller)) if is_same_site(first_caller, caller) => {}
            Some((first, first_caller)) => {
                let first = &self.threads[self.block_threads(thread.slot)][first as usize];
                let call = Wait::Barrier(first_caller).call().expect("it is a call");
                let other = first.gpu_thread();
                self.fault(caller, FaultKind::BarrierDivergence { other, call });
            }
        }
        thread.wait.set(Wait::Barrier(caller));
        block.arrived.set(block.arrived.get() + 1);
        self.try_barrier(thread.slot);
        self.suspend();
    }

    /// Opens the barrier of a block if all its live threads have arrived.
    fn try_barrier(&self, slot: usize) {
        let block = &self.blocks[slot];
        if block.arrived.get() != block.live.get() {
            return;
        }
        block.arrived.set(0);
        let (_, caller) = block.first.take().expect("a thread has arrived");
        self.count_barrier(caller);
        self.made_progress();
        let numbers = self.block_threads(slot);
        let waiting = || {
            let threads = numbers.clone().zip(&self.threads[numbers.clone()]);
            threads.filter(|(_, thread)| matches!(thread.wait.get(), Wait::Barrier(_)))
        };
        let mut clock = Rc::<Clock>::default();
        waiting().for_each(|(_, thread)| clock.join(&thread.clock.borrow()));
        let mut runnable = self.runnable.borrow_mut();
        for (number, thread) in waiting() {
            thread.clock.replace(Rc::clone(&clock));
            thread.epoch.set(thread.epoch.get().next_phase());
            thread.wait.set(Wait::No);
            runnable.push(number as u32);
        }
    }

    /// Waits for the lanes of the mask, and gives the result of the warp function.
    pub(super) fn warp_call(&self, call: WarpCall) -> u32 {
        let caller = call.caller;
        if call.function == WarpFunction::SyncWarp && self.is_removed(caller) {
            return 0;
        }
        self.step(caller);
        let thread = self.thread();
        let own_lane = thread.lane();
        if !call.has_lane(own_lane) {
            let (call, lane) = (call.call(), own_lane);
            self.fault(caller, FaultKind::NotInMask { call, lane });
        }
        if let Some(source_lane) = call.source(own_lane) {
            if !call.has_lane(source_lane) {
                let call = call.call();
                self.fault(caller, FaultKind::ShuffleSource { call, source_lane });
            }
            thread.word.set(source_lane);
        }
        thread.wait.set(Wait::Warp(call));
        let gathering = self.gathering(thread);
        let here = match gathering.take() {
            Some((other, here)) if other.meets(&call) => here | 1 << own_lane,
            _ => self.lanes_here(&call),
        };
        if here == call.mask {
            self.complete_warp_call(&call);
        } else {
            gathering.set(Some((call, here)));
        }
        self.suspend();
        thread.word.get()
    }

    /// The lanes that wait in the call that the running thread makes.
    fn lanes_here(&self, call: &WarpCall) -> u32 {
        let caller = call.caller;
        let thread = self.thread();
        let (_, warp) = self.warp(thread);
        let mut here = 0;
        for lane in (0..WARP_SIZE).filter(|&lane| call.has_lane(lane)) {
            match warp.get(lane as usize).map(|mate| mate.wait.get()) {
                None | Some(Wait::Ended) => {
                    let ended = (lane as usize) < warp.len();
                    let call = call.call();
                    self.fault(caller, FaultKind::LaneMissing { call, lane, ended });
                }
                Some(Wait::Warp(other)) if other.meets(call) => here |= 1 << lane,
                Some(Wait::Warp(other)) if other.has_lane(thread.lane()) => {
                    let (call, other) = (call.call(), other.call());
                    self.fault(caller, FaultKind::LaneElsewhere { call, lane, other });
                }
                Some(_) => {}
            }
        }
        here
    }

    /// All lanes of the mask wait in the call: gives each its result.
    fn complete_warp_call(&self, call: &WarpCall) {
        let (first, warp) = self.warp(self.thread());
        let lanes = || (0..).zip(warp).filter(|&(lane, _)| call.has_lane(lane));
        let mut words = [0; WARP_SIZE as usize];
        let mut ballot = 0;
        for (lane, mate) in lanes() {
            if let Wait::Warp(WarpCall { word, .. }) = mate.wait.replace(Wait::No) {
                words[lane as usize] = word;
                ballot |= u32::from(word != 0) << lane;
            }
        }
        if call.function == WarpFunction::SyncWarp {
            self.count_barrier(call.caller);
            self.made_progress();
            synchronise(lanes().map(|(_, mate)| mate));
        }
        let mut runnable = self.runnable.borrow_mut();
        for (lane, mate) in lanes() {
            mate.word.set(match call.function {
                WarpFunction::VoteAny => u32::from(ballot != 0),
                WarpFunction::VoteAll => u32::from(ballot == call.mask),
                WarpFunction::VoteBallot => ballot,
                WarpFunction::SyncWarp => 0,
                _ => words[mate.word.get() as usize],
            });
            runnable.push(first as u32 + lane);
        }
    }
}

/// Makes all that these lanes of a warp did happen before what they do next.
fn synchronise<'a>(lanes: impl Iterator<Item = &'a Thread> + Clone) {
    let mut clock = Rc::<Clock>::default();
    let mut known: Option<super::thread::Lanes> = None;
    for thread in lanes.clone() {
        clock.join(&thread.clock.borrow());
        let own = thread.lanes();
        let known = known.get_or_insert(own);
        for (tick, own) in known.ticks.iter_mut().zip(own.ticks) {
            *tick = own.max(*tick);
        }
        known.ticks[thread.lane() as usize] = thread.epoch.get().tick() + 1;
    }
    for thread in lanes {
        thread.clock.replace(Rc::clone(&clock));
        known
            .into_iter()
            .for_each(|known| thread.learn_lanes(known));
        thread.tick();
    }
}
