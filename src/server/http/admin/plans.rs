//! `/plans`: the plans and the health of their source; below it, changes of plans and of customers.

use std::sync::Arc;

use axum::Json;
use axum::Router;
use axum::body::Body;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, put};
use serde::Deserialize;
use serde_json::Value;

use super::{AdminApi, refusal};
use crate::server::http::body;
use crate::server::http::page::{Page, Pages};

/// The most plans of one page.
const LIMIT_MAX: usize = 10_000;

/// Largest request body in bytes. A plan has at most half of it.
const BODY_BYTES_MAX: usize = 128 << 10;

/// A request to a path below `/plans`. Names are those of requests, unchecked.
#[derive(Clone, Debug, PartialEq)]
pub enum PlansRequest {
    /// Sets the numbers of a plan: limits by name.
    Set {
        /// The plan.
        plan: String,
        /// Its limits, as in a plans file.
        limits: Value,
    },
    /// Deletes a plan.
    Delete {
        /// The plan.
        plan: String,
    },
    /// Shows the plan of a customer.
    Show {
        /// The customer.
        customer: String,
    },
    /// Assigns a customer to a plan.
    Assign {
        /// The customer.
        customer: String,
        /// The plan.
        plan: String,
    },
    /// Removes a customer from its plan.
    Unassign {
        /// The customer.
        customer: String,
    },
}

/// Why a request about plans was refused. Each text has the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlansRefusal {
    /// The request is invalid.
    Invalid(String),
    /// The request names a plan that does not exist.
    UnknownPlan(String),
    /// The plans cannot be changed here.
    Elsewhere(String),
    /// The store failed.
    Store(String),
}

/// The query: how many plans the page shows.
#[derive(Deserialize)]
struct PlansParams {
    #[serde(default = "default_limit")]
    limit: usize,
}

/// The body that assigns a customer.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenAssignment {
    plan: String,
}

fn default_limit() -> usize {
    100
}

type PlansState<A> = State<(Arc<A>, Pages)>;

type NameResult = Result<Path<String>, PathRejection>;

/// The page, which needs no token: it names no customer.
pub(super) fn page_router<A: AdminApi>(api: Arc<A>, pages: Pages) -> Router {
    Router::new().route("/plans", get(show_all::<A>)).with_state((api, pages))
}

/// The paths of one plan or one customer.
pub(super) fn router<A: AdminApi>(api: Arc<A>, pages: Pages) -> Router {
    let customer = get(show::<A>).put(assign::<A>).delete(unassign::<A>);
    Router::new()
        .route("/plans/{plan}", put(set::<A>).delete(delete::<A>))
        .route("/plans/customers/{customer}", customer)
        .with_state((api, pages))
}

async fn show_all<A: AdminApi>(
    State((api, pages)): PlansState<A>,
    params: Result<Query<PlansParams>, QueryRejection>,
) -> Response {
    match params {
        Ok(Query(PlansParams { limit })) if (1..=LIMIT_MAX).contains(&limit) => {
            pages.answer(move || Page::json(StatusCode::OK, &api.plans(limit))).await
        }
        _ => {
            let reason = format!("write ?limit=N with a whole number from 1 to {LIMIT_MAX}");
            refusal(StatusCode::BAD_REQUEST, reason)
        }
    }
}

async fn set<A: AdminApi>(
    State((api, pages)): PlansState<A>,
    plan: NameResult,
    body: Body,
) -> Response {
    let hint = "write the limits of the plan, such as {\"calls\": 100}";
    match (name(plan).map_err(bad_request), read(body, &pages, hint).await) {
        (Ok(plan), Ok(limits)) => answer(&*api, PlansRequest::Set { plan, limits }).await,
        (Err(refused), _) | (_, Err(refused)) => refused,
    }
}

async fn delete<A: AdminApi>(State((api, _)): PlansState<A>, plan: NameResult) -> Response {
    match name(plan) {
        Ok(plan) => answer(&*api, PlansRequest::Delete { plan }).await,
        Err(reason) => bad_request(reason),
    }
}

async fn show<A: AdminApi>(State((api, _)): PlansState<A>, customer: NameResult) -> Response {
    match name(customer) {
        Ok(customer) => answer(&*api, PlansRequest::Show { customer }).await,
        Err(reason) => bad_request(reason),
    }
}

async fn assign<A: AdminApi>(
    State((api, pages)): PlansState<A>,
    customer: NameResult,
    body: Body,
) -> Response {
    let read = read(body, &pages, "write the plan of the customer: {\"plan\": \"pro\"}").await;
    match (name(customer).map_err(bad_request), read) {
        (Ok(customer), Ok(WrittenAssignment { plan })) => {
            answer(&*api, PlansRequest::Assign { customer, plan }).await
        }
        (Err(refused), _) | (_, Err(refused)) => refused,
    }
}

async fn unassign<A: AdminApi>(State((api, _)): PlansState<A>, customer: NameResult) -> Response {
    match name(customer) {
        Ok(customer) => answer(&*api, PlansRequest::Unassign { customer }).await,
        Err(reason) => bad_request(reason),
    }
}

/// The name in the path.
fn name(name: NameResult) -> Result<String, String> {
    name.map(|Path(name)| name)
        .map_err(|error| format!("percent-encode the name in the path, in UTF-8: {error}"))
}

fn bad_request(reason: String) -> Response {
    refusal(StatusCode::BAD_REQUEST, reason)
}

/// The body as JSON. `hint` says what it has.
async fn read<T: serde::de::DeserializeOwned>(
    body: Body,
    pages: &Pages,
    hint: &str,
) -> Result<T, Response> {
    let read = body::read(body, BODY_BYTES_MAX, pages.permits(), None).await;
    let (bytes, _permit) = read.map_err(|error| {
        body::refused(error, BODY_BYTES_MAX, "use fewer limits in one plan", refusal)
    })?;
    serde_json::from_slice(&bytes)
        .map_err(|error| refusal(StatusCode::BAD_REQUEST, format!("{hint}: {error}")))
}

async fn answer<A: AdminApi>(api: &A, request: PlansRequest) -> Response {
    match api.edit_plans(request).await {
        Ok(shown) => Json(shown).into_response(),
        Err(PlansRefusal::Invalid(why)) => refusal(StatusCode::BAD_REQUEST, why),
        Err(PlansRefusal::UnknownPlan(why)) => refusal(StatusCode::NOT_FOUND, why),
        Err(PlansRefusal::Elsewhere(why)) => refusal(StatusCode::CONFLICT, why),
        Err(PlansRefusal::Store(why)) => refusal(StatusCode::SERVICE_UNAVAILABLE, why),
    }
}
