//! The assignments that an Envoy was sent, and what must hold for each of them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use envoy_types::pb::envoy::service::rate_limit_quota::v3 as rlqs;
use envoy_types::pb::envoy::r#type::v3::TokenBucket;
use envoy_types::pb::envoy::r#type::v3::rate_limit_strategy::{BlanketRule, Strategy};
use rlqs::rate_limit_quota_response::BucketAction;
use rlqs::rate_limit_quota_response::bucket_action::BucketAction as Kind;

/// An action of a response.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) at: Instant,
    /// The id of the bucket.
    pub(crate) bucket: BTreeMap<String, String>,
    /// `None` if the bucket was abandoned.
    pub(crate) assigned: Option<Assigned>,
}

/// An assignment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Assigned {
    /// Requests per second: infinite for ALLOW_ALL, 0 for DENY_ALL.
    pub(crate) rate: f64,
    /// The tokens of a full bucket.
    pub(crate) max_tokens: u32,
    pub(crate) ttl: Duration,
}

impl Sent {
    /// Reads an action. The error says which property it lacks that Envoy needs.
    pub(super) fn read(at: Instant, action: BucketAction) -> Result<Sent, String> {
        let shown = format!("{action:?}");
        let wrong = |what: &str| format!("{what}: {shown}");
        let bucket: BTreeMap<_, _> =
            action.bucket_id.unwrap_or_default().bucket.into_iter().collect();
        if bucket.is_empty() {
            return Err(wrong("no bucket id"));
        }
        let assignment = match action.bucket_action.ok_or_else(|| wrong("no action"))? {
            Kind::AbandonAction(_) => return Ok(Sent { at, bucket, assigned: None }),
            Kind::QuotaAssignmentAction(assignment) => assignment,
        };
        let ttl = assignment.assignment_time_to_live.ok_or_else(|| wrong("no time to live"))?;
        if ttl.seconds < 1 || ttl.nanos != 0 {
            return Err(wrong("it expires at once, or after no whole seconds"));
        }
        let strategy = assignment.rate_limit_strategy.and_then(|strategy| strategy.strategy);
        let (rate, max_tokens) = match strategy.ok_or_else(|| wrong("no strategy"))? {
            Strategy::BlanketRule(rule) => match BlanketRule::try_from(rule) {
                Ok(BlanketRule::AllowAll) => (f64::INFINITY, 0),
                Ok(BlanketRule::DenyAll) => (0.0, 0),
                Err(_) => return Err(wrong("an unknown rule")),
            },
            Strategy::RequestsPerTimeUnit(_) => return Err(wrong("Envoy has no such strategy")),
            Strategy::TokenBucket(bucket) => {
                (rate(&bucket).map_err(|what| wrong(&what))?, bucket.max_tokens)
            }
        };
        let ttl = Duration::from_secs(ttl.seconds.unsigned_abs());
        Ok(Sent { at, bucket, assigned: Some(Assigned { rate, max_tokens, ttl }) })
    }

    /// When it expires, if it is an assignment.
    pub(crate) fn expires(&self) -> Option<Instant> {
        Some(self.at + self.assigned?.ttl)
    }
}

/// Requests per second of a token bucket. The nanoseconds of its interval are a generation, which
/// Envoy does not count as time.
fn rate(bucket: &TokenBucket) -> Result<f64, String> {
    let interval = bucket.fill_interval.as_ref().ok_or("no interval")?;
    if interval.seconds < 1 || !(0..1_000_000_000).contains(&interval.nanos) {
        return Err("an interval of less than a second".to_owned());
    }
    let fill = bucket.tokens_per_fill.as_ref().ok_or("no tokens per fill")?.value;
    if fill == 0 || bucket.max_tokens == 0 {
        return Err("a bucket that never fills".to_owned());
    }
    Ok(f64::from(fill) / interval.seconds as f64)
}

/// The rate that is assigned at `now`: that of the last action before, unless it has expired.
pub(crate) fn rate_at(actions: &[Sent], now: Instant) -> f64 {
    let last = actions.iter().rfind(|sent| sent.at <= now);
    let current = last.filter(|sent| sent.expires().is_some_and(|end| now < end));
    current.and_then(|sent| sent.assigned).map_or(0.0, |assigned| assigned.rate)
}

/// The largest sum of the rates that several Envoys had for one bucket at the same time, before `end`. An
/// Envoy that was killed has its rate until it expires.
pub(crate) fn largest_sum(envoys: &[Vec<Sent>], end: Instant) -> f64 {
    let instants = envoys.iter().flatten().map(|sent| sent.at).filter(|at| *at < end);
    let sum = |now: Instant| envoys.iter().map(|actions| rate_at(actions, now)).sum();
    instants.map(sum).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use envoy_types::pb::envoy::service::rate_limit_quota::v3 as rlqs;
    use envoy_types::pb::envoy::r#type::v3::RateLimitStrategy;
    use envoy_types::pb::envoy::r#type::v3::rate_limit_strategy::RequestsPerTimeUnit;
    use envoy_types::pb::google::protobuf::{Duration as WireDuration, UInt32Value};
    use rlqs::BucketId;
    use rlqs::rate_limit_quota_response::bucket_action::QuotaAssignmentAction;

    use super::*;

    fn seconds(seconds: i64) -> Option<WireDuration> {
        Some(WireDuration { seconds, nanos: 0 })
    }

    /// What is wrong with an assignment of a strategy for some seconds.
    fn wrong(strategy: Strategy, ttl: i64) -> Option<String> {
        let assignment = QuotaAssignmentAction {
            assignment_time_to_live: seconds(ttl),
            rate_limit_strategy: Some(RateLimitStrategy { strategy: Some(strategy) }),
        };
        let bucket = [("tenant".to_owned(), "a".to_owned())].into();
        let action = BucketAction {
            bucket_id: Some(BucketId { bucket }),
            bucket_action: Some(Kind::QuotaAssignmentAction(assignment)),
        };
        Sent::read(Instant::now(), action).err()
    }

    #[test]
    fn each_bad_message_is_noticed() {
        let bucket = |fill: Option<u32>, interval| {
            let tokens_per_fill = fill.map(|value| UInt32Value { value });
            Strategy::TokenBucket(TokenBucket {
                max_tokens: 1,
                tokens_per_fill,
                fill_interval: interval,
            })
        };
        let per_unit = RequestsPerTimeUnit { requests_per_time_unit: 5, time_unit: 1 };
        assert_eq!(wrong(bucket(Some(5), seconds(1)), 10), None);
        let table = [
            (bucket(Some(5), seconds(0)), 10, "less than a second"),
            (bucket(Some(5), None), 10, "no interval"),
            (bucket(None, seconds(1)), 10, "no tokens per fill"),
            (bucket(Some(0), seconds(1)), 10, "never fills"),
            (Strategy::RequestsPerTimeUnit(per_unit), 10, "no such strategy"),
            (Strategy::BlanketRule(7), 10, "an unknown rule"),
            (bucket(Some(5), seconds(1)), 0, "expires at once"),
        ];
        for (strategy, ttl, expected) in table {
            let wrong = wrong(strategy, ttl).expect(expected);
            assert!(wrong.contains(expected), "{expected}: {wrong}");
        }
    }
}
