//! One response: sorts its resources by domain, and merges each domain with the active one.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use super::merge::{self, DescriptorMerger, ReceivedDescriptor};
use super::node::{self, Total};
use super::{
    DomainRules, FaultyParts, XDS_TEXT_BYTES_MAX, XdsResource, XdsRules, XdsUpdate, decode,
};
use crate::proto::ratelimit::config::ratelimit::v3::RateLimitConfig;
use crate::rules::excerpt::shorten;
use crate::rules::file::options::Options;
use crate::rules::file::problem::{Location, Report, XDS_PREFIX};
use crate::rules::{RuleDocument, RuleSet};

/// A resource that names a domain.
struct Claim<'a> {
    origin: Arc<Location>,
    /// The encoded resource, which orders resources of one name.
    value: &'a [u8],
    config: RateLimitConfig,
}

/// Merges one response with the active rules by xDS.
pub(super) struct ResponseMerger<'u> {
    before: &'u XdsRules,
    options: &'u Options,
    report: Report,
    parts: FaultyParts,
    /// The resources with a readable name, here and below as [`Location::file`].
    received: HashSet<Arc<str>>,
    /// The resources that cannot be used.
    lost: HashSet<Arc<str>>,
    /// The domains of resources that cannot be used.
    lost_domains: HashSet<Arc<str>>,
    /// The resources of which an earlier version stays.
    kept_resources: HashSet<Arc<str>>,
    /// The number of resources whose name could not be read.
    unreadable_names: usize,
}

impl<'u> ResponseMerger<'u> {
    /// A merger with the rules `before`.
    pub(super) fn new(before: &'u XdsRules, options: &'u Options) -> ResponseMerger<'u> {
        ResponseMerger {
            before,
            options,
            report: Report::default(),
            parts: FaultyParts::default(),
            received: HashSet::new(),
            lost: HashSet::new(),
            lost_domains: HashSet::new(),
            kept_resources: HashSet::new(),
            unreadable_names: 0,
        }
    }

    /// The rules after the response, and every reason against it. `active` are the rules of all
    /// sources.
    pub(super) fn update(
        mut self,
        version: &str,
        resources: &[XdsResource<'_>],
        active: &RuleSet,
    ) -> XdsUpdate {
        let rules = decode::check_size(version, resources, self.options.xds_limits_max)
            .and_then(|()| self.rules(version, resources, active))
            .unwrap_or_else(|what| {
                self.report.error(whole("xds"), what, "the active rules by xDS stay");
                self.parts = FaultyParts { kept: self.before.domains.len(), dropped: 0 };
                XdsRules { domains: self.before.domains.clone(), warnings: Vec::new() }
            });
        let FaultyParts { kept, dropped } = self.parts;
        let (problems, warnings) = self.report.into_parts();
        XdsUpdate { rules: XdsRules { warnings, ..rules }, problems, kept, dropped }
    }

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
            self.kept_resources.extend(lost);
        }
        let named = self.kept_resources.iter().filter(|file| self.lost.contains(*file)).count();
        let others = self.kept_resources.len() - named;
        self.parts.kept += self.kept_resources.len();
        self.parts.dropped +=
            self.lost.len() - named + self.unreadable_names.saturating_sub(others);
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
            self.received.insert(Arc::clone(&file));
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
                self.received.insert(Arc::clone(&file));
                self.refuse(&file, &what);
            }
            Some(long) => {
                // No active resource has such a name.
                self.report.error(Location::whole(&file_of(&shorten(long))), what, "");
                self.parts.dropped += 1;
            }
            None => {
                self.report.error(whole("xds"), what, "");
                self.unreadable_names += 1;
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
        let mut nodes = DescriptorMerger::new(domain, &mut self.report, &mut self.parts)
            .level(received, active);
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
            self.kept_resources.extend(lost);
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
            let is_absent = self.unreadable_names > 0 && !self.received.contains(*file);
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
