//! Rules that are compiled after earlier ones: what they share, and that it changes nothing.

use proptest::prelude::*;

use super::*;

/// Sources with these files, whose domains may extend over several of them.
fn sources(texts: &[String]) -> RuleSources {
    let mut sources = RuleSources::default();
    for (number, text) in texts.iter().enumerate() {
        sources.files.files.push(file(&format!("{number}.yaml"), text));
    }
    sources
}

fn compiled_after(
    texts: &[String],
    earlier: Option<&RuleSet>,
) -> Result<(RuleSet, Vec<RuleProblem>), Vec<RuleProblem>> {
    let options = Options { merge_domains: true, ..Options::default() };
    sources(texts).compile_once(&options, earlier)
}

/// One file of domain `d`.
fn after(text: &str, earlier: Option<&RuleSet>) -> RuleSet {
    let text = format!("domain: d\ndescriptors:\n{text}");
    compiled_after(&[text], earlier).unwrap_or_else(|problems| panic!("{problems:#?}")).0
}

/// Whether rules of two sets have their fields in one place.
fn is_shared(first: &RuleSet, second: &RuleSet, key: &str) -> bool {
    let [first, second] = [first, second].map(|set| found(set, key).expect("a rule").fields());
    Arc::ptr_eq(first, second)
}

/// A new first child has a new copy of its parent, which the next reload may drop.
#[test]
fn copies_of_a_parent_do_not_pile_up() {
    let mut set = RuleSet::default();
    for newest in 0..8 {
        let children: String =
            (0..=newest).rev().map(|child| format!("  - {{ key: c{child}, {LIMIT} }}\n")).collect();
        set = after(&format!("- key: a\n  descriptors:\n{children}"), Some(&set));
        let mut parents: Vec<_> =
            set.rules().iter().map(|rule| Arc::as_ptr(&rule.path[0])).collect();
        parents.sort_unstable();
        parents.dedup();
        assert!(parents.len() <= 2, "{} copies after {newest} reloads", parents.len());
    }
}

const LIMIT: &str = "rate_limit: { unit: day, requests_per_unit: 1 }";

#[test]
fn only_equal_rules_are_shared() {
    let first = after(&format!("- {{ key: a, {LIMIT} }}\n- {{ key: b, {LIMIT} }}\n"), None);
    for (text, a, b) in [
        // The same again.
        (format!("- {{ key: a, {LIMIT} }}\n- {{ key: b, {LIMIT} }}\n"), true, true),
        // Another number.
        (
            format!("- {{ key: a, {} }}\n- {{ key: b, {LIMIT} }}\n", LIMIT.replace('1', "2")),
            false,
            true,
        ),
        // Another window, so that the rule has another identity.
        (
            format!("- {{ key: a, {} }}\n- {{ key: b, {LIMIT} }}\n", LIMIT.replace("day", "hour")),
            false,
            true,
        ),
        // A rule more before it, and so another line.
        (
            format!("- {{ key: a, {LIMIT} }}\n- {{ key: x, {LIMIT} }}\n- {{ key: b, {LIMIT} }}\n"),
            true,
            false,
        ),
        // Another index at the same line.
        (
            format!(
                "- {{ key: a, {LIMIT}, descriptors: [{{ key: c, {LIMIT} }}] }}\n\
                 - {{ key: b, {LIMIT} }}\n"
            ),
            true,
            true,
        ),
        // Another order.
        (format!("- {{ key: b, {LIMIT} }}\n- {{ key: a, {LIMIT} }}\n"), false, false),
        // A flag.
        (
            format!("- {{ key: a, shadow_mode: true, {LIMIT} }}\n- {{ key: b, {LIMIT} }}\n"),
            false,
            true,
        ),
    ] {
        let second = after(&text, Some(&first));
        assert_eq!(
            (is_shared(&first, &second, "a=1"), is_shared(&first, &second, "b=1")),
            (a, b),
            "{text}"
        );
        assert_same(&second, &after(&text, None));
    }
}

/// A rule at another line is another one, but its path is that of the earlier one.
#[test]
fn a_rule_that_moves_shares_its_path() {
    let rules =
        format!("- key: a\n  value: x\n  descriptors:\n  - {{ key: b, value: y, {LIMIT} }}\n");
    let first = after(&rules, None);
    let second = after(&format!("# A comment.\n{rules}"), Some(&first));
    let [old, new] = [&first, &second].map(|set| found(set, "a=x,b=y").expect("a rule"));
    assert!(!Arc::ptr_eq(old.fields(), new.fields()));
    assert!(Arc::ptr_eq(&old.display_name, &new.display_name));
    assert!(old.path.iter().zip(&new.path).all(|(old, new)| Arc::ptr_eq(old, new)));
    assert_eq!((old.location.line, new.location.line), (6, 7));
}

