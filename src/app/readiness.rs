//! Readiness: whether this process accepts traffic, by the settings `readyz.*` and by whether a server
//! has sent the first rules.

use std::sync::Arc;

use super::active_rules::ActiveRules;
use crate::limiter::Limiter;
use crate::server::Health;
use crate::settings::{ReadyzSettings, RequireRules, Settings};
use crate::xds::{FirstRules, XdsStatus};

/// The conditions of readiness, and the state that they depend on.
pub(super) struct Readiness {
    limiter: Arc<Limiter>,
    rules: Arc<ActiveRules>,
    conditions: ReadyzSettings,
    /// The client of the server that sends rules, if there is one.
    xds: Option<Arc<XdsStatus>>,
    /// `rules.start_without_rules`.
    start_without_rules: bool,
}

impl Readiness {
    pub(super) fn new(
        limiter: Arc<Limiter>,
        rules: Arc<ActiveRules>,
        xds: Option<Arc<XdsStatus>>,
        settings: &Settings,
    ) -> Readiness {
        let conditions = settings.readyz.clone();
        let start_without_rules = settings.rules.start_without_rules;
        Readiness { limiter, rules, conditions, xds, start_without_rules }
    }

    /// The current health. Without conditions the process is always ready, because the fallback
    /// decides while the store is unreachable.
    pub(super) fn health(&self) -> Health {
        let ReadyzSettings { require_store, require_rules } = &self.conditions;
        let store = self.limiter.backend().shared_store();
        let has_store =
            !*require_store || store.is_none_or(|guarded| guarded.store().is_reachable());
        let ready = has_store && self.has_first_rules() && self.has_rules(*require_rules);
        Health { live: true, ready }
    }

    /// Whether any condition is set, so that the health can change.
    pub(super) fn is_conditional(&self) -> bool {
        let ReadyzSettings { require_store, require_rules } = &self.conditions;
        *require_store || *require_rules != RequireRules::Off || self.awaited().is_some()
    }

    /// The client whose first rules readiness requires.
    fn awaited(&self) -> Option<&Arc<XdsStatus>> {
        self.xds.as_ref().filter(|_| !self.start_without_rules)
    }

    /// Whether the server has sent rules that can be used, or the cache had some.
    fn has_first_rules(&self) -> bool {
        self.awaited().is_none_or(|status| match status.first_rules() {
            FirstRules::Missing => false,
            // An instance with the valid parts is better than none. Rules of files do not count.
            FirstRules::Rejected => self.rules.snapshot().rules.has_xds(),
            FirstRules::Accepted => true,
        })
    }

    fn has_rules(&self, required: RequireRules) -> bool {
        let any = || !self.rules.snapshot().rules.domains().is_empty();
        match required {
            RequireRules::Off => true,
            RequireRules::Loaded => any(),
            RequireRules::Current => {
                let is_accepted = self.xds.as_ref().is_none_or(|status| status.is_last_accepted());
                any() && self.rules.last_error().is_none() && is_accepted
            }
        }
    }
}
