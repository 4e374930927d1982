//! The admin port: pages about the service, and operations that change it: on `/counters`, `/changes` and
//! `/plans`.

use std::future::Future;
use std::sync::Arc;

use axum::http::StatusCode;
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};

use super::page::{Page, Pages};
use crate::descriptor::{ParsedDescriptor, RequestBounds};
use crate::server::lifecycle::Lifecycle;
use crate::telemetry::LimitedCounter;
use crate::usage::{UsageAnswer, UsageFailure, UsageQuery};

mod access;
mod activity;
mod changes;
mod counters;
mod explain;
mod limited;
mod live;
mod log;
mod origin;
mod page;
mod plans;
mod quotas;
mod token;
mod try_request;
mod usage;

pub(in crate::server) use access::AdminAccess;
pub use activity::{ActivityOrder, ActivityQuery};
pub use live::LiveFeed;
pub use plans::{PlansRefusal, PlansRequest};
pub use token::Token;
pub use try_request::TryQuery;

/// The rest of the work for a page, for a thread that may block.
pub type RestOfPage = Box<dyn FnOnce() -> serde_json::Value + Send>;

/// The content of the admin port. Each request calls one method.
pub trait AdminApi: Send + Sync + 'static {
    /// `/metrics`, in Prometheus' text format.
    fn metrics(&self) -> String;
    /// `/rules`: the loaded rules by file, the load time, and the last error.
    fn rules(&self) -> serde_json::Value;
    /// `/rlconfig`: one line per limit, in envoyproxy/ratelimit's form.
    fn rlconfig(&self) -> String;
    /// `/settings`: the active settings, secrets masked.
    fn settings(&self) -> serde_json::Value;
    /// `/top`: the counters denied most in the last minute.
    fn top(&self) -> serde_json::Value;
    /// `/status`: the health of the process and its parts, and what is wrong.
    fn status(&self) -> serde_json::Value;
    /// `/activity`: the rates and the history of rules.
    fn activity(&self, query: ActivityQuery) -> serde_json::Value;
    /// `/live` and the live page; `None` if the page is off.
    fn live(&self) -> Option<Arc<LiveFeed>>;
    /// The counters denied most in the last minute. It adds the denials of all threads, so it runs on a
    /// thread that may block.
    fn most_denied(&self) -> Vec<LimitedCounter>;
    /// `/limited`: `counters` with their state. Changes none.
    fn limited(
        &self,
        counters: Vec<LimitedCounter>,
    ) -> impl Future<Output = serde_json::Value> + Send;
    /// `/try`: what a request would be answered now. Takes nothing.
    fn try_request(self: Arc<Self>, query: TryQuery) -> impl Future<Output = RestOfPage> + Send;
    /// `/quotas`: at most `limit` of the limits that the quota service divides, most demand first.
    fn quotas(&self, limit: usize) -> serde_json::Value;
    /// `/plans`: the health of the source of plans, and at most `limit` plans.
    fn plans(&self, limit: usize) -> serde_json::Value;
    /// Below `/plans`: shows or changes one plan or one customer. Returns JSON.
    fn edit_plans(
        &self,
        request: PlansRequest,
    ) -> impl Future<Output = Result<serde_json::Value, PlansRefusal>> + Send;
    /// `GET /changes`: the temporary changes.
    fn changes(&self) -> serde_json::Value;
    /// `PATCH /changes`: makes the temporary change that `body` describes. `by` names the caller.
    fn make_change(
        &self,
        body: &[u8],
        by: &str,
    ) -> impl Future<Output = Result<serde_json::Value, ChangeError>> + Send;
    /// `DELETE /changes/ID`: ends a temporary change. `by` names the caller.
    fn end_change(
        &self,
        id: &str,
        by: &str,
    ) -> impl Future<Output = Result<serde_json::Value, ChangeError>> + Send;
    /// `GET /log`: which requests get lines in the log, and the captures.
    fn request_log(&self) -> serde_json::Value;
    /// `PUT /log`: begins the capture that `body` describes. `by` names the caller.
    fn begin_capture(&self, body: &[u8], by: &str) -> Result<serde_json::Value, ChangeError>;
    /// `DELETE /log`: ends all captures. `by` names the caller.
    fn end_captures(&self, by: &str) -> serde_json::Value;
    /// `/explain`: which rule matches a descriptor of `domain`, and why.
    fn explain(&self, domain: &str, descriptor: &ParsedDescriptor) -> serde_json::Value;
    /// `/explain`: the rule of `domain` with this selector or name. `None` if there is none.
    fn explain_rule(&self, domain: &str, name: &str) -> Option<serde_json::Value>;
    /// `/explain`: the same for a bucket of RLQS, and what Envoys get for it. The error says why `id` is none.
    fn explain_bucket(
        &self,
        domain: &str,
        id: &ParsedDescriptor,
    ) -> Result<serde_json::Value, String>;
    /// `GET /counters`: the state of a descriptor's counter, as JSON. The call does not change it.
    fn counter(
        &self,
        domain: &str,
        descriptor: &ParsedDescriptor,
    ) -> impl Future<Output = Result<String, CounterError>> + Send;
    /// `DELETE /counters`: deletes a descriptor's counter. Returns JSON.
    fn delete_counter(
        &self,
        domain: &str,
        descriptor: &ParsedDescriptor,
    ) -> impl Future<Output = Result<String, CounterError>> + Send;
    /// `/usage`: a page of the counters of a rule. The call does not change them.
    fn usage(
        &self,
        query: UsageQuery,
    ) -> impl Future<Output = Result<UsageAnswer, UsageFailure>> + Send;
}