/// The names of rules depend on other rules.
#[test]
fn a_shared_rule_has_the_name_of_its_set() {
    let named = |key: &str| {
        format!("- {{ key: {key}, rate_limit: {{ name: n, unit: day, requests_per_unit: 1 }} }}\n")
    };
    let (one, two) = (named("a"), named("a") + &named("b"));
    let mut earlier = None;
    for (text, expected) in [(&one, "n"), (&two, "a"), (&two, "a"), (&one, "n"), (&one, "n")] {
        let next = after(text, earlier.as_ref());
        assert_eq!(&*found(&next, "a=1").expect("a rule").display_name, expected, "{text}");
        assert_same(&next, &after(text, None));
        earlier = Some(next);
    }
}

/// Rules of other sets stay as they are, also those whose fields a later set has changed.
fn assert_same(first: &RuleSet, second: &RuleSet) {
    assert_eq!(first.files(), second.files());
    assert_eq!(first.domains(), second.domains());
    assert_eq!(first.rules().len(), second.rules().len());
    for (index, (one, other)) in first.rules().iter().zip(second.rules()).enumerate() {
        assert_eq!((one.index, other.index), (index, index));
        assert_eq!(**one, **other, "rule {index}");
    }
    assert_eq!(first.rlconfig(), second.rlconfig());
}

/// A rule of a random file: its key, value, limit and name, and a rule below it.
type Item = (&'static str, &'static str, u8, &'static str, Option<u8>);

fn item() -> impl Strategy<Value = Item> {
    let one_of = |texts: &[&'static str]| prop::sample::select(texts.to_vec());
    let value =
        one_of(&["", "value: x", "value: 'x*'", "value_template: '/{v}'", "value_regex: 'x.'"]);
    (
        one_of(&["k", "l"]),
        value,
        0..4_u8,
        one_of(&["", "name: m,", "name: n,"]),
        prop::option::of(0..3_u8),
    )
}

fn limit(number: u8, name: &str) -> String {
    match number {
        0 => format!("rate_limit: {{ {name} unlimited: true }}"),
        1 => format!("rate_limit: {{ {name} unit: hour, requests_per_unit: 5 }}"),
        other => format!("rate_limit: {{ {name} unit: day, requests_per_unit: {other} }}"),
    }
}

/// Files of the domains `d` and `e` in any order. Descriptors that would be duplicates are left out.
fn texts(files: &[(bool, usize, Vec<Item>)]) -> Vec<String> {
    let mut known = Vec::new();
    let text = |(is_d, blank_lines, items): &(bool, usize, Vec<Item>)| {
        let domain = if *is_d { "d" } else { "e" };
        let mut text = format!("domain: {domain}\n{}descriptors:\n", "\n".repeat(*blank_lines));
        for (key, value, number, name, below) in items {
            if known.contains(&(domain, *key, *value)) {
                continue;
            }
            known.push((domain, key, value));
            text += &format!("- key: {key}\n");
            if !value.is_empty() {
                text += &format!("  {value}\n");
            }
            if *number < 3 || below.is_none() {
                text += &format!("  {}\n", limit(*number, name));
            }
            if let Some(below) = below {
                text += &format!("  descriptors:\n  - {{ key: k, {} }}\n", limit(*below, ""));
            }
        }
        text
    };
    files.iter().map(text).collect()
}

fn random_files() -> impl Strategy<Value = Vec<(bool, usize, Vec<Item>)>> {
    let items = prop::collection::vec(item(), 0..6);
    prop::collection::vec((any::<bool>(), 0..2_usize, items), 1..4)
}

const DESCRIPTORS: [&str; 9] =
    ["k=x", "k=xy", "k=/a", "k=z", "l=x", "k=x,k=1", "k=/a,k=2", "l=xy,k=1", "m=1"];

proptest! {
    /// Rules that are compiled after others are the same as without them, in a chain of reloads: in
    /// every field, in lookups and in explanations. The earlier ones do not change.
    #[test]
    fn sharing_changes_no_rule(reloads in prop::collection::vec(random_files(), 2..5)) {
        let mut earlier: Option<RuleSet> = None;
        for files in &reloads {
            let texts = texts(files);
            let expected = compiled_after(&texts, None);
            let next = compiled_after(&texts, earlier.as_ref());
            let (expected, next) = match (expected, next) {
                (Ok(expected), Ok(next)) => (expected, next),
                (expected, next) => {
                    prop_assert_eq!(expected.err(), next.err());
                    continue;
                }
            };
            prop_assert_eq!(&expected.1, &next.1);
            assert_same(&next.0, &expected.0);
            for domain in ["d", "e", "f"] {
                for text in DESCRIPTORS {
                    let explained = |set: &RuleSet| set.explain(domain, &entries(text));
                    prop_assert_eq!(explained(&next.0), explained(&expected.0), "{}", text);
                    let index = |set: &RuleSet| match set.find(domain, &entries(text)) {
                        Found::Rule(rule) => Some((rule.index, rule.location.clone(), rule.id)),
                        _ => None,
                    };
                    prop_assert_eq!(index(&next.0), index(&expected.0), "{}", text);
                }
            }
            earlier = Some(next.0);
        }
    }
}
