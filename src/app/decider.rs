//! The decider: the limiter with the rules in force, and the counters of what it decided.

use std::sync::Arc;

use arc_swap::ArcSwap;

use super::reload::Reloads;
use crate::decision::Verdict;
use crate::descriptor::Request;
use crate::limiter::Limiter;
use crate::rules::RuleSet;
use crate::server::{Counters, Decide};
use crate::settings::Settings;
use crate::store::call_trace::{self, StoreCall};
use crate::store::{MemoryStore, Stack, Store};
use crate::telemetry::{Decisions, Requests, Slots, Top, Traces};
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
    pub(super) reloads: Reloads,
    pub(super) decisions: Decisions,
    pub(super) requests: Requests,
    /// Nothing where nobody asked for traces.
    pub(super) traces: Option<Traces>,
    /// The first rules were good ones.
    pub(super) began_well: bool,
    /// When this process began.
    pub(super) started: Micros,
    pub(super) settings: Settings,
    /// What the listeners see.
    pub(super) connections: Arc<Counters>,
}

impl Decider {
    pub(super) fn new(
        limiter: Limiter<Stack, SystemClock>,
        in_force: InForce,
        reloads: Reloads,
        settings: Settings,
        connections: Arc<Counters>,
        traces: Option<Traces>,
    ) -> Decider {
        let started = in_force.loaded_at;
        let top = Top::new(settings.metrics.top_values);
        let decisions = Decisions::new(settings.metrics.max_series, top);
        let began_well = reloads.last_error.load().is_none();
        let in_force = in_force.counted(&decisions, &Slots::default());
        Decider {
            limiter,
            in_force: ArcSwap::from_pointee(in_force),
            reloads,
            decisions,
            requests: Requests::default(),
            traces,
            began_well,
            started,
            settings,
            connections,
        }
    }

    /// Brings rules into force, as a whole; those that stay keep their statistics.
    pub(super) fn put_in_force(&self, rules: RuleSet, now: Micros) {
        let next = InForce::new(rules, now).counted(&self.decisions, &self.in_force.load().slots);
        self.in_force.store(Arc::new(next));
    }
}

impl Decider {
    /// The name of the node that was visited.
    fn node(&self, call: &StoreCall) -> Option<String> {
        let parts = self.limiter.store().redis()?.store().parts();
        parts.into_iter().find(|(part, _)| *part == call.node).map(|(_, name)| name)
    }

    /// The counters in this process's memory: all there are, or those of `on_error: local`.
    pub(super) fn in_memory(&self) -> Option<&MemoryStore> {
        let local = || self.limiter.local().map(|local| &**local.store());
        self.limiter.store().in_memory().or_else(local)
    }
}

impl Decide for Decider {
    async fn decide(&self, request: &Request<'_>) -> Verdict {
        // One snapshot for the whole request: a reload cannot change the rules under it.
        let now = self.in_force.load();
        let (deciding, began) = (self.requests.begin(), self.limiter.clock().now());
        let span = self.traces.as_ref().and_then(|traces| traces.begin(request, began));
        let (verdict, calls) = match &span {
            None => (self.limiter.check(&now.rules, request, began).await, Vec::new()),
            // Apart, so that requests that nobody traces do not carry the room for it along.
            Some(_) => {
                Box::pin(call_trace::collect(self.limiter.check(&now.rules, request, began))).await
            }
        };
        let ended = self.limiter.clock().now();
        if let Some((traces, span)) = self.traces.as_ref().zip(span) {
            let node = |call: &StoreCall| self.node(call);
            traces.end(span, &now.rules, &verdict, &calls, node, ended);
        }
        self.decisions.record(&now.rules, &now.slots, request, &verdict, ended);
        deciding.end(&verdict, ended.saturating_sub(began));
        verdict
    }

    fn refused(&self) {
        self.requests.invalid();
    }

    fn failed(&self) {
        self.requests.failed();
    }

    fn traces(&self) -> bool {
        self.traces.is_some()
    }
}
