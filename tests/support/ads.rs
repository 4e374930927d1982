//! A server of rules by xDS that behaves like that of Envoy Gateway: it answers a subscription with its
//! snapshot, sends the next one only after an answer, and records all requests.

use std::net::{SocketAddr, TcpListener};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use envoy_types::pb::envoy::service::discovery::v3 as discovery;
use envoy_types::pb::envoy::service::discovery::v3::aggregated_discovery_service_server::{
    AggregatedDiscoveryService, AggregatedDiscoveryServiceServer,
};
use envoy_types::pb::google::protobuf::Any;
use envoy_types::pb::ratelimit::config::ratelimit::v3 as config;
use prost::Message;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_rustls::TlsAcceptor;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::transport::Server;
use tonic::transport::server::Router;
use tonic::{Response, Status, Streaming};

use super::certificates::Certificates;
use super::wait::TIMEOUT;

mod tls;

pub(crate) use config::{RateLimitDescriptor, RateLimitPolicy, RateLimitReplace};
pub(crate) use discovery::{DiscoveryRequest, DiscoveryResponse};

/// The node of Envoy Gateway, which gets rules. Others get nothing, as from Envoy Gateway.
pub(crate) const NODE: &str = "envoy-ratelimit";

/// The type of rules.
pub(crate) const TYPE_URL: &str =
    "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig";

/// A running server. It stops when this value is dropped.
pub(crate) struct Ads {
    pub(crate) address: SocketAddr,
    service: Service,
    requests: Receiver<Seen>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// A request.
#[derive(Debug)]
pub(crate) struct Seen {
    /// The number of its stream, from 0 on.
    pub(crate) stream: usize,
    pub(crate) request: DiscoveryRequest,
    /// The value of the header `x-token`.
    pub(crate) token: Option<String>,
    /// The client's certificate, in DER.
    pub(crate) certificate: Option<Vec<u8>>,
}

#[derive(Clone)]
struct Service {
    /// The node that gets rules.
    node: &'static str,
    snapshot: watch::Sender<Option<DiscoveryResponse>>,
    /// Changes when all streams must end, with this status.
    end: watch::Sender<Option<Status>>,
    /// Whether rejected content is sent again at once.
    resends: bool,
    /// Whether the next response does not wait for the answer to the one before.
    pushes: bool,
    streams: Arc<Mutex<usize>>,
    seen: Sender<Seen>,
}

impl Ads {
    /// A server in plain text, without rules.
    pub(crate) fn start() -> Ads {
        Ads::for_node(NODE)
    }

    /// A server in plain text that knows only this node.
    pub(crate) fn for_node(node: &'static str) -> Ads {
        Ads::start_at(listener(), None, Service::new(node))
    }

    /// A server that sends rejected content again at once, as Envoy Gateway does.
    pub(crate) fn resending() -> Ads {
        let (service, requests) = Service::new(NODE);
        Ads::start_at(listener(), None, (Service { resends: true, ..service }, requests))
    }

    /// A server that does not wait for answers.
    pub(crate) fn pushing() -> Ads {
        let (service, requests) = Service::new(NODE);
        Ads::start_at(listener(), None, (Service { pushes: true, ..service }, requests))
    }

    /// A server with TLS 1.3 that requires client certificates.
    pub(crate) fn with_tls(certificates: &Certificates) -> Ads {
        Ads::with_tls_at(listener(), certificates)
    }

    /// A server with TLS at the address of one that has stopped.
    pub(crate) fn again_with_tls(address: SocketAddr, certificates: &Certificates) -> Ads {
        let listener = TcpListener::bind(address).expect("the port is free again");
        Ads::with_tls_at(listener, certificates)
    }

    fn with_tls_at(listener: TcpListener, certificates: &Certificates) -> Ads {
        Ads::start_at(listener, Some(tls::acceptor(certificates)), Service::new(NODE))
    }

    /// A server in plain text at the address of one that has stopped.
    pub(crate) fn again_at(address: SocketAddr) -> Ads {
        let listener = TcpListener::bind(address).expect("the port is free again");
        Ads::start_at(listener, None, Service::new(NODE))
    }

