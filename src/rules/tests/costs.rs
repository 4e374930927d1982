//! Tests of costs: how they are read, where they apply, and how they are shown.

use super::*;
use crate::limit::FACTORS_MAX;
use crate::rules::RuleSources;

const LIMIT: &str = "unit: day, requests_per_unit: 100";

/// One rule for the descriptor `user`, `model`, with this cost.
fn by_model(cost: &str) -> String {
    format!(
        "domain: d\ndescriptors:\n  - key: user\n    descriptors:\n      - key: model\n        \
         value: '*'\n        share_threshold: true\n        \
         rate_limit: {{ {LIMIT}, cost: {cost} }}\n"
    )
}

/// The hits that the rule counts for `hits` of a descriptor.
fn weighed(set: &RuleSet, descriptor: &str, hits: i64) -> i64 {
    found(set, descriptor).expect(descriptor).weigh(hits, &entries(descriptor))
}

#[test]
fn every_spelling_of_a_factor_is_read() {
    for (cost, hundred) in [
        ("3", 300),
        ("1_000", 100_000),
        ("0x10", 1_600),
        ("'7'", 700),
        ("0.25", 25),
        ("1/3", 34),
        ("\"2/3\"", 67),
        ("{ numerator: 5, denominator: 4 }", 125),
        ("{ denominator: 1_0, numerator: 1 }", 10),
        ("{ by: model, factors: { a: 2 } }", 100),
        ("{ by: model, factors: { x: 2 } }", 200),
        ("{ by: model, factors: { x: \"1/2\" }, default: 9 }", 50),
        ("{ by: model, factors: { x: { numerator: 1, denominator: 8 } } }", 13),
        ("{ by: model, factors: { x: 0 } }", 0),
        ("{ by: model, factors: { 'y': 3 }, default: 0 }", 0),
        ("{ by: user, factors: { u: 4, x: 5 } }", 400),
        ("~", 100),
    ] {
        let set = rules(&by_model(cost));
        assert_eq!(weighed(&set, "user=u,model=x", 100), hundred, "{cost}");
        assert_eq!(weighed(&set, "user=u,model=x", 0), 0, "{cost}");
    }
}

/// A rule has its own cost, whatever the rules above and below it have.
#[test]
fn a_cost_applies_to_its_rule_only() {
    let set = rules(
        "
domain: d
descriptors:
  - key: a
    rate_limit: { unit: day, requests_per_unit: 100, cost: 2 }
    descriptors:
      - key: b
        rate_limit: { unit: day, requests_per_unit: 100 }
        descriptors:
          - key: a
            rate_limit:
              unit: day
              requests_per_unit: 100
              cost: { by: a, factors: { x: 5 } }
",
    );
    assert_eq!(weighed(&set, "a=x", 10), 20);
    assert_eq!(weighed(&set, "a=x,b=x", 10), 10);
    assert_eq!(weighed(&set, "a=x,b=x,a=y", 10), 50, "the first entry with the key");
    assert_eq!(weighed(&set, "a=y,b=x,a=x", 10), 10);
}

/// So a changed cost keeps the counts, and all values of a shared level have one counter.
#[test]
fn a_cost_does_not_change_the_counter() {
    let [plain, costly] =
        ["~", "{ by: model, factors: { x: 2 } }"].map(|cost| rules(&by_model(cost)));
    let key = |set: &RuleSet, text| counter(set, text).expect(text);
    assert_eq!(key(&plain, "user=u,model=x"), key(&costly, "user=u,model=x"));
    assert_eq!(key(&costly, "user=u,model=x"), key(&costly, "user=u,model=y"));
    assert_ne!(key(&costly, "user=u,model=x"), key(&costly, "user=v,model=x"));
}

#[test]
fn only_rules_without_a_cost_can_be_divided() {
    let set = rules(
        "
domain: d
descriptors:
  - { key: a, rate_limit: { unit: day, requests_per_unit: 100 } }
  - { key: b, rate_limit: { unit: day, requests_per_unit: 100, cost: 2 } }
  - { key: c, rate_limit: { unit: day, requests_per_unit: 100, reserve: { hold: 1m } } }
",
    );
    let divisible = |text| found(&set, text).expect(text).is_divisible();
    assert_eq!(["a=", "b=", "c="].map(divisible), [true, false, false]);
}

