//! The metrics listener, for scrapers without access to the admin port.

use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use axum::Router;
use axum::routing::get;
use tokio::net;

use super::admin::AdminApi;
use super::http1;
use super::page::{Page, Pages};
use crate::server::lifecycle::Lifecycle;
use crate::server::metrics::ServerMetrics;
use crate::server::{run_to_end, single_threaded_runtime};
use crate::settings::HttpSettings;

/// Starts the thread that serves the metrics of `api` at `path` until the server stops.
pub(in crate::server) fn start<A: AdminApi>(
    listener: TcpListener,
    path: &str,
    api: Arc<A>,
    pages: Pages,
    limits: HttpSettings,
    metrics: Arc<ServerMetrics>,
    lifecycle: Lifecycle,
) -> io::Result<JoinHandle<io::Result<()>>> {
    let page = move || pages.answer(move || Page::metrics(api.metrics()));
    let routes = Router::new().route(path, get(page));
    let runtime = single_threaded_runtime()?;
    thread::Builder::new().name("weir-metrics".into()).spawn(move || {
        run_to_end(runtime, async {
            let listener = net::TcpListener::from_std(listener)?;
            http1::serve(listener, routes, limits, (&metrics, |all| &all.metrics), &lifecycle)
                .await;
            Ok(())
        })
    })
}
