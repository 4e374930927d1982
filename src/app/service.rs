//! The service: decides requests by the active rules and records the decisions.

use std::sync::Arc;

use super::active_rules::ActiveRules;
use crate::decision::Verdict;
use crate::decision_recorder::DecisionRecorder;
use crate::descriptor::Request;
use crate::limiter::Limiter;
use crate::request_log::RequestLog;
use crate::server::Decide;
use crate::store::call_trace::{self, StoreCall};
use crate::telemetry::{Decisions, RequestSpan, Requests, Traces};
use crate::time::{Clock, SystemClock};

/// The registries that record requests.
pub(super) struct RequestRecorder {
    pub(super) decisions: Decisions,
    pub(super) requests: Requests,
    /// None unless `tracing.enabled`.
    pub(super) traces: Option<Traces>,
    /// None without `log.decisions.path`.
    pub(super) records: Option<DecisionRecorder>,
    /// Lines about requests in the log of the process.
    pub(super) log: Arc<RequestLog>,
}

/// Decides requests; all workers share it.
pub(super) struct Service {
    pub(super) limiter: Arc<Limiter>,
    pub(super) clock: SystemClock,
    pub(super) rules: Arc<ActiveRules>,
    pub(super) recorder: Arc<RequestRecorder>,
}

impl Service {
    /// The address of the node that was called.
    fn node_address(&self, call: &StoreCall) -> Option<String> {
        let nodes = self.limiter.backend().shared_store()?.store().nodes();
        nodes.into_iter().find(|(node, _)| *node == call.node).map(|(_, name)| name)
    }

    /// Whether Redis is reachable, and no node has failed since its last reply.
    fn is_store_answering(&self) -> bool {
        self.limiter.backend().shared_store().is_none_or(|guarded| {
            let mut nodes = guarded.store().nodes().into_iter();
            guarded.store().is_reachable()
                && nodes.all(|(node, _)| guarded.snapshot(node).has_no_failure)
        })
    }
}

impl Decide for Service {
    async fn decide(&self, request: &Request<'_>) -> Verdict {
        let RequestRecorder { decisions, requests, traces, records, log } = &*self.recorder;
        // One snapshot per request: a reload cannot change its rules halfway.
        let active = self.rules.snapshot();
        let (in_flight, began) = (requests.begin(), self.clock.now());
        let span = traces.as_ref().and_then(|traces| traces.begin(request, began));
        let (verdict, calls) = match &span {
            None => (self.limiter.check(&active.rules, request, began).await, Vec::new()),
            // Boxed, because the future of an untraced request would be larger otherwise.
            Some(_) => {
                let check = self.limiter.check(&active.rules, request, began);
                Box::pin(call_trace::collect(check)).await
            }
        };
        let ended = self.clock.now();
        let trace_id = span.as_ref().map(RequestSpan::trace_id);
        if let Some((traces, span)) = traces.as_ref().zip(span) {
            let node = |call: &StoreCall| self.node_address(call);
            traces.end(span, &active.rules, &verdict, &calls, node, ended);
        }
        if log.is_on() {
            log.record(&active.rules, request, &verdict, trace_id, ended);
        }
        if let Some(records) = records {
            records.record(&active.rules, request, &verdict, began);
        }
        let is_answering = || self.is_store_answering();
        let (rules, metrics) = (&active.rules, &active.metrics);
        decisions.record(rules, metrics, request, &verdict, ended, is_answering);
        in_flight.end(&verdict, ended.saturating_sub(began));
        verdict
    }

    fn count_invalid(&self) {
        self.recorder.requests.count_invalid();
    }

    fn count_panicked(&self) {
        self.recorder.requests.count_panicked();
    }

    fn traces(&self) -> bool {
        let RequestRecorder { traces, records, log, .. } = &*self.recorder;
        traces.is_some() || records.is_some() || log.is_on()
    }
}
