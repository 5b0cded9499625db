//! How the tiles of a sequence are joined, whichever strategy scans it.
//!
//! The aggregates of a `GROUP` of tiles are composed in order, and the carry goes from group to group. So a strategy
//! that has each tile in another block can compose the groups side by side, and still gives the bits of the one
//! that goes from tile to tile.

use crate::monoid::Action;

/// What enters the tiles of a sequence, one after the other.
#[derive(Clone, Copy)]
pub struct Chain<M: Action, const GROUP: usize> {
    /// What enters the group.
    base: M::Carry,
    /// The aggregate of the group's tiles so far.
    within: M,
}

impl<M: Action, const GROUP: usize> Chain<M, GROUP> {
    /// The chain of a sequence that `carry` enters.
    #[inline(always)]
    #[must_use]
    pub fn new(carry: M::Carry) -> Self {
        Self {
            base: carry,
            within: M::IDENTITY,
        }
    }

    /// What enters tile `tile`, after all tiles before it.
    #[inline(always)]
    #[must_use]
    pub fn carry(&self, tile: u32) -> M::Carry {
        if tile.is_multiple_of(GROUP as u32) {
            self.base
        } else {
            self.within.apply(self.base)
        }
    }

    /// Takes the chain through tile `tile`, whose aggregate is `total`.
    #[inline(always)]
    pub fn advance(&mut self, tile: u32, total: M) {
        let position = tile % GROUP as u32;
        self.within = if position == 0 {
            total
        } else {
            self.within.then(total)
        };
        if position == GROUP as u32 - 1 {
            self.base = self.within.apply(self.base);
        }
    }
}
