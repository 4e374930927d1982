//! Tests of equal siblings, and of the fields of limits.

use prost_types::value::Kind;
use prost_types::{ListValue, Struct, Value};
use serde_json::json;

use super::*;
use RateLimitUnit::{Day, Hour, Minute, Month, Second, Week, Year};

/// The rule of `key=value` in domain `a`.
fn only_rule(descriptor: RateLimitDescriptor) -> (crate::rules::Rule, Vec<String>) {
    let rules = accepted(&[of_domain("a", vec![descriptor])]);
    let (set, warnings) = rule_set(&rules, &Options::default());
    assert_eq!(set.rules().len(), 1);
    (set.rules()[0].clone(), warnings)
}

#[test]
fn the_strictest_limit_of_siblings_wins() {
    let per = |requests, unit| policy(requests, unit);
    for (strict, loose) in [
        (per(5, Hour), per(6, Hour)),
        (per(60, Hour), per(2, Minute)),
        // The same rate: the smaller burst.
        (per(1, Minute), per(60, Hour)),
        (per(24, Day), per(7 * 24 + 1, Week)),
        (per(1, Year), per(1, Month)),
        (per(0, Second), per(1, Year)),
        (per(u32::MAX, Second), unlimited()),
    ] {
        let [one, other] =
            [&strict, &loose].map(|one| with_policy(node("k", "v", vec![]), one.clone()));
        let expected = limits(&accepted(&[of_domain("a", vec![one.clone()])]));
        for siblings in [[one.clone(), other.clone()], [other, one]] {
            let rules = accepted(&[of_domain("a", siblings.to_vec())]);
            assert_eq!(limits(&rules), expected, "{strict:?} {loose:?}");
            let (_, warnings) = rule_set(&rules, &Options::default());
            assert_eq!(
                warnings,
                ["xds:a: a.k_v: duplicate descriptor composite key 'a.k_v'; the 2 descriptors \
                     are merged, with the strictest limit"]
            );
        }
    }
}

#[test]
fn a_limit_that_denies_is_stricter_than_shadow_mode() {
    let one = leaf("k", "", 1, Day);
    let shadow = RateLimitDescriptor { shadow_mode: true, ..one.clone() };
    let looser = leaf("k", "", 2, Day);
    for (siblings, is_shadow) in [
        ([one.clone(), shadow.clone()], false),
        ([shadow.clone(), one], false),
        ([looser.clone(), shadow.clone()], false),
        ([shadow.clone(), looser], false),
        ([with_policy(node("k", "", vec![]), unlimited()), shadow], true),
    ] {
        let rules = accepted(&[of_domain("a", siblings.to_vec())]);
        let (set, _) = rule_set(&rules, &Options::default());
        assert_eq!(set.rules()[0].shadow_mode, is_shadow);
    }
}

#[test]
fn a_wrong_sibling_leaves_the_valid_ones() {
    let good = node("k", "v", vec![leaf("x", "", 1, Day)]);
    let parts = |update: &XdsUpdate| (update.kept, update.dropped);
    for siblings in [[good.clone(), bad("k", "v")], [bad("k", "v"), good.clone()]] {
        let configs = [of_domain("a", siblings.to_vec())];
        let first = update(&XdsRules::default(), "1", &configs, &Options::default());
        assert_eq!(parts(&first), (0, 1));
        let (rules, errors) = rules_and_reasons(first);
        assert_eq!(errors, ["xds:a: a.k_v: invalid rate limit unit 'UNKNOWN'"]);
        assert_eq!(limits(&rules), ["a.k_v.x 1/DAY"]);
        // The wrong one keeps what it had: its limit, and children that no valid one has.
        let below = vec![leaf("x", "", 9, Day), leaf("y", "", 2, Day)];
        let earlier = with_policy(node("k", "v", below), policy(7, Hour));
        let before = accepted(&[of_domain("a", vec![earlier])]);
        let second = update(&before, "2", &configs, &Options::default());
        assert_eq!(parts(&second), (1, 0));
        let expected = ["a.k_v 7/HOUR", "a.k_v.x 1/DAY", "a.k_v.y 2/DAY"];
        assert_eq!(limits(&second.rules), expected);
    }
    // The limit of the valid one counts, unless the earlier one is stricter.
    let configs = [of_domain("a", vec![leaf("k", "v", 5, Hour), bad("k", "v")])];
    for (earlier, expected) in [(4, "a.k_v 4/HOUR"), (6, "a.k_v 5/HOUR")] {
        let before = accepted(&[of_domain("a", vec![leaf("k", "v", earlier, Hour)])]);
        let (rules, _) = updated(&before, "2", &configs, &Options::default());
        assert_eq!(limits(&rules), [expected]);
    }
    // Siblings of several resources.
    let configs =
        [config("r1", "a", vec![leaf("k", "v", 5, Hour)]), config("r2", "a", vec![bad("k", "v")])];
    let (rules, _) = updated(&XdsRules::default(), "1", &configs, &merge_domains());
    assert_eq!(limits(&rules), ["a.k_v 5/HOUR"]);
}

