//! Tests that compare random rule sets with a plain reference matcher, and compile random text.

use std::net::IpAddr;

use proptest::prelude::*;

use super::*;

/// A descriptor of a random file.
#[derive(Clone, Debug)]
struct Item {
    key: String,
    matcher: (&'static str, String),
    limited: bool,
    children: Vec<Item>,
}

/// Patterns and values that match each other often, so that precedence decides.
fn matcher() -> impl Strategy<Value = (&'static str, String)> {
    let of = |field: &'static str, texts: &[&'static str]| {
        prop::sample::select(texts.to_vec()).prop_map(move |text| (field, text.to_owned()))
    };
    prop_oneof![
        Just(("", String::new())),
        of("value", &VALUES),
        of("value", &["*", "/*", "/a*", "1*", "*1", "/*/b", "*.*.*", "**"]),
        of("value_template", &["/a", "/{x}", "/a/{x}", "/{x}/b", "/{x}/{y}", "{x}"]),
        of("value_regex", &[".*", "/.", "[/a]+", "1.*|/b", "(/[ab])+", ".*1"]),
        of("value_cidr", &["10.0.0.0/8", "10.1.0.0/16", "::/0"]),
    ]
}

const VALUES: [&str; 8] = ["/a", "/b", "/a/b", "10.0.0.1", "10.1.2.3", "::1", "/*", "/a?b"];

fn items() -> impl Strategy<Value = Vec<Item>> {
    let leaf = (key(), matcher(), any::<bool>()).prop_map(|(key, matcher, limited)| Item {
        key,
        matcher,
        limited,
        children: Vec::new(),
    });
    let node = leaf.prop_recursive(2, 40, 8, |inner| {
        (key(), matcher(), any::<bool>(), prop::collection::vec(inner, 0..8))
            .prop_map(|(key, matcher, limited, children)| Item { key, matcher, limited, children })
    });
    prop::collection::vec(node, 1..12).prop_map(distinct)
}

/// Drops items that the compiler would call duplicates.
fn distinct(items: Vec<Item>) -> Vec<Item> {
    let mut kept: Vec<Item> = Vec::new();
    for mut item in items {
        item.children = distinct(item.children);
        let shape = |item: &Item| {
            let text = item.matcher.1.replace("{y}", "{x}");
            (item.key.clone(), item.matcher.0, text)
        };
        if !kept.iter().any(|other| shape(other) == shape(&item)) {
            kept.push(item);
        }
    }
    kept
}

fn write_yaml(items: &[Item], indent: usize, out: &mut String) {
    for item in items {
        let pad = " ".repeat(indent);
        *out += &format!("{pad}- key: {}\n", item.key);
        if !item.matcher.0.is_empty() {
            *out += &format!("{pad}  {}: '{}'\n", item.matcher.0, item.matcher.1);
        }
        if item.limited {
            *out += &format!("{pad}  rate_limit: {{ unit: day, requests_per_unit: 1 }}\n");
        }
        if !item.children.is_empty() {
            *out += &format!("{pad}  descriptors:\n");
            write_yaml(&item.children, indent + 2, out);
        }
    }
}

/// Whether an item accepts a value, in the plainest implementation of each matcher.
fn accepts(item: &Item, value: &str) -> bool {
    let pattern = &*item.matcher.1;
    let whole = |regex: String| regex::Regex::new(&format!("^(?s:{regex})$")).expect("valid");
    match item.matcher.0 {
        "" => true,
        "value" if pattern.contains('*') => {
            whole(regex::escape(pattern).replace(r"\*", ".*")).is_match(value)
        }
        "value" => pattern == value,
        "value_template" => {
            let path = value.split('?').next().unwrap_or_default();
            let text = pattern.replace("{x}", "[^/]+").replace("{y}", "[^/]+");
            whole(text).is_match(path)
        }
        "value_regex" => {
            regex::Regex::new(&format!("^(?:{pattern})$")).expect("valid").is_match(value)
        }
        _ => value.parse::<IpAddr>().is_ok_and(|ip| match (pattern, ip) {
            ("::/0", ip) => ip.is_ipv6(),
            ("10.0.0.0/8", IpAddr::V4(ip)) => ip.octets()[0] == 10,
            ("10.1.0.0/16", IpAddr::V4(ip)) => ip.octets()[..2] == [10, 1],
            _ => false,
        }),
    }
}

/// The reference: per level the most specific kind, then the first in the file, without backtracking.
fn reference_find<'i>(items: &'i [Item], entries: &[Entry<'_>]) -> Option<&'i Item> {
    let (entry, rest) = entries.split_first()?;
    let rank = |item: &Item| match item.matcher.0 {
        // A value that equals the text of a wildcard also matches it.
        "value" if item.matcher.1 == entry.value => (0, item.matcher.1.contains('*')),
        "value" if item.matcher.1.contains('*') => (4, false),
        "value_template" => (1, false),
        "value_regex" => (2, false),
        "value_cidr" => (3, false),
        _ => (5, false),
    };
    let candidates =
        items.iter().filter(|item| item.key == entry.key && accepts(item, entry.value));
    let item = candidates.min_by_key(|item| rank(item))?;
    if rest.is_empty() {
        return item.limited.then_some(item);
    }
    reference_find(&item.children, rest)
}

/// Line of an item's `key` in the file that [`write_yaml`] writes.
fn line_of(items: &[Item], wanted: &Item, line: &mut usize) -> Option<usize> {
    for item in items {
        let own = *line;
        *line += 1 + usize::from(!item.matcher.0.is_empty()) + usize::from(item.limited);
        if std::ptr::eq(item, wanted) {
            return Some(own);
        }
        if !item.children.is_empty() {
            *line += 1;
            if let Some(found) = line_of(&item.children, wanted, line) {
                return Some(found);
            }
        }
    }
    None
}

fn key() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["k", "k", "k", "l"]).prop_map(str::to_owned)
}

