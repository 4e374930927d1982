//! Finds the descriptors of a level that accept the same entries as an earlier one.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};

use crate::rules::lookup::matcher::DuplicateKey;
use crate::rules::lookup::rule::EntryMatcher;
use crate::rules::lookup::tree::RuleTreeNode;

/// The different nodes of a level. Their keys are not copied, because a level may have a million nodes.
#[derive(Default)]
pub(super) struct DifferentNodes {
    nodes: HashTable<Different>,
    hasher: DefaultHashBuilder,
}

/// A node, by its index. Its hash is kept: a table that grows would read the key of every node to hash it again,
/// which took a fifth of the start with a million rules.
#[derive(Clone, Copy)]
struct Different {
    index: u32,
    hash: u32,
}

impl DifferentNodes {
    /// Makes room for `count` more nodes.
    pub(super) fn reserve(&mut self, count: usize) {
        self.nodes.reserve(count, |node| spread(node.hash));
    }

    /// The earlier node of `nodes` with the key and the matcher of `next`. If there is none, `next`
    /// is remembered: it must become the next node.
    pub(super) fn earlier<'n>(
        &mut self,
        nodes: &'n [RuleTreeNode],
        next: &EntryMatcher,
    ) -> Option<&'n RuleTreeNode> {
        let wanted = identity(next);
        let hash = self.hasher.hash_one(&wanted) as u32;
        let is_wanted = |node: &Different| {
            node.hash == hash && identity(&nodes[node.index as usize].entry_matcher) == wanted
        };
        if let Some(node) = self.nodes.find(spread(hash), is_wanted) {
            return nodes.get(node.index as usize);
        }
        let index = u32::try_from(nodes.len()).expect("a file bound keeps nodes below 2^32");
        self.nodes.insert_unique(spread(hash), Different { index, hash }, |node| spread(node.hash));
        None
    }
}

/// The hash for the table, which takes its index from the low bits and seven more from the high ones.
fn spread(hash: u32) -> u64 {
    u64::from(hash) << 32 | u64::from(hash)
}

/// Two nodes with the same identity accept the same entries.
fn identity(node: &EntryMatcher) -> (&str, DuplicateKey<'_>) {
    (&node.key, node.matcher.duplicate_key())
}
