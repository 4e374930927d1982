//! One stream: connects to the server, and answers its responses until one side ends it.

use std::future::pending;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use prost_types::value::Kind;
use prost_types::{Struct, Value};
use tokio::sync::{Notify, mpsc};
use tokio::time::{Sleep, sleep};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;
use tonic::client::Grpc;
use tonic::metadata::MetadataMap;
use tonic::transport::{Channel, Endpoint};

use super::cause;
use super::response_codec::ResponseCodec;
use super::updates::{Updates, summary};
use crate::escape::one_line;
use crate::proto::xds::envoy::config::core::v3::Node;
use crate::proto::xds::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse};
use crate::proto::xds::google::rpc;
use crate::rules::{XDS_DESCRIPTORS_PER_LIMIT, XDS_TYPE_URL};
use crate::settings::XdsSettings;
use crate::time::SystemClock;
use crate::tls::TlsError;
use crate::xds::connector::Connector;
use crate::xds::credentials::XdsCredentials;
use crate::xds::session::{Answer, XdsAction, XdsRequest, XdsSession};
use crate::xds::status::{StreamEnd, XdsStatus};

/// The method of the server.
const METHOD: &str =
    "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources";

/// Longest wait for the reply to a ping. Shorter intervals of pings shorten it.
const PING_TIMEOUT: Duration = Duration::from_secs(20);

/// The code of a rejection: INVALID_ARGUMENT. Servers read the text only.
const INVALID_ARGUMENT: i32 = 3;

/// The server, and what every stream to it needs.
pub(super) struct Server {
    host: String,
    port: u16,
    endpoint: Endpoint,
    credentials: Option<XdsCredentials>,
    node: Node,
    headers: HeaderMap,
    connect_timeout: Duration,
    message_bytes_max: usize,
    resources_max: usize,
    /// Attempts without a response. The one after each starts with another address.
    failed_attempts: AtomicUsize,
}

/// The end of a stream.
pub(super) struct EndedStream {
    pub(super) reason: StreamEnd,
    /// The reason for the log, on one line.
    pub(super) error: String,
    /// Whether the server sent a response.
    pub(super) delivered: bool,
}

impl Server {
    /// The server of the settings; `None` without one.
    ///
    /// # Errors
    /// Files of TLS that cannot be used.
    pub(super) fn new(
        settings: &XdsSettings,
        clock: SystemClock,
    ) -> Result<Option<Server>, TlsError> {
        let parts = settings.server.as_ref().zip(settings.host_and_port());
        let Some((address, (host, port))) = parts else { return Ok(None) };
        let bad = |what: String| TlsError::new(format!("rules.xds.server: {address:?}: {what}"));
        let credentials = XdsCredentials::load(settings, &host, clock)?;
        // The connector does TLS itself. tonic accepts no other scheme then.
        let endpoint = Endpoint::from_shared(format!("http://{address}"));
        let endpoint = endpoint.map_err(|error| bad(cause(&error)))?;
        let scheme = if credentials.is_some() { "https" } else { "http" };
        let origin: Result<Uri, _> = format!("{scheme}://{address}").parse();
        let origin = origin.map_err(|error| bad(error.to_string()))?;
        let mut endpoint = endpoint
            .origin(origin)
            .user_agent(concat!("weir/", env!("CARGO_PKG_VERSION")))
            .map_err(|error| bad(cause(&error)))?;
        if let Some(interval) = settings.keepalive_interval {
            endpoint = endpoint
                .http2_keep_alive_interval(interval)
                .keep_alive_timeout(interval.min(PING_TIMEOUT))
                .keep_alive_while_idle(true);
        }
        Ok(Some(Server {
            host,
            port,
            endpoint,
            credentials,
            node: node(settings),
            headers: headers(settings)?,
            connect_timeout: settings.connect_timeout,
            message_bytes_max: settings.max_message_bytes,
            resources_max: settings.max_limits.saturating_mul(XDS_DESCRIPTORS_PER_LIMIT),
            failed_attempts: AtomicUsize::new(0),
        }))
    }

    /// Reads the files of TLS again, and records when weir's certificate expires.
    pub(super) fn read_certificates(&self, status: &XdsStatus) {
        if let Some(credentials) = &self.credentials {
            credentials.reload();
            status.set_certificate_expiry(credentials.certificate_expiry());
        }
    }

