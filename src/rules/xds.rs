//! Rules by xDS: decodes the resources of a response and merges them with the active ones.
//!
//! A control plane sends all its resources in each response, in any order. What is valid becomes
//! active. What is not valid keeps its previous version:
//!
//! - A descriptor with an error, and everything below it, keeps the active version of this path of
//!   the domain. Without one, it is left out. Valid descriptors with the same key and value are active
//!   nevertheless.
//! - A resource without a domain, with a domain that another source defines, or with an error of
//!   encoding after its name, is lost: what this name, and this domain, had sent before stays.
//! - If the name of a resource cannot be read, all active resources that the response does not contain
//!   are lost.
//! - With `rules.merge_domains`, nothing of a domain is removed while one of its resources is lost.
//!
//! Every such error is a reason against the response. The texts contain those of
//! envoyproxy/ratelimit, because operators search for them.
//!
//! The first resource in byte order of names has a domain that several have. A domain of a file cannot be
//! defined by xDS, and files cannot take a domain of xDS.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use self::merge::{Merger, ReceivedDescriptor};
use self::node::{Total, XdsNode};
use super::excerpt::shorten;
use super::file::options::Options;
use super::file::problem::{Location, Report, RuleProblem, XDS_PREFIX};
use super::{RuleDocument, RuleSet};
use crate::proto::ratelimit::config::ratelimit::v3::RateLimitConfig;

mod decode;
mod documents;
mod encode;
mod merge;
mod metadata;
mod node;
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

/// A resource that names a domain.
struct Claim<'a> {
    origin: Arc<Location>,
    /// The encoded resource, which orders resources of one name.
    value: &'a [u8],
    config: RateLimitConfig,
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
        let mut update = Update {
            before: self,
            options,
            report: Report::default(),
            parts: FaultyParts::default(),
            seen: HashSet::new(),
            lost: HashSet::new(),
            lost_domains: HashSet::new(),
            covered: HashSet::new(),
            unreadable: 0,
        };
        let rules = decode::check_size(version, resources, options.xds_limits_max)
            .and_then(|()| update.rules(version, resources, active))
            .unwrap_or_else(|what| {
                update.report.error(whole("xds"), what, "the active rules by xDS stay");
                update.parts = FaultyParts { kept: self.domains.len(), dropped: 0 };
                XdsRules { domains: self.domains.clone(), warnings: Vec::new() }
            });
        let FaultyParts { kept, dropped } = update.parts;
        let (problems, warnings) = update.report.into_parts();
        XdsUpdate { rules: XdsRules { warnings, ..rules }, problems, kept, dropped }
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

/// The work on one response.
struct Update<'u> {
    before: &'u XdsRules,
    options: &'u Options,
    report: Report,
    parts: FaultyParts,
    /// The resources with a readable name, here and below as [`Location::file`].
    seen: HashSet<Arc<str>>,
    /// The resources that cannot be used.
    lost: HashSet<Arc<str>>,
    /// The domains of resources that cannot be used.
    lost_domains: HashSet<Arc<str>>,
    /// The resources of which an earlier version stays.
    covered: HashSet<Arc<str>>,
    /// The number of resources whose name could not be read.
    unreadable: usize,
}

