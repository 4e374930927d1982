//! The activity of rules on the admin port: their rates and their history.

use std::cmp::Ordering;

use serde_json::{Value, json};

use super::{AdminPages, rfc_3339};
use crate::app::active_rules::RuleSnapshot;
use crate::app::activity::series;
use crate::rules::{Rule, RuleLimit, RuleSet};
use crate::server::{ActivityOrder, ActivityQuery};
use crate::telemetry::{ActivityReader, RuleHistory, RuleRates, TICK, TICKS};

/// The rules that a query is about.
struct QueriedRules<'a> {
    /// The number of rules that fit the query.
    total: usize,
    /// The rules to list; `None` for those of the domain that have decided something.
    listed: Option<Vec<&'a Rule>>,
}

/// The rules that `query` asks for. Rules without a decision since the start are counted in `total`, and
/// listed only by name or when the query names a rule.
pub(super) fn page(pages: &AdminPages, query: &ActivityQuery) -> Value {
    let active = pages.rules.snapshot_owned();
    // Before `activity` takes its lock: there may be a million rules.
    let queried = QueriedRules::find(&active.rules, query);
    let total = queried.total;
    let read = |reader: &ActivityReader<'_>| {
        json!({
            "tick_seconds": TICK.0 / 1_000_000,
            "until": reader.until().map(rfc_3339),
            "total": total,
            "rules": rows(&active, query, queried, reader),
        })
    };
    pages.recorder.decisions.activity(series(&active), read)
}

impl<'a> QueriedRules<'a> {
    /// Takes at most one pass over the rules, and two for a rule of one domain that does not exist.
    fn find(rules: &'a RuleSet, query: &ActivityQuery) -> QueriedRules<'a> {
        let all = rules.rules();
        let in_domain = |rule: &&Rule| is_of_domain(rule, query);
        let listed: Option<Vec<&Rule>> = match (&query.rule, &query.domain) {
            (Some(name), Some(domain)) => {
                // Not the rules that share a `name`: none of them is called so.
                let rule = rules.rule_named(domain, name).filter(|rule| rule.is_called(name));
                Some(rule.into_iter().collect())
            }
            (Some(name), None) => Some(all.iter().filter(|rule| rule.is_called(name)).collect()),
            (None, _) if query.order == ActivityOrder::Name => {
                Some(all.iter().filter(in_domain).collect())
            }
            (None, _) => None,
        };
        let total = match &listed {
            Some(listed) => listed.len(),
            None if query.domain.is_some() => all.iter().filter(in_domain).count(),
            None => all.len(),
        };
        QueriedRules { total, listed }
    }
}

/// Whether the rule is in the domain that the query names, if it names one.
fn is_of_domain(rule: &Rule, query: &ActivityQuery) -> bool {
    query.domain.as_ref().is_none_or(|domain| *rule.domain == **domain)
}

/// The rows of the page, at most as many as the query permits.
fn rows<'a>(
    active: &'a RuleSnapshot,
    query: &ActivityQuery,
    queried: QueriedRules<'a>,
    reader: &ActivityReader<'_>,
) -> Vec<Value> {
    let rules = active.rules.rules();
    let measured = |rule: &'a Rule| {
        let rates = active.metrics.get(rule.index).and_then(|series| reader.rates_of(series));
        (measure(query.order, rates), rule)
    };
    let mut chosen: Vec<(f64, &Rule)> = match queried.listed {
        Some(listed) => listed.into_iter().map(measured).collect(),
        None => {
            let used = reader.used().filter_map(|index| rules.get(index));
            used.filter(|rule| is_of_domain(rule, query)).map(measured).collect()
        }
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
    chosen.into_iter().map(|(_, rule)| row(active, rule, reader)).collect()
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
