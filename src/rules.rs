//! Rules: from YAML files to an immutable, indexed tree, and from a descriptor to the rule it meets.

use crate::descriptor::Entry;
use crate::key::{Key, KeySeed};
use crate::limit::Unit;

mod rule;

pub use rule::{NameId, Place, Policy, Rule};

/// Everything that is in force at one moment: all domains of all files, compiled.
#[derive(Debug, Default)]
pub struct RuleSet {
    rules: Vec<Rule>,
}

/// What the tree says about one descriptor.
#[derive(Clone, Copy, Debug)]
pub enum Found<'r> {
    /// No file defines this domain.
    UnknownDomain,
    /// The domain exists, and nothing in it limits this descriptor.
    Nothing,
    /// This rule decides.
    Rule(&'r Rule),
}

impl RuleSet {
    /// Every rule with a limit (or marked unlimited), in file order; `Rule::index` points into it.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// The rule that a descriptor with these entries meets. Allocates nothing.
    pub fn find(&self, _domain: &str, _entries: &[Entry<'_>]) -> Found<'_> {
        todo!()
    }
}

/// The counter of a limit that the proxy sent: the entries and the unit, not the number, so that
/// another number keeps the count.
pub fn override_key(_seed: &KeySeed, _domain: &str, _entries: &[Entry<'_>], _unit: Unit) -> Key {
    todo!()
}
