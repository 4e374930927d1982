//! Tests of temporary changes.

use super::*;
use crate::descriptor::RequestBounds;
use crate::limit::TierNumbers;
use crate::rules::{Found, Options, Rule, RuleSet, SourceFile};

mod active;
mod registry;
mod requests;
mod stored;

const NOW: Micros = Micros::from_secs(1_700_000_000);

const RULES: &str = "
domain: d
descriptors:
  - key: user
    rate_limit: { name: per-user, unit: minute, requests_per_unit: 10 }
  - key: user
    value: root
    rate_limit: { unlimited: true }
  - key: path
    rate_limit: { tiers: [{ requests: 5, window: 1s }, { requests: 50, window: 1m }] }
  - key: tokens
    rate_limit: { algorithm: token_bucket, unit: minute, requests_per_unit: 10, burst: 40 }
  - key: a
    rate_limit: { name: twice, unit: minute, requests_per_unit: 1 }
  - key: b
    rate_limit: { name: twice, unit: minute, requests_per_unit: 1 }
";

const BOUNDS: RequestBounds =
    RequestBounds { max_descriptors: 8, max_entries: 4, max_text_bytes: 8_000 };

fn compiled(text: &str) -> RuleSet {
    let file = SourceFile { name: "test.yaml".into(), text: text.to_owned() };
    let compiled = crate::rules::compile(&[file], &Options::default());
    compiled.unwrap_or_else(|problems| panic!("{problems:?}")).0
}

fn rules() -> RuleSet {
    compiled(RULES)
}

fn pairs(text: &str) -> Vec<(String, String)> {
    let pair = |text: &str| text.split_once('=').map(|(k, v)| (k.to_owned(), v.to_owned()));
    text.split(',').map(|one| pair(one).expect("write k=v")).collect()
}

fn limit(requests: &[u64]) -> ChangeAction {
    let numbers = |requests: &u64| TierNumbers { requests: *requests, burst: None };
    ChangeAction::Limit(requests.iter().map(numbers).collect())
}

/// A change of domain `d` for a minute. A target with `=` is a descriptor.
fn change(target: &str, action: ChangeAction) -> TemporaryChange {
    let target = match target.contains('=') {
        true => ChangeTarget::Descriptor(pairs(target)),
        false => ChangeTarget::Rule(target.to_owned()),
    };
    TemporaryChange {
        id: "1".to_owned(),
        domain: "d".to_owned(),
        target,
        action,
        until: NOW.saturating_add(Micros::from_secs(60)),
        made_at: NOW,
        reason: "a test".to_owned(),
        by: "ann".to_owned(),
    }
}

/// The rule of `k=v,k=v` in domain `d`.
fn found<'r>(rules: &'r RuleSet, text: &str) -> Option<&'r Rule> {
    let pairs = pairs(text);
    match rules.find("d", &change::entries(&pairs)) {
        Found::Rule(rule) => Some(rule),
        Found::NoRule | Found::UnknownDomain => None,
    }
}
