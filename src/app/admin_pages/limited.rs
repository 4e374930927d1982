//! `/limited`: the counters denied most in the last minute, with their state where their descriptors are
//! permitted.

use futures_util::future::join_all;
use serde::Serialize;
use serde_json::{Value, json};

use super::counter::{denied_until, limit_of, seconds};
use super::{AdminPages, rfc_3339};
use crate::decision::Decision;
use crate::descriptor::ParsedDescriptor;
use crate::limiter::Counter;
use crate::rules::RuleSet;
use crate::telemetry::LimitedCounter;
use crate::time::{Clock, Micros};

/// Length of the window in seconds.
const SECONDS: u64 = 60;

/// A counter of the page.
#[derive(Serialize)]
struct ShownLimited {
    domain: String,
    rule: String,
    /// The selector of the rule, if its name is another text.
    #[serde(skip_serializing_if = "Option::is_none")]
    selector: Option<String>,
    counter: String,
    descriptor: Option<String>,
    denied_hits: u64,
    at_least: u64,
    first_denied_at: String,
    #[serde(flatten)]
    state: ShownState,
    /// Why there is no state, although there is a descriptor.
    error: Option<String>,
}

/// The state of the tier that is nearest its limit. All fields are null without a state.
#[derive(Default, Serialize)]
struct ShownState {
    used: Option<u64>,
    requests: Option<u64>,
    remaining: Option<u64>,
    reset_after_seconds: Option<f64>,
    denied: Option<bool>,
    denied_until: Option<String>,
}

/// The page with `limited`, at most 20 counters. It changes none.
pub(super) async fn page(pages: &AdminPages, limited: Vec<LimitedCounter>) -> Value {
    let now = pages.clock.now();
    let active = pages.rules.snapshot_owned();
    let shown = limited.into_iter().map(|one| shown(pages, &active.rules, one, now));
    let counters: Vec<ShownLimited> = join_all(shown).await;
    json!({ "seconds": SECONDS, "counters": counters })
}

async fn shown(
    pages: &AdminPages,
    rules: &RuleSet,
    limited: LimitedCounter,
    now: Micros,
) -> ShownLimited {
    let state = match limited.descriptor.as_deref() {
        Some(text) => state(pages, rules, &limited, text, now).await,
        None => Ok(ShownState::default()),
    };
    let (state, error) = match state {
        Ok(state) => (state, None),
        Err(why) => (ShownState::default(), Some(why)),
    };
    ShownLimited {
        domain: limited.domain.to_string(),
        rule: limited.rule.to_string(),
        selector: limited.selector.map(|selector| selector.to_string()),
        counter: limited.hash,
        descriptor: limited.descriptor.map(String::from),
        denied_hits: limited.denied_hits,
        at_least: limited.at_least,
        first_denied_at: rfc_3339(limited.first_denied),
        state,
        error,
    }
}

/// The state of the counter of the descriptor `text`, with the numbers that decide now.
async fn state(
    pages: &AdminPages,
    rules: &RuleSet,
    limited: &LimitedCounter,
    text: &str,
    now: Micros,
) -> Result<ShownState, String> {
    let descriptor: ParsedDescriptor = text.parse()?;
    let entries = descriptor.entries();
    let changes = pages.changes_of(rules, &limited.domain, &descriptor);
    let counter = pages.limiter.counter(rules, &limited.domain, &entries);
    let counter = counter.map_err(|_| "the rules have changed, so it has no counter now")?;
    let plan = pages.limiter.plan_of(&counter, &entries);
    let limit = limit_of(counter.limit, plan.as_ref(), changes.numbers.as_deref());
    let limit = limit.ok_or("its plan is unlimited now, so nothing is counted")?;
    let counter = Counter { limit: &limit, ..counter };
    let tiers = pages.limiter.inspect(&counter, now).await;
    let tiers = tiers.map_err(|error| error.to_string())?;
    let (denied, until) = match (changes.is_bypassed, changes.blocked_until) {
        (true, _) => (false, None),
        (false, Some(until)) => (true, Some(until)),
        (false, None) => (tiers.iter().any(|tier| tier.remaining == 0), denied_until(&tiers, now)),
    };
    let Some(tier) = nearest(&tiers) else { return Ok(ShownState::default()) };
    Ok(ShownState {
        used: Some(tier.used),
        requests: Some(tier.limit),
        remaining: Some(tier.remaining),
        reset_after_seconds: Some(seconds(tier.reset_after.0)),
        denied: Some(denied),
        denied_until: until.map(rfc_3339),
    })
}

/// The tier with the smallest remaining share; among equals, the one with the longest reset.
fn nearest(tiers: &[Decision]) -> Option<&Decision> {
    let share = |tier: &Decision| u128::from(tier.remaining);
    let total = |tier: &Decision| u128::from(tier.remaining) + u128::from(tier.used);
    tiers.iter().min_by(|a, b| {
        let order = (share(a) * total(b)).cmp(&(share(b) * total(a)));
        order.then(b.reset_after.cmp(&a.reset_after))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_tier_has_the_least_share_left() {
        let tier = |limit: u64, remaining: u64, reset: u64| Decision {
            allowed: true,
            tier: 0,
            limit,
            remaining,
            used: limit - remaining,
            reset_after: Micros::from_secs(reset),
        };
        let nearest = |tiers: &[Decision]| nearest(tiers).map(|tier| tier.limit);
        assert_eq!(nearest(&[]), None);
        assert_eq!(nearest(&[tier(3, 1, 60), tier(9, 2, 600)]), Some(9));
        assert_eq!(nearest(&[tier(3, 0, 60), tier(9, 2, 600)]), Some(3));
        assert_eq!(nearest(&[tier(3, 0, 60), tier(9, 0, 600)]), Some(9), "the longer denial");
    }
}
