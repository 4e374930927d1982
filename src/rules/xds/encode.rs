//! Encodes the active rules by xDS as resources again, so that they can be kept for a later start.

use std::sync::Arc;

use prost::Message;

use super::node::{XdsLimit, XdsNode};
use super::{XdsRules, metadata};
use crate::limit::Unit;
use crate::proto::ratelimit::config::ratelimit::v3::{
    RateLimitConfig, RateLimitDescriptor, RateLimitPolicy, RateLimitReplace, RateLimitUnit,
};
use crate::rules::file::problem::XDS_PREFIX;

impl XdsRules {
    /// The encoded resources. A response with them gives the same domains.
    pub fn resources(&self) -> Vec<Vec<u8>> {
        let mut encoded = Vec::new();
        for (domain, rules) in &self.domains {
            for (resource, nodes) in rules.resources.iter().zip(rules.by_resource()) {
                let name = resource.file.strip_prefix(XDS_PREFIX).unwrap_or(&resource.file);
                let config = RateLimitConfig {
                    name: name.to_owned(),
                    domain: domain.to_string(),
                    descriptors: nodes.into_iter().map(descriptor).collect(),
                };
                encoded.push(config.encode_to_vec());
            }
        }
        encoded
    }
}

fn descriptor(node: &XdsNode) -> RateLimitDescriptor {
    let mut descriptor = RateLimitDescriptor {
        key: node.key.to_string(),
        value: node.value.to_string(),
        descriptors: node.children.iter().map(descriptor).collect(),
        ..RateLimitDescriptor::default()
    };
    if let Some(limit) = node.limit.as_deref() {
        descriptor.rate_limit = Some(policy(limit));
        descriptor.shadow_mode = limit.shadow_mode;
        descriptor.quota_mode = limit.quota_mode;
        descriptor.detailed_metric = limit.detailed_metric;
        descriptor.metadata = limit.metadata.as_ref().map(metadata::of_json);
    }
    descriptor
}

fn policy(limit: &XdsLimit) -> RateLimitPolicy {
    let unit = match limit.unit {
        None => RateLimitUnit::Unknown,
        Some(Unit::Second) => RateLimitUnit::Second,
        Some(Unit::Minute) => RateLimitUnit::Minute,
        Some(Unit::Hour) => RateLimitUnit::Hour,
        Some(Unit::Day) => RateLimitUnit::Day,
        Some(Unit::Week) => RateLimitUnit::Week,
        Some(Unit::Month) => RateLimitUnit::Month,
        Some(Unit::Year) => RateLimitUnit::Year,
    };
    let replaced = |name: &Arc<str>| RateLimitReplace { name: name.to_string() };
    RateLimitPolicy {
        unit: unit.into(),
        requests_per_unit: limit.requests,
        unlimited: limit.unit.is_none(),
        name: limit.name.as_deref().unwrap_or_default().to_owned(),
        replaces: limit.replaces.iter().map(replaced).collect(),
    }
}
