//! Tests with random resources: the same rules as from files, in every order.

use std::collections::HashSet;
use std::fmt::Write;

use proptest::prelude::*;
use prost_types::value::Kind;
use prost_types::{Struct, Value};

use super::*;

fn metadata() -> impl Strategy<Value = Option<Struct>> {
    let kind = prop_oneof![
        Just(Kind::NullValue(0)),
        any::<bool>().prop_map(Kind::BoolValue),
        (-100..100_i32).prop_map(|number| Kind::NumberValue(f64::from(number) / 2.0)),
        "[a-z ]{0,4}".prop_map(Kind::StringValue),
    ];
    let value = kind.prop_map(|kind| Value { kind: Some(kind) });
    let fields = prop::collection::btree_map("[a-c]", value, 0..3);
    prop::option::of(fields.prop_map(|fields| Struct { fields }))
}

/// A descriptor without children. Every second one has a limit.
fn own() -> impl Strategy<Value = RateLimitDescriptor> {
    let value = prop::sample::select(vec!["", "x", "y", "x*", "*"]);
    let limit = prop::option::of((1..=7_i32, 0..4_u32, any::<bool>(), "n{0,2}"));
    let flags = any::<[bool; 3]>();
    ("[a-c]", value, limit, flags, metadata()).prop_map(|(key, value, limit, flags, metadata)| {
        let rate_limit = limit.map(|(unit, requests_per_unit, unlimited, name)| RateLimitPolicy {
            unit: if unlimited { 0 } else { unit },
            requests_per_unit,
            unlimited,
            name,
            replaces: Vec::new(),
        });
        let [shadow_mode, quota_mode, detailed_metric] = flags;
        RateLimitDescriptor {
            rate_limit,
            shadow_mode,
            quota_mode,
            detailed_metric,
            metadata,
            ..node(&key, value, Vec::new())
        }
    })
}

fn descriptors() -> impl Strategy<Value = Vec<RateLimitDescriptor>> {
    let tree = own().prop_recursive(3, 30, 4, |inner| {
        (own(), prop::collection::vec(inner, 0..5))
            .prop_map(|(own, descriptors)| RateLimitDescriptor { descriptors, ..own })
    });
    prop::collection::vec(tree, 0..6)
}

/// Every rule as a text with all its properties, in order.
fn rules_of(set: &RuleSet) -> Vec<String> {
    let text = |rule: &crate::rules::Rule| {
        format!(
            "{} {} {:?} {:?} {:?} {} {} {:?} {:?}",
            rule.domain,
            rule.selector(),
            rule.id,
            rule.limit,
            rule.name,
            rule.shadow_mode,
            rule.quota_mode,
            rule.is_detailed(),
            rule.metadata,
        )
    };
    set.rules().iter().map(text).collect()
}

/// Keeps the first of equal siblings.
fn distinct(descriptors: Vec<RateLimitDescriptor>) -> Vec<RateLimitDescriptor> {
    let mut seen = HashSet::new();
    let is_first = |one: &RateLimitDescriptor| seen.insert((one.key.clone(), one.value.clone()));
    let first = descriptors.into_iter().filter(is_first);
    first
        .map(|one| RateLimitDescriptor { descriptors: distinct(one.descriptors.clone()), ..one })
        .collect()
}

/// Writes descriptors as a rule file has them.
fn write_yaml(descriptors: &[RateLimitDescriptor], indent: usize, out: &mut String) {
    let pad = " ".repeat(indent);
    let quoted = |text: &str| serde_json::to_string(text).expect("a text");
    for one in descriptors {
        writeln!(out, "{pad}- key: {}", quoted(&one.key)).expect("memory");
        writeln!(out, "{pad}  value: {}", quoted(&one.value)).expect("memory");
        for (name, is_set) in [
            ("shadow_mode", one.shadow_mode),
            ("quota_mode", one.quota_mode),
            ("detailed_metric", one.detailed_metric),
        ] {
            writeln!(out, "{pad}  {name}: {is_set}").expect("memory");
        }
        if let Some(metadata) = &one.metadata {
            let map = super::super::metadata::json_map(metadata, &mut 0);
            let fields = map.iter().map(|(name, value)| format!("{}: {value}", quoted(name)));
            let fields: Vec<String> = fields.collect();
            writeln!(out, "{pad}  metadata: {{ {} }}", fields.join(", ")).expect("memory");
        }
        if let Some(policy) = &one.rate_limit {
            let unit = RateLimitUnit::try_from(policy.unit).expect("a unit").as_str_name();
            let name = quoted(&policy.name);
            let limit = if policy.unlimited {
                "unlimited: true".to_owned()
            } else {
                format!("unit: {unit}, requests_per_unit: {}", policy.requests_per_unit)
            };
            writeln!(out, "{pad}  rate_limit: {{ name: {name}, {limit} }}").expect("memory");
        }
        if !one.descriptors.is_empty() {
            writeln!(out, "{pad}  descriptors:").expect("memory");
            write_yaml(&one.descriptors, indent + 2, out);
        }
    }
}

