//! The cores: one thread with one single-threaded runtime each, serving gRPC.
//!
//! A connection stays on the core it was accepted to, so nothing is ever handed between threads on a
//! request's way; that serves clearly more calls per CPU second than one runtime over all cores.

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::{io, num::NonZero};

use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tonic::service::Routes;

use super::connection::ConnectionContext;
use super::dispatch::Dispatcher;
use super::io::open_by;
use super::memory_budget::MemoryBudget;
use super::should_rate_limit::ShouldRateLimit;
use crate::server::config::ServerConfig;
use crate::server::lifecycle::{Lifecycle, Phase, StopOnExit};
use crate::server::listener::balance::Accepted;
use crate::server::rls::handler::Decide;
use crate::server::single_threaded_runtime;
use crate::settings::GrpcSettings;

/// What every core serves, and until when.
pub(in crate::server) struct WorkerConfig<D> {
    pub(in crate::server) decider: Arc<D>,
    pub(in crate::server) routes: Routes,
    pub(in crate::server) budget: Arc<MemoryBudget>,
    pub(in crate::server) server: ServerConfig,
    pub(in crate::server) life: Lifecycle,
}

impl<D> Clone for WorkerConfig<D> {
    fn clone(&self) -> WorkerConfig<D> {
        WorkerConfig {
            decider: Arc::clone(&self.decider),
            routes: self.routes.clone(),
            budget: Arc::clone(&self.budget),
            server: self.server.clone(),
            life: self.life.clone(),
        }
    }
}

/// As many cores as the settings say, else as this process may use.
pub fn count(settings: &GrpcSettings) -> usize {
    let available = || thread::available_parallelism().map_or(1, NonZero::get);
    settings.cores.map_or_else(available, NonZero::get)
}

/// Starts core number `index`, which serves the connections of `queue` until it is closed.
pub(in crate::server) fn start<D: Decide>(
    index: usize,
    queue: mpsc::Receiver<Accepted>,
    config: WorkerConfig<D>,
) -> io::Result<JoinHandle<io::Result<()>>> {
    let runtime = single_threaded_runtime()?;
    thread::Builder::new().name(format!("weir-core-{index}")).spawn(move || {
        // One core less would go unnoticed for days: an instance that loses one stops, and whoever
        // keeps it running starts a whole one.
        let _last = StopOnExit(config.life.clone());
        runtime.block_on(serve(queue, config));
        Ok(())
    })
}

async fn serve<D: Decide>(queue: mpsc::Receiver<Accepted>, config: WorkerConfig<D>) {
    let WorkerConfig { decider, routes, budget, server, life } = config;
    let timeout = server.drain.timeout;
    let drain_expired = async {
        life.reached(Phase::Stopping).await;
        tokio::time::sleep(timeout).await;
    };
    let context = Arc::new(ConnectionContext {
        dispatcher: Dispatcher {
            should_rate_limit: Arc::new(ShouldRateLimit {
                decider,
                bounds: server.bounds,
                max_message_bytes: server.grpc.max_message_bytes,
                budget: Arc::clone(&budget),
                metrics: server.server_metrics.clone(),
            }),
            routes: routes.prepare(),
            budget,
            metrics: server.server_metrics.clone(),
            timeout: server.grpc.call_timeout,
        },
        handshakes: Arc::new(Semaphore::new(server.grpc.max_handshakes)),
        metrics: server.server_metrics,
        settings: server.grpc,
        tls: server.tls,
        life: life.clone(),
    });
    tokio::select! {
        () = connections(queue, context) => {}
        () = drain_expired => {
            tracing::warn!(?timeout, "calls were still in flight at the end of the drain");
        }
    }
}

/// Serves what comes out of `queue`, each connection in a task of its own, until the queue has ended
/// and they have.
async fn connections<D: Decide>(
    mut queue: mpsc::Receiver<Accepted>,
    context: Arc<ConnectionContext<D>>,
) {
    let mut open = JoinSet::new();
    loop {
        tokio::select! {
            accepted = queue.recv() => {
                // The queue's end is the signal: connections accepted before it are still served.
                let Some(Accepted { stream, guard }) = accepted else { break };
                let by = open_by(context.settings.handshake_timeout);
                let context = Arc::clone(&context);
                open.spawn(async move {
                    context.serve(stream, by).await;
                    drop(guard);
                });
            }
            Some(_) = open.join_next(), if !open.is_empty() => {}
        }
    }
    while open.join_next().await.is_some() {}
}
