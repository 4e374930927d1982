//! Shares the memory of rules that an earlier rule set has too.
//!
//! Most reloads change few of many rules. The others are equal to rules that are active, and stay in
//! memory once. A rule with another location is not equal, but has the texts of its path from the earlier
//! one.

use std::hash::BuildHasher;
use std::sync::Arc;

use hashbrown::{DefaultHashBuilder, HashTable};

use crate::key::RuleId;
use crate::rules::lookup::rule::{EntryMatcher, Rule, RuleFields};

/// The rules of an earlier rule set.
pub(super) struct EarlierRules<'a> {
    rules: &'a [Rule],
    /// The index after the last rule that was found: mostly that of the next one.
    next: usize,
    /// Made for the first rule that is not the next one.
    by_id: Option<RulesById>,
    /// The nodes above the last rule that was found, as the new rules have them.
    above: Vec<Arc<EntryMatcher>>,
}

/// Indexes of rules by their identities.
#[derive(Default)]
struct RulesById {
    indexes: HashTable<u32>,
    hasher: DefaultHashBuilder,
}

impl<'a> EarlierRules<'a> {
    /// The rules of an earlier rule set, or none.
    pub(super) fn new(rules: &'a [Rule]) -> EarlierRules<'a> {
        EarlierRules { rules, next: 0, by_id: None, above: Vec::new() }
    }

    /// These fields: those of an earlier rule if they are equal apart from the rule name, or else with the
    /// path of the earlier rule with an equal one.
    pub(super) fn share(&mut self, mut fields: RuleFields) -> Arc<RuleFields> {
        let Some(earlier) = self.find(&fields) else { return Arc::new(fields) };
        if fields.name == earlier.name {
            fields.display_name = Arc::clone(&earlier.display_name);
        }
        if fields == **earlier {
            self.set_above(&earlier.path);
            return Arc::clone(earlier.fields());
        }
        self.share_path(&mut fields.path, &earlier.path);
        Arc::new(fields)
    }

    /// Replaces the nodes of `path` by the equal ones of the `earlier` path. Nodes above the last one stay if
    /// they are those of the rule found before: earlier rules may have several copies of a node, and each copy
    /// would stay for as long as one of them.
    fn share_path(&mut self, path: &mut [Arc<EntryMatcher>], earlier: &[Arc<EntryMatcher>]) {
        let (Some((last, above)), Some((earlier_last, earlier_above))) =
            (path.split_last_mut(), earlier.split_last())
        else {
            return;
        };
        *last = Arc::clone(earlier_last);
        let known = self.above.get(..above.len()).unwrap_or_default();
        let is_known = known.len() == above.len()
            && known.iter().zip(&*above).all(|(known, node)| Arc::ptr_eq(known, node));
        if !is_known {
            above.clone_from_slice(earlier_above);
            self.set_above(earlier);
        }
    }

    fn set_above(&mut self, path: &[Arc<EntryMatcher>]) {
        self.above.clear();
        self.above.extend_from_slice(&path[..path.len().saturating_sub(1)]);
    }

    /// The rule of the same domain with an equal path.
    fn find(&mut self, fields: &RuleFields) -> Option<&'a Rule> {
        let is_same = |rule: &&Rule| rule.path == fields.path && rule.domain == fields.domain;
        if let Some(next) = self.rules.get(self.next).filter(is_same) {
            self.next += 1;
            return Some(next);
        }
        let by_id = self.by_id.get_or_insert_with(|| RulesById::new(self.rules));
        let index = by_id.find(self.rules, fields.id)?;
        let found = self.rules.get(index).filter(is_same)?;
        self.next = index + 1;
        Some(found)
    }
}

impl RulesById {
    fn new(rules: &[Rule]) -> RulesById {
        let mut by_id = RulesById::default();
        let hasher = &by_id.hasher;
        let hash = |index: &u32| hasher.hash_one(rules[*index as usize].id);
        by_id.indexes.reserve(rules.len(), hash);
        for index in 0..rules.len() {
            let index = u32::try_from(index).expect("a file bound keeps rules below 2^32");
            by_id.indexes.insert_unique(hash(&index), index, hash);
        }
        by_id
    }

    fn find(&self, rules: &[Rule], id: RuleId) -> Option<usize> {
        let is_it = |index: &u32| rules[*index as usize].id == id;
        self.indexes.find(self.hasher.hash_one(id), is_it).map(|index| *index as usize)
    }
}
