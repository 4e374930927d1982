//! What is compiled for new rules before they become active.

use std::sync::{Arc, MutexGuard, OnceLock};

use super::ActiveRules;
use crate::changes::CurrentChanges;
use crate::plans::Plans;
use crate::request_log::RequestLog;
use crate::rules::RuleSet;

/// The users of the rules. Each is set at most once.
#[derive(Default)]
pub(super) struct RuleUsers {
    /// Not set without a source of plans.
    plans: OnceLock<Arc<Plans>>,
    changes: OnceLock<Arc<CurrentChanges>>,
    request_log: OnceLock<Arc<RequestLog>>,
}

impl RuleUsers {
    /// Prepares all users for `rules`. Drop the result when the rules are active.
    pub(super) fn prepare(&self, rules: &RuleSet) -> Option<MutexGuard<'_, ()>> {
        if let Some(plans) = self.plans.get() {
            plans.use_rules(rules);
        }
        if let Some(log) = self.request_log.get() {
            log.use_rules(rules);
        }
        self.changes.get().map(|changes| changes.use_rules(rules))
    }
}

impl ActiveRules {
    /// Lets `plans` check the active rules and all later ones. Only the first call has an effect.
    pub(in crate::app) fn use_plans(&self, plans: Arc<Plans>) {
        // No rules are activated meanwhile.
        let _load_state = self.load_state();
        self.users.plans.get_or_init(|| plans).use_rules(&self.snapshot().rules);
    }

    /// Compiles `changes` for all later rules. Only the first call has an effect.
    pub(in crate::app) fn use_changes(&self, changes: Arc<CurrentChanges>) {
        self.users.changes.get_or_init(|| changes);
    }

    /// Lets `log` write lines for the active rules and all later ones. Only the first call has an effect.
    pub(in crate::app) fn use_request_log(&self, log: Arc<RequestLog>) {
        // No rules are activated meanwhile.
        let _load_state = self.load_state();
        self.users.request_log.get_or_init(|| log).use_rules(&self.snapshot().rules);
    }
}
