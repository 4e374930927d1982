//! The rule tree, one level per entry of a descriptor, and the lookup in it.

use std::sync::Arc;

use super::index::PatternIndex;
use super::matcher::{EntryValue, Matcher, PatternKind};
use super::rule::{EntryMatcher, Rule};
use super::small_map::SmallMap;
use crate::descriptor::Entry;
use crate::rules::file::problem::Location;

/// The nodes for one entry of a descriptor.
#[derive(Debug, Default)]
pub(in crate::rules) struct Level {
    nodes: Vec<RuleTreeNode>,
    keys: SmallMap<KeyIndex>,
}

/// A node of the rule tree: a descriptor of a rule file.
#[derive(Debug)]
pub(in crate::rules) struct RuleTreeNode {
    pub(in crate::rules) entry_matcher: Arc<EntryMatcher>,
    pub(in crate::rules) limit: NodeLimit,
    /// Boxed, because most nodes of many have none.
    pub(in crate::rules) children: Option<Box<Level>>,
}

/// Whether a node has a limit. The location of a rule is not stored twice.
#[derive(Debug)]
pub(in crate::rules) enum NodeLimit {
    /// The rule of the node. A lookup finds the fields of the rule here, without the list of rules.
    Rule(Rule),
    /// The node has no `rate_limit`, and is at this location.
    None(Box<Location>),
}

impl RuleTreeNode {
    /// The rule of the node.
    pub(in crate::rules) fn rule(&self) -> Option<&Rule> {
        match &self.limit {
            NodeLimit::Rule(rule) => Some(rule),
            NodeLimit::None(_) => None,
        }
    }

    /// The location of the node in the rule files.
    pub(in crate::rules) fn location(&self) -> &Location {
        match &self.limit {
            NodeLimit::Rule(rule) => &rule.location,
            NodeLimit::None(location) => location,
        }
    }
}

/// The nodes of one key, by index.
#[derive(Debug, Default)]
struct KeyIndex {
    exact: SmallMap<usize>,
    /// Indexes of the nodes with patterns: by [`PatternKind::BY_PRECEDENCE`], then file order.
    patterns: Vec<usize>,
    /// The index of the patterns, for lookups.
    index: PatternIndex,
    any: Option<usize>,
}

