//! An OpenTelemetry collector over gRPC and HTTP that records the messages it receives.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Instant;

use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_server::{
    MetricsService, MetricsServiceServer,
};
use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsServiceRequest, ExportMetricsServiceResponse,
};
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1::Metric;
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::{Identity, ServerTlsConfig};

use super::wait::TIMEOUT;

/// A running collector. Its thread ends with the test process.
pub(crate) struct Collector {
    pub(crate) address: SocketAddr,
    received: Receiver<Received>,
}

/// One export message with its resource and token.
pub(crate) struct Received {
    pub(crate) spans: Vec<Span>,
    pub(crate) metrics: Vec<Metric>,
    resource: Option<Resource>,
    /// The value of the header `x-token`.
    pub(crate) token: Option<String>,
}

#[derive(Clone)]
struct Service(Sender<Received>);

#[tonic::async_trait]
impl TraceService for Service {
    async fn export(
        &self,
        request: tonic::Request<ExportTraceServiceRequest>,
    ) -> tonic::Result<tonic::Response<ExportTraceServiceResponse>> {
        let token = token(&request);
        let _ = self.0.send(traces(request.into_inner(), token));
        Ok(tonic::Response::new(ExportTraceServiceResponse::default()))
    }
}

#[tonic::async_trait]
impl MetricsService for Service {
    async fn export(
        &self,
        request: tonic::Request<ExportMetricsServiceRequest>,
    ) -> tonic::Result<tonic::Response<ExportMetricsServiceResponse>> {
        let token = token(&request);
        let _ = self.0.send(metrics(request.into_inner(), token));
        Ok(tonic::Response::new(ExportMetricsServiceResponse::default()))
    }
}

fn token<T>(request: &tonic::Request<T>) -> Option<String> {
    let value = request.metadata().get("x-token")?;
    value.to_str().ok().map(str::to_owned)
}

fn traces(message: ExportTraceServiceRequest, token: Option<String>) -> Received {
    let resource = message.resource_spans.first().and_then(|all| all.resource.clone());
    let scopes = message.resource_spans.into_iter().flat_map(|all| all.scope_spans);
    let spans = scopes.flat_map(|all| all.spans).collect();
    Received { spans, metrics: Vec::new(), resource, token }
}

fn metrics(message: ExportMetricsServiceRequest, token: Option<String>) -> Received {
    let resource = message.resource_metrics.first().and_then(|all| all.resource.clone());
    let scopes = message.resource_metrics.into_iter().flat_map(|all| all.scope_metrics);
    let metrics = scopes.flat_map(|all| all.metrics).collect();
    Received { spans: Vec::new(), metrics, resource, token }
}

impl Collector {
    /// OTLP over gRPC.
    pub(crate) fn grpc() -> Collector {
        Collector::grpc_with(tonic::transport::Server::builder())
    }

    /// OTLP over HTTP/1.1.
    pub(crate) fn http() -> Collector {
        Collector::http_with(|stream| stream)
    }

    /// OTLP over gRPC and TLS; a certificate and its key.
    pub(crate) fn grpc_over_tls((cert, key): &(String, String)) -> Collector {
        let tls = ServerTlsConfig::new().identity(Identity::from_pem(cert, key));
        let server = tonic::transport::Server::builder().tls_config(tls);
        Collector::grpc_with(server.expect("a pair"))
    }

