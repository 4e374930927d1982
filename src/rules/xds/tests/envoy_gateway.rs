//! Tests with the resources of a real Envoy Gateway, and the descriptors that its Envoys send.

use super::*;
use crate::descriptor::Entry;
use crate::rules::{Found, RuleLimit};

/// One limit per line: domain, route, the chain below the route, limit. `ROUTE` in a chain is the
/// route itself. A key without a value accepts any value.
const CONFIG: &str = "
default/eg/http plain   rule-0-match--1=rule-0-match--1 3/HOUR
default/eg/http hdr     rule-0-match-0=rule-0-match-0>rule-0-match-1 4/HOUR
default/eg/http hdr     rule-1-match-0=rule-1-match-0 2/DAY
default/eg/http hdr     rule-2-match-0=rule-2-match-0 1/MONTH
default/eg/http cidr    masked_remote_address=127.0.0.0/8>remote_address 3/HOUR
default/eg/http cidr    masked_remote_address=127.0.0.0/16 5/HOUR
default/eg/http cidr    masked_remote_address=invert:10.0.0.0/8 100/MINUTE
default/eg/http methods rule-0-method=rule-0-method>rule-0-path=rule-0-path 3/HOUR
default/eg/http cost    rule-0-match-0 10/HOUR
default/eg/http query   rule-0-match-0 2/HOUR
default/eg/http shadow  rule-0-match--1=rule-0-match--1 1/HOUR
default/eg/http sh-a    rule-0-match--1=rule-0-match--1 5/HOUR
default/eg/http sh-b    rule-0-match--1=rule-0-match--1 5/HOUR
default/team    team    rule-0-match-0 3/HOUR
";

/// The name of a route as Envoy Gateway writes it, or of a shared rule.
fn route(name: &str) -> String {
    match name {
        "team" => "default/team/rule/0".to_owned(),
        _ => format!("httproute/default/{name}/rule/0/match/0/{name}_test"),
    }
}

/// The entries of a chain below a route.
fn chain(name: &str, below: &str) -> Vec<(String, String)> {
    let top = (route(name), route(name));
    let entry = |part: &str| {
        let (key, value) = part.split_once('=').unwrap_or((part, ""));
        (key.to_owned(), value.to_owned())
    };
    std::iter::once(top).chain(below.split('>').map(entry)).collect()
}

/// The rules of [`CONFIG`]: every rule is a chain, and its last node has the limit.
fn resources(config: &str) -> Vec<RateLimitConfig> {
    let mut resources: Vec<RateLimitConfig> = Vec::new();
    for line in config.lines().filter(|line| !line.is_empty()) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [domain, name, below, limit] = words[..] else { panic!("four words: {line}") };
        let (requests, unit) = limit.split_once('/').expect("a limit");
        let unit = RateLimitUnit::from_str_name(unit).expect("a unit");
        let requests = requests.parse().expect("a number");
        let mut top = None;
        for (key, value) in chain(name, below).iter().rev() {
            let mut descriptor = match top.take() {
                None => leaf(key, value, requests, unit),
                Some(below) => node(key, value, vec![below]),
            };
            descriptor.shadow_mode = name == "shadow";
            top = Some(descriptor);
        }
        let top = top.expect("a chain");
        let at = resources.iter().position(|one| one.domain == domain).unwrap_or_else(|| {
            resources.push(of_domain(domain, vec![]));
            resources.len() - 1
        });
        let routes = &mut resources[at].descriptors;
        match routes.iter_mut().find(|route| route.key == top.key) {
            Some(route) => route.descriptors.extend(top.descriptors),
            None => routes.push(top),
        }
    }
    resources
}

/// The limit of what Envoy sends for a request that matches a chain: requests per microseconds. A
/// key without a value has one of the request.
fn limit_of<'c>(set: &RuleSet, domain: &str, chain: &'c [(String, String)]) -> Option<(u64, u64)> {
    let entry = |(key, value): &'c (String, String)| {
        let value = if value.is_empty() { "any" } else { value.as_str() };
        Entry { key, value }
    };
    let entries: Vec<Entry<'c>> = chain.iter().map(entry).collect();
    match set.find(domain, &entries) {
        Found::Rule(rule) => match &rule.limit {
            RuleLimit::Limit(limit) => Some((limit.tiers[0].requests, limit.tiers[0].window.0)),
            RuleLimit::Unlimited => None,
        },
        _ => None,
    }
}

