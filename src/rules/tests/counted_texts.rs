//! Tests of the texts by which the counters of a rule differ.

use super::*;

const FILE: &str = r#"
domain: d
descriptors:
  - key: user
    rate_limit: { unit: hour, requests_per_unit: 1 }
  - key: plan
    value: gold
    descriptors:
      - key: user
        rate_limit: { unit: hour, requests_per_unit: 1 }
  - key: plan
    value: silver
    rate_limit: { unit: hour, requests_per_unit: 1 }
  - key: path
    value_template: /v1/{org}/x/{id}
    count_by: [id, org]
    rate_limit: { unit: hour, requests_per_unit: 1 }
  - key: path
    value_template: /v2/{org}
    rate_limit: { unit: hour, requests_per_unit: 1 }
  - key: path
    value_regex: "/re/(?<b>[a-z]*)(?<a>[0-9]*)"
    count_by: [a, b]
    rate_limit: { unit: hour, requests_per_unit: 1 }
  - key: path
    value: /any/*
    share_threshold: true
    rate_limit: { unit: hour, requests_per_unit: 1 }
  - key: ip
    value_cidr: 2001:db8::/32
    rate_limit: { unit: hour, requests_per_unit: 1 }
  - key: agent
    value: b*t
    rate_limit: { unit: hour, requests_per_unit: 1 }
"#;

fn texts_of(rule: &Rule, text: &str) -> Vec<String> {
    let mut texts = Vec::new();
    rule.counted_texts(&entries(text), |text| texts.push(text.to_owned()));
    texts
}

/// Every row has a descriptor, the labels of its rule, its texts, and whether these determine it.
#[test]
fn labels_and_texts_of_every_matcher() {
    let set = rules(FILE);
    let table: &[(&str, &[&str], &[&str], bool)] = &[
        ("user=ann", &["user"], &["ann"], true),
        ("user=", &["user"], &[""], true),
        ("plan=gold,user=ann", &["user"], &["ann"], true),
        ("plan=silver", &[], &[], true),
        ("path=/v1/o/x/7?q=1", &["path.org", "path.id"], &["o", "7"], false),
        ("path=/v2/o", &[], &[], false),
        ("path=/re/ab12", &["path.a", "path.b"], &["12", "ab"], false),
        ("path=/re/", &["path.a", "path.b"], &["", ""], false),
        ("path=/any/x", &[], &[], false),
        ("ip=2001:DB8:0::1", &["ip"], &["2001:db8::1"], true),
        ("agent=bot", &["agent"], &["bot"], true),
    ];
    for (text, labels, texts, is_known) in table {
        let rule = found(&set, text).expect(text);
        let of_rule = rule.counted_labels().into_iter();
        let shown: Vec<String> = of_rule
            .map(|label| match label.variable {
                Some(variable) => format!("{}.{variable}", label.key),
                None => label.key.to_owned(),
            })
            .collect();
        assert_eq!(shown, *labels, "{text}");
        let counted = texts_of(rule, text);
        assert_eq!(counted, *texts, "{text}");
        let known = rule.counted_entries(&counted);
        assert_eq!(known.is_some(), *is_known, "{text}");
        if let Some(known) = known {
            let seed = KeySeed::fixed([1, 2]);
            assert_eq!(rule.key(&seed, &known), rule.key(&seed, &entries(text)), "{text}");
            assert!(matches!(set.find("d", &known), Found::Rule(same) if same.index == rule.index));
        }
    }
}

#[test]
fn other_texts_are_no_descriptor() {
    let set = rules(FILE);
    let rule = found(&set, "user=ann").expect("the rule");
    for texts in [Vec::new(), vec!["ann".to_owned(), "bob".to_owned()]] {
        assert_eq!(rule.counted_entries(&texts), None, "{texts:?}");
    }
}
