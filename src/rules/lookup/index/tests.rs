//! Tests that compare the index with a plain scan of single matchers.

use std::net::IpAddr;
use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::*;
use crate::rules::lookup::matcher::MatcherError;

/// The precedence of a matcher in the documentation; lower comes first.
fn precedence(matcher: &Matcher) -> u8 {
    match matcher {
        Matcher::Exact(_) => 0,
        Matcher::Template(_) => 1,
        Matcher::Regex(_) => 2,
        Matcher::Cidr(_) => 3,
        Matcher::Wildcard(_) => 4,
        Matcher::Any => 5,
    }
}

/// The first matcher that accepts the value: the most specific kind, then the lowest number.
fn scan(matchers: &[Matcher], value: &EntryValue<'_>) -> Option<u32> {
    let accepting = (0..).zip(matchers).filter(|(_, matcher)| matcher.matches(value));
    let first = accepting.min_by_key(|(number, matcher)| (precedence(matcher), *number));
    first.map(|(number, _)| number)
}

fn check(matchers: &[Matcher], values: &[String]) -> Result<(), TestCaseError> {
    let mut order: Vec<(u32, &Matcher)> = (0..).zip(matchers).collect();
    order.sort_by_key(|(_, matcher)| precedence(matcher));
    let index = PatternIndex::new(order.into_iter());
    for value in values {
        let value = EntryValue::new(value);
        let accepts = |number: u32| matchers[number as usize].matches(&value);
        let sources: Vec<&str> = matchers.iter().map(Matcher::source).collect();
        let found = index.first(&value, accepts);
        prop_assert_eq!(found, scan(matchers, &value), "{:?} in {:?}", value.text(), sources);
    }
    Ok(())
}

fn all(
    texts: Vec<String>,
    make: impl Fn(Arc<str>) -> Result<Matcher, MatcherError>,
) -> Vec<Matcher> {
    texts.into_iter().filter_map(|text| make(text.into()).ok()).collect()
}

