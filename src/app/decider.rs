//! The decider: the limiter with the rules in force, and the counters of what it decided.

use std::sync::atomic::Ordering;

use arc_swap::ArcSwap;

use super::reload::Reloads;
use crate::decision::Verdict;
use crate::descriptor::{Request, RequestError};
use crate::limiter::Limiter;
use crate::rules::RuleSet;
use crate::server::Decide;
use crate::settings::Settings;
use crate::store::{MemoryStore, Stack};
use crate::telemetry::{Decisions, Slots};
use crate::time::{Micros, SystemClock};

/// One set of rules with the statistics of each.
pub(super) struct InForce {
    pub(super) rules: RuleSet,
    pub(super) slots: Slots,
    /// When they were read.
    pub(super) loaded_at: Micros,
}

impl InForce {
    /// Rules that come into force at `loaded_at`.
    pub(super) fn new(rules: RuleSet, loaded_at: Micros) -> InForce {
        let slots = Slots::of(&rules);
        InForce { rules, slots, loaded_at }
    }
}

/// Everything that answers need, shared by all cores.
pub(super) struct Decider {
    pub(super) limiter: Limiter<Stack, SystemClock>,
    pub(super) in_force: ArcSwap<InForce>,
    pub(super) reloads: Reloads,
    pub(super) decisions: Decisions,
    pub(super) settings: Settings,
}

impl Decider {
    pub(super) fn new(
        limiter: Limiter<Stack, SystemClock>,
        in_force: InForce,
        reloads: Reloads,
        settings: Settings,
        max_series: usize,
    ) -> Decider {
        let in_force = ArcSwap::from_pointee(in_force);
        Decider { limiter, in_force, reloads, decisions: Decisions::new(max_series), settings }
    }
}

impl Decider {
    /// The counters in this process's memory: all there are, or those of `on_error: local`.
    pub(super) fn in_memory(&self) -> Option<&MemoryStore> {
        let local = || self.limiter.local().map(|local| &**local.store());
        self.limiter.store().memory().or_else(local)
    }
}

impl Decide for Decider {
    async fn decide(&self, request: &Request<'_>) -> Verdict {
        // One snapshot for the whole request: a reload cannot change the rules under it.
        let now = self.in_force.load();
        let verdict = self.limiter.check(&now.rules, request).await;
        self.decisions.record(&now.rules, &now.slots, request, &verdict);
        verdict
    }

    fn refused(&self, _error: &RequestError) {
        self.decisions.invalid.fetch_add(1, Ordering::Relaxed);
    }
}
