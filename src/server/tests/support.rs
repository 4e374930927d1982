//! A server on free ports, and clients for it.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tonic::transport::Channel;

use crate::proto::{Entry, RateLimitDescriptor, RateLimitRequest, RateLimitServiceClient};
use crate::server::{Addresses, Decide, Drain, Health, Server, Serving, Settings};

/// A server under test. Dropping it stops it.
pub(super) struct Served {
    pub(super) addresses: Addresses,
    pub(super) health: watch::Sender<Health>,
    pub(super) shutdown: watch::Sender<bool>,
    pub(super) serving: Serving,
}

/// Settings for loopback: free ports, no delay at the end.
pub(super) fn settings() -> Settings {
    let mut settings = Settings::default();
    settings.grpc.listen = "127.0.0.1:0".into();
    settings.cores = Some(2);
    settings.drain = Drain { delay: Duration::ZERO, timeout: Duration::from_secs(30) };
    settings
}

pub(super) fn serve(decider: impl Decide, settings: Settings) -> Served {
    let bound = Server::bind(settings).unwrap();
    let addresses = bound.addresses().unwrap();
    let (health, health_seen) = watch::channel(Health { live: true, ready: true });
    let (shutdown, shutdown_seen) = watch::channel(false);
    let serving = bound.serve(Arc::new(decider), health_seen, shutdown_seen).unwrap();
    Served { addresses, health, shutdown, serving }
}

impl Served {
    pub(super) async fn channel(&self) -> Channel {
        let address = format!("http://{}", self.addresses.grpc);
        Channel::from_shared(address).unwrap().connect().await.unwrap()
    }

    pub(super) async fn client(&self) -> RateLimitServiceClient<Channel> {
        RateLimitServiceClient::new(self.channel().await)
    }

    /// Asks the server to stop and waits for it.
    pub(super) async fn stop(self) {
        self.shutdown.send_replace(true);
        tokio::task::spawn_blocking(|| self.serving.join()).await.unwrap().unwrap();
    }
}

/// A request of one descriptor with one entry.
pub(super) fn request(domain: &str) -> RateLimitRequest {
    let entries = vec![Entry { key: "k".into(), value: "v".into() }];
    let descriptors = vec![RateLimitDescriptor { entries, ..Default::default() }];
    RateLimitRequest { domain: domain.into(), descriptors, hits_addend: 0 }
}
