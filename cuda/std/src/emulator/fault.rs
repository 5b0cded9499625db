//! What the emulator reports.

use std::fmt;
use std::panic::Location;

use thiserror::Error;

use crate::warp::WARP_SIZE;

/// A place in the source, such as that of a call.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Site {
    /// The file, as the compiler was given it.
    pub file: &'static str,
    /// The line, from 1.
    pub line: u32,
    /// The column, from 1.
    pub column: u32,
}

impl From<&Location<'static>> for Site {
    fn from(location: &Location<'static>) -> Self {
        Self {
            file: location.file(),
            line: location.line(),
            column: location.column(),
        }
    }
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

/// A thread of a launch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct GpuThread {
    /// The index of its block in the grid.
    pub block: u32,
    /// Its index in the block.
    pub thread: u32,
}

impl GpuThread {
    /// The warp of its block that it is in.
    #[must_use]
    pub fn warp(self) -> u32 {
        self.thread / WARP_SIZE
    }

    /// Its lane in that warp.
    #[must_use]
    pub fn lane(self) -> u32 {
        self.thread % WARP_SIZE
    }
}

impl fmt::Display for GpuThread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (warp, lane) = (self.warp(), self.lane());
        let Self { block, thread } = self;
        write!(
            f,
            "block {block}, thread {thread} (warp {warp}, lane {lane})"
        )
    }
}

/// A place in memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Place {
    /// An element of the allocation of that number, counted from 0 in its `Memory`.
    Global {
        /// The allocation's number.
        allocation: usize,
        /// The element's index.
        element: usize,
    },
    /// A byte of the block's shared memory.
    Shared {
        /// The byte's offset.
        byte: usize,
    },
}

impl Place {
    fn unit(self) -> &'static str {
        match self {
            Self::Global { .. } => "elements",
            Self::Shared { .. } => "bytes",
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Global {
                allocation,
                element,
            } => {
                write!(f, "element {element} of global allocation {allocation}")
            }
            Self::Shared { byte } => write!(f, "byte {byte} of shared memory"),
        }
    }
}

/// What an access does.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AccessKind {
    /// An ordinary read.
    Read,
    /// An ordinary write.
    Write,
    /// An atomic load.
    AtomicLoad,
    /// An atomic store, or the write of a read-modify-write operation.
    AtomicStore,
    /// An asynchronous copy, on its way.
    AsyncCopy,
    /// No access yet: the making of a view.
    View,
}

impl fmt::Display for AccessKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::AtomicLoad => "atomic load",
            Self::AtomicStore => "atomic store",
            Self::AsyncCopy => "asynchronous copy",
            Self::View => "view",
        })
    }
}

/// An access that a thread made.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Access {
    /// What it did.
    pub kind: AccessKind,
    /// The thread that made it.
    pub thread: GpuThread,
    /// Where.
    pub site: Site,
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} by {} at {}", self.kind, self.thread, self.site)
    }
}

/// A call in which a thread waits for others.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Call {
    /// The function's name.
    pub function: &'static str,
    /// The mask of lanes, if it takes one.
    pub mask: Option<u32>,
    /// Where.
    pub site: Site,
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", self.function)?;
        if let Some(mask) = self.mask {
            write!(f, " with mask {mask:#010x}")?;
        }
        write!(f, " at {}", self.site)
    }
}

