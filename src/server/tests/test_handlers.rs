//! Deciders, verdicts and admin pages for tests.

use std::sync::Arc;

use tokio::sync::{Semaphore, mpsc};

use crate::decision::{Code, CurrentLimit, DecisionReason, Status, Verdict};
use crate::descriptor::{ParsedDescriptor, Request};
use crate::limit::Unit;
use crate::time::Micros;

use crate::server::{
    ActivityQuery, AdminApi, ChangeError, CounterError, Decide, LiveFeed, PlansRefusal,
    PlansRequest, RestOfPage,
};
use crate::telemetry::LimitedCounter;
use crate::usage::{UsageAnswer, UsageFailure, UsageQuery};

/// A verdict with every field filled.
pub(in crate::server) fn full_verdict() -> Verdict {
    let over = Status {
        code: Code::OverLimit,
        limit: Some(CurrentLimit {
            name: Some("product".into()),
            requests: 10,
            unit: Some(Unit::Week),
        }),
        remaining: 3,
        reset_after: Some(Micros(60_000_000)),
        reason: DecisionReason::NoRule,
    };
    let serde_json::Value::Object(metadata) = serde_json::json!({"domain": "shop", "n": 2}) else {
        unreachable!("an object");
    };
    Verdict {
        code: Code::OverLimit,
        statuses: vec![over, no_limit()],
        headers: vec![("retry-after".into(), "60".into())],
        metadata: Some(metadata),
        shadowed: false,
        rollback: None,
        what_if: Default::default(),
    }
}

fn no_limit() -> Status {
    Status {
        code: Code::Ok,
        limit: None,
        remaining: 0,
        reset_after: None,
        reason: DecisionReason::NoRule,
    }
}

fn verdict(request: &Request<'_>, code: Code) -> Verdict {
    Verdict {
        code,
        statuses: request.descriptors.iter().map(|_| no_limit()).collect(),
        headers: Vec::new(),
        metadata: None,
        shadowed: false,
        rollback: None,
        what_if: Default::default(),
    }
}

/// A decider whose verdict depends on the domain: `over`, `full` (every field), `panic`, else OK.
pub(in crate::server) struct ByDomain;

impl Decide for ByDomain {
    async fn decide(&self, request: &Request<'_>) -> Verdict {
        match request.domain {
            "over" => verdict(request, Code::OverLimit),
            "full" => full_verdict(),
            "panic" => panic!("a test asked for it"),
            _ => verdict(request, Code::Ok),
        }
    }
}

/// A decider that reports each arrival, and decides once `go` has a permit.
pub(in crate::server) struct Blocking {
    pub(in crate::server) arrived: mpsc::UnboundedSender<()>,
    pub(in crate::server) go: Arc<Semaphore>,
}

impl Decide for Blocking {
    async fn decide(&self, request: &Request<'_>) -> Verdict {
        let _ = self.arrived.send(());
        let _pass = self.go.acquire().await;
        verdict(request, Code::Ok)
    }
}

/// A decider that passes each request to a function, then decides by domain.
pub(in crate::server) struct Observing<F>(F);

/// A decider that calls `observe` for each request.
pub(in crate::server) fn observing<F>(observe: F) -> Observing<F>
where
    F: Fn(&Request<'_>) + Send + Sync + 'static,
{
    Observing(observe)
}

impl<F> Decide for Observing<F>
where
    F: Fn(&Request<'_>) + Send + Sync + 'static,
{
    async fn decide(&self, request: &Request<'_>) -> Verdict {
        (self.0)(request);
        ByDomain.decide(request).await
    }
}

/// Admin pages with a short text each, and with the text of `/metrics`.
pub(in crate::server) struct FixedPages(pub(in crate::server) String);

impl AdminApi for FixedPages {
    fn metrics(&self) -> String {
        self.0.clone()
    }

    fn rules(&self) -> serde_json::Value {
        serde_json::json!({"files": []})
    }

    fn rlconfig(&self) -> String {
        "shop.k: unit=SECOND\n".into()
    }

    fn settings(&self) -> serde_json::Value {
        serde_json::json!({"grpc": {}})
    }

    fn explain(&self, domain: &str, descriptor: &ParsedDescriptor) -> serde_json::Value {
        serde_json::json!([domain, descriptor.0])
    }

    fn explain_rule(&self, _: &str, _: &str) -> Option<serde_json::Value> {
        None
    }

    fn explain_bucket(&self, _: &str, id: &ParsedDescriptor) -> Result<serde_json::Value, String> {
        Ok(serde_json::json!(id.0))
    }

    async fn counter(&self, _: &str, _: &ParsedDescriptor) -> Result<String, CounterError> {
        Err(CounterError::NoCounter("none".into()))
    }

    async fn delete_counter(&self, _: &str, _: &ParsedDescriptor) -> Result<String, CounterError> {
        Err(CounterError::Store("down".into()))
    }

    fn top(&self) -> serde_json::Value {
        serde_json::json!({"top": []})
    }

    fn status(&self) -> serde_json::Value {
        serde_json::json!({"health": "serving"})
    }

    fn live(&self) -> Option<Arc<LiveFeed>> {
        None
    }

    fn activity(&self, query: ActivityQuery) -> serde_json::Value {
        serde_json::json!({"rules": [], "limit": query.limit})
    }

    async fn try_request(self: Arc<Self>, query: crate::server::TryQuery) -> RestOfPage {
        Box::new(move || serde_json::json!({"domain": query.domain}))
    }

    fn most_denied(&self) -> Vec<LimitedCounter> {
        panic!("defect")
    }

    async fn limited(&self, _: Vec<LimitedCounter>) -> serde_json::Value {
        serde_json::json!({"counters": []})
    }

    fn changes(&self) -> serde_json::Value {
        serde_json::json!({"changes": []})
    }

    async fn make_change(&self, _: &[u8], by: &str) -> Result<serde_json::Value, ChangeError> {
        Ok(serde_json::json!({"by": by}))
    }

    async fn end_change(&self, id: &str, _: &str) -> Result<serde_json::Value, ChangeError> {
        Err(ChangeError::NotFound(id.into()))
    }

    fn request_log(&self) -> serde_json::Value {
        serde_json::json!({"captures": []})
    }

    fn begin_capture(&self, _: &[u8], by: &str) -> Result<serde_json::Value, ChangeError> {
        Ok(serde_json::json!({"by": by}))
    }

    fn end_captures(&self, by: &str) -> serde_json::Value {
        serde_json::json!({"by": by})
    }

    fn quotas(&self, limit: usize) -> serde_json::Value {
        serde_json::json!({"quotas": [], "limit": limit})
    }

    fn plans(&self, limit: usize) -> serde_json::Value {
        serde_json::json!({"plans": [], "limit": limit})
    }

    async fn edit_plans(&self, request: PlansRequest) -> Result<serde_json::Value, PlansRefusal> {
        Ok(serde_json::json!({"request": format!("{request:?}")}))
    }

    async fn usage(&self, query: UsageQuery) -> Result<UsageAnswer, UsageFailure> {
        Ok(UsageAnswer { text: format!("{query:?}"), cursor: query.cursor })
    }
}
