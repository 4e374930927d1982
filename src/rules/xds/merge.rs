//! Merges descriptors of one level: equal siblings with each other, and errors with the active
//! version.
//!
//! Siblings with the same key and value are one descriptor: it has the children of all, and the
//! strictest of their limits. A control plane may send them for a valid policy, because rules of one
//! route may begin with the same network. The result does not depend on their order.

use std::collections::HashMap;
use std::sync::Arc;

use super::node::{self, XdsLimit, XdsNode};
use crate::escape::excerpt;
use crate::proto::ratelimit::config::ratelimit::v3::RateLimitDescriptor;
use crate::rules::compile::LEVELS_MAX;
use crate::rules::excerpt::shorten;
use crate::rules::file::problem::{Location, Report};

/// Longest path of a descriptor in a message, in characters.
const PATH_CHARS_MAX: usize = 600;

/// A descriptor with the resource that sent it.
pub(super) struct Received {
    pub(super) origin: Arc<Location>,
    pub(super) descriptor: RateLimitDescriptor,
}

/// A key and a value. Equal texts share their memory, because control planes often send one text as
/// both.
type Entry = (Arc<str>, Arc<str>);

/// Merges the descriptors of one domain.
pub(super) struct Merger<'m> {
    report: &'m mut Report,
    /// The domain, and the composite key of each level, as messages show them.
    path: Vec<String>,
}

impl<'m> Merger<'m> {
    pub(super) fn new(domain: &str, report: &'m mut Report) -> Merger<'m> {
        Merger { report, path: vec![shorten(domain)] }
    }

    /// The nodes of a level, in the order of their first descriptors. A descriptor with an error
    /// becomes the node of `active` that has the same key and value, or none.
    pub(super) fn level(&mut self, received: Vec<Received>, active: &[XdsNode]) -> Vec<XdsNode> {
        let active: HashMap<(&str, &str), &XdsNode> =
            active.iter().map(|node| ((&*node.key, &*node.value), node)).collect();
        let mut nodes = Vec::new();
        for (entry, equal) in grouped(received) {
            let before = active.get(&(&*entry.0, &*entry.1)).copied();
            self.path.push(composite_key(&entry));
            let node = self.node(entry, equal, before);
            self.path.pop();
            nodes.extend(node.or_else(|| before.cloned()));
        }
        nodes
    }

    /// One node from descriptors with the same key and value; `None` after a reported error.
    fn node(
        &mut self,
        (key, value): Entry,
        equal: Vec<Received>,
        before: Option<&XdsNode>,
    ) -> Option<XdsNode> {
        let (mut own, mut below) = (Vec::new(), Vec::new());
        let mut is_valid = true;
        for Received { origin, mut descriptor } in equal {
            let children = std::mem::take(&mut descriptor.descriptors);
            for what in node::problems(&descriptor) {
                self.error(&origin, &what);
                is_valid = false;
            }
            below.extend(
                children
                    .into_iter()
                    .map(|descriptor| Received { origin: Arc::clone(&origin), descriptor }),
            );
            own.push((origin, descriptor));
        }
        // The domain is the first part of the path.
        let is_deepest = self.path.len() > LEVELS_MAX;
        if let (true, Some(first)) = (is_deepest, below.first()) {
            let what = format!("rules nested more than {LEVELS_MAX} levels deep");
            self.error(&first.origin, &what);
            below.clear();
        }
        // Also of an invalid descriptor, so that all errors are found at once.
        let active = before.map(|node| node.children.as_slice()).unwrap_or_default();
        let children = self.level(below, active);
        if !is_valid {
            return None;
        }
        let limited = own.iter().filter(|(_, descriptor)| descriptor.rate_limit.is_some());
        let strictest = limited.clone().min_by(|one, other| {
            node::by_strictness(&one.1, &other.1).then_with(|| one.0.cmp(&other.0))
        });
        let origin = match strictest {
            Some((origin, _)) => Arc::clone(origin),
            None => Arc::clone(own.iter().map(|(origin, _)| origin).min()?),
        };
        if own.len() > 1 {
            self.warn_of_siblings(&origin, own.len(), limited.count());
        }
        let limit = strictest.and_then(|(_, descriptor)| XdsLimit::new(descriptor));
        if let Some((_, lost @ 1..)) = limit {
            let what = format!("{}: {lost} values of `metadata` cannot be sent", self.path_text());
            let hint = "NaN, infinite numbers and values nested more than 32 levels deep are null";
            self.report.warn(Location::whole(&origin.file), what, hint);
        }
        let limit = limit.map(|(limit, _)| Box::new(limit));
        Some(XdsNode { key, value, origin, limit, children })
    }

    fn warn_of_siblings(&mut self, origin: &Location, siblings: usize, limits: usize) {
        let path = self.path_text();
        // The words of envoyproxy/ratelimit, which rejects the response.
        let what = format!("{path}: duplicate descriptor composite key '{path}'");
        let hint = match limits {
            0 | 1 => format!("the {siblings} descriptors are merged"),
            _ => format!("the {siblings} descriptors are merged, with the strictest limit"),
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

/// The descriptors by key and value, in order of first appearance.
fn grouped(received: Vec<Received>) -> Vec<(Entry, Vec<Received>)> {
    let mut groups: Vec<(Entry, Vec<Received>)> = Vec::with_capacity(received.len());
    let mut known: HashMap<Entry, usize> = HashMap::with_capacity(received.len());
    for one in received {
        let entry = entry(&one.descriptor);
        let index = *known.entry(entry.clone()).or_insert(groups.len());
        match groups.get_mut(index) {
            Some((_, equal)) => equal.push(one),
            None => groups.push((entry, vec![one])),
        }
    }
    groups
}

fn entry(descriptor: &RateLimitDescriptor) -> Entry {
    let key: Arc<str> = descriptor.key.as_str().into();
    let value =
        if *key == *descriptor.value { Arc::clone(&key) } else { descriptor.value.as_str().into() };
    (key, value)
}

/// The part of a path in the words of envoyproxy/ratelimit.
fn composite_key((key, value): &Entry) -> String {
    if value.is_empty() {
        return shorten(key);
    }
    format!("{}_{}", shorten(key), shorten(value))
}
