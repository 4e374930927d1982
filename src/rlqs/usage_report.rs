//! Decodes a `RateLimitQuotaUsageReports` usage by usage, without copying its texts.
//!
//! prost would copy every text into a `String` and build a map per bucket, for reports that repeat
//! the same ids every five seconds. Nothing here allocates in proportion to the number of usages.

use std::str::{Utf8Error, from_utf8};

use smallvec::SmallVec;

use crate::descriptor::Entry;
use crate::proto::wire::{self, Malformed, Value};
use crate::time::Micros;

/// The pairs of a bucket id, ordered by key, each key once. A bucket id is a map, and Envoy sends it in
/// any order.
pub(super) type IdPairs<'m> = SmallVec<[Entry<'m>; 8]>;

/// Most hits that one usage counts. A count over it is not from traffic, and a sum of such counts
/// would overflow.
const HITS_MAX: u64 = u32::MAX as u64;

/// Longest time that one usage covers: 366 days.
const ELAPSED_MAX: Micros = Micros::from_secs(366 * 86_400);

/// One report, of which the usages are not yet decoded.
#[derive(Debug)]
pub(super) struct UsageReport<'m> {
    /// The domain, which is empty unless the message has one.
    pub(super) domain: &'m str,
    rest: &'m [u8],
    pairs_max: usize,
}

/// The use of one bucket since the last report.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct BucketUsage<'m> {
    /// The bucket; `None` if its id has more than the permitted pairs.
    pub(super) id: Option<IdPairs<'m>>,
    /// The time since the last report by Envoy's clock, in whole seconds and truncated.
    pub(super) elapsed: Micros,
    /// Requests that passed, at most [`HITS_MAX`].
    pub(super) allowed: u64,
    /// Requests that were denied, at most [`HITS_MAX`].
    pub(super) denied: u64,
}

/// Why bytes are not a report.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum UsageError {
    #[error("the message is not a RateLimitQuotaUsageReports: {0}")]
    Malformed(#[from] Malformed),
    #[error("the message is not a RateLimitQuotaUsageReports: `{0}` is of another type")]
    Type(&'static str),
    #[error("the message is not a RateLimitQuotaUsageReports: a string is not UTF-8: {0}")]
    Text(#[from] Utf8Error),
}

impl<'m> UsageReport<'m> {
    /// Reads the domain of the report in `bytes`. Ids may have at most `pairs_max` pairs.
    ///
    /// # Errors
    ///
    /// The reason why `bytes` are not a report. Usages have their own errors.
    pub(super) fn read(bytes: &'m [u8], pairs_max: usize) -> Result<UsageReport<'m>, UsageError> {
        let (mut domain, mut rest) = ("", bytes);
        while let Some(field) = wire::next(&mut rest)? {
            match field {
                (1, Value::Bytes(text)) => domain = from_utf8(text)?,
                (1, _) => return Err(UsageError::Type("domain")),
                (2, Value::Bytes(_)) => {}
                (2, _) => return Err(UsageError::Type("bucket_quota_usages")),
                _ => {}
            }
        }
        Ok(UsageReport { domain, rest: bytes, pairs_max })
    }

    /// Decodes the next usage; `None` at the end.
    ///
    /// # Errors
    ///
    /// The reason why the usage cannot be decoded. The usages before it are valid.
    pub(super) fn next(&mut self) -> Result<Option<BucketUsage<'m>>, UsageError> {
        while let Some((number, value)) = wire::next(&mut self.rest)? {
            if let (2, Value::Bytes(usage)) = (number, value) {
                return usage_of(usage, self.pairs_max).map(Some);
            }
        }
        Ok(None)
    }
}

fn usage_of(mut bytes: &[u8], pairs_max: usize) -> Result<BucketUsage<'_>, UsageError> {
    let id = Some(IdPairs::new());
    let mut usage = BucketUsage { id, elapsed: Micros::ZERO, allowed: 0, denied: 0 };
    while let Some(field) = wire::next(&mut bytes)? {
        match field {
            (1, Value::Bytes(id)) => read_id(&mut usage.id, id, pairs_max)?,
            (1, _) => return Err(UsageError::Type("bucket_id")),
            (2, Value::Bytes(duration)) => usage.elapsed = elapsed_of(duration)?,
            (2, _) => return Err(UsageError::Type("time_elapsed")),
            (3, Value::Number(hits)) => usage.allowed = hits.min(HITS_MAX),
            (3, _) => return Err(UsageError::Type("num_requests_allowed")),
            (4, Value::Number(hits)) => usage.denied = hits.min(HITS_MAX),
            (4, _) => return Err(UsageError::Type("num_requests_denied")),
            _ => {}
        }
    }
    if let Some(pairs) = &mut usage.id {
        put_in_order(pairs);
    }
    Ok(usage)
}

/// The pairs of an encoded `BucketId` that was within the bounds before.
pub(super) fn ordered_pairs(id: &[u8]) -> Result<IdPairs<'_>, UsageError> {
    let mut pairs = Some(IdPairs::new());
    read_id(&mut pairs, id, usize::MAX)?;
    let mut pairs = pairs.unwrap_or_default();
    put_in_order(&mut pairs);
    Ok(pairs)
}

