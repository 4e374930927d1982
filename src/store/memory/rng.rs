//! Generates the random numbers that choose eviction candidates.
//!
//! Clients must not be able to predict them, so the seed comes from the operating system.
//! `fastrand` would seed from the time and the thread's number.

use std::hash::{BuildHasher, RandomState};

use crate::splitmix64;

/// A generator. Its numbers never leave the store.
pub(super) struct Rng(u64);

impl Rng {
    /// A generator with a new random seed.
    pub(super) fn new() -> Rng {
        Rng(RandomState::new().hash_one(0))
    }

    /// A number below `end`; 0 if `end` is 0.
    pub(super) fn below(&mut self, end: u32) -> u32 {
        (((splitmix64::next(&mut self.0) >> 32) * u64::from(end)) >> 32) as u32
    }
}
