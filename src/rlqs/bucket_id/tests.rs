//! Tests of bucket ids.

use prost::Message;

use super::*;
use crate::proto::BucketId;
use crate::rlqs::id_error::ID_BYTES_MAX;

fn bucket(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn named_keys_come_first_and_others_in_byte_order() {
    let bucket = bucket(&[("tenant", "t"), ("policy", "p"), ("a", "1"), ("Z", "2")]);
    let order = |names: &[&str]| {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let entries = descriptor_entries(&bucket, &names);
        entries.into_iter().map(|(key, _)| key).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(order(&[]), "Z a policy tenant");
    assert_eq!(order(&["tenant", "none", "policy"]), "tenant policy Z a");
    assert_eq!(order(&["policy", "policy"]), "policy Z a tenant");
}

#[test]
fn an_id_is_encoded_as_prost_does() {
    for pairs in [&[][..], &[("a", "1")], &[("a", ""), ("grün", "ü\n"), ("z", "1")]] {
        let bucket = bucket(pairs);
        let entries: Vec<Entry<'_>> =
            bucket.iter().map(|(key, value)| Entry { key, value }).collect();
        let bytes = encoded(&entries).expect("a short id");
        assert_eq!(check_length(&entries), Ok(bytes.len()));
        assert_eq!(BucketId::decode(&*bytes).expect("a valid id").bucket, bucket);
    }
}

#[test]
fn a_long_id_is_not_kept() {
    let is_kept = |bytes: usize| {
        let value = "x".repeat(bytes);
        encoded(&[Entry { key: "k", value: &value }]).map(|id| id.len())
    };
    let (longest, max) = (ID_BYTES_MAX - 9, ID_BYTES_MAX);
    assert_eq!(is_kept(longest), Ok(max));
    assert_eq!(is_kept(longest + 1), Err(IdError::LongId { bytes: max + 1, max }));
    assert!(is_kept(200_000).is_err());
}

#[test]
fn keys_of_different_ids_differ() {
    let seed = KeySeed::fixed([1, 2]);
    let key = |pairs: &[(&'static str, &'static str)]| {
        let entries: Vec<Entry<'_>> =
            pairs.iter().map(|(key, value)| Entry { key, value }).collect();
        BucketKey::of(&seed, &entries)
    };
    let ids = [&[][..], &[("a", "")], &[("", "a")], &[("a", "b")], &[("a", "b"), ("", "")]];
    for (index, id) in ids.iter().enumerate() {
        for other in &ids[..index] {
            assert_ne!(key(id), key(other), "{id:?} {other:?}");
        }
    }
}
