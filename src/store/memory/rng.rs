//! Generates the random numbers that choose eviction candidates.
//!
//! Clients must not be able to predict them, so the seed comes from the operating system.
//! `fastrand` would seed from the time and the thread's number.

use std::hash::{BuildHasher, RandomState};

/// A splitmix64 generator (Steele, Lea, Flood: <https://doi.org/10.1145/2660193.2660195>). Its numbers
/// never leave the store.
pub(super) struct Rng(u64);

impl Rng {
    /// A generator with a new random seed.
    pub(super) fn new() -> Rng {
        Rng(RandomState::new().hash_one(0))
    }

    /// A number below `end`; 0 if `end` is 0.
    pub(super) fn below(&mut self, end: u32) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        (((z >> 32) * u64::from(end)) >> 32) as u32
    }
}
