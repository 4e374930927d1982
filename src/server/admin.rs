//! The admin port: what an operator looks at. Reads only, and changes nothing.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};

/// What the application shows on the admin port. Every call is made for one scrape or one reader.
pub trait AdminView: Send + Sync + 'static {
    /// `/metrics`, in Prometheus' text format.
    fn metrics(&self) -> String;
    /// `/rules`: what is loaded, from which file, and the last error.
    fn rules(&self) -> serde_json::Value;
    /// `/rlconfig`: one line per limit, in the incumbent's form.
    fn rlconfig(&self) -> String;
    /// `/settings`: what is in force, secrets masked.
    fn settings(&self) -> serde_json::Value;
    /// `/top`: the counters denied most in the last minute.
    fn top(&self) -> serde_json::Value;
}

/// What `/` answers: every path with one line about it.
const INDEX: &str = "\
/metrics   metrics in Prometheus' text format
/rules     what is loaded, from which file, and the last error (JSON)
/rlconfig  one line per limit
/settings  what is in force, secrets masked (JSON)
/top       the counters denied most in the last minute (JSON)
";

/// The version of the text format that `/metrics` speaks.
const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The routes of the admin port.
pub(super) fn router<V: AdminView>(view: Arc<V>) -> Router {
    Router::new()
        .route("/", get(INDEX))
        .route("/metrics", get(async |State(view): State<Arc<V>>| metrics(view).await))
        .route("/rules", get(async |State(view): State<Arc<V>>| Json(view.rules())))
        .route("/rlconfig", get(async |State(view): State<Arc<V>>| view.rlconfig()))
        .route("/settings", get(async |State(view): State<Arc<V>>| Json(view.settings())))
        .route("/top", get(async |State(view): State<Arc<V>>| Json(view.top())))
        .with_state(view)
}

/// The page of metrics.
pub(super) async fn metrics<V: AdminView>(view: Arc<V>) -> Response {
    // A page of many series takes a while, and this thread also accepts connections.
    match tokio::task::spawn_blocking(move || view.metrics()).await {
        Ok(page) => ([(CONTENT_TYPE, PROMETHEUS)], page).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}
