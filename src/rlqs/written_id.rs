//! Ids of buckets as an operator writes them, for `weir explain --bucket` and `/explain`.

use std::collections::BTreeMap;

use super::bucket_id::descriptor_entries;
use crate::descriptor::ParsedDescriptor;
use crate::escape::excerpt;

/// Longest key in an error, in characters.
const CHARS_MAX: usize = 80;

/// The id of a bucket: a map without an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrittenBucketId(BTreeMap<String, String>);

impl WrittenBucketId {
    /// The id with these pairs.
    ///
    /// # Errors
    ///
    /// A key that it has twice.
    pub fn read(written: &ParsedDescriptor) -> Result<WrittenBucketId, String> {
        let mut id = BTreeMap::new();
        for (key, value) in &written.0 {
            if id.insert(key.clone(), value.clone()).is_some() {
                let key = excerpt(key, CHARS_MAX);
                return Err(format!(
                    "the bucket id has the key `{key}` twice; write each key once"
                ));
            }
        }
        Ok(WrittenBucketId(id))
    }

    /// The descriptor that the quota service makes of the id, with `rlqs.key_order`.
    pub fn descriptor(&self, key_order: &[String]) -> ParsedDescriptor {
        ParsedDescriptor(descriptor_entries(&self.0, key_order))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_becomes_an_argument_of_explain() {
        let read = |text: &str| {
            let written: ParsedDescriptor = text.parse().expect("entries");
            WrittenBucketId::read(&written)
        };
        let id = read(r"tenant=a\,b,policy=c\\,k=").expect("valid");
        let descriptor = id.descriptor(&["policy".to_owned()]);
        let text = descriptor.to_string();
        assert_eq!(text, r"policy=c\\,k=,tenant=a\,b");
        assert_eq!(text.parse(), Ok(descriptor), "it reads as what it was");
        let error = read("a=1,b=2,a=3").expect_err("a key twice");
        assert!(error.contains("`a` twice"), "{error}");
    }
}