    fn start_at(
        listener: TcpListener,
        acceptor: Option<TlsAcceptor>,
        (service, requests): (Service, Receiver<Seen>),
    ) -> Ads {
        let address = listener.local_addr().expect("it listens");
        let (stop, stopped) = oneshot::channel::<()>();
        let served = service.clone();
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(async {
                listener.set_nonblocking(true).expect("a socket");
                let listener = tokio::net::TcpListener::from_std(listener).expect("a socket");
                let ads = AggregatedDiscoveryServiceServer::new(served);
                let router = Server::builder().add_service(ads);
                tokio::select! {
                    ended = serve(router, listener, acceptor) => ended.expect("a server"),
                    _ = stopped => {}
                }
            });
        });
        Ads { address, service, requests, stop: Some(stop), thread: Some(thread) }
    }

    /// Sends `resources` to all streams, or to the next one.
    pub(crate) fn set(&self, version: &str, resources: Vec<Any>) {
        let version_info = version.to_owned();
        let response = DiscoveryResponse { version_info, resources, ..Default::default() };
        self.service.snapshot.send_replace(Some(response));
    }

    /// Ends all streams: with a status, or without an error.
    pub(crate) fn end_streams(&self, status: Option<Status>) {
        self.service.end.send_replace(status);
    }

    /// The next request.
    pub(crate) fn next_request(&self) -> Seen {
        self.requests.recv_timeout(TIMEOUT).expect("a request")
    }

    /// The next answer to a response, which is not the first request of a stream.
    pub(crate) fn answer(&self) -> DiscoveryRequest {
        loop {
            let Seen { request, .. } = self.next_request();
            if !request.response_nonce.is_empty() {
                return request;
            }
        }
    }

    /// The requests that come during `time`.
    pub(crate) fn during(&self, time: Duration) -> Vec<Seen> {
        let end = Instant::now() + time;
        let mut seen = Vec::new();
        let left = || end.saturating_duration_since(Instant::now());
        while let Ok(one) = self.requests.recv_timeout(left()) {
            seen.push(one);
        }
        seen
    }
}

impl Drop for Ads {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic has failed the test already, or its message is on standard error.
            let _ = thread.join();
        }
    }
}

#[tonic::async_trait]
impl AggregatedDiscoveryService for Service {
    type StreamAggregatedResourcesStream = ReceiverStream<tonic::Result<DiscoveryResponse>>;
    type DeltaAggregatedResourcesStream =
        ReceiverStream<tonic::Result<discovery::DeltaDiscoveryResponse>>;

    async fn stream_aggregated_resources(
        &self,
        call: tonic::Request<Streaming<DiscoveryRequest>>,
    ) -> tonic::Result<Response<Self::StreamAggregatedResourcesStream>> {
        let stream = {
            let mut streams = self.streams.lock().expect("no holder panics");
            *streams += 1;
            *streams - 1
        };
        let token = call.metadata().get("x-token");
        let token = token.and_then(|value| value.to_str().ok()).map(str::to_owned);
        let certificate = call.peer_certs().map(|certificates| certificates[0].to_vec());
        let seen = move |request| Seen {
            stream,
            request,
            token: token.clone(),
            certificate: certificate.clone(),
        };
        let (responses, outgoing) = mpsc::channel(4);
        tokio::spawn(self.clone().serve(call.into_inner(), responses, seen));
        Ok(Response::new(ReceiverStream::new(outgoing)))
    }

    async fn delta_aggregated_resources(
        &self,
        _: tonic::Request<Streaming<discovery::DeltaDiscoveryRequest>>,
    ) -> tonic::Result<Response<Self::DeltaAggregatedResourcesStream>> {
        Err(Status::unimplemented("state of the world only"))
    }
}

