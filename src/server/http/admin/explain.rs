//! `POST /explain`: which rule matches a descriptor, and why.

use std::sync::Arc;

use axum::extract::{DefaultBodyLimit, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use serde::Deserialize;

use super::{AdminView, refusal};
use crate::descriptor::{self, Bounds, Descriptor, ParsedDescriptor, RequestError, TraceContext};
use crate::server::http::body::{self, ReadBody};

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
    let explain = post(explain::<V>).layer(DefaultBodyLimit::max(BODY_BYTES_MAX));
    Router::new().route("/explain", explain).with_state((view, bounds))
}

async fn explain<V: AdminView>(
    State((view, bounds)): State<(Arc<V>, Bounds)>,
    body: ReadBody,
) -> Response {
    let body = match body {
        Ok(body) => body,
        Err(error) => {
            let fix = "send fewer descriptors in one request";
            let (status, reason) = body::refused(&error, BODY_BYTES_MAX, fix);
            return refusal(status, reason);
        }
    };
    // Reading a large body and the search for near misses take a while, and this thread also accepts
    // connections.
    let explained = tokio::task::spawn_blocking(move || {
        let (domain, descriptors) = read(&body, &bounds)?;
        let explain = |descriptor| view.explain(&domain, descriptor);
        Ok::<_, String>(descriptors.iter().map(explain).collect::<Vec<_>>())
    });
    match explained.await {
        Ok(Ok(all)) => Json(serde_json::json!({ "explanations": all })).into_response(),
        Ok(Err(reason)) => refusal(StatusCode::BAD_REQUEST, reason),
        Err(error) => refusal(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    }
}

fn read(body: &[u8], bounds: &Bounds) -> Result<(String, Vec<ParsedDescriptor>), String> {
    let request: ExplainRequest = serde_json::from_slice(body).map_err(|error| {
        format!(
            "write {{\"domain\": \"D\", \"descriptor\": \"key=value,key=value\"}}, \
             or several as \"descriptors\": [..]: {error}"
        )
    })?;
    let written = request.descriptor.into_iter().chain(request.descriptors);
    let descriptors = written.map(|written| match written {
        Written::Text(text) => text.parse(),
        Written::Entries { entries } => Ok(ParsedDescriptor(
            entries.into_iter().map(|entry| (entry.key, entry.value)).collect(),
        )),
    });
    let descriptors: Vec<ParsedDescriptor> = descriptors.collect::<Result<_, String>>()?;
    validate(&request.domain, &descriptors, bounds).map_err(|error| error.to_string())?;
    Ok((request.domain, descriptors))
}

/// Checks a domain and descriptors against the bounds of requests.
pub(super) fn validate(
    domain: &str,
    descriptors: &[ParsedDescriptor],
    bounds: &Bounds,
) -> Result<(), RequestError> {
    let entries: Vec<_> = descriptors.iter().map(ParsedDescriptor::entries).collect();
    let descriptors: Vec<_> = entries.iter().map(|entries| bare_descriptor(entries)).collect();
    let (hits_addend, timeout, trace) = (0, None, TraceContext::default());
    let request =
        descriptor::Request { domain, descriptors: &descriptors, hits_addend, timeout, trace };
    request.validate(bounds)
}

/// A descriptor of `entries` without any other field.
fn bare_descriptor<'a>(entries: &'a [descriptor::Entry<'a>]) -> Descriptor<'a> {
    Descriptor { entries, limit: None, hits_addend: None, is_negative_hits: false }
}
