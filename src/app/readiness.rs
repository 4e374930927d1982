//! Readiness: whether this process accepts traffic, by the settings `readyz.*`.

use std::sync::Arc;

use super::active_rules::ActiveRules;
use crate::limiter::Limiter;
use crate::server::Health;
use crate::settings::{ReadyzSettings, RequireRules};

/// The conditions of readiness, and the state that they depend on.
pub(super) struct Readiness {
    limiter: Arc<Limiter>,
    rules: Arc<ActiveRules>,
    conditions: ReadyzSettings,
}

impl Readiness {
    pub(super) fn new(
        limiter: Arc<Limiter>,
        rules: Arc<ActiveRules>,
        conditions: ReadyzSettings,
    ) -> Readiness {
        Readiness { limiter, rules, conditions }
    }

    /// The current health. Without conditions the process is always ready, because the fallback
    /// decides while the store is unreachable.
    pub(super) fn health(&self) -> Health {
        let ReadyzSettings { require_store, require_rules } = &self.conditions;
        let store = self.limiter.backend().shared_store();
        let has_store =
            !*require_store || store.is_none_or(|guarded| guarded.store().is_reachable());
        Health { live: true, ready: has_store && self.has_rules(*require_rules) }
    }

    /// Whether any condition is set, so that the health can change.
    pub(super) fn is_conditional(&self) -> bool {
        self.conditions.require_store || self.conditions.require_rules != RequireRules::Off
    }

    fn has_rules(&self, required: RequireRules) -> bool {
        let any = || !self.rules.snapshot().rules.domains().is_empty();
        match required {
            RequireRules::Off => true,
            RequireRules::Loaded => any(),
            RequireRules::Current => any() && self.rules.last_error().is_none(),
        }
    }
}
