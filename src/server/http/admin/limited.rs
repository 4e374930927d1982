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
    let Some(permit) = pages.permits().try_acquire(None) else { return permits::busy() };
    let source = Arc::clone(&api);
    let (counters, permit) = match pages.collect(permit, move || source.most_denied()).await {
        Ok(collected) => collected,
        Err(error) => return refusal(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    };
    // It may wait for the store, so it has no renderer.
    let text = api.limited(counters).await.to_string();
    let headers = [(CACHE_CONTROL, "no-store"), (CONTENT_TYPE, "application/json")];
    (headers, permit.hold(text)).into_response()
}
