//! An HTTP/1 server that slow, idle and hostile clients cannot pin.
//!
//! Every step has a bound: the head, the request, the connection's life, and their number.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use hyper::server::conn::http1::Builder;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use super::accept;
use super::lifecycle::{Lifecycle, Phase};
use super::settings::HttpLimits;

/// The largest head of a request, in bytes.
const HEAD_BYTES: usize = 32 * 1024;

/// Serves `router` on `listener` until the server stops, then gives open requests
/// [`HttpLimits::request_timeout`] to finish.
pub(super) async fn serve(
    listener: TcpListener,
    router: Router,
    limits: HttpLimits,
    life: &Lifecycle,
) {
    let router = router.layer(from_fn_with_state(limits.request_timeout, within));
    let places = Arc::new(Semaphore::new(limits.max_connections));
    let take = |stream| {
        // Without a place the connection is closed here.
        if let Ok(place) = Arc::clone(&places).try_acquire_owned() {
            let (router, life) = (router.clone(), life.clone());
            tokio::spawn(async move {
                connection(stream, router, limits, life.reached(Phase::Stopping)).await;
                drop(place);
            });
        }
    };
    tokio::select! {
        () = accept::accept(listener, take) => {}
        () = life.reached(Phase::Stopping) => {}
    }
    let all = u32::try_from(limits.max_connections).unwrap_or(u32::MAX);
    let _ = tokio::time::timeout(limits.request_timeout, places.acquire_many(all)).await;
}

async fn connection(
    stream: TcpStream,
    router: Router,
    limits: HttpLimits,
    stopping: impl Future<Output = ()>,
) {
    let connection = Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head_timeout)
        .max_buf_size(HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let mut connection = pin!(connection);
    tokio::select! {
        // How it ended is the client's business.
        _ = connection.as_mut() => return,
        () = stopping => {}
        () = tokio::time::sleep(limits.max_connection_age) => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = tokio::time::timeout(limits.request_timeout, connection).await;
}

/// Ends a request that takes longer than `limit`: its body comes too slowly.
async fn within(State(limit): State<Duration>, request: Request, next: Next) -> Response {
    match tokio::time::timeout(limit, next.run(request)).await {
        Ok(response) => response,
        Err(_) => (StatusCode::REQUEST_TIMEOUT, "the request took too long\n").into_response(),
    }
}
