//! The front: the one thread that accepts connections, serves HTTP and admin, and leads the end.

use std::io;
use std::net::{IpAddr, TcpListener};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use axum::Router;
use tokio::net;
use tokio::sync::watch;

use super::cores::{self, StopAll};
use super::counters::Counters;
use super::deal::Dealer;
use super::health::Reporter;
use super::lifecycle::{Lifecycle, Phase};
use super::settings::HttpLimits;
use super::{accept, http1};

/// Everything that the front looks after.
pub(super) struct Front {
    pub(super) grpc: (TcpListener, Dealer),
    pub(super) http: (TcpListener, Router, HttpLimits),
    pub(super) admin: (TcpListener, Router, HttpLimits),
    pub(super) reporter: Reporter,
    pub(super) counters: Arc<Counters>,
    pub(super) life: Lifecycle,
    pub(super) shutdown: watch::Receiver<bool>,
    /// From "not serving" to the end of accepting.
    pub(super) delay: Duration,
}

impl Front {
    /// Starts the thread.
    pub(super) fn start(self) -> io::Result<JoinHandle<io::Result<()>>> {
        let runtime = cores::runtime()?;
        thread::Builder::new().name("weir-front".into()).spawn(move || {
            let _last = StopAll(self.life.clone());
            runtime.block_on(self.serve())
        })
    }

    async fn serve(self) -> io::Result<()> {
        let (grpc, dealer) = self.grpc;
        let (http, http_routes, http_limits) = self.http;
        let (admin, admin_routes, admin_limits) = self.admin;
        let grpc = net::TcpListener::from_std(grpc)?;
        let http = net::TcpListener::from_std(http)?;
        let admin = net::TcpListener::from_std(admin)?;
        let (life, counters) = (&self.life, &self.counters);
        // Before the first connection, so that nobody is told "serving" too early.
        self.reporter.start().await;
        tokio::join!(
            end(life, self.shutdown, self.delay),
            self.reporter.follow(life),
            deal(grpc, dealer, life),
            http1::serve(http, http_routes, http_limits, (counters, |all| &all.http), life),
            http1::serve(admin, admin_routes, admin_limits, (counters, |all| &all.admin), life),
        );
        Ok(())
    }
}

/// Waits for the order to stop, and leads through the phases.
async fn end(life: &Lifecycle, mut shutdown: watch::Receiver<bool>, delay: Duration) {
    let in_order = async {
        // A sender that is gone cannot ask any more; it has asked by going.
        let _ = shutdown.wait_for(|stop| *stop).await;
        life.advance(Phase::Draining);
        tokio::time::sleep(delay).await;
        life.advance(Phase::Stopping);
    };
    tokio::select! {
        () = in_order => {}
        () = life.reached(Phase::Stopping) => {}
    }
}

/// Accepts and deals until the server stops. Then the dealer is dropped, which tells the cores.
async fn deal(listener: net::TcpListener, dealer: Dealer, life: &Lifecycle) {
    let take = |stream: net::TcpStream, peer: IpAddr| {
        // Leaves this runtime here, and joins its core's when that picks it up.
        let dealt = stream.into_std().is_ok_and(|stream| dealer.deal(stream, peer));
        if !dealt {
            tracing::debug!("closed a connection: there are too many");
        }
    };
    tokio::select! {
        () = accept::accept(listener, take) => {}
        () = life.reached(Phase::Stopping) => {}
    }
}
