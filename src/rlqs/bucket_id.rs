//! Bucket ids: their order as descriptors, their keys in tables, and their encoded form.

use std::collections::BTreeMap;

use prost::encoding::encode_varint;

use super::id_error::{IdError, check_length};
use crate::descriptor::Entry;
use crate::key::{CounterKey, KeyBuilder, KeySeed};

/// The key of a bucket in the tables of its stream: a keyed hash of its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct BucketKey([u64; 2]);

impl BucketKey {
    /// The key of the bucket with these ordered pairs.
    pub(super) fn of(seed: &KeySeed, pairs: &[Entry<'_>]) -> BucketKey {
        let CounterKey(key) = add(&mut KeyBuilder::start(seed), pairs).finish();
        BucketKey(key)
    }
}

/// Adds the ordered `pairs` to `builder`.
pub(super) fn add<'b>(builder: &'b mut KeyBuilder, pairs: &[Entry<'_>]) -> &'b mut KeyBuilder {
    builder.number(pairs.len() as u64);
    for pair in pairs {
        builder.text(pair.key).text(pair.value);
    }
    builder
}

/// The descriptor that a bucket id becomes: the pairs whose keys `key_order` names, in that order,
/// then the others in the byte order of their keys. The rules are looked up with it.
pub(super) fn descriptor_entries(
    bucket: &BTreeMap<String, String>,
    key_order: &[String],
) -> Vec<(String, String)> {
    let mut pairs: Vec<Entry<'_>> =
        bucket.iter().map(|(key, value)| Entry { key, value }).collect();
    order_as_descriptor(&mut pairs, key_order);
    pairs.iter().map(|pair| (pair.key.to_owned(), pair.value.to_owned())).collect()
}

/// Orders pairs as [`descriptor_entries`] does.
pub(super) fn order_as_descriptor(pairs: &mut [Entry<'_>], key_order: &[String]) {
    let place = |key: &str| {
        let named = key_order.iter().position(|name| name == key);
        named.unwrap_or(key_order.len())
    };
    pairs.sort_by(|a, b| place(a.key).cmp(&place(b.key)).then_with(|| a.key.cmp(b.key)));
}

/// An encoded `BucketId` of these pairs.
///
/// # Errors
///
/// It is longer than [`ID_BYTES_MAX`](super::id_error::ID_BYTES_MAX).
pub(super) fn encoded(pairs: &[Entry<'_>]) -> Result<Box<[u8]>, IdError> {
    let mut bytes = Vec::with_capacity(check_length(pairs)?);
    let mut one = Vec::new();
    for pair in pairs {
        one.clear();
        put_bytes(&mut one, 1, pair.key.as_bytes());
        put_bytes(&mut one, 2, pair.value.as_bytes());
        put_bytes(&mut bytes, 1, &one);
    }
    Ok(bytes.into())
}

/// Appends a length-delimited field.
pub(super) fn put_bytes(out: &mut Vec<u8>, field: u32, content: &[u8]) {
    encode_varint(u64::from(field << 3 | 2), out);
    encode_varint(content.len() as u64, out);
    out.extend_from_slice(content);
}

/// Appends a varint field.
pub(super) fn put_number(out: &mut Vec<u8>, field: u32, number: u64) {
    encode_varint(u64::from(field << 3), out);
    encode_varint(number, out);
}

#[cfg(test)]
mod tests;
