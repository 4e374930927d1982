//! Finds the first template that accepts a path, in a trie of path segments.

use std::sync::Arc;

use crate::rules::lookup::matcher::{EntryValue, Segment, Template};
use crate::rules::lookup::small_map::SmallMap;

/// Templates by their segments.
#[derive(Debug, Default)]
pub(super) struct TemplateTrie {
    root: Option<TrieNode>,
}

/// All templates that begin with the same segments.
#[derive(Debug)]
struct TrieNode {
    /// The lowest number in this part of the trie.
    lowest: u32,
    /// The template that ends here.
    end: Option<u32>,
    literals: SmallMap<TrieNode>,
    variable: Option<Box<TrieNode>>,
}

impl TemplateTrie {
    pub(super) fn insert(&mut self, number: u32, template: &Template) {
        let mut node = self.root.get_or_insert_with(|| TrieNode::new(number));
        for segment in template.segments() {
            node.lowest = node.lowest.min(number);
            node = match segment {
                Segment::Literal(text) => {
                    node.literals.entry(&Arc::from(&**text), || TrieNode::new(number))
                }
                Segment::Variable { .. } => {
                    node.variable.get_or_insert_with(|| Box::new(TrieNode::new(number)))
                }
            };
        }
        node.lowest = node.lowest.min(number);
        node.end = Some(node.end.map_or(number, |earlier| earlier.min(number)));
    }

    pub(super) fn first(&self, value: &EntryValue<'_>) -> Option<u32> {
        let mut first = None;
        self.root.as_ref()?.search(value.path().segments(), &mut first);
        first
    }
}

impl TrieNode {
    fn new(number: u32) -> TrieNode {
        TrieNode { lowest: number, end: None, literals: SmallMap::default(), variable: None }
    }

    /// Lowers `first` to the lowest number below this node that accepts the rest of a path. The
    /// recursion is at most 32 deep. Subtrees without a lower number are skipped.
    fn search(&self, segments: &[&str], first: &mut Option<u32>) {
        if first.is_some_and(|first| first <= self.lowest) {
            return;
        }
        let Some((segment, rest)) = segments.split_first() else {
            if let Some(end) = self.end {
                *first = Some(first.map_or(end, |first| first.min(end)));
            }
            return;
        };
        if let Some(node) = self.literals.get(segment) {
            node.search(rest, first);
        }
        if let (Some(node), false) = (&self.variable, segment.is_empty()) {
            node.search(rest, first);
        }
    }
}
