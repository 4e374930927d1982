//! Builds the headers `RateLimit-Policy` and `RateLimit` of
//! draft-ietf-httpapi-ratelimit-headers-11.
//!
//! Both are lists of RFC 9651 structured fields. `RateLimit-Policy` lists every tier of every
//! counted rule. `RateLimit` lists the reported tier of each descriptor, the most restrictive first.
//! No partition key is sent: it would reveal how counters are identified.

use std::borrow::Cow;
use std::fmt::Write;

use super::reported_limit::{HeaderList, ReportedLimit, most_restrictive_first, quotable_name};

/// The largest integer a structured field can hold (RFC 9651, 3.3.1).
const INTEGER_MAX: u64 = 999_999_999_999_999;

/// Adds both headers; `limits` is not empty.
pub(super) fn push(limits: &[ReportedLimit<'_>], list: &mut HeaderList) {
    let mut policies: Vec<String> = Vec::new();
    for limit in limits {
        for policy in limit.policies() {
            // Two descriptors on one rule share its policies.
            if !policies.contains(&policy) {
                policies.push(policy);
            }
        }
    }
    let service_limits: Vec<String> =
        most_restrictive_first(limits).into_iter().map(ReportedLimit::service_limit).collect();
    list.push(("ratelimit-policy".into(), policies.join(", ")));
    list.push(("ratelimit".into(), service_limits.join(", ")));
}

impl ReportedLimit<'_> {
    fn policies(&self) -> Vec<String> {
        let name = self.name();
        let tiers = self.limit.tiers.iter().map(|tier| {
            let mut policy = format!("\"{name}\";q={}", tier.requests.min(INTEGER_MAX));
            let _ = if self.limit.counts_slots() {
                write!(policy, ";qu=\"concurrent-requests\"")
            } else {
                write!(policy, ";w={}", tier.window.ceil_secs().min(INTEGER_MAX))
            };
            policy
        });
        tiers.collect()
    }

    fn service_limit(&self) -> String {
        let remaining = self.decision.remaining.min(INTEGER_MAX);
        let reset = self.decision.reset_after.ceil_secs().min(INTEGER_MAX);
        format!("\"{}\";r={remaining};t={reset}", self.name())
    }

    /// The policy's name: the rule name.
    fn name(&self) -> Cow<'_, str> {
        self.rule.map_or(Cow::Borrowed("override"), quotable_name)
    }
}
