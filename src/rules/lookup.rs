//! Finds the rule of a descriptor: the rule tree, the matchers of its nodes and their index.

mod counted_texts;
pub(super) mod index;
pub(super) mod limit_from;
pub(super) mod matcher;
pub(super) mod rule;
pub(super) mod search_steps;
pub(super) mod small_map;
pub(super) mod tree;

pub use counted_texts::CountedLabel;
