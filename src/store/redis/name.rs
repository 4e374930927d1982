//! The name of a counter in Redis: `weir:{bucket}rest`, 32 printable bytes.

use crate::key::Key;

/// Hash tags in use. Three hexadecimal digits spread over the slots so that no shard of a cluster
/// gets more than 1 % beyond its share, up to 10 shards, and 6 % up to 32 (the test below); decimal
/// digits do worse. Few tags make it likely that counters asked for at once can share a call.
const BUCKET_BITS: u32 = 12;

/// Bytes of a name: the prefix, a tag of three digits in braces, and 128 bits in base 64.
const LENGTH: usize = 5 + 5 + 22;

/// The alphabet of base64url (RFC 4648, section 5): names need no quoting in a shell.
const BASE_64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// A counter's name. Different keys have different names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Name([u8; LENGTH]);

impl Name {
    /// The name of the counter `key`.
    pub(super) fn of(key: &Key) -> Name {
        let mut name = *b"weir:{000}0000000000000000000000";
        let bits = (u128::from(key.0[0]) << 64) | u128::from(key.0[1]);
        let mut bucket = key.0[0] >> (u64::BITS - BUCKET_BITS);
        for digit in name[6..9].iter_mut().rev() {
            *digit = b"0123456789abcdef"[(bucket & 15) as usize];
            bucket >>= 4;
        }
        let mut rest = bits;
        for digit in name[10..].iter_mut().rev() {
            *digit = BASE_64[(rest & 63) as usize];
            rest >>= 6;
        }
        Name(name)
    }

    /// The bytes to send.
    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The slot of a cluster that holds it.
    pub(super) fn slot(&self) -> u16 {
        fred::util::redis_keyslot(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_shows_every_bit_of_the_key_behind_its_hash_tag() {
        let text = |key| String::from_utf8(Name::of(&Key(key)).as_bytes().to_vec()).unwrap();
        assert_eq!(text([0, 0]), "weir:{000}AAAAAAAAAAAAAAAAAAAAAA");
        assert_eq!(text([u64::MAX, u64::MAX]), "weir:{fff}D_____________________");
        assert_eq!(text([0xabc0_0000_0000_0000, 1]), "weir:{abc}CrwAAAAAAAAAAAAAAAAAAB");
        let mut seen = std::collections::HashSet::new();
        for bit in 0..64 {
            assert!(seen.insert(text([1 << bit, 0])), "bit {bit} of the first half is lost");
            assert!(seen.insert(text([0, 1 << bit])), "bit {bit} of the second half is lost");
        }
    }

    #[test]
    fn no_shard_gets_much_more_than_its_share() {
        let buckets = 1_u64 << BUCKET_BITS;
        for shards in 1..=32_usize {
            let mut held = vec![0_u64; shards];
            for bucket in 0..buckets {
                let name = Name::of(&Key([bucket << (u64::BITS - BUCKET_BITS), 7]));
                held[usize::from(name.slot()) * shards / 16_384] += 1;
            }
            let most = *held.iter().max().unwrap() as f64 / (buckets as f64 / shards as f64);
            let bound = if shards <= 10 { 1.01 } else { 1.06 };
            assert!(most <= bound, "{most} times its share with {shards} shards");
        }
    }
}
