//! Tiles that find their carry by looking back: the order in which blocks take them, and what they publish.
//!
//! After Merrill and Garland, "Single-pass parallel prefix scan with decoupled look-back", NVIDIA technical report
//! NVR-2016-002 (2016). A block takes tiles by ticket, in an order in which a tile comes after all those that it
//! depends on. As soon as it knows its aggregate it publishes that, and once it knows its carry it publishes what
//! the next tile is given, its *prefix*. A tile looks back over its predecessors to the nearest prefix, and takes it
//! through the aggregates in between one by one, oldest first. That is the sequence of operations by which those
//! tiles came, or will come, to their prefixes; so the result is the same to the bit whatever had been published.
//!
//! A published value is a word of 64 bits: 32 bits of the value, and a tag that says of which run it is, and whether
//! an aggregate or a prefix. Each word is read and written atomically, so that no order among words matters.

use crate::monoid::Operator;
use cuda_std::{AtomicScalar, Global, thread};

/// Words at the start of the scratch memory, before the published values.
pub const HEADER: usize = 4;
/// The next ticket.
const TICKET: usize = 0;
/// The blocks that are done.
const DONE: usize = 1;
/// The runs so far.
const RUN: usize = 2;

/// What a run has in scratch memory, which was zero before the first run.
#[derive(Clone, Copy)]
pub struct Scratch {
    words: Global<u64>,
    /// The tag of this run's aggregates; that of its prefixes is one more.
    tag: u32,
}

/// What is published of a tile.
#[derive(Clone, Copy)]
pub enum Published<M, C> {
    /// Nothing yet in this run.
    Nothing,
    /// Its aggregate.
    Aggregate(M),
    /// Its prefix.
    Prefix(C),
}
