//! The decider: the limiter with the rules in force, and the counters of what it decided.

use std::sync::atomic::Ordering;

use arc_swap::ArcSwap;

use crate::decision::Verdict;
use crate::descriptor::{Request, RequestError};
use crate::limiter::Limiter;
use crate::rules::RuleSet;
use crate::server::Decide;
use crate::settings::Settings;
use crate::store::memory::MemoryStore;
use crate::telemetry::{Decisions, Slots};
use crate::time::{Micros, SystemClock};

/// One set of rules with the statistics of each.
pub(super) struct InForce {
    pub(super) rules: RuleSet,
    pub(super) slots: Slots,
    /// When they were read.
    pub(super) loaded_at: Micros,
    /// Why a later set was not taken, one text per problem joined by line ends.
    pub(super) last_error: Option<String>,
}

impl InForce {
    /// Rules that come into force at `loaded_at`.
    pub(super) fn new(rules: RuleSet, loaded_at: Micros, last_error: Option<String>) -> InForce {
        let slots = Slots::of(&rules);
        InForce { rules, slots, loaded_at, last_error }
    }
}

/// Everything that answers need, shared by all cores.
pub(super) struct Decider {
    pub(super) limiter: Limiter<MemoryStore, SystemClock>,
    pub(super) in_force: ArcSwap<InForce>,
    pub(super) decisions: Decisions,
    pub(super) settings: Settings,
}

impl Decider {
    pub(super) fn new(
        limiter: Limiter<MemoryStore, SystemClock>,
        in_force: InForce,
        settings: Settings,
        max_series: usize,
    ) -> Decider {
        let in_force = ArcSwap::from_pointee(in_force);
        Decider { limiter, in_force, decisions: Decisions::new(max_series), settings }
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
