//! `POST /explain`: which rule matches a descriptor, and why; or a rule that is named.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::ALLOW;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use serde::Deserialize;
use serde_json::json;

use super::{AdminApi, refusal};
use crate::descriptor::{
    self, Descriptor, ParsedDescriptor, RequestBounds, RequestError, TraceContext,
};
use crate::server::http::body;
use crate::server::http::page::{Page, Pages};

/// Largest request body in bytes.
const BODY_BYTES_MAX: usize = 256 << 10;

/// The error of a request without descriptors and without buckets.
const NOTHING_ASKED: &str =
    "nothing is asked; write `descriptor`, or at least one item in `descriptors` or `buckets`";

/// The request body: a domain with descriptors, with ids of buckets, or both.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ExplainRequest {
    domain: String,
    #[serde(default)]
    descriptor: Option<Written>,
    #[serde(default)]
    descriptors: Vec<Written>,
    #[serde(default)]
    buckets: Vec<Written>,
}

/// A descriptor, either as text or in the form of a request to `/json`.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum Written {
    Text(String),
    Entries { entries: Vec<WrittenEntry> },
}

#[derive(Deserialize)]
pub(super) struct WrittenEntry {
    key: String,
    #[serde(default)]
    value: String,
}

/// One item of a request: a text may be a descriptor, the name of a rule, or both.
struct Question {
    /// The error says why the text is no descriptor.
    descriptor: Result<ParsedDescriptor, String>,
    /// The text; `None` if the item was written as entries.
    text: Option<String>,
    /// Whether it is the id of a bucket.
    is_bucket: bool,
}

pub(super) fn router<A: AdminApi>(api: Arc<A>, pages: Pages, bounds: RequestBounds) -> Router {
    let explain = post(explain::<A>).get(needs_post);
    Router::new().route("/explain", explain).with_state((api, pages, bounds))
}

/// The answer to a link that was opened in a browser, or to curl without a body.
async fn needs_post() -> Response {
    let reason = r#"use POST with the body {"domain": "D", "descriptor": "key=value,key=value"}"#;
    ([(ALLOW, "POST")], refusal(StatusCode::METHOD_NOT_ALLOWED, reason)).into_response()
}

async fn explain<A: AdminApi>(
    State((api, pages, bounds)): State<(Arc<A>, Pages, RequestBounds)>,
    body: Body,
) -> Response {
    let (body, permit) = match body::read(body, BODY_BYTES_MAX, pages.permits(), None).await {
        Ok(body) => body,
        Err(error) => {
            let fix = "send fewer descriptors or buckets in one request";
            return body::refused(error, BODY_BYTES_MAX, fix, refusal);
        }
    };
    let page = pages.answer(move || {
        let _permit = permit;
        match explain_all(&*api, &body, &bounds) {
            Ok(all) => Page::json(StatusCode::OK, &json!({ "explanations": all })),
            Err(reason) => Page::json(StatusCode::BAD_REQUEST, &json!({ "error": reason })),
        }
    });
    page.await
}

/// The explanations that the request in `body` asks for.
fn explain_all<A: AdminApi>(
    api: &A,
    body: &[u8],
    bounds: &RequestBounds,
) -> Result<Vec<serde_json::Value>, String> {
    let (domain, questions) = read(body, bounds)?;
    questions.into_iter().map(|question| answer(api, &domain, question)).collect()
}

/// The explanation of the descriptor, or of the rule that the text names if no rule matches.
fn answer<A: AdminApi>(
    api: &A,
    domain: &str,
    question: Question,
) -> Result<serde_json::Value, String> {
    let Question { descriptor, text, is_bucket } = question;
    if is_bucket {
        return api.explain_bucket(domain, &descriptor?);
    }
    let explained = descriptor.map(|descriptor| api.explain(domain, &descriptor));
    if explained.as_ref().is_ok_and(|shown| shown["outcome"]["kind"] == "rule") {
        return explained;
    }
    match text.and_then(|name| api.explain_rule(domain, &name)) {
        Some(rule) => Ok(rule),
        None => explained.map_err(|error| format!("{error}, or the name of a rule")),
    }
}

fn read(body: &[u8], bounds: &RequestBounds) -> Result<(String, Vec<Question>), String> {
    let request: ExplainRequest = serde_json::from_slice(body).map_err(|error| {
        format!(
            "write {{\"domain\": \"D\", \"descriptor\": \"key=value,key=value\"}}, several as \
             \"descriptors\": [..], or ids of buckets of RLQS as \"buckets\": [..]: {error}"
        )
    })?;
    let written = request.descriptor.into_iter().chain(request.descriptors);
    let buckets = request.buckets.into_iter().map(Question::of_bucket);
    let questions: Vec<Question> = written.map(Question::from).chain(buckets).collect();
    let bounded: Vec<ParsedDescriptor> = questions.iter().map(Question::bounded).collect();
    validate(&request.domain, &bounded, bounds).map_err(|error| match error {
        RequestError::NoDescriptors => NOTHING_ASKED.to_owned(),
        error => error.to_string(),
    })?;
    Ok((request.domain, questions))
}

impl Written {
    /// The descriptor.
    pub(super) fn descriptor(self) -> Result<ParsedDescriptor, String> {
        Question::from(self).descriptor
    }
}

impl From<Written> for Question {
    fn from(written: Written) -> Question {
        match written {
            Written::Text(text) => {
                Question { descriptor: text.parse(), text: Some(text), is_bucket: false }
            }
            Written::Entries { entries } => {
                let pairs = entries.into_iter().map(|entry| (entry.key, entry.value)).collect();
                Question { descriptor: Ok(ParsedDescriptor(pairs)), text: None, is_bucket: false }
            }
        }
    }
}

impl Question {
    fn of_bucket(written: Written) -> Question {
        Question { is_bucket: true, ..Question::from(written) }
    }

    /// A descriptor that is within the bounds of requests if the question is. The explanation of a bucket
    /// says whether its id is.
    fn bounded(&self) -> ParsedDescriptor {
        if self.is_bucket {
            return ParsedDescriptor(vec![("bucket".to_owned(), String::new())]);
        }
        match (&self.descriptor, &self.text) {
            (Ok(descriptor), _) => descriptor.clone(),
            (Err(_), name) => {
                ParsedDescriptor(vec![("rule".to_owned(), name.clone().unwrap_or_default())])
            }
        }
    }
}

/// Checks a domain and descriptors against the bounds of requests.
pub(super) fn validate(
    domain: &str,
    descriptors: &[ParsedDescriptor],
    bounds: &RequestBounds,
) -> Result<(), RequestError> {
    let entries: Vec<_> = descriptors.iter().map(ParsedDescriptor::entries).collect();
    let descriptors: Vec<_> = entries.iter().map(|entries| bare_descriptor(entries)).collect();
    let (hits_addend, timeout, trace) = (0, None, TraceContext::default());
    let request = descriptor::Request {
        domain,
        descriptors: &descriptors,
        hits_addend,
        timeout,
        trace,
        must_decide: None,
    };
    request.validate(bounds)
}

/// A descriptor of `entries` without any other field.
fn bare_descriptor<'a>(entries: &'a [descriptor::Entry<'a>]) -> Descriptor<'a> {
    Descriptor { entries, limit: None, hits_addend: None, is_negative_hits: false }
}
