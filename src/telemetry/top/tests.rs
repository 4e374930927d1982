//! Tests of the counters denied most.

use super::*;
use crate::rules::{Options, RuleSet, SourceFile, compile};
use crate::telemetry::{RuleMetrics, SeriesBudget};

const RULES: &str = "
domain: d
descriptors:
  - { key: user, rate_limit: { unit: second, requests_per_unit: 1 } }
";

fn rules() -> RuleSet {
    let file = SourceFile { name: "r.yaml".into(), text: RULES.into() };
    compile(&[file], &Options::default()).expect("good rules").0
}

fn denied(top: &TopDenied, rules: &RuleSet, rule_metrics: &RuleMetrics, user: &str, now: Micros) {
    let entries = [Entry { key: "user", value: user }];
    top.denied(&rules.rules()[0], &rule_metrics.all()[0], &entries, 1, now);
}

fn rule_metrics(rules: &RuleSet) -> RuleMetrics {
    RuleMetrics::new(rules, &RuleMetrics::default(), &Arc::new(SeriesBudget::new(0)))
}

#[test]
fn denials_expire_after_a_minute() {
    let (top, rules) = (TopDenied::new(true), rules());
    let rule_metrics = rule_metrics(&rules);
    let start = Micros::from_secs(1_000_000);
    for (user, times) in [("ann", 3), ("bob", 5)] {
        (0..times).for_each(|_| denied(&top, &rules, &rule_metrics, user, start));
    }
    let later = start.saturating_add(Micros::from_secs(30));
    denied(&top, &rules, &rule_metrics, "ann", later);
    let shown = |now| -> Vec<(String, u64)> {
        let page = top.to_json(now);
        assert_eq!(page["seconds"], 60);
        let of = |one: &Value| {
            let name = one["descriptor"].as_str().unwrap().to_owned();
            assert_eq!(one["rule"], "user");
            assert_eq!(one["at_least"], one["denied_hits"]);
            (name, one["denied_hits"].as_u64().unwrap())
        };
        page["top"].as_array().unwrap().iter().map(of).collect()
    };
    assert_eq!(shown(later), [("user=bob".into(), 5), ("user=ann".into(), 4)]);
    let minute = start.saturating_add(Micros::from_secs(60));
    assert_eq!(shown(minute), [("user=ann".into(), 1)]);
    assert_eq!(shown(minute.saturating_add(Micros::from_secs(60))), []);
}

#[test]
fn a_run_of_denials_has_its_first_denial() {
    let (top, rules) = (TopDenied::new(true), rules());
    let rule_metrics = rule_metrics(&rules);
    let at = |seconds: u64| Micros::from_secs(1_000_000 + seconds);
    let first = |seconds| -> Vec<Micros> {
        top.limited(at(seconds)).into_iter().map(|one| one.first_denied).collect()
    };
    for second in (3..300).step_by(5) {
        denied(&top, &rules, &rule_metrics, "ann", at(second));
    }
    assert_eq!(first(299), [at(3)]);
    assert!(first(355).is_empty());
    // After the pause, another run begins.
    denied(&top, &rules, &rule_metrics, "ann", at(355));
    denied(&top, &rules, &rule_metrics, "ann", at(361));
    assert_eq!(first(361), [at(355)]);
}

/// Both rules have the stat key `a.b`, so the series stay.
#[test]
fn the_selector_is_that_of_the_current_rule() {
    let limit = "rate_limit: { name: n, unit: second, requests_per_unit: 1 }";
    let now = Micros::from_secs(1_000_000);
    let mut before = RuleMetrics::default();
    let nested = format!("{{ key: a, descriptors: [{{ key: b, {limit} }}] }}");
    for (item, keys) in [(format!("{{ key: a.b, {limit} }}"), &["a.b"][..]), (nested, &["a", "b"])]
    {
        let text = format!("domain: d\ndescriptors:\n  - {item}\n");
        let file = SourceFile { name: "r.yaml".into(), text };
        let rules = compile(&[file], &Options::default()).expect("good rules").0;
        let metrics = RuleMetrics::new(&rules, &before, &Arc::new(SeriesBudget::new(0)));
        let entries: Vec<Entry<'_>> = keys.iter().map(|&key| Entry { key, value: "x" }).collect();
        let top = TopDenied::new(false);
        top.denied(&rules.rules()[0], &metrics.all()[0], &entries, 1, now);
        assert_eq!(top.limited(now)[0].selector.as_deref(), Some(&*keys.join(",")));
        before = metrics;
    }
}