/// Why a counter cannot be shown or deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CounterError {
    /// The descriptor has no counter. The text has the reason.
    NoCounter(String),
    /// The store failed. The text has the reason.
    Store(String),
}

/// Why a temporary change was not made or ended, or a capture did not begin. Each text has the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangeError {
    /// The request is wrong.
    Invalid(String),
    /// The domain, the rule or the change does not exist.
    NotFound(String),
    /// The request does not fit what exists.
    Conflict(String),
    /// The store does not answer.
    Unavailable(String),
}

impl ChangeError {
    /// The status of the response, and the reason.
    fn into_parts(self) -> (StatusCode, String) {
        match self {
            ChangeError::Invalid(why) => (StatusCode::BAD_REQUEST, why),
            ChangeError::NotFound(why) => (StatusCode::NOT_FOUND, why),
            ChangeError::Conflict(why) => (StatusCode::CONFLICT, why),
            ChangeError::Unavailable(why) => (StatusCode::SERVICE_UNAVAILABLE, why),
        }
    }
}

/// The index at `/`: one line per path.
const INDEX: &str = "\
/          in a browser: the live page
/ui/{file}  its files
/live      its events, every 2 s (server-sent events)
/metrics   metrics in Prometheus' text format
/rules     what is loaded, from which file, and the last error (JSON)
/rlconfig  one line per limit
/settings  the active settings, secrets masked (JSON)
/status    the health of the process and its parts, and what is wrong (JSON)
/activity  ?order=denied|hits|near|fallback|name: rates and ten minutes of each rule (JSON)
/top       the counters denied most in the last minute (JSON)
/limited   these counters with their state, and their descriptors where permitted (JSON)
/explain   POST {domain, descriptor}: which rule matches, and why (JSON)
/try       POST {domain, descriptor, hits}: the answer to such a request; takes nothing (JSON)
/counters  ?domain=D&descriptor=k=v,k=v: GET the counter, DELETE it (JSON)
/plans     ?limit=N: the plans, and the health of their source (JSON)
/plans/{plan}                PUT {limit: number} sets a plan, DELETE deletes it (JSON)
/plans/customers/{customer}  GET the plan of a customer, PUT {plan: NAME}, DELETE (JSON)
/quotas    ?limit=N: the limits that RLQS divides, and the share of each holder (JSON)
/usage     ?domain=D&rule=R: the counters of a rule with `usage: true`, nearest first (JSON, CSV)
/changes   temporary changes: GET all, PATCH {domain, rule, limit, for} to make one (JSON)
/changes/{id}  DELETE ends a temporary change (JSON)
/log       GET the captures, PUT {requests, domain, rule, sample, for} logs requests, DELETE (JSON)
";

/// The routes of the admin port.
pub(in crate::server) fn router<A: AdminApi>(
    api: Arc<A>,
    pages: Pages,
    access: AdminAccess,
    bounds: RequestBounds,
    lifecycle: Lifecycle,
) -> Router {
    let loopback = access.loopback;
    let page = |render: fn(&A) -> Page| {
        let (api, pages) = (api.clone(), pages.clone());
        get(move || pages.answer(move || render(&api)))
    };
    let feed = api.live();
    // A further protected path is one more `merge`.
    let protected = Router::new()
        .merge(counters::router(api.clone(), bounds))
        .merge(plans::router(api.clone(), pages.clone()))
        .merge(quotas::router(api.clone(), pages.clone()))
        .merge(try_request::router(api.clone(), pages.clone(), bounds))
        .merge(limited::router(api.clone(), pages.clone()))
        .merge(changes::router(api.clone(), pages.clone()))
        .merge(log::router(api.clone(), pages.clone()))
        .merge(usage::router(api.clone(), pages.clone()));
    Router::new()
        .merge(page::router(feed.is_some()))
        .merge(live::router(feed, lifecycle))
        .route("/metrics", page(|api| Page::metrics(api.metrics())))
        .route("/rules", page(|api| Page::json(StatusCode::OK, &api.rules())))
        .route("/rlconfig", page(|api| Page::text(api.rlconfig())))
        .route("/settings", page(|api| Page::json(StatusCode::OK, &api.settings())))
        .route("/top", page(|api| Page::json(StatusCode::OK, &api.top())))
        .route("/status", page(|api| Page::json(StatusCode::OK, &api.status())))
        .merge(activity::router(api.clone(), pages.clone()))
        .merge(plans::page_router(api.clone(), pages.clone()))
        .merge(explain::router(api, pages, bounds))
        .merge(access::protect(protected, access))
        .layer(from_fn_with_state(loopback, origin::check))
}

/// An error response: `status`, and `reason` as JSON.
fn refusal(status: StatusCode, reason: impl Into<String>) -> Response {
    (status, Json(serde_json::json!({ "error": reason.into() }))).into_response()
}
