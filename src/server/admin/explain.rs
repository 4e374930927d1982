//! `POST /explain`: which rule matches a descriptor, and why.

use std::sync::Arc;

use axum::body::{Body, to_bytes};
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use serde::Deserialize;

use super::{AdminView, refusal};
use crate::descriptor::{self, Bounds, Caller, Descriptor, ParsedDescriptor, RequestError};

/// Largest request body in bytes.
const BODY_BYTES_MAX: usize = 256 << 10;

/// The request body: a domain with one descriptor, several descriptors, or both.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ExplainRequest {
    domain: String,
    #[serde(default)]
    descriptor: Option<Written>,
    #[serde(default)]
    descriptors: Vec<Written>,
}

/// A descriptor, either as text or in the form of a request to `/json`.
#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Text(String),
    Entries { entries: Vec<Entry> },
}

#[derive(Deserialize)]
struct Entry {
    key: String,
    #[serde(default)]
    value: String,
}

pub(super) fn router<V: AdminView>(view: Arc<V>, bounds: Bounds) -> Router {
    Router::new().route("/explain", post(explain::<V>)).with_state((view, bounds))
}

async fn explain<V: AdminView>(
    State((view, bounds)): State<(Arc<V>, Bounds)>,
    body: Body,
) -> Response {
    let Ok(body) = to_bytes(body, BODY_BYTES_MAX).await else {
        let reason = format!("the body is larger than {BODY_BYTES_MAX} bytes, or broke off");
        return refusal(StatusCode::PAYLOAD_TOO_LARGE, reason);
    };
    let (domain, descriptors) = match read(&body, &bounds) {
        Ok(question) => question,
        Err(reason) => return refusal(StatusCode::BAD_REQUEST, reason),
    };
    // The search for near misses takes a while, and this thread also accepts connections.
    let explained = tokio::task::spawn_blocking(move || {
        let explain = |descriptor| view.explain(&domain, descriptor);
        descriptors.iter().map(explain).collect::<Vec<_>>()
    });
    match explained.await {
        Ok(all) => Json(serde_json::json!({ "explanations": all })).into_response(),
        Err(error) => refusal(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    }
}

fn read(body: &[u8], bounds: &Bounds) -> Result<(String, Vec<ParsedDescriptor>), String> {
    let question: ExplainRequest = serde_json::from_slice(body).map_err(|error| {
        format!(
            "write {{\"domain\": \"D\", \"descriptor\": \"key=value,key=value\"}}, \
             or several as \"descriptors\": [..]: {error}"
        )
    })?;
    let written = question.descriptor.into_iter().chain(question.descriptors);
    let typed = written.map(|written| match written {
        Written::Text(text) => text.parse(),
        Written::Entries { entries } => Ok(ParsedDescriptor(
            entries.into_iter().map(|entry| (entry.key, entry.value)).collect(),
        )),
    });
    let typed: Vec<ParsedDescriptor> = typed.collect::<Result<_, String>>()?;
    validate(&question.domain, &typed, bounds).map_err(|error| error.to_string())?;
    Ok((question.domain, typed))
}

/// Checks a domain and descriptors against the bounds of requests.
pub(super) fn validate(
    domain: &str,
    typed: &[ParsedDescriptor],
    bounds: &Bounds,
) -> Result<(), RequestError> {
    let entries: Vec<_> = typed.iter().map(ParsedDescriptor::entries).collect();
    let descriptors: Vec<_> = entries.iter().map(|entries| about(entries)).collect();
    let (hits_addend, timeout, caller) = (0, None, Caller::default());
    let request =
        descriptor::Request { domain, descriptors: &descriptors, hits_addend, timeout, caller };
    request.validate(bounds)
}

fn about<'a>(entries: &'a [descriptor::Entry<'a>]) -> Descriptor<'a> {
    Descriptor { entries, limit: None, hits_addend: None, is_negative_hits: false }
}
