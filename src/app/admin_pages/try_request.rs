//! `/try`: what a request would be answered now, descriptor by descriptor.

use std::sync::Arc;

use serde_json::{Value, json};

use super::AdminPages;
use super::counter::{DIVIDED, seconds, tier};
use crate::decision::{Code, Decision, DecisionReason};
use crate::descriptor::{Descriptor, Entry, ParsedDescriptor, Request, TraceContext};
use crate::limit::{Algorithm, Mode};
use crate::limiter::{Counter, TriedDescriptor};
use crate::rules::{RuleSet, descriptor_selector};
use crate::server::{RestOfPage, TryQuery};
use crate::time::{Clock, Micros};

/// The page. It reads counters, and changes none. The rest of it explains the descriptors by the rules that
/// decided, and may walk all rules of the domain.
pub(super) async fn page(pages: Arc<AdminPages>, query: TryQuery) -> RestOfPage {
    let active = pages.rules.snapshot_owned();
    let (code, mut shown) = decide(&pages, &active.rules, &query).await;
    Box::new(move || {
        for (one, descriptor) in shown.iter_mut().zip(&query.descriptors) {
            one["explain"] = pages.explain_by(&active.rules, &query.domain, descriptor);
        }
        json!({ "domain": query.domain, "code": code, "descriptors": shown })
    })
}

/// The code of the request, and its descriptors without their explanations.
async fn decide(pages: &AdminPages, rules: &RuleSet, query: &TryQuery) -> (Code, Vec<Value>) {
    let TryQuery { domain, descriptors: parsed, hits, limit } = query;
    let entries: Vec<Vec<Entry<'_>>> = parsed.iter().map(ParsedDescriptor::entries).collect();
    let descriptors: Vec<Descriptor<'_>> = entries
        .iter()
        .map(|entries| Descriptor {
            entries,
            limit: None,
            hits_addend: Some(*hits),
            is_negative_hits: false,
        })
        .collect();
    let request = Request {
        domain,
        descriptors: &descriptors,
        hits_addend: 0,
        timeout: None,
        trace: TraceContext::default(),
        must_decide: None,
    };
    let now = pages.clock.now();
    let tried = pages.limiter.try_request(rules, &request, limit.as_deref(), now).await;
    let mut shown = Vec::new();
    for (descriptor, tried_one) in parsed.iter().zip(&tried.descriptors) {
        shown.push(one(pages, rules, domain, descriptor, tried_one, now).await);
    }
    (tried.code, shown)
}

async fn one(
    pages: &AdminPages,
    rules: &RuleSet,
    domain: &str,
    descriptor: &ParsedDescriptor,
    tried: &TriedDescriptor<'_>,
    now: Micros,
) -> Value {
    let (mut tiers, mut notes) = (Vec::new(), notes(tried));
    if let (Some(rule), Some((key, limit))) = (tried.rule, &tried.counter) {
        let counter = Counter { rule, limit, key: *key };
        match pages.limiter.inspect(&counter, now).await {
            Ok(states) => {
                tiers.extend(states.iter().map(|state| json!(tier(&counter, state, now))));
            }
            Err(error) => notes.push(format!("The tiers could not be read: {error}.")),
        }
    }
    let status = &tried.status;
    let counted = status.limit.is_some();
    let with_limit = match &tried.with_limit {
        Some(Ok(decision)) => Some(changed(tried, decision)),
        Some(Err(problem)) => {
            notes.push(format!("The other limit was not tried: {problem}."));
            None
        }
        None => None,
    };
    json!({
        "descriptor": descriptor_selector(&descriptor.entries()),
        "explain": null,
        "code": status.code,
        "reason": status.reason.name(),
        "rule": tried.rule.map(|rule| &*rule.display_name),
        "counter": pages.hash(rules, domain, descriptor),
        "tiers": tiers,
        "remaining": counted.then_some(status.remaining),
        "reset_after_seconds": status.reset_after.map(|after| seconds(after.0)),
        "with_limit": with_limit,
        "note": (!notes.is_empty()).then(|| notes.join(" ")),
    })
}

/// The decision under the other numbers.
fn changed(tried: &TriedDescriptor<'_>, decision: &Decision) -> Value {
    let is_shadow = tried.rule.is_some_and(|rule| rule.shadow_mode);
    let code = if decision.allowed || is_shadow { Code::Ok } else { Code::OverLimit };
    json!({
        "code": code,
        "requests": decision.limit,
        "used": decision.used,
        "remaining": decision.remaining,
        "reset_after_seconds": seconds(decision.reset_after.0),
    })
}

/// What may make a real decision differ, one sentence each.
fn notes(tried: &TriedDescriptor<'_>) -> Vec<String> {
    let mut notes = Vec::new();
    if let DecisionReason::Fallback { error, .. } = tried.status.reason {
        notes.push(format!("The store failed ({error}), so the fallback decides."));
    }
    if tried.is_divided {
        notes.push(DIVIDED.into());
    }
    match tried.rule.filter(|_| tried.counter.is_some()).map(|rule| rule.mode) {
        Some(Mode::Leased) => {
            notes.push("The rule is leased: instances decide by credits that they hold.".into());
        }
        Some(Mode::Synced { .. }) => {
            notes.push("The rule is synced: instances decide by their own copy.".into());
        }
        Some(Mode::Exact) | None => {}
    }
    let is_bucket = tried.counter.as_ref().is_some_and(|(_, limit)| {
        matches!(limit.algorithm, Algorithm::TokenBucket | Algorithm::LeakyBucket)
    });
    if is_bucket && tried.with_limit.is_some() {
        notes.push(
            "A bucket keeps the time until it is full or empty, so hits count at the other rate."
                .into(),
        );
    }
    notes
}