/// The same descriptors with the siblings of every level in another order.
fn rotated(descriptors: &[RateLimitDescriptor], by: usize) -> Vec<RateLimitDescriptor> {
    let below = |one: &RateLimitDescriptor| RateLimitDescriptor {
        descriptors: rotated(&one.descriptors, by / 2 + 1),
        ..one.clone()
    };
    let mut all: Vec<RateLimitDescriptor> = descriptors.iter().map(below).collect();
    let length = all.len().max(1);
    all.rotate_left(by % length);
    if by % 2 == 1 {
        all.reverse();
    }
    all
}

proptest! {
    #[test]
    fn resources_compile_like_files(all in prop::collection::vec(descriptors(), 1..3)) {
        let mut text = String::new();
        let mut configs = Vec::new();
        for (number, descriptors) in all.into_iter().enumerate() {
            let descriptors = distinct(descriptors);
            let domain = format!("d{number}");
            text += &format!("---\ndomain: {domain}\ndescriptors:\n");
            write_yaml(&descriptors, 0, &mut text);
            configs.push(of_domain(&domain, descriptors));
        }
        let file = SourceFile { name: "r.yaml".into(), text: text.clone() };
        let (expected, _) = compile(&[file], &Options::default())
            .unwrap_or_else(|problems| panic!("{problems:#?}\n{text}"));
        let (set, _) = rule_set(&accepted(&configs), &Options::default());
        prop_assert_eq!(rules_of(&set), rules_of(&expected), "{}", text);
        prop_assert_eq!(set.rlconfig(), expected.rlconfig());
    }

    #[test]
    fn encoded_rules_are_the_same_rules(all in prop::collection::vec(descriptors(), 1..3)) {
        let configs = all.into_iter().enumerate();
        let configs: Vec<_> =
            configs.map(|(number, all)| config(&format!("r{number}"), "a", all)).collect();
        let (rules, _) = updated(&XdsRules::default(), "1", &configs, &merge_domains());
        let values = rules.resources();
        let again: Vec<RateLimitConfig> = values
            .iter()
            .map(|value| RateLimitConfig::decode(&**value).expect("a resource"))
            .collect();
        let (again, errors) = updated(&XdsRules::default(), "2", &again, &merge_domains());
        prop_assert_eq!(errors, Vec::<String>::new());
        let all_of = |rules: &XdsRules| rules_of(&rule_set(rules, &merge_domains()).0);
        prop_assert_eq!(all_of(&again), all_of(&rules));
    }

    #[test]
    fn merging_does_not_depend_on_order(
        one in descriptors(), other in descriptors(), by in 0..20_usize,
    ) {
        let sorted = |configs: &[RateLimitConfig]| {
            let options = Options { merge_domains: true, ..Options::default() };
            let (rules, errors) = updated(&XdsRules::default(), "1", configs, &options);
            assert!(errors.is_empty(), "{errors:#?}");
            let (set, mut warnings) = rule_set(&rules, &options);
            // The later of two rules with one name has the warning.
            warnings.retain(|warning| !warning.contains("is also the name of the rule"));
            let mut texts = rules_of(&set);
            texts.sort();
            (texts, warnings)
        };
        let first = [config("1", "a", one.clone()), config("2", "a", other.clone())];
        let second = [config("2", "a", rotated(&other, by)), config("1", "a", rotated(&one, by))];
        prop_assert_eq!(sorted(&first), sorted(&second));
    }
}
