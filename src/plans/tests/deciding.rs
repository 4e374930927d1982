//! Tests of the order in which plans, defaults and rules give numbers.

use proptest::prelude::*;

use super::*;

const CUSTOMERS: [(&str, &str); 6] = [
    ("acme", "pro"),
    ("bank", "house"),
    ("old", "gone"),
    ("small", "free"),
    ("llm", "tokens"),
    ("burst", "bucket"),
];

#[test]
fn the_plan_decides_then_the_default_then_the_rule() {
    let customer = "{ customer: key }";
    let default = "{ customer: key, default: free }";
    let by_plan = "{ plan: key, default: free }";
    let no_default = "{ customer: key, default: fre }";
    for (limit_from, value, expected) in [
        (customer, "acme", "1000"),
        (customer, "bank", "unlimited"),
        (customer, "old", "own 5"),
        (customer, "new", "own 5"),
        (customer, "llm", "own 5"),
        (customer, "burst", "own 5"),
        (customer, "", "own 5"),
        (default, "acme", "1000"),
        (default, "bank", "unlimited"),
        (default, "old", "100"),
        (default, "new", "100"),
        (default, "llm", "own 5"),
        (default, "", "100"),
        (by_plan, "pro", "1000"),
        (by_plan, "house", "unlimited"),
        (by_plan, "gone", "100"),
        (by_plan, "acme", "100"),
        (by_plan, "", "100"),
        (no_default, "new", "own 5"),
        (no_default, "acme", "1000"),
    ] {
        let rules = rules("requests: 5, window: 1m", limit_from);
        let plans = with_table(book(BOOK), &CUSTOMERS);
        assert_eq!(limit_of(&plans, &rules, value), expected, "{limit_from} {value}");
        plans.use_rules(&rules);
        let compiled = limit_of(&plans, &rules, value);
        assert_eq!(compiled, expected, "compiled: {limit_from} {value}");
        assert_eq!(last_known(&plans, &rules, value), expected, "{limit_from} {value}");
    }
}

#[test]
fn numbers_change_and_nothing_else() {
    let algorithm =
        "algorithm: token_bucket, requests: 5, window: 1m, burst: 7, count_denied: true";
    let rules = rules(algorithm, "{ customer: key }");
    let plans = with_table(book(BOOK), &CUSTOMERS);
    plans.use_rules(&rules);
    let (rule, limit) = rule(&rules);
    for (value, requests, burst) in [("burst", 1000, 3000), ("small", 100, 7)] {
        let found = plans.limit(rule, limit, &[Entry { key: "key", value }]);
        let PlanLimit::Plan(found) = found else { panic!("{value}: {found:?}") };
        let mut expected = limit.clone();
        (expected.tiers[0].requests, expected.tiers[0].burst) = (requests, burst);
        assert_eq!(*found, expected, "{value}");
    }
}

/// A rule that does not use plans, and plans that no source has sent yet.
#[test]
fn without_plans_the_rule_decides() {
    let rules = rules("requests: 5, window: 1m", "~");
    assert_eq!(limit_of(&with_table(book(BOOK), &CUSTOMERS), &rules, "acme"), "own 5");
    let rules = super::rules("requests: 5, window: 1m", "{ customer: key, default: free }");
    for asks_per_customer in [false, true] {
        let plans = Plans::new(PlansConfig { max_customers: 10, asks_per_customer });
        plans.use_rules(&rules);
        assert_eq!(last_known(&plans, &rules, "acme"), "own 5");
        assert_eq!(plans.status().warnings, Vec::<String>::new(), "nothing is known yet");
    }
}

