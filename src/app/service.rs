//! The service: the limiter with the rules in force, and the counters of what it decided.

use std::sync::Arc;

use arc_swap::ArcSwap;

use super::reload::ReloadState;
use crate::decision::Verdict;
use crate::descriptor::Request;
use crate::limiter::Limiter;
use crate::rules::RuleSet;
use crate::server::{Decide, ServerMetrics};
use crate::settings::Settings;
use crate::store::MemoryStore;
use crate::store::call_trace::{self, StoreCall};
use crate::telemetry::{Decisions, Requests, RuleMetrics, Top, Traces};
use crate::time::{Clock, Micros, SystemClock};

/// One set of rules with the statistics of each.
pub(super) struct ActiveRules {
    pub(super) rules: RuleSet,
    pub(super) rule_metrics: RuleMetrics,
    /// When they were read.
    pub(super) loaded_at: Micros,
}

impl ActiveRules {
    /// Rules that come into force at `loaded_at`, and count from nothing.
    pub(super) fn new(rules: RuleSet, loaded_at: Micros) -> ActiveRules {
        ActiveRules { rules, rule_metrics: RuleMetrics::default(), loaded_at }
    }

    /// The same, counted in `decisions`: rules that were there `before` go on counting.
    fn counted(mut self, decisions: &Decisions, before: &RuleMetrics) -> ActiveRules {
        self.rule_metrics = decisions.rule_metrics(&self.rules, before);
        self
    }
}

/// Everything that answers need, shared by all cores.
pub(super) struct Service {
    pub(super) limiter: Limiter,
    pub(super) clock: SystemClock,
    pub(super) active: ArcSwap<ActiveRules>,
    pub(super) reloads: ReloadState,
    pub(super) decisions: Decisions,
    pub(super) requests: Requests,
    /// Nothing where nobody asked for traces.
    pub(super) traces: Option<Traces>,
    /// The first rules were good ones.
    pub(super) started_with_rules: bool,
    /// When this process began.
    pub(super) started: Micros,
    pub(super) settings: Settings,
    /// What the listeners see.
    pub(super) connections: Arc<ServerMetrics>,
}

impl Service {
    pub(super) fn new(
        limiter: Limiter,
        clock: SystemClock,
        active: ActiveRules,
        reloads: ReloadState,
        settings: Settings,
        connections: Arc<ServerMetrics>,
        traces: Option<Traces>,
    ) -> Service {
        let started = active.loaded_at;
        let top = Top::new(settings.metrics.top_values);
        let decisions = Decisions::new(settings.metrics.max_series, top);
        let started_with_rules = reloads.last_error.load().is_none();
        let active = active.counted(&decisions, &RuleMetrics::default());
        Service {
            limiter,
            clock,
            active: ArcSwap::from_pointee(active),
            reloads,
            decisions,
            requests: Requests::default(),
            traces,
            started_with_rules,
            started,
            settings,
            connections,
        }
    }

    /// Brings rules into force, as a whole; those that stay keep their statistics.
    pub(super) fn activate(&self, rules: RuleSet, now: Micros) {
        let next =
            ActiveRules::new(rules, now).counted(&self.decisions, &self.active.load().rule_metrics);
        self.active.store(Arc::new(next));
    }
}

impl Service {
    /// The name of the node that was visited.
    fn node(&self, call: &StoreCall) -> Option<String> {
        let parts = self.limiter.backend().redis()?.store().nodes();
        parts.into_iter().find(|(part, _)| *part == call.node).map(|(_, name)| name)
    }

    /// The counters in this process's memory: all there are, or those of `on_error: local`.
    pub(super) fn in_memory(&self) -> Option<&MemoryStore> {
        let local = || self.limiter.local().map(|local| &**local.store());
        self.limiter.backend().memory().or_else(local)
    }

    /// Whether counters can be queried, as far as is known.
    pub(super) fn is_store_reachable(&self) -> bool {
        self.limiter.backend().redis().is_none_or(|guard| guard.store().is_reachable())
    }
}

impl Decide for Service {
    async fn decide(&self, request: &Request<'_>) -> Verdict {
        // One snapshot for the whole request: a reload cannot change the rules under it.
        let now = self.active.load();
        let (deciding, began) = (self.requests.begin(), self.clock.now());
        let span = self.traces.as_ref().and_then(|traces| traces.begin(request, began));
        let (verdict, calls) = match &span {
            None => (self.limiter.check(&now.rules, request, began).await, Vec::new()),
            // Apart, so that requests that nobody traces do not carry the room for it along.
            Some(_) => {
                Box::pin(call_trace::collect(self.limiter.check(&now.rules, request, began))).await
            }
        };
        let ended = self.clock.now();
        if let Some((traces, span)) = self.traces.as_ref().zip(span) {
            let node = |call: &StoreCall| self.node(call);
            traces.end(span, &now.rules, &verdict, &calls, node, ended);
        }
        self.decisions.record(&now.rules, &now.rule_metrics, request, &verdict, ended);
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
