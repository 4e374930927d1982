//! `/limited`: the counters denied most in the last minute, with their state.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use super::{AdminApi, refusal};
use crate::server::http::page::Pages;
use crate::server::http::permits;

type LimitedState<A> = State<(Arc<A>, Pages)>;

pub(super) fn router<A: AdminApi>(api: Arc<A>, pages: Pages) -> Router {
    Router::new().route("/limited", get(show::<A>)).with_state((api, pages))
}

async fn show<A: AdminApi>(State((api, pages)): LimitedState<A>) -> Response {
    // It may wait for the store, so it has no renderer.
    let Some(permit) = pages.permits().try_acquire(None) else { return permits::busy() };
    let text = match api.limited().await {
        Ok(page) => page.to_string(),
        Err(reason) => return refusal(StatusCode::INTERNAL_SERVER_ERROR, reason),
    };
    let headers = [(CACHE_CONTROL, "no-store"), (CONTENT_TYPE, "application/json")];
    (headers, permit.hold(text)).into_response()
}