/// Adds the pairs of an encoded `BucketId`. `id` becomes `None` with too many of them.
fn read_id<'m>(
    id: &mut Option<IdPairs<'m>>,
    mut bytes: &'m [u8],
    pairs_max: usize,
) -> Result<(), UsageError> {
    while let Some(field) = wire::next(&mut bytes)? {
        match field {
            (1, Value::Bytes(pair)) => {
                let pair = pair_of(pair)?;
                match id {
                    Some(pairs) if pairs.len() < pairs_max => pairs.push(pair),
                    _ => *id = None,
                }
            }
            (1, _) => return Err(UsageError::Type("bucket")),
            _ => {}
        }
    }
    Ok(())
}

fn pair_of(mut bytes: &[u8]) -> Result<Entry<'_>, UsageError> {
    let mut pair = Entry { key: "", value: "" };
    while let Some(field) = wire::next(&mut bytes)? {
        match field {
            (1, Value::Bytes(key)) => pair.key = from_utf8(key)?,
            (2, Value::Bytes(value)) => pair.value = from_utf8(value)?,
            (1 | 2, _) => return Err(UsageError::Type("bucket")),
            _ => {}
        }
    }
    Ok(pair)
}

/// Orders the pairs by key. Of pairs with one key the last one stays, as in all decoders of maps.
fn put_in_order(pairs: &mut IdPairs<'_>) {
    // Stable, so that the last pair of a key stays behind the others.
    pairs.sort_by(|a, b| a.key.cmp(b.key));
    pairs.dedup_by(|later, earlier| {
        let is_same = later.key == earlier.key;
        if is_same {
            earlier.value = later.value;
        }
        is_same
    });
}

/// A `google.protobuf.Duration`, at least 0 and at most [`ELAPSED_MAX`].
fn elapsed_of(mut bytes: &[u8]) -> Result<Micros, UsageError> {
    let (mut seconds, mut nanos) = (0, 0);
    while let Some(field) = wire::next(&mut bytes)? {
        match field {
            (1, Value::Number(number)) => seconds = i64::from_ne_bytes(number.to_ne_bytes()),
            // Decoders truncate a number that is too large for its field.
            (2, Value::Number(number)) => nanos = number as i32,
            (1 | 2, _) => return Err(UsageError::Type("time_elapsed")),
            _ => {}
        }
    }
    let seconds = Micros::from_secs(u64::try_from(seconds).unwrap_or(0));
    let micros = Micros(u64::try_from(nanos / 1_000).unwrap_or(0));
    Ok(seconds.saturating_add(micros).min(ELAPSED_MAX))
}

#[cfg(test)]
mod tests;
