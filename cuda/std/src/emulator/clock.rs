//! Who knows of whose accesses: the happens-before order, as clocks.
//!
//! The threads of a block pass its barriers together. A thread's time is thus the number of barriers that its
//! block has passed (the *phase*), and, within a phase, how many times the thread has published what it did
//! (the *tick*: `sync_warp`, releases, fences). A full vector clock has an entry for each thread of the
//! grid; [`Clock`] has one for each block, plus one for each thread that is known beyond its block's entry.

use std::cmp::Ordering;
use std::rc::Rc;

const TICK_BITS: u32 = 12;

/// A thread's time: its phase and, in the low bits, its tick.
///
/// The tick saturates: a thread that publishes 4095 times between two barriers has its later races missed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Epoch(u32);

impl Epoch {
    pub(super) const START: Self = Self(0);
    /// Of a write that an asynchronous copy will make; later than any other.
    pub(super) const IN_FLIGHT: Self = Self(u32::MAX);

    const TICKS: u32 = (1 << TICK_BITS) - 1;

    pub(super) fn phase(self) -> u32 {
        self.0 >> TICK_BITS
    }

    pub(super) fn tick(self) -> u16 {
        (self.0 & Self::TICKS) as u16
    }

    /// The start of the phase.
    #[inline]
    pub(super) fn phase_start(self) -> Self {
        Self(self.0 & !Self::TICKS)
    }

    /// That tick of the phase.
    pub(super) fn at_tick(self, tick: u16) -> Self {
        Self(self.phase_start().0 | u32::from(tick))
    }

    pub(super) fn next_tick(self) -> Self {
        Self(self.0 + u32::from(self.0 & Self::TICKS < Self::TICKS))
    }

    pub(super) fn next_phase(self) -> Self {
        let next = self.phase_start().0.checked_add(Self::TICKS + 1);
        let next = next.filter(|&next| next < Self::IN_FLIGHT.phase() << TICK_BITS);
        Self(next.expect("in the emulator a block passes at most 2^20 - 2 barriers"))
    }
}

/// Who made an access, when, and from which site.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Stamp {
    pub(super) block: u32,
    pub(super) thread: u16,
    pub(super) site: u16,
    pub(super) epoch: Epoch,
}

impl Stamp {
    const NOBODY: u32 = u32::MAX;
    /// No access.
    pub(super) const NONE: Self = Self {
        block: Self::NOBODY,
        thread: 0,
        site: 0,
        epoch: Epoch::START,
    };
    /// An access before the launch.
    pub(super) const HOST: Self = Self {
        thread: 1,
        ..Self::NONE
    };

    #[inline]
    pub(super) fn is_none(self) -> bool {
        self.block == Self::NOBODY && self.thread == Self::NONE.thread
    }

    /// Whether the thread that stamps its accesses with `now` knows of this one by the barriers of its
    /// block alone, or because it made it.
    #[inline]
    pub(super) fn is_plain_past_of(self, now: Self) -> bool {
        self.block == Self::NOBODY
            || self.block == now.block
                && (self.epoch < now.epoch.phase_start() || self.thread == now.thread)
    }
}

/// What is known of a thread in the phase up to which its block is known: its ticks before `tick`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Known {
    block: u32,
    thread: u16,
    tick: u16,
}

impl Known {
    fn key(self) -> (u32, u16) {
        (self.block, self.thread)
    }
}

/// A set of accesses that is closed under "happens before".
#[derive(Clone, Default, Debug)]
pub(super) struct Clock {
    /// For each block, the phase before which all that its threads did is known; 0 beyond the end.
    phases: Vec<u32>,
    /// Sorted by block and thread.
    threads: Vec<Known>,
}

impl Clock {
    fn phase(&self, block: u32) -> u32 {
        self.phases.get(block as usize).copied().unwrap_or(0)
    }

    fn find(&self, block: u32, thread: u16) -> Result<usize, usize> {
        self.threads
            .binary_search_by_key(&(block, thread), |known| known.key())
    }

    pub(super) fn knows(&self, stamp: Stamp) -> bool {
        let phase = self.phase(stamp.block);
        match stamp.epoch.phase().cmp(&phase) {
            Ordering::Less => true,
            Ordering::Equal => self
                .find(stamp.block, stamp.thread)
                .is_ok_and(|i| stamp.epoch.tick() < self.threads[i].tick),
            Ordering::Greater => false,
        }
    }

