//! Ids of buckets of Envoy's quota filter, as arguments of `weir explain`.

use std::collections::BTreeMap;

use crate::descriptor::ParsedDescriptor;
use crate::escape::one_line;
use crate::rlqs;

/// The id of a bucket: a map without an order.
#[derive(Debug)]
pub(super) struct BucketId(BTreeMap<String, String>);

impl BucketId {
    /// The ids that were written as `written`.
    ///
    /// # Errors
    ///
    /// A key that an id has twice.
    pub(super) fn read_all(written: &[ParsedDescriptor]) -> anyhow::Result<Vec<BucketId>> {
        written.iter().map(BucketId::read).collect()
    }

    fn read(written: &ParsedDescriptor) -> anyhow::Result<BucketId> {
        let mut id = BTreeMap::new();
        for (key, value) in &written.0 {
            let before = id.insert(key.clone(), value.clone());
            anyhow::ensure!(
                before.is_none(),
                "the bucket id has the key `{}` twice; write each key once",
                one_line(key)
            );
        }
        Ok(BucketId(id))
    }

    /// The descriptor that the quota service makes of the id, with `rlqs.key_order`.
    pub(super) fn descriptor(&self, key_order: &[String]) -> ParsedDescriptor {
        ParsedDescriptor(rlqs::descriptor_entries(&self.0, key_order))
    }
}

/// `descriptor` as an argument of `weir explain`: `key=value,key=value`.
pub(super) fn written(descriptor: &ParsedDescriptor) -> String {
    let escaped = |text: &str| text.replace('\\', r"\\").replace(',', r"\,");
    let entries = descriptor.0.iter();
    let parts: Vec<String> =
        entries.map(|(key, value)| format!("{}={}", escaped(key), escaped(value))).collect();
    parts.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_becomes_an_argument_of_explain() {
        let read = |text: &str| {
            let written: ParsedDescriptor = text.parse().expect("entries");
            BucketId::read_all(&[written])
        };
        let ids = read(r"tenant=a\,b,policy=c\\,k=").expect("valid");
        let descriptor = ids[0].descriptor(&["policy".to_owned()]);
        let text = written(&descriptor);
        assert_eq!(text, r"policy=c\\,k=,tenant=a\,b");
        assert_eq!(text.parse(), Ok(descriptor), "it reads as what it was");
        let error = read("a=1,b=2,a=3").expect_err("a key twice");
        assert!(error.to_string().contains("`a` twice"), "{error}");
    }
}
