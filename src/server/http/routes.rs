//! The routes of the HTTP port.
//!
//! | path | response |
//! | --- | --- |
//! | `/json` | a request as proto3 JSON, with any method: 200 OK or 429 OVER_LIMIT with the response, 400 with the reason, 413 for a body over `http.max_body_bytes`, 503 if too many large requests and responses are open |
//! | `/healthcheck` | 200 `OK`, or 500, also while the server drains |
//! | `/livez` | 200 `OK`, also while the server drains, or 500 |
//! | `/readyz` | 200 `OK`, or 503 |

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use axum::{Extension, Router};

use super::body;
use super::json_thread::JsonThread;
use super::permits::{self, Permit, Permits, SMALL_MAX};
use crate::client_address::ClientAddress;
use crate::descriptor::RequestBounds;
use crate::lease_rollback::LeaseRollback;
use crate::proto::{Code, wire};
use crate::server::config::ServerConfig;
use crate::server::lifecycle::Lifecycle;
use crate::server::metrics::ServerMetrics;
use crate::server::rls::handler::{Decide, HandleError, RlsResponse, handle, trace_context};
use crate::server::rls::json::Json;

/// Large bodies, and large responses, of `/json` that are in memory at the same time.
const LARGE_MAX: usize = 32;

/// Descriptors whose response needs no permit: at 512 bytes each, it is small.
const DESCRIPTORS_SMALL: usize = SMALL_MAX / 512;

/// The number of the field `descriptors` of a `RateLimitRequest`.
const DESCRIPTORS_FIELD: u32 = 2;

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
    Extension(address): Extension<ClientAddress>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let read = body::read(body, state.max_body_bytes, &state.large, Some(address)).await;
    let (body, permit) = match read {
        Ok(read) => read,
        Err(error) => {
            let fix = "send a smaller one, or raise http.max_body_bytes";
            let response = |status: StatusCode, reason: String| (status, reason).into_response();
            return body::refused(error, state.max_body_bytes, fix, response);
        }
    };
    let Some((response, rollback)) =
        state.thread.run(answer(Arc::clone(&state), headers, address, body, permit)).await
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

/// The response to `body`, and the rollback to commit when the response is delivered. A large response
/// has `permit`, or one that is acquired before the decision: a request that was counted must get its
/// response, or the client would send it again.
async fn answer<D: Decide>(
    state: Arc<HttpState<D>>,
    headers: HeaderMap,
    address: ClientAddress,
    body: Vec<u8>,
    mut permit: Option<Permit>,
) -> (Response, Option<LeaseRollback>) {
    let message = state.json.read(&body);
    drop(body);
    if permit.is_none() && message.as_ref().is_ok_and(|message| has_large_response(message)) {
        permit = state.large.try_acquire(Some(address));
        if permit.is_none() {
            return (permits::busy(), None);
        }
    }
    let (status, content_type, text, rollback) = decided(&state, &headers, message).await;
    let text = match permit.filter(|_| text.len() > SMALL_MAX) {
        Some(permit) => permit.hold(text),
        None => text.into(),
    };
    ((status, [(CONTENT_TYPE, content_type)], text).into_response(), rollback)
}

/// Whether the response to `message`, a `RateLimitRequest`, may need a permit.
fn has_large_response(message: &[u8]) -> bool {
    let (mut rest, mut descriptors) = (message, 0);
    while let Ok(Some((number, _))) = wire::next(&mut rest) {
        descriptors += usize::from(number == DESCRIPTORS_FIELD);
    }
    descriptors > DESCRIPTORS_SMALL
}

/// The status, the content type and the text of a response, and the rollback.
type Decided = (StatusCode, HeaderValue, Vec<u8>, Option<LeaseRollback>);

async fn decided<D: Decide>(
    state: &HttpState<D>,
    headers: &HeaderMap,
    message: serde_json::Result<Vec<u8>>,
) -> Decided {
    let refused = |status, reason: String| (status, TEXT, reason.into_bytes(), None);
    let trace = trace_context(&*state.decider, headers);
    let message = match message {
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