#[test]
fn numbers_that_do_not_fit_leave_the_rule_and_warn() {
    let tiers = "tiers: [{ requests: 5, window: 1m }, { requests: 9, window: 1h }]";
    let log = "algorithm: sliding_window_log, requests: 5, window: 1m";
    let bucket = "algorithm: token_bucket, requests: 5, window: 1m";
    for (limit, numbers, expected, warning) in [
        ("requests: 5, window: 1m", "7", "7", ""),
        ("requests: 5, window: 1m", "[7, 8]", "own 5", "the numbers are of 2 tiers"),
        ("requests: 5, window: 1m", "{ requests: 7, burst: 8 }", "own 5", "only to buckets"),
        (tiers, "[7, 8]", "7 8", ""),
        (tiers, "7", "own 5 9", "the numbers are of 1 tiers"),
        (log, "100_000", "100000", ""),
        (log, "100_001", "own 5", "sliding_window_log stores each request"),
        (bucket, "{ requests: 7, burst: 0 }", "own 5", "a burst of 0"),
        (bucket, "{ requests: 0, burst: 9 }", "0", ""),
        ("algorithm: concurrency, max: 5, hold: 1m", "9", "9", ""),
    ] {
        let rules = rules(limit, "{ customer: key }");
        let text = format!("plans: {{ a: {{ calls: {numbers} }} }}");
        let plans = with_table(book(&text), &[("acme", "a")]);
        let what = format!("{limit} by {numbers}");
        assert_eq!(limit_of(&plans, &rules, "acme"), expected, "{what}");
        plans.use_rules(&rules);
        assert_eq!(limit_of(&plans, &rules, "acme"), expected, "{what}, compiled");
        let warnings = plans.status().warnings;
        assert_eq!(warnings.len(), usize::from(!warning.is_empty()), "{what}: {warnings:?}");
        if let Some(found) = warnings.first() {
            let start = "limit `calls` of plan `a` does not fit rule `calls` of domain `d`, ";
            assert!(found.starts_with(start) && found.contains(warning), "{what}: {found}");
        }
    }
}

#[test]
fn names_that_are_not_defined_cause_warnings() {
    let of = |limit_from: &str, customers: &[(&str, &str)]| {
        let plans = with_table(book("plans: { free: { call: 1 } }"), customers);
        plans.use_rules(&rules("requests: 5, window: 1m", limit_from));
        plans.status().warnings
    };
    assert_eq!(of("{ customer: key, limit: call, default: free }", &[]), Vec::<String>::new());
    assert_eq!(
        of("{ customer: key, default: fre }", &[("a", "pro"), ("b", "basic")]),
        [
            "2 customers have a plan that is not defined, such as `pro`; define it, or they get \
             the default of each rule",
            "no plan has the limit `calls` of rule `calls` of domain `d`; did you mean `call`?",
            "the default plan `fre` of rule `calls` of domain `d` is not defined; did you mean \
             `free`?",
        ]
    );
}

#[test]
fn warnings_have_no_values_of_sensitive_keys() {
    let text = "
domain: d
descriptors:
  - key: api_key
    value: hunter2
    rate_limit: { requests: 5, window: 1m, limit_from: { customer: api_key, limit: calls } }
";
    let file = SourceFile { name: Arc::from("test.yaml"), text: text.to_owned() };
    let (rules, _) = compile(&[file], &Options::default()).expect("valid rules");
    let plans = with_table(book("plans: { free: { other: 1 } }"), &[]);
    plans.use_rules(&rules);
    assert_eq!(
        plans.status().warnings,
        ["no plan has the limit `calls` of rule `api_key=..` of domain `d`"]
    );
}

#[test]
fn warnings_are_bounded() {
    let plan = |number| format!("  p{number}: {{ calls: [1, 2] }}\n");
    let text = format!("plans:\n{}", (0..500).map(plan).collect::<String>());
    let plans = with_table(book(&text), &[]);
    plans.use_rules(&rules("requests: 5, window: 1m", "{ customer: key }"));
    let warnings = plans.status().warnings;
    assert_eq!(warnings.len(), 101);
    assert_eq!(warnings[100], "400 more warnings about plans are not listed");
}

#[test]
fn decisions_by_unknown_plans_are_counted() {
    let rules = rules("requests: 5, window: 1m", "{ customer: key, default: free }");
    let plans = with_table(book(BOOK), &CUSTOMERS);
    for value in ["acme", "new", "old", "old", ""] {
        limit_of(&plans, &rules, value);
    }
    let (rule, limit) = rule(&rules);
    plans.choice(rule, limit, &[Entry { key: "key", value: "old" }]);
    assert_eq!(plans.status().decided_by_unknown_plan, 2, "an operator's look does not count");
}

/// A reload of rules and one of plans meet in any order.
#[test]
fn new_plans_are_compiled_for_the_active_rules() {
    let rules = rules("requests: 5, window: 1m", "{ customer: key }");
    let plans = with_table(book(BOOK), &CUSTOMERS);
    plans.use_rules(&rules);
    let next = book("plans: { zero: { calls: 0 }, pro: { calls: 7 }, bad: { calls: [1, 2] } }");
    let mut table = plans.table(&next, 2);
    table.add("acme", "pro").expect("there is room");
    table.add("bank", "bad").expect("there is room");
    let table = table.finish();
    plans.publish(next, table);
    assert_eq!(limit_of(&plans, &rules, "acme"), "7");
    assert_eq!(limit_of(&plans, &rules, "bank"), "own 5");
    assert_eq!(limit_of(&plans, &rules, "small"), "own 5", "no longer a customer");
    assert_eq!(plans.status().warnings.len(), 1);
    plans.use_rules(&RuleSet::default());
    assert_eq!(plans.status().warnings.len(), 0, "no rule uses plans");
    assert_eq!(limit_of(&plans, &rules, "acme"), "7", "a request with the rules before");
}

