//! A level of the rule tree that grows by one node at a time.

use super::duplicates::DifferentNodes;
use super::regex_budget::LevelStates;
use crate::rules::lookup::tree::{Level, RuleTreeNode};

/// The nodes of a level so far.
#[derive(Default)]
pub(super) struct LevelDraft {
    pub(super) nodes: Vec<RuleTreeNode>,
    pub(super) different: DifferentNodes,
    pub(super) states: LevelStates,
}

impl LevelDraft {
    /// Makes room for `count` more nodes.
    pub(super) fn reserve(&mut self, count: usize) {
        self.nodes.reserve(count);
        self.different.reserve(count);
    }

    /// The level with the nodes.
    pub(super) fn finish(self) -> Level {
        let LevelDraft { mut nodes, different, .. } = self;
        // Its memory is needed for the indexes of the level.
        drop(different);
        nodes.shrink_to_fit();
        Level::new(nodes)
    }
}
