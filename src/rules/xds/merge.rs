//! Merges descriptors of one level: equal siblings with each other, and errors with the active
//! version.
//!
//! Siblings with the same key and value are one descriptor: it has the children of all, and the
//! strictest of their limits. A control plane may send them for a valid policy, because rules of one
//! route may begin with the same network. The result does not depend on their order. If some of them
//! have errors, the others are merged, and what they lack stays as it was.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use prost::Message;

use super::FaultyParts;
use super::node::{self, Allowance, XdsLimit, XdsNode};
use crate::escape::excerpt;
use crate::proto::ratelimit::config::ratelimit::v3::RateLimitDescriptor;
use crate::rules::compile::LEVELS_MAX;
use crate::rules::excerpt::shorten;
use crate::rules::file::problem::{Location, Report};

/// Longest path of a descriptor in a message, in characters.
const PATH_CHARS_MAX: usize = 600;

/// A descriptor with the resource that sent it.
pub(super) struct ReceivedDescriptor {
    pub(super) origin: Arc<Location>,
    pub(super) descriptor: RateLimitDescriptor,
}

/// The key and the value by which siblings are merged. Equal texts share their memory, because control
/// planes often send one text as both.
type SiblingKey = (Arc<str>, Arc<str>);

/// Descriptors with the same key and value, without their children, with the resources that sent them.
type Siblings = Vec<(Arc<Location>, RateLimitDescriptor)>;

/// Merges the descriptors of one domain.
pub(super) struct DescriptorMerger<'m> {
    report: &'m mut Report,
    parts: &'m mut FaultyParts,
    /// The domain, and the composite key of each level, as messages show them.
    path: Vec<String>,
}

impl<'m> DescriptorMerger<'m> {
    pub(super) fn new(
        domain: &str,
        report: &'m mut Report,
        parts: &'m mut FaultyParts,
    ) -> DescriptorMerger<'m> {
        DescriptorMerger { report, parts, path: vec![shorten(domain)] }
    }

    /// The nodes of a level, in the order of their first descriptors. A descriptor with an error
    /// keeps the node of `active` that has the same key and value, or is left out.
    pub(super) fn level(
        &mut self,
        received: Vec<ReceivedDescriptor>,
        active: &[XdsNode],
    ) -> Vec<XdsNode> {
        let active: HashMap<(&str, &str), &XdsNode> =
            active.iter().map(|node| ((&*node.key, &*node.value), node)).collect();
        let mut nodes = Vec::new();
        for (sibling_key, equal) in grouped(received) {
            let before = active.get(&(&*sibling_key.0, &*sibling_key.1)).copied();
            self.path.push(composite_key(&sibling_key));
            nodes.extend(self.node(sibling_key, equal, before));
            self.path.pop();
        }
        nodes
    }

    /// One node from descriptors with the same key and value; `None` if none is valid, now or before.
    fn node(
        &mut self,
        sibling_key: SiblingKey,
        equal: Vec<ReceivedDescriptor>,
        before: Option<&XdsNode>,
    ) -> Option<XdsNode> {
        let mut siblings = Siblings::new();
        let mut below: Vec<ReceivedDescriptor> = Vec::new();
        let mut below_invalid: Vec<ReceivedDescriptor> = Vec::new();
        let mut invalid = HashSet::new();
        for ReceivedDescriptor { origin, mut descriptor } in equal {
            let children = std::mem::take(&mut descriptor.descriptors);
            let problems = node::problems(&descriptor);
            for what in &problems {
                self.error(&origin, what);
            }
            let is_valid = problems.is_empty();
            let to = if is_valid { &mut below } else { &mut below_invalid };
            to.extend(
                children.into_iter().map(|descriptor| ReceivedDescriptor {
                    origin: Arc::clone(&origin),
                    descriptor,
                }),
            );
            if is_valid {
                siblings.push((origin, descriptor));
            } else {
                invalid.insert(Arc::clone(&origin.file));
            }
        }
        // The domain is the first part of the path.
        let is_deepest = self.path.len() > LEVELS_MAX;
        if let (true, Some(first)) = (is_deepest, below.first().or(below_invalid.first())) {
            let what = format!("rules nested more than {LEVELS_MAX} levels deep");
            self.error(&first.origin, &what);
            self.parts.dropped += 1;
            below.clear();
            below_invalid.clear();
        }
        let active = before.map(|node| node.children.as_slice()).unwrap_or_default();
        let children = self.level(below, active);
        if invalid.is_empty() {
            return self.merged(sibling_key, siblings, children);
        }
        // So that all errors are found at once. They are parts of this one.
        let parts = *self.parts;
        self.level(below_invalid, &[]);
        *self.parts = parts;
        let Some(before) = before else {
            self.parts.dropped += 1;
            return self.merged(sibling_key, siblings, children);
        };
        self.parts.kept += 1;
        let Some(mut node) = self.merged(sibling_key, siblings, children) else {
            return Some(before.clone());
        };
        keep(&mut node, before, &invalid);
        Some(node)
    }

    /// The node of valid descriptors; `None` without one.
    fn merged(
        &mut self,
        sibling_key: SiblingKey,
        siblings: Siblings,
        children: Vec<XdsNode>,
    ) -> Option<XdsNode> {
        let strictest = strictest(&siblings);
        let origin = match strictest {
            Some((origin, _)) => Arc::clone(origin),
            None => Arc::clone(siblings.iter().map(|(origin, _)| origin).min()?),
        };
        if siblings.len() > 1 {
            let limits = siblings.iter().filter(|(_, one)| one.rate_limit.is_some()).count();
            self.warn_of_siblings(&origin, siblings.len(), limits);
        }
        let limit = strictest.and_then(|(_, descriptor)| XdsLimit::new(descriptor));
        if let Some((_, lost @ 1..)) = limit {
            let what = format!("{}: {lost} values of `metadata` cannot be sent", self.path_text());
            let hint = "NaN, infinite numbers and values nested more than 32 levels deep are null";
            self.report.warn(Location::whole(&origin.file), what, hint);
        }
        let limit = limit.map(|(limit, _)| Box::new(limit));
        let (key, value) = sibling_key;
        Some(XdsNode { key, value, origin, limit, children })
    }

    fn warn_of_siblings(&mut self, origin: &Location, count: usize, limits: usize) {
        let path = self.path_text();
        // The words of envoyproxy/ratelimit, which rejects the response.
        let what = format!("{path}: duplicate descriptor composite key '{path}'");
        let hint = match limits {
            0 | 1 => format!("the {count} descriptors are merged"),
            _ => format!("the {count} descriptors are merged, with the strictest limit"),
        };
        self.report.warn(Location::whole(&origin.file), what, hint);
    }

    fn error(&mut self, origin: &Location, what: &str) {
        let what = format!("{}: {what}", self.path_text());
        self.report.error(Location::whole(&origin.file), what, "");
    }

    fn path_text(&self) -> String {
        excerpt(&self.path.join("."), PATH_CHARS_MAX)
    }
}

