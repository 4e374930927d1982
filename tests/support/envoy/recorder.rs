//! A rate limit service between Envoy and weir that forwards every call and records it.
//!
//! It shows the calls that Envoy actually sends. A test can also wait for fire-and-forget calls,
//! such as Envoy's charge at the end of a stream.

use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Instant;

use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_service_server::{
    RateLimitService, RateLimitServiceServer,
};
use tokio::net::TcpListener;
use tokio::runtime::Builder;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::metadata::MetadataMap;
use tonic::transport::{Channel, Endpoint, Server};

use crate::support::rls::{RateLimitRequest, RateLimitResponse, RateLimitServiceClient};
use crate::support::wait::TIMEOUT;

/// One completed call.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) metadata: MetadataMap,
    pub(crate) request: RateLimitRequest,
    pub(crate) response: RateLimitResponse,
}

/// A running recorder. Its thread ends with the test process.
pub(crate) struct Recorder {
    pub(crate) address: SocketAddr,
    calls: Arc<Calls>,
}

#[derive(Default)]
struct Calls {
    answered: Mutex<Vec<Call>>,
    more: Condvar,
}

impl Recorder {
    /// Listens on a free port and forwards calls to `weir`.
    pub(crate) fn before(weir: SocketAddr) -> Recorder {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a free port");
        let address = listener.local_addr().expect("a bound address");
        let calls = Arc::new(Calls::default());
        let relay = Relay { weir, calls: Arc::clone(&calls) };
        thread::spawn(move || {
            let service = RateLimitServiceServer::new(relay);
            let connections = TcpListenerStream::new(listener);
            let serving = Server::builder().add_service(service).serve_with_incoming(connections);
            runtime.block_on(serving)
        });
        Recorder { address, calls }
    }

    /// Waits until `count` calls in total have completed. Returns them in order.
    pub(crate) fn wait_for(&self, count: usize) -> Vec<Call> {
        let deadline = Instant::now() + TIMEOUT;
        let mut answered = self.calls.answered.lock().expect("the relay does not panic");
        while answered.len() < count {
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "{count} calls expected, these came: {answered:#?}");
            answered = self.calls.more.wait_timeout(answered, left).expect("no panic").0;
        }
        answered.clone()
    }
}

struct Relay {
    weir: SocketAddr,
    calls: Arc<Calls>,
}

#[tonic::async_trait]
impl RateLimitService for Relay {
    async fn should_rate_limit(
        &self,
        request: tonic::Request<RateLimitRequest>,
    ) -> tonic::Result<tonic::Response<RateLimitResponse>> {
        let (metadata, _, request) = request.into_parts();
        let channel = self.channel();
        let mut onward = tonic::Request::new(request.clone());
        if let Some(timeout) = metadata.get("grpc-timeout") {
            onward.metadata_mut().insert("grpc-timeout", timeout.clone());
        }
        let answer = RateLimitServiceClient::new(channel).should_rate_limit(onward).await?;
        let response = answer.into_inner();
        let call = Call { metadata, request, response: response.clone() };
        self.calls.answered.lock().expect("no test panics inside").push(call);
        self.calls.more.notify_all();
        Ok(tonic::Response::new(response))
    }
}

impl Relay {
    /// One connection per call. It is slow, but calls share no state that a test observes.
    fn channel(&self) -> Channel {
        let endpoint = Endpoint::from_shared(format!("http://{}", self.weir));
        endpoint.expect("a valid address").connect_lazy()
    }
}
