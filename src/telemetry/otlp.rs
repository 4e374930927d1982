//! OTLP: sends spans and metrics to an OpenTelemetry collector, by gRPC or HTTP.
//!
//! Responses of the collector are never logged, because they may contain the token that was sent.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Uri};
use hyper_rustls::HttpsConnectorBuilder;
use opentelemetry_http::HttpClient;
use opentelemetry_http::hyper::HyperClient;
use prost::Message;
use tokio::runtime::Builder;
use tokio::time::{sleep, timeout};
use tonic::client::Grpc;
use tonic::metadata::MetadataMap;
use tonic::transport::{Channel, ClientTlsConfig, Endpoint};
use tonic_prost::ProstCodec;

use crate::settings::{MetricsSettings, OtlpHeaders, OtlpProtocol, SecretUrl, TracingSettings};

mod exporter;
mod metrics;

pub use exporter::Exporter;
pub use metrics::start_metrics_export;

/// Pauses before retries. After the last one the message is dropped.
const RETRY_PAUSES: [Duration; 3] =
    [Duration::from_millis(200), Duration::from_millis(400), Duration::from_millis(800)];

/// The address of a collector, and how messages are sent to it.
pub(super) struct Destination {
    /// Whether messages are sent by gRPC; otherwise by HTTP.
    grpc: bool,
    /// Scheme (`http://` or `https://`), host and port. With HTTP also the path; without one, the
    /// default path of the signal is used.
    endpoint: String,
    /// Headers of each message, such as a token.
    headers: OtlpHeaders,
    /// Timeout of one message.
    timeout: Duration,
}

impl From<&TracingSettings> for Destination {
    fn from(settings: &TracingSettings) -> Destination {
        let TracingSettings { endpoint, protocol, headers, timeout, .. } = settings;
        Destination::new(endpoint.as_ref(), *protocol, headers, *timeout)
    }
}

impl From<&MetricsSettings> for Destination {
    fn from(settings: &MetricsSettings) -> Destination {
        let MetricsSettings { otlp_endpoint, otlp_protocol, otlp_headers, otlp_timeout, .. } =
            settings;
        Destination::new(otlp_endpoint.as_ref(), *otlp_protocol, otlp_headers, *otlp_timeout)
    }
}

impl Destination {
    /// A destination. Without an endpoint it is the default port of a collector on this machine.
    fn new(
        endpoint: Option<&SecretUrl>,
        protocol: OtlpProtocol,
        headers: &OtlpHeaders,
        timeout: Duration,
    ) -> Destination {
        let grpc = protocol == OtlpProtocol::Grpc;
        let default = if grpc { "http://localhost:4317" } else { "http://localhost:4318" };
        let endpoint = endpoint.map_or(default, SecretUrl::reveal).to_owned();
        Destination { grpc, endpoint, headers: headers.clone(), timeout }
    }
}

/// The kind of telemetry in a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Signal {
    Traces,
    Metrics,
}

/// A client of a collector for one signal. It connects with the first message.
pub(super) struct CollectorClient {
    transport: Transport,
    headers: HeaderMap,
    timeout: Duration,
    signal: Signal,
    /// Whether the last message was dropped. The log has a line when this changes.
    failing: bool,
}

enum Transport {
    Grpc(Channel, &'static str),
    Http(Box<dyn HttpClient>, Uri),
}

/// Invalid settings of the collector.
#[derive(Debug, thiserror::Error)]
#[error("{signal} cannot be sent to a collector: {why}")]
pub struct OtlpError {
    signal: &'static str,
    why: String,
}

/// The reason why a message was not accepted, without any text from the collector.
pub(super) struct ExportError(String);

impl Signal {
    fn name(self) -> &'static str {
        match self {
            Signal::Traces => "traces",
            Signal::Metrics => "metrics",
        }
    }

    /// What a message has, for the log.
    fn content(self) -> &'static str {
        match self {
            Signal::Traces => "spans",
            Signal::Metrics => "metrics",
        }
    }

    /// The path of the signal over HTTP.
    fn path(self) -> &'static str {
        match self {
            Signal::Traces => "/v1/traces",
            Signal::Metrics => "/v1/metrics",
        }
    }

    /// The method of the signal over gRPC.
    fn method(self) -> &'static str {
        match self {
            Signal::Traces => "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
            Signal::Metrics => "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
        }
    }

    /// An error about the settings of this signal, with the reason `why`.
    pub(super) fn error(self, why: impl fmt::Display) -> OtlpError {
        OtlpError { signal: self.name(), why: why.to_string() }
    }
}

impl CollectorClient {
    /// A client that sends to `to`. It works only on the runtime that creates it.
    pub(super) fn new(to: &Destination, signal: Signal) -> Result<CollectorClient, OtlpError> {
        let headers = to.headers.reveal().iter().map(|(name, value)| {
            let name = HeaderName::try_from(name).map_err(|_| "a header has an invalid name")?;
            let mut value =
                HeaderValue::try_from(value).map_err(|_| "a header has an invalid value")?;
            value.set_sensitive(true);
            Ok((name, value))
        });
        let headers: Result<HeaderMap, &str> = headers.collect();
        let headers = headers.map_err(|why| signal.error(why))?;
        let uri: Uri = to.endpoint.parse().map_err(|error| signal.error(error))?;
        let transport = if to.grpc { grpc(uri, signal)? } else { http(uri, signal)? };
        Ok(CollectorClient { transport, headers, timeout: to.timeout, signal, failing: false })
    }

