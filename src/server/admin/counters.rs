//! `/counters`: shows or empties one counter, for callers with access.

use std::sync::Arc;

use axum::extract::{Query, Request, State};
use axum::http::StatusCode;
use axum::http::header::{AUTHORIZATION, CACHE_CONTROL};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde::Deserialize;

use super::{AdminView, CounterError, Token, explain, refusal};
use crate::descriptor::{Bounds, ParsedDescriptor};

/// The query that names a counter: its domain and its descriptor.
#[derive(Deserialize)]
struct CounterParams {
    domain: String,
    descriptor: String,
}

type Shared<V> = State<(Arc<V>, Bounds)>;

pub(super) fn router<V: AdminView>(view: Arc<V>, access: Access, bounds: Bounds) -> Router {
    Router::new()
        .route("/counters", get(show::<V>).delete(forget::<V>))
        .route_layer(from_fn_with_state(access, require_access))
        .with_state((view, bounds))
}

/// Who may access counters: callers with the token. Without a token, any caller if the port listens
/// on loopback, else none.
#[derive(Clone)]
pub(in crate::server) struct Access {
    pub(in crate::server) token: Option<Token>,
    pub(in crate::server) loopback: bool,
}

async fn require_access(State(access): State<Access>, request: Request, next: Next) -> Response {
    let refused = match access.token {
        None if access.loopback => return next.run(request).await,
        None => "admin.listen is not a loopback address, and there is no admin.token; set \
                 admin.token_file or admin.token, or listen on loopback"
            .to_owned(),
        Some(token) => {
            let header = request.headers().get(AUTHORIZATION);
            let Some(header) = header.map(|value| value.as_bytes().to_vec()) else {
                let reason =
                    "no authorization; send `Authorization: Bearer TOKEN`, see admin.token";
                return refusal(StatusCode::FORBIDDEN, reason);
            };
            // Reading a file may be slow, and this thread also accepts connections.
            match tokio::task::spawn_blocking(move || token.is_in(&header)).await {
                Ok(Ok(())) => return next.run(request).await,
                Ok(Err(reason)) => reason,
                Err(error) => error.to_string(),
            }
        }
    };
    refusal(StatusCode::FORBIDDEN, refused)
}

async fn show<V: AdminView>(State((view, bounds)): Shared<V>, params: ParamsResult) -> Response {
    match read(params, &bounds) {
        Ok((domain, descriptor)) => answer(view.counter(&domain, &descriptor).await),
        Err(reason) => refusal(StatusCode::BAD_REQUEST, reason),
    }
}

async fn forget<V: AdminView>(State((view, bounds)): Shared<V>, params: ParamsResult) -> Response {
    match read(params, &bounds) {
        Ok((domain, descriptor)) => answer(view.forget(&domain, &descriptor).await),
        Err(reason) => refusal(StatusCode::BAD_REQUEST, reason),
    }
}

type ParamsResult = Result<Query<CounterParams>, axum::extract::rejection::QueryRejection>;

fn read(params: ParamsResult, bounds: &Bounds) -> Result<(String, ParsedDescriptor), String> {
    let Query(CounterParams { domain, descriptor }) = params.map_err(|error| {
        format!("write ?domain=D&descriptor=key=value,key=value: {}", error.body_text())
    })?;
    let typed = [descriptor.parse::<ParsedDescriptor>()?];
    explain::validate(&domain, &typed, bounds).map_err(|error| error.to_string())?;
    let [typed] = typed;
    Ok((domain, typed))
}

fn answer(shown: Result<serde_json::Value, CounterError>) -> Response {
    match shown {
        Ok(value) => ([(CACHE_CONTROL, "no-store")], Json(value)).into_response(),
        Err(CounterError::NoCounter(why)) => refusal(StatusCode::NOT_FOUND, why),
        Err(CounterError::Store(why)) => refusal(StatusCode::SERVICE_UNAVAILABLE, why),
    }
}
