//! RLQS: divides the limits of rules among Envoys that decide by themselves.
//!
//! An Envoy opens a stream and reports the requests of its buckets every five seconds. A bucket id is
//! a descriptor: the rule that it matches, and the counter of that rule, determine a quota. The
//! engine divides each quota by demand, and sends each Envoy its share as a token bucket with a time
//! to live. Callers of ShouldRateLimit with the same counter are one more holder, in this process.
//!
//! - A stream: `stream.rs` takes its reports and returns its actions. `usage_report.rs` decodes a report,
//!   `quota_action.rs` encodes an action, and `outbox.rs` has the actions to send. `found_place.rs` looks up
//!   the rule of a bucket by its `bucket_id.rs`, which `id_error.rs` bounds, and `rule_place.rs` says what
//!   follows from the rule. `holder_identity.rs` says which holder the bucket is.
//! - `weir explain --bucket`: `written_id.rs` is the id, and `bucket_outcome.rs` says what Envoys get, with the
//!   same bounds and places.
//! - The quotas: `engine.rs` has them, each in a `quota_shard.rs`. `counter_quota.rs` connects a quota with
//!   its ledger and its `member.rs`. `driver.rs` is the thread that settles them by `settling.rs`, in the order
//!   of `due_quotas.rs`, with Redis by `ledger_calls.rs` through `shared_ledger.rs`, and gives them new rules by
//!   `reloading.rs`.
//! - Callers of ShouldRateLimit: `divided_check.rs` decides them by the share of this process, which
//!   `local_holder.rs` has as `tokens.rs`. `divided_rule_ids.rs` says which rules are divided.
//! - Bounds: `client_budget.rs` (of client addresses), `holder_budget.rs`, both with `lingering.rs`, and
//!   `instance_names.rs` with `contested_names.rs`. Facts for operators: `metrics.rs`, `overview.rs`,
//!   `quota_rule.rs` (per rule), `refused_reason.rs`.
//!
//! [`quota`](crate::quota) has the arithmetic and the invariant: the shares in use are at most the
//! whole quota.

use crate::descriptor::RequestBounds;
use crate::limit::OnError;
use crate::rules::RuleSet;
use crate::time::Micros;

mod bucket_id;
mod bucket_outcome;
mod client_budget;
mod contested_names;
mod counter_quota;
mod divided_check;
mod divided_rule_ids;
mod driver;
mod due_quotas;
mod engine;
mod found_place;
mod holder_budget;
mod holder_identity;
mod id_error;
mod instance_names;
mod ledger_calls;
mod lingering;
mod local_holder;
mod member;
mod metrics;
mod outbox;
mod overview;
mod quota_action;
mod quota_rule;
mod quota_shard;
mod refused_reason;
mod reloading;
mod rule_place;
mod settling;
mod shared_ledger;
mod stream;
mod tokens;
mod usage_report;
mod written_id;

#[cfg(test)]
mod tests;

pub use bucket_outcome::{AllowAllReason, BucketOutcome};
pub use driver::{RlqsDriver, start};
pub use engine::QuotaEngine;
pub use id_error::IdError;
pub use local_holder::LocalCheck;
pub use metrics::RlqsMetrics;
pub use overview::{HolderKind, RuleDemand, ShownHolder, ShownQuota, ShownQuotas};
pub use quota_rule::QuotaRule;
pub use refused_reason::RefusedReason;
pub use shared_ledger::SharedLedger;
pub use stream::{EnvoyStream, ReportError, StreamsFull};
pub use written_id::WrittenBucketId;

/// How long a holder may still use its share after it was lowered: the way to Envoy, and Envoy's main
/// thread. The protocol has no acknowledgement.
const GRACE: Micros = Micros::from_millis(500);

/// How much later a holding expires in the ledger than at its Envoy.
const MARGIN: Micros = Micros::SECOND;

/// The settings of RLQS (`rlqs.*`, where the defaults are), and those that it shares.
#[derive(Clone, Debug)]
pub struct RlqsConfig {
    /// How long an assignment is valid.
    pub assignment_ttl: Micros,
    /// How long a bucket without requests stays.
    pub idle_timeout: Micros,
    /// The first keys of descriptors. The others follow in byte order.
    pub key_order: Vec<String>,
    /// The burst of a window, in percent of its requests.
    pub burst_percent: u64,
    /// Whether the first reports after a start bound the shares, with a memory store.
    pub relearn: bool,
    /// Most open streams. One client address gets at most half of them.
    pub max_streams: usize,
    /// Most buckets of one stream.
    pub max_buckets_per_stream: usize,
    /// Most buckets of all streams, with those of streams that ended in the last `assignment_ttl`. One
    /// client address gets at most half of them.
    pub max_buckets: usize,
    /// Largest report in bytes.
    pub max_message_bytes: usize,
    /// Most holders of this process for its own callers, with those that were removed in the last
    /// `assignment_ttl`.
    pub max_local_holders: usize,
    /// Bounds of the texts and the pairs of bucket ids (`request.*`).
    pub bounds: RequestBounds,
    /// The fallback of rules without their own (`fallback.on_error`).
    pub on_error: OnError,
}

/// The active rules, which a reload replaces.
pub trait ActiveRuleSet: Send + Sync + 'static {
    /// A number that differs after each change of the rules. Cheap.
    fn version(&self) -> u64;

    /// Calls `reader` once with the active rules, which are at least as new as the last
    /// [`version`](ActiveRuleSet::version).
    fn read(&self, reader: &mut dyn FnMut(&RuleSet));
}
