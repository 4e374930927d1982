//! The metrics listener, for scrapers without access to the admin port.

use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use axum::Router;
use axum::routing::get;
use tokio::net;

use super::http1;
use super::metrics_page::MetricsPages;
use crate::server::lifecycle::Lifecycle;
use crate::server::metrics::ServerMetrics;
use crate::server::{run_to_end, single_threaded_runtime};
use crate::settings::HttpSettings;

/// Starts the thread that serves `path` on `listener` until the server stops.
pub(in crate::server) fn start(
    listener: TcpListener,
    path: &str,
    pages: MetricsPages,
    limits: HttpSettings,
    metrics: Arc<ServerMetrics>,
    lifecycle: Lifecycle,
) -> io::Result<JoinHandle<io::Result<()>>> {
    let routes = Router::new().route(path, get(move || pages.answer()));
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