    /// Sends `message`, with up to three retries.
    pub(super) async fn deliver<M: Message + Clone + 'static>(
        &self,
        message: &M,
    ) -> Result<(), ExportError> {
        let mut result = self.send(message).await;
        for pause in RETRY_PAUSES {
            if result.is_ok() {
                break;
            }
            sleep(pause).await;
            result = self.send(message).await;
        }
        result
    }

    /// Logs when the collector starts to fail, and when it recovers.
    pub(super) fn log_transition(&mut self, result: &Result<(), ExportError>) {
        let (signal, content) = (self.signal.name(), self.signal.content());
        match result {
            Err(ExportError(error)) if !self.failing => {
                tracing::warn!(signal, error, "collector failed: {content} are dropped");
            }
            Ok(()) if self.failing => tracing::info!(signal, "collector recovered"),
            _ => {}
        }
        self.failing = result.is_err();
    }

    async fn send<M: Message + Clone + 'static>(&self, message: &M) -> Result<(), ExportError> {
        let sent = async {
            match &self.transport {
                Transport::Grpc(channel, method) => self.call(channel, method, message).await,
                Transport::Http(client, uri) => self.post(&**client, uri, message).await,
            }
        };
        let late = || ExportError(format!("no answer within {:?}", self.timeout));
        timeout(self.timeout, sent).await.unwrap_or_else(|_| Err(late()))
    }

    async fn call<M: Message + Clone + 'static>(
        &self,
        channel: &Channel,
        method: &'static str,
        message: &M,
    ) -> Result<(), ExportError> {
        let failed = |status: tonic::Status| ExportError(format!("gRPC: {}", status.code()));
        let mut client = Grpc::new(channel.clone());
        client.ready().await.map_err(|_| ExportError("unreachable".to_owned()))?;
        let mut request = tonic::Request::new(message.clone());
        *request.metadata_mut() = MetadataMap::from_headers(self.headers.clone());
        // The content of a successful response is not used.
        let codec = ProstCodec::<M, ()>::default();
        let method = http::uri::PathAndQuery::from_static(method);
        client.unary(request, method, codec).await.map(|_| ()).map_err(failed)
    }

    async fn post(
        &self,
        client: &dyn HttpClient,
        uri: &Uri,
        message: &impl Message,
    ) -> Result<(), ExportError> {
        let mut request = Request::post(uri)
            .body(Bytes::from(message.encode_to_vec()))
            .expect("the address was checked");
        *request.headers_mut() = self.headers.clone();
        let protobuf = HeaderValue::from_static("application/x-protobuf");
        request.headers_mut().insert(CONTENT_TYPE, protobuf);
        let answer = client.send_bytes(request).await;
        match answer.map(|answer| answer.status()) {
            Ok(status) if status.is_success() => Ok(()),
            Ok(status) => Err(ExportError(format!("HTTP status {}", status.as_u16()))),
            Err(_) => Err(ExportError("unreachable, or the connection was closed".to_owned())),
        }
    }
}

/// Creates the clients that the exports of spans and metrics would use, and drops them.
///
/// # Errors
/// An invalid address of a collector, or a system without certificate authorities where they are needed.
pub fn check_collectors(
    tracing: &TracingSettings,
    metrics: &MetricsSettings,
) -> Result<(), OtlpError> {
    let spans = tracing.enabled.then(|| (Destination::from(tracing), Signal::Traces));
    let metrics = metrics.otlp.then(|| (Destination::from(metrics), Signal::Metrics));
    for (to, signal) in spans.into_iter().chain(metrics) {
        // A client can only be created on a runtime.
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| signal.error(error))?;
        let _entered = runtime.enter();
        CollectorClient::new(&to, signal)?;
    }
    Ok(())
}

fn grpc(uri: Uri, signal: Signal) -> Result<Transport, OtlpError> {
    let secure = uri.scheme_str() == Some("https");
    let mut endpoint = Endpoint::from(uri);
    if secure {
        let tls = ClientTlsConfig::new().with_native_roots();
        endpoint = endpoint.tls_config(tls).map_err(|error| signal.error(error))?;
    }
    Ok(Transport::Grpc(endpoint.connect_lazy(), signal.method()))
}

fn http(uri: Uri, signal: Signal) -> Result<Transport, OtlpError> {
    let uri = if matches!(uri.path(), "" | "/") {
        let mut parts = uri.into_parts();
        parts.path_and_query = Some(http::uri::PathAndQuery::from_static(signal.path()));
        Uri::from_parts(parts).map_err(|error| signal.error(error))?
    } else {
        uri
    };
    // No timeout here, because `send` has one.
    let timeout = Duration::MAX;
    let client: Box<dyn HttpClient> = if uri.scheme_str() == Some("https") {
        let ring = rustls::crypto::ring::default_provider();
        let tls = HttpsConnectorBuilder::new().with_provider_and_native_roots(ring);
        let tls = tls.map_err(|error| signal.error(error))?.https_only().enable_http1().build();
        Box::new(HyperClient::new(tls, timeout, None))
    } else {
        Box::new(HyperClient::with_default_connector(timeout, None))
    };
    Ok(Transport::Http(client, uri))
}
