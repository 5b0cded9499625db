//! A thread of a launch: what it waits for, and what it knows of other threads' accesses.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::panic::Location;
use std::ptr;
use std::rc::Rc;

use corosensei::Yielder;

use super::clock::{Clock, Epoch, Stamp};
use super::fault::{Call, GpuThread};
use super::memory::GlobalPointer;
use super::shadow::Observer;
use crate::warp::WARP_SIZE;

/// Where a device function was called.
pub(super) type Caller = &'static Location<'static>;

/// Whether two callers are the same place; a place can have several addresses.
#[inline]
pub(super) fn is_same_site(left: Caller, right: Caller) -> bool {
    ptr::eq(left, right) || left == right
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum WarpFunction {
    ShuffleIdx,
    ShuffleUp,
    ShuffleDown,
    ShuffleXor,
    VoteAny,
    VoteAll,
    VoteBallot,
    SyncWarp,
}

impl WarpFunction {
    fn name(self) -> &'static str {
        match self {
            Self::ShuffleIdx => "shuffle_idx",
            Self::ShuffleUp => "shuffle_up",
            Self::ShuffleDown => "shuffle_down",
            Self::ShuffleXor => "shuffle_xor",
            Self::VoteAny => "vote_any",
            Self::VoteAll => "vote_all",
            Self::VoteBallot => "vote_ballot",
            Self::SyncWarp => "sync_warp",
        }
    }
}

/// A call of a warp function by a lane.
#[derive(Clone, Copy, Debug)]
pub(super) struct WarpCall {
    pub(super) function: WarpFunction,
    pub(super) mask: u32,
    /// What the lane gives: a shuffle's value, a vote's predicate.
    pub(super) word: u32,
    /// A shuffle's second argument.
    pub(super) argument: u32,
    pub(super) caller: Caller,
}

impl WarpCall {
    /// Whether two lanes that wait in these wait for each other: at the same place, where the function asks
    /// for that.
    pub(super) fn meets(&self, other: &Self) -> bool {
        self.function == other.function
            && self.mask == other.mask
            && (self.function == WarpFunction::SyncWarp || is_same_site(self.caller, other.caller))
    }

    pub(super) fn has_lane(&self, lane: u32) -> bool {
        lane < WARP_SIZE && self.mask & 1 << lane != 0
    }

    pub(super) fn call(&self) -> Call {
        Call {
            function: self.function.name(),
            mask: Some(self.mask),
            site: self.caller.into(),
        }
    }

