//! Counter keys: a keyed hash of 128 bits over the rule and the counted values.
//!
//! Parts are hashed with their lengths, so `("a", "b_c")` and `("a_b", "c")` have different keys.
//! If the seed of the hash is secret, a client cannot choose values that collide with another
//! client's counter. With a Redis store and without `redis.key_secret`, the seed is public. The hash
//! is SipHash-1-3 with 128 bits of output (<https://www.aumasson.jp/siphash/siphash.pdf>).

use std::hash::{BuildHasher, Hasher, RandomState};

use siphasher::sip128::{Hasher128, SipHasher13};

/// The key of a counter. Keys are equal only if the rule and the counted values are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CounterKey(pub [u64; 2]);

/// The seed of the hash. With a memory store it is random. With Redis it comes from
/// `redis.key_secret`, and is public without it.
#[derive(Clone, Copy)]
pub struct KeySeed([u64; 2]);

impl KeySeed {
    /// A random seed from the operating system.
    pub fn random() -> KeySeed {
        // The operating system seeds RandomState. The hash of an empty input depends only on that
        // seed.
        let word = || RandomState::new().build_hasher().finish();
        KeySeed([word(), word()])
    }

    /// The seed that all processes with this secret share.
    pub fn from_secret(secret: &str) -> KeySeed {
        KeySeed(KeyBuilder::start(&KeySeed([2, 2])).text(secret).finish().0)
    }

    /// A hash of one text. It is faster than a [`KeyBuilder`], and has other values.
    pub fn hash_text(&self, text: &str) -> CounterKey {
        let hash = SipHasher13::new_with_keys(self.0[0], self.0[1]).hash(text.as_bytes());
        CounterKey([hash.h1, hash.h2])
    }

    /// A fixed seed, for identities that are the same in every process, and for tests.
    pub const fn fixed(seed: [u64; 2]) -> KeySeed {
        KeySeed(seed)
    }
}

/// The stable identity of a rule: its place in the domain's tree, and how it counts. It does not
/// depend on the order of files or on the limit's number, so counters survive a reload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RuleId(pub [u64; 2]);

impl RuleId {
    /// A builder for identities without client input, such as a rule's place in a tree.
    pub fn builder() -> KeyBuilder {
        KeyBuilder::start(&KeySeed::fixed([0, 0]))
    }
}

impl From<CounterKey> for RuleId {
    fn from(key: CounterKey) -> RuleId {
        RuleId(key.0)
    }
}

/// Hashes the parts of one key.
#[derive(Clone)]
pub struct KeyBuilder(SipHasher13);

impl KeyBuilder {
    /// An empty key under `seed`.
    pub fn start(seed: &KeySeed) -> KeyBuilder {
        KeyBuilder(SipHasher13::new_with_keys(seed.0[0], seed.0[1]))
    }

    /// The key of a counter of `rule`, before any value.
    pub fn for_rule(seed: &KeySeed, rule: RuleId) -> KeyBuilder {
        let mut builder = KeyBuilder::start(seed);
        builder.number(rule.0[0]);
        builder.number(rule.0[1]);
        builder
    }

    /// Adds a text with its length.
    pub fn text(&mut self, part: &str) -> &mut KeyBuilder {
        self.number(part.len() as u64);
        self.0.write(part.as_bytes());
        self
    }

    /// Adds a number.
    pub fn number(&mut self, part: u64) -> &mut KeyBuilder {
        self.0.write_u64(part);
        self
    }

    /// The finished key.
    pub fn finish(&self) -> CounterKey {
        let hash = self.0.finish128();
        CounterKey([hash.h1, hash.h2])
    }
}

/// The key of the record of holders of the quota of `counter`. It differs from the key of the
/// counter, so a store can keep both.
pub fn quota_key(counter: &CounterKey) -> CounterKey {
    let mut builder = RuleId::builder();
    builder.text("quota").number(counter.0[0]).number(counter.0[1]).finish()
}

/// The key of the counter of a what-if limit beside `counter`. `rule` is the identity that the rule
/// would have with this limit, because counters with other windows have other states.
pub fn what_if_key(counter: &CounterKey, rule: RuleId) -> CounterKey {
    let mut builder = RuleId::builder();
    builder.text("what-if").number(counter.0[0]).number(counter.0[1]);
    builder.number(rule.0[0]).number(rule.0[1]).finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_with_equal_concatenation_differ() {
        let key = |parts: &[&str]| {
            let mut builder = KeyBuilder::start(&KeySeed::fixed([1, 2]));
            for part in parts {
                builder.text(part);
            }
            builder.finish()
        };
        assert_eq!(key(&["a", "b_c"]), key(&["a", "b_c"]));
        assert_ne!(key(&["a", "b_c"]), key(&["a_b", "c"]));
        assert_ne!(key(&["ab", ""]), key(&["a", "b"]));
        assert_ne!(key(&[""]), key(&[]));
    }

    #[test]
    fn another_seed_changes_the_key() {
        let key = |seed| KeyBuilder::start(&seed).text("x").finish();
        assert_ne!(key(KeySeed::random()), key(KeySeed::random()));
    }

    #[test]
    fn a_text_has_a_hash_per_seed() {
        let [one, other] = [KeySeed::fixed([1, 2]), KeySeed::fixed([2, 1])];
        assert_eq!(one.hash_text("acme"), one.hash_text("acme"));
        assert_ne!(one.hash_text("acme"), other.hash_text("acme"));
        let texts = ["", "a", "acme", "acmf", "acme\0", "a text of more than sixteen bytes"];
        let hashes = texts.map(|text| one.hash_text(text));
        for (index, hash) in hashes.iter().enumerate() {
            assert!(!hashes[..index].contains(hash), "{}", texts[index]);
        }
    }

    #[test]
    fn a_quota_has_another_key_than_its_counter() {
        let [a, b] = [CounterKey([1, 2]), CounterKey([2, 1])];
        assert_eq!(quota_key(&a), quota_key(&a));
        assert_ne!(quota_key(&a), quota_key(&b));
        assert_ne!(quota_key(&a), a);
        assert_ne!(quota_key(&quota_key(&a)), quota_key(&a));
    }

    #[test]
    fn a_what_if_counter_has_its_own_key() {
        let [a, b] = [CounterKey([1, 2]), CounterKey([2, 1])];
        let [limit, longer] = [RuleId([3, 4]), RuleId([4, 3])];
        assert_eq!(what_if_key(&a, limit), what_if_key(&a, limit));
        for other in [what_if_key(&b, limit), what_if_key(&a, longer), quota_key(&a), a] {
            assert_ne!(what_if_key(&a, limit), other);
        }
    }
}