    /// Opens a connection, which notifies `responded` once the server has sent something.
    async fn connect(&self, responded: &Arc<Notify>) -> Result<Channel, String> {
        let connector = Connector {
            host: self.host.clone(),
            port: self.port,
            tls: self.credentials.as_ref().map(XdsCredentials::connector),
            first_address: self.failed_attempts.load(Ordering::Relaxed),
            timeout: self.connect_timeout,
            responded: responded.clone(),
        };
        let connected = self.endpoint.connect_with_connector(connector).await;
        connected.map_err(|error| cause(&error))
    }

    /// The end of an attempt or of a stream.
    fn ended(&self, reason: StreamEnd, error: String, delivered: bool) -> EndedStream {
        if !delivered {
            self.failed_attempts.fetch_add(1, Ordering::Relaxed);
        }
        EndedStream { reason, error: one_line(&error).into_owned(), delivered }
    }

    /// The codec of a stream.
    fn codec(&self) -> ResponseCodec {
        ResponseCodec { resources_max: self.resources_max }
    }

    /// The message of a request.
    fn request(&self, request: XdsRequest) -> DiscoveryRequest {
        let detail = |message| rpc::Status { code: INVALID_ARGUMENT, message };
        DiscoveryRequest {
            version_info: request.version,
            node: Some(self.node.clone()),
            resource_names: Vec::new(),
            type_url: XDS_TYPE_URL.to_owned(),
            response_nonce: request.nonce,
            error_detail: request.error.map(detail),
        }
    }
}

/// The node of the settings.
fn node(settings: &XdsSettings) -> Node {
    let parts = settings.node_metadata.split(',').filter_map(|part| part.split_once('='));
    let text = |text: &str| Value { kind: Some(Kind::StringValue(text.to_owned())) };
    let fields = parts.map(|(name, value)| (name.to_owned(), text(value))).collect();
    Node { id: settings.node_id.clone(), metadata: Some(Struct { fields }) }
}

/// The headers of the settings.
fn headers(settings: &XdsSettings) -> Result<HeaderMap, TlsError> {
    let bad = || TlsError::new("rules.xds.headers: a name or a value is not valid in HTTP");
    let mut headers = HeaderMap::new();
    for (name, value) in settings.headers.reveal() {
        let name = HeaderName::try_from(name).map_err(|_| bad())?;
        let mut value = HeaderValue::try_from(value).map_err(|_| bad())?;
        value.set_sensitive(true);
        headers.append(name, value);
    }
    Ok(headers)
}

/// Opens a stream and serves it until it ends. Calls `on_response` for each response.
pub(super) async fn run(
    server: &Server,
    session: &mut XdsSession,
    updates: &mut Updates,
    status: &XdsStatus,
    on_response: &mut dyn FnMut(),
) -> EndedStream {
    let mut deadline = pin!(sleep(server.connect_timeout));
    let responded = Arc::new(Notify::new());
    server.read_certificates(status);
    let connected = tokio::select! {
        connected = server.connect(&responded) => connected,
        () = &mut deadline => Err(format!("no connection within {:?}", server.connect_timeout)),
    };
    let channel = match connected {
        Ok(channel) => channel,
        Err(error) => return server.ended(StreamEnd::Unreachable, error, false),
    };
    let mut delivered = false;
    let mut on_response = || {
        delivered = true;
        on_response();
    };
    // A process that hangs accepts connections too. The first bytes of HTTP/2 come at once.
    let silent = async {
        tokio::select! {
            biased;
            () = responded.notified() => {
                status.set_connected(true);
                pending().await
            }
            () = &mut deadline => {}
        }
    };
    let served = tokio::select! {
        served = serve(server, channel, session, updates, status, &mut on_response) => served,
        () = silent => {
            let error = format!("the server sent nothing within {:?}", server.connect_timeout);
            return server.ended(StreamEnd::Unreachable, error, false);
        }
    };
    let (reason, error) = match served {
        Ok(()) => (StreamEnd::Closed, "the server ended the stream".to_owned()),
        Err(status) => (StreamEnd::Failed, failure(&status)),
    };
    server.ended(reason, error, delivered)
}

/// The reason of a failed stream.
fn failure(status: &Status) -> String {
    // A status of the server has no source. The others report a broken connection.
    let text = match std::error::Error::source(status) {
        Some(source) => cause(source),
        None => format!("{:?}: {}", status.code(), status.message()),
    };
    text.chars().take(500).collect()
}

/// What follows a response: its resources are applied, or a request is sent.
enum StreamAction {
    Apply(DiscoveryResponse),
    Send(XdsRequest),
}

