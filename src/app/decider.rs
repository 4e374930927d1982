//! The decider: the limiter with the rules in force, and the counters of what it decided.

use std::sync::Arc;

use arc_swap::{ArcSwap, ArcSwapOption};

use super::{derive, texts};
use crate::decision::Verdict;
use crate::descriptor::{Request, RequestError};
use crate::limiter::{Limiter, Local};
use crate::rules::{self, RuleSet};
use crate::server::Decide;
use crate::settings::Settings;
use crate::store::{MemoryStore, Stack};
use crate::telemetry::{Decisions, Loads, Requests, Slots, Top};
use crate::time::{Clock, Micros, SystemClock};

/// One set of rules with the statistics of each.
pub(super) struct InForce {
    pub(super) rules: RuleSet,
    pub(super) slots: Slots,
    /// When they were read.
    pub(super) loaded_at: Micros,
}

impl InForce {
    /// Rules that come into force at `loaded_at`, and count from nothing.
    pub(super) fn new(rules: RuleSet, loaded_at: Micros) -> InForce {
        InForce { rules, slots: Slots::default(), loaded_at }
    }

    /// The same, counted in `decisions`: rules that were there `before` go on counting.
    fn counted(mut self, decisions: &Decisions, before: &Slots) -> InForce {
        self.slots = decisions.slots(&self.rules, before);
        self
    }
}

/// Everything that answers need, shared by all cores.
pub(super) struct Decider {
    pub(super) limiter: Limiter<Stack, SystemClock>,
    pub(super) in_force: ArcSwap<InForce>,
    /// Why the last set that was read is not in force; a line per problem.
    pub(super) last_error: ArcSwapOption<String>,
    pub(super) decisions: Decisions,
    pub(super) requests: Requests,
    pub(super) loads: Loads,
    /// The first rules were good ones.
    pub(super) began_well: bool,
    /// When this process began.
    pub(super) started: Micros,
    pub(super) settings: Settings,
}

impl Decider {
    pub(super) fn new(
        limiter: Limiter<Stack, SystemClock>,
        in_force: InForce,
        last_error: Option<String>,
        settings: Settings,
    ) -> Decider {
        let started = in_force.loaded_at;
        let top = Top::new(settings.metrics.top_values);
        let decisions = Decisions::new(settings.metrics.max_series, top);
        let began_well = last_error.is_none();
        let in_force = in_force.counted(&decisions, &Slots::default());
        Decider {
            limiter,
            in_force: ArcSwap::from_pointee(in_force),
            last_error: ArcSwapOption::from_pointee(last_error),
            decisions,
            requests: Requests::default(),
            loads: Loads::default(),
            began_well,
            started,
            settings,
        }
    }

    /// Brings rules into force, as a whole; those that stay keep their statistics.
    pub(super) fn put_in_force(&self, rules: RuleSet, now: Micros) {
        let next = InForce::new(rules, now).counted(&self.decisions, &self.in_force.load().slots);
        self.in_force.store(Arc::new(next));
        self.loads.ok();
        self.last_error.store(None);
    }

    /// Remembers why a set of rules was refused; a line per problem.
    pub(super) fn refuse(&self, problems: String) {
        self.loads.failed();
        self.last_error.store(Some(Arc::new(problems)));
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
                self.put_in_force(rules, now);
                tracing::info!(rules = count, "rules reloaded");
            }
            Err(problems) => {
                self.refuse(texts(&problems).join("\n"));
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
        let (deciding, began) = (self.requests.begin(), self.limiter.clock().now());
        let verdict = self.limiter.check(&now.rules, request).await;
        let ended = self.limiter.clock().now();
        self.decisions.record(&now.rules, &now.slots, request, &verdict, ended);
        deciding.end(&verdict, ended.saturating_sub(began));
        verdict
    }

    fn refused(&self, _error: &RequestError) {
        self.requests.invalid();
    }

    fn failed(&self) {
        self.requests.failed();
    }
}