fn value() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => prop::sample::select(VALUES.to_vec()).prop_map(str::to_owned),
        1 => "[ab/*]{0,4}(\\?a)?",
    ]
}

proptest! {
    #[test]
    fn find_equals_reference_matcher(
        items in items(),
        descriptors in prop::collection::vec(
            prop::collection::vec((key(), value()), 0..4), 1..20,
        ),
    ) {
        let mut text = "domain: d\ndescriptors:\n".to_owned();
        write_yaml(&items, 0, &mut text);
        let set = rules(&text);
        for pairs in &descriptors {
            let entries: Vec<_> = pairs.iter().map(|(key, value)| Entry { key, value }).collect();
            let expected = reference_find(&items, &entries)
                .map(|item| line_of(&items, item, &mut 3).expect("it is in the file"));
            let found = match set.find("d", &entries) {
                Found::Rule(rule) => Some(rule.location.line),
                _ => None,
            };
            prop_assert_eq!(found, expected, "{:?} in\n{}", pairs, text);
            let explained = match set.explain("d", &entries).outcome {
                LookupOutcome::Rule(rule) => Some(rule.location.line),
                _ => None,
            };
            prop_assert_eq!(explained, expected, "explain and find agree");
        }
    }

    #[test]
    fn different_entries_never_share_a_counter(
        one in prop::collection::vec(("[ab_]{1,3}", "[ab_]{0,3}"), 1..4),
        other in prop::collection::vec(("[ab_]{1,3}", "[ab_]{0,3}"), 1..4),
    ) {
        // Every key of every level is a separate rule.
        let mut text = "domain: d\ndescriptors:\n".to_owned();
        let mut seen = Vec::new();
        for pairs in [&one, &other] {
            let keys: Vec<&str> = pairs.iter().map(|(key, _)| &**key).collect();
            if seen.iter().any(|earlier: &Vec<&str>| earlier[0] == keys[0] && *earlier != keys) {
                return Ok(());
            }
            if seen.contains(&keys) {
                continue;
            }
            for (depth, key) in keys.iter().enumerate() {
                let pad = "  ".repeat(depth);
                text += &format!("{pad}- key: \"{key}\"\n");
                if depth + 1 < keys.len() {
                    text += &format!("{pad}  descriptors:\n");
                } else {
                    text += &format!("{pad}  rate_limit: {{ unit: day, requests_per_unit: 1 }}\n");
                }
            }
            seen.push(keys);
        }
        let set = rules(&text);
        let key = |pairs: &[(String, String)]| {
            let entries: Vec<_> = pairs.iter().map(|(key, value)| Entry { key, value }).collect();
            let Found::Rule(rule) = set.find("d", &entries) else { panic!("{entries:?}") };
            rule.key(&KeySeed::fixed([3, 4]), &entries)
        };
        prop_assert_eq!(key(&one) == key(&other), one == other);
    }

    #[test]
    fn any_text_is_a_rule_set_or_problems(text in "\\PC{0,200}") {
        if let Err(errors) = compiled(&text, &Options::default()) {
            prop_assert!(!errors.is_empty() && errors.len() <= 1_001);
        }
    }

    #[test]
    fn yaml_like_text_is_a_rule_set_or_problems(
        text in "[-a\\[\\]{}:,&*#|>!%@'\"?<~ \\n\\t0é]{0,60}",
    ) {
        if let Err(errors) = compiled(&text, &Options::default()) {
            prop_assert!(!errors.is_empty() && errors.len() <= 1_001);
        }
    }

    #[test]
    fn mutated_files_are_rule_sets_or_problems(
        file in 0..MUTATED.len(),
        cuts in prop::collection::vec((any::<prop::sample::Index>(), 0..12_usize, ".{0,6}"), 1..4),
    ) {
        let mut text: Vec<char> = MUTATED[file].chars().collect();
        for (at, length, insert) in cuts {
            let start = at.index(text.len() + 1);
            let end = (start + length).min(text.len());
            text.splice(start..end, insert.chars());
        }
        let text: String = text.into_iter().collect();
        let options = Options { unknown_fields: UnknownFields::Warn, ..Options::default() };
        match compiled(&text, &options) {
            Ok((set, _)) => {
                let _ = set.explain("demo", &entries("user=a,path=/x"));
            }
            Err(errors) => prop_assert!(!errors.is_empty() && errors.len() <= 1_001),
        }
    }
}

const MUTATED: [&str; 4] = [
    include_str!("../../../examples/rules/edge.yaml"),
    include_str!("../../../examples/rules/shop.yaml"),
    include_str!("../../../tests/data/rules/envoy_ratelimit/anchors.yml"),
    include_str!("../../../tests/data/rules/envoy_ratelimit/flags.yaml"),
];
