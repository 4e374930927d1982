//! `/counters`: shows or deletes one counter.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde::Deserialize;

use super::{AdminApi, CounterError, explain, refusal};
use crate::descriptor::{ParsedDescriptor, RequestBounds};

/// The query that names a counter: its domain and its descriptor.
#[derive(Deserialize)]
struct CounterParams {
    domain: String,
    descriptor: String,
}

type ApiState<A> = State<(Arc<A>, RequestBounds)>;

pub(super) fn router<A: AdminApi>(api: Arc<A>, bounds: RequestBounds) -> Router {
    Router::new().route("/counters", get(show::<A>).delete(delete::<A>)).with_state((api, bounds))
}

async fn show<A: AdminApi>(State((api, bounds)): ApiState<A>, params: ParamsResult) -> Response {
    match read(params, &bounds) {
        Ok((domain, descriptor)) => answer(api.counter(&domain, &descriptor).await),
        Err(reason) => refusal(StatusCode::BAD_REQUEST, reason),
    }
}

async fn delete<A: AdminApi>(State((api, bounds)): ApiState<A>, params: ParamsResult) -> Response {
    match read(params, &bounds) {
        Ok((domain, descriptor)) => answer(api.delete_counter(&domain, &descriptor).await),
        Err(reason) => refusal(StatusCode::BAD_REQUEST, reason),
    }
}

type ParamsResult = Result<Query<CounterParams>, axum::extract::rejection::QueryRejection>;

fn read(
    params: ParamsResult,
    bounds: &RequestBounds,
) -> Result<(String, ParsedDescriptor), String> {
    let Query(CounterParams { domain, descriptor }) = params.map_err(|error| {
        format!("write ?domain=D&descriptor=key=value,key=value: {}", error.body_text())
    })?;
    let descriptor: ParsedDescriptor = descriptor.parse()?;
    let descriptors = std::slice::from_ref(&descriptor);
    explain::validate(&domain, descriptors, bounds).map_err(|error| error.to_string())?;
    Ok((domain, descriptor))
}

fn answer(shown: Result<String, CounterError>) -> Response {
    match shown {
        Ok(json) => {
            let headers = [(CACHE_CONTROL, "no-store"), (CONTENT_TYPE, "application/json")];
            (headers, json).into_response()
        }
        Err(CounterError::NoCounter(why)) => refusal(StatusCode::NOT_FOUND, why),
        Err(CounterError::Store(why)) => refusal(StatusCode::SERVICE_UNAVAILABLE, why),
    }
}
