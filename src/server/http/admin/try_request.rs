//! `POST /try`: what a request would be answered now. Nothing is taken.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::{ALLOW, CACHE_CONTROL};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Extension, Router};
use serde::Deserialize;

use super::explain::{self, Written};
use super::{AdminApi, refusal};
use crate::client_address::ClientAddress;
use crate::descriptor::{ParsedDescriptor, RequestBounds};
use crate::limit::{HITS_END, TierNumbers};
use crate::server::http::page::{Page, Pages};
use crate::server::http::{body, permits};

/// Largest request body in bytes.
const BODY_BYTES_MAX: usize = 256 << 10;

/// The most descriptors of one request. Each is explained, and reads its counter.
const DESCRIPTORS_MAX: usize = 16;

/// A request to try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TryQuery {
    /// The domain.
    pub domain: String,
    /// The descriptors, at least one, within the bounds of requests.
    pub descriptors: Vec<ParsedDescriptor>,
    /// The hits of each descriptor, below 2^53. 0 peeks.
    pub hits: u64,
    /// Other numbers to decide by besides, one item per tier.
    pub limit: Option<Vec<TierNumbers>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TryBody {
    domain: String,
    #[serde(default)]
    descriptor: Option<Written>,
    #[serde(default)]
    descriptors: Vec<Written>,
    #[serde(default = "one")]
    hits: u64,
    #[serde(default)]
    limit: Option<TryLimit>,
}

fn one() -> u64 {
    1
}

/// The numbers of the only tier, or of each tier.
#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "write `limit` as {\"requests\": N, \"burst\": N}, or as a list of one per tier"
)]
enum TryLimit {
    // First, because serde also reads a struct from a list.
    PerTier(Vec<TryTier>),
    One(TryTier),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TryTier {
    requests: u64,
    #[serde(default)]
    burst: Option<u64>,
}

impl From<TryTier> for TierNumbers {
    fn from(TryTier { requests, burst }: TryTier) -> TierNumbers {
        TierNumbers { requests, burst }
    }
}

type TryState<A> = State<(Arc<A>, Pages, RequestBounds)>;

pub(super) fn router<A: AdminApi>(api: Arc<A>, pages: Pages, bounds: RequestBounds) -> Router {
    let attempt = post(attempt::<A>).get(needs_post);
    Router::new().route("/try", attempt).with_state((api, pages, bounds))
}

async fn needs_post() -> Response {
    let reason = r#"use POST with the body {"domain": "D", "descriptor": "key=value", "hits": 1}"#;
    ([(ALLOW, "POST")], refusal(StatusCode::METHOD_NOT_ALLOWED, reason)).into_response()
}

async fn attempt<A: AdminApi>(
    State((api, pages, bounds)): TryState<A>,
    Extension(address): Extension<ClientAddress>,
    body: Body,
) -> Response {
    let read = body::read(body, BODY_BYTES_MAX, pages.permits(), Some(address)).await;
    let (body, _body_permit) = match read {
        Ok(read) => read,
        Err(error) => {
            let fix = "send fewer descriptors in one request";
            return body::refused(error, BODY_BYTES_MAX, fix, refusal);
        }
    };
    let query = match query(&body, &bounds) {
        Ok(query) => query,
        Err(reason) => return refusal(StatusCode::BAD_REQUEST, reason),
    };
    let Some(permit) = pages.permits().try_acquire(None) else { return permits::busy() };
    let rest = api.try_request(query).await;
    let page = pages.answer_with(permit, move || Page::json(StatusCode::OK, &rest())).await;
    ([(CACHE_CONTROL, "no-store")], page).into_response()
}

/// The query in a body.
fn query(body: &[u8], bounds: &RequestBounds) -> Result<TryQuery, String> {
    let body: TryBody = serde_json::from_slice(body).map_err(|error| {
        format!(
            "write {{\"domain\": \"D\", \"descriptor\": \"key=value\", \"hits\": 1}}, with \
             \"limit\": {{\"requests\": N}} to compare: {error}"
        )
    })?;
    let written = body.descriptor.into_iter().chain(body.descriptors);
    let descriptors: Result<Vec<_>, String> = written.map(Written::descriptor).collect();
    let descriptors = descriptors?;
    explain::validate(&body.domain, &descriptors, bounds).map_err(|error| error.to_string())?;
    if descriptors.len() > DESCRIPTORS_MAX {
        let sent = descriptors.len();
        return Err(format!(
            "{sent} descriptors in one request, more than {DESCRIPTORS_MAX}; send fewer"
        ));
    }
    if body.hits >= HITS_END {
        return Err(format!("hits: {} is too large; it must be below 2^53", body.hits));
    }
    let limit = body.limit.map(|limit| match limit {
        TryLimit::One(tier) => vec![tier.into()],
        TryLimit::PerTier(tiers) => tiers.into_iter().map(TierNumbers::from).collect(),
    });
    Ok(TryQuery { domain: body.domain, descriptors, hits: body.hits, limit })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_bounded() {
        let bounds = RequestBounds { max_descriptors: 99, max_entries: 4, max_text_bytes: 100 };
        let read = |text: &str| query(text.as_bytes(), &bounds);
        let simple = read(r#"{"domain":"d","descriptor":"k=v"}"#).expect("a query");
        assert_eq!((simple.hits, simple.descriptors.len(), simple.limit), (1, 1, None));
        let limit = read(r#"{"domain":"d","descriptor":"k=v","limit":{"requests":5}}"#);
        let numbers = TierNumbers { requests: 5, burst: None };
        assert_eq!(limit.expect("a query").limit, Some(vec![numbers]));
        assert!(read(r#"{"domain":"d","descriptor":"k=v","hits":9007199254740991}"#).is_ok());
        let many = vec!["\"k=v\""; DESCRIPTORS_MAX + 1].join(",");
        let over = format!(r#"{{"domain":"d","descriptors":[{many}]}}"#);
        for (body, why) in [
            (r#"{"domain":"d","descriptor":"k=v","hits":9007199254740992}"#, "below 2^53"),
            (r#"{"domain":"d"}"#, "descriptors must not be empty"),
            (r#"{"domain":"","descriptor":"k=v"}"#, "domain must not be empty"),
            (r#"{"domain":"d","descriptor":"k"}"#, "has no value"),
            (r#"{"domain":"d","descriptor":"k=v","hits":-1}"#, "write {"),
            (r#"{"domain":"d","descriptor":"k=v","limit":{"max":1}}"#, "write {"),
            (over.as_str(), "send fewer"),
        ] {
            let error = read(body).expect_err(body);
            assert!(error.contains(why), "{body}: {error}");
        }
    }
}
