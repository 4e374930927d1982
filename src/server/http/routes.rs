//! The routes of the HTTP port.
//!
//! | path | response |
//! | --- | --- |
//! | `/json` | a request as proto3 JSON, with any method: 200 OK or 429 OVER_LIMIT with the response, 400 with the reason, 413 for a body over `http.max_body_bytes`, 503 if too many large requests and responses are open |
//! | `/healthcheck` | 200 `OK`, or 500, also while the server drains |
//! | `/livez` | 200 `OK`, also while the server drains, or 500 |
//! | `/readyz` | 200 `OK`, or 503 |

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::any;

use super::body;
use super::json_thread::JsonThread;
use super::permits::{self, Permits};
use crate::descriptor::RequestBounds;
use crate::lease_rollback::LeaseRollback;
use crate::proto::Code;
use crate::server::config::ServerConfig;
use crate::server::lifecycle::Lifecycle;
use crate::server::metrics::ServerMetrics;
use crate::server::rls::handler::{Decide, HandleError, RlsResponse, handle, trace_context};
use crate::server::rls::json::Json;

/// Large bodies, and large responses, of `/json` that are in memory at the same time.
const LARGE_MAX: usize = 32;

/// What the routes share.
struct HttpState<D> {
    decider: Arc<D>,
    json: Json,
    bounds: RequestBounds,
    max_body_bytes: usize,
    large: Permits,
    lifecycle: Lifecycle,
    thread: JsonThread,
}

/// The routes of the HTTP port. `thread` decodes and decides the requests of `/json`.
pub(in crate::server) fn router<D: Decide>(
    decider: Arc<D>,
    config: &ServerConfig,
    metrics: &Arc<ServerMetrics>,
    lifecycle: Lifecycle,
    thread: JsonThread,
) -> Router {
    let max_body_bytes = config.http.max_body_bytes;
    let (json, bounds) = (Json::new(), config.bounds);
    let large = Permits::new(LARGE_MAX, Arc::clone(metrics));
    let state = HttpState { decider, json, bounds, max_body_bytes, large, lifecycle, thread };
    Router::new()
        .route("/json", any(decide::<D>))
        .route("/healthcheck", any(live::<D>))
        .route("/livez", any(live_or_draining::<D>))
        .route("/readyz", any(ready::<D>))
        .with_state(Arc::new(state))
}

async fn decide<D: Decide>(
    State(state): State<Arc<HttpState<D>>>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let body = match body::read(body, state.max_body_bytes, &state.large).await {
        Ok(body) => body,
        Err(error) => {
            let fix = "send a smaller one, or raise http.max_body_bytes";
            let response = |status: StatusCode, reason: String| (status, reason).into_response();
            return body::refused(error, state.max_body_bytes, fix, response);
        }
    };
    let Some((response, rollback)) =
        state.thread.run(answer(Arc::clone(&state), headers, body)).await
    else {
        let reason = "internal error: the request caused a panic; see the log";
        return (StatusCode::INTERNAL_SERVER_ERROR, reason).into_response();
    };
    // HTTP/1.1 has no reset: a closed connection shows only in a failed write.
    if let Some(rollback) = rollback {
        rollback.commit();
    }
    response
}

/// The response to `body`, and the rollback to commit when the response is delivered.
async fn answer<D: Decide>(
    state: Arc<HttpState<D>>,
    headers: HeaderMap,
    body: Bytes,
) -> (Response, Option<LeaseRollback>) {
    let (status, content_type, text, rollback) = decided(&state, &headers, &body).await;
    // Its permit is free for the response.
    drop(body);
    match state.large.try_hold(text) {
        Some(text) => ((status, [(CONTENT_TYPE, content_type)], text).into_response(), rollback),
        // The request was counted, but its leases end with the rollback.
        None => (permits::busy(), None),
    }
}

/// The status, the content type and the text of a response, and the rollback.
type Decided = (StatusCode, HeaderValue, Vec<u8>, Option<LeaseRollback>);

async fn decided<D: Decide>(state: &HttpState<D>, headers: &HeaderMap, body: &[u8]) -> Decided {
    let refused = |status, reason: String| (status, TEXT, reason.into_bytes(), None);
    let trace = trace_context(&*state.decider, headers);
    let message = match state.json.read(body) {
        Ok(message) => message,
        Err(error) => {
            state.decider.count_invalid();
            let reason = format!("the body is not a rate-limit request: {error}");
            return refused(StatusCode::BAD_REQUEST, reason);
        }
    };
    match handle(&*state.decider, &state.bounds, &message, None, trace, None).await {
        Ok(RlsResponse { message: response, rollback }) => {
            let status = match response.overall_code() {
                Code::OverLimit => StatusCode::TOO_MANY_REQUESTS,
                Code::Ok | Code::Unknown => StatusCode::OK,
            };
            match state.json.write(&response) {
                Ok(text) => (status, JSON, text, rollback),
                Err(error) => refused(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
            }
        }
        Err(error) => {
            let status = match error {
                HandleError::Decode(_) | HandleError::Request(_) => StatusCode::BAD_REQUEST,
                HandleError::Panicked => StatusCode::INTERNAL_SERVER_ERROR,
            };
            refused(status, error.to_string())
        }
    }
}

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

async fn live<D>(State(state): State<Arc<HttpState<D>>>) -> (StatusCode, &'static str) {
    liveness(state.lifecycle.health().live)
}

async fn live_or_draining<D>(State(state): State<Arc<HttpState<D>>>) -> (StatusCode, &'static str) {
    liveness(state.lifecycle.is_live())
}

fn liveness(live: bool) -> (StatusCode, &'static str) {
    match live {
        true => (StatusCode::OK, "OK"),
        false => (StatusCode::INTERNAL_SERVER_ERROR, ""),
    }
}

async fn ready<D>(State(state): State<Arc<HttpState<D>>>) -> (StatusCode, &'static str) {
    match state.lifecycle.health().ready {
        true => (StatusCode::OK, "OK"),
        false => (StatusCode::SERVICE_UNAVAILABLE, "not ready"),
    }
}