/// An action that is held.
struct HeldAction {
    action: StreamAction,
    end: Pin<Box<Sleep>>,
}

impl HeldAction {
    /// Holds an action for this time, or until `end`. A newer response does not start a hold again, so
    /// that a server that sends often gets answers too.
    fn new(action: StreamAction, time: Duration, end: Option<Pin<Box<Sleep>>>) -> HeldAction {
        HeldAction { action, end: end.unwrap_or_else(|| Box::pin(sleep(time))) }
    }
}

/// Waits for the end of a hold; for ever without one.
async fn end_of(held: &mut Option<HeldAction>) {
    match held {
        Some(held) => held.end.as_mut().await,
        None => pending().await,
    }
}

/// Serves an open connection until the server ends the stream.
async fn serve(
    server: &Server,
    channel: Channel,
    session: &mut XdsSession,
    updates: &mut Updates,
    status: &XdsStatus,
    on_response: &mut dyn FnMut(),
) -> tonic::Result<()> {
    let (requests, outgoing) = mpsc::channel(1);
    // The channel is empty, so the request has room.
    let _ = requests.try_send(server.request(session.opened()));
    let mut call = tonic::Request::new(ReceiverStream::new(outgoing));
    *call.metadata_mut() = MetadataMap::from_headers(server.headers.clone());
    let mut client = Grpc::new(channel).max_decoding_message_size(server.message_bytes_max);
    client.ready().await.map_err(|error| Status::from_error(Box::new(error)))?;
    let (method, codec) = (PathAndQuery::from_static(METHOD), server.codec());
    // A server without rules does not even send headers. The pings detect a server that hangs.
    let mut responses = client.streaming(call, method, codec).await?.into_inner();
    let mut held: Option<HeldAction> = None;
    loop {
        let received = tokio::select! {
            received = responses.message() => Some(received?),
            () = end_of(&mut held) => None,
        };
        let before = held.take();
        let (action, end) = match received {
            Some(None) => return Ok(()),
            Some(Some(response)) => {
                on_response();
                let end = before.map(|held| held.end);
                match session.received(summary(&response)) {
                    XdsAction::Apply => (StreamAction::Apply(response), end),
                    XdsAction::Answer(request) => {
                        updates.confirmed(&response);
                        (StreamAction::Send(request), end)
                    }
                    XdsAction::Hold(time) => {
                        held = Some(HeldAction::new(StreamAction::Apply(response), time, end));
                        continue;
                    }
                }
            }
            None => match before {
                Some(held) => (held.action, None),
                None => continue,
            },
        };
        let request = match action {
            StreamAction::Send(request) => request,
            StreamAction::Apply(response) => match updates.apply(response, session).await {
                None => continue,
                Some(Answer { request, hold: None }) => request,
                Some(Answer { request, hold: Some(time) }) => {
                    held = Some(HeldAction::new(StreamAction::Send(request), time, end));
                    continue;
                }
            },
        };
        if request.error.is_some() {
            status.nack_sent();
        }
        // An error means that the stream has ended. The next read returns the reason.
        let _ = requests.send(server.request(request)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_node_has_an_id_and_texts() {
        let settings = XdsSettings {
            node_id: "envoy-ratelimit".to_owned(),
            node_metadata: "a=b=c,d=".to_owned(),
            ..XdsSettings::default()
        };
        let Node { id, metadata } = node(&settings);
        assert_eq!(id, "envoy-ratelimit");
        let mut fields: Vec<_> = metadata.unwrap_or_default().fields.into_iter().collect();
        fields.sort_by(|a, b| a.0.cmp(&b.0));
        let text = |text: &str| Value { kind: Some(Kind::StringValue(text.to_owned())) };
        assert_eq!(fields, [("a".to_owned(), text("b=c")), ("d".to_owned(), text(""))]);
    }

    #[test]
    fn addresses_have_a_host_and_a_port() {
        for (address, host, port) in
            [("envoy-gateway:18001", "envoy-gateway", 18_001), ("[::1]:2", "::1", 2)]
        {
            let server = Some(address.to_owned());
            let settings = XdsSettings { server, ..XdsSettings::default() };
            let server = Server::new(&settings, SystemClock::new()).unwrap().unwrap();
            assert_eq!((server.host.as_str(), server.port), (host, port));
        }
        assert!(Server::new(&XdsSettings::default(), SystemClock::new()).unwrap().is_none());
    }
}
