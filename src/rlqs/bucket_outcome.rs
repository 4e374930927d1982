//! What the quota service does with a bucket, for `weir explain`: the same lookup, bounds and rule places as
//! those of a stream, without a stream.

use std::borrow::Cow;
use std::fmt;

use super::RlqsConfig;
use super::id_error::{IdError, check_id};
use super::rule_place::RulePlace;
use super::written_id::WrittenBucketId;
use crate::limit::Indivisible;
use crate::quota::{Assignment, Quota, SHARES};
use crate::rules::{Found, RuleSet};

/// Significant digits of a rate that is no whole number.
const SIGNIFICANT_MIN: usize = 6;

/// Decimals of a rate that is no whole number.
const DECIMALS_MIN: usize = 3;

/// What Envoys get for a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BucketOutcome {
    /// Nothing: the quota service is switched off.
    Off,
    /// Nothing: its id is refused.
    Refused(IdError),
    /// `ALLOW_ALL`.
    AllowAll(AllowAllReason),
    /// `DENY_ALL`: a limit of 0.
    DenyAll,
    /// No assignment, because the limit cannot be divided.
    Unassigned(Indivisible),
    /// Shares of this quota.
    Divided(Quota),
}

/// Why every request of a bucket passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllowAllReason {
    /// No rule matches.
    NoRule,
    /// The rule is unlimited.
    Unlimited,
    /// The rule is in shadow mode.
    ShadowMode,
    /// The rule is in shadow mode, and its limit cannot be divided.
    UndividedShadowMode(Indivisible),
}

impl AllowAllReason {
    /// The reason, and what is counted.
    fn words(self) -> (&'static str, Cow<'static, str>) {
        match self {
            AllowAllReason::NoRule => ("no rule", "no rule counts the requests".into()),
            AllowAllReason::Unlimited => ("unlimited", "the rule counts the requests".into()),
            AllowAllReason::ShadowMode => {
                ("shadow mode", "what the limit would deny is counted".into())
            }
            AllowAllReason::UndividedShadowMode(why) => {
                ("shadow mode", format!("what {} would deny is not counted", why.words()).into())
            }
        }
    }
}

impl BucketOutcome {
    /// Of the bucket `id` in `domain`, by these rules and a quota service with this `config`.
    pub fn of(
        rules: &RuleSet,
        config: &RlqsConfig,
        domain: &str,
        id: &WrittenBucketId,
    ) -> BucketOutcome {
        let descriptor = id.descriptor(&config.key_order);
        let entries = descriptor.entries();
        if let Err(error) = check_id(&entries, &config.bounds) {
            return BucketOutcome::Refused(error);
        }
        let Found::Rule(rule) = rules.find(domain, &entries) else {
            return BucketOutcome::AllowAll(AllowAllReason::NoRule);
        };
        match RulePlace::of(rule, config.burst_percent) {
            RulePlace::Unlimited => BucketOutcome::AllowAll(AllowAllReason::Unlimited),
            RulePlace::UndividedShadow(why) => {
                BucketOutcome::AllowAll(AllowAllReason::UndividedShadowMode(why))
            }
            RulePlace::Unassigned(why) => BucketOutcome::Unassigned(why),
            RulePlace::Divided(_) if rule.shadow_mode => {
                BucketOutcome::AllowAll(AllowAllReason::ShadowMode)
            }
            RulePlace::Divided(quota) => match Assignment::of(&quota, SHARES) {
                Assignment::DenyAll => BucketOutcome::DenyAll,
                _ => BucketOutcome::Divided(quota),
            },
        }
    }
}

impl fmt::Display for BucketOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BucketOutcome::Off => write!(
                f,
                "switched off (rlqs.enabled: false): Envoy's no_assignment_behavior decides"
            ),
            BucketOutcome::Refused(error) => write!(f, "refused: {error}"),
            BucketOutcome::AllowAll(reason) => {
                let (why, what) = reason.words();
                write!(f, "allows all ({why}): ALLOW_ALL is assigned, and {what}")
            }
            BucketOutcome::DenyAll => write!(f, "denies all (a limit of 0): DENY_ALL is assigned"),
            BucketOutcome::Unassigned(why) => {
                write!(f, "not divided ({}): Envoy's no_assignment_behavior decides", why.words())
            }
            BucketOutcome::Divided(quota) => write!(
                f,
                "divided: {} per second, burst {}, among all Envoys with buckets of this counter",
                rate_text(quota),
                quota.burst
            ),
        }
    }
}

/// The rate of a quota in hits per second. Whole numbers are exact. Others are rounded down, so that the
/// text is never more than the limit, and have six significant digits and at least three decimals.
fn rate_text(quota: &Quota) -> String {
    let window = u128::from(quota.window.0.max(1));
    let hits = u128::from(quota.requests) * 1_000_000;
    let mut text = (hits / window).to_string();
    let mut rest = hits % window;
    if rest == 0 {
        return text;
    }
    let (mut significant, mut decimals) = (text.trim_start_matches('0').len(), 0);
    text.push('.');
    while rest > 0 && (significant < SIGNIFICANT_MIN || decimals < DECIMALS_MIN) {
        let digit = rest * 10 / window;
        rest = rest * 10 % window;
        text.push_str(&digit.to_string());
        decimals += 1;
        if significant > 0 || digit > 0 {
            significant += 1;
        }
    }
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