    /// OTLP over HTTP/1.1 and TLS; a certificate and its key.
    pub(crate) fn http_over_tls((cert, key): &(String, String)) -> Collector {
        let cert = CertificateDer::from_pem_slice(cert.as_bytes()).expect("a certificate");
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).expect("a key");
        let ring = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(ring)
            .with_safe_default_protocol_versions()
            .expect("the versions of TLS")
            .with_no_client_auth()
            .with_single_cert(vec![cert], key);
        let config = Arc::new(config.expect("a pair"));
        Collector::http_with(move |stream| {
            let session = ServerConnection::new(config.clone()).expect("a session");
            StreamOwned::new(session, stream)
        })
    }

    fn grpc_with(mut server: tonic::transport::Server) -> Collector {
        let listener = listener();
        let address = listener.local_addr().expect("it listens");
        let (sender, received) = channel();
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(async {
                listener.set_nonblocking(true).expect("a socket");
                let listener = tokio::net::TcpListener::from_std(listener).expect("a socket");
                let service = Service(sender);
                server
                    .add_service(TraceServiceServer::new(service.clone()))
                    .add_service(MetricsServiceServer::new(service))
                    .serve_with_incoming(TcpListenerStream::new(listener))
                    .await
            })
        });
        Collector { address, received }
    }

    fn http_with<S: Read + Write + Send + 'static>(
        open: impl Fn(TcpStream) -> S + Send + 'static,
    ) -> Collector {
        let listener = listener();
        let address = listener.local_addr().expect("it listens");
        let (sender, received) = channel();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (sender, stream) = (sender.clone(), open(stream));
                thread::spawn(move || serve(stream, &sender));
            }
        });
        Collector { address, received }
    }

    /// Waits for a span for which `fits` returns true.
    pub(crate) fn span(&self, fits: impl Fn(&Span) -> bool) -> (Span, Received) {
        self.wait(|received| received.spans.iter().find(|span| fits(span)).cloned())
    }

    /// Waits for a message for which `pick` returns a value.
    pub(crate) fn wait<T>(&self, pick: impl Fn(&Received) -> Option<T>) -> (T, Received) {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let received = self.received.recv_timeout(left).expect("a message that fits");
            if let Some(picked) = pick(&received) {
                return (picked, received);
            }
        }
    }

    /// All further messages received so far.
    pub(crate) fn rest(&self) -> Vec<Received> {
        self.received.try_iter().collect()
    }
}

impl Received {
    /// An attribute of the sender's resource.
    pub(crate) fn resource(&self, name: &str) -> Option<String> {
        text(&self.resource.as_ref()?.attributes, name)
    }
}

/// The text of an attribute.
pub(crate) fn text(attributes: &[KeyValue], name: &str) -> Option<String> {
    let found = attributes.iter().find(|attribute| attribute.key == name)?;
    match found.value.as_ref()?.value.as_ref()? {
        any_value::Value::StringValue(text) => Some(text.clone()),
        other => panic!("{name} is no text: {other:?}"),
    }
}

/// Lower-case hexadecimal, as `traceparent` has it.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn listener() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").expect("a free port")
}

/// Serves one connection until it is closed.
fn serve(stream: impl Read + Write, to: &Sender<Received>) -> Option<()> {
    let mut reader = BufReader::new(stream);
    loop {
        let (mut length, mut token, mut path) = (0, None, String::new());
        reader.read_line(&mut path).ok().filter(|bytes| *bytes > 0)?;
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).ok()?;
            let Some((name, value)) = line.trim_end().split_once(": ") else { break };
            match name.to_ascii_lowercase().as_str() {
                "content-length" => length = value.parse().expect("a length"),
                "x-token" => token = Some(value.to_owned()),
                "content-type" => assert_eq!(value, "application/x-protobuf"),
                _ => {}
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        let received = match path.trim_end() {
            "POST /v1/traces HTTP/1.1" => traces(decoded(&body), token),
            "POST /v1/metrics HTTP/1.1" => metrics(decoded(&body), token),
            other => panic!("{other} is no path of OTLP"),
        };
        to.send(received).ok()?;
        let answer = "HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\n\
                      content-length: 0\r\n\r\n";
        reader.get_mut().write_all(answer.as_bytes()).ok()?;
    }
}

fn decoded<M: Message + Default>(body: &[u8]) -> M {
    M::decode(body).expect("Protocol Buffers")
}
