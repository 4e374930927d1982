//! `/log`: shows which requests get lines in the log, and begins and ends captures.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use axum::routing::get;
use axum::{Extension, Router};
use serde_json::json;

use super::{AdminApi, ChangeError, changes, refusal};
use crate::client_address::ClientAddress;
use crate::server::http::body;
use crate::server::http::page::{Page, Pages};

/// Largest request body in bytes.
const BODY_BYTES_MAX: usize = 16 << 10;

type LogState<A> = State<(Arc<A>, Pages)>;

pub(super) fn router<A: AdminApi>(api: Arc<A>, pages: Pages) -> Router {
    Router::new()
        .route("/log", get(show::<A>).put(begin::<A>).delete(end::<A>))
        .with_state((api, pages))
}

async fn show<A: AdminApi>(State((api, pages)): LogState<A>) -> Response {
    pages.answer(move || Page::json(StatusCode::OK, &api.request_log())).await
}

async fn begin<A: AdminApi>(
    State((api, pages)): LogState<A>,
    Extension(address): Extension<ClientAddress>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let read = body::read(body, BODY_BYTES_MAX, pages.permits(), Some(address)).await;
    let (body, _permit) = match read {
        Ok(read) => read,
        Err(error) => {
            let fix = "a capture has one domain and one rule";
            return body::refused(error, BODY_BYTES_MAX, fix, refusal);
        }
    };
    let by = changes::caller(&headers, address);
    // On another thread, because a rule is searched for among all.
    pages.answer(move || page(api.begin_capture(&body, &by))).await
}

async fn end<A: AdminApi>(
    State((api, pages)): LogState<A>,
    Extension(address): Extension<ClientAddress>,
    headers: HeaderMap,
) -> Response {
    let by = changes::caller(&headers, address);
    pages.answer(move || Page::json(StatusCode::OK, &api.end_captures(&by))).await
}

fn page(result: Result<serde_json::Value, ChangeError>) -> Page {
    match result {
        Ok(value) => Page::json(StatusCode::OK, &value),
        Err(error) => {
            let (status, why) = error.into_parts();
            Page::json(status, &json!({ "error": why }))
        }
    }
}