/// The descriptor with the strictest limit. Of equally strict ones, the first in byte order of their
/// encodings, then of their resources.
fn strictest(
    siblings: &[(Arc<Location>, RateLimitDescriptor)],
) -> Option<&(Arc<Location>, RateLimitDescriptor)> {
    let limits = || siblings.iter().filter_map(|one| Some((Allowance::of(&one.1)?, one)));
    let (least, _) = limits().min_by(|(one, _), (other, _)| one.compare(other))?;
    let equal = limits().filter(|(one, _)| one.compare(&least).is_eq());
    // Each is encoded once: there may be many, and they may be large.
    let first = equal.min_by_key(|(_, (origin, one))| (one.encode_to_vec(), Arc::clone(origin)));
    first.map(|(_, one)| one)
}

/// Adds to `nodes` what they lack of `before`, because the resources `lost` cannot be used.
pub(super) fn keep_level(nodes: &mut Vec<XdsNode>, before: &[XdsNode], lost: &HashSet<Arc<str>>) {
    let sibling_key = |node: &XdsNode| (Arc::clone(&node.key), Arc::clone(&node.value));
    let known: HashMap<SiblingKey, usize> =
        nodes.iter().enumerate().map(|(index, node)| (sibling_key(node), index)).collect();
    for earlier in before {
        match known.get(&sibling_key(earlier)) {
            Some(index) => keep(&mut nodes[*index], earlier, lost),
            None => nodes.push(earlier.clone()),
        }
    }
}

/// Adds to a node what it lacks of an earlier version. If both have a limit, the earlier one stays only
/// if it is stricter and of a resource in `lost`.
fn keep(node: &mut XdsNode, before: &XdsNode, lost: &HashSet<Arc<str>>) {
    if let Some(limit) = &before.limit {
        let is_stricter = |own: &XdsLimit| limit.allowance().compare(&own.allowance()).is_lt();
        let stays = node
            .limit
            .as_ref()
            .is_none_or(|own| lost.contains(&before.origin.file) && is_stricter(own));
        if stays {
            node.limit = Some(limit.clone());
            node.origin = Arc::clone(&before.origin);
        }
    }
    keep_level(&mut node.children, &before.children, lost);
}

/// The descriptors by key and value, in order of first appearance.
fn grouped(received: Vec<ReceivedDescriptor>) -> Vec<(SiblingKey, Vec<ReceivedDescriptor>)> {
    let mut groups: Vec<(SiblingKey, Vec<ReceivedDescriptor>)> = Vec::with_capacity(received.len());
    let mut known: HashMap<SiblingKey, usize> = HashMap::with_capacity(received.len());
    for one in received {
        let sibling_key = sibling_key(&one.descriptor);
        let index = *known.entry(sibling_key.clone()).or_insert(groups.len());
        match groups.get_mut(index) {
            Some((_, equal)) => equal.push(one),
            None => groups.push((sibling_key, vec![one])),
        }
    }
    groups
}

fn sibling_key(descriptor: &RateLimitDescriptor) -> SiblingKey {
    let key: Arc<str> = descriptor.key.as_str().into();
    let value =
        if *key == *descriptor.value { Arc::clone(&key) } else { descriptor.value.as_str().into() };
    (key, value)
}

/// The part of a path in the words of envoyproxy/ratelimit.
fn composite_key((key, value): &SiblingKey) -> String {
    if value.is_empty() {
        return shorten(key);
    }
    format!("{}_{}", shorten(key), shorten(value))
}