#[test]
fn a_real_config_limits_what_envoy_sends() {
    let rules = accepted(&resources(CONFIG));
    let (set, warnings) = rule_set(&rules, &Options::default());
    assert_eq!(warnings, Vec::<String>::new());
    assert_eq!(set.rules().len(), 14);
    assert_eq!(set.domains(), ["default/eg/http", "default/team"]);
    for (domain, name, below, requests, seconds) in [
        ("default/eg/http", "plain", "rule-0-match--1=rule-0-match--1", 3, 3_600),
        ("default/eg/http", "hdr", "rule-0-match-0=rule-0-match-0>rule-0-match-1", 4, 3_600),
        ("default/eg/http", "hdr", "rule-1-match-0=rule-1-match-0", 2, 86_400),
        ("default/eg/http", "hdr", "rule-2-match-0=rule-2-match-0", 1, 2_592_000),
        ("default/eg/http", "cidr", "masked_remote_address=127.0.0.0/8>remote_address", 3, 3_600),
        ("default/eg/http", "cidr", "masked_remote_address=127.0.0.0/16", 5, 3_600),
        ("default/eg/http", "cidr", "masked_remote_address=invert:10.0.0.0/8", 100, 60),
        (
            "default/eg/http",
            "methods",
            "rule-0-method=rule-0-method>rule-0-path=rule-0-path",
            3,
            3_600,
        ),
        ("default/eg/http", "cost", "rule-0-match-0", 10, 3_600),
        ("default/eg/http", "query", "rule-0-match-0", 2, 3_600),
        ("default/team", "team", "rule-0-match-0", 3, 3_600),
    ] {
        let found = limit_of(&set, domain, &chain(name, below));
        assert_eq!(found, Some((requests, seconds * 1_000_000)), "{name} {below}");
    }
    // A rule of one route has no effect on another, and a chain without its end has no limit.
    for (name, below) in [("plain", "rule-0-match-0"), ("hdr", "rule-0-match-0=rule-0-match-0")] {
        assert_eq!(limit_of(&set, "default/eg/http", &chain(name, below)), None, "{name}");
    }
    let shadow: Vec<bool> = set.rules().iter().map(|rule| rule.shadow_mode).collect();
    assert_eq!(shadow.iter().filter(|is_shadow| **is_shadow).count(), 1);
}

/// Two rules of one route that begin with the same network become equal siblings. Envoy Gateway
/// accepts the policy; envoyproxy/ratelimit rejects the resources.
#[test]
fn rules_with_the_same_network_all_work() {
    let config = "
default/eg/http cidr masked_remote_address=10.0.0.0/8>remote_address 3/HOUR
default/eg/http cidr masked_remote_address=10.0.0.0/8 5/HOUR
default/eg/http cidr masked_remote_address=10.0.0.0/8>rule-2-match-0 7/HOUR
";
    let mut resources = resources(config);
    for _ in 0..3 {
        resources[0].descriptors[0].descriptors.rotate_left(1);
        let rules = accepted(&resources);
        let (set, warnings) = rule_set(&rules, &Options::default());
        for (below, requests) in [
            ("masked_remote_address=10.0.0.0/8>remote_address", 3),
            ("masked_remote_address=10.0.0.0/8", 5),
            ("masked_remote_address=10.0.0.0/8>rule-2-match-0", 7),
        ] {
            let found = limit_of(&set, "default/eg/http", &chain("cidr", below));
            assert_eq!(found, Some((requests, 3_600_000_000)), "{below}");
        }
        let [warning] = &warnings[..] else { panic!("one warning: {warnings:#?}") };
        assert!(warning.contains("duplicate descriptor composite key"), "{warning}");
        assert!(warning.ends_with("; the 3 descriptors are merged"), "{warning}");
    }
}
