//! What Envoys report: the rules, the bucket ids, and the usages.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::str::FromStr;
use std::time::Duration;

use prost::Message;
use weir::proto::{BucketId, BucketQuotaUsage, RateLimitQuotaUsageReports};
use weir::splitmix64;

/// The domain of the rules.
pub(crate) const DOMAIN: &str = "rlqs";

/// Time between two reports of an Envoy, as Envoy's.
pub(crate) const PERIOD: Duration = Duration::from_secs(5);

/// The mean of the requests of one bucket in one [`PERIOD`].
const REQUESTS: u64 = 100;

/// Different reports of Envoys that have the same buckets.
const VARIANTS: usize = 16;

/// Different reports of an Envoy whose buckets no other one has. Each takes memory.
const VARIANTS_OF_ONE: usize = 2;

/// The number of Envoys and of their buckets, in the form `1000x10` or `1000x10-own`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// Envoys, each with one stream.
    pub(crate) streams: usize,
    /// Buckets of each.
    pub(crate) buckets: usize,
    /// Whether each Envoy has its own values, and so its own limits. Otherwise all have the same ones.
    pub(crate) own: bool,
}

/// A text that is not a [`Shape`].
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("write STREAMSxBUCKETS or STREAMSxBUCKETS-own, with numbers from 1")]
pub(crate) struct ShapeError;

impl FromStr for Shape {
    type Err = ShapeError;

    fn from_str(text: &str) -> Result<Shape, ShapeError> {
        let (numbers, own) = match text.strip_suffix("-own") {
            Some(numbers) => (numbers, true),
            None => (text, false),
        };
        let (streams, buckets) = numbers.split_once('x').ok_or(ShapeError)?;
        let number = |text: &str| match text.parse::<usize>() {
            Ok(number) if number > 0 => Ok(number),
            _ => Err(ShapeError),
        };
        Ok(Shape { streams: number(streams)?, buckets: number(buckets)?, own })
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let own = if self.own { "-own" } else { "" };
        write!(f, "{}x{}{own}", self.streams, self.buckets)
    }
}

impl Shape {
    /// The buckets of all Envoys.
    pub(crate) fn total(&self) -> usize {
        self.streams * self.buckets
    }

    /// Whose limits the buckets have, for a table.
    pub(crate) fn limits(&self) -> &'static str {
        if self.own { "own limits" } else { "the same limits" }
    }

    /// A rule file with one limit per tenant, as large as the mean demand of all Envoys that have the
    /// tenant.
    pub(crate) fn rules(&self) -> String {
        let holders = if self.own { 1 } else { self.streams as u64 };
        let limit = (holders * REQUESTS / PERIOD.as_secs()).max(1);
        format!(
            "domain: {DOMAIN}\ndescriptors:\n  - key: policy\n    value: per-tenant\n    \
             descriptors:\n      - key: tenant\n        rate_limit: {{ unit: second, \
             requests_per_unit: {limit} }}\n"
        )
    }

    /// The same rules without a limit.
    pub(crate) fn open_rules(&self) -> String {
        format!(
            "domain: {DOMAIN}\ndescriptors:\n  - key: policy\n    value: per-tenant\n    \
             descriptors:\n      - key: tenant\n        rate_limit: {{ unlimited: true }}\n"
        )
    }
}

/// Encoded reports of all Envoys.
pub(crate) struct Reports {
    messages: Vec<Vec<u8>>,
    variants: usize,
    own: bool,
}

impl Reports {
    /// Encodes the reports.
    pub(crate) fn new(shape: Shape) -> Reports {
        let Shape { streams, buckets, own } = shape;
        let (senders, variants) = if own { (streams, VARIANTS_OF_ONE) } else { (1, VARIANTS) };
        let mut random = 1;
        let message = |number: usize| {
            let first = number / variants * buckets;
            report(first..first + buckets, &mut random).encode_to_vec()
        };
        let messages = (0..senders * variants).map(message).collect();
        Reports { messages, variants, own }
    }

    /// The report of Envoy number `stream`. It has another demand in each `round`.
    pub(crate) fn of(&self, stream: usize, round: usize) -> &[u8] {
        let sender = if self.own { stream } else { 0 };
        &self.messages[sender * self.variants + (stream + round) % self.variants]
    }
}

/// A report of the buckets of `tenants`, with random requests.
pub(crate) fn report(tenants: Range<usize>, random: &mut u64) -> RateLimitQuotaUsageReports {
    let bucket_quota_usages = tenants
        .map(|tenant| {
            let pairs = [("policy", "per-tenant".to_owned()), ("tenant", format!("t-{tenant:07}"))];
            let bucket: BTreeMap<String, String> =
                pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
            let seconds = PERIOD.as_secs() as i64;
            BucketQuotaUsage {
                bucket_id: Some(BucketId { bucket }),
                time_elapsed: Some(prost_types::Duration { seconds, nanos: 0 }),
                num_requests_allowed: splitmix64::next(random) % (2 * REQUESTS + 1),
                num_requests_denied: 0,
            }
        })
        .collect();
    RateLimitQuotaUsageReports { domain: DOMAIN.to_owned(), bucket_quota_usages }
}
