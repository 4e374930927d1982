//! Turns the active rules by xDS into documents, which are compiled like those of files.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::node::{XdsLimit, XdsNode};
use super::{DomainRules, XdsRules};
use crate::rules::excerpt::shorten;
use crate::rules::file::model::{
    Document, RareFields, RareLimitFields, RawDescriptor, RawRateLimit, RawTier,
};
use crate::rules::file::problem::{Location, Position, Report};
use crate::rules::file::reader::{Field, Text};

/// Resources have no lines.
const AT: Position = Position { line: 0, column: 0 };

/// One domain by xDS.
#[derive(Clone, Copy)]
pub(in crate::rules) struct XdsDomain<'a> {
    name: &'a Arc<str>,
    rules: &'a DomainRules,
}

impl XdsRules {
    /// The domains, and the warnings of the last response. `of_files` are the domains of files, with the
    /// files. They are left out.
    pub(in crate::rules) fn domains(
        &self,
        of_files: &HashMap<Arc<str>, Arc<str>>,
        report: &mut Report,
    ) -> Vec<XdsDomain<'_>> {
        for warning in &self.warnings {
            report.warn(warning.location.clone(), &warning.what, &warning.hint);
        }
        let mut domains = Vec::new();
        for (domain, rules) in &self.domains {
            if let Some(file) = of_files.get(domain) {
                for resource in &rules.resources {
                    let file = shorten(file);
                    let what = format!("the file {file} defines domain '{}' too", shorten(domain));
                    let hint = "the rules of the file are active";
                    report.warn(Location::whole(&resource.file), what, hint);
                }
                continue;
            }
            domains.push(XdsDomain { name: domain, rules });
        }
        domains
    }
}

impl XdsDomain<'_> {
    /// A document per resource. Each node belongs to the document of its resource.
    pub(in crate::rules) fn documents(self, report: &mut Report) -> Vec<Document> {
        let XdsDomain { name, rules } = self;
        let mut names = HashSet::new();
        collect_names(&rules.nodes, &mut names);
        let document = |resource: &Arc<Location>| Document {
            file: Arc::clone(&resource.file),
            version: resource.version.clone(),
            domain: Some(text(name)),
            denied_requests: None,
            descriptors: Vec::new(),
        };
        let mut documents: Vec<Document> = rules.resources.iter().map(document).collect();
        for (nodes, document) in rules.by_resource().into_iter().zip(&mut documents) {
            document.descriptors =
                nodes.into_iter().map(|node| descriptor(node, &names, report)).collect();
        }
        documents
    }
}

impl DomainRules {
    /// The nodes of each resource, in the order of [`DomainRules::resources`].
    pub(super) fn by_resource(&self) -> Vec<Vec<&XdsNode>> {
        let files = self.resources.iter().enumerate();
        let indexes: HashMap<&str, usize> =
            files.map(|(index, resource)| (&*resource.file, index)).collect();
        let mut nodes = vec![Vec::new(); self.resources.len()];
        for node in &self.nodes {
            // A node of an earlier version may come from a resource that has gone.
            let index = indexes.get(&*node.origin.file).copied().unwrap_or(0);
            nodes[index].push(node);
        }
        nodes
    }
}

fn collect_names<'n>(nodes: &'n [XdsNode], names: &mut HashSet<&'n str>) {
    for node in nodes {
        names.extend(node.limit.as_ref().and_then(|limit| limit.name.as_deref()));
        collect_names(&node.children, names);
    }
}

fn descriptor(node: &XdsNode, names: &HashSet<&str>, report: &mut Report) -> RawDescriptor {
    let below = node.children.iter().map(|child| descriptor(child, names, report)).collect();
    let mut raw = RawDescriptor {
        origin: Some(Arc::clone(&node.origin)),
        key: Some(text(&node.key)),
        value: (!node.value.is_empty()).then(|| text(&node.value)),
        descriptors: below,
        ..RawDescriptor::default()
    };
    // Flags without a limit do nothing. Envoy Gateway sets shadow_mode on every node of a rule.
    let Some(limit) = node.limit.as_deref() else { return raw };
    let flags = [limit.shadow_mode, limit.quota_mode, limit.detailed_metric];
    if flags.contains(&true) || limit.metadata.is_some() {
        let [shadow_mode, quota_mode, detailed_metric] = flags.map(flag);
        let metadata = limit.metadata.clone().map(field);
        let more = RareFields {
            shadow_mode,
            quota_mode,
            detailed_metric,
            metadata,
            ..RareFields::default()
        };
        raw.rare = Some(Box::new(more));
    }
    raw.rate_limit = Some(Box::new(rate_limit(limit, node, names, report)));
    raw
}

fn rate_limit(
    limit: &XdsLimit,
    node: &XdsNode,
    names: &HashSet<&str>,
    report: &mut Report,
) -> RawRateLimit {
    let mut replaces = Vec::new();
    for name in &limit.replaces {
        if names.contains(&**name) {
            replaces.push(text(name));
            continue;
        }
        // envoyproxy/ratelimit accepts this too. The rule may be in a part that was left out.
        let what = format!("no rule of the domain is called `{}`", shorten(name));
        report.warn(Location::whole(&node.origin.file), what, "this item of `replaces` is ignored");
    }
    let tier = RawTier {
        unit: limit.unit.map(|unit| text(&unit.name().into())),
        requests_per_unit: limit.unit.map(|_| field(u64::from(limit.requests))),
        ..RawTier::default()
    };
    let name = limit.name.as_ref().map(text);
    let mut raw = RawRateLimit { tier, name, ..RawRateLimit::default() };
    if limit.unit.is_none() || !replaces.is_empty() {
        let unlimited = flag(limit.unit.is_none());
        let more = RareLimitFields { unlimited, replaces, ..RareLimitFields::default() };
        raw.rare = Some(Box::new(more));
    }
    raw
}

fn field<T>(value: T) -> Field<T> {
    Field { at: AT, value: Some(value) }
}

fn text(text: &Arc<str>) -> Text {
    field(Arc::clone(text))
}

/// A flag that is set; false is the default of all flags.
fn flag(is_set: bool) -> Option<Field<bool>> {
    is_set.then(|| field(true))
}
