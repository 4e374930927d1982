//! Tests of which rule a descriptor matches, and which descriptors share a counter.

use super::*;

/// Checks lines of a descriptor and the name of its rule; `-` is no rule.
#[track_caller]
fn check(set: &RuleSet, table: &str) {
    for line in table.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (descriptor, expected) = line.rsplit_once(' ').expect("write `descriptor rule`");
        let name = found(set, descriptor.trim()).map_or("-", |rule| &*rule.display_name);
        assert_eq!(name, expected, "{line}");
    }
}

const LIMIT: &str = "unit: second, requests_per_unit: 1";

/// The most specific matcher of a level wins, and the lookup never goes back.
#[test]
fn the_most_specific_matcher_wins() {
    let set = rules(&format!(
        r#"
domain: d
descriptors:
  - key: p
    rate_limit: {{ name: any, {LIMIT} }}
    descriptors:
      - key: q
        rate_limit: {{ name: any-q, {LIMIT} }}
  - key: p
    value: "/a/*"
    rate_limit: {{ name: wild-1, {LIMIT} }}
  - key: p
    value: "/a/b*"
    rate_limit: {{ name: wild-2, {LIMIT} }}
  - key: p
    value_cidr: 10.0.0.0/8
    rate_limit: {{ name: cidr, {LIMIT} }}
  - key: p
    value_regex: "[0-9.]+"
    rate_limit: {{ name: regex, {LIMIT} }}
  - key: p
    value_template: "/a/{{x}}"
    rate_limit: {{ name: template, {LIMIT} }}
  - key: p
    value_template: "/a/{{x}}/{{y}}"
    rate_limit: {{ name: template-2, {LIMIT} }}
  - key: p
    value_regex: "/a/.*"
    rate_limit: {{ name: regex-2, {LIMIT} }}
  - key: p
    value: /a/b
    rate_limit: {{ name: exact, {LIMIT} }}
"#
    ));
    check(
        &set,
        "
        p=/a/b          exact
        p=/a/bc         template
        p=/a/b/c        template-2
        p=/a/b/c/d      regex-2
        p=10.0.0.1      regex
        p=::ffff:10.0.0.1  cidr
        p=zzz           any
        p=              any
        p=zzz,q=1       any-q
        p=/a/b,q=1      -
        p=/a/bc,q=1     -
        q=1             -
        ",
    );
}

#[test]
fn only_the_node_of_the_last_entry_limits() {
    let set = rules(&format!(
        r#"
domain: d
descriptors:
  - key: a
    value: x
    descriptors:
      - key: b
        rate_limit: {{ name: ab, {LIMIT} }}
        descriptors:
          - key: c
            value: "1"
            rate_limit: {{ name: abc, {LIMIT} }}
          - key: c
            value: allowed
  - key: a
    rate_limit: {{ name: a, {LIMIT} }}
  - key: free
    rate_limit: {{ name: free, unlimited: true }}
"#
    ));
    check(
        &set,
        "
        a=y             a
        a=x             -
        a=x,b=          ab
        a=x,b=1         ab
        a=x,b=1,c=1     abc
        a=x,b=1,c=2     -
        a=x,b=1,c=allowed -
        a=x,b=1,c=1,d=1 -
        a=y,b=1         -
        A=y             -
        b=1             -
        free=1          free
        ",
    );
    assert!(found(&set, "").is_none(), "a descriptor without entries matches no rule");
    assert!(matches!(set.find("other", &entries("a=y")), Found::UnknownDomain));
    let free = found(&set, "free=1").expect("it is there");
    assert_eq!(free.limit, RuleLimit::Unlimited);
}

/// Among wildcards the first in the file wins, unless the value is the text of another one.
#[test]
fn the_first_wildcard_wins() {
    let set = rules(&format!(
        r#"
domain: d
descriptors:
  - key: p
    value: "f*"
    rate_limit: {{ name: first, {LIMIT} }}
  - key: p
    value: "foo*"
    rate_limit: {{ name: second, {LIMIT} }}
  - key: p_x
    value: "*bar"
    rate_limit: {{ name: third, {LIMIT} }}
"#
    ));
    check(
        &set,
        "
        p=foobar   first
        p=foo*     second
        p=f*       first
        p_x=bar    third
        p=x_bar    -
        ",
    );
}

