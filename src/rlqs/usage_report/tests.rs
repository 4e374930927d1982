//! Tests of decoded reports.

use std::collections::BTreeMap;

use proptest::prelude::*;
use prost::Message;

use super::*;
use crate::proto::{BucketId, BucketQuotaUsage, RateLimitQuotaUsageReports};
use crate::rlqs::bucket_id::put_bytes;

type Pairs = Vec<(String, String)>;
type Usage = (Option<Pairs>, Micros, u64, u64);

/// The domain and the usages of a message.
fn read(bytes: &[u8], pairs_max: usize) -> Result<(String, Vec<Usage>), UsageError> {
    let mut report = UsageReport::read(bytes, pairs_max)?;
    let mut usages = Vec::new();
    while let Some(usage) = report.next()? {
        let owned = |pairs: IdPairs<'_>| {
            pairs.iter().map(|pair| (pair.key.to_owned(), pair.value.to_owned())).collect()
        };
        usages.push((usage.id.map(owned), usage.elapsed, usage.allowed, usage.denied));
    }
    Ok((report.domain.to_owned(), usages))
}

fn usage(pairs: &[(String, String)], seconds: i64, allowed: u64, denied: u64) -> BucketQuotaUsage {
    let bucket = pairs.iter().cloned().collect();
    BucketQuotaUsage {
        bucket_id: Some(BucketId { bucket }),
        time_elapsed: Some(prost_types::Duration { seconds, nanos: 0 }),
        num_requests_allowed: allowed,
        num_requests_denied: denied,
    }
}

proptest! {
    /// This decoder reads what prost writes: the sorted pairs of each id, and bounded numbers.
    #[test]
    fn reports_are_read_as_prost_writes_them(
        domain in ".{0,8}",
        usages in prop::collection::vec(
            (
                prop::collection::btree_map(".{0,3}", ".{0,5}", 0..6),
                any::<i64>(),
                any::<u64>(),
                any::<u64>(),
            ),
            0..5,
        ),
    ) {
        let owned = |(id, seconds, allowed, denied): (BTreeMap<_, _>, i64, u64, u64)| {
            (id.into_iter().collect(), seconds, allowed, denied)
        };
        let pairs: Vec<(Pairs, i64, u64, u64)> = usages.into_iter().map(owned).collect();
        let sent = |(id, seconds, allowed, denied): &(Pairs, i64, u64, u64)| {
            usage(id, *seconds, *allowed, *denied)
        };
        let bucket_quota_usages = pairs.iter().map(sent).collect();
        let message = RateLimitQuotaUsageReports { domain: domain.clone(), bucket_quota_usages };
        let (found, usages) = read(&message.encode_to_vec(), 32).expect("a valid message");
        prop_assert_eq!(found, domain);
        let expected: Vec<Usage> = pairs
            .into_iter()
            .map(|(id, seconds, allowed, denied)| {
                let elapsed = Micros::from_secs(seconds.clamp(0, 366 * 86_400) as u64);
                let most = u64::from(u32::MAX);
                (Some(id), elapsed, allowed.min(most), denied.min(most))
            })
            .collect();
        prop_assert_eq!(usages, expected);
    }

    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), max in 0_usize..4) {
        let _ = read(&bytes, max);
    }
}

/// Bytes of an id with these pairs, in this order.
fn id_in_order(pairs: &[(&str, &str)]) -> Vec<u8> {
    let mut id = Vec::new();
    for (key, value) in pairs {
        let mut pair = Vec::new();
        put_bytes(&mut pair, 1, key.as_bytes());
        put_bytes(&mut pair, 2, value.as_bytes());
        put_bytes(&mut id, 1, &pair);
    }
    let mut usage = Vec::new();
    put_bytes(&mut usage, 1, &id);
    let mut message = Vec::new();
    put_bytes(&mut message, 2, &usage);
    message
}

#[test]
fn pairs_are_ordered_and_the_last_of_a_key_counts() {
    let message = id_in_order(&[("b", "1"), ("a", "2"), ("b", "3"), ("a", ""), ("b", "4")]);
    let (_, usages) = read(&message, 5).expect("a valid message");
    let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    assert_eq!(usages[0].0, Some(vec![pair("a", ""), pair("b", "4")]));
    let (_, usages) = read(&message, 4).expect("a valid message");
    assert_eq!(usages[0].0, None, "more pairs than permitted");
}

#[test]
fn invalid_fields_are_errors() {
    let mut text = Vec::new();
    put_bytes(&mut text, 1, b"\xff");
    assert!(matches!(read(&text, 5), Err(UsageError::Text(_))));
    for (message, field) in [(&[0x08, 1][..], "domain"), (&[0x10, 1], "bucket_quota_usages")] {
        let error = read(message, 5).expect_err(field);
        assert!(matches!(error, UsageError::Type(name) if name == field), "{error}");
    }
    for (usage, field) in [
        (&[0x08, 1][..], "bucket_id"),
        (&[0x10, 1], "time_elapsed"),
        (&[0x1a, 0], "num_requests_allowed"),
        (&[0x22, 0], "num_requests_denied"),
    ] {
        let mut message = Vec::new();
        put_bytes(&mut message, 2, usage);
        let error = read(&message, 5).expect_err(field);
        assert!(matches!(error, UsageError::Type(name) if name == field), "{error}");
    }
    assert!(matches!(read(&[0x0a, 9, b'a'], 5), Err(UsageError::Malformed(_))));
}
