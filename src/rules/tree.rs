//! The rule tree: one level per entry of a descriptor, and the one walk through it.

use std::sync::Arc;

use super::matcher::{Matcher, Value};
use super::names::Names;
use super::problem::Place;
use super::rule::PathNode;
use crate::descriptor::Entry;

/// Nodes among which one entry chooses.
#[derive(Debug, Default)]
pub(super) struct Level {
    nodes: Vec<Node>,
    keys: Names<Branch>,
}

/// A descriptor of a rule file.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) spec: Arc<PathNode>,
    pub(super) place: Place,
    /// Index of the rule that sits here.
    pub(super) rule: Option<usize>,
    pub(super) children: Option<Level>,
}

/// The nodes of one key, by index.
#[derive(Debug, Default)]
struct Branch {
    exact: Names<usize>,
    /// Most specific kind first; among equals, first in the file.
    patterns: Vec<usize>,
    any: Option<usize>,
}

/// Why a walk ended.
#[derive(Clone, Copy, Debug)]
pub(super) enum End<'t> {
    /// At this rule, by index.
    Rule(usize),
    /// The node of the last entry carries no limit.
    NoLimit(&'t Node),
    /// Entries were left and the node has no descriptors below it.
    TooLong(&'t Node),
    /// No node of the level accepts the entry.
    NoMatch,
    /// The descriptor has no entries.
    NoEntries,
}

/// Somebody who watches a walk.
pub(super) trait Notebook<'t> {
    /// An entry is looked up in a level.
    fn level(&mut self, level: &'t Level);
    /// The entry's value is not what this pattern accepts.
    fn refused(&mut self, node: &'t Node);
    /// This node accepts the entry.
    fn took(&mut self, node: &'t Node);
}

/// Writes nothing, for the hot path.
pub(super) struct NoNotes;

impl<'t> Notebook<'t> for NoNotes {
    fn level(&mut self, _: &'t Level) {}
    fn refused(&mut self, _: &'t Node) {}
    fn took(&mut self, _: &'t Node) {}
}

/// Follows a descriptor down the tree, one level per entry, without ever going back.
pub(super) fn walk<'t>(
    root: &'t Level,
    entries: &[Entry<'_>],
    notes: &mut impl Notebook<'t>,
) -> End<'t> {
    let mut level = root;
    let mut entries = entries.iter().peekable();
    while let Some(entry) = entries.next() {
        notes.level(level);
        let Some(node) = level.choose(entry, notes) else { return End::NoMatch };
        notes.took(node);
        if entries.peek().is_none() {
            return node.rule.map_or(End::NoLimit(node), End::Rule);
        }
        let Some(children) = &node.children else { return End::TooLong(node) };
        level = children;
    }
    End::NoEntries
}

impl Level {
    /// Indexes nodes that are given in file order.
    pub(super) fn new(nodes: Vec<Node>) -> Level {
        let mut keys: Names<Branch> = Names::default();
        for (index, node) in nodes.iter().enumerate() {
            let branch = keys.entry(&node.spec.key, Branch::default);
            match &node.spec.matcher {
                Matcher::Exact(value) => {
                    *branch.exact.entry(value, || index) = index;
                }
                Matcher::Any => branch.any = Some(index),
                _ => branch.patterns.push(index),
            }
        }
        for branch in keys.values_mut() {
            branch.patterns.sort_by_key(|index| nodes[*index].spec.matcher.rank());
            // A value that spells a wildcard's own text meets that wildcard first, as it does with
            // envoyproxy/ratelimit, whose index holds patterns and values alike.
            for index in branch.patterns.iter().copied() {
                let matcher = &nodes[index].spec.matcher;
                if matches!(matcher, Matcher::Wildcard(_)) {
                    branch.exact.entry(&matcher.source().into(), || index);
                }
            }
        }
        Level { nodes, keys }
    }

    /// The nodes in file order.
    pub(super) fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    fn choose<'t>(&'t self, entry: &Entry<'_>, notes: &mut impl Notebook<'t>) -> Option<&'t Node> {
        let branch = self.keys.get(entry.key)?;
        if let Some(index) = branch.exact.get(entry.value) {
            return Some(&self.nodes[*index]);
        }
        let value = Value::new(entry.value);
        for index in &branch.patterns {
            let node = &self.nodes[*index];
            if node.spec.matcher.matches(&value) {
                return Some(node);
            }
            notes.refused(node);
        }
        branch.any.map(|index| &self.nodes[index])
    }
}