#[test]
fn each_matcher_separates_counters() {
    let set = rules(&format!(
        r#"
domain: d
descriptors:
  - {{ key: any, rate_limit: {{ {LIMIT} }} }}
  - {{ key: wild, value: "w*", rate_limit: {{ {LIMIT} }} }}
  - {{ key: shared, value: "w*", share_threshold: true, rate_limit: {{ {LIMIT} }} }}
  - {{ key: tpl, value_template: "/o/{{org}}/{{id}}", rate_limit: {{ {LIMIT} }} }}
  - {{ key: by, value_template: "/o/{{org}}/{{id}}", count_by: [org], rate_limit: {{ {LIMIT} }} }}
  - {{ key: re, value_regex: "a+", rate_limit: {{ {LIMIT} }} }}
  - {{ key: regroup, value_regex: "(?<x>a+)-.*", count_by: [x], rate_limit: {{ {LIMIT} }} }}
  - {{ key: reshared, value_regex: "a+", share_threshold: true, rate_limit: {{ {LIMIT} }} }}
  - {{ key: ip, value_cidr: "::/0", rate_limit: {{ {LIMIT} }} }}
  - {{ key: ipshared, value_cidr: 10.0.0.0/8, share_threshold: true, rate_limit: {{ {LIMIT} }} }}
  - key: a
    descriptors: [{{ key: b, rate_limit: {{ {LIMIT} }} }}]
  - key: s
    value: "s*"
    share_threshold: true
    descriptors: [{{ key: b, rate_limit: {{ {LIMIT} }} }}]
"#
    ));
    for (one, other, same) in [
        ("any=1", "any=1", true),
        ("any=1", "any=2", false),
        ("any=", "any=2", false),
        ("wild=w1", "wild=w2", false),
        ("shared=w1", "shared=w2", true),
        ("tpl=/o/1/2", "tpl=/o/3/4", true),
        ("by=/o/1/2", "by=/o/1/3?x", true),
        ("by=/o/1/2", "by=/o/2/2", false),
        ("re=a", "re=aa", false),
        ("regroup=a-1", "regroup=a-2", true),
        ("regroup=a-1", "regroup=aa-1", false),
        ("reshared=a", "reshared=aa", true),
        ("ip=::1", "ip=0:0::1", true),
        ("ip=::1", "ip=::2", false),
        ("ipshared=10.0.0.1", "ipshared=10.0.0.2", true),
        ("a=1,b=2", "a=1,b=2", true),
        ("a=1,b=2", "a=12,b=", false),
        ("a=1,b=2", "a=2,b=1", false),
        ("s=s1,b=2", "s=s2,b=2", true),
        ("s=s1,b=2", "s=s1,b=3", false),
        ("any=1", "wild=w1", false),
    ] {
        let keys = [one, other].map(|text| counter(&set, text).expect("a rule matches"));
        assert_eq!(keys[0] == keys[1], same, "{one} and {other}");
    }
}

/// Descriptors whose entries join to the same text have different counters.
#[test]
fn joined_texts_never_share_a_counter() {
    let set = rules(&format!(
        r#"
domain: d
descriptors:
  - {{ key: a, value: b_c, rate_limit: {{ {LIMIT} }} }}
  - {{ key: a_b, value: c, rate_limit: {{ {LIMIT} }} }}
  - {{ key: a, rate_limit: {{ {LIMIT} }} }}
  - {{ key: a_b, rate_limit: {{ {LIMIT} }} }}
"#
    ));
    assert_ne!(counter(&set, "a=b_c"), counter(&set, "a_b=c"));
    assert_ne!(counter(&set, "a=b_x"), counter(&set, "a_b=x"));
}

/// A counter keeps its key when the limit's number changes, but not with another window or algorithm.
#[test]
fn a_counter_survives_a_change_of_its_limit() {
    let key = |limit: &str| {
        let text = format!("domain: d\ndescriptors: [{{ key: a, rate_limit: {{ {limit} }} }}]");
        counter(&rules(&text), "a=1")
    };
    let before = key("unit: minute, requests_per_unit: 5");
    assert_eq!(before, key("unit: minute, requests_per_unit: 6, name: x"));
    assert_eq!(before, key("requests: 7, window: 60s"));
    assert_ne!(before, key("unit: hour, requests_per_unit: 5"));
    assert_ne!(before, key("unit: minute, requests_per_unit: 5, algorithm: sliding_window"));
    assert_ne!(before, key("tiers: [{requests: 5, window: 1m}, {requests: 9, window: 1h}]"));
}

#[test]
fn an_override_counts_on_its_entries_and_unit() {
    use crate::limit::Unit;
    let seed = KeySeed::fixed([1, 2]);
    let key = |domain, text, unit| override_key(&seed, domain, &entries(text), unit);
    let one = key("d", "a=1,b=2", Unit::Minute);
    assert_eq!(one, key("d", "a=1,b=2", Unit::Minute));
    for other in [
        key("e", "a=1,b=2", Unit::Minute),
        key("d", "a=1,b=2", Unit::Hour),
        key("d", "a=1", Unit::Minute),
        key("d", "a=1_b,2=", Unit::Minute),
        key("d", "b=2,a=1", Unit::Minute),
    ] {
        assert_ne!(one, other);
    }
}
