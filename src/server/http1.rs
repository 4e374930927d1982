//! An HTTP/1 server that slow, idle and hostile clients cannot pin.
//!
//! Every step has a bound: the head, the request, the connection's life, and their number, in all
//! and of one address.

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
use super::counters::{Counters, Port};
use super::lifecycle::{Lifecycle, Phase};
use super::peers::Peers;
use super::settings::HttpLimits;

/// Serves `router` on `listener` until the server stops, then gives open requests
/// [`HttpLimits::request_timeout`] to finish.
pub(super) async fn serve(
    listener: TcpListener,
    router: Router,
    limits: HttpLimits,
    (counters, port): (&Arc<Counters>, fn(&Counters) -> &Port),
    life: &Lifecycle,
) {
    let bound = (limits.request_timeout, Arc::clone(counters));
    let router = router.layer(from_fn_with_state(bound, within));
    let places = Arc::new(Semaphore::new(limits.max_connections));
    let peers = Peers::new(limits.max_connections_per_peer);
    let take = |stream, address| {
        port(counters).accepted.add();
        // Without a place the connection is closed here.
        let Some(peer) = peers.take(address) else {
            return port(counters).peer_full.add();
        };
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
            return port(counters).full.add();
        };
        let (router, life, counters) = (router.clone(), life.clone(), Arc::clone(counters));
        port(&counters).open.add();
        tokio::spawn(async move {
            connection(stream, router, limits, &counters, life.reached(Phase::Stopping)).await;
            port(&counters).open.subtract();
            drop((place, peer));
        });
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
    counters: &Counters,
    stopping: impl Future<Output = ()>,
) {
    let connection = Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head_timeout)
        .max_buf_size(limits.max_head_bytes)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let mut connection = pin!(connection);
    tokio::select! {
        result = connection.as_mut() => return account(counters, result),
        () = stopping => {}
        () = tokio::time::sleep(limits.max_connection_age) => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = tokio::time::timeout(limits.request_timeout, connection).await;
}

/// Counts what a client could not get right in time or in size. How else it ended is its business.
fn account(counters: &Counters, result: Result<(), hyper::Error>) {
    match result {
        Err(error) if error.is_timeout() => counters.http_timeout.add(),
        Err(error) if error.is_parse_too_large() => counters.http_too_large.add(),
        _ => {}
    }
}

/// Ends a request that takes longer than the limit: its body comes too slowly.
async fn within(
    State((limit, counters)): State<(Duration, Arc<Counters>)>,
    request: Request,
    next: Next,
) -> Response {
    let Ok(response) = tokio::time::timeout(limit, next.run(request)).await else {
        counters.http_timeout.add();
        return (StatusCode::REQUEST_TIMEOUT, "the request took too long\n").into_response();
    };
    if response.status() == StatusCode::PAYLOAD_TOO_LARGE {
        counters.http_too_large.add();
    }
    response
}
