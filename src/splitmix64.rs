//! SplitMix64 (Steele, Lea, Flood: <https://doi.org/10.1145/2660193.2660195>), a random number
//! generator with the same numbers for the same seed on every machine and in every version.

/// The next number. The first `state` is the seed.
pub fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