#[test]
fn all_units_and_flags_are_kept() {
    for (unit, name) in [
        (Second, "SECOND"),
        (Minute, "MINUTE"),
        (Hour, "HOUR"),
        (Day, "DAY"),
        (Week, "WEEK"),
        (Month, "MONTH"),
        (Year, "YEAR"),
    ] {
        let rules = accepted(&[of_domain("a", vec![leaf("k", "v*", 4, unit)])]);
        assert_eq!(limits(&rules), [format!("a.k_v* 4/{name}")]);
    }
    let flags = RateLimitDescriptor {
        shadow_mode: true,
        quota_mode: true,
        detailed_metric: true,
        ..with_policy(node("k", "", vec![]), named("n", &["other"]))
    };
    let other = with_policy(node("l", "", vec![]), named("other", &[]));
    let (set, warnings) =
        rule_set(&accepted(&[of_domain("a", vec![flags, other])]), &Options::default());
    assert_eq!(warnings, Vec::<String>::new());
    let [rule, replaced] = set.rules() else { panic!("two rules") };
    assert!(rule.shadow_mode && rule.quota_mode && rule.is_detailed());
    assert_eq!(rule.name.as_deref(), Some("n"));
    assert_eq!(rule.replaces()[..], [replaced.name_id.expect("it has a name")]);
}

#[test]
fn an_unknown_replaced_rule_is_a_warning() {
    let (rule, warnings) = only_rule(with_policy(node("k", "", vec![]), named("n", &["gone"])));
    assert!(rule.replaces().is_empty());
    assert_eq!(
        warnings,
        ["xds:a: no rule of the domain is called `gone`; this item of `replaces` is ignored"]
    );
}

#[test]
fn flags_of_descriptors_without_a_limit_are_ignored() {
    let shadow = |descriptor| RateLimitDescriptor { shadow_mode: true, ..descriptor };
    let chain = shadow(node("r", "r", vec![shadow(leaf("x", "x", 1, Day))]));
    let (rule, warnings) = only_rule(chain);
    assert!(rule.shadow_mode);
    assert_eq!(warnings, Vec::<String>::new());
}

#[test]
fn metadata_becomes_json_within_bounds() {
    let value = |kind| Value { kind: Some(kind) };
    let number = |number| value(Kind::NumberValue(number));
    let mut deep = value(Kind::BoolValue(true));
    for _ in 0..36 {
        deep = value(Kind::ListValue(ListValue { values: vec![deep] }));
    }
    let fields = [
        ("whole", number(7.0)),
        ("half", number(0.5)),
        ("large", number(1e300)),
        ("text", value(Kind::StringValue("t".to_owned()))),
        ("none", Value { kind: None }),
        ("nan", number(f64::NAN)),
        ("infinite", number(f64::INFINITY)),
        ("deep", deep),
    ];
    let fields = fields.map(|(name, value)| (name.to_owned(), value)).into();
    let metadata = Some(Struct { fields });
    let (rule, warnings) = only_rule(RateLimitDescriptor { metadata, ..leaf("k", "", 1, Day) });
    let mut shown = json!(**rule.metadata.as_ref().expect("it has metadata"));
    let mut depth = 0;
    let mut inner = shown["deep"].take();
    while let Some(next) = inner.get_mut(0).map(serde_json::Value::take) {
        (inner, depth) = (next, depth + 1);
    }
    assert_eq!((inner, depth), (json!(null), 32));
    assert_eq!(
        shown,
        json!({
            "whole": 7, "half": 0.5, "large": 1e300, "text": "t", "none": null, "nan": null,
            "infinite": null, "deep": null,
        })
    );
    assert_eq!(warnings.len(), 1);
    assert!(warnings[0].starts_with("xds:a: a.k: 3 values of `metadata`"), "{warnings:?}");
}