fn joined(
    pieces: &[&'static str],
    lengths: std::ops::Range<usize>,
) -> impl Strategy<Value = String> {
    vec(select(pieces.to_vec()), lengths).prop_map(|pieces| pieces.concat())
}

fn regex() -> impl Strategy<Value = String> {
    const PIECES: [&str; 22] = [
        "a",
        "b",
        "ab",
        "/",
        "é",
        "1",
        "a1",
        "/b",
        "[ab]",
        "[ab]+",
        ".*",
        "(a|b)",
        "(ab|ba)+",
        "a?",
        "(?i:ab)",
        "(?i:k)",
        r"\b",
        r"\d+",
        "(?:a|/b|1)",
        "[^/]*",
        "^",
        "$",
    ];
    prop_oneof![4 => joined(&PIECES, 1..6), 1 => (joined(&PIECES, 1..4), joined(&PIECES, 1..4))
        .prop_map(|(one, other)| format!("{one}|{other}"))]
}

fn network() -> impl Strategy<Value = String> {
    let v4 = (0..4_u32, 0..4_u32, 0..=32_u8).prop_map(|(high, low, length)| {
        let address = std::net::Ipv4Addr::from_bits(high << 30 | low);
        IpAddr::V4(address).to_string() + &format!("/{length}")
    });
    let v6 = (0..4_u128, 0..4_u128, 0..=128_u8).prop_map(|(high, low, length)| {
        let address = std::net::Ipv6Addr::from_bits(high << 126 | low);
        IpAddr::V6(address).to_string() + &format!("/{length}")
    });
    let mapped = select(vec!["::ffff:0.0.0.0/96", "::ffff:0.0.0.0/98", "::/0", "0.0.0.0/0"]);
    let truncated = prop_oneof![4 => v4, 2 => v6].prop_map(|text| {
        let network: ipnet::IpNet = text.parse().expect("valid");
        network.trunc().to_string()
    });
    prop_oneof![6 => truncated, 1 => mapped.prop_map(str::to_owned)]
}

fn address() -> impl Strategy<Value = String> {
    let v4 = (0..4_u32, 0..5_u32, any::<bool>()).prop_map(|(high, low, mapped)| {
        let address = std::net::Ipv4Addr::from_bits(high << 30 | low);
        if mapped { format!("::ffff:{address}") } else { address.to_string() }
    });
    let v6 = (0..4_u128, 0..5_u128)
        .prop_map(|(high, low)| std::net::Ipv6Addr::from_bits(high << 126 | low).to_string());
    prop_oneof![v4, v6, Just("10.0.0".to_owned())]
}

fn template() -> impl Strategy<Value = String> {
    vec(select(vec!["a", "b", "{x}", "{y}", "{z}", ""]), 1..5).prop_map(|parts| parts.join("/"))
}

fn path() -> impl Strategy<Value = String> {
    let path = vec(select(vec!["a", "b", "c", ""]), 1..6).prop_map(|parts| parts.join("/"));
    (path, select(vec!["", "?", "?a/b"])).prop_map(|(path, query)| path + query)
}

/// A wildcard as a regular expression.
const WILDCARD: &str = "[ab/]{0,3}\\*[ab*é]{0,3}";

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn regexes_agree_with_a_scan(
        regexes in prop_oneof![vec(regex(), 1..20), vec(regex(), 65..120)],
        values in vec("[abk1/éK]{0,8}", 1..20),
    ) {
        check(&all(regexes, |text| Matcher::regex(text, &[])), &values)?;
    }

    #[test]
    fn wildcards_agree_with_a_scan(
        wildcards in prop_oneof![vec(WILDCARD, 1..10), vec(WILDCARD, 17..60)],
        values in vec("[ab/é]{0,8}", 1..20),
    ) {
        check(&all(wildcards, |text| Ok(Matcher::value(text))), &values)?;
    }

    #[test]
    fn networks_agree_with_a_scan(
        networks in vec(network(), 1..40), values in vec(address(), 1..20),
    ) {
        check(&all(networks, Matcher::cidr), &values)?;
    }

    #[test]
    fn templates_agree_with_a_scan(
        templates in vec(template(), 1..40), values in vec(path(), 1..20),
    ) {
        check(&all(templates, |text| Matcher::template(text, &[])), &values)?;
    }

    #[test]
    fn mixed_patterns_agree_with_a_scan(
        texts in vec(
            prop_oneof![
                ("[ab]?\\*[b/]?").prop_map(|text| (0, text)),
                template().prop_map(|text| (1, text)),
                regex().prop_map(|text| (2, text)),
                network().prop_map(|text| (3, text)),
            ],
            1..30,
        ),
        values in vec(prop_oneof!["[ab1/]{0,4}", address(), path()], 1..20),
    ) {
        let matchers = texts.into_iter().filter_map(|(kind, text)| match kind {
            0 => Some(Matcher::value(text.into())),
            1 => Matcher::template(text.into(), &[]).ok(),
            2 => Matcher::regex(text.into(), &[]).ok(),
            _ => Matcher::cidr(text.into()).ok(),
        });
        check(&matchers.collect::<Vec<_>>(), &values)?;
    }

    /// Automata of these expressions have 2^n states. The group is then scanned, with the same result.
    #[test]
    fn a_group_with_too_many_states_is_scanned(values in vec("[ab]{0,400}", 1..4)) {
        let regexes = (10..40).rev().map(|n| format!("[ab]*a[ab]{{{n}}}a[ab]*b")).collect();
        check(&all(regexes, |text| Matcher::regex(text, &[])), &values)?;
    }
}

/// A pattern with a number, and a value that it accepts.
type MatcherSample = (fn(usize) -> Matcher, fn(usize) -> String);

/// 10,000 patterns of each kind compile, and each is found.
#[test]
fn ten_thousand_patterns_are_found() {
    const COUNT: usize = 10_000;
    let kinds: [MatcherSample; 5] = [
        (
            |n| Matcher::regex(format!("/v1/[0-9]+/item-{n}").into(), &[]).expect("valid"),
            |n| format!("/v1/7/item-{n}"),
        ),
        (
            |n| Matcher::regex(format!("(?i)/item-[0-9]+-{n:x}").into(), &[]).expect("valid"),
            |n| format!("/ITEM-7-{n:X}"),
        ),
        (
            |n| Matcher::template(format!("/{{org}}/{n}/{{id}}").into(), &[]).expect("valid"),
            |n| format!("/a/{n}/b"),
        ),
        (
            |n| Matcher::cidr(format!("10.{}.{}.0/24", n / 256, n % 256).into()).expect("valid"),
            |n| format!("10.{}.{}.7", n / 256, n % 256),
        ),
        (|n| Matcher::value(format!("*-{n}*.js").into()), |n| format!("/app-{n}.min.js")),
    ];
    for (make, value) in kinds {
        let matchers: Vec<Matcher> = (0..COUNT).map(make).collect();
        let index = PatternIndex::new((0..).zip(&matchers));
        for number in [0, 1, 99, 255, 256, 4_999, COUNT - 1] {
            let value = value(number);
            let value = EntryValue::new(&value);
            let accepts = |number: u32| matchers[number as usize].matches(&value);
            let found = index.first(&value, accepts);
            assert_eq!(found, scan(&matchers, &value), "{}", value.text());
            assert!(found.is_some());
        }
        let value = EntryValue::new("/nothing");
        assert_eq!(index.first(&value, |number| matchers[number as usize].matches(&value)), None);
    }
}
