//! The activity of rules on the admin port: their rates and their history.

use std::cmp::Ordering;

use serde_json::{Value, json};

use super::{AdminPages, rfc_3339};
use crate::app::active_rules::RuleSnapshot;
use crate::app::activity::series;
use crate::rules::{Rule, RuleLimit};
use crate::server::{ActivityOrder, ActivityQuery};
use crate::telemetry::{ActivityReader, RuleHistory, RuleRates, TICK, TICKS};

/// The rules that `query` asks for. Rules without a decision since the start are counted in `total`, and
/// listed only by name or when the query names a rule.
pub(super) fn page(pages: &AdminPages, query: &ActivityQuery) -> Value {
    let active = pages.rules.snapshot_owned();
    let read = |reader: &ActivityReader<'_>| {
        let (total, rows) = rows(&active, query, reader);
        json!({
            "tick_seconds": TICK.0 / 1_000_000,
            "until": reader.until().map(rfc_3339),
            "total": total,
            "rules": rows,
        })
    };
    pages.recorder.decisions.activity(series(&active), read)
}

/// The number of rules that fit, and the rows of the page.
fn rows(
    active: &RuleSnapshot,
    query: &ActivityQuery,
    reader: &ActivityReader<'_>,
) -> (usize, Vec<Value>) {
    let rules = active.rules.rules();
    let fits = |rule: &Rule| {
        query.domain.as_ref().is_none_or(|domain| *rule.domain == **domain)
            && query.rule.as_ref().is_none_or(|name| is_named(rule, name))
    };
    let is_filtered = query.domain.is_some() || query.rule.is_some();
    let total =
        if is_filtered { rules.iter().filter(|rule| fits(rule)).count() } else { rules.len() };
    let rates = |rule: &Rule| {
        let series = active.metrics.get(rule.index)?;
        reader.rates_of(series)
    };
    let with_all = query.order == ActivityOrder::Name || query.rule.is_some();
    let mut chosen: Vec<(f64, &Rule)> = if with_all {
        let fitting = rules.iter().filter(|rule| fits(rule));
        fitting.map(|rule| (measure(query.order, rates(rule)), rule)).collect()
    } else {
        let used = reader.used().filter_map(|index| rules.get(index));
        let fitting = used.filter(|rule| fits(rule));
        fitting.map(|rule| (measure(query.order, rates(rule)), rule)).collect()
    };
    let by_order = |one: &(f64, &Rule), other: &(f64, &Rule)| -> Ordering {
        let names = |rule: &Rule| (rule.domain.clone(), rule.display_name.clone(), rule.index);
        other.0.total_cmp(&one.0).then_with(|| names(one.1).cmp(&names(other.1)))
    };
    // Not a sort of all: there may be a million rules.
    if chosen.len() > query.limit {
        chosen.select_nth_unstable_by(query.limit, by_order);
        chosen.truncate(query.limit);
    }
    chosen.sort_unstable_by(by_order);
    let rows = chosen.into_iter().map(|(_, rule)| row(active, rule, reader)).collect();
    (total, rows)
}

/// Whether the rule has this name or this selector.
fn is_named(rule: &Rule, name: &str) -> bool {
    *rule.display_name == *name || rule.selector() == name
}

/// The number by which rules are ordered, the highest first.
fn measure(order: ActivityOrder, rates: Option<RuleRates>) -> f64 {
    let rates = rates.unwrap_or_default();
    match order {
        ActivityOrder::Denied => rates.over,
        ActivityOrder::Hits => rates.hits,
        ActivityOrder::Near => rates.near,
        ActivityOrder::Fallback => rates.fallback,
        ActivityOrder::Name => 0.0,
    }
}

fn row(active: &RuleSnapshot, rule: &Rule, reader: &ActivityReader<'_>) -> Value {
    let series = active.metrics.get(rule.index);
    let history = series.and_then(|series| reader.history_of(series));
    let is_used = series.is_some_and(|series| series.is_used());
    let unrecorded = || RuleHistory {
        // A rule that has decided nothing has rates. Those of a rule whose history was removed are unknown.
        rates: (!is_used).then(RuleRates::default),
        ticks: std::array::from_fn(|_| vec![None; TICKS]),
        denied_since: None,
    };
    let RuleHistory { rates, ticks, denied_since } = history.unwrap_or_else(unrecorded);
    let [within, near, over, fallback] = ticks;
    let algorithm = match &rule.limit {
        RuleLimit::Unlimited => "unlimited",
        RuleLimit::Limit(limit) => limit.algorithm.name(),
    };
    let mut row = names(rule);
    row["location"] = json!(rule.location.to_string());
    row["limit"] = json!(rule.limit_text());
    row["algorithm"] = json!(algorithm);
    row["mode"] = json!(rule.mode.name());
    row["usage"] = json!(rule.usage);
    row["rates"] = json!(rates);
    row["history"] = json!({ "within": within, "near": near, "over": over, "fallback": fallback });
    row["denied_since"] = json!(denied_since.map(rfc_3339));
    row
}

/// The domain and the name of a rule, and its selector where it differs.
pub(super) fn names(rule: &Rule) -> Value {
    let mut names = json!({ "domain": &*rule.domain, "rule": &*rule.display_name });
    let selector = rule.selector();
    if *rule.display_name != *selector {
        names["selector"] = json!(selector);
    }
    names
}
