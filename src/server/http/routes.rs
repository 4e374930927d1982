//! The routes of the HTTP port.
//!
//! | path | response |
//! | --- | --- |
//! | `/json` | a request as proto3 JSON, with any method: 200 OK or 429 OVER_LIMIT with the response, 400 with the reason, 413 for a body over the maximum |
//! | `/healthcheck`, `/livez` | 200 `OK`, or 500 |
//! | `/readyz` | 200 `OK`, or 503 |

use std::sync::Arc;

use axum::Router;
use axum::body::to_bytes;
use axum::extract::{Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{StatusCode, header::HeaderValue};
use axum::response::{IntoResponse, Response};
use axum::routing::any;

use crate::descriptor::Bounds;
use crate::proto::Code;

use crate::server::config::ServerConfig;
use crate::server::lifecycle::Lifecycle;
use crate::server::rls::handler::{Decide, HandleError, RlsResponse, caller, handle};
use crate::server::rls::json::Json;

struct Web<D> {
    decider: Arc<D>,
    json: Json,
    bounds: Bounds,
    max_body_bytes: usize,
    life: Lifecycle,
}

/// The routes of the HTTP port.
pub(in crate::server) fn router<D: Decide>(
    decider: Arc<D>,
    config: &ServerConfig,
    life: Lifecycle,
) -> Router {
    let web = Web {
        decider,
        json: Json::new(),
        bounds: config.bounds,
        max_body_bytes: config.http.max_body_bytes,
        life,
    };
    Router::new()
        .route("/json", any(decide::<D>))
        .route("/healthcheck", any(live::<D>))
        .route("/livez", any(live::<D>))
        .route("/readyz", any(ready::<D>))
        .with_state(Arc::new(web))
}

async fn decide<D: Decide>(State(web): State<Arc<Web<D>>>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let caller = caller(&*web.decider, &head.headers);
    let Ok(body) = to_bytes(body, web.max_body_bytes).await else {
        let reason = format!("the body is larger than {} bytes, or broke off", web.max_body_bytes);
        return (StatusCode::PAYLOAD_TOO_LARGE, reason).into_response();
    };
    let message = match web.json.read(&body) {
        Ok(message) => message,
        Err(error) => {
            web.decider.refused();
            let reason = format!("the body is not a rate-limit request: {error}");
            return (StatusCode::BAD_REQUEST, reason).into_response();
        }
    };
    match handle(&*web.decider, &web.bounds, &message, None, caller).await {
        Ok(RlsResponse { message: response, grant }) => {
            let status = match response.overall_code() {
                Code::OverLimit => StatusCode::TOO_MANY_REQUESTS,
                Code::Ok | Code::Unknown => StatusCode::OK,
            };
            match web.json.write(&response) {
                Ok(text) => {
                    // HTTP/1.1 has no reset: a closed connection shows only in a failed write.
                    if let Some(grant) = grant {
                        grant.delivered();
                    }
                    (status, [(CONTENT_TYPE, JSON)], text).into_response()
                }
                Err(error) => {
                    (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response()
                }
            }
        }
        Err(error) => {
            let status = match error {
                HandleError::Decode(_) | HandleError::Request(_) => StatusCode::BAD_REQUEST,
                HandleError::Panicked => StatusCode::INTERNAL_SERVER_ERROR,
            };
            (status, error.to_string()).into_response()
        }
    }
}

const JSON: HeaderValue = HeaderValue::from_static("application/json");

async fn live<D>(State(web): State<Arc<Web<D>>>) -> (StatusCode, &'static str) {
    match web.life.health().live {
        true => (StatusCode::OK, "OK"),
        false => (StatusCode::INTERNAL_SERVER_ERROR, ""),
    }
}

async fn ready<D>(State(web): State<Arc<Web<D>>>) -> (StatusCode, &'static str) {
    match web.life.health().ready {
        true => (StatusCode::OK, "OK"),
        false => (StatusCode::SERVICE_UNAVAILABLE, "not ready"),
    }
}
