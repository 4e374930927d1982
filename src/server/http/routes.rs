//! The routes of the HTTP port.
//!
//! | path | response |
//! | --- | --- |
//! | `/json` | a request as proto3 JSON, with any method: 200 OK or 429 OVER_LIMIT with the response, 400 with the reason, 413 for a body over `http.max_body_bytes` |
//! | `/healthcheck` | 200 `OK`, or 500, also while the server drains |
//! | `/livez` | 200 `OK`, also while the server drains, or 500 |
//! | `/readyz` | 200 `OK`, or 503 |

use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::any;

use super::body::{self, ReadBody};
use super::json_thread::JsonThread;
use crate::descriptor::Bounds;
use crate::lease_rollback::LeaseRollback;
use crate::proto::Code;
use crate::server::config::ServerConfig;
use crate::server::lifecycle::Lifecycle;
use crate::server::rls::handler::{Decide, HandleError, RlsResponse, handle, trace_context};
use crate::server::rls::json::Json;

/// What the routes share.
struct HttpState<D> {
    decider: Arc<D>,
    json: Json,
    bounds: Bounds,
    max_body_bytes: usize,
    lifecycle: Lifecycle,
    thread: JsonThread,
}

/// The routes of the HTTP port. `thread` decodes and decides the requests of `/json`.
pub(in crate::server) fn router<D: Decide>(
    decider: Arc<D>,
    config: &ServerConfig,
    lifecycle: Lifecycle,
    thread: JsonThread,
) -> Router {
    let max_body_bytes = config.http.max_body_bytes;
    let (json, bounds) = (Json::new(), config.bounds);
    let state = HttpState { decider, json, bounds, max_body_bytes, lifecycle, thread };
    Router::new()
        .route("/json", any(decide::<D>).layer(DefaultBodyLimit::max(max_body_bytes)))
        .route("/healthcheck", any(live::<D>))
        .route("/livez", any(live_or_draining::<D>))
        .route("/readyz", any(ready::<D>))
        .with_state(Arc::new(state))
}

async fn decide<D: Decide>(
    State(state): State<Arc<HttpState<D>>>,
    headers: HeaderMap,
    body: ReadBody,
) -> Response {
    let body = match body {
        Ok(body) => body,
        Err(error) => {
            let fix = "send a smaller one, or raise http.max_body_bytes";
            return body::refused(&error, state.max_body_bytes, fix).into_response();
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
    let trace = trace_context(&*state.decider, &headers);
    let message = match state.json.read(&body) {
        Ok(message) => message,
        Err(error) => {
            state.decider.count_invalid();
            let reason = format!("the body is not a rate-limit request: {error}");
            return ((StatusCode::BAD_REQUEST, reason).into_response(), None);
        }
    };
    match handle(&*state.decider, &state.bounds, &message, None, trace).await {
        Ok(RlsResponse { message: response, rollback }) => {
            let status = match response.overall_code() {
                Code::OverLimit => StatusCode::TOO_MANY_REQUESTS,
                Code::Ok | Code::Unknown => StatusCode::OK,
            };
            match state.json.write(&response) {
                Ok(text) => ((status, [(CONTENT_TYPE, JSON)], text).into_response(), rollback),
                Err(error) => {
                    ((StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(), None)
                }
            }
        }
        Err(error) => {
            let status = match error {
                HandleError::Decode(_) | HandleError::Request(_) => StatusCode::BAD_REQUEST,
                HandleError::Panicked => StatusCode::INTERNAL_SERVER_ERROR,
            };
            ((status, error.to_string()).into_response(), None)
        }
    }
}

const JSON: HeaderValue = HeaderValue::from_static("application/json");

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
