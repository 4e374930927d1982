//! Tests of what-if limits: which fields they have, and that they leave the rule as it is.

use super::*;
use crate::limit::Limit;
use crate::rules::{RuleSources, WhatIfLimit};

/// The rule of `k` in domain `d` with these fields of `rate_limit`.
fn rule(fields: &str) -> Rule {
    let set = rules(&format!("domain: d\ndescriptors: [{{ key: k, rate_limit: {{ {fields} }} }}]"));
    found(&set, "k=v").expect("a rule").clone()
}

fn what_if(fields: &str) -> WhatIfLimit {
    *rule(fields).what_if.clone().unwrap_or_else(|| panic!("no what-if limit: {fields}"))
}

/// Requests, seconds of the window, and burst of each tier.
fn tiers(limit: &Limit) -> Vec<(u64, u64, u64)> {
    limit.tiers.iter().map(|tier| (tier.requests, tier.window.ceil_secs(), tier.burst)).collect()
}

#[test]
fn missing_windows_are_those_of_the_rule() {
    let (hour, day) = (3_600, 86_400);
    let bucket = "algorithm: token_bucket, requests: 5, window: 10s, burst: 9";
    let two = "tiers: [{ requests: 5, window: 1s }, { requests_per_unit: 50, unit: hour }]";
    for (limit, shadow, expected) in [
        ("unit: hour, requests_per_unit: 5", "requests_per_unit: 7", vec![(7, hour, 7)]),
        ("unit: hour, requests_per_unit: 5", "requests: 7", vec![(7, hour, 7)]),
        ("unit: hour, requests_per_unit: 5", "requests: 0", vec![(0, hour, 0)]),
        ("unit: hour, requests_per_unit: 5", "requests: 7, window: 10s", vec![(7, 10, 7)]),
        ("requests: 5, window: 10s", "requests_per_unit: 7", vec![(7, 10, 7)]),
        ("requests: 5, window: 10s", "requests_per_unit: 7, unit: day", vec![(7, day, 7)]),
        (
            "unit: hour, unit_multiplier: 2, requests_per_unit: 5",
            "requests: 7",
            vec![(7, 2 * hour, 7)],
        ),
        (bucket, "requests: 7", vec![(7, 10, 7)]),
        (bucket, "requests: 7, burst: 30", vec![(7, 10, 30)]),
        (bucket, "requests: 7, window: 1s, burst: 30", vec![(7, 1, 30)]),
        (two, "tiers: [{ requests: 7 }, { requests: 70 }]", vec![(7, 1, 7), (70, hour, 70)]),
        (
            two,
            "tiers: [{ requests: 7 }, { requests: 70, window: 1m }]",
            vec![(7, 1, 7), (70, 60, 70)],
        ),
        (two, "tiers: [{ requests: 7, window: 1m }]", vec![(7, 60, 7)]),
        (two, "requests: 7, window: 1m", vec![(7, 60, 7)]),
        ("unit: hour, requests_per_unit: 5", "tiers: [{ requests: 7 }]", vec![(7, hour, 7)]),
    ] {
        let what_if = what_if(&format!("{limit}, shadow: {{ {shadow} }}"));
        assert_eq!(tiers(&what_if.limit), expected, "{limit}, {shadow}");
    }
}

/// Denied hits count in the what-if limit if they count in the limit.
#[test]
fn the_rest_is_that_of_the_rule() {
    for (rest, count_denied) in [
        ("unit: hour, requests_per_unit: 5", true),
        ("unit: hour, requests_per_unit: 5, count_denied: false", false),
        ("unit: hour, requests_per_unit: 5, mode: leased", false),
        ("algorithm: sliding_window, requests: 5, window: 10s", false),
        ("algorithm: sliding_window, requests: 5, window: 10s, count_denied: true", true),
    ] {
        let rule = rule(&format!("{rest}, shadow: {{ requests: 7 }}"));
        let RuleLimit::Limit(limit) = &rule.limit else { panic!("a limit: {rest}") };
        let what_if = &rule.what_if.as_ref().expect("a what-if limit").limit;
        assert_eq!((what_if.algorithm, what_if.count_denied), (limit.algorithm, count_denied));
        assert_eq!(limit.count_denied, count_denied, "{rest}");
    }
}

#[test]
fn a_what_if_limit_leaves_the_counter_alone() {
    let plain = rule("unit: hour, requests_per_unit: 5");
    assert_eq!(plain.what_if, None);
    let rest = "unit: hour, requests_per_unit: 5";
    let with = |shadow: &str| rule(&format!("{rest}, shadow: {{ {shadow} }}"));
    let (same, longer) = (with("requests: 7"), with("requests: 7, window: 1d"));
    for rule in [&same, &longer] {
        assert_eq!((rule.id, &rule.limit), (plain.id, &plain.limit));
    }
    let id = |rule: &Rule| rule.what_if.as_ref().expect("a what-if limit").id;
    assert_eq!(id(&same), plain.id, "numbers are not part of an identity");
    assert_ne!(id(&longer), plain.id, "windows are");
    assert_eq!(id(&with("requests: 8, window: 1d")), id(&longer));
}

#[test]
fn a_what_if_limit_is_explained() {
    let set = rules(
        "
domain: d
descriptors:
  - key: k
    rate_limit:
      tiers: [{ requests: 5, window: 1s }, { requests: 50, window: 1h }]
      shadow: { tiers: [{ requests: 7 }, { requests: 70 }] }
",
    );
    let text = set.explain("d", &entries("k=v")).to_string();
    let line = "\n        shadow: 7 per 1s, 70 per 1h is counted too, and never denies\n";
    assert!(text.contains(line), "{text}");
    let dump = set.rlconfig();
    assert!(dump.ends_with(", shadow: [7 per 1s, 70 per 1h]\n"), "{dump}");
}

#[test]
fn an_overlay_sets_a_what_if_limit() {
    let text =
        "domain: d\ndescriptors: [{ key: k, rate_limit: { unit: hour, requests_per_unit: 5 } }]";
    let overlaid = |limit: &str| {
        let item = format!("overlays: [{{ domain: d, rule: k, rate_limit: {limit} }}]");
        let (mut files, mut overlays) = (RuleFiles::default(), RuleFiles::default());
        files.files.push(file("r.yaml", text));
        overlays.files.push(file("o.yaml", &item));
        let sources = RuleSources { files, overlays, ..RuleSources::default() };
        sources.compile(&Options::default())
    };
    let (set, warnings) = overlaid("{ shadow: { requests: 7 } }").expect("valid");
    assert!(warnings.is_empty(), "{warnings:#?}");
    let rule = found(&set, "k=v").expect("a rule");
    let limit = &rule.what_if.as_ref().expect("a what-if limit").limit;
    assert_eq!(tiers(limit), [(7, 3_600, 7)]);
    let problems = overlaid("{ shadow: { requests: 7, burst: 9 } }").expect_err("no bucket");
    let texts: Vec<String> = problems.iter().map(ToString::to_string).collect();
    assert!(texts.iter().any(|text| text.contains("`burst` applies only to buckets")), "{texts:?}");
}
