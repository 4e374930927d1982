//! `/usage`: the counters of a rule with their used hits, as JSON or CSV.

use std::sync::Arc;

use axum::Router;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use super::{AdminApi, refusal};
use crate::server::http::page::Pages;
use crate::server::http::permits;
use crate::usage::{CSV_TYPE, ROWS_MAX, UsageAnswer, UsageFailure, UsageFormat, UsageQuery};

/// The header with the cursor of the next page, for both forms.
const NEXT_CURSOR: &str = "x-weir-next-cursor";

type UsageState<A> = State<(Arc<A>, Pages)>;

pub(super) fn router<A: AdminApi>(api: Arc<A>, pages: Pages) -> Router {
    Router::new().route("/usage", get(show::<A>)).with_state((api, pages))
}

async fn show<A: AdminApi>(
    State((api, pages)): UsageState<A>,
    params: Result<Query<UsageQuery>, QueryRejection>,
) -> Response {
    let query = match read(params) {
        Ok(query) => query,
        Err(reason) => return refusal(StatusCode::BAD_REQUEST, reason),
    };
    let format = query.format;
    let Some(permit) = pages.permits().try_acquire(None) else { return permits::busy() };
    let UsageAnswer { text, cursor } = match api.usage(query).await {
        Ok(answer) => answer,
        Err(failure) => return refused(failure),
    };
    let content_type = match format {
        UsageFormat::Json => "application/json",
        UsageFormat::Csv => CSV_TYPE,
    };
    let headers = [(CACHE_CONTROL, "no-store"), (CONTENT_TYPE, content_type)];
    let page = permit.hold(text);
    match cursor {
        Some(cursor) => (headers, [(NEXT_CURSOR, cursor)], page).into_response(),
        None => (headers, page).into_response(),
    }
}

fn read(params: Result<Query<UsageQuery>, QueryRejection>) -> Result<UsageQuery, String> {
    let Query(query) = params.map_err(|error| {
        format!(
            "write ?domain=D&rule=R, and if needed &order=nearest|name, &limit=N, &min_used=N, \
             &format=json|csv, &cursor=C: {}",
            error.body_text()
        )
    })?;
    if !(1..=ROWS_MAX).contains(&query.limit) {
        return Err(format!(
            "limit cannot be {}; write a number from 1 to {ROWS_MAX}",
            query.limit
        ));
    }
    Ok(query)
}

fn refused(failure: UsageFailure) -> Response {
    match failure {
        UsageFailure::Invalid(why) => refusal(StatusCode::BAD_REQUEST, why),
        UsageFailure::NoRule(why) => refusal(StatusCode::NOT_FOUND, why),
        UsageFailure::NotKept(why) => refusal(StatusCode::CONFLICT, why),
        UsageFailure::Store(why) => refusal(StatusCode::SERVICE_UNAVAILABLE, why),
    }
}