/// What went wrong.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum FaultKind {
    /// An access, or the start of a view, beyond the end.
    #[error("{access} out of bounds: {count} {} from {place} on, of {size}", place.unit())]
    OutOfBounds {
        /// What was tried.
        access: AccessKind,
        /// Where it begins.
        place: Place,
        /// How many elements (global memory) or bytes (shared memory) it covers.
        count: usize,
        /// How many there are.
        size: usize,
    },
    /// An access of several elements at an address that is not a multiple of its size.
    #[error(
        "misaligned {access}: {bytes} bytes at once at {place}, whose address is no multiple of {bytes}"
    )]
    Misaligned {
        /// What was tried.
        access: AccessKind,
        /// Where it begins.
        place: Place,
        /// Its size.
        bytes: usize,
    },
    /// A read of what nothing wrote.
    #[error("{access} of {place}, which nothing has written")]
    Unwritten {
        /// What was tried.
        access: AccessKind,
        /// Where.
        place: Place,
    },
    /// Two accesses, at least one of them a write, at least one of them not atomic, that nothing orders.
    #[error("data race: {access} of {place}; nothing orders it after the {other}")]
    Race {
        /// The later of the two in the schedule that was run.
        access: AccessKind,
        /// Where.
        place: Place,
        /// The earlier.
        other: Access,
    },
    /// An access to the target of an asynchronous copy that its thread has not waited for.
    #[error("{access} of {place}, the target of an {copy}, which has not waited for it")]
    InFlight {
        /// What was tried.
        access: AccessKind,
        /// Where.
        place: Place,
        /// The copy.
        copy: Access,
    },
    /// The source of an asynchronous copy changed before its thread had waited for it.
    #[error("{place}, the source of an asynchronous copy, changed before the copy was waited for")]
    SourceChanged {
        /// Where.
        place: Place,
    },
    /// A thread waits at a barrier that another thread of the block does not reach.
    #[error("it waits at the barrier for {other}, which waits in {call}")]
    BarrierDivergence {
        /// The other thread.
        other: GpuThread,
        /// The call that it waits in.
        call: Call,
    },
    /// A warp function whose mask lacks the lane that calls it.
    #[error("{call} is called by lane {lane}, which is not in the mask")]
    NotInMask {
        /// The call.
        call: Call,
        /// The calling lane.
        lane: u32,
    },
    /// A warp function that waits for a lane that has ended, or was never there.
    #[error("{call} waits for lane {lane}, which {}", if *ended { "has ended" } else { "does not exist" })]
    LaneMissing {
        /// The call.
        call: Call,
        /// The lane.
        lane: u32,
        /// Whether it has ended.
        ended: bool,
    },
    /// A warp function that waits for a lane that is in another call.
    #[error("{call} waits for lane {lane}, which waits in {other}")]
    LaneElsewhere {
        /// The call.
        call: Call,
        /// The lane.
        lane: u32,
        /// The call that the lane waits in.
        other: Call,
    },
    /// A shuffle that reads from a lane that takes no part.
    #[error("{call} reads from lane {source_lane}, which takes no part in it")]
    ShuffleSource {
        /// The call.
        call: Call,
        /// The lane that it reads from; 32 or more if there is no such lane.
        source_lane: u32,
    },
    /// Every thread waits for something that none of them brings about.
    #[error(
        "deadlock: it polls in vain, as do {polling} threads in all; {waiting} more wait at barriers or for \
         lanes, and {unstarted} blocks cannot start before a resident one ends"
    )]
    Deadlock {
        /// The threads that poll an atomic that no thread writes any more.
        polling: usize,
        /// The threads that wait in a barrier or a warp function.
        waiting: usize,
        /// The blocks that have not started.
        unstarted: u32,
    },
    /// The launch took more steps than its limit.
    #[error("the launch goes on after {limit} steps")]
    StepLimit {
        /// The limit.
        limit: u64,
    },
    /// The kernel called `trap`.
    #[error("the kernel called `trap`")]
    Trap,
    /// The kernel panicked.
    #[error("the kernel panicked: {message}")]
    Panic {
        /// The panic's message, and its place.
        message: String,
    },
    /// The launch itself is impossible.
    #[error("`{argument}` must be {expected}, but is {got}")]
    InvalidLaunch {
        /// The argument.
        argument: &'static str,
        /// What was expected.
        expected: &'static str,
        /// What was got.
        got: String,
    },
}

/// An error that the emulator found in a kernel.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error(
    "kernel `{kernel}`{}{}:\n  {kind}\n  (seed {seed}: {SEED_VARIABLE}={seed} runs the same schedule)",
    self.thread.map_or(String::new(), |thread| format!(", {thread}")),
    self.site.map_or(String::new(), |site| format!(", at {site}")),
)]
pub struct Fault {
    /// The kernel's name.
    pub kernel: String,
    /// The thread at fault, or one of them.
    pub thread: Option<GpuThread>,
    /// The place in the source, where there is one.
    pub site: Option<Site>,
    /// The schedule's seed.
    pub seed: u64,
    /// What went wrong.
    pub kind: FaultKind,
}

/// The environment variable that overrides the seed of every launch.
pub const SEED_VARIABLE: &str = "CUDA_STD_EMULATOR_SEED";
