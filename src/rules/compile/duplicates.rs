//! Finds the descriptors of a level that accept the same entries as an earlier one.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};

use crate::rules::lookup::matcher::DuplicateKey;
use crate::rules::lookup::rule::EntryMatcher;
use crate::rules::lookup::tree::RuleTreeNode;

/// The different nodes of a level, by index. Their keys are not copied, because a level may have a
/// million nodes.
#[derive(Default)]
pub(super) struct DifferentNodes {
    indexes: HashTable<u32>,
    hasher: DefaultHashBuilder,
}

impl DifferentNodes {
    /// Makes room for `count` more nodes beside `nodes`.
    pub(super) fn reserve(&mut self, nodes: &[RuleTreeNode], count: usize) {
        let hash =
            |index: &u32| self.hasher.hash_one(identity(&nodes[*index as usize].entry_matcher));
        self.indexes.reserve(count, hash);
    }

    /// The earlier node of `nodes` with the key and the matcher of `next`. If there is none, `next`
    /// is remembered: it must become the next node.
    pub(super) fn earlier<'n>(
        &mut self,
        nodes: &'n [RuleTreeNode],
        next: &EntryMatcher,
    ) -> Option<&'n RuleTreeNode> {
        let wanted = identity(next);
        let hash = self.hasher.hash_one(&wanted);
        let known = |index: &u32| identity(&nodes[*index as usize].entry_matcher);
        if let Some(index) = self.indexes.find(hash, |index| known(index) == wanted) {
            return nodes.get(*index as usize);
        }
        let next = u32::try_from(nodes.len()).expect("a file bound keeps nodes below 2^32");
        let hasher = &self.hasher;
        self.indexes.insert_unique(hash, next, |index| hasher.hash_one(known(index)));
        None
    }
}

/// Two nodes with the same identity accept the same entries.
fn identity(node: &EntryMatcher) -> (&str, DuplicateKey<'_>) {
    (&node.key, node.matcher.duplicate_key())
}
