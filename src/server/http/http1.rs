//! An HTTP/1 server that slow, idle and hostile clients cannot exhaust.
//!
//! Limits apply to the request head, the request, the age of a connection, and the number of
//! connections, in total and per address.

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

use crate::server::lifecycle::{Lifecycle, Phase};
use crate::server::listener::accept;
use crate::server::listener::per_peer::PerPeerLimit;
use crate::server::metrics::{ListenerMetrics, ServerMetrics};
use crate::settings::HttpSettings;

/// Serves `router` on `listener` until the server stops, then gives open requests
/// [`HttpSettings::request_timeout`] to finish.
pub(in crate::server) async fn serve(
    listener: TcpListener,
    router: Router,
    limits: HttpSettings,
    (metrics, listener_metrics): (&Arc<ServerMetrics>, fn(&ServerMetrics) -> &ListenerMetrics),
    lifecycle: &Lifecycle,
) {
    let bound = (limits.request_timeout, Arc::clone(metrics));
    let router = router.layer(from_fn_with_state(bound, limit_time));
    let permits = Arc::new(Semaphore::new(limits.max_connections));
    let per_peer = PerPeerLimit::new(limits.max_connections_per_peer);
    let take = |stream, address| {
        listener_metrics(metrics).accepted.add();
        // Without a permit, the closure returns and drops the stream, which closes it.
        let Some(peer_permit) = per_peer.try_acquire(address) else {
            return listener_metrics(metrics).refused_peer.add();
        };
        let Ok(permit) = Arc::clone(&permits).try_acquire_owned() else {
            return listener_metrics(metrics).refused_total.add();
        };
        let (router, lifecycle, metrics) = (router.clone(), lifecycle.clone(), Arc::clone(metrics));
        let limits = limits.clone();
        listener_metrics(&metrics).open.add();
        tokio::spawn(async move {
            connection(stream, router, limits, &metrics, lifecycle.reached(Phase::Stopping)).await;
            listener_metrics(&metrics).open.subtract();
            drop((permit, peer_permit));
        });
    };
    tokio::select! {
        () = accept::accept(listener, take) => {}
        () = lifecycle.reached(Phase::Stopping) => {}
    }
    // All permits are free once every connection has ended.
    let all = u32::try_from(limits.max_connections).unwrap_or(u32::MAX);
    let _ = tokio::time::timeout(limits.request_timeout, permits.acquire_many(all)).await;
}

async fn connection(
    stream: TcpStream,
    router: Router,
    limits: HttpSettings,
    metrics: &ServerMetrics,
    stopping: impl Future<Output = ()>,
) {
    let connection = Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head_timeout)
        .max_buf_size(limits.max_head_bytes)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let mut connection = pin!(connection);
    tokio::select! {
        result = connection.as_mut() => return count_error(metrics, result),
        () = stopping => {}
        () = tokio::time::sleep(limits.max_connection_age) => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = tokio::time::timeout(limits.request_timeout, connection).await;
}

/// Counts a request head that was too slow or too large. Other errors only mean a closed
/// connection.
fn count_error(metrics: &ServerMetrics, result: Result<(), hyper::Error>) {
    match result {
        Err(error) if error.is_timeout() => metrics.http_timeout.add(),
        Err(error) if error.is_parse_too_large() => metrics.http_too_large.add(),
        _ => {}
    }
}

/// Ends a request with 408 at the time limit, such as one whose body arrives too slowly.
async fn limit_time(
    State((limit, metrics)): State<(Duration, Arc<ServerMetrics>)>,
    request: Request,
    next: Next,
) -> Response {
    let Ok(response) = tokio::time::timeout(limit, next.run(request)).await else {
        metrics.http_timeout.add();
        return (StatusCode::REQUEST_TIMEOUT, "request exceeded http.request_timeout\n")
            .into_response();
    };
    if response.status() == StatusCode::PAYLOAD_TOO_LARGE {
        metrics.http_too_large.add();
    }
    response
}
