//! Tests of `limit_from`, by which a rule takes its numbers from plans.

use super::*;

/// Rules of domain `d` with one descriptor each, whose limit is 1 per minute.
fn with(limit_from: &str) -> String {
    format!(
        "domain: d
descriptors:
  - key: region
    descriptors:
      - key: api_key
        rate_limit: {{ name: calls, requests: 1, window: 1m, limit_from: {limit_from} }}
"
    )
}

/// The `limit_from` of the rule of `region=eu,api_key=acme`.
fn limit_from(text: &str) -> LimitFrom {
    let set = rules(text);
    let rule = found(&set, "region=eu,api_key=acme").expect("a rule");
    assert!(!rule.is_divisible(), "its numbers differ by customer");
    LimitFrom::clone(rule.limit_from.as_ref().expect("it takes numbers from plans"))
}

#[test]
fn the_fields_select_entry_limit_and_default() {
    let (customer, plan) = (PlanEntry::Customer, PlanEntry::Plan);
    for (fields, names, value, limit, default) in [
        ("{ customer: api_key }", customer, "acme", "calls", None),
        ("{ customer: region, limit: tokens }", customer, "eu", "tokens", None),
        ("{ plan: api_key, default: free }", plan, "acme", "calls", Some("free")),
    ] {
        let from = limit_from(&with(fields));
        assert_eq!(from.names, names, "{fields}");
        assert_eq!(from.value(&entries("region=eu,api_key=acme")), value, "{fields}");
        assert_eq!((&*from.limit, from.default.as_deref()), (limit, default), "{fields}");
    }
    let null = rules(&with("~"));
    let rule = found(&null, "region=eu,api_key=acme").expect("a rule");
    assert!(rule.limit_from.is_none() && rule.is_divisible());
}

/// The numbers of rules with the same id are used for each other.
#[test]
fn a_use_id_has_all_that_decides_the_numbers() {
    let id = |text: &str| limit_from(text).use_id;
    let first = with("{ customer: api_key, default: free }");
    let base = id(&first);
    let bucket = |numbers: &str| {
        first.replace("requests: 1,", &format!("algorithm: token_bucket, {numbers},"))
    };
    let of_bucket = id(&bucket("requests: 1"));
    assert_eq!(id(&bucket("requests: 5, burst: 5")), of_bucket, "the burst follows the requests");
    assert_ne!(id(&bucket("requests: 5, burst: 7")), of_bucket, "it stays");
    for same in [
        with("{ plan: region, default: free }"),
        first.replace("requests: 1,", "requests: 9, count_denied: false,"),
    ] {
        assert_eq!(id(&same), base, "{same}");
    }
    for other in [
        with("{ customer: api_key }"),
        with("{ customer: api_key, default: pro }"),
        with("{ customer: api_key, default: free, limit: tokens }"),
        first.replace("1m", "1h"),
        bucket("requests: 1"),
        bucket("requests: 1, burst: 7"),
        first.replace(
            "requests: 1, window: 1m",
            "tiers: [{ requests: 1, window: 1m }, \
                       { requests: 1, window: 1h }]",
        ),
    ] {
        assert_ne!(id(&other), base, "{other}");
    }
}

/// Plans change numbers only, so a counter keeps its count when its rule begins to use plans.
#[test]
fn plans_do_not_change_counters() {
    let planned = with("{ customer: api_key }");
    let plain = with("~");
    let counter_of = |text: &str| counter(&rules(text), "region=eu,api_key=acme");
    assert_eq!(counter_of(&planned), counter_of(&plain));
}

#[test]
fn customers_that_share_a_counter_cause_a_warning() {
    let text = |matcher: &str, names: &str| {
        format!(
            "domain: d\ndescriptors:\n  - key: k\n    {matcher}\n    rate_limit: {{ name: n, \
             requests: 1, window: 1m, limit_from: {{ {names}: k }} }}\n"
        )
    };
    for (matcher, names, warns) in [
        ("value: '*'\n    share_threshold: true", "customer", true),
        ("value_template: /a/{b}", "customer", true),
        ("value_template: /a/{b}\n    count_by: [b]", "customer", false),
        ("value: acme", "customer", false),
        ("value_to_metric: false", "customer", false),
        ("value: '*'\n    share_threshold: true", "plan", false),
    ] {
        let text = text(matcher, names);
        let (_, warnings) = compiled(&text, &Options::default()).expect("valid");
        assert_eq!(warnings.len(), usize::from(warns), "{text}{warnings:?}");
        assert!(warnings.iter().all(|one| one.what.contains("share a counter")), "{warnings:?}");
    }
}

#[test]
fn explain_and_rlconfig_show_the_plan() {
    let set = rules(&with("{ customer: api_key, default: free }"));
    let shown = set.explain("d", &entries("region=eu,api_key=acme")).to_string();
    let line =
        "numbers from the plan of the customer `api_key`: limit `calls`, default plan `free`";
    assert!(shown.contains(line), "{shown}");
    let dump = set.rlconfig();
    let end = ", limit_from: {customer: api_key, limit: calls, default: free}\n";
    assert!(dump.ends_with(end), "{dump}");
    let set = rules(&with("{ plan: region }"));
    let shown = set.explain("d", &entries("region=eu,api_key=acme")).to_string();
    let line = "numbers from the plan in `region`: limit `calls`, without a plan those above";
    assert!(shown.contains(line), "{shown}");
}

#[test]
fn overlays_cannot_set_limit_from() {
    let overlays = "overlays:\n  - domain: d\n    rule: '**'\n    rate_limit: { limit_from: \
                    { customer: a } }\n";
    let folder = tempfile::tempdir().expect("a temporary folder");
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("a file");
        path
    };
    let (rules, overlays) = (write("r.yaml", &with("~")), write("o.yaml", overlays));
    let problems = RuleSources::read(&[rules], &[overlays]).compile(&Options::default());
    let problems = problems.expect_err("not permitted");
    let what = "an overlay cannot set `limit_from`";
    assert!(problems.iter().any(|problem| problem.what == what), "{problems:?}");
}
