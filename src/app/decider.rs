//! The decider: the limiter with the rules in force, and the counters of what it decided.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use arc_swap::{ArcSwap, ArcSwapOption};

use super::{derive, texts};
use crate::decision::Verdict;
use crate::descriptor::{Request, RequestError};
use crate::limiter::{Limiter, Local};
use crate::rules::{self, RuleSet};
use crate::server::{Counters, Decide};
use crate::settings::Settings;
use crate::store::{MemoryStore, Stack};
use crate::telemetry::{Decisions, Slots};
use crate::time::{Clock, Micros, SystemClock};

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
    /// Why the last set that was read is not in force; a line per problem.
    pub(super) last_error: ArcSwapOption<String>,
    pub(super) decisions: Decisions,
    pub(super) settings: Settings,
    /// What the listeners see.
    pub(super) connections: Arc<Counters>,
}

impl Decider {
    pub(super) fn new(
        limiter: Limiter<Stack, SystemClock>,
        in_force: InForce,
        last_error: Option<String>,
        settings: Settings,
        connections: Arc<Counters>,
        max_series: usize,
    ) -> Decider {
        let in_force = ArcSwap::from_pointee(in_force);
        let last_error = ArcSwapOption::from_pointee(last_error);
        let decisions = Decisions::new(max_series);
        Decider { limiter, in_force, last_error, decisions, settings, connections }
    }
}

impl Decider {
    /// Reads the rules again. Good ones come into force at once and as a whole, and counters of
    /// rules that stay are kept; bad ones change nothing, and `/rules` tells what is wrong.
    pub(super) fn reload(&self) {
        let now = self.limiter.clock().now();
        match rules::load(&self.settings.rules.paths, &derive::reading(&self.settings)) {
            Ok((rules, warnings)) => {
                for warning in warnings {
                    tracing::warn!("{warning}");
                }
                let count = rules.rules().len();
                self.in_force.store(Arc::new(InForce::new(rules, now)));
                self.last_error.store(None);
                tracing::info!(rules = count, "rules reloaded");
            }
            Err(problems) => {
                self.last_error.store(Some(Arc::new(texts(&problems).join("\n"))));
                for problem in &problems {
                    tracing::error!("{problem}");
                }
                tracing::error!("rules not reloaded: those in force stay");
            }
        }
    }
}

impl Decider {
    /// The counters in this process's memory: all there are, or those of `on_error: local`.
    pub(super) fn in_memory(&self) -> Option<&MemoryStore> {
        let local = || self.limiter.local().map(Local::store);
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
