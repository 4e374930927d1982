//! One counter on the admin port: its identity, its state, and its deletion.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::Value;

use super::plan::ShownPlan;
use super::rfc_3339;
use crate::app::changes::DescriptorChanges;
use crate::decision::Decision;
use crate::descriptor::ParsedDescriptor;
use crate::key::CounterKey;
use crate::limit::{Limit, TierNumbers};
use crate::limiter::{Counter, Limiter, NoCounter};
use crate::plans::{PlanChoice, PlanLimit};
use crate::rules::{Location, RuleSet, ShownRule};
use crate::server::CounterError;
use crate::store::StoreError;
use crate::time::Micros;

/// The note about a counter whose limit is divided.
pub(super) const DIVIDED: &str = concat!(
    "RLQS divides this limit: the share of this instance usually decides, ",
    "and not this counter; see /quotas."
);

/// The state of a counter. JSON has the fields in this order, the most important first.
#[derive(Serialize)]
struct ShownCounter<'a> {
    #[serde(flatten)]
    identity: CounterIdentity<'a>,
    /// Whether a tier has no room for one more hit, or a block denies it.
    denied: bool,
    /// When every tier has room for one more hit and no block is left; `None` if this is so now, or
    /// never.
    denied_until: Option<String>,
    /// The plan that gives the numbers, if the rule uses plans.
    #[serde(skip_serializing_if = "Option::is_none")]
    plan: Option<ShownPlan>,
    tiers: Vec<ShownTier>,
    #[serde(skip_serializing_if = "Option::is_none")]
    what_if: Option<ShownWhatIf>,
    /// The temporary changes of the descriptor and its rule.
    changes: Vec<Value>,
    /// Why another state decides.
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<&'static str>,
    #[serde(flatten)]
    place: Place<'a>,
}

/// The counter of the rule's what-if limit.
#[derive(Serialize)]
struct ShownWhatIf {
    /// Whether the limit would deny one more hit.
    denied: bool,
    /// See [`ShownCounter::denied_until`].
    denied_until: Option<String>,
    tiers: Vec<ShownTier>,
    key: String,
}

/// A counter that was deleted.
#[derive(Serialize)]
struct DeletedCounter<'a> {
    #[serde(flatten)]
    identity: CounterIdentity<'a>,
    existed: bool,
    #[serde(flatten)]
    place: Place<'a>,
}

/// The rule of a counter.
#[derive(Serialize)]
struct CounterIdentity<'a> {
    domain: &'a str,
    /// The rule name.
    rule: &'a str,
    /// The selector, if the rule name is another text.
    #[serde(skip_serializing_if = "Option::is_none")]
    selector: Option<String>,
}

/// Where a counter is stored, and where its rule is.
#[derive(Serialize)]
struct Place<'a> {
    /// The hash by which `/top` names the counter.
    counter: Option<String>,
    algorithm: &'static str,
    store: &'static str,
    key: String,
    location: &'a Location,
}

#[derive(Serialize)]
pub(super) struct ShownTier {
    used: u64,
    requests: u64,
    remaining: u64,
    reset_after_seconds: f64,
    window_seconds: f64,
    #[serde(flatten)]
    calendar: Option<ShownCalendar>,
}

/// The current window of a tier by the calendar.
#[derive(Serialize)]
struct ShownCalendar {
    calendar: &'static str,
    zone: &'static str,
    window_start: String,
    window_end: String,
}

