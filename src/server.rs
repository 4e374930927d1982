//! The server: gRPC, HTTP, admin and metrics listeners.
//!
//! One worker thread per core serves gRPC. The acceptor thread accepts gRPC, HTTP and admin
//! connections, assigns gRPC connections to the workers, and serves HTTP and admin itself. The
//! JSON thread decodes and decides the requests of `/json`. A metrics listener, if configured, has
//! its own thread. [`bind`] binds the ports, [`BoundServer::serve`] starts the threads, and
//! [`RunningServer::join`] waits until they have stopped.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;

use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;

mod acceptor;
mod config;
mod grpc;
mod http;
mod lifecycle;
mod listener;
mod metrics;
mod rls;
#[cfg(test)]
mod tests;

pub use self::config::ServerConfig;
pub use crate::tls::{ReloadOutcome, TlsError};
#[cfg(feature = "fuzz")]
pub use grpc::fuzz_harness as grpc_fuzz_harness;
pub use grpc::rate_limit_quota::quota_streams::{
    QuotaStream, QuotaStreamError, QuotaStreams, TooManyStreams,
};
pub use grpc::worker::count as worker_count;
pub use http::admin::{
    ActivityOrder, ActivityQuery, AdminApi, ChangeError, CounterError, LiveFeed, PlansRefusal,
    PlansRequest, RestOfPage, Token, TryQuery,
};
pub use lifecycle::Health;
#[cfg(feature = "fuzz")]
pub use listener::tls::fuzz_harness as tls_fuzz_harness;
pub use listener::tls::{TlsAcceptor, TlsConfig};
pub use metrics::{ClientMemory, ListenerMetrics, PartMemory, ServerMetrics};
#[cfg(feature = "fuzz")]
pub use rls::fuzz_harness;
pub use rls::handler::Decide;

use acceptor::Acceptor;
use grpc::memory::budget::MemoryBudget;
use grpc::memory::connection::most_connections;
use grpc::rate_limit_quota::quota_streams::AnyQuotaStreams;
use grpc::tonic_services::health::Reporter;
use grpc::worker::{self, WorkerConfig};
use http::json_thread::JsonThread;
use http::page::Pages;
use http::{admin, metrics_listener, routes};
use lifecycle::Lifecycle;
use listener::balance::LeastConnections;
use listener::bind::bind as bind_port;

/// A server with bound ports that does not serve yet.
#[derive(Debug)]
pub struct BoundServer {
    config: ServerConfig,
    tls: Option<TlsAcceptor>,
    server_metrics: Arc<ServerMetrics>,
    grpc: TcpListener,
    http: TcpListener,
    admin: TcpListener,
    metrics: Option<TcpListener>,
}

/// The bound addresses of a server. A configured port 0 appears as the port that the system chose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// Address of the gRPC listener.
    pub grpc: SocketAddr,
    /// Address of the HTTP listener.
    pub http: SocketAddr,
    /// Address of the admin listener.
    pub admin: SocketAddr,
    /// Address of the metrics listener, if one is configured.
    pub metrics: Option<SocketAddr>,
}

/// A running server.
#[derive(Debug)]
pub struct RunningServer {
    threads: Vec<JoinHandle<io::Result<()>>>,
}

/// Binds the ports. `tls` is that of the gRPC listener; `None` for plain text. The server counts in
/// `server_metrics`. The error names the address that failed.
pub fn bind(
    config: ServerConfig,
    tls: Option<TlsAcceptor>,
    server_metrics: Arc<ServerMetrics>,
) -> io::Result<BoundServer> {
    let grpc = bind_port(config.grpc.listen)?;
    let http = bind_port(config.http.listen)?;
    let admin = bind_port(config.admin.listen)?;
    let metrics = config.metrics_listener.listen.map(bind_port).transpose()?;
    Ok(BoundServer { config, tls, server_metrics, grpc, http, admin, metrics })
}

impl BoundServer {
    /// The addresses that are bound.
    pub fn addresses(&self) -> io::Result<Addresses> {
        Ok(Addresses {
            grpc: self.grpc.local_addr()?,
            http: self.http.local_addr()?,
            admin: self.admin.local_addr()?,
            metrics: self.metrics.as_ref().map(TcpListener::local_addr).transpose()?,
        })
    }

