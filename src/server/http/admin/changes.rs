//! `/changes`: lists, makes and ends temporary changes.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::header::CACHE_CONTROL;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get};
use axum::{Extension, Json, Router};

use super::{AdminApi, ChangeError, refusal};
use crate::client_address::ClientAddress;
use crate::server::http::body;
use crate::server::http::page::{Page, Pages};

/// Largest request body in bytes.
const BODY_BYTES_MAX: usize = 16 << 10;

/// The header with the name of the person or program that changes something. The token grants access to
/// all of them, so the name is not checked.
const USER: &str = "x-weir-user";

type ChangesState<A> = State<(Arc<A>, Pages)>;

pub(super) fn router<A: AdminApi>(api: Arc<A>, pages: Pages) -> Router {
    Router::new()
        .route("/changes", get(list::<A>).patch(make::<A>))
        .route("/changes/{id}", delete(end::<A>))
        .with_state((api, pages))
}

async fn list<A: AdminApi>(State((api, pages)): ChangesState<A>) -> Response {
    pages.answer(move || Page::json(StatusCode::OK, &api.changes())).await
}

async fn make<A: AdminApi>(
    State((api, pages)): ChangesState<A>,
    Extension(address): Extension<ClientAddress>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let read = body::read(body, BODY_BYTES_MAX, pages.permits(), Some(address)).await;
    match read {
        Ok((body, _permit)) => answer(api.make_change(&body, &caller(&headers, address)).await),
        Err(error) => {
            let fix = "a change has one rule or descriptor";
            body::refused(error, BODY_BYTES_MAX, fix, refusal)
        }
    }
}

async fn end<A: AdminApi>(
    State((api, _)): ChangesState<A>,
    Extension(address): Extension<ClientAddress>,
    headers: HeaderMap,
    Path(id): Path<String>,
) -> Response {
    answer(api.end_change(&id, &caller(&headers, address)).await)
}

/// Who sent a request, for the audit log: the name that it gives, or its address.
pub(super) fn caller(headers: &HeaderMap, address: ClientAddress) -> String {
    let name = headers.get(USER).map(|value| String::from_utf8_lossy(value.as_bytes()));
    let name = name.as_deref().map(str::trim).filter(|name| !name.is_empty());
    name.map_or_else(|| address.to_string(), str::to_owned)
}

fn answer(result: Result<serde_json::Value, ChangeError>) -> Response {
    match result {
        Ok(json) => ([(CACHE_CONTROL, "no-store")], Json(json)).into_response(),
        Err(error) => {
            let (status, why) = error.into_parts();
            refusal(status, why)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    #[test]
    fn a_caller_is_a_name_or_an_address() {
        let address = ClientAddress::from("10.0.0.1".parse::<IpAddr>().expect("an address"));
        for (sent, shown) in [
            (None, "10.0.0.1"),
            (Some(&b"ann@example.org"[..]), "ann@example.org"),
            (Some(&b" ann "[..]), "ann"),
            (Some(&b" "[..]), "10.0.0.1"),
            (Some(&b"gr\xfcn"[..]), "gr\u{fffd}n"),
        ] {
            let mut headers = HeaderMap::new();
            if let Some(sent) = sent {
                headers.insert(USER, sent.try_into().expect("a value"));
            }
            assert_eq!(caller(&headers, address), shown, "{sent:?}");
        }
    }
}