    /// Adds what a thread did up to and including `epoch`, and what its block did before that phase.
    pub(super) fn learn(&mut self, block: u32, thread: u16, epoch: Epoch) {
        let index = block as usize;
        if self.phases.len() <= index {
            self.phases.resize(index + 1, 0);
        }
        match self.phases[index].cmp(&epoch.phase()) {
            Ordering::Less => {
                self.phases[index] = epoch.phase();
                self.threads.retain(|known| known.block != block);
            }
            Ordering::Equal => {}
            Ordering::Greater => return,
        }
        let tick = epoch.tick() + 1;
        match self.find(block, thread) {
            Ok(i) => self.threads[i].tick = self.threads[i].tick.max(tick),
            Err(i) => self.threads.insert(
                i,
                Known {
                    block,
                    thread,
                    tick,
                },
            ),
        }
    }

    fn merged(&self, other: &Self) -> Self {
        let blocks = self.phases.len().max(other.phases.len()) as u32;
        let phases: Vec<_> = (0..blocks)
            .map(|block| self.phase(block).max(other.phase(block)))
            .collect();
        let mut threads = Vec::with_capacity(self.threads.len() + other.threads.len());
        let current = |clock: &Self, known: &Known| {
            let phase = phases.get(known.block as usize).copied().unwrap_or(0);
            clock.phase(known.block) == phase
        };
        let mut left = self.threads.iter().filter(|k| current(self, k)).peekable();
        let mut right = other
            .threads
            .iter()
            .filter(|k| current(other, k))
            .peekable();
        while let (Some(l), Some(r)) = (left.peek(), right.peek()) {
            threads.push(match l.key().cmp(&r.key()) {
                Ordering::Less => *left.next().expect("peeked"),
                Ordering::Greater => *right.next().expect("peeked"),
                Ordering::Equal => {
                    let tick = l.tick.max(r.tick);
                    let known = Known { tick, ..**l };
                    left.next();
                    right.next();
                    known
                }
            });
        }
        threads.extend(left.chain(right));
        Self { phases, threads }
    }

    /// Adds all that `other` knows.
    pub(super) fn join(self: &mut Rc<Self>, other: &Rc<Self>) {
        if Rc::ptr_eq(self, other) || other.phases.is_empty() {
            return;
        }
        *self = if self.phases.is_empty() {
            Rc::clone(other)
        } else {
            Rc::new(self.merged(other))
        };
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    const BLOCKS: u32 = 3;
    const THREADS: u16 = 2;
    const PHASES: u32 = 3;
    const TICKS: u16 = 3;

    fn stamps() -> impl Iterator<Item = Stamp> {
        let epochs = || {
            (0..PHASES).flat_map(|phase| {
                let start = (0..phase).fold(Epoch::START, |epoch, _| epoch.next_phase());
                (0..TICKS).map(move |tick| start.at_tick(tick))
            })
        };
        let stamp = |block, thread, epoch| Stamp {
            block,
            thread,
            epoch,
            site: 0,
        };
        let threads = (0..BLOCKS).flat_map(|b| (0..THREADS).map(move |t| (b, t)));
        threads.flat_map(move |(b, t)| epochs().map(move |epoch| stamp(b, t, epoch)))
    }

    fn known_after(last: Stamp) -> impl Iterator<Item = (u32, u16, u32)> {
        let earlier = move |stamp: &Stamp| {
            let own = stamp.thread == last.thread && stamp.epoch <= last.epoch;
            stamp.block == last.block && (own || stamp.epoch < last.epoch.phase_start())
        };
        stamps().filter(earlier).map(key)
    }

    fn key(stamp: Stamp) -> (u32, u16, u32) {
        (stamp.block, stamp.thread, stamp.epoch.0)
    }

    #[test]
    fn a_clock_is_a_set_of_accesses() {
        let mut random = fastrand::Rng::with_seed(1);
        let all: Vec<_> = stamps().collect();
        let mut clocks = [(); 4].map(|()| (Rc::<Clock>::default(), HashSet::new()));
        for _ in 0..5_000 {
            let (i, j) = (random.usize(..clocks.len()), random.usize(..clocks.len()));
            match random.u32(..6) {
                0 => clocks[i] = Default::default(),
                1..3 => {
                    let last = all[random.usize(..all.len())];
                    let (clock, set) = &mut clocks[i];
                    Rc::make_mut(clock).learn(last.block, last.thread, last.epoch);
                    set.extend(known_after(last));
                }
                _ => {
                    let (other, more) = clocks[j].clone();
                    let (clock, set) = &mut clocks[i];
                    clock.join(&other);
                    set.extend(more);
                }
            }
            let (clock, set) = &clocks[i];
            assert!(
                all.iter()
                    .all(|&stamp| clock.knows(stamp) == set.contains(&key(stamp)))
            );
        }
    }

    #[test]
    fn ticks_saturate_within_a_phase() {
        let mut epoch = Epoch::START.next_phase();
        for _ in 0..5_000 {
            epoch = epoch.next_tick();
        }
        assert_eq!((epoch.phase(), epoch.tick()), (1, 4095));
        assert_eq!(epoch.next_phase().phase(), 2);
        assert!(epoch < Epoch::IN_FLIGHT);
    }
}