#[test]
fn values_are_shown_only_if_permitted_and_cut() {
    let (rules, now) = (rules(), Micros::from_secs(1_000_000));
    let rule_metrics = rule_metrics(&rules);
    for with_values in [false, true] {
        let top = TopDenied::new(with_values);
        denied(&top, &rules, &rule_metrics, &"secret".repeat(10_000), now);
        let mut page = Exposition::default();
        top.expose(now, &mut page);
        let texts = [top.to_json(now).to_string(), page.to_prometheus()];
        for text in texts {
            assert_eq!(text.contains("secret"), with_values, "{text}");
            assert!(text.len() < 1000, "{text}");
        }
    }
}

/// Only `/limited` shows descriptors of rules that permit them, and it never cuts one.
#[test]
fn permitted_descriptors_are_whole() {
    let text = "
domain: d
descriptors:
  - { key: plain, rate_limit: { unit: second, requests_per_unit: 1 } }
  - { key: listed, rate_limit: { unit: second, requests_per_unit: 1, usage: true } }
  - { key: shown, detailed_metric: true, rate_limit: { unit: second, requests_per_unit: 1 } }
";
    let file = SourceFile { name: "r.yaml".into(), text: text.into() };
    let rules = compile(&[file], &Options::default()).expect("good rules").0;
    let rule_metrics = rule_metrics(&rules);
    let start = Micros::from_secs(1_000_000);
    for (with_values, permitted) in
        [(false, &["listed", "shown"][..]), (true, &["listed", "plain", "shown"])]
    {
        let top = TopDenied::new(with_values);
        for (rule, series) in rules.rules().iter().zip(rule_metrics.all()) {
            let key = rule.written_stat_key();
            let long = "x".repeat(VALUES_BYTES_MAX - key.len());
            for value in ["a,b=c", "template:x", &long] {
                let entries = [Entry { key: &key, value }];
                top.denied(rule, series, &entries, 1, start);
                let later = start.saturating_add(Micros::from_secs(15));
                top.denied(rule, series, &entries, 1, later);
            }
        }
        let limited = top.limited(start.saturating_add(Micros::from_secs(20)));
        assert_eq!(limited.len(), 9);
        assert!(limited.iter().all(|one| one.first_denied == start && one.denied_hits == 2));
        let mut shown: Vec<String> =
            limited.iter().filter_map(|one| one.descriptor.as_deref().map(str::to_owned)).collect();
        shown.sort();
        let expected: Vec<String> = permitted
            .iter()
            .flat_map(|key| [format!("{key}=\\template:x"), format!("{key}=a\\,b=c")])
            .collect();
        assert_eq!(shown, expected);
        for text in &shown {
            let parsed: crate::descriptor::ParsedDescriptor = text.parse().expect("a descriptor");
            assert!(["a,b=c", "template:x"].contains(&&*parsed.0[0].1), "{text}");
        }
    }
}

#[test]
fn the_twenty_counters_denied_most_are_shown() {
    let (top, rules) = (TopDenied::new(true), rules());
    let (rule_metrics, now) = (rule_metrics(&rules), Micros::from_secs(1_000_000));
    for round in 0..1000 {
        denied(&top, &rules, &rule_metrics, &format!("once{round}"), now);
        denied(&top, &rules, &rule_metrics, "often", now);
    }
    let page = top.to_json(now);
    let shown = page["top"].as_array().unwrap();
    assert_eq!(shown.len(), COUNTERS_SHOWN);
    assert_eq!(shown[0]["descriptor"], "user=often");
    assert_eq!(shown[0]["denied_hits"], 1000);
}
