//! `/counters`: what one counter says, and how it is emptied. For those who may.

use std::sync::Arc;

use axum::extract::{Query, Request, State};
use axum::http::StatusCode;
use axum::http::header::{AUTHORIZATION, CACHE_CONTROL};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde::Deserialize;

use super::{AdminView, NotShown, Token, explain, refusal};
use crate::descriptor::{Bounds, Typed};
use crate::server::settings::Settings;

/// Which counter.
#[derive(Deserialize)]
struct Which {
    domain: String,
    descriptor: String,
}

type Shared<V> = State<(Arc<V>, Bounds)>;

pub(super) fn router<V: AdminView>(view: Arc<V>, settings: &Settings, loopback: bool) -> Router {
    let access = Access { token: settings.admin.token.clone(), loopback };
    Router::new()
        .route("/counters", get(show::<V>).delete(forget::<V>))
        .route_layer(from_fn_with_state(access, only_who_may))
        .with_state((view, settings.bounds))
}

/// Who may see and empty counters: whoever has the token; without one, this machine.
#[derive(Clone)]
struct Access {
    token: Option<Token>,
    loopback: bool,
}

async fn only_who_may(State(access): State<Access>, request: Request, next: Next) -> Response {
    let refused = match access.token {
        None if access.loopback => return next.run(request).await,
        None => "this port is open beyond this machine, and no token is set: set admin.token_file \
                 or admin.token, or listen on loopback"
            .to_owned(),
        Some(token) => {
            let header = request.headers().get(AUTHORIZATION);
            let Some(header) = header.map(|value| value.as_bytes().to_vec()) else {
                let reason = "send the token of admin.token: `Authorization: Bearer TOKEN`";
                return refusal(StatusCode::FORBIDDEN, reason);
            };
            // A file may be slow, and this thread also accepts connections.
            match tokio::task::spawn_blocking(move || token.is_in(&header)).await {
                Ok(Ok(())) => return next.run(request).await,
                Ok(Err(reason)) => reason,
                Err(error) => error.to_string(),
            }
        }
    };
    refusal(StatusCode::FORBIDDEN, refused)
}

async fn show<V: AdminView>(State((view, bounds)): Shared<V>, which: Asked) -> Response {
    match read(which, &bounds) {
        Ok((domain, descriptor)) => answer(view.counter(&domain, &descriptor).await),
        Err(reason) => refusal(StatusCode::BAD_REQUEST, reason),
    }
}

async fn forget<V: AdminView>(State((view, bounds)): Shared<V>, which: Asked) -> Response {
    match read(which, &bounds) {
        Ok((domain, descriptor)) => answer(view.forget(&domain, &descriptor).await),
        Err(reason) => refusal(StatusCode::BAD_REQUEST, reason),
    }
}

type Asked = Result<Query<Which>, axum::extract::rejection::QueryRejection>;

fn read(which: Asked, bounds: &Bounds) -> Result<(String, Typed), String> {
    let Query(Which { domain, descriptor }) = which.map_err(|error| {
        format!("write ?domain=D&descriptor=key=value,key=value: {}", error.body_text())
    })?;
    let typed = [descriptor.parse::<Typed>()?];
    explain::validate(&domain, &typed, bounds).map_err(|error| error.to_string())?;
    let [typed] = typed;
    Ok((domain, typed))
}

fn answer(shown: Result<serde_json::Value, NotShown>) -> Response {
    match shown {
        Ok(value) => ([(CACHE_CONTROL, "no-store")], Json(value)).into_response(),
        Err(NotShown::NoCounter(why)) => refusal(StatusCode::NOT_FOUND, why),
        Err(NotShown::Store(why)) => refusal(StatusCode::SERVICE_UNAVAILABLE, why),
    }
}