/// The counter and the state of each of its tiers at `now`, as JSON. Counts nothing. `hash` names the
/// counter at `/top`. The numbers are those of `changes`, if it changes them, or else those of the `plan`.
pub(super) async fn read(
    limiter: &Limiter,
    counter: &Counter<'_>,
    plan: Option<&PlanChoice<'_>>,
    changes: DescriptorChanges,
    hash: Option<String>,
    now: Micros,
) -> Result<String, CounterError> {
    let Some(limit) = limit_of(counter.limit, plan, changes.numbers.as_deref()) else {
        let why = "its plan is unlimited, so nothing is counted; POST it to /explain to see why";
        return Err(CounterError::NoCounter(why.to_owned()));
    };
    // Under changed numbers the counter decides.
    let is_divided = matches!(limit, Cow::Borrowed(_)) && limiter.divides(counter.rule);
    let counter = &Counter { limit: &limit, ..*counter };
    let tiers = limiter.inspect(counter, now).await.map_err(store_failed)?;
    let what_if = match counter.what_if() {
        Some(counter) => Some(what_if(limiter, &counter, now).await?),
        None => None,
    };
    let (denied, until) = match (changes.is_bypassed, changes.blocked_until) {
        (true, _) => (false, None),
        (false, Some(until)) => (true, Some(until)),
        (false, None) => (tiers.iter().any(|tier| tier.remaining == 0), denied_until(&tiers, now)),
    };
    Ok(json(&ShownCounter {
        identity: identity(counter),
        denied,
        denied_until: until.map(rfc_3339),
        plan: plan.map(ShownPlan::of),
        tiers: tiers.iter().map(|decision| tier(counter, decision, now)).collect(),
        what_if,
        changes: changes.shown,
        note: is_divided.then_some(DIVIDED),
        place: place(limiter, counter, hash),
    }))
}

/// The limit `own` of a rule with the `numbers` of a temporary change if they fit, or else with those of
/// the `plan`. `None` if the plan is unlimited.
pub(super) fn limit_of<'l>(
    own: &'l Limit,
    plan: Option<&'l PlanChoice<'_>>,
    numbers: Option<&[TierNumbers]>,
) -> Option<Cow<'l, Limit>> {
    if let Some(changed) = numbers.and_then(|numbers| own.with_numbers(numbers).ok()) {
        return Some(Cow::Owned(changed));
    }
    match plan.map(|plan| &plan.limit) {
        Some(PlanLimit::Plan(limit)) => Some(Cow::Borrowed(limit.as_ref())),
        Some(PlanLimit::Unlimited) => None,
        Some(PlanLimit::Own(_) | PlanLimit::Unknown { .. }) | None => Some(Cow::Borrowed(own)),
    }
}

/// The state of the counter of a what-if limit.
async fn what_if(
    limiter: &Limiter,
    counter: &Counter<'_>,
    now: Micros,
) -> Result<ShownWhatIf, CounterError> {
    let tiers = limiter.inspect(counter, now).await.map_err(store_failed)?;
    Ok(ShownWhatIf {
        denied: tiers.iter().any(|tier| tier.remaining == 0),
        denied_until: denied_until(&tiers, now).map(rfc_3339),
        tiers: tiers.iter().map(|decision| tier(counter, decision, now)).collect(),
        key: key_name(limiter, &counter.key),
    })
}

/// Deletes the counter. `existed` in the result is true if the store had one.
pub(super) async fn delete(
    limiter: &Limiter,
    counter: &Counter<'_>,
    hash: Option<String>,
) -> Result<String, CounterError> {
    let existed = limiter.delete(counter).await.map_err(store_failed)?;
    let (identity, place) = (identity(counter), place(limiter, counter, hash));
    let (domain, ShownRule { name, selector }) = (identity.domain, ShownRule::of(counter.rule));
    tracing::info!(%domain, rule = %name, selector, existed, "counter deleted by an operator");
    Ok(json(&DeletedCounter { identity, existed, place }))
}

/// The counter of `descriptor`.
pub(super) fn find<'r>(
    limiter: &Limiter,
    rules: &'r RuleSet,
    domain: &str,
    descriptor: &ParsedDescriptor,
) -> Result<Counter<'r>, CounterError> {
    limiter.counter(rules, domain, &descriptor.entries()).map_err(|none| {
        let why = match none {
            NoCounter::UnknownDomain => "no file defines this domain",
            NoCounter::NoRule => "no rule limits this descriptor",
            NoCounter::Unlimited => "its rule is unlimited, so nothing is counted",
        };
        CounterError::NoCounter(format!("{why}; POST it to /explain to see why"))
    })
}

