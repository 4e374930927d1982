//! Tests of rules by xDS: which responses are accepted, and what becomes active.

use prost::Message;

use super::*;
use crate::proto::ratelimit::config::ratelimit::v3::{
    RateLimitConfig, RateLimitDescriptor, RateLimitPolicy, RateLimitReplace, RateLimitUnit,
};
use crate::rules::{RuleSources, SourceFile, compile};

mod envoy_gateway;
mod hostile;
mod lost;
mod merging;
mod random;
mod responses;
mod sequences;

fn config(name: &str, domain: &str, descriptors: Vec<RateLimitDescriptor>) -> RateLimitConfig {
    RateLimitConfig { name: name.to_owned(), domain: domain.to_owned(), descriptors }
}

/// A resource with the name of its domain, as Envoy Gateway sends it.
fn of_domain(domain: &str, descriptors: Vec<RateLimitDescriptor>) -> RateLimitConfig {
    config(domain, domain, descriptors)
}

/// A descriptor without a limit. An empty value is none.
fn node(key: &str, value: &str, descriptors: Vec<RateLimitDescriptor>) -> RateLimitDescriptor {
    let (key, value) = (key.to_owned(), value.to_owned());
    RateLimitDescriptor { key, value, descriptors, ..RateLimitDescriptor::default() }
}

/// A descriptor with `requests` per `unit` and nothing below it.
fn leaf(key: &str, value: &str, requests: u32, unit: RateLimitUnit) -> RateLimitDescriptor {
    with_policy(node(key, value, Vec::new()), policy(requests, unit))
}

fn policy(requests: u32, unit: RateLimitUnit) -> RateLimitPolicy {
    let unit = unit.into();
    RateLimitPolicy { unit, requests_per_unit: requests, ..RateLimitPolicy::default() }
}

fn with_policy(descriptor: RateLimitDescriptor, policy: RateLimitPolicy) -> RateLimitDescriptor {
    RateLimitDescriptor { rate_limit: Some(policy), ..descriptor }
}

/// A descriptor with an error.
fn bad(key: &str, value: &str) -> RateLimitDescriptor {
    leaf(key, value, 1, RateLimitUnit::Unknown)
}

fn unlimited() -> RateLimitPolicy {
    RateLimitPolicy { unlimited: true, ..RateLimitPolicy::default() }
}

fn named(name: &str, replaces: &[&str]) -> RateLimitPolicy {
    let replaces = replaces.iter().map(|name| RateLimitReplace { name: (*name).to_owned() });
    RateLimitPolicy {
        name: name.to_owned(),
        replaces: replaces.collect(),
        ..policy(1, RateLimitUnit::Day)
    }
}

fn update(
    before: &XdsRules,
    version: &str,
    configs: &[RateLimitConfig],
    options: &Options,
) -> XdsUpdate {
    let values: Vec<Vec<u8>> = configs.iter().map(Message::encode_to_vec).collect();
    let resources: Vec<XdsResource<'_>> =
        values.iter().map(|value| XdsResource { type_url: XDS_TYPE_URL, value }).collect();
    let (set, _) = rule_set(before, options);
    before.update(version, &resources, &set, options)
}

/// The rules after a response, and the reasons against it.
fn updated(
    before: &XdsRules,
    version: &str,
    configs: &[RateLimitConfig],
    options: &Options,
) -> (XdsRules, Vec<String>) {
    rules_and_reasons(update(before, version, configs, options))
}

fn rules_and_reasons(update: XdsUpdate) -> (XdsRules, Vec<String>) {
    (update.rules, update.problems.iter().map(ToString::to_string).collect())
}

/// With `rules.merge_domains`.
fn merge_domains() -> Options {
    Options { merge_domains: true, ..Options::default() }
}

/// The rules of a response that must be accepted.
fn accepted(configs: &[RateLimitConfig]) -> XdsRules {
    let (rules, errors) = updated(&XdsRules::default(), "1", configs, &Options::default());
    assert_eq!(errors, Vec::<String>::new());
    rules
}

/// The compiled rules and the warnings. Rules by xDS always compile.
fn rule_set(rules: &XdsRules, options: &Options) -> (RuleSet, Vec<String>) {
    let sources = RuleSources { xds: rules.clone(), ..RuleSources::default() };
    let (set, warnings) = sources.compile(options).unwrap_or_else(|p| panic!("{p:#?}"));
    (set, warnings.iter().map(ToString::to_string).collect())
}

/// The limits, one line each: `domain.key_value requests/UNIT`.
fn limits(rules: &XdsRules) -> Vec<String> {
    let (set, _) = rule_set(rules, &merge_domains());
    let limit = |line: &str| -> Option<String> {
        let (path, rest) = line.split_once(": unit=")?;
        let (unit, rest) = rest.split_once(" requests_per_unit=")?;
        let requests = rest.split(',').next()?;
        Some(format!("{path} {requests}/{unit}"))
    };
    set.rlconfig().lines().map(|line| limit(line).expect("a line per limit")).collect()
}