#[test]
fn replaced_plans_are_freed() {
    let plans = with_table(book(BOOK), &CUSTOMERS);
    let held = plans.published.load_full();
    plans.publish(book(BOOK), CustomerTable::default());
    plans.free_retired();
    assert_eq!(plans.writer().retired.len(), 1, "a request uses it");
    drop(held);
    plans.free_retired();
    assert_eq!(plans.writer().retired.len(), 0);
}

#[test]
fn an_operator_sees_the_plan_and_why() {
    let (customer, default) = (PlanSelection::Customer, PlanSelection::Default);
    for (limit_from, value, plan, selection, limit) in [
        ("{ customer: key, default: free }", "acme", Some("pro"), customer, "1000"),
        ("{ customer: key, default: free }", "old", Some("free"), default, "100"),
        ("{ customer: key, default: free }", "llm", Some("tokens"), customer, "own 5"),
        ("{ customer: key }", "new", None, PlanSelection::Rule, "own 5"),
        ("{ plan: key }", "house", Some("house"), PlanSelection::Descriptor, "unlimited"),
    ] {
        let rules = rules("requests: 5, window: 1m", limit_from);
        let plans = with_table(book(BOOK), &CUSTOMERS);
        let (rule, own) = rule(&rules);
        let choice =
            plans.choice(rule, own, &[Entry { key: "key", value }]).expect("it uses plans");
        assert_eq!(choice.plan.as_deref(), plan, "{limit_from} {value}");
        assert_eq!(choice.selection, selection, "{limit_from} {value}");
        assert_eq!(word(&choice.limit), limit, "{limit_from} {value}");
    }
    let rules = rules("requests: 5, window: 1m", "~");
    let (rule, own) = rule(&rules);
    assert_eq!(with_table(book(BOOK), &CUSTOMERS).choice(rule, own, &[]), None);
}

/// Numbers of plans, some of which fit no rule.
fn numbers() -> impl Strategy<Value = String> {
    prop_oneof![
        (0..200_000u64).prop_map(|requests| requests.to_string()),
        (0..20u64, 0..20u64).prop_map(|(a, b)| format!("{{ requests: {a}, burst: {b} }}")),
        (0..20u64, 0..20u64).prop_map(|(a, b)| format!("[{a}, {{ requests: {b} }}]")),
        Just("unlimited".to_owned()),
    ]
}

proptest! {
    /// Compiled numbers are those that are found by name, and they are always valid.
    #[test]
    fn compiled_numbers_are_those_found_by_name(
        plans in proptest::collection::vec(numbers(), 1..6),
        limit in prop_oneof![
            Just("requests: 5, window: 1m"),
            Just("algorithm: leaky_bucket, requests: 5, window: 1m"),
            Just("algorithm: sliding_window_log, requests: 5, window: 1m"),
            Just("tiers: [{ requests: 5, window: 1m }, { requests: 9, window: 1h }]"),
        ],
        default in 0..8usize,
    ) {
        let plan = |(index, numbers): (usize, &String)| {
            format!("  p{index}: {{ calls: {numbers} }}\n")
        };
        let text: String = plans.iter().enumerate().map(plan).collect();
        let rules = rules(limit, &format!("{{ customer: key, default: p{default} }}"));
        let names: Vec<(String, String)> =
            (0..8).map(|index| (format!("c{index}"), format!("p{index}"))).collect();
        let names: Vec<(&str, &str)> =
            names.iter().map(|(customer, plan)| (customer.as_str(), plan.as_str())).collect();
        let by_name = with_table(book(&format!("plans:\n{text}")), &names);
        let compiled = with_table(book(&format!("plans:\n{text}")), &names);
        compiled.use_rules(&rules);
        let (rule, own) = rule(&rules);
        for customer in (0..10).map(|index| format!("c{index}")) {
            let entries = [Entry { key: "key", value: &customer }];
            let found = compiled.limit(rule, own, &entries);
            prop_assert_eq!(&found, &by_name.limit(rule, own, &entries));
            if let PlanLimit::Plan(limit) = &found {
                prop_assert_eq!(limit.check(), Ok(()));
                prop_assert_eq!(limit.tiers.len(), own.tiers.len());
            }
        }
    }
}