fn identity<'r>(counter: &Counter<'r>) -> CounterIdentity<'r> {
    let Counter { rule, .. } = *counter;
    let selector = rule.other_selector();
    CounterIdentity { domain: &rule.domain, rule: &rule.display_name, selector }
}

fn place<'r>(limiter: &Limiter, counter: &Counter<'r>, hash: Option<String>) -> Place<'r> {
    let Counter { rule, limit, key } = *counter;
    let store = if limiter.backend().shared_store().is_some() { "redis" } else { "memory" };
    let key = key_name(limiter, &key);
    let algorithm = limit.algorithm.name();
    Place { counter: hash, algorithm, store, key, location: &rule.location }
}

/// The name of a counter in the store.
pub(super) fn key_name(limiter: &Limiter, key: &CounterKey) -> String {
    match limiter.backend().shared_store() {
        Some(guarded) => guarded.store().name_of(key),
        None => format!("{:016x}{:016x}", key.0[0], key.0[1]),
    }
}

pub(super) fn tier(counter: &Counter<'_>, decision: &Decision, now: Micros) -> ShownTier {
    let tier = counter.limit.tiers.get(decision.tier);
    let (window, calendar) = match tier.and_then(|tier| tier.calendar) {
        Some(calendar) => {
            let (start, end) = calendar.window_at(now);
            let shown = ShownCalendar {
                calendar: calendar.period.name(),
                zone: calendar.zone.name(),
                window_start: rfc_3339(start),
                window_end: rfc_3339(end),
            };
            (end.saturating_sub(start), Some(shown))
        }
        None => (tier.map_or(Micros::ZERO, |tier| tier.window), None),
    };
    ShownTier {
        used: decision.used,
        requests: decision.limit,
        remaining: decision.remaining,
        reset_after_seconds: seconds(decision.reset_after.0),
        window_seconds: seconds(window.0),
        calendar,
    }
}

/// When the last full tier has room for one more hit, rounded up to a second. `None` if no tier is
/// full, or if a tier has the limit 0.
pub(super) fn denied_until(tiers: &[Decision], now: Micros) -> Option<Micros> {
    let full = || tiers.iter().filter(|tier| tier.remaining == 0);
    if full().any(|tier| tier.limit == 0) {
        return None;
    }
    let longest = full().map(|tier| tier.reset_after).max()?;
    Some(Micros::from_secs(now.saturating_add(longest).ceil_secs()))
}

fn json(shown: &impl Serialize) -> String {
    serde_json::to_string(shown).expect("texts and numbers have a JSON form")
}

pub(super) fn seconds(micros: u64) -> f64 {
    micros as f64 / 1e6
}

fn store_failed(error: StoreError) -> CounterError {
    CounterError::Store(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_denied_until_its_last_tier_has_room() {
        let now = Micros(1_000_000_500_000);
        let tier = |limit: u64, remaining: u64, seconds: u64| Decision {
            allowed: true,
            tier: 0,
            limit,
            remaining,
            used: limit - remaining,
            reset_after: Micros::from_secs(seconds),
        };
        let until = |tiers: &[Decision]| denied_until(tiers, now).map(|at| at.0 / 1_000_000);
        assert_eq!(until(&[tier(3, 1, 60), tier(9, 2, 600)]), None);
        assert_eq!(until(&[tier(3, 0, 60), tier(9, 2, 600)]), Some(1_000_061), "rounded up");
        assert_eq!(until(&[tier(3, 0, 60), tier(9, 0, 600)]), Some(1_000_601));
        assert_eq!(until(&[tier(3, 0, 60), tier(0, 0, 600)]), None, "the limit is 0 for ever");
    }
}
