//! The name of a counter in Redis: `weir:{bucket}rest`, 32 printable bytes.

use crate::key::Key;

/// Hash tags in use. Counters of one tag share a slot, so that a Cluster too lets their steps share
/// a call: the fewer tags, the more do. The more, the more evenly they fill the shards, and the less
/// a slot weighs when it moves.
const BUCKETS: usize = 128;

/// Their texts, and the slots that they lead to.
static TAGS: [Tag; BUCKETS] = tags();

/// Slots of a Cluster.
const SLOTS: usize = 16_384;

#[derive(Clone, Copy)]
struct Tag {
    digits: [u8; 3],
    slot: u16,
}

/// Of all texts of three hexadecimal digits those that lead next to the middles of as many equal
/// parts of the slots: however a Cluster's nodes share the slots in runs, they share these alike.
const fn tags() -> [Tag; BUCKETS] {
    let mut tags = [Tag { digits: [0; 3], slot: u16::MAX }; BUCKETS];
    let mut number = 0;
    while number < 16 * 16 * 16 {
        let digit = b"0123456789abcdef";
        let digits = [digit[number >> 8], digit[(number >> 4) & 15], digit[number & 15]];
        let slot = crc16(&digits) % SLOTS as u16;
        let part = slot as usize * BUCKETS / SLOTS;
        let middle = ((2 * part + 1) * SLOTS / (2 * BUCKETS)) as u16;
        if slot.abs_diff(middle) < tags[part].slot.abs_diff(middle) {
            tags[part] = Tag { digits, slot };
        }
        number += 1;
    }
    tags
}

/// What a Cluster takes a hash tag's slot from: CRC-16/XMODEM.
const fn crc16(bytes: &[u8]) -> u16 {
    let (mut crc, mut index) = (0_u16, 0);
    while index < bytes.len() {
        crc ^= (bytes[index] as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 };
            bit += 1;
        }
        index += 1;
    }
    crc
}

/// Bytes of a name: the prefix, a tag of three digits in braces, and 128 bits in base 64.
const LENGTH: usize = 5 + 5 + 22;

/// The alphabet of base64url (RFC 4648, section 5): names need no quoting in a shell.
const BASE_64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// A counter's name. Different keys have different names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct CounterName([u8; LENGTH]);

impl CounterName {
    /// The name of the counter `key`.
    pub(super) fn of(key: &Key) -> CounterName {
        let mut name = *b"weir:{000}0000000000000000000000";
        let bits = (u128::from(key.0[0]) << 64) | u128::from(key.0[1]);
        name[6..9].copy_from_slice(&tag(key).digits);
        let mut rest = bits;
        for digit in name[10..].iter_mut().rev() {
            *digit = BASE_64[(rest & 63) as usize];
            rest >>= 6;
        }
        CounterName(name)
    }
}

impl AsRef<[u8]> for CounterName {
    /// The bytes to send.
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// The slot of a cluster that holds the counter `key`.
pub(super) fn slot(key: &Key) -> u16 {
    tag(key).slot
}

fn tag(key: &Key) -> Tag {
    TAGS[(key.0[0] >> (u64::BITS - BUCKETS.ilog2())) as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_shows_every_bit_of_the_key_behind_its_hash_tag() {
        let text = |key| String::from_utf8(CounterName::of(&Key(key)).as_ref().to_vec()).unwrap();
        assert_eq!(&text([0, 0])[9..], "}AAAAAAAAAAAAAAAAAAAAAA");
        assert_eq!(&text([u64::MAX, u64::MAX])[9..], "}D_____________________");
        assert_eq!(&text([0xabc0_0000_0000_0000, 1])[9..], "}CrwAAAAAAAAAAAAAAAAAAB");
        let mut seen = std::collections::HashSet::new();
        for bit in 0..64 {
            assert!(seen.insert(text([1 << bit, 0])), "bit {bit} of the first half is lost");
            assert!(seen.insert(text([0, 1 << bit])), "bit {bit} of the second half is lost");
        }
    }

    fn keys() -> impl Iterator<Item = Key> {
        (0..BUCKETS as u64).map(|bucket| Key([bucket << (u64::BITS - BUCKETS.ilog2()), 7]))
    }

    #[test]
    fn a_slot_is_what_a_cluster_makes_of_the_name() {
        let mut tags = std::collections::HashSet::new();
        for key in keys() {
            let name = CounterName::of(&key);
            assert_eq!(slot(&key), fred::util::redis_keyslot(name.as_ref()));
            assert!(tags.insert(name.0[6..9].to_vec()), "two buckets have one tag");
        }
    }

    #[test]
    fn no_shard_gets_much_more_than_its_share() {
        for shards in 1..=64 {
            let mut held = vec![0_usize; shards];
            keys().for_each(|key| held[usize::from(slot(&key)) * shards / SLOTS] += 1);
            let most = held.iter().max().copied().unwrap();
            assert!(most <= BUCKETS.div_ceil(shards) + 1, "{most} of {BUCKETS}, {shards} shards");
        }
    }
}
