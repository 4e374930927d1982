//! A server on free ports, and clients for it.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tonic::transport::Channel;

use crate::proto::{Entry, RateLimitDescriptor, RateLimitRequest, RateLimitServiceClient};
use crate::server::tests::test_handlers::{ByDomain, FixedPages};
use crate::server::{
    self, Addresses, Decide, Health, QuotaStreams, RunningServer, ServerConfig, ServerMetrics,
    TlsAcceptor,
};
use crate::settings::Settings;

/// The longest wait for an event. No test that passes reaches it, also on a busy machine.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// The page of metrics of a server under test.
const METRICS_PAGE: &str = "weir_up 1\n";

/// A server under test. Dropping it stops it.
pub(super) struct Served {
    pub(super) addresses: Addresses,
    pub(super) metrics: Arc<ServerMetrics>,
    pub(super) health: watch::Sender<Health>,
    pub(super) shutdown: watch::Sender<bool>,
    pub(super) serving: RunningServer,
}

/// A server configuration for tests: free ports on loopback, and no drain delay.
pub(super) fn settings() -> ServerConfig {
    let mut config = ServerConfig::from(&Settings::for_testing());
    config.grpc.workers = NonZeroUsize::new(2);
    config.drain.timeout = Duration::from_secs(30);
    config
}

/// The configuration for tests, with the fast path on or off.
pub(super) fn settings_over(fast_path: bool) -> ServerConfig {
    let mut settings = settings();
    settings.grpc.fast_path = fast_path;
    settings
}

/// Generates two tests of each function: with the fast path, and with tonic serving every call.
/// Every test of the gRPC port is one of them, also where `grpc.fast_path` should change nothing. The
/// setting does not reach the HTTP ports, so their tests run once.
macro_rules! over_both_paths {
    ($($name:ident),* $(,)?) => {
        mod over_fast_path {
            $(#[tokio::test]
            async fn $name() {
                super::$name(true).await;
            })*
        }
        mod over_tonic {
            $(#[tokio::test]
            async fn $name() {
                super::$name(false).await;
            })*
        }
    };
}

pub(super) fn serve(decider: impl Decide, settings: ServerConfig) -> Served {
    serve_metrics(decider, settings, METRICS_PAGE.to_owned())
}

/// A server whose page of metrics is `metrics`.
pub(super) fn serve_metrics(
    decider: impl Decide,
    settings: ServerConfig,
    metrics: String,
) -> Served {
    let quotas = None::<Arc<Infallible>>;
    serve_all(decider, quotas, settings, None, Arc::default(), metrics)
}

/// A server with TLS on its gRPC port, which counts in `metrics`.
pub(super) fn serve_tls(
    decider: impl Decide,
    settings: ServerConfig,
    tls: TlsAcceptor,
    metrics: Arc<ServerMetrics>,
) -> Served {
    let quotas = None::<Arc<Infallible>>;
    serve_all(decider, quotas, settings, Some(tls), metrics, METRICS_PAGE.to_owned())
}

/// A server that divides `quotas`.
pub(super) fn serve_quotas(quotas: impl QuotaStreams, settings: ServerConfig) -> Served {
    let (quotas, page) = (Some(Arc::new(quotas)), METRICS_PAGE.to_owned());
    serve_all(ByDomain, quotas, settings, None, Arc::default(), page)
}

fn serve_all(
    decider: impl Decide,
    quotas: Option<Arc<impl QuotaStreams>>,
    settings: ServerConfig,
    tls: Option<TlsAcceptor>,
    metrics: Arc<ServerMetrics>,
    page: String,
) -> Served {
    let bound = server::bind(settings, tls, metrics.clone()).unwrap();
    let addresses = bound.addresses().unwrap();
    let (health, health_seen) = watch::channel(Health { live: true, ready: true });
    let (shutdown, shutdown_seen) = watch::channel(false);
    let (decider, api) = (Arc::new(decider), Arc::new(FixedPages(page)));
    let serving = bound.serve(decider, quotas, api, health_seen, shutdown_seen).unwrap();
    Served { addresses, metrics, health, shutdown, serving }
}

/// A server with one worker and with the settings that `tune` changes, and its metrics.
pub(super) fn serve_one_worker(
    decider: impl Decide,
    fast_path: bool,
    tune: impl FnOnce(&mut ServerConfig),
) -> (Served, Arc<ServerMetrics>) {
    let mut settings = settings_over(fast_path);
    settings.grpc.workers = NonZeroUsize::new(1);
    tune(&mut settings);
    let served = serve(decider, settings);
    let metrics = Arc::clone(&served.metrics);
    (served, metrics)
}

impl Served {
    pub(super) async fn channel(&self) -> Channel {
        let address = format!("http://{}", self.addresses.grpc);
        Channel::from_shared(address).unwrap().connect().await.unwrap()
    }

    pub(super) async fn client(&self) -> RateLimitServiceClient<Channel> {
        RateLimitServiceClient::new(self.channel().await)
    }

    /// Sends one call on a new connection. The connection or the call may fail.
    pub(super) async fn try_call(&self) -> Result<(), Box<dyn std::error::Error>> {
        let address = format!("http://{}", self.addresses.grpc);
        let channel = Channel::from_shared(address)?.connect().await?;
        RateLimitServiceClient::new(channel).should_rate_limit(request("ok")).await?;
        Ok(())
    }

    /// Stops the server, and waits until it has stopped.
    pub(super) async fn stop(self) {
        self.shutdown.send_replace(true);
        tokio::task::spawn_blocking(|| self.serving.join()).await.unwrap().unwrap();
    }
}

/// A request with one descriptor of one entry.
pub(super) fn request(domain: &str) -> RateLimitRequest {
    let entries = vec![Entry { key: "k".into(), value: "v".into() }];
    let descriptors = vec![RateLimitDescriptor { entries, ..Default::default() }];
    RateLimitRequest { domain: domain.into(), descriptors, hits_addend: 0 }
}

/// An HTTP response.
pub(super) struct HttpResponse {
    pub(super) status: u16,
    pub(super) head: String,
    pub(super) body: String,
}

/// Sends one HTTP request, and returns its response.
pub(super) async fn http(
    address: SocketAddr,
    method: &str,
    path: &str,
    body: &str,
) -> HttpResponse {
    let length = body.len();
    let head = format!("{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n");
    let request = format!("{head}content-length: {length}\r\n\r\n{body}");
    let mut stream = TcpStream::connect(address).await.unwrap();
    // A server that rejects a large body may close before it has read all of it.
    let _ = stream.write_all(request.as_bytes()).await;
    read_response(&mut stream).await
}

/// Reads a response until the server closes the connection.
pub(super) async fn read_response(stream: &mut TcpStream) -> HttpResponse {
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes).await;
    let text = String::from_utf8(bytes).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
    HttpResponse { status, head: head.to_owned(), body: body.to_owned() }
}

/// The output of `wait`, for an event that must happen. Panics after [`LONGEST_WAIT`].
pub(super) async fn in_time<T>(what: &str, wait: impl Future<Output = T>) -> T {
    match tokio::time::timeout(LONGEST_WAIT, wait).await {
        Ok(output) => output,
        Err(_) => panic!("waited {LONGEST_WAIT:?} for {what}"),
    }
}

/// Waits until `holds` is true. Panics after [`LONGEST_WAIT`].
pub(super) async fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let polls = async {
        while !holds() {
            tokio::task::yield_now().await;
        }
    };
    in_time(what, polls).await;
}
