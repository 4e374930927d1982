//! The acceptor thread: accepts gRPC, HTTP and admin connections, and serves HTTP and admin.

use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use axum::Router;
use tokio::net;
use tokio::sync::watch;

use super::grpc::tonic_services::health::Reporter;
use super::http::http1;
use super::lifecycle::{Lifecycle, Phase, StopOnExit};
use super::listener::accept;
use super::listener::balance::LeastConnections;
use super::metrics::ServerMetrics;
use super::{run_to_end, single_threaded_runtime};
use crate::client_address::ClientAddress;
use crate::settings::HttpSettings;

/// What the acceptor thread owns: listeners, routes, health and shutdown.
pub(super) struct Acceptor {
    pub(super) grpc: (TcpListener, LeastConnections),
    pub(super) http: (TcpListener, Router, HttpSettings),
    pub(super) admin: (TcpListener, Router, HttpSettings),
    pub(super) reporter: Reporter,
    pub(super) metrics: Arc<ServerMetrics>,
    pub(super) lifecycle: Lifecycle,
    pub(super) shutdown: watch::Receiver<bool>,
    /// Time from the first "not serving" until the ports close (`drain.delay`).
    pub(super) delay: Duration,
}

impl Acceptor {
    /// Starts the thread.
    pub(super) fn start(self) -> io::Result<JoinHandle<io::Result<()>>> {
        let runtime = single_threaded_runtime()?;
        thread::Builder::new().name("weir-acceptor".into()).spawn(move || {
            let _last = StopOnExit(self.lifecycle.clone());
            run_to_end(runtime, self.serve())
        })
    }

    async fn serve(self) -> io::Result<()> {
        let (grpc, balancer) = self.grpc;
        let (http, http_routes, http_limits) = self.http;
        let (admin, admin_routes, admin_limits) = self.admin;
        let grpc = net::TcpListener::from_std(grpc)?;
        let http = net::TcpListener::from_std(http)?;
        let admin = net::TcpListener::from_std(admin)?;
        let (lifecycle, metrics) = (&self.lifecycle, &self.metrics);
        tokio::join!(
            lifecycle.drain(self.shutdown, self.delay),
            self.reporter.follow(lifecycle),
            assign(grpc, balancer, lifecycle),
            http1::serve(http, http_routes, http_limits, (metrics, |all| &all.http), lifecycle),
            http1::serve(admin, admin_routes, admin_limits, (metrics, |all| &all.admin), lifecycle),
        );
        Ok(())
    }
}

/// Accepts connections and assigns them to workers until the server stops. Dropping the balancer
/// then closes the queues.
async fn assign(listener: net::TcpListener, balancer: LeastConnections, lifecycle: &Lifecycle) {
    let take = |stream: net::TcpStream, peer: ClientAddress| {
        // Deregisters the socket from this runtime. The worker registers it with its own.
        let assigned = stream.into_std().is_ok_and(|stream| balancer.assign(stream, peer));
        if !assigned {
            tracing::debug!("connection closed: too many are open");
        }
    };
    tokio::select! {
        () = accept::accept(listener, take) => {}
        () = lifecycle.reached(Phase::Stopping) => {}
    }
}
