//! Tests of the activity over reloads, on virtual time.

use super::*;
use crate::decision::{Code, Decision, DecisionReason, Status};
use crate::rules::{Options, RuleSet, SourceFile, compile};
use crate::telemetry::SeriesBudget;

const START: Micros = Micros::from_secs(1_000);

fn rules(keys: &[&str]) -> RuleSet {
    let mut text = "domain: d\ndescriptors:\n".to_owned();
    for key in keys {
        let limit = "{ unit: second, requests_per_unit: 1 }";
        text.push_str(&format!("  - {{ key: {key}, rate_limit: {limit} }}\n"));
    }
    let file = SourceFile { name: "r.yaml".into(), text };
    compile(&[file], &Options::default()).expect("good rules").0
}

fn metrics(rules: &RuleSet, before: &RuleMetrics) -> RuleMetrics {
    RuleMetrics::new(rules, before, &Arc::new(SeriesBudget::new(0)))
}

/// Counts one allowed hit of the rule at `index`, as a decision does.
fn count(used: &UsedRules, rules: &RuleSet, metrics: &RuleMetrics, index: usize) {
    let (limit, reset_after) = (10, Micros::ZERO);
    let decision = Decision { allowed: true, tier: 0, limit, remaining: 9, used: 1, reset_after };
    let reason = DecisionReason::Counted {
        rule: Some(index),
        hits: 1,
        decision,
        shadow: false,
        by_shared_store: false,
    };
    let status = Status { code: Code::Ok, limit: None, remaining: 9, reset_after: None, reason };
    let series = metrics.get(index).expect("a rule");
    if !series.is_used() {
        used.add(metrics, series, index);
    }
    series.record(&rules.rules()[index], &[], &status);
}

fn at(tick: u64) -> Micros {
    START.saturating_add(Micros(super::super::history::TICK.0 * tick))
}

#[test]
fn unchanged_rules_keep_their_history() {
    let (activity, used, requests) =
        (Activity::new(START), UsedRules::default(), Requests::default());
    let first = rules(&["a", "b"]);
    let first_metrics = metrics(&first, &RuleMetrics::default());
    let active = ActiveSeries { version: 0, metrics: &first_metrics };
    count(&used, &first, &first_metrics, 0);
    count(&used, &first, &first_metrics, 1);
    activity.tick(at(1), active, &used, &requests);
    // The rule `b` has another index, and `a` is removed.
    let second = rules(&["c", "b"]);
    let second_metrics = metrics(&second, &first_metrics);
    let active = ActiveSeries { version: 1, metrics: &second_metrics };
    count(&used, &second, &second_metrics, 1);
    // A request that began before the reload.
    count(&used, &first, &first_metrics, 0);
    activity.tick(at(2), active, &used, &requests);
    activity.read(active, &used, |reader| {
        assert_eq!(reader.used().collect::<Vec<_>>(), [1]);
        assert_eq!(reader.until(), Some(at(2)));
        let history = reader.history_of(&second_metrics.all()[1]).expect("a history");
        assert_eq!(history.ticks[0][58..], [Some(1), Some(1)]);
        assert_eq!(reader.history_of(&first_metrics.all()[0]), None);
        assert_eq!(reader.history_of(&second_metrics.all()[0]), None);
        assert_eq!(reader.rates_of(&second_metrics.all()[1]).map(|rates| rates.within), Some(0.1));
    });
}

/// A page takes its rules first, and waits for the table then. Meanwhile, a reload may come.
#[test]
fn pages_with_older_rules_keep_the_newer_ones() {
    let (activity, used, requests) =
        (Activity::new(START), UsedRules::default(), Requests::default());
    let old = rules(&["a", "b"]);
    let old_metrics = metrics(&old, &RuleMetrics::default());
    let before = ActiveSeries { version: 0, metrics: &old_metrics };
    count(&used, &old, &old_metrics, 1);
    activity.tick(at(1), before, &used, &requests);
    let new = rules(&["c", "d", "b"]);
    let new_metrics = metrics(&new, &old_metrics);
    let after = ActiveSeries { version: 1, metrics: &new_metrics };
    let read = |active| {
        activity.read(active, &used, |reader| {
            let mut indices: Vec<usize> = reader.used().collect();
            indices.sort_unstable();
            indices
        })
    };
    // No page has seen the newer rules.
    count(&used, &new, &new_metrics, 0);
    assert_eq!(read(before), [1]);
    assert_eq!(read(after), [0, 2]);
    // A page has seen them. The index of `b` is not that of the older rules.
    count(&used, &new, &new_metrics, 1);
    assert!(read(before).is_empty());
    assert_eq!(read(after), [0, 1, 2]);
    activity.tick(at(2), after, &used, &requests);
    assert!(activity.sample(&mut None, at(2), before, &used).is_empty());
    activity.read(after, &used, |reader| {
        assert!(new_metrics.all().iter().all(|series| reader.history_of(series).is_some()));
    });
}

#[test]
fn samples_have_the_rates_between_them() {
    let (activity, used, requests) =
        (Activity::new(START), UsedRules::default(), Requests::default());
    let rules = rules(&["a", "b"]);
    let metrics = metrics(&rules, &RuleMetrics::default());
    let active = ActiveSeries { version: 0, metrics: &metrics };
    (0..20).for_each(|_| count(&used, &rules, &metrics, 0));
    activity.tick(at(1), active, &used, &requests);
    let mut last = None;
    let first = activity.sample(&mut last, at(1), active, &used);
    assert_eq!(
        first.iter().map(|(index, rates)| (*index, rates.hits)).collect::<Vec<_>>(),
        [(0, 2.0)]
    );
    (0..4).for_each(|_| count(&used, &rules, &metrics, 0));
    count(&used, &rules, &metrics, 1);
    let later = at(1).saturating_add(Micros::from_secs(2));
    let second = activity.sample(&mut last, later, active, &used);
    assert_eq!(
        second.iter().map(|(index, rates)| (*index, rates.hits)).collect::<Vec<_>>(),
        [(0, 2.0)]
    );
    count(&used, &rules, &metrics, 1);
    let later = at(1).saturating_add(Micros::from_secs(4));
    let third = activity.sample(&mut last, later, active, &used);
    assert_eq!(
        third.iter().map(|(index, rates)| (*index, rates.hits)).collect::<Vec<_>>(),
        [(1, 0.5)]
    );
}
