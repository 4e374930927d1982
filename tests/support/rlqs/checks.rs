//! What every message to an Envoy must satisfy. A violation makes Envoy ignore the action, allow without
//! a limit, or never refill its bucket.

use std::time::Duration;

use envoy_types::pb::envoy::r#type::v3::RateLimitStrategy;
use envoy_types::pb::envoy::r#type::v3::rate_limit_strategy::{BlanketRule, Strategy};

use super::bucket::Assigned;
use super::service::rate_limit_quota_response::BucketAction;
use super::service::rate_limit_quota_response::bucket_action::BucketAction as Kind;
use super::{BucketName, REPORT_INTERVAL, RateLimitQuotaResponse};

/// The most actions of a message.
const ACTIONS_MAX: usize = 1000;

/// An action that Envoy obeys: its bucket, and the assignment with its time to live; `None` to abandon.
pub(super) type CheckedAction = (BucketName, Option<(Assigned, Duration)>);

/// The actions of `message`, each checked.
pub(super) fn actions(message: RateLimitQuotaResponse) -> Vec<Result<CheckedAction, String>> {
    let count = message.bucket_action.len();
    let mut actions: Vec<_> = message.bucket_action.into_iter().map(action).collect();
    if count == 0 || count > ACTIONS_MAX {
        actions.push(Err(format!("a message of {count} actions")));
    }
    actions
}

fn action(action: BucketAction) -> Result<CheckedAction, String> {
    let shown = format!("{action:?}");
    let wrong = |what: &str| format!("{what}: {shown}");
    let id = action.bucket_id.ok_or_else(|| wrong("no bucket id"))?;
    if id.bucket.is_empty() {
        return Err(wrong("an empty bucket id"));
    }
    let name = id.bucket.into_iter().collect();
    let assignment = match action.bucket_action.ok_or_else(|| wrong("no action"))? {
        Kind::AbandonAction(_) => return Ok((name, None)),
        Kind::QuotaAssignmentAction(assignment) => assignment,
    };
    let ttl = assignment.assignment_time_to_live.ok_or_else(|| wrong("no time to live"))?;
    let whole = Duration::from_secs(u64::try_from(ttl.seconds).unwrap_or(0));
    if whole < 2 * REPORT_INTERVAL || ttl.nanos != 0 {
        return Err(wrong("the time to live is not in whole seconds, or shorter than two reports"));
    }
    let strategy = assignment.rate_limit_strategy.ok_or_else(|| wrong("no strategy"))?;
    let assigned = assigned(strategy).map_err(wrong)?;
    Ok((name, Some((assigned, whole))))
}

fn assigned(strategy: RateLimitStrategy) -> Result<Assigned, &'static str> {
    match strategy.strategy.ok_or("an empty strategy")? {
        Strategy::BlanketRule(rule) => match BlanketRule::try_from(rule) {
            Ok(BlanketRule::AllowAll) => Ok(Assigned::AllowAll),
            Ok(BlanketRule::DenyAll) => Ok(Assigned::DenyAll),
            Err(_) => Err("an unknown blanket rule"),
        },
        Strategy::RequestsPerTimeUnit(_) => Err("requests_per_time_unit, which Envoy ignores"),
        Strategy::TokenBucket(bucket) => {
            let fill = bucket.fill_interval.ok_or("no fill interval")?;
            if fill.seconds < 1 {
                return Err("an interval below a second is an infinite rate");
            }
            if !(0..1_000_000_000).contains(&fill.nanos) {
                return Err("invalid nanoseconds");
            }
            let tokens = bucket.tokens_per_fill.ok_or("no tokens per fill: never refilled")?.value;
            if tokens == 0 || bucket.max_tokens == 0 {
                return Err("a bucket without tokens");
            }
            Ok(Assigned::Bucket {
                max_tokens: bucket.max_tokens,
                tokens_per_fill: tokens,
                fill_seconds: fill.seconds.unsigned_abs(),
                generation: fill.nanos.unsigned_abs(),
            })
        }
    }
}
