//! Listeners: gRPC, HTTP and admin, on one single-threaded runtime per core.
//!
//! One more thread, the front, accepts connections, deals those of gRPC to the cores, and serves
//! HTTP and admin itself. [`Server::bind`] takes the ports, [`Bound::serve`] starts the threads,
//! and [`Serving::join`] waits until they have stopped.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use tokio::sync::watch;
use tonic::service::Routes;

use crate::proto::RateLimitServiceServer;

mod accept;
mod connection;
mod cores;
mod deal;
mod decide;
mod decode;
mod encode;
#[cfg(test)]
mod fake;
mod lifecycle;
mod listen;
mod rls;
mod settings;
#[cfg(test)]
mod tests;

pub use decide::Decide;
pub use lifecycle::Health;
pub use settings::{Admin, Drain, Grpc, Http, HttpLimits, Settings};

use cores::{StopAll, Work};
use deal::Dealer;
use lifecycle::{Lifecycle, Phase};
use rls::Rls;

/// A server that has not taken its ports yet.
#[derive(Debug)]
pub struct Server;

/// A server that holds its ports and serves nobody yet.
#[derive(Debug)]
pub struct Bound {
    settings: Settings,
    grpc: TcpListener,
}

/// Where a server listens, with real port numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// gRPC.
    pub grpc: SocketAddr,
}

/// A server at work.
#[derive(Debug)]
pub struct Serving {
    threads: Vec<JoinHandle<()>>,
}

impl Server {
    /// Takes the ports. The error names the address that cannot be had.
    pub fn bind(settings: Settings) -> io::Result<Bound> {
        let grpc = listen::bind(&settings.grpc.listen)?;
        Ok(Bound { settings, grpc })
    }
}

impl Bound {
    /// Where it listens.
    pub fn addresses(&self) -> io::Result<Addresses> {
        Ok(Addresses { grpc: self.grpc.local_addr()? })
    }

    /// Starts to serve: `decider` answers, `health` says what to tell those who ask for it, and
    /// `shutdown` turning true (or being dropped) starts the drain.
    pub fn serve<D: Decide>(
        self,
        decider: Arc<D>,
        health: watch::Receiver<Health>,
        shutdown: watch::Receiver<bool>,
    ) -> io::Result<Serving> {
        let life = Lifecycle::new(health);
        let routes = routes(decider, &self.settings);
        let (dealer, queues) =
            Dealer::new(cores::count(&self.settings), self.settings.grpc.max_connections);
        let work = Work { routes, settings: self.settings.clone(), life: life.clone() };
        let mut threads = Vec::with_capacity(queues.len() + 1);
        for (index, queue) in queues.into_iter().enumerate() {
            threads.push(cores::start(index, queue, work.clone())?);
        }
        threads.push(self.start_front(dealer, life, shutdown)?);
        Ok(Serving { threads })
    }

    fn start_front(
        self,
        dealer: Dealer,
        life: Lifecycle,
        shutdown: watch::Receiver<bool>,
    ) -> io::Result<JoinHandle<()>> {
        let runtime = cores::runtime()?;
        let grpc = {
            let _inside = runtime.enter();
            tokio::net::TcpListener::from_std(self.grpc)?
        };
        let delay = self.settings.drain.delay;
        thread::Builder::new().name("weir-front".into()).spawn(move || {
            let _last = StopAll(life.clone());
            runtime.block_on(async {
                tokio::join!(end(&life, shutdown, delay), deal_connections(grpc, dealer, &life),);
            });
        })
    }
}

impl Serving {
    /// Waits until every thread has stopped. Blocks.
    pub fn join(self) -> io::Result<()> {
        let mut result = Ok(());
        for thread in self.threads {
            let name = thread.thread().name().unwrap_or("a thread").to_owned();
            if thread.join().is_err() {
                result = Err(io::Error::other(format!("{name} stopped by a defect")));
            }
        }
        result
    }
}

fn routes<D: Decide>(decider: Arc<D>, settings: &Settings) -> Routes {
    let rls = RateLimitServiceServer::new(Rls { decider, bounds: settings.bounds })
        .max_decoding_message_size(settings.grpc.max_message_bytes);
    Routes::new(rls)
}

async fn end(life: &Lifecycle, mut shutdown: watch::Receiver<bool>, delay: std::time::Duration) {
    let asked = async {
        // A sender that is gone cannot ask any more; it has asked by going.
        let _ = shutdown.wait_for(|stop| *stop).await;
        life.advance(Phase::Draining);
        tokio::time::sleep(delay).await;
        life.advance(Phase::Stopping);
    };
    tokio::select! {
        () = asked => {}
        () = life.reached(Phase::Stopping) => {}
    }
}

/// Accepts until the server stops; then the dealer is dropped, which tells the cores.
async fn deal_connections(listener: tokio::net::TcpListener, dealer: Dealer, life: &Lifecycle) {
    let deal = |stream: tokio::net::TcpStream| {
        // Leaves this runtime here, and joins its core's when that picks it up.
        if let Ok(stream) = stream.into_std() {
            if !dealer.deal(stream) {
                tracing::debug!("closed a connection: there are too many");
            }
        }
    };
    tokio::select! {
        () = accept::accept(listener, deal) => {}
        () = life.reached(Phase::Stopping) => {}
    }
}
