//! An HTTP/1 server that slow, idle and hostile clients cannot exhaust.
//!
//! Limits apply to the request head, the request, the progress of its response, the age of a
//! connection, and the number of connections, in total and per address.

use std::convert::Infallible;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1::Builder;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use socket2::SockRef;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use super::awaited_body::AwaitedBody;
use super::host;
use super::io::{LongResponse, ProgressIo};
use crate::server::lifecycle::{Lifecycle, Phase};
use crate::server::listener::accept;
use crate::server::listener::slots::{ConnectionSlots, Slot};
use crate::server::metrics::{ListenerMetrics, ServerMetrics};
use crate::settings::HttpSettings;

/// Bytes of a response that the kernel is asked to buffer; Linux doubles the number. A larger buffer
/// would hide the progress of a slow client, because the kernel reports it in steps of a third.
const SEND_BUFFER_BYTES: usize = 64 << 10;

/// Serves `router` on `listener` until the server stops. Open requests then have
/// [`HttpSettings::request_timeout`] to finish, but at most until the end of the drain.
pub(in crate::server) async fn serve(
    listener: TcpListener,
    router: Router,
    limits: HttpSettings,
    (metrics, listener_metrics): (&Arc<ServerMetrics>, fn(&ServerMetrics) -> &ListenerMetrics),
    lifecycle: &Lifecycle,
) {
    let bound = (limits.request_timeout, Arc::clone(metrics));
    let router = router.layer(from_fn_with_state(bound, limit_time)).layer(from_fn(host::check));
    let slots = ConnectionSlots::new(
        limits.max_connections,
        limits.max_connections_per_peer,
        Arc::clone(metrics),
        listener_metrics,
    );
    // Each connection has a sender. The channel closes when the last connection has ended.
    let (open, mut all_ended) = mpsc::channel::<Infallible>(1);
    let take = |stream, address| {
        listener_metrics(metrics).accepted.add();
        // Without a slot, the closure returns and drops the stream, which closes it.
        let Some(slot) = slots.try_acquire(address) else { return };
        let (router, lifecycle, metrics) = (router.clone(), lifecycle.clone(), Arc::clone(metrics));
        let (limits, open) = (limits.clone(), open.clone());
        tokio::spawn(async move {
            let stopping = lifecycle.reached(Phase::Stopping);
            connection(stream, slot, router, limits, &metrics, stopping).await;
            drop(open);
        });
    };
    tokio::select! {
        () = accept::accept(listener, take) => {}
        () = lifecycle.reached(Phase::Stopping) => {}
    }
    drop(open);
    tokio::select! {
        _ = all_ended.recv() => {}
        () = sleep(limits.request_timeout) => {}
        // The caller then drops the connections that are left.
        () = lifecycle.drain_expired() => {}
    }
}

async fn connection(
    stream: TcpStream,
    slot: Slot,
    router: Router,
    limits: HttpSettings,
    metrics: &Arc<ServerMetrics>,
    stopping: impl Future<Output = ()>,
) {
    let slot = Arc::new(slot);
    let routes = TowerToHyperService::new(router);
    let (counted, long) = (Arc::clone(&slot), LongResponse::default());
    let responses = long.clone();
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        let mut request = request.map(|body| AwaitedBody::new(body, Arc::clone(&counted)));
        request.extensions_mut().insert(counted.address());
        request.extensions_mut().insert(responses.clone());
        let (response, slot) = (routes.call(request), Arc::clone(&counted));
        let long = responses.clone();
        async move {
            let response = response.await;
            match long.is_set() {
                // The number of long responses is bounded, so that they keep no slot from others.
                true => slot.leave(),
                false => slot.begin_wait(),
            }
            response
        }
    });
    // On error, the buffer keeps its size.
    let _ = SockRef::from(&stream).set_send_buffer_size(SEND_BUFFER_BYTES);
    let stream = ProgressIo::new(stream, limits.request_timeout, Arc::clone(metrics));
    let stream = stream.with_long(long.clone());
    let connection = Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head_timeout)
        .max_header_size(limits.max_head_bytes)
        .max_buf_size(limits.max_head_bytes)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    let aged = async {
        sleep(limits.max_connection_age).await;
        if long.is_set() {
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        result = connection.as_mut() => return count_error(metrics, result),
        () = slot.evicted() => return,
        () = stopping => {}
        () = aged => {}
    }
    connection.as_mut().graceful_shutdown();
    tokio::select! {
        _ = timeout(limits.request_timeout, connection) => {}
        () = slot.evicted() => {}
    }
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
    let Ok(response) = timeout(limit, next.run(request)).await else {
        metrics.http_timeout.add();
        return (StatusCode::REQUEST_TIMEOUT, "request exceeded http.request_timeout\n")
            .into_response();
    };
    if response.status() == StatusCode::PAYLOAD_TOO_LARGE {
        metrics.http_too_large.add();
    }
    response
}
