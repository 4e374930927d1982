//! Hashes of customers, in place of their names.

use crate::key::{CounterKey, KeySeed};

/// The bits of [`CustomerHash::tag`] that a table compares.
const TAG_BITS: u64 = !0xffff;

/// A keyed hash of a customer's name, of 128 bits. The seed is random, so a client cannot choose a
/// name with the hash of another customer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CustomerHash {
    place: u64,
    tag: u64,
}

impl CustomerHash {
    pub(super) fn of(seed: &KeySeed, customer: &str) -> CustomerHash {
        let CounterKey([place, tag]) = seed.hash_text(customer);
        CustomerHash { place, tag }
    }

    /// A place below `places`, which must not be 0. Equally likely for each.
    pub(super) fn place_in(self, places: usize) -> usize {
        let scaled = u128::from(self.place) * places as u128;
        usize::try_from(scaled >> 64).unwrap_or(0)
    }

    /// The bits that distinguish customers of nearby places, as the upper 48 bits of a number.
    pub(super) fn tag(self) -> u64 {
        self.tag & TAG_BITS
    }

    /// 64 bits of the hash.
    pub(super) fn short(self) -> u64 {
        self.place
    }
}
