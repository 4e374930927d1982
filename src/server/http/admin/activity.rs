//! `/activity`: the rates and the history of rules.

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

/// The most rules of a page.
const RULES_MAX: usize = 1_000;

/// Which rules a page of activity has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ActivityQuery {
    /// The domain of the rules; `None` for all.
    pub domain: Option<String>,
    /// The name or the selector of the rules; `None` for all.
    pub rule: Option<String>,
    /// The order of the rules.
    #[serde(default)]
    pub order: ActivityOrder,
    /// The most rules, from 1 to 1000.
    #[serde(default = "default_limit")]
    pub limit: usize,
}

/// The order of the rules of a page: by a rate of the last tick, highest first, or by name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ActivityOrder {
    /// By denials.
    #[default]
    Denied,
    /// By hits.
    Hits,
    /// By decisions near the limit.
    Near,
    /// By decisions of the fallback.
    Fallback,
    /// By domain and name.
    Name,
}

fn default_limit() -> usize {
    100
}

type ActivityState<A> = State<(Arc<A>, Pages)>;

pub(super) fn router<A: AdminApi>(api: Arc<A>, pages: Pages) -> Router {
    Router::new().route("/activity", get(show::<A>)).with_state((api, pages))
}

async fn show<A: AdminApi>(
    State((api, pages)): ActivityState<A>,
    params: Result<Query<ActivityQuery>, QueryRejection>,
) -> Response {
    let reason = match params {
        Ok(Query(query)) if (1..=RULES_MAX).contains(&query.limit) => {
            return pages.answer(move || Page::json(StatusCode::OK, &api.activity(query))).await;
        }
        Ok(Query(query)) => {
            format!("limit cannot be {}; write a number from 1 to {RULES_MAX}", query.limit)
        }
        Err(error) => format!(
            "write no parameters, or &domain=D, &rule=R, &order=denied|hits|near|fallback|name, \
             &limit=N: {}",
            error.body_text()
        ),
    };
    refusal(StatusCode::BAD_REQUEST, reason)
}
