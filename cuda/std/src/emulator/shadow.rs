//! The shadow of memory: for each granule of it, who wrote and who read it last.
//!
//! The algorithm is FastTrack's (Flanagan and Freund, 2009): a write is ordered after all earlier accesses, or
//! it is a race, so that one stamp is enough for the writes; one is mostly enough for the reads, and a set
//! is kept where it is not.

use std::cmp::Reverse;
use std::rc::Rc;

use super::clock::{Clock, Epoch, Stamp};
use super::fault::AccessKind;

/// Who makes an access, and what it knows of earlier ones.
pub(super) trait Observer {
    /// The stamp of the access.
    fn stamp(&self) -> Stamp;

    /// Whether the observer knows of `stamp` by other means than [`Stamp::is_plain_past_of`].
    fn has_heard_of(&self, stamp: Stamp) -> bool;

    /// Whether the access `stamp` happens before what the observer does now.
    #[inline]
    fn knows(&self, stamp: Stamp) -> bool {
        stamp.is_plain_past_of(self.stamp()) || self.has_heard_of(stamp)
    }
}

/// Why an access cannot be.
#[derive(Debug)]
pub(super) enum Conflict {
    Unwritten,
    InFlight(Stamp),
    Race(AccessKind, Stamp),
}

/// A set of accesses: of each thread, the last at least.
#[derive(Clone, Default, Debug)]
struct Stamps(Vec<Stamp>);

impl Stamps {
    fn add(&mut self, stamp: Stamp) {
        if self.0.len() == self.0.capacity() {
            self.thin();
        }
        self.0.push(stamp);
    }

    /// Leaves the last access of each thread, and room for as many more.
    #[cold]
    fn thin(&mut self) {
        self.0
            .sort_unstable_by_key(|stamp| (stamp.block, stamp.thread, Reverse(stamp.epoch)));
        self.0.dedup_by_key(|stamp| (stamp.block, stamp.thread));
        self.0.reserve(self.0.len());
    }

    /// # Errors
    /// One of the accesses, all of them of `kind`, does not happen before what the observer does now.
    fn check(&self, kind: AccessKind, observer: &impl Observer) -> Result<(), Conflict> {
        match self.0.iter().find(|&&stamp| !observer.knows(stamp)) {
            Some(&stamp) => Err(Conflict::Race(kind, stamp)),
            None => Ok(()),
        }
    }
}

/// What few granules have.
#[derive(Clone, Default, Debug)]
struct More {
    /// The readers since the last write beside the one that the granule itself has.
    readers: Stamps,
    atomic_loads: Stamps,
    atomic_stores: Stamps,
    released: Option<Rc<Clock>>,
}

/// The smallest piece of memory that has a history of its own.
#[derive(Clone, Debug)]
pub(super) struct Granule {
    write: Stamp,
    read: Stamp,
    more: Option<Box<More>>,
}

impl Granule {
    pub(super) const UNWRITTEN: Self = Self {
        write: Stamp::NONE,
        read: Stamp::NONE,
        more: None,
    };
    pub(super) const WRITTEN: Self = Self {
        write: Stamp::HOST,
        ..Self::UNWRITTEN
    };

    #[inline]
    pub(super) fn is_written(&self) -> bool {
        !self.write.is_none()
    }

    /// Forgets who accessed it.
    pub(super) fn forget_launch(&mut self) {
        *self = if self.is_written() {
            Self::WRITTEN
        } else {
            Self::UNWRITTEN
        };
    }

    #[inline]
    fn check_write(&self, observer: &impl Observer) -> Result<(), Conflict> {
        if self.write.epoch == Epoch::IN_FLIGHT {
            return Err(Conflict::InFlight(self.write));
        }
        if !observer.knows(self.write) {
            return Err(Conflict::Race(AccessKind::Write, self.write));
        }
        Ok(())
    }

    #[inline]
    fn check_read(&self, observer: &impl Observer) -> Result<(), Conflict> {
        if !observer.knows(self.read) {
            return Err(Conflict::Race(AccessKind::Read, self.read));
        }
        Ok(())
    }

    #[inline]
    fn check_written(&self) -> Result<(), Conflict> {
        if self.is_written() {
            Ok(())
        } else {
            Err(Conflict::Unwritten)
        }
    }

    #[inline]
    pub(super) fn read(&mut self, observer: &impl Observer) -> Result<(), Conflict> {
        self.check_written()?;
        self.check_write(observer)?;
        if let Some(more) = &mut self.more {
            more.atomic_stores
                .check(AccessKind::AtomicStore, observer)?;
            more.readers.add(observer.stamp());
        } else if observer.knows(self.read) {
            self.read = observer.stamp();
        } else {
            let more = self.more.get_or_insert_default();
            more.readers.add(observer.stamp());
        }
        Ok(())
    }

    #[inline]
    pub(super) fn write(&mut self, observer: &impl Observer) -> Result<(), Conflict> {
        self.check_write(observer)?;
        self.check_read(observer)?;
        if let Some(more) = self.more.take() {
            more.readers.check(AccessKind::Read, observer)?;
            more.atomic_loads.check(AccessKind::AtomicLoad, observer)?;
            more.atomic_stores
                .check(AccessKind::AtomicStore, observer)?;
        }
        self.read = Stamp::NONE;
        self.write = observer.stamp();
        Ok(())
    }

    /// Marks that an asynchronous copy is to write it; [`write`](Self::write) went before.
    pub(super) fn depart(&mut self) {
        self.write.epoch = Epoch::IN_FLIGHT;
    }

    /// The asynchronous copy has written it, at `epoch`.
    pub(super) fn land(&mut self, epoch: Epoch) {
        self.write.epoch = epoch;
    }

    pub(super) fn atomic_load(&mut self, observer: &impl Observer) -> Result<(), Conflict> {
        self.check_written()?;
        self.check_write(observer)?;
        let more = self.more.get_or_insert_default();
        more.atomic_loads.add(observer.stamp());
        Ok(())
    }

    pub(super) fn atomic_store(&mut self, observer: &impl Observer) -> Result<(), Conflict> {
        self.check_write(observer)?;
        self.check_read(observer)?;
        let more = self.more.get_or_insert_default();
        more.readers.check(AccessKind::Read, observer)?;
        more.atomic_stores.add(observer.stamp());
        if self.write.is_none() {
            self.write = Stamp::HOST;
        }
        Ok(())
    }

    /// What an acquiring load of the granule learns.
    pub(super) fn released(&self) -> Option<Rc<Clock>> {
        self.more.as_ref()?.released.clone()
    }

    /// What a later acquiring load learns; an atomic store went before.
    pub(super) fn release(&mut self, clock: Option<Rc<Clock>>) {
        self.more.get_or_insert_default().released = clock;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_keeps_the_last_access_of_each_thread() {
        let mut random = fastrand::Rng::with_seed(1);
        let mut stamps = Stamps::default();
        let mut epoch = Epoch::START;
        let mut last = [None; 5];
        for _ in 0..4_000 {
            epoch = epoch.next_tick();
            let thread = random.u16(..5);
            let stamp = Stamp {
                block: 0,
                thread,
                site: 0,
                epoch,
            };
            stamps.add(stamp);
            last[usize::from(thread)] = Some(stamp);
            assert!(last.iter().flatten().all(|stamp| stamps.0.contains(stamp)));
        }
        assert!(stamps.0.len() <= 2 * last.len(), "{}", stamps.0.len());
    }
}
