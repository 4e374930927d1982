//! The metrics page: every registry of the process writes its metrics onto it.

use std::sync::Arc;

use super::active_rules::ActiveRules;
use super::plans::PlansView;
use super::service::RequestRecorder;
use crate::limiter::Limiter;
use crate::rlqs::QuotaEngine;
use crate::server::ServerMetrics;
use crate::settings::Settings;
use crate::telemetry::{self, Exposition};
use crate::time::{Clock, Micros, SystemClock};
use crate::xds::XdsStatus;

mod changes;
mod decision_recorder;
mod modes;
mod plans;
mod request_log;
mod rlqs;
mod stores;
mod usage;
mod xds;

/// The metrics of all parts of the process.
pub(super) struct AllMetrics {
    pub(super) limiter: Arc<Limiter>,
    pub(super) clock: SystemClock,
    pub(super) rules: Arc<ActiveRules>,
    pub(super) recorder: Arc<RequestRecorder>,
    pub(super) server: Arc<ServerMetrics>,
    /// The client of the server that sends rules, if there is one.
    pub(super) xds: Option<Arc<XdsStatus>>,
    /// `None` with `rlqs.enabled: false`.
    pub(super) rlqs: Option<Arc<QuotaEngine>>,
    /// `None` with `plans.source: none`.
    pub(super) plans: Option<PlansView>,
    /// When the process started.
    pub(super) started: Micros,
    /// `store.max_counters`.
    pub(super) max_counters: usize,
    /// `metrics.top`: whether the page has the counters denied most.
    pub(super) top: bool,
    /// `metrics.envoy_ratelimit_names`: whether the page also has the metrics of
    /// envoyproxy/ratelimit.
    pub(super) envoy_ratelimit_names: bool,
}

impl AllMetrics {
    pub(super) fn new(
        limiter: Arc<Limiter>,
        clock: SystemClock,
        rules: Arc<ActiveRules>,
        recorder: Arc<RequestRecorder>,
        server: Arc<ServerMetrics>,
        xds: Option<Arc<XdsStatus>>,
        settings: &Settings,
    ) -> AllMetrics {
        AllMetrics {
            started: rules.snapshot().loaded_at,
            limiter,
            clock,
            rules,
            recorder,
            server,
            xds,
            rlqs: None,
            plans: None,
            max_counters: settings.store.max_counters,
            top: settings.metrics.top,
            envoy_ratelimit_names: settings.metrics.envoy_ratelimit_names,
        }
    }

    /// Adds the metrics of the quota service.
    pub(super) fn with_rlqs(self, rlqs: Option<Arc<QuotaEngine>>) -> AllMetrics {
        AllMetrics { rlqs, ..self }
    }

    /// Adds the metrics of plans.
    pub(super) fn with_plans(self, plans: Option<PlansView>) -> AllMetrics {
        AllMetrics { plans, ..self }
    }

    /// The current values of all metrics.
    pub(super) fn exposition(&self) -> Exposition {
        let mut page = Exposition::default();
        let active = self.rules.snapshot();
        let RequestRecorder { decisions, requests, traces, records, log } = &*self.recorder;
        requests.expose(&mut page);
        decisions.expose(&active.metrics, &mut page);
        telemetry::expose_limits(&active.rules, &active.metrics, &mut page);
        self.rules.expose(&mut page);
        if let Some(status) = &self.xds {
            xds::expose(status, self.clock.now(), &mut page);
        }
        if let Some(counters) = self.limiter.memory() {
            stores::expose_memory(counters, self.max_counters, &mut page);
        }
        if let Some(guarded) = self.limiter.backend().shared_store() {
            stores::expose_redis(guarded, &mut page);
        }
        if let Some(modes) = self.limiter.backend().modes() {
            modes::expose(modes, &mut page);
        }
        if let Some(engine) = &self.rlqs {
            rlqs::expose(engine, &mut page);
        }
        if let Some(view) = &self.plans {
            plans::expose(view, self.clock.now(), &mut page);
        }
        if let Some(names) = self.limiter.usage() {
            usage::expose(&names.snapshot(), &mut page);
        }
        if let Some(current) = self.limiter.changes() {
            changes::expose(current, self.clock.now(), &mut page);
        }
        self.server.expose(&mut page);
        if self.top {
            decisions.top.expose(self.clock.now(), &mut page);
        }
        if let Some(traces) = traces {
            traces.expose(&mut page);
        }
        if let Some(records) = records {
            decision_recorder::expose(records.metrics(), &mut page);
        }
        request_log::expose(log, &mut page);
        telemetry::expose_process(self.started, &mut page);
        if self.envoy_ratelimit_names {
            let loads = self.rules.load_counts();
            let (rules, metrics) = (&active.rules, &active.metrics);
            telemetry::expose_envoy_ratelimit(
                decisions, rules, metrics, requests, loads, &mut page,
            );
        }
        page
    }
}
