//! Rules by xDS: decodes the resources of a response and merges them with the active ones.
//!
//! A control plane sends all its resources in each response, in any order. What is valid becomes
//! active. What is not valid keeps its previous version:
//!
//! - A descriptor with an error, and everything below it, keeps the active version of this path of
//!   the domain. Without one, it is left out.
//! - A resource without a domain, or with a domain that another source defines, keeps what this name
//!   had sent before.
//! - The name of an undecodable resource is unknown. So every active domain that the response does
//!   not contain stays.
//!
//! Every such error is a reason against the response. The texts contain those of
//! envoyproxy/ratelimit, because operators search for them.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use self::merge::{Merger, Received};
use self::node::XdsNode;
use super::excerpt::shorten;
use super::file::options::Options;
use super::file::problem::{Location, Report, RuleProblem};
use super::{RuleDocument, RuleSet};
use crate::proto::ratelimit::config::ratelimit::v3::RateLimitConfig;

mod decode;
mod documents;
mod merge;
mod metadata;
mod node;
#[cfg(test)]
mod tests;

/// One entry of `resources` of a DiscoveryResponse.
#[derive(Clone, Copy, Debug)]
pub struct XdsResource<'a> {
    /// The type of the resource, as the entry names it.
    pub type_url: &'a str,
    /// The encoded resource.
    pub value: &'a [u8],
}

/// The active rules by xDS, merged and valid.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct XdsRules {
    domains: BTreeMap<Arc<str>, Arc<DomainRules>>,
    /// The warnings of the last response.
    warnings: Vec<RuleProblem>,
}

/// The rules of one domain.
#[derive(Debug, PartialEq)]
struct DomainRules {
    /// The resources of the domain, in byte order of their names: one, or several with
    /// `rules.merge_domains`.
    resources: Vec<Arc<Location>>,
    nodes: Vec<XdsNode>,
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
    ) -> (XdsRules, Vec<RuleProblem>) {
        let (report, lost) = (Report::default(), HashSet::new());
        let mut update = Update { before: self, options, report, lost };
        let rules = decode::check_size(resources)
            .and_then(|()| update.rules(version, resources, active))
            .unwrap_or_else(|what| {
                update.report.error(whole("xds"), what, "the active rules by xDS stay");
                self.clone()
            });
        let (errors, warnings) = update.report.into_parts();
        (XdsRules { warnings, ..rules }, errors)
    }
}

/// The work on one response.
struct Update<'u> {
    before: &'u XdsRules,
    options: &'u Options,
    report: Report,
    /// The names of resources whose domain was refused.
    lost: HashSet<Arc<str>>,
}

impl Update<'_> {
    /// The rules after the response, or the bound that it exceeds.
    fn rules(
        &mut self,
        version: &str,
        resources: &[XdsResource<'_>],
        active: &RuleSet,
    ) -> Result<XdsRules, String> {
        let (claims, unreadable) = self.claims(version, resources, active);
        let mut domains: BTreeMap<Arc<str>, Arc<DomainRules>> = BTreeMap::new();
        for (domain, claims) in claims {
            let rules = self.domain(&domain, claims);
            domains.insert(domain, Arc::new(rules));
        }
        for (domain, rules) in &self.before.domains {
            let is_lost = |one: &Arc<Location>| self.lost.contains(&one.file);
            let stays = unreadable || rules.resources.iter().any(is_lost);
            if stays && !domains.contains_key(domain) {
                domains.insert(Arc::clone(domain), Arc::clone(rules));
            }
        }
        // What stays counts too, so that a sequence of responses is bounded as well.
        let counts = domains.values().map(|rules| 1 + node::count(&rules.nodes));
        decode::check_count(counts.sum())?;
        Ok(XdsRules { domains, warnings: Vec::new() })
    }

    /// The resources by domain, and whether any resource could not be read.
    fn claims<'r>(
        &mut self,
        version: &str,
        resources: &[XdsResource<'r>],
        active: &RuleSet,
    ) -> (BTreeMap<Arc<str>, Vec<Claim<'r>>>, bool) {
        let version: Arc<str> = version.into();
        let of_files: HashMap<&str, &RuleDocument> = active
            .files()
            .iter()
            .filter(|source| source.version.is_none())
            .map(|source| (&*source.domain, source))
            .collect();
        let mut claims: BTreeMap<Arc<str>, Vec<Claim<'r>>> = BTreeMap::new();
        let mut unreadable = false;
        for resource in resources {
            let config = match decode::config(resource) {
                Ok(config) => config,
                Err(what) => {
                    unreadable = true;
                    self.report.error(whole("xds"), what, "");
                    continue;
                }
            };
            let name = if config.name.is_empty() { &config.domain } else { &config.name };
            let file: Arc<str> = format!("xds:{name}").into();
            let domain: Arc<str> = config.domain.as_str().into();
            let version = Some(Arc::clone(&version));
            let origin = Location { version, ..Location::whole(&file) };
            let claim = Claim { origin: Arc::new(origin), value: resource.value, config };
            if domain.is_empty() {
                self.refuse(&claim, "config file cannot have empty domain");
            } else if let Some(source) = of_files.get(&*domain) {
                let by = format!("the file {} defines it", shorten(&source.path));
                self.refuse(&claim, &format!("{}: {by}", duplicate_domain(&domain)));
            } else {
                claims.entry(domain).or_default().push(claim);
            }
        }
        (claims, unreadable)
    }

    /// The rules of one domain. Of several resources, all are merged with `rules.merge_domains`.
    /// Otherwise the one that already has the domain becomes active, else the first in byte order.
    fn domain(&mut self, domain: &Arc<str>, mut claims: Vec<Claim<'_>>) -> DomainRules {
        let before = self.before.domains.get(domain).map(Arc::clone);
        let has_domain = |file: &Arc<str>| {
            before.as_ref().is_some_and(|rules| rules.resources.iter().any(|one| one.file == *file))
        };
        claims.sort_by_cached_key(|claim| {
            let file = &claim.origin.file;
            let is_new = !self.options.merge_domains && !has_domain(file);
            (is_new, Arc::clone(file), claim.value)
        });
        let accepted = if self.options.merge_domains { claims.len() } else { 1 };
        for claim in claims.drain(accepted..) {
            self.refuse(&claim, &duplicate_domain(domain));
        }
        let resources: Vec<Arc<Location>> =
            claims.iter().map(|claim| Arc::clone(&claim.origin)).collect();
        let received = claims.into_iter().flat_map(|Claim { origin, config, .. }| {
            let of_claim = move |descriptor| Received { origin: Arc::clone(&origin), descriptor };
            config.descriptors.into_iter().map(of_claim)
        });
        let received: Vec<Received> = received.collect();
        let active = before.as_ref().map(|rules| rules.nodes.as_slice()).unwrap_or_default();
        let nodes = Merger::new(domain, &mut self.report).level(received, active);
        DomainRules { resources, nodes }
    }

    /// Reports why the domain of a resource is refused.
    fn refuse(&mut self, claim: &Claim<'_>, what: &str) {
        self.report.error(Location::whole(&claim.origin.file), what, "");
        self.lost.insert(Arc::clone(&claim.origin.file));
    }
}

/// The words of envoyproxy/ratelimit.
fn duplicate_domain(domain: &str) -> String {
    format!("duplicate domain '{}' in config file", shorten(domain))
}

fn whole(name: &str) -> Location {
    Location::whole(&name.into())
}
