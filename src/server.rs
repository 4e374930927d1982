//! Listeners: gRPC, HTTP and admin, on one single-threaded runtime per core.
//!
//! One more thread, the front, accepts connections, deals those of gRPC to the cores, and serves
//! HTTP and admin itself. [`Server::bind`] takes the ports, [`Bound::serve`] starts the threads,
//! and [`Serving::join`] waits until they have stopped.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;

use tokio::sync::watch;
use tonic::service::Routes;

mod accept;
mod admin;
pub mod bytes;
mod calls;
mod connection;
mod cores;
mod counters;
mod deal;
mod decide;
mod decode;
mod encode;
#[cfg(test)]
mod fake;
mod frames;
mod front;
mod health;
mod http1;
mod http2;
mod incoming;
mod json;
mod lifecycle;
mod listen;
mod message;
mod outgoing;
mod pages;
mod peers;
mod reflection;
mod rls;
mod scrape;
mod settings;
#[cfg(test)]
mod tests;
mod timeout;
mod tls;
mod turn;
mod upload;
mod web;

pub use admin::{AdminView, NotShown, Token};
pub use cores::count as cores;
pub use counters::{Counter, Counters, Port};
pub use decide::Decide;
pub use lifecycle::Health;
pub use settings::{Admin, Drain, Grpc, Http, HttpLimits, Scraped, Settings};
pub use tls::{ReloadOutcome, TlsAcceptor, TlsConfig, TlsError};

use cores::Work;
use deal::Dealer;
use front::Front;
use health::Reporter;
use lifecycle::Lifecycle;
use pages::Pages;
use peers::Peers;
use upload::Uploads;

/// A server that has not taken its ports yet.
#[derive(Debug)]
pub struct Server;

/// A server that holds its ports and serves nobody yet.
#[derive(Debug)]
pub struct Bound {
    settings: Settings,
    grpc: TcpListener,
    http: TcpListener,
    admin: TcpListener,
    metrics: Option<TcpListener>,
}

/// Where a server listens, with real port numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// gRPC.
    pub grpc: SocketAddr,
    /// HTTP.
    pub http: SocketAddr,
    /// Admin.
    pub admin: SocketAddr,
    /// Metrics alone, where they have a listener.
    pub metrics: Option<SocketAddr>,
}

/// A server at work.
#[derive(Debug)]
pub struct Serving {
    threads: Vec<JoinHandle<io::Result<()>>>,
}

impl Server {
    /// Takes the ports. The error names the address that cannot be had.
    pub fn bind(settings: Settings) -> io::Result<Bound> {
        let grpc = listen::bind(&settings.grpc.listen)?;
        let http = listen::bind(&settings.http.listen)?;
        let admin = listen::bind(&settings.admin.listen)?;
        let metrics = settings.metrics.as_ref().map(|one| listen::bind(&one.listen)).transpose()?;
        Ok(Bound { settings, grpc, http, admin, metrics })
    }
}

impl Bound {
    /// Where it listens.
    pub fn addresses(&self) -> io::Result<Addresses> {
        Ok(Addresses {
            grpc: self.grpc.local_addr()?,
            http: self.http.local_addr()?,
            admin: self.admin.local_addr()?,
            metrics: self.metrics.as_ref().map(TcpListener::local_addr).transpose()?,
        })
    }

    /// Starts to serve: `decider` answers, `view` is what the admin port shows, `health` what those
    /// who ask for it are told, and `shutdown` turning true (or being dropped) starts the drain.
    pub fn serve<D: Decide, V: AdminView>(
        self,
        decider: Arc<D>,
        view: Arc<V>,
        health: watch::Receiver<Health>,
        shutdown: watch::Receiver<bool>,
    ) -> io::Result<Serving> {
        let Bound { settings, grpc, http, admin, metrics } = self;
        let life = Lifecycle::new(health);
        let loopback = admin.local_addr()?.ip().is_loopback();
        let pages = Pages::new({
            let view = view.clone();
            move || view.metrics()
        });
        let admin_routes = admin::router(view, pages.clone(), &settings, loopback);
        let (reporter, health_service) = Reporter::new();
        let routes = reflection::add_to(Routes::new(health_service));
        let (dealer, queues) = Dealer::new(
            cores::count(&settings),
            settings.grpc.max_connections,
            Peers::new(settings.grpc.max_connections_per_peer),
            settings.counters.clone(),
        );
        let front = Front {
            grpc: (grpc, dealer),
            http: (
                http,
                web::router(decider.clone(), &settings, life.clone()),
                settings.http.limits,
            ),
            admin: (admin, admin_routes, settings.admin.limits),
            reporter,
            counters: settings.counters.clone(),
            life: life.clone(),
            shutdown,
            delay: settings.drain.delay,
        };
        let mut threads = Vec::with_capacity(queues.len() + 2);
        if let (Some(listener), Some(Scraped { path, .. })) = (metrics, &settings.metrics) {
            let limits = settings.admin.limits;
            let counters = settings.counters.clone();
            threads.push(scrape::start(listener, path, pages, limits, counters, life.clone())?);
        }
        let uploads =
            Arc::new(Uploads::new(settings.grpc.max_upload_bytes, settings.counters.clone()));
        let work = Work { decider: decider.clone(), routes, uploads, settings, life };
        for (index, queue) in queues.into_iter().enumerate() {
            threads.push(cores::start(index, queue, work.clone())?);
        }
        // Last: when it or a core cannot start, its dealer is dropped, and the others end.
        threads.push(front.start()?);
        Ok(Serving { threads })
    }
}

impl Serving {
    /// Waits until every thread has stopped. Blocks. An error is a defect: a thread that ended
    /// before it was told to, which stops the others too.
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
