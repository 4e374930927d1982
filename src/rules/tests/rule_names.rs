//! Tests of the names of rules: each rule of a domain has a name that no other one has.

use super::*;

const LIMIT: &str = "unit: second, requests_per_unit: 1";

fn named(text: &str) -> (Vec<String>, Vec<String>) {
    let (set, warnings) = compiled(text, &Options::default()).expect("valid rules");
    let names = set.rules().iter().map(|rule| rule.display_name.to_string()).collect();
    (names, warnings.iter().map(ToString::to_string).collect())
}

#[test]
fn a_name_or_a_selector_is_unique() {
    let (names, warnings) = named(&format!(
        "
domain: d
descriptors:
  - {{ key: a, rate_limit: {{ name: own, {LIMIT} }} }}
  - {{ key: b, value: x, rate_limit: {{ {LIMIT} }} }}
  - {{ key: c, rate_limit: {{ name: c, {LIMIT} }} }}
  - {{ key: d, rate_limit: {{ name: both, {LIMIT} }} }}
  - {{ key: e, rate_limit: {{ name: both, {LIMIT} }} }}
  - {{ key: f, rate_limit: {{ name: b=x, {LIMIT} }} }}
  - {{ key: g, rate_limit: {{ name: a, {LIMIT} }} }}
"
    ));
    assert_eq!(names, ["own", "b=x", "c", "d", "e", "f", "g"]);
    let [by_name, by_selector, by_named] = &warnings[..] else { panic!("{warnings:#?}") };
    assert!(
        by_name.starts_with(
            "test.yaml:8:5: `name: both` is also the name of the rule at test.yaml:7:5"
        ),
        "{by_name}"
    );
    assert!(
        by_selector.starts_with("test.yaml:9:5: `name: b=x` is also the selector of the rule at"),
        "{by_selector}"
    );
    // The rule with the selector `a` is called `own`.
    assert!(
        by_named.starts_with("test.yaml:10:5: `name: a` is also the selector of the rule at"),
        "{by_named}"
    );
}

#[test]
fn other_domains_have_other_names() {
    let domain = |name: &str| {
        let rule = format!("rate_limit: {{ name: same, {LIMIT} }}");
        format!("domain: {name}\ndescriptors: [{{ key: a, {rule} }}]\n---\n")
    };
    assert_eq!(named(&(domain("d") + &domain("e"))), (vec!["same".into(), "same".into()], vec![]));
}

#[test]
fn a_rule_is_found_by_its_name_or_its_selector() {
    let text = format!(
        "
domain: d
descriptors:
  - {{ key: a, rate_limit: {{ name: own, {LIMIT} }} }}
  - {{ key: d, rate_limit: {{ name: both, {LIMIT} }} }}
  - {{ key: e, rate_limit: {{ name: both, {LIMIT} }} }}
"
    );
    let (set, _) = compiled(&text, &Options::default()).expect("valid rules");
    let found = |name: &str| -> Vec<usize> {
        set.rules_named("d", name).iter().map(|rule| rule.index).collect()
    };
    for (name, rules) in
        [("own", &[0][..]), ("a", &[0]), ("d", &[1]), ("e", &[2]), ("both", &[1, 2]), ("x", &[])]
    {
        assert_eq!(found(name), rules, "{name}");
    }
    assert!(set.rules_named("other", "own").is_empty());
    let others: Vec<Option<String>> = set.rules().iter().map(Rule::other_selector).collect();
    assert_eq!(others, [Some("a".to_owned()), None, None]);
}

#[test]
fn an_unknown_name_has_a_suggestion() {
    let long = "x".repeat(200);
    let rule = |key: &str, name: &str| {
        format!("  - {{ key: {key}, rate_limit: {{ name: \"{name}\", {LIMIT} }} }}\n")
    };
    let rules = rule("a", "per-user") + &rule("b", "turn\\u202e");
    let text = format!("domain: shop\ndescriptors:\n{rules}");
    let (set, _) = compiled(&text, &Options::default()).expect("valid rules");
    for (domain, hint) in [
        ("shopp", "`shopp`; did you mean `shop`?"),
        ("elsewhere", "`elsewhere`; GET /rules lists the domains"),
        ("x\n", "`x\\n`; GET /rules"),
    ] {
        let error = set.unknown_domain(domain);
        let start = "domain: neither a file nor xDS defines `";
        assert!(error.starts_with(start) && error.contains(hint), "{error}");
    }
    for (domain, name, hint) in [
        ("shop", "pre-user", "`pre-user`; did you mean `per-user`?"),
        ("shop", "turn", "did you mean `turn\\u{202e}`?"),
        ("shop", "b", "write its name or its selector"),
        ("other", "pre-user", "write its name or its selector"),
        ("shop", long.as_str(), "x...`; write its name"),
    ] {
        let error = set.unknown_rule(domain, name);
        assert!(
            error.starts_with("rule: no rule of this domain has") && error.contains(hint),
            "{error}"
        );
        assert!(error.chars().count() < 250, "{error}");
    }
}