    /// Starts the threads. `decider` decides requests, `quotas` divides quotas (`None` without
    /// `rlqs.enabled`), `api` supplies the admin pages, and `health` is reported to probes. The drain
    /// starts when `shutdown` becomes true or its sender is dropped.
    pub fn serve<D: Decide, Q: QuotaStreams, A: AdminApi>(
        self,
        decider: Arc<D>,
        quotas: Option<Arc<Q>>,
        api: Arc<A>,
        health: watch::Receiver<Health>,
        shutdown: watch::Receiver<bool>,
    ) -> io::Result<RunningServer> {
        let BoundServer { config, tls, server_metrics, grpc, http, admin, metrics } = self;
        let lifecycle = Lifecycle::new(health, config.drain.timeout);
        let loopback = admin.local_addr()?.ip().is_loopback();
        let pages = || Pages::new(config.max_pages(), server_metrics.clone());
        let admin_routes = admin::router(
            api.clone(),
            pages(),
            admin::AdminAccess { token: Token::from_settings(&config.admin), loopback },
            config.bounds,
            lifecycle.clone(),
        );
        let (reporter, health_service) = Reporter::new();
        let room = most_connections(config.grpc.max_client_memory, tls.is_some());
        let (balancer, queues) = LeastConnections::new(
            worker::count(&config.grpc),
            config.grpc.max_connections.min(room),
            config.grpc.max_connections_per_peer,
            server_metrics.clone(),
        );
        let (json, json_thread) = JsonThread::start(lifecycle.clone())?;
        let acceptor = Acceptor {
            grpc: (grpc, balancer),
            http: (
                http,
                routes::router(decider.clone(), &config, &server_metrics, lifecycle.clone(), json),
                config.http.clone(),
            ),
            admin: (admin, admin_routes, config.admin_http_settings()),
            reporter,
            metrics: server_metrics.clone(),
            lifecycle: lifecycle.clone(),
            shutdown,
            delay: config.drain.delay,
        };
        let mut threads = vec![json_thread];
        if let Some(listener) = metrics {
            let limits = config.admin_http_settings();
            threads.push(metrics_listener::start(
                listener,
                &config.metrics_listener.path,
                api,
                pages(),
                limits,
                server_metrics.clone(),
                lifecycle.clone(),
            )?);
        }
        let max_client_memory = config.grpc.max_client_memory;
        let budget = Arc::new(MemoryBudget::new(max_client_memory, server_metrics.clone()));
        let worker = WorkerConfig {
            decider: decider.clone(),
            quotas: quotas.map(|quotas| quotas as Arc<dyn AnyQuotaStreams>),
            health: health_service,
            budget,
            server: config,
            tls,
            metrics: server_metrics,
            lifecycle,
        };
        for (index, queue) in queues.into_iter().enumerate() {
            threads.push(worker::start(index, queue, worker.clone())?);
        }
        // The acceptor starts last: if a thread cannot start, dropping the balancer and the routes
        // ends the others.
        threads.push(acceptor.start()?);
        Ok(RunningServer { threads })
    }
}

impl RunningServer {
    /// Blocks until every thread has stopped.
    ///
    /// # Errors
    ///
    /// A thread that panicked or failed. This is a bug; it also stops the other threads.
    pub fn join(self) -> io::Result<()> {
        let mut result = Ok(());
        for thread in self.threads {
            let name = thread.thread().name().unwrap_or("a thread").to_owned();
            let error = match thread.join() {
                Ok(Ok(())) => continue,
                Ok(Err(error)) => error.to_string(),
                Err(_) => "a panic".to_owned(),
            };
            result = Err(io::Error::other(format!("{name} was stopped by {error}")));
        }
        result
    }
}

/// A single-threaded runtime with I/O and timers.
fn single_threaded_runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}

/// Runs `work` to its end on `runtime`, and drops all other tasks. Does not wait for blocking tasks,
/// because a read from a hanging volume must not delay the end of the process.
fn run_to_end<T>(runtime: Runtime, work: impl Future<Output = T>) -> T {
    let output = runtime.block_on(work);
    runtime.shutdown_background();
    output
}
