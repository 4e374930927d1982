//! Rng: cheap random numbers that a client cannot foresee, to pick whom to evict.

use std::hash::{BuildHasher, RandomState};

/// A splitmix64 generator (Steele, Lea, Flood: <https://doi.org/10.1145/2660193.2660195>) seeded
/// from the operating system. Its numbers never leave the store.
pub(super) struct Rng(u64);

impl Rng {
    /// Rng of their own sequence.
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
