//! The cores: one thread with one single-threaded runtime each, serving gRPC.
//!
//! A connection stays on the core it was dealt to, so nothing is ever handed between threads on a
//! request's way; that serves clearly more calls per CPU second than one runtime over all cores.

use std::thread::{self, JoinHandle};
use std::{io, num::NonZero};

use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::service::Routes;
use tonic::transport::Server;

use super::connection::{Connection, Times};
use super::deal::Dealt;
use super::lifecycle::{Lifecycle, Phase};
use super::settings::{Grpc, Settings};

/// What every core serves, and until when.
#[derive(Clone)]
pub(super) struct Work {
    pub(super) routes: Routes,
    pub(super) settings: Settings,
    pub(super) life: Lifecycle,
}

/// As many cores as the settings say, else as this process may use.
pub fn count(settings: &Settings) -> usize {
    let available = || thread::available_parallelism().map_or(1, NonZero::get);
    settings.cores.unwrap_or_else(available).max(1)
}

/// A single-threaded runtime with network and time.
pub(super) fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}

/// Starts core number `index`, which serves the connections of `queue` until it is closed.
pub(super) fn start(
    index: usize,
    queue: mpsc::Receiver<Dealt>,
    work: Work,
) -> io::Result<JoinHandle<io::Result<()>>> {
    let runtime = runtime()?;
    thread::Builder::new().name(format!("weir-core-{index}")).spawn(move || {
        // One core less would go unnoticed for days: an instance that loses one stops, and whoever
        // keeps it running starts a whole one.
        let _last = StopAll(work.life.clone());
        runtime.block_on(serve(queue, work))
    })
}

/// Stops the whole server when its thread ends, for whatever reason.
pub(super) struct StopAll(pub(super) Lifecycle);

impl Drop for StopAll {
    fn drop(&mut self) {
        self.0.advance(Phase::Stopping);
    }
}

async fn serve(queue: mpsc::Receiver<Dealt>, work: Work) -> io::Result<()> {
    let times = times(&work.settings.grpc);
    let incoming = ReceiverStream::new(queue).map(move |dealt| Connection::open(dealt, times));
    // The queue's end is the signal: connections that were accepted before it are still served.
    let serving = server(&work.settings.grpc)
        .add_routes(work.routes)
        .serve_with_incoming_shutdown(incoming, std::future::pending());
    let patience = work.settings.drain.timeout;
    let out_of_patience = async {
        work.life.reached(Phase::Stopping).await;
        tokio::time::sleep(patience).await;
    };
    tokio::select! {
        result = serving => result.map_err(io::Error::other),
        () = out_of_patience => {
            tracing::warn!(?patience, "calls were still in flight at the end of the drain");
            Ok(())
        }
    }
}

fn server(settings: &Grpc) -> Server {
    // tonic's own grace would skip the goodbye; `Times::life` enforces it instead.
    let server = Server::builder()
        .max_concurrent_streams(settings.max_concurrent_streams)
        .http2_keepalive_interval(Some(settings.keepalive_interval))
        .http2_keepalive_timeout(Some(settings.keepalive_timeout));
    match settings.max_connection_age {
        Some(age) => server.max_connection_age(age),
        None => server,
    }
}

fn times(settings: &Grpc) -> Times {
    let life = settings
        .max_connection_age
        .map(|age| age.saturating_add(settings.max_connection_age_grace));
    Times { handshake: settings.handshake_timeout, life }
}