#[test]
fn the_number_of_factors_is_bounded() {
    let cost = |count: usize| {
        let factors: Vec<String> = (0..count).map(|index| format!("v{index}: 2")).collect();
        by_model(&format!("{{ by: model, factors: {{ {} }} }}", factors.join(", ")))
    };
    let set = rules(&cost(FACTORS_MAX));
    assert_eq!(weighed(&set, "user=u,model=v9999", 1), 2);
    for (count, what) in
        [(FACTORS_MAX + 1, "`factors` has 10001 values"), (0, "`factors` has 0 values")]
    {
        let errors = compiled(&cost(count), &Options::default()).expect_err(what);
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(texts.len(), 1, "{texts:?}");
        assert!(texts[0].ends_with(&format!("{what}; write between 1 and 10000")), "{texts:?}");
    }
}

#[test]
fn a_cost_is_shown_with_its_rule() {
    let by_value = "{ by: model, factors: { x: 10, y: 0.5, z: 1/3 }, default: 2 }";
    for (cost, model, shown, listed) in [
        ("3", "x", "cost: 3 per hit", ", cost: 3"),
        ("0.25", "x", "cost: 0.25 per hit, rounded up", ", cost: 0.25"),
        (by_value, "x", "cost: 10 per hit, by `model` = `x`", ", cost: by model"),
        (by_value, "y", "cost: 0.5 per hit, rounded up, by `model` = `y`", ", cost: by model"),
        (by_value, "z", "cost: 1/3 per hit, rounded up, by `model` = `z`", ", cost: by model"),
        (by_value, "other", "cost: 2 per hit, the default of `model`", ", cost: by model"),
    ] {
        let set = rules(&by_model(cost));
        let explained = set.explain("d", &entries(&format!("user=u,model={model}"))).to_string();
        assert!(explained.contains(&format!("\n        {shown}\n")), "{cost}: {explained}");
        let line = set.rlconfig();
        assert!(line.trim_end().ends_with(listed), "{cost}: {line}");
    }
    let set = rules(&by_model(by_value));
    let explained = set.explain_rule("d", "user,model=*").expect("the rule").to_string();
    let all = "\n        cost: by `model`, 3 factors, 2 for other values\n";
    assert!(explained.contains(all), "{explained}");
}

/// [`by_model`] with an overlay that has this cost.
fn overlaid(cost: &str, rule: &str) -> Result<(RuleSet, Vec<RuleProblem>), Vec<RuleProblem>> {
    let overlay = format!(
        "overlays:\n  - domain: d\n    rule: '{rule}'\n    rate_limit: {{ cost: {cost} }}\n"
    );
    let more = format!("  - {{ key: other, rate_limit: {{ {LIMIT} }} }}\n");
    let files = |name: &str, text: String| {
        let mut files = RuleFiles::default();
        files.files.push(file(name, &text));
        files
    };
    let (files, overlays) = (files("r.yaml", by_model("5") + &more), files("o.yaml", overlay));
    RuleSources { files, overlays, ..RuleSources::default() }.compile(&Options::default())
}

#[test]
fn an_overlay_sets_the_cost_of_a_rule() {
    let (set, warnings) = overlaid("2", "**").expect("valid");
    assert!(warnings.is_empty(), "{warnings:#?}");
    assert_eq!([weighed(&set, "user=u,model=x", 10), weighed(&set, "other=x", 10)], [20, 20]);
    let (set, _) = overlaid("{ by: model, factors: { x: 3 } }", "user,**").expect("valid");
    assert_eq!([weighed(&set, "user=u,model=x", 10), weighed(&set, "other=x", 10)], [30, 10]);
}

/// The path of each rule decides whether it has the key.
#[test]
fn an_overlay_by_a_missing_key_does_not_fit() {
    for (cost, rule, expected) in [
        (
            "{ by: model, factors: { x: 3 } }",
            "**",
            "o.yaml:2:5: the overlay does not fit the limit of `other` at r.yaml:9:5: `by` is \
             `model`, which is no key of this rule; select fewer rules, or correct the overlay",
        ),
        (
            "{ by: modle, factors: { x: 3 } }",
            "user,**",
            "o.yaml:2:5: the overlay does not fit the limit of `model` at r.yaml:5:9: `by` is \
             `modle`, which is no key of this rule; select fewer rules, or correct the overlay",
        ),
        (
            "-1",
            "**",
            "o.yaml:4:25: `cost` cannot be `-1`: it must not be negative; write for example 3, \
             0.25 or \"1/3\"",
        ),
    ] {
        let problems = overlaid(cost, rule).expect_err(cost);
        let texts: Vec<String> = problems.iter().map(ToString::to_string).collect();
        assert_eq!(texts, [expected], "{cost}");
    }
}
