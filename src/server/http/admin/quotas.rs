//! `/quotas`: the limits that the quota service divides, with the share of each holder.

use std::sync::Arc;

use axum::Router;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;
use serde::Deserialize;

use super::{AdminApi, refusal};
use crate::server::http::page::{Page, Pages};

/// The most quotas of one page.
const LIMIT_MAX: usize = 1000;

/// The query: how many quotas the page shows.
#[derive(Deserialize)]
struct QuotaParams {
    #[serde(default = "default_limit")]
    limit: usize,
}

fn default_limit() -> usize {
    100
}

type QuotaState<A> = State<(Arc<A>, Pages)>;

pub(super) fn router<A: AdminApi>(api: Arc<A>, pages: Pages) -> Router {
    Router::new().route("/quotas", get(show::<A>)).with_state((api, pages))
}

async fn show<A: AdminApi>(
    State((api, pages)): QuotaState<A>,
    params: Result<Query<QuotaParams>, QueryRejection>,
) -> Response {
    match params {
        Ok(Query(QuotaParams { limit })) if (1..=LIMIT_MAX).contains(&limit) => {
            pages.answer(move || Page::json(StatusCode::OK, &api.quotas(limit))).await
        }
        _ => {
            let reason = format!("write ?limit=N with a whole number from 1 to {LIMIT_MAX}");
            refusal(StatusCode::BAD_REQUEST, reason)
        }
    }
}