/// The end of a lookup.
#[derive(Clone, Copy, Debug)]
pub(in crate::rules) enum End<'t> {
    /// The lookup ends at this rule.
    Rule(&'t Rule),
    /// The node of the last entry carries no limit.
    NoLimit(&'t RuleTreeNode),
    /// Entries are left and the node has no children.
    TooLong(&'t RuleTreeNode),
    /// No node of the level accepts the entry.
    NoMatch,
    /// The descriptor has no entries.
    NoEntries,
}

/// Receives the steps of a lookup.
pub(in crate::rules) trait Visitor<'t> {
    /// Whether [`Visitor::rejected`] is called. A plain lookup skips most patterns.
    const REPORTS_REJECTED: bool;

    /// The next entry is looked up in this level.
    fn level(&mut self, level: &'t Level);
    /// This pattern does not accept the entry's value.
    fn rejected(&mut self, node: &'t RuleTreeNode);
    /// This node accepts the entry.
    fn accepted(&mut self, node: &'t RuleTreeNode);
}

/// Ignores every step, for the hot path.
pub(in crate::rules) struct NoVisitor;

impl<'t> Visitor<'t> for NoVisitor {
    const REPORTS_REJECTED: bool = false;

    fn level(&mut self, _: &'t Level) {}
    fn rejected(&mut self, _: &'t RuleTreeNode) {}
    fn accepted(&mut self, _: &'t RuleTreeNode) {}
}

/// Looks up a descriptor, one level per entry. The lookup never goes back to a less specific node.
pub(in crate::rules) fn walk<'t>(
    root: &'t Level,
    entries: &[Entry<'_>],
    visitor: &mut impl Visitor<'t>,
) -> End<'t> {
    let mut level = root;
    let mut entries = entries.iter().peekable();
    while let Some(entry) = entries.next() {
        visitor.level(level);
        let Some(node) = level.choose(entry, visitor) else { return End::NoMatch };
        visitor.accepted(node);
        if entries.peek().is_none() {
            return node.rule().map_or(End::NoLimit(node), End::Rule);
        }
        let Some(children) = &node.children else { return End::TooLong(node) };
        level = children;
    }
    End::NoEntries
}

impl Level {
    /// Indexes nodes that are given in file order.
    pub(in crate::rules) fn new(nodes: Vec<RuleTreeNode>) -> Level {
        let mut exact_counts: SmallMap<usize> = SmallMap::default();
        for EntryMatcher { key, matcher, .. } in nodes.iter().map(|node| &*node.entry_matcher) {
            if let Matcher::Exact(_) = matcher {
                *exact_counts.entry(key, || 0) += 1;
            }
        }
        let mut keys: SmallMap<KeyIndex> = SmallMap::default();
        for (index, node) in nodes.iter().enumerate() {
            let key = &node.entry_matcher.key;
            let exact = || SmallMap::with_capacity(exact_counts.get(key).copied().unwrap_or(0));
            let key_index = keys.entry(key, || KeyIndex { exact: exact(), ..KeyIndex::default() });
            match &node.entry_matcher.matcher {
                Matcher::Exact(value) => {
                    *key_index.exact.entry(value, || index) = index;
                }
                Matcher::Any => key_index.any = Some(index),
                _ => key_index.patterns.push(index),
            }
        }
        for key_index in keys.values_mut() {
            let kind = |index: &usize| nodes[*index].entry_matcher.matcher.pattern_kind();
            key_index.patterns.sort_by_key(|index| kind(index).map(PatternKind::precedence));
            // A value that equals the text of a wildcard matches that wildcard first, as in
            // envoyproxy/ratelimit, whose map holds patterns and values alike.
            for index in key_index.patterns.iter().copied() {
                let matcher = &nodes[index].entry_matcher.matcher;
                if matches!(matcher, Matcher::Wildcard(_)) {
                    key_index.exact.entry(&matcher.source().into(), || index);
                }
            }
        }
        for key_index in keys.values_mut() {
            let matchers = key_index.patterns.iter().map(|index| {
                let number = u32::try_from(*index).expect("a file bound keeps nodes below 2^32");
                (number, &nodes[*index].entry_matcher.matcher)
            });
            key_index.index = PatternIndex::new(matchers);
        }
        Level { nodes, keys }
    }

    /// Replaces the rules of all nodes by those at their indexes in `rules`.
    pub(in crate::rules) fn use_rules(&mut self, rules: &[Rule]) {
        for node in &mut self.nodes {
            if let NodeLimit::Rule(rule) = &mut node.limit {
                *rule = rules[rule.index].clone();
            }
            if let Some(children) = &mut node.children {
                children.use_rules(rules);
            }
        }
    }

    /// The nodes in file order.
    pub(in crate::rules) fn nodes(&self) -> &[RuleTreeNode] {
        &self.nodes
    }

    fn choose<'t, V: Visitor<'t>>(
        &'t self,
        entry: &Entry<'_>,
        visitor: &mut V,
    ) -> Option<&'t RuleTreeNode> {
        let key_index = self.keys.get(entry.key)?;
        if let Some(index) = key_index.exact.get(entry.value) {
            return Some(&self.nodes[*index]);
        }
        let value = EntryValue::new(entry.value);
        let accepts =
            |number: u32| self.nodes[number as usize].entry_matcher.matcher.matches(&value);
        let first = key_index.index.first(&value, accepts).map(|number| number as usize);
        if V::REPORTS_REJECTED {
            let before = key_index.patterns.iter().take_while(|index| Some(**index) != first);
            before.for_each(|index| visitor.rejected(&self.nodes[*index]));
        }
        first.or(key_index.any).map(|index| &self.nodes[index])
    }
}
