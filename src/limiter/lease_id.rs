//! Lease ids: unique across instances, and not guessable.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::key::{KeyBuilder, KeySeed};
use crate::step::LeaseId;

/// Generates the lease ids of this process: a counter, hashed with a random seed.
pub(super) struct LeaseIds {
    seed: KeySeed,
    next: AtomicU64,
}

impl LeaseIds {
    /// A generator with a random seed.
    pub(super) fn new() -> LeaseIds {
        LeaseIds { seed: KeySeed::random(), next: AtomicU64::new(0) }
    }

    /// The next id.
    pub(super) fn next(&self) -> LeaseId {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        LeaseId::from_bits(KeyBuilder::start(&self.seed).number(number).finish().0[0])
    }
}

/// The id in the value of a `lease` entry. A text that is no id maps to an id that no lease has, so
/// that closing it changes nothing.
pub(super) fn parse(text: &str) -> LeaseId {
    text.parse().unwrap_or_else(|_| {
        let unknown = KeyBuilder::start(&KeySeed::fixed([1, 1])).text(text).finish();
        LeaseId::from_bits(unknown.0[0])
    })
}
