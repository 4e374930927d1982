//! A descriptor of a resource after its fields are checked.

use std::cmp::Ordering;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::{XDS_TEXT_BYTES_MAX, metadata};
use crate::limit::Unit;
use crate::proto::ratelimit::config::ratelimit::v3::{
    RateLimitDescriptor, RateLimitPolicy, RateLimitUnit,
};
use crate::rules::excerpt::shorten;
use crate::rules::file::problem::Location;

/// A descriptor, merged with its equal siblings.
#[derive(Clone, Debug)]
pub(super) struct XdsNode {
    pub(super) key: Arc<str>,
    /// Empty accepts any value.
    pub(super) value: Arc<str>,
    /// The resource and the version that sent it.
    pub(super) origin: Arc<Location>,
    pub(super) limit: Option<Box<XdsLimit>>,
    pub(super) children: Vec<XdsNode>,
}

/// Versions are not compared.
impl PartialEq for XdsNode {
    fn eq(&self, other: &XdsNode) -> bool {
        self.key == other.key
            && self.value == other.value
            && self.origin.file == other.origin.file
            && self.limit == other.limit
            && self.children == other.children
    }
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

/// The size of some rules.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Total {
    /// Resources and descriptors.
    pub(super) descriptors: usize,
    pub(super) limits: usize,
}

/// Adds the nodes and everything below them to `total`.
pub(super) fn count(nodes: &[XdsNode], total: &mut Total) {
    for node in nodes {
        total.descriptors += 1;
        total.limits += usize::from(node.limit.is_some());
        count(&node.children, total);
    }
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
    let mut check_length = |field: &str, text: &str| {
        if text.len() > XDS_TEXT_BYTES_MAX {
            problems.push(format!("a `{field}` of more than {XDS_TEXT_BYTES_MAX} bytes"));
        }
    };
    check_length("key", key);
    check_length("value", &descriptor.value);
    let Some(policy) = &descriptor.rate_limit else { return problems };
    check_length("name", &policy.name);
    let longest = policy.replaces.iter().max_by_key(|one| one.name.len());
    check_length("replaces", longest.map_or("", |one| one.name.as_str()));
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
    // Each problem once: a limit may have hundreds of thousands of items.
    if policy.replaces.iter().any(|one| one.name.is_empty()) {
        problems.push("should not have an empty replaces entry".to_owned());
    }
    if policy.replaces.iter().any(|one| !one.name.is_empty() && one.name == policy.name) {
        problems.push("replaces should not contain name of same descriptor".to_owned());
    }
    problems
}

/// How much a limit allows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Allowance {
    /// Unlimited, then in shadow mode, then in quota mode.
    flags: (bool, bool, bool),
    requests: u32,
    /// In microseconds; 0 is unlimited.
    window: u64,
}

impl Allowance {
    /// That of a valid descriptor; `None` without a limit.
    pub(super) fn of(descriptor: &RateLimitDescriptor) -> Option<Allowance> {
        let policy = descriptor.rate_limit.as_ref()?;
        let modes = (descriptor.shadow_mode, descriptor.quota_mode);
        Some(Allowance::new(unit(policy), policy.requests_per_unit, modes))
    }

    fn new(unit: Option<Unit>, requests: u32, (shadow, quota): (bool, bool)) -> Allowance {
        let window = unit.map_or(0, |unit| unit.window().0);
        Allowance { flags: (unit.is_none(), shadow, quota), requests, window }
    }

    /// Orders limits by how much they allow, the strictest first. Unlimited is the loosest, then a
    /// limit in shadow mode, which denies nothing, then one in quota mode. Of the others the lower
    /// rate is stricter, then the smaller number of requests.
    pub(super) fn compare(&self, other: &Allowance) -> Ordering {
        // Crosswise, because a / b < c / d if a * d < c * b.
        let rate = |of: &Allowance, window: u64| u128::from(of.requests) * u128::from(window);
        self.flags
            .cmp(&other.flags)
            .then(rate(self, other.window).cmp(&rate(other, self.window)))
            .then(self.requests.cmp(&other.requests))
    }
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

    /// How much it allows.
    pub(super) fn allowance(&self) -> Allowance {
        Allowance::new(self.unit, self.requests, (self.shadow_mode, self.quota_mode))
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
