//! A gRPC client generated from Envoy's own protocol definitions, which checks those of weir.

use std::net::{IpAddr, SocketAddr};

use envoy_types::pb::envoy::extensions::common::ratelimit::v3 as common;
use envoy_types::pb::envoy::service::ratelimit::v3 as service;
use envoy_types::pb::google::protobuf::UInt64Value;
use tokio::runtime::{Builder, Runtime};
use tonic::transport::{Channel, ClientTlsConfig, Endpoint};

use super::wait::TIMEOUT;

pub(crate) use common::RateLimitDescriptor;
pub(crate) use common::rate_limit_descriptor::{Entry, RateLimitOverride};
pub(crate) use service::rate_limit_response::{Code, DescriptorStatus};
pub(crate) use service::rate_limit_service_client::RateLimitServiceClient;
pub(crate) use service::{RateLimitRequest, RateLimitResponse};

/// One connection with one call at a time.
pub(crate) struct Client {
    runtime: Runtime,
    channel: Channel,
}

impl Client {
    /// Connects to the service at `to`.
    pub(crate) fn connect(to: SocketAddr) -> Client {
        let endpoint = Endpoint::from_shared(format!("http://{to}")).expect("a valid address");
        Client::open(endpoint).unwrap_or_else(|e| panic!("{to}: {e}"))
    }

    /// Connects from a local address to the service at `to`.
    pub(crate) fn connect_from(from: IpAddr, to: SocketAddr) -> Client {
        let endpoint = Endpoint::from_shared(format!("http://{to}")).expect("a valid address");
        let endpoint = endpoint.local_address(Some(from));
        Client::open(endpoint).unwrap_or_else(|e| panic!("{from} to {to}: {e}"))
    }

    /// Connects with TLS. Returns the error if the handshake fails.
    pub(crate) fn over_tls(
        to: SocketAddr,
        tls: ClientTlsConfig,
    ) -> Result<Client, tonic::transport::Error> {
        let endpoint = Endpoint::from_shared(format!("https://{to}")).expect("a valid address");
        Client::open(endpoint.tls_config(tls)?)
    }

    fn open(endpoint: Endpoint) -> Result<Client, tonic::transport::Error> {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        let channel = runtime.block_on(endpoint.timeout(TIMEOUT).connect())?;
        Ok(Client { runtime, channel })
    }

    /// The connection, for clients of other services.
    pub(crate) fn channel(&self) -> Channel {
        self.channel.clone()
    }

    /// Runs a call of such a client to its end.
    pub(crate) fn block_on<T>(&self, call: impl Future<Output = T>) -> T {
        self.runtime.block_on(call)
    }

    /// Calls `ShouldRateLimit` and returns the error if the call fails.
    pub(crate) fn try_check(&self, request: RateLimitRequest) -> tonic::Result<RateLimitResponse> {
        let mut client = RateLimitServiceClient::new(self.channel());
        let answer = self.runtime.block_on(client.should_rate_limit(request));
        answer.map(tonic::Response::into_inner)
    }

    /// Peeks at one counter: its remaining hits.
    pub(crate) fn remaining(&self, domain: &str, entries: &[(&str, &str)]) -> u32 {
        let peek = request(domain, vec![costing(0, descriptor(entries))]);
        self.check(peek).statuses[0].limit_remaining
    }

    /// Calls `ShouldRateLimit` with a `traceparent`. Panics if the call fails.
    pub(crate) fn check_traced(
        &self,
        traceparent: &str,
        request: RateLimitRequest,
    ) -> RateLimitResponse {
        let mut call = tonic::Request::new(request);
        call.metadata_mut().insert("traceparent", traceparent.parse().expect("a header"));
        let mut client = RateLimitServiceClient::new(self.channel());
        let answer = self.runtime.block_on(client.should_rate_limit(call));
        answer.expect("an answer").into_inner()
    }

    /// Calls `ShouldRateLimit`. Panics if the call fails.
    pub(crate) fn check(&self, request: RateLimitRequest) -> RateLimitResponse {
        let shown = format!("{request:?}");
        self.try_check(request).unwrap_or_else(|status| panic!("{shown}\n{status:?}"))
    }
}

/// A request without `hits_addend`.
pub(crate) fn request(domain: &str, descriptors: Vec<RateLimitDescriptor>) -> RateLimitRequest {
    RateLimitRequest { domain: domain.to_owned(), descriptors, hits_addend: 0 }
}

/// A descriptor without `hits_addend`.
pub(crate) fn descriptor(entries: &[(&str, &str)]) -> RateLimitDescriptor {
    let entry =
        |(key, value): &(&str, &str)| Entry { key: (*key).to_owned(), value: (*value).to_owned() };
    RateLimitDescriptor { entries: entries.iter().map(entry).collect(), ..Default::default() }
}

/// Sets the `hits_addend` of a descriptor.
pub(crate) fn costing(hits: u64, descriptor: RateLimitDescriptor) -> RateLimitDescriptor {
    RateLimitDescriptor { hits_addend: Some(UInt64Value { value: hits }), ..descriptor }
}

/// The response headers that a decision adds.
pub(crate) fn headers(answer: &RateLimitResponse) -> Vec<(&str, &str)> {
    let headers = answer.response_headers_to_add.iter();
    headers.map(|header| (header.key.as_str(), header.value.as_str())).collect()
}