    /// The lane that `lane` reads from, which need not exist; `None` if the function is no shuffle.
    pub(super) fn source(&self, lane: u32) -> Option<u32> {
        let argument = self.argument;
        let source = match self.function {
            WarpFunction::ShuffleIdx => argument,
            WarpFunction::ShuffleUp => lane.checked_sub(argument).unwrap_or(lane),
            WarpFunction::ShuffleDown if argument < WARP_SIZE - lane => lane + argument,
            WarpFunction::ShuffleDown => lane,
            WarpFunction::ShuffleXor => lane ^ argument,
            _ => return None,
        };
        // The GPU takes the argument modulo 32, which no shuffle promises.
        Some(if argument < WARP_SIZE {
            source
        } else {
            argument
        })
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Wait {
    /// For its turn.
    No,
    Barrier(Caller),
    Warp(WarpCall),
    /// It has ended.
    Ended,
}

impl Wait {
    pub(super) fn call(&self) -> Option<Call> {
        match self {
            Self::Barrier(caller) => Some(Call {
                function: "sync_threads",
                mask: None,
                site: (*caller).into(),
            }),
            Self::Warp(call) => Some(call.call()),
            Self::No | Self::Ended => None,
        }
    }
}

/// An asynchronous copy on its way.
pub(super) struct AsyncCopy {
    /// The offset in shared memory, in bytes.
    pub(super) target: usize,
    /// The elements' type is forgotten; the pointer still counts in them.
    pub(super) source: GlobalPointer<()>,
    pub(super) element_bytes: usize,
    pub(super) count: usize,
    /// What the source held when the copy began, with a tail that means nothing.
    pub(super) bytes: [u8; 16],
    pub(super) caller: Caller,
}

/// The asynchronous copies of a thread that it has not waited for.
#[derive(Default)]
pub(super) struct AsyncCopies {
    pub(super) open: Vec<AsyncCopy>,
    pub(super) committed: VecDeque<Vec<AsyncCopy>>,
}

/// What a thread knows of the lanes of its warp beyond the barriers of its block: the ticks of the phase
/// before `ticks[lane]`.
#[derive(Clone, Copy)]
pub(super) struct Lanes {
    phase: Epoch,
    pub(super) ticks: [u16; WARP_SIZE as usize],
}

impl Lanes {
    const NONE: Self = Self {
        phase: Epoch::START,
        ticks: [0; WARP_SIZE as usize],
    };
}

/// A thread of a resident block.
pub(super) struct Thread {
    /// The place of its block among the resident ones.
    pub(super) slot: usize,
    pub(super) index: u16,
    pub(super) block: Cell<u32>,
    /// How much the schedule favours it: the same for all of a warp.
    pub(super) priority: Cell<u32>,
    pub(super) epoch: Cell<Epoch>,
    pub(super) wait: Cell<Wait>,
    pub(super) yielder: Cell<*const Yielder<(), ()>>,
    /// The lane that its shuffle reads from; then what its warp function gives.
    pub(super) word: Cell<u32>,
    /// Where the shuffles that follow were asked for.
    pub(super) noted: Cell<Caller>,
    /// Address and value of its last atomic load.
    pub(super) polled: Cell<(usize, u64)>,
    lanes: Cell<Lanes>,
    /// What it knows beyond its block's barriers and its warp's.
    pub(super) clock: RefCell<Rc<Clock>>,
    /// What its relaxed stores release, since its last fence.
    pub(super) fenced: RefCell<Option<Rc<Clock>>>,
    /// What its next fence acquires, from its relaxed loads.
    pub(super) loaded: RefCell<Rc<Clock>>,
    pub(super) copies: RefCell<AsyncCopies>,
}

impl Thread {
    pub(super) fn new(slot: usize, index: u16) -> Self {
        Self {
            slot,
            index,
            block: Cell::new(0),
            priority: Cell::new(0),
            epoch: Cell::new(Epoch::START),
            wait: Cell::new(Wait::Ended),
            yielder: Cell::new(ptr::null()),
            word: Cell::new(0),
            noted: Cell::new(Location::caller()),
            polled: Cell::new((0, 0)),
            lanes: Cell::new(Lanes::NONE),
            clock: RefCell::default(),
            fenced: RefCell::default(),
            loaded: RefCell::default(),
            copies: RefCell::default(),
        }
    }

    /// Makes it a thread of another block.
    pub(super) fn start(&self, block: u32, priority: u32) {
        self.block.set(block);
        self.priority.set(priority);
        self.epoch.set(Epoch::START);
        self.wait.set(Wait::No);
        self.polled.set((0, 0));
        self.lanes.set(Lanes::NONE);
        self.clock.take();
        self.fenced.take();
        self.loaded.take();
        self.copies.take();
    }

    pub(super) fn gpu_thread(&self) -> GpuThread {
        GpuThread {
            block: self.block.get(),
            thread: self.index.into(),
        }
    }

    pub(super) fn lane(&self) -> u32 {
        u32::from(self.index) % WARP_SIZE
    }

    /// What it knows of its warp.
    pub(super) fn lanes(&self) -> Lanes {
        let phase = self.epoch.get().phase_start();
        match self.lanes.get() {
            lanes if lanes.phase == phase => lanes,
            _ => Lanes {
                phase,
                ..Lanes::NONE
            },
        }
    }

    pub(super) fn learn_lanes(&self, lanes: Lanes) {
        self.lanes.set(lanes);
    }

    pub(super) fn tick(&self) {
        self.epoch.set(self.epoch.get().next_tick());
    }

    /// All that happens before what the thread does next; it then ticks.
    pub(super) fn publish(&self) -> Rc<Clock> {
        let mut clock = Clock::clone(&self.clock.borrow());
        let (block, now) = (self.block.get(), self.epoch.get());
        clock.learn(block, self.index, now);
        let warp = self.index - self.lane() as u16;
        for (thread, ticks) in (warp..).zip(self.lanes().ticks) {
            if let Some(last) = ticks.checked_sub(1) {
                clock.learn(block, thread, now.at_tick(last));
            }
        }
        self.tick();
        Rc::new(clock)
    }

    /// Makes `clock` happen before what the thread does next.
    pub(super) fn acquire(&self, clock: &Rc<Clock>) {
        self.clock.borrow_mut().join(clock);
    }

    /// The thread as it accesses memory at a site.
    #[inline]
    pub(super) fn at_site(&self, site: u16) -> Now<'_> {
        let stamp = Stamp {
            block: self.block.get(),
            thread: self.index,
            site,
            epoch: self.epoch.get(),
        };
        Now {
            thread: self,
            stamp,
        }
    }
}

/// A thread as it makes an access.
pub(super) struct Now<'a> {
    thread: &'a Thread,
    stamp: Stamp,
}

impl Observer for Now<'_> {
    #[inline]
    fn stamp(&self) -> Stamp {
        self.stamp
    }

    #[cold]
    fn has_heard_of(&self, stamp: Stamp) -> bool {
        let warp = |stamp: Stamp| (stamp.block, u32::from(stamp.thread) / WARP_SIZE);
        let lane = u32::from(stamp.thread) % WARP_SIZE;
        let by_warp = || {
            stamp.epoch.phase() == self.stamp.epoch.phase()
                && stamp.epoch.tick() < self.thread.lanes().ticks[lane as usize]
        };
        warp(stamp) == warp(self.stamp) && by_warp() || self.thread.clock.borrow().knows(stamp)
    }
}