impl Update<'_> {
    /// The rules after the response, or the bound that it exceeds.
    fn rules(
        &mut self,
        version: &str,
        resources: &[XdsResource<'_>],
        active: &RuleSet,
    ) -> Result<XdsRules, String> {
        let claims = self.claims(version, resources, active);
        let mut domains: BTreeMap<Arc<str>, Arc<DomainRules>> = BTreeMap::new();
        for (domain, claims) in claims {
            let rules = self.domain(&domain, claims);
            domains.insert(domain, Arc::new(rules));
        }
        let before = self.before;
        for (domain, rules) in &before.domains {
            if domains.contains_key(domain) {
                continue;
            }
            let lost = self.lost_resources(domain, rules, &HashSet::new());
            if !lost.is_empty() {
                domains.insert(Arc::clone(domain), Arc::clone(rules));
            }
            self.covered.extend(lost);
        }
        let named = self.covered.iter().filter(|file| self.lost.contains(*file)).count();
        let others = self.covered.len() - named;
        self.parts.kept += self.covered.len();
        self.parts.dropped += self.lost.len() - named + self.unreadable.saturating_sub(others);
        // What stays counts too, so that a sequence of responses is bounded as well.
        let mut total = Total { descriptors: domains.len(), limits: 0 };
        domains.values().for_each(|rules| node::count(&rules.nodes, &mut total));
        decode::check_total(&total, self.options.xds_limits_max)?;
        Ok(XdsRules { domains, warnings: Vec::new() })
    }

    /// The resources by domain.
    fn claims<'r>(
        &mut self,
        version: &str,
        resources: &[XdsResource<'r>],
        active: &RuleSet,
    ) -> BTreeMap<Arc<str>, Vec<Claim<'r>>> {
        let version: Arc<str> = version.into();
        let of_files: HashMap<&str, &RuleDocument> = active
            .files()
            .iter()
            .filter(|source| source.version.is_none())
            .map(|source| (&*source.domain, source))
            .collect();
        let mut claims: BTreeMap<Arc<str>, Vec<Claim<'r>>> = BTreeMap::new();
        for resource in resources {
            let Some(config) = self.config(resource) else { continue };
            let file = file_of(if config.name.is_empty() { &config.domain } else { &config.name });
            let domain: Arc<str> = config.domain.as_str().into();
            self.seen.insert(Arc::clone(&file));
            if domain.is_empty() {
                self.refuse(&file, "config file cannot have empty domain");
                continue;
            }
            if let Some(source) = of_files.get(&*domain) {
                let by = format!("the file {} defines it", shorten(&source.path));
                // The claim stays: the file may go.
                self.refuse(&file, &format!("{}: {by}", duplicate_domain(&domain)));
            }
            let version = Some(Arc::clone(&version));
            let origin = Arc::new(Location { version, ..Location::whole(&file) });
            let claim = Claim { origin, value: resource.value, config };
            claims.entry(domain).or_default().push(claim);
        }
        claims
    }

    /// Decodes a resource. One that cannot be used is lost.
    fn config(&mut self, resource: &XdsResource<'_>) -> Option<RateLimitConfig> {
        match decode::config(resource) {
            Ok(config) if fits(&config.name) && fits(&config.domain) => return Some(config),
            Ok(config) => {
                let what =
                    format!("a `name` or a `domain` of more than {XDS_TEXT_BYTES_MAX} bytes");
                self.lose(Some(&config.name), Some(&config.domain), what);
            }
            Err(what) => {
                let (name, domain) = decode::name_and_domain(resource);
                self.lose(name, domain, what);
            }
        }
        None
    }

    /// Reports why a resource cannot be used. `name` and `domain` are `None` if they cannot be read.
    fn lose(&mut self, name: Option<&str>, domain: Option<&str>, what: String) {
        self.lost_domains.extend(domain.filter(|text| fits(text)).map(Arc::<str>::from));
        match name.filter(|name| !name.is_empty()).or(domain) {
            Some(name) if fits(name) => {
                let file = file_of(name);
                self.seen.insert(Arc::clone(&file));
                self.refuse(&file, &what);
            }
            Some(long) => {
                // No active resource has such a name.
                self.report.error(Location::whole(&file_of(&shorten(long))), what, "");
                self.parts.dropped += 1;
            }
            None => {
                self.report.error(whole("xds"), what, "");
                self.unreadable += 1;
            }
        }
    }

    /// The rules of one domain. Of several resources, all are merged with `rules.merge_domains`.
    /// Otherwise the first in byte order becomes active.
    fn domain(&mut self, domain: &Arc<str>, mut claims: Vec<Claim<'_>>) -> DomainRules {
        claims.sort_by_cached_key(|claim| (Arc::clone(&claim.origin.file), claim.value));
        let accepted = if self.options.merge_domains { claims.len() } else { 1 };
        for claim in claims.drain(accepted..) {
            self.refuse(&claim.origin.file, &duplicate_domain(domain));
        }
        let mut resources: Vec<Arc<Location>> =
            claims.iter().map(|claim| Arc::clone(&claim.origin)).collect();
        let received = claims.into_iter().flat_map(|Claim { origin, config, .. }| {
            let of_claim =
                move |descriptor| ReceivedDescriptor { origin: Arc::clone(&origin), descriptor };
            config.descriptors.into_iter().map(of_claim)
        });
        let received: Vec<ReceivedDescriptor> = received.collect();
        let before = self.before.domains.get(domain).map(Arc::clone);
        let active = before.as_ref().map(|rules| rules.nodes.as_slice()).unwrap_or_default();
        let mut nodes =
            Merger::new(domain, &mut self.report, &mut self.parts).level(received, active);
        // Without `merge_domains` a domain has one resource, which replaces the one before.
        if let Some(before) = before.filter(|_| self.options.merge_domains) {
            let claimed = resources.iter().map(|one| Arc::clone(&one.file)).collect();
            let lost = self.lost_resources(domain, &before, &claimed);
            if !lost.is_empty() {
                merge::keep_level(&mut nodes, &before.nodes, &lost);
                let lost_ones = before.resources.iter().filter(|one| lost.contains(&one.file));
                resources.extend(lost_ones.cloned());
                resources.sort_by(|one, other| one.file.cmp(&other.file));
            }
            self.covered.extend(lost);
        }
        DomainRules { resources, nodes }
    }

    /// The resources that a domain had before and that are lost; `claimed` are those that claim it.
    fn lost_resources(
        &self,
        domain: &Arc<str>,
        before: &DomainRules,
        claimed: &HashSet<Arc<str>>,
    ) -> HashSet<Arc<str>> {
        let is_lost = |file: &&Arc<str>| {
            let is_absent = self.unreadable > 0 && !self.seen.contains(*file);
            let named = self.lost.contains(*file) || self.lost_domains.contains(domain);
            !claimed.contains(*file) && (named || is_absent)
        };
        before.resources.iter().map(|one| &one.file).filter(is_lost).cloned().collect()
    }

    /// Reports why a resource is not used.
    fn refuse(&mut self, file: &Arc<str>, what: &str) {
        self.report.error(Location::whole(file), what, "");
        self.lost.insert(Arc::clone(file));
    }
}

fn fits(text: &str) -> bool {
    text.len() <= XDS_TEXT_BYTES_MAX
}

/// The words of envoyproxy/ratelimit.
fn duplicate_domain(domain: &str) -> String {
    format!("duplicate domain '{}' in config file", shorten(domain))
}

/// The name of a resource, as locations have it.
fn file_of(name: &str) -> Arc<str> {
    format!("{XDS_PREFIX}{name}").into()
}

fn whole(name: &str) -> Location {
    Location::whole(&name.into())
}
