//! The explanation of a bucket of RLQS, for `weir explain --bucket` and `/explain`.

use std::fmt;

use serde_json::{Value, json};

use super::rlqs::config;
use crate::descriptor::ParsedDescriptor;
use crate::escape::one_line;
use crate::rlqs::{AllowAllReason, BucketOutcome, IdError, WrittenBucketId};
use crate::rules::{Explanation, RuleSet};
use crate::settings::Settings;

/// The rule of a bucket, and what Envoys get for it.
#[derive(Debug)]
pub struct ExplainedBucket {
    /// The descriptor that the id becomes.
    pub descriptor: ParsedDescriptor,
    explanation: Explanation,
    /// The error if the id is refused. It is then not looked up.
    refused: Option<IdError>,
    outcome: BucketOutcome,
}

impl ExplainedBucket {
    /// Explains the bucket `id` by `rules`, for a service with these `settings`.
    pub fn of(
        rules: &RuleSet,
        settings: &Settings,
        domain: &str,
        id: &WrittenBucketId,
    ) -> ExplainedBucket {
        let config = config(settings);
        let descriptor = id.descriptor(&config.key_order);
        let outcome = BucketOutcome::of(rules, &config, domain, id);
        let refused = match outcome {
            BucketOutcome::Refused(error) => Some(error),
            _ => None,
        };
        let explanation = match refused {
            Some(error) => Explanation::not_looked_up(domain, &error.to_string()),
            None => rules.explain_walk(domain, &descriptor.entries()),
        };
        let outcome = if settings.rlqs.enabled { outcome } else { BucketOutcome::Off };
        ExplainedBucket { descriptor, explanation, refused, outcome }
    }

    /// Whether the id is refused, so that it has no rule.
    pub fn is_refused(&self) -> bool {
        self.refused.is_some()
    }

    /// The explanation, with `bucket_descriptor` and `rlqs`.
    pub fn to_json(&self) -> Value {
        let mut shown = json!(self.explanation);
        shown["bucket_descriptor"] = json!(self.descriptor.to_string());
        shown["rlqs"] = outcome_json(&self.outcome);
        shown
    }
}

fn outcome_json(outcome: &BucketOutcome) -> Value {
    let mut shown = match outcome {
        BucketOutcome::Off => json!({ "kind": "off" }),
        BucketOutcome::Refused(_) => json!({ "kind": "refused" }),
        BucketOutcome::AllowAll(reason) => {
            let reason = match reason {
                AllowAllReason::NoRule => "no_rule",
                AllowAllReason::Unlimited => "unlimited",
                AllowAllReason::ShadowMode | AllowAllReason::UndividedShadowMode(_) => {
                    "shadow_mode"
                }
            };
            json!({ "kind": "allow_all", "reason": reason })
        }
        BucketOutcome::DenyAll => json!({ "kind": "deny_all" }),
        BucketOutcome::Unassigned(why) => json!({ "kind": "not_divided", "reason": why.name() }),
        BucketOutcome::Divided(quota) => json!({
            "kind": "divided",
            "requests": quota.requests,
            "window_seconds": quota.window.0 as f64 / 1e6,
            "per_second": quota.rate(),
            "burst": quota.burst,
        }),
    };
    shown["text"] = json!(outcome.to_string());
    shown
}

impl fmt::Display for ExplainedBucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "bucket  as the descriptor {}", one_line(&self.descriptor.to_string()))?;
        self.explanation.fmt(f)?;
        writeln!(f, "RLQS    {}", self.outcome)
    }
}
