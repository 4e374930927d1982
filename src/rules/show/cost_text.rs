//! Writes the cost of a rule in words.

use crate::descriptor::Entry;
use crate::limit::{Cost, Factor};
use crate::rules::excerpt::shorten;
use crate::rules::lookup::rule::Rule;

/// The cost of a descriptor with these `entries`, or the costs of all. `None` without a cost.
pub(super) fn cost_text(rule: &Rule, entries: Option<&[Entry<'_>]>) -> Option<String> {
    let cost = rule.cost.as_deref()?;
    let Cost::ByValue { level, factors, default } = cost else {
        return Some(format!("cost: {}", per_hit(cost.factor(|_| None))));
    };
    let key = shorten(&rule.path.get(*level)?.key);
    let Some(entries) = entries else {
        let count = factors.len();
        return Some(format!("cost: by `{key}`, {count} factors, {default} for other values"));
    };
    let value = entries.get(*level).map(|entry| entry.value);
    let of = per_hit(cost.factor(|_| value));
    match value.filter(|value| factors.contains_key(*value)) {
        Some(value) => Some(format!("cost: {of}, by `{key}` = `{}`", shorten(value))),
        None => Some(format!("cost: {of}, the default of `{key}`")),
    }
}

/// The cost as `/rlconfig` shows it. `None` without a cost.
pub(super) fn short_cost(rule: &Rule) -> Option<String> {
    match rule.cost.as_deref()? {
        Cost::Fixed(factor) => Some(factor.to_string()),
        Cost::ByValue { level, .. } => Some(format!("by {}", rule.path.get(*level)?.key)),
    }
}

fn per_hit(factor: Factor) -> String {
    let rounded = if factor.is_whole() { "" } else { ", rounded up" };
    format!("{factor} per hit{rounded}")
}
