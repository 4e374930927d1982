//! A listener for metrics alone: for scrapers that must not reach the admin port.

use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use axum::Router;
use axum::routing::get;
use tokio::net;

use super::counters::Counters;
use super::lifecycle::Lifecycle;
use super::pages::Pages;
use super::settings::HttpLimits;
use super::{cores, http1};

/// Starts the thread that serves `path` on `listener` until the server stops.
pub(super) fn start(
    listener: TcpListener,
    path: &str,
    pages: Pages,
    limits: HttpLimits,
    counters: Arc<Counters>,
    life: Lifecycle,
) -> io::Result<JoinHandle<io::Result<()>>> {
    let routes = Router::new().route(path, get(move || pages.answer()));
    let runtime = cores::runtime()?;
    thread::Builder::new().name("weir-scrape".into()).spawn(move || {
        runtime.block_on(async {
            let listener = net::TcpListener::from_std(listener)?;
            http1::serve(listener, routes, limits, (&counters, |all| &all.metrics), &life).await;
            Ok(())
        })
    })
}
