//! The cores: one thread with one single-threaded runtime each, serving gRPC.
//!
//! A connection stays on the core it was dealt to, so nothing is ever handed between threads on a
//! request's way; that serves clearly more calls per CPU second than one runtime over all cores.

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::{io, num::NonZero};

use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tonic::service::Routes;

use super::calls::Calls;
use super::connection::open_by;
use super::deal::Dealt;
use super::decide::Decide;
use super::http2::Shared;
use super::lifecycle::{Lifecycle, Phase};
use super::rls::Rls;
use super::settings::Settings;
use super::upload::Uploads;

/// What every core serves, and until when.
pub(super) struct Work<D> {
    pub(super) decider: Arc<D>,
    pub(super) routes: Routes,
    pub(super) uploads: Arc<Uploads>,
    pub(super) settings: Settings,
    pub(super) life: Lifecycle,
}

impl<D> Clone for Work<D> {
    fn clone(&self) -> Work<D> {
        Work {
            decider: Arc::clone(&self.decider),
            routes: self.routes.clone(),
            uploads: Arc::clone(&self.uploads),
            settings: self.settings.clone(),
            life: self.life.clone(),
        }
    }
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
pub(super) fn start<D: Decide>(
    index: usize,
    queue: mpsc::Receiver<Dealt>,
    work: Work<D>,
) -> io::Result<JoinHandle<io::Result<()>>> {
    let runtime = runtime()?;
    thread::Builder::new().name(format!("weir-core-{index}")).spawn(move || {
        // One core less would go unnoticed for days: an instance that loses one stops, and whoever
        // keeps it running starts a whole one.
        let _last = StopAll(work.life.clone());
        runtime.block_on(serve(queue, work));
        Ok(())
    })
}

/// Stops the whole server when its thread ends, for whatever reason.
pub(super) struct StopAll(pub(super) Lifecycle);

impl Drop for StopAll {
    fn drop(&mut self) {
        self.0.advance(Phase::Stopping);
    }
}

async fn serve<D: Decide>(queue: mpsc::Receiver<Dealt>, work: Work<D>) {
    let Work { decider, routes, uploads, settings, life } = work;
    let timeout = settings.drain.timeout;
    let drain_expired = async {
        life.reached(Phase::Stopping).await;
        tokio::time::sleep(timeout).await;
    };
    let shared = Arc::new(Shared {
        calls: Calls {
            rls: Arc::new(Rls {
                decider,
                bounds: settings.bounds,
                max_message_bytes: settings.grpc.max_message_bytes,
                uploads: Arc::clone(&uploads),
                counters: settings.counters.clone(),
            }),
            routes: routes.prepare(),
            uploads,
            counters: settings.counters.clone(),
            timeout: settings.grpc.call_timeout,
        },
        handshakes: Arc::new(Semaphore::new(settings.grpc.max_handshakes)),
        counters: settings.counters,
        settings: settings.grpc,
        life: life.clone(),
    });
    tokio::select! {
        () = connections(queue, shared) => {}
        () = drain_expired => {
            tracing::warn!(?timeout, "calls were still in flight at the end of the drain");
        }
    }
}

/// Serves what comes out of `queue`, each connection in a task of its own, until the queue has ended
/// and they have.
async fn connections<D: Decide>(mut queue: mpsc::Receiver<Dealt>, shared: Arc<Shared<D>>) {
    let mut open = JoinSet::new();
    loop {
        tokio::select! {
            dealt = queue.recv() => {
                // The queue's end is the signal: connections accepted before it are still served.
                let Some(Dealt { stream, seat }) = dealt else { break };
                let by = open_by(shared.settings.handshake_timeout);
                let shared = Arc::clone(&shared);
                open.spawn(async move {
                    shared.serve(stream, by).await;
                    drop(seat);
                });
            }
            Some(_) = open.join_next(), if !open.is_empty() => {}
        }
    }
    while open.join_next().await.is_some() {}
}