impl Service {
    /// A service without rules, and the requests that it gets.
    fn new(node: &'static str) -> (Service, Receiver<Seen>) {
        let (seen, requests) = channel();
        let service = Service {
            node,
            snapshot: watch::Sender::new(None),
            end: watch::Sender::new(None),
            resends: false,
            pushes: false,
            streams: Arc::default(),
            seen,
        };
        (service, requests)
    }

    /// Serves one stream to its end.
    async fn serve(
        self,
        mut requests: Streaming<DiscoveryRequest>,
        responses: mpsc::Sender<tonic::Result<DiscoveryResponse>>,
        seen: impl Fn(DiscoveryRequest) -> Seen,
    ) {
        let (mut snapshots, mut end) = (self.snapshot.subscribe(), self.end.subscribe());
        // The number of the last response, and whether another one may be sent.
        let (mut nonce, mut may_send) = (0_u64, false);
        loop {
            tokio::select! {
                request = requests.message() => {
                    let Ok(Some(request)) = request else { return };
                    let is_known = request.node.as_ref().is_some_and(|node| node.id == self.node);
                    let (answered, rejected) =
                        (request.response_nonce.clone(), request.error_detail.is_some());
                    let _ = self.seen.send(seen(request));
                    if !is_known {
                        continue;
                    }
                    if answered.is_empty() {
                        snapshots.mark_changed();
                        may_send = true;
                    } else if answered == nonce.to_string() {
                        may_send = true;
                        if rejected && self.resends {
                            snapshots.mark_changed();
                        }
                    }
                }
                changed = snapshots.changed(), if may_send || self.pushes => {
                    if changed.is_err() {
                        return;
                    }
                    let snapshot = snapshots.borrow_and_update().clone();
                    let Some(mut response) = snapshot else { continue };
                    nonce += 1;
                    response.nonce = nonce.to_string();
                    may_send = false;
                    if responses.send(Ok(response)).await.is_err() {
                        return;
                    }
                }
                _ = end.changed() => {
                    let status = end.borrow_and_update().clone();
                    if let Some(status) = status {
                        let _ = responses.send(Err(status)).await;
                    }
                    return;
                }
            }
        }
    }
}

/// Serves the connections of a listener, with or without TLS.
async fn serve(
    router: Router,
    listener: tokio::net::TcpListener,
    acceptor: Option<TlsAcceptor>,
) -> Result<(), tonic::transport::Error> {
    let Some(acceptor) = acceptor else {
        return router.serve_with_incoming(TcpListenerStream::new(listener)).await;
    };
    let (connections, incoming) = mpsc::channel(4);
    tokio::spawn(tls::accept(listener, acceptor, connections));
    router.serve_with_incoming(ReceiverStream::new(incoming)).await
}

/// A resource with the rules of one domain. Its name is the domain, as from Envoy Gateway.
pub(crate) fn rules(domain: &str, descriptors: Vec<RateLimitDescriptor>) -> Any {
    named_rules(domain, domain, descriptors)
}

/// A resource with a name and the rules of one domain.
pub(crate) fn named_rules(name: &str, domain: &str, descriptors: Vec<RateLimitDescriptor>) -> Any {
    let (name, domain) = (name.to_owned(), domain.to_owned());
    let config = config::RateLimitConfig { name, domain, descriptors };
    Any { type_url: TYPE_URL.to_owned(), value: config.encode_to_vec() }
}

/// A descriptor without a limit.
pub(crate) fn node(
    key: &str,
    value: &str,
    descriptors: Vec<RateLimitDescriptor>,
) -> RateLimitDescriptor {
    let (key, value) = (key.to_owned(), value.to_owned());
    RateLimitDescriptor { key, value, descriptors, ..Default::default() }
}

/// A descriptor for any value of `key`, with a limit per unit. 3 is an hour.
pub(crate) fn limited(key: &str, unit: i32, requests_per_unit: u32) -> RateLimitDescriptor {
    let policy = RateLimitPolicy { unit, requests_per_unit, ..Default::default() };
    RateLimitDescriptor { rate_limit: Some(policy), ..node(key, "", Vec::new()) }
}

fn listener() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").expect("a free port")
}
