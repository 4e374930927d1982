//! Decisions: the results of one counter, of one descriptor, and of a whole request.

use std::borrow::Cow;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use crate::lease_rollback::LeaseRollback;
use crate::limit::{OnError, Unit};
use crate::store_error::StoreError;
use crate::time::Micros;

/// The decision of one counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Whether the hits pass.
    pub allowed: bool,
    /// Index of the reported tier. After a denial, it is the tier that denies for the longest time.
    /// Otherwise it is the tier with the smallest remaining share, the first among equals.
    pub tier: usize,
    /// Limit of the reported tier (requests per window, rate numerator, or slots).
    pub limit: u64,
    /// Hits that the tier still allows. 0 if a counter over its limit denied.
    pub remaining: u64,
    /// Hits on the tier's counter after this request, including those over the limit. A log
    /// records at most one hit over the limit.
    pub used: u64,
    /// If denied, the time until the same hits fit, or until the counter is empty if the hits
    /// exceed the limit. If allowed, the time until `remaining` next grows, or 0 if nothing is
    /// used. For a fixed_window it is always the time until the window ends.
    pub reset_after: Micros,
}

/// The code of a response. Its JSON form is [`Code::name`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Code {
    /// The request is allowed.
    Ok,
    /// The request is denied.
    OverLimit,
}

impl Code {
    /// The name in the protocol.
    pub const fn name(self) -> &'static str {
        match self {
            Code::Ok => "OK",
            Code::OverLimit => "OVER_LIMIT",
        }
    }
}

/// The limit that a status reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CurrentLimit {
    /// The rule's `name`.
    pub name: Option<Arc<str>>,
    /// Requests per window of the reported tier.
    pub requests: u64,
    /// The window, if it is exactly one unit.
    pub unit: Option<Unit>,
}

/// The result of one descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// The code of this descriptor alone, after shadow mode.
    pub code: Code,
    /// The reported limit; absent if no counter decided.
    pub limit: Option<CurrentLimit>,
    /// Hits that the limit still allows; 0 without a limit.
    pub remaining: u64,
    /// See [`Decision::reset_after`], or the time until a block ends; absent if neither a counter nor a
    /// block decided.
    pub reset_after: Option<Micros>,
    /// The reason for the status, for metrics and traces.
    pub reason: DecisionReason,
}

impl Status {
    /// The place of the status among those of its request, the most telling one first: denials, then
    /// fallbacks, then decisions by a counter, then the others.
    pub fn rank(&self) -> u8 {
        match (self.code, self.reason) {
            (Code::OverLimit, _) => 0,
            (Code::Ok, DecisionReason::Fallback { .. }) => 1,
            (Code::Ok, DecisionReason::Counted { .. }) => 2,
            (Code::Ok, _) => 3,
        }
    }
}

/// The reason for a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecisionReason {
    /// Neither a file nor xDS defines the request's domain.
    UnknownDomain,
    /// No rule of the domain matches the descriptor.
    NoRule,
    /// The rule at this index matched, and another rule of the request replaces it.
    Replaced(usize),
    /// The rule at this index matched and is unlimited.
    Unlimited(usize),
    /// A temporary change denies the hits. Nothing is counted.
    Blocked {
        /// The rule that matched, if any.
        rule: Option<usize>,
        /// The hits of the request.
        hits: i64,
    },
    /// A temporary change lets the hits pass. Nothing is counted.
    Bypassed {
        /// The rule that matched, if any.
        rule: Option<usize>,
    },
    /// A counter decided.
    Counted {
        /// The rule; `None` for a limit that the proxy sent.
        rule: Option<usize>,
        /// The hits of the request, times the cost of the rule.
        hits: i64,
        /// The counter's decision.
        decision: Decision,
        /// The rule is in shadow mode: a denial passes as OK.
        shadow: bool,
        /// The shared store decided for this request, or it granted the share that decided. False if
        /// the decision came from memory.
        by_shared_store: bool,
    },
    /// The counter could not be queried, and the fallback decided.
    Fallback {
        /// The rule; `None` for a limit that the proxy sent.
        rule: Option<usize>,
        /// The hits of the request, times the cost of the rule.
        hits: i64,
        /// Whether the fallback allowed the hits.
        allowed: bool,
        /// The fallback that decided.
        on_error: OnError,
        /// The decision of the local counter, if one decided.
        decision: Option<Decision>,
        /// The store's error.
        error: StoreError,
    },
}

impl DecisionReason {
    /// The reason in one word, as both logs of decisions have it.
    pub const fn name(&self) -> &'static str {
        match self {
            DecisionReason::UnknownDomain => "unknown_domain",
            DecisionReason::NoRule => "no_rule",
            DecisionReason::Replaced(_) => "replaced",
            DecisionReason::Unlimited(_) => "unlimited",
            DecisionReason::Blocked { .. } => "blocked",
            DecisionReason::Bypassed { .. } => "bypassed",
            DecisionReason::Counted { rule: None, .. } => "override",
            DecisionReason::Counted { .. } => "counted",
            DecisionReason::Fallback { .. } => "fallback",
        }
    }

    /// The index of the rule that matched, if it is known.
    pub const fn rule(&self) -> Option<usize> {
        match *self {
            DecisionReason::UnknownDomain | DecisionReason::NoRule => None,
            DecisionReason::Replaced(index) | DecisionReason::Unlimited(index) => Some(index),
            DecisionReason::Blocked { rule, .. }
            | DecisionReason::Bypassed { rule }
            | DecisionReason::Counted { rule, .. }
            | DecisionReason::Fallback { rule, .. } => rule,
        }
    }
}

/// The result of a whole request.
#[derive(Debug)]
pub struct Verdict {
    /// Whether the request passes.
    pub code: Code,
    /// One status per descriptor, in the request's order.
    pub statuses: Vec<Status>,
    /// Headers for the client's response. Names are in lower case, except those from settings.
    pub headers: Vec<(Cow<'static, str>, String)>,
    /// The dynamic metadata for the proxy.
    pub metadata: Option<serde_json::Map<String, serde_json::Value>>,
    /// Whether the request was over its limit and passed in global shadow mode.
    pub shadowed: bool,
    /// The slots or reservations that the request took under a lease, if any.
    pub rollback: Option<LeaseRollback>,
    /// The results of what-if limits. None of the other fields depends on them.
    pub what_if: SmallVec<[WhatIf; 1]>,
}

/// The result of a what-if limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WhatIf {
    /// The descriptor, by its index in the request.
    pub descriptor: usize,
    /// The rule, by its index.
    pub rule: usize,
    /// The hits of the request.
    pub hits: i64,
    /// Whether the limit would have denied the hits.
    pub denied: bool,
}

impl Verdict {
    /// The code that the what-if limit of a descriptor would have given it; `None` without a result.
    pub fn what_if_code(&self, descriptor: usize) -> Option<Code> {
        let found = self.what_if.iter().find(|one| one.descriptor == descriptor)?;
        Some(if found.denied { Code::OverLimit } else { Code::Ok })
    }
}
