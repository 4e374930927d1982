//! Writes the text of `/rlconfig`: the rules, one line per limit.

use std::fmt::Write;

use super::cost_text::short_cost;
use crate::duration;
use crate::escape::one_line;
use crate::limit::{Algorithm, Limit, Mode, Tier, Unit};
use crate::rules::lookup::rule::{Rule, RuleLimit};

/// Writes one line per rule, in file order, in the format of envoyproxy/ratelimit. Fields that only
/// weir has come last, and only where they are set.
pub(in crate::rules) fn text(rules: &[Rule]) -> String {
    let mut text = String::new();
    for rule in rules {
        line(rule, &mut text).expect("a String takes all");
    }
    text
}

fn line(rule: &Rule, out: &mut String) -> std::fmt::Result {
    let key = format!("{}.{}", rule.domain, rule.written_stat_key());
    let (unit, requests) = match &rule.limit {
        RuleLimit::Unlimited => ("UNKNOWN".to_owned(), 0),
        RuleLimit::Limit(limit) => {
            let first = limit.tiers[0];
            let unit = Unit::of_window(first.window).map_or("unknown", Unit::name);
            (unit.to_uppercase(), first.requests)
        }
    };
    write!(out, "{}: unit={unit} requests_per_unit={requests}", one_line(&key))?;
    write!(out, ", shadow_mode: {}, quota_mode: {}", rule.shadow_mode, rule.quota_mode)?;
    if let RuleLimit::Limit(limit) = &rule.limit {
        if !is_plain(limit) {
            let name = limit.algorithm.name();
            write!(out, ", algorithm: {name}, tiers: [{}]", tier_texts(limit))?;
        }
        if limit.count_denied != (limit.algorithm == Algorithm::FixedWindow) {
            write!(out, ", count_denied: {}", limit.count_denied)?;
        }
    }
    if let Some(what_if) = &rule.what_if {
        write!(out, ", shadow: [{}]", tier_texts(&what_if.limit))?;
    }
    if let Some(hold) = rule.reserve {
        write!(out, ", reserve: {}", duration::compound(hold))?;
    }
    if let Some(cost) = short_cost(rule) {
        write!(out, ", cost: {}", one_line(&cost))?;
    }
    if let Some(from) = &rule.limit_from {
        write!(out, ", limit_from: {}", from.written())?;
    }
    if rule.mode != Mode::Exact {
        write!(out, ", mode: {}", rule.mode.name())?;
    }
    if let Mode::Synced { interval } = rule.mode {
        write!(out, ", sync_interval: {}", duration::compound(interval))?;
    }
    if !rule.over_limit_cache {
        write!(out, ", over_limit_cache: false")?;
    }
    if let Some(on_error) = rule.on_error {
        write!(out, ", on_error: {}", on_error.name())?;
    }
    if rule.usage {
        write!(out, ", usage: true")?;
    }
    if let Some(lines) = rule.log {
        write!(out, ", log: {}", lines.name())?;
    }
    out.push('\n');
    Ok(())
}

/// Whether envoyproxy/ratelimit can express this limit.
fn is_plain(limit: &Limit) -> bool {
    limit.algorithm == Algorithm::FixedWindow
        && limit.tiers.len() == 1
        && !limit.has_calendar()
        && Unit::of_window(limit.tiers[0].window).is_some()
}

impl Rule {
    /// The limit in words, one part per tier, or `unlimited`.
    pub fn limit_text(&self) -> String {
        match &self.limit {
            RuleLimit::Unlimited => "unlimited".to_owned(),
            RuleLimit::Limit(limit) => tier_texts(limit),
        }
    }
}

/// All tiers in words.
pub(super) fn tier_texts(limit: &Limit) -> String {
    let tiers: Vec<_> = limit.tiers.iter().map(|tier| tier_text(limit, tier)).collect();
    tiers.join(", ")
}

/// One tier in words.
pub(super) fn tier_text(limit: &Limit, tier: &Tier) -> String {
    let window = match &tier.calendar {
        Some(calendar) => calendar.to_string(),
        None => duration::compound(tier.window),
    };
    match limit.algorithm {
        Algorithm::Concurrency => format!("{} at once, held {window} at most", tier.requests),
        Algorithm::TokenBucket | Algorithm::LeakyBucket => {
            format!("{} per {window} with burst {}", tier.requests, tier.burst)
        }
        Algorithm::FixedWindow | Algorithm::SlidingWindow | Algorithm::SlidingWindowLog => {
            format!("{} per {window}", tier.requests)
        }
    }
}
