//! What is compiled for new rules before they become active.

use std::sync::{Arc, MutexGuard, OnceLock};

use crate::changes::CurrentChanges;
use crate::plans::Plans;
use crate::rules::RuleSet;

/// The users of the rules. Each is set at most once.
#[derive(Default)]
pub(super) struct RuleUsers {
    /// Not set without a source of plans.
    pub(super) plans: OnceLock<Arc<Plans>>,
    pub(super) changes: OnceLock<Arc<CurrentChanges>>,
}

impl RuleUsers {
    /// Prepares all users for `rules`. Drop the result when the rules are active.
    pub(super) fn prepare(&self, rules: &RuleSet) -> Option<MutexGuard<'_, ()>> {
        if let Some(plans) = self.plans.get() {
            plans.use_rules(rules);
        }
        self.changes.get().map(|changes| changes.use_rules(rules))
    }
}
