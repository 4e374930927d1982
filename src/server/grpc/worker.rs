//! The gRPC workers: one thread with a single-threaded runtime per core.
//!
//! A connection stays on the worker that it was assigned to, so no request moves between threads.
//! This serves more calls per CPU second than one runtime over all cores.

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::{io, num::NonZero};

use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;

use super::budgeted_handler::BudgetedHandler;
use super::connection::ConnectionContext;
use super::dispatch::Dispatcher;
use super::io::open_by;
use super::memory::budget::MemoryBudget;
use super::rate_limit_quota::QuotaService;
use super::rate_limit_quota::quota_streams::AnyQuotaStreams;
use super::should_rate_limit::ShouldRateLimit;
use super::tonic_services::TonicServices;
use super::tonic_services::health::HealthService;
use crate::server::config::ServerConfig;
use crate::server::lifecycle::{Lifecycle, StopOnExit};
use crate::server::listener::balance::Accepted;
use crate::server::listener::tls::TlsAcceptor;
use crate::server::metrics::ServerMetrics;
use crate::server::rls::handler::Decide;
use crate::server::single_threaded_runtime;
use crate::settings::GrpcSettings;

/// The configuration and shared state of every worker.
pub(in crate::server) struct WorkerConfig<D> {
    pub(in crate::server) decider: Arc<D>,
    /// `None` unless `rlqs.enabled`.
    pub(in crate::server) quotas: Option<Arc<dyn AnyQuotaStreams>>,
    pub(in crate::server) health: HealthService,
    pub(in crate::server) budget: Arc<MemoryBudget>,
    pub(in crate::server) server: ServerConfig,
    pub(in crate::server) tls: Option<TlsAcceptor>,
    pub(in crate::server) metrics: Arc<ServerMetrics>,
    pub(in crate::server) lifecycle: Lifecycle,
}

impl<D> Clone for WorkerConfig<D> {
    fn clone(&self) -> WorkerConfig<D> {
        WorkerConfig {
            decider: Arc::clone(&self.decider),
            quotas: self.quotas.clone(),
            health: self.health.clone(),
            budget: Arc::clone(&self.budget),
            server: self.server.clone(),
            tls: self.tls.clone(),
            metrics: Arc::clone(&self.metrics),
            lifecycle: self.lifecycle.clone(),
        }
    }
}

/// The number of workers: `grpc.workers`, or by default the number of cores that this process may
/// use.
pub fn count(settings: &GrpcSettings) -> usize {
    let available = || thread::available_parallelism().map_or(1, NonZero::get);
    settings.workers.map_or_else(available, NonZero::get)
}

/// Starts worker number `index`. It serves the connections of `queue` until the queue is closed.
pub(in crate::server) fn start<D: Decide>(
    index: usize,
    queue: mpsc::Receiver<Accepted>,
    config: WorkerConfig<D>,
) -> io::Result<JoinHandle<io::Result<()>>> {
    let runtime = single_threaded_runtime()?;
    thread::Builder::new().name(format!("weir-worker-{index}")).spawn(move || {
        // A missing worker could go unnoticed for days. Therefore the whole server stops when one
        // worker ends, and the supervisor (Kubernetes, systemd) restarts it.
        let _last = StopOnExit(config.lifecycle.clone());
        runtime.block_on(serve(queue, config));
        Ok(())
    })
}

async fn serve<D: Decide>(queue: mpsc::Receiver<Accepted>, config: WorkerConfig<D>) {
    let WorkerConfig { decider, quotas, health, budget, server, tls, metrics, lifecycle } = config;
    let timeout = server.drain.timeout;
    let bounds = server.bounds;
    let handler = BudgetedHandler { decider, bounds, budget: Arc::clone(&budget) };
    let max_message_bytes = server.grpc.max_message_bytes;
    let should_rate_limit = Arc::new(ShouldRateLimit {
        services: TonicServices::new(handler.clone(), max_message_bytes, health),
        handler,
        max_message_bytes,
        fast_path: server.grpc.fast_path,
        metrics: metrics.clone(),
    });
    let quotas = quotas.map(|streams| QuotaService {
        streams,
        max_message_bytes: server.rlqs.max_message_bytes,
        limit: server.grpc.call_timeout,
    });
    let context = Arc::new(ConnectionContext {
        dispatcher: Dispatcher::new(should_rate_limit, quotas, &server.grpc),
        budget,
        handshake_permits: Arc::new(Semaphore::new(server.grpc.max_handshakes_per_round)),
        metrics,
        settings: server.grpc,
        tls,
        lifecycle: lifecycle.clone(),
    });
    tokio::select! {
        () = connections(queue, context) => {}
        () = lifecycle.drain_expired() => {
            tracing::warn!(?timeout, "calls were still in flight at the end of the drain");
        }
    }
}

/// Serves each connection of `queue` in a task, until the queue and all connections have ended.
async fn connections<D: Decide>(
    mut queue: mpsc::Receiver<Accepted>,
    context: Arc<ConnectionContext<D>>,
) {
    let mut open = JoinSet::new();
    loop {
        tokio::select! {
            accepted = queue.recv() => {
                // A closed queue is the signal to stop. Connections accepted before are served to
                // their end.
                let Some(Accepted { stream, guard }) = accepted else { break };
                let by = open_by(context.settings.handshake_timeout);
                let context = Arc::clone(&context);
                open.spawn(async move {
                    context.serve(stream, &guard.slot, by).await;
                    drop(guard);
                });
            }
            Some(_) = open.join_next(), if !open.is_empty() => {}
        }
    }
    while open.join_next().await.is_some() {}
}
