//! Rules by xDS: decodes the resources of a response and merges them with the active ones.
//!
//! A control plane sends all its resources in each response, in any order. What is valid becomes
//! active. What is not valid keeps its previous version:
//!
//! - A descriptor with an error, and everything below it, keeps the active version of this path of
//!   the domain. Without one, it is left out. Valid descriptors with the same key and value are active
//!   nevertheless.
//! - A resource without a domain, with a domain that another source defines, or with an error of
//!   encoding after its name, is lost: the earlier rules of this name and of this domain stay.
//! - If the name of a resource cannot be read, all active resources that the response does not contain
//!   are lost.
//! - With `rules.merge_domains`, nothing of a domain is removed while one of its resources is lost.
//!
//! Every such error is a reason against the response. The texts contain those of
//! envoyproxy/ratelimit, because operators search for them.
//!
//! Several resources may name one domain. Without `rules.merge_domains`, the first in byte order of their
//! names defines it. xDS cannot define a domain of a file, and files cannot define a domain of xDS.

use std::collections::BTreeMap;
use std::sync::Arc;

use self::node::XdsNode;
use self::response::ResponseMerger;
use super::RuleSet;
use super::file::options::Options;
use super::file::problem::{Location, RuleProblem};

mod decode;
mod documents;
mod encode;
mod merge;
mod metadata;
mod node;
mod response;
#[cfg(test)]
mod tests;

pub use self::decode::XDS_DESCRIPTORS_PER_LIMIT;

/// The URL of the type of all resources.
pub const XDS_TYPE_URL: &str = "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig";

/// Most bytes of the version of a response, and of each text of a resource that becomes part of
/// messages and metrics.
const XDS_TEXT_BYTES_MAX: usize = 4 << 10;

/// One entry of `resources` of a DiscoveryResponse.
#[derive(Clone, Copy, Debug)]
pub struct XdsResource<'a> {
    /// The type of the resource, as the entry names it.
    pub type_url: &'a str,
    /// The encoded resource.
    pub value: &'a [u8],
}

/// What the sender of a response needs to know.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct XdsOutcome {
    /// The reasons against the response (NACK), one line each, of about 4 KiB in all. Empty means ACK.
    pub reasons: Vec<String>,
    /// Parts with an error of which an earlier version is active: descriptors and resources. Of a
    /// response that is rejected as a whole, all active domains.
    pub kept: usize,
    /// Parts with an error of which no earlier version is active.
    pub dropped: usize,
}

/// The rules after a response.
#[derive(Debug)]
pub struct XdsUpdate {
    /// The rules.
    pub rules: XdsRules,
    /// Every reason against the response.
    pub problems: Vec<RuleProblem>,
    /// As in [`XdsOutcome`].
    pub kept: usize,
    /// As in [`XdsOutcome`].
    pub dropped: usize,
}

/// The active rules by xDS, merged and valid. A domain that a file defines too is among them, but is
/// not compiled. Two values are equal if they are equal apart from versions.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct XdsRules {
    domains: BTreeMap<Arc<str>, Arc<DomainRules>>,
    /// The warnings of the last response.
    warnings: Vec<RuleProblem>,
}

/// The rules of one domain.
#[derive(Debug)]
struct DomainRules {
    /// The resources of the domain, in byte order of their names: one, or several with
    /// `rules.merge_domains`.
    resources: Vec<Arc<Location>>,
    nodes: Vec<XdsNode>,
}

impl PartialEq for DomainRules {
    fn eq(&self, other: &DomainRules) -> bool {
        let [own, others] = [self, other].map(|rules| rules.resources.iter().map(|one| &one.file));
        own.eq(others) && self.nodes == other.nodes
    }
}

impl XdsRules {
    /// The rules after a response, and every reason against it. `active` are the rules of all
    /// sources; a domain of its files cannot be defined by xDS.
    ///
    /// A response over a bound changes nothing.
    pub fn update(
        &self,
        version: &str,
        resources: &[XdsResource<'_>],
        active: &RuleSet,
        options: &Options,
    ) -> XdsUpdate {
        ResponseMerger::new(self, options).update(version, resources, active)
    }

    /// The rules of an encoded DiscoveryResponse, such as that of `rules.xds.cache_file`.
    ///
    /// # Errors
    /// Bytes that are not a response.
    pub fn of_response(
        response: &[u8],
        active: &RuleSet,
        options: &Options,
    ) -> Result<XdsUpdate, String> {
        let response = decode::response(response)?;
        let resources: Vec<XdsResource<'_>> = response
            .resources
            .iter()
            .map(|one| XdsResource { type_url: &one.type_url, value: &one.value })
            .collect();
        Ok(XdsRules::default().update(&response.version_info, &resources, active, options))
    }
}

/// Parts of a response with an error.
#[derive(Clone, Copy, Debug, Default)]
struct FaultyParts {
    /// Those of which an earlier version is active.
    kept: usize,
    /// The others.
    dropped: usize,
}
