//! The names of counters in Redis: `weir:{tag}rest`, 32 printable bytes.

use crate::key::CounterKey;

/// Number of hash tags. Counters of one tag share a hash slot, so a Cluster lets their steps share
/// a call. Fewer tags mean more shared calls. More tags fill the shards more evenly, and make each
/// hash slot lighter when it moves.
pub(crate) const HASH_TAGS: usize = 128;

/// The hash tags and their hash slots.
static TAGS: [Tag; HASH_TAGS] = tags();

/// Hash slots of a Redis Cluster (<https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/>).
pub(super) const HASH_SLOTS: usize = 16_384;

#[derive(Clone, Copy)]
struct Tag {
    digits: [u8; 3],
    hash_slot: u16,
}

/// Chooses the tags. The hash slots are split into [`HASH_TAGS`] equal ranges. Each range gets the
/// text of three hexadecimal digits whose hash slot is nearest to its middle. Nodes that own
/// consecutive hash slots therefore get equal shares of the tags.
const fn tags() -> [Tag; HASH_TAGS] {
    let mut tags = [Tag { digits: [0; 3], hash_slot: u16::MAX }; HASH_TAGS];
    let mut number = 0;
    while number < 16 * 16 * 16 {
        let digit = b"0123456789abcdef";
        let digits = [digit[number >> 8], digit[(number >> 4) & 15], digit[number & 15]];
        let hash_slot = crc16(&digits) % HASH_SLOTS as u16;
        let range = hash_slot as usize * HASH_TAGS / HASH_SLOTS;
        let middle = ((2 * range + 1) * HASH_SLOTS / (2 * HASH_TAGS)) as u16;
        if hash_slot.abs_diff(middle) < tags[range].hash_slot.abs_diff(middle) {
            tags[range] = Tag { digits, hash_slot };
        }
        number += 1;
    }
    tags
}

/// CRC-16/XMODEM, from which a Cluster computes the hash slot of a hash tag.
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

/// Bytes of a name: the prefix, a tag of three digits in braces, and 128 bits in base64url.
pub(crate) const NAME_BYTES: usize = 5 + 5 + 22;

/// The alphabet of base64url (RFC 4648, section 5), which needs no quoting in a shell.
const BASE_64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// A counter's Redis key. Different counters have different names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct CounterName([u8; NAME_BYTES]);

impl CounterName {
    /// The name of the counter `key`.
    pub(super) fn of(key: &CounterKey) -> CounterName {
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

/// The name `weir:{tag}rest`, in the hash slot of the counter `key`.
pub(super) fn name_beside(key: &CounterKey, rest: &str) -> String {
    let digits = tag(key).digits.map(char::from);
    format!("weir:{{{}}}{rest}", String::from_iter(digits))
}

/// The Cluster hash slot of the counter `key`.
pub(super) fn hash_slot(key: &CounterKey) -> u16 {
    tag(key).hash_slot
}

/// The Cluster hash slot of the key `name`: of its hash tag, if it has one.
pub(super) fn hash_slot_of(name: &[u8]) -> u16 {
    crc16(hash_tag(name)) % HASH_SLOTS as u16
}

/// The part of `name` that has its hash slot: what is between its first `{` and the next `}`, unless
/// that is empty, or else all of it.
fn hash_tag(name: &[u8]) -> &[u8] {
    let position = |bytes: &[u8], byte| bytes.iter().position(|other| *other == byte);
    let begin = position(name, b'{').map_or(name.len(), |at| at + 1);
    match position(&name[begin..], b'}') {
        Some(length @ 1..) => &name[begin..begin + length],
        _ => name,
    }
}

fn tag(key: &CounterKey) -> Tag {
    TAGS[(key.0[0] >> (u64::BITS - HASH_TAGS.ilog2())) as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_contains_every_bit_of_the_key() {
        let text =
            |key| String::from_utf8(CounterName::of(&CounterKey(key)).as_ref().to_vec()).unwrap();
        assert_eq!(&text([0, 0])[9..], "}AAAAAAAAAAAAAAAAAAAAAA");
        assert_eq!(&text([u64::MAX, u64::MAX])[9..], "}D_____________________");
        assert_eq!(&text([0xabc0_0000_0000_0000, 1])[9..], "}CrwAAAAAAAAAAAAAAAAAAB");
        let mut seen = std::collections::HashSet::new();
        for bit in 0..64 {
            assert!(seen.insert(text([1 << bit, 0])), "bit {bit} of the first half is lost");
            assert!(seen.insert(text([0, 1 << bit])), "bit {bit} of the second half is lost");
        }
    }

    #[test]
    fn a_name_beside_a_counter_has_its_tag() {
        let key = CounterKey([0xabc0_0000_0000_0000, 1]);
        let (name, beside) = (CounterName::of(&key).0, name_beside(&key, "rest"));
        assert_eq!(beside.as_bytes(), [&name[..10], b"rest"].concat());
    }

    fn keys() -> impl Iterator<Item = CounterKey> {
        (0..HASH_TAGS as u64).map(|tag| CounterKey([tag << (u64::BITS - HASH_TAGS.ilog2()), 7]))
    }

    #[test]
    fn hash_slots_equal_those_of_a_cluster() {
        let cluster_hash_slot = |tag: &[u8]| crc16(tag) % HASH_SLOTS as u16;
        // The check value of the Cluster specification, and replies of `CLUSTER KEYSLOT`.
        assert_eq!(crc16(b"123456789"), 0x31c3);
        assert_eq!([&b"foo"[..], b"bar", b"hello"].map(cluster_hash_slot), [12_182, 5_061, 866]);
        let mut tags = std::collections::HashSet::new();
        for key in keys() {
            let name = CounterName::of(&key).0;
            assert_eq!((name[5], name[9]), (b'{', b'}'));
            assert_eq!(hash_slot(&key), cluster_hash_slot(&name[6..9]));
            assert!(tags.insert(name[6..9].to_vec()), "two ranges have one tag");
        }
    }

    /// The examples of the Cluster specification.
    #[test]
    fn a_key_has_the_hash_slot_of_its_hash_tag() {
        let table = [
            ("{user1000}.following", "user1000"),
            ("foo{}{bar}", "foo{}{bar}"),
            ("foo{{bar}}zap", "{bar"),
            ("foo{bar}{zap}", "bar"),
            ("foo{bar", "foo{bar"),
            ("foo}bar{", "foo}bar{"),
            ("", ""),
        ];
        for (name, tag) in table {
            assert_eq!(hash_tag(name.as_bytes()), tag.as_bytes(), "{name}");
            assert_eq!(hash_slot_of(name.as_bytes()), hash_slot_of(tag.as_bytes()), "{name}");
        }
        // A reply of `CLUSTER KEYSLOT`.
        assert_eq!(hash_slot_of(b"weir:{foo}:bar"), 12_182);
        for key in keys() {
            assert_eq!(hash_slot_of(&CounterName::of(&key).0), hash_slot(&key));
        }
    }

    #[test]
    fn shards_get_equal_shares_of_the_tags() {
        for shards in 1..=64 {
            let mut held = vec![0_usize; shards];
            keys().for_each(|key| held[usize::from(hash_slot(&key)) * shards / HASH_SLOTS] += 1);
            let most = held.iter().max().copied().unwrap();
            let even = HASH_TAGS.div_ceil(shards);
            assert!(most <= even + 1, "{most} of {HASH_TAGS}, {shards} shards");
        }
    }
}
