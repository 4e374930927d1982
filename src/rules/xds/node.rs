//! A descriptor of a resource after its fields are checked.

use std::cmp::Ordering;
use std::sync::Arc;

use prost::Message;
use serde_json::{Map, Value};

use super::metadata;
use crate::limit::Unit;
use crate::proto::ratelimit::config::ratelimit::v3::{
    RateLimitDescriptor, RateLimitPolicy, RateLimitUnit,
};
use crate::rules::excerpt::shorten;
use crate::rules::file::problem::Location;

/// A descriptor, merged with its equal siblings.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct XdsNode {
    pub(super) key: Arc<str>,
    /// Empty accepts any value.
    pub(super) value: Arc<str>,
    /// The resource and the version that sent it.
    pub(super) origin: Arc<Location>,
    pub(super) limit: Option<Box<XdsLimit>>,
    pub(super) children: Vec<XdsNode>,
}

/// The limit of a descriptor, with the flags that apply to it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct XdsLimit {
    /// The window; `None` is unlimited.
    pub(super) unit: Option<Unit>,
    /// Hits that pass per window.
    pub(super) requests: u32,
    pub(super) name: Option<Arc<str>>,
    pub(super) replaces: Vec<Arc<str>>,
    pub(super) shadow_mode: bool,
    pub(super) quota_mode: bool,
    pub(super) detailed_metric: bool,
    pub(super) metadata: Option<Map<String, Value>>,
}

/// The number of descriptors at and below these nodes.
pub(super) fn count(nodes: &[XdsNode]) -> usize {
    nodes.iter().map(|node| 1 + count(&node.children)).sum()
}

/// The problems of the fields of a descriptor, without its children, in the words of
/// envoyproxy/ratelimit.
pub(super) fn problems(descriptor: &RateLimitDescriptor) -> Vec<String> {
    let mut problems = Vec::new();
    let key = &descriptor.key;
    if key.is_empty() {
        problems.push("descriptor has empty key".to_owned());
    } else if key.contains('*') {
        problems.push(format!("`key` cannot contain a `*`: `{}`", shorten(key)));
    }
    let Some(policy) = &descriptor.rate_limit else { return problems };
    match (policy.unlimited, unit(policy)) {
        (true, Some(_)) => {
            problems.push("should not specify rate limit unit when unlimited".to_owned());
        }
        (false, None) if policy.unit == 0 => {
            problems.push("invalid rate limit unit 'UNKNOWN'".to_owned());
        }
        (false, None) => problems.push(format!("invalid rate limit unit '{}'", policy.unit)),
        (true, None) | (false, Some(_)) => {}
    }
    for replaced in &policy.replaces {
        if replaced.name.is_empty() {
            problems.push("should not have an empty replaces entry".to_owned());
        } else if replaced.name == policy.name {
            problems.push("replaces should not contain name of same descriptor".to_owned());
        }
    }
    problems
}

/// Orders descriptors with a valid limit by how much their limits allow, the strictest first.
/// Unlimited is the loosest, then a limit in shadow mode, which denies nothing, then one in quota mode.
/// Of the others the lower rate is stricter, then the smaller number of requests. Descriptors are equal
/// in this order only if they are equal.
pub(super) fn by_strictness(one: &RateLimitDescriptor, other: &RateLimitDescriptor) -> Ordering {
    let policy = |of: &RateLimitDescriptor| of.rate_limit.clone().unwrap_or_default();
    let (one_policy, other_policy) = (policy(one), policy(other));
    let flags = |policy: &RateLimitPolicy, of: &RateLimitDescriptor| {
        (policy.unlimited, of.shadow_mode, of.quota_mode)
    };
    let rate = |policy: &RateLimitPolicy, window_of: &RateLimitPolicy| {
        let window = unit(window_of).map_or(0, |unit| unit.window().0);
        u128::from(policy.requests_per_unit) * u128::from(window)
    };
    flags(&one_policy, one)
        .cmp(&flags(&other_policy, other))
        // Crosswise, because a / b < c / d if a * d < c * b.
        .then(rate(&one_policy, &other_policy).cmp(&rate(&other_policy, &one_policy)))
        .then(one_policy.requests_per_unit.cmp(&other_policy.requests_per_unit))
        .then_with(|| one.encode_to_vec().cmp(&other.encode_to_vec()))
}

impl XdsLimit {
    /// The limit of a descriptor without problems, and the number of values in its metadata that
    /// JSON cannot express. `None` without a limit.
    pub(super) fn new(descriptor: &RateLimitDescriptor) -> Option<(XdsLimit, usize)> {
        let policy = descriptor.rate_limit.as_ref()?;
        let mut lost = 0;
        let metadata = descriptor.metadata.as_ref().map(|all| metadata::json_map(all, &mut lost));
        let limit = XdsLimit {
            unit: unit(policy),
            requests: policy.requests_per_unit,
            name: Some(policy.name.as_str()).filter(|name| !name.is_empty()).map(Arc::from),
            replaces: policy.replaces.iter().map(|one| one.name.as_str().into()).collect(),
            shadow_mode: descriptor.shadow_mode,
            quota_mode: descriptor.quota_mode,
            detailed_metric: descriptor.detailed_metric,
            metadata,
        };
        Some((limit, lost))
    }
}

/// The unit of a policy. `None` if it is unknown, as it must be for an unlimited policy.
fn unit(policy: &RateLimitPolicy) -> Option<Unit> {
    match RateLimitUnit::try_from(policy.unit).ok()? {
        RateLimitUnit::Unknown => None,
        RateLimitUnit::Second => Some(Unit::Second),
        RateLimitUnit::Minute => Some(Unit::Minute),
        RateLimitUnit::Hour => Some(Unit::Hour),
        RateLimitUnit::Day => Some(Unit::Day),
        RateLimitUnit::Week => Some(Unit::Week),
        RateLimitUnit::Month => Some(Unit::Month),
        RateLimitUnit::Year => Some(Unit::Year),
    }
}
