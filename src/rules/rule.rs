//! A rule: a node of the tree that carries a limit.

use std::borrow::Cow;
use std::sync::Arc;

use crate::descriptor::Entry;
use crate::key::{Key, KeySeed, RuleId};
use crate::limit::Limit;

/// A rule's `name`, numbered per rule set so that `replaces` costs an integer comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NameId(pub u32);

/// Where in which file something was written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The file as the user named it.
    pub file: Arc<str>,
    /// From 1.
    pub line: usize,
    /// From 1, in characters.
    pub column: usize,
}

/// What a rule does with hits.
#[derive(Clone, Debug, PartialEq)]
pub enum Policy {
    /// Let everything pass without counting.
    Unlimited,
    /// Count, and deny beyond the limit.
    Limit(Limit),
}

/// A node of the tree that carries a limit.
#[derive(Clone, Debug)]
pub struct Rule {
    /// Position in [`super::RuleSet::rules`].
    pub index: usize,
    /// Stable identity: domain, place in the tree, algorithm and windows; not the limit's numbers.
    pub id: RuleId,
    /// The namespace.
    pub domain: Arc<str>,
    /// The `name` field: shown in answers, and what `replaces` refers to.
    pub name: Option<Arc<str>>,
    /// `name`, numbered.
    pub name_id: Option<NameId>,
    /// Names of rules that this one drops from the same request.
    pub replaces: Box<[NameId]>,
    /// What it does with hits.
    pub policy: Policy,
    /// Denials are reported as OK.
    pub shadow_mode: bool,
    /// Denials count only when every quota rule of the request is over.
    pub quota_mode: bool,
    /// Returned as dynamic metadata when the rule passes.
    pub metadata: Option<Arc<serde_json::Map<String, serde_json::Value>>>,
    /// The keys of its levels, joined with dots; what a rule without a name is called by.
    pub keys: Arc<str>,
    /// Where it was written.
    pub place: Place,
}

impl Rule {
    /// What to call the rule where people read: its name, else its keys joined with dots.
    pub fn label(&self) -> &str {
        self.name.as_deref().unwrap_or(&self.keys)
    }

    /// The counter that a descriptor counts on, once `find` has led it here.
    pub fn key(&self, _seed: &KeySeed, _entries: &[Entry<'_>]) -> Key {
        todo!()
    }

    /// The incumbent's stat key (COMPAT 1.4), with `.` between levels; without the domain.
    pub fn stat_key(&self, _entries: &[Entry<'_>]) -> Cow<'_, str> {
        todo!()
    }
}
