//! Sends conditional requests for plans over one connection, which is opened again when it is lost.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::time::Duration;

use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, ETAG, HOST, IF_NONE_MATCH, USER_AGENT};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use hyper::body::{Body, Incoming};
use hyper::client::conn::http1::{Builder, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};

use super::credentials::PlansTls;
use super::endpoint::PlansEndpoint;
use super::failure::HttpFailure;
use crate::bounded_file;
use crate::connect::first_of;
use crate::plan_sources::PlanSourceError;
use crate::settings::PlansSettings;

/// The most bytes of the head of a response.
const HEAD_BYTES_MAX: usize = 64 << 10;

/// The most bytes of an ETag that is sent back.
const ETAG_BYTES_MAX: usize = 1 << 10;

const AGENT: &str = concat!("weir/", env!("CARGO_PKG_VERSION"));

/// A connection, with or without TLS.
trait PlansConnection: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> PlansConnection for T {}

/// A client of one server.
pub(super) struct PlansClient {
    endpoint: PlansEndpoint,
    tls: Option<PlansTls>,
    token_file: Option<PathBuf>,
    max_bytes: usize,
    /// Timeout of all addresses of the server together.
    timeout: Duration,
    /// The connection of the last answer, while the server keeps it open.
    connection: Option<SendRequest<String>>,
}

/// An answer.
#[derive(Debug)]
pub(super) enum FetchedPlans {
    /// The content is that of the ETag.
    Same,
    /// The content.
    Body(PlansBody),
}

/// The content of an answer.
#[derive(Debug)]
pub(super) struct PlansBody {
    pub(super) bytes: Vec<u8>,
    /// Whether the server says that it is JSON.
    pub(super) is_json: bool,
    pub(super) etag: Option<HeaderValue>,
}

impl PlansClient {
    /// A client without a connection.
    ///
    /// # Errors
    /// An invalid URL, and a file of authorities that cannot be used.
    pub(super) fn new(settings: &PlansSettings) -> Result<PlansClient, PlanSourceError> {
        let url = settings.url.as_ref().map(|url| url.reveal()).unwrap_or_default();
        let endpoint = PlansEndpoint::parse(url).map_err(PlanSourceError::Settings)?;
        let authorities = settings.ca_file.as_deref();
        let tls = endpoint.is_tls.then(|| PlansTls::load(authorities, &endpoint.host)).transpose();
        let tls = tls.map_err(|error| PlanSourceError::Settings(error.to_string()))?;
        Ok(PlansClient {
            endpoint,
            tls,
            token_file: settings.token_file.clone(),
            max_bytes: settings.max_bytes,
            timeout: settings.timeout,
            connection: None,
        })
    }

    /// Checks that the token can be read.
    pub(super) fn check_token(&self) -> Result<(), HttpFailure> {
        self.authorization().map(drop)
    }

    /// Asks for the plans. `etag` is that of the last content.
    pub(super) async fn get(
        &mut self,
        etag: Option<&HeaderValue>,
    ) -> Result<FetchedPlans, HttpFailure> {
        // A server may close an idle connection at any time, so a failure there counts only if a new
        // connection fails too.
        if let Some(mut connection) = self.connection.take()
            && connection.ready().await.is_ok()
            && let Ok(response) = connection.send_request(self.request(etag)?).await
        {
            return self.read(connection, response, etag.is_some()).await;
        }
        let mut connection = self.connect().await?;
        let response = connection.send_request(self.request(etag)?).await.map_err(lost)?;
        self.read(connection, response, etag.is_some()).await
    }

    fn request(&self, etag: Option<&HeaderValue>) -> Result<Request<String>, HttpFailure> {
        let mut request = Request::new(String::new());
        *request.uri_mut() = self.endpoint.target.clone();
        let headers = request.headers_mut();
        headers.insert(HOST, self.endpoint.host_header.clone());
        headers.insert(USER_AGENT, HeaderValue::from_static(AGENT));
        let accept = HeaderValue::from_static("application/json, application/yaml;q=0.9");
        headers.insert(ACCEPT, accept);
        if let Some(etag) = etag {
            headers.insert(IF_NONE_MATCH, etag.clone());
        }
        if let Some(authorization) = self.authorization()? {
            headers.insert(AUTHORIZATION, authorization);
        }
        Ok(request)
    }

    /// The header with the token, which may change at any time. Blocks while it reads the file.
    fn authorization(&self) -> Result<Option<HeaderValue>, HttpFailure> {
        let Some(path) = &self.token_file else { return Ok(None) };
        let failed = |error: String| HttpFailure::Token(format!("{}: {error}", path.display()));
        let line = bounded_file::first_line(path).map_err(|error| failed(error.to_string()))?;
        let token = line.trim();
        if token.is_empty() {
            return Err(failed("its first line has no token; write one".to_owned()));
        }
        let mut value = HeaderValue::try_from(format!("Bearer {token}"))
            .map_err(|_| failed("the token has characters that no header can have".to_owned()))?;
        value.set_sensitive(true);
        Ok(Some(value))
    }

    /// Reads the rest of a response, and keeps its connection for the next request.
    async fn read(
        &mut self,
        connection: SendRequest<String>,
        response: Response<Incoming>,
        is_conditional: bool,
    ) -> Result<FetchedPlans, HttpFailure> {
        let (head, body) = response.into_parts();
        let fetched = match head.status {
            StatusCode::NOT_MODIFIED if is_conditional => FetchedPlans::Same,
            StatusCode::OK => {
                let bytes = read_body(body, self.max_bytes).await?;
                let etag = head.headers.get(ETAG).filter(|etag| etag.len() <= ETAG_BYTES_MAX);
                let is_json = is_json(&head.headers);
                FetchedPlans::Body(PlansBody { bytes, is_json, etag: etag.cloned() })
            }
            other => return Err(HttpFailure::of_status(other.as_u16())),
        };
        self.connection = Some(connection);
        Ok(fetched)
    }

    /// Opens a connection to the first address that answers.
    async fn connect(&self) -> Result<SendRequest<String>, HttpFailure> {
        let PlansEndpoint { host, port, .. } = &self.endpoint;
        let addresses = lookup_host((host.as_str(), *port)).await.map_err(lost)?;
        let addresses: Vec<SocketAddr> = addresses.collect();
        let open = |address| self.open(address);
        let stream = first_of(&addresses, self.timeout, open).await.map_err(lost)?;
        let mut builder = Builder::new();
        builder.max_buf_size(HEAD_BYTES_MAX);
        let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.map_err(lost)?;
        // It ends with `sender`, or when the server closes it; requests get the error.
        tokio::spawn(async move { drop(connection.await) });
        Ok(sender)
    }

    async fn open(&self, address: SocketAddr) -> std::io::Result<Box<dyn PlansConnection>> {
        let tcp = TcpStream::connect(address).await?;
        tcp.set_nodelay(true)?;
        let Some(tls) = &self.tls else { return Ok(Box::new(tcp)) };
        let (connector, name) = tls.connector();
        Ok(Box::new(connector.connect(name, tcp).await?))
    }
}

/// The whole `body`, of at most `max` bytes.
async fn read_body(mut body: Incoming, max: usize) -> Result<Vec<u8>, HttpFailure> {
    // The announced length, before the bytes arrive.
    let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if announced > max {
        return Err(HttpFailure::TooLarge(max));
    }
    let mut whole = Vec::with_capacity(announced);
    while let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        // Trailers are ignored.
        let Ok(data) = frame.map_err(lost)?.into_data() else { continue };
        if whole.len() + data.len() > max {
            return Err(HttpFailure::TooLarge(max));
        }
        whole.extend_from_slice(&data);
    }
    Ok(whole)
}

/// Whether the content is JSON, also as `application/problem+json`.
fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let kind = kind.unwrap_or_default().split(';').next().unwrap_or_default().trim();
    kind.to_ascii_lowercase().ends_with("json")
}

/// The failure of a connection: the deepest cause, which names what failed.
fn lost(error: impl std::error::Error + 'static) -> HttpFailure {
    let mut deepest: &(dyn std::error::Error + 'static) = &error;
    while let Some(source) = deepest.source() {
        deepest = source;
    }
    HttpFailure::Unreachable(deepest.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(url: &str, token_file: Option<PathBuf>) -> PlansClient {
        let url = Some(crate::settings::SecretUrl::new(url));
        PlansClient::new(&PlansSettings { url, token_file, ..PlansSettings::default() }).unwrap()
    }

    #[test]
    fn a_request_has_the_token_and_the_etag() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "s3cret\nmore\n").unwrap();
        let client = client("http://h:1/plans?a=b", Some(file.path().to_owned()));
        let etag = HeaderValue::from_static("\"7\"");
        let request = client.request(Some(&etag)).unwrap();
        assert_eq!(*request.method(), http::Method::GET);
        assert_eq!(request.uri().to_string(), "/plans?a=b");
        let header = |name: http::HeaderName| {
            request.headers().get(name).map(|value| value.to_str().unwrap())
        };
        assert_eq!(header(HOST), Some("h:1"));
        assert_eq!(header(IF_NONE_MATCH), Some("\"7\""));
        assert_eq!(header(AUTHORIZATION), Some("Bearer s3cret"));
        assert!(!format!("{request:?}").contains("s3cret"));
        std::fs::write(file.path(), "another").unwrap();
        let request = client.request(None).unwrap();
        assert_eq!(request.headers().get(AUTHORIZATION).unwrap(), "Bearer another", "it is new");
        assert!(!request.headers().contains_key(IF_NONE_MATCH));
        for (token, problem) in [("", "no token"), ("a\u{1}b", "characters")] {
            std::fs::write(file.path(), token).unwrap();
            let error = client.check_token().unwrap_err().to_string();
            assert!(error.starts_with("plans.token_file: ") && error.contains(problem), "{error}");
        }
    }

    #[test]
    fn a_content_type_names_json() {
        let table = [
            ("application/json", true),
            ("Application/JSON; charset=utf-8", true),
            ("application/vnd.plans+json", true),
            ("application/yaml", false),
            ("text/plain", false),
            ("", false),
        ];
        for (kind, expected) in table {
            let headers = HeaderMap::from_iter([(CONTENT_TYPE, kind.parse().unwrap())]);
            assert_eq!(is_json(&headers), expected, "{kind}");
        }
        assert!(!is_json(&HeaderMap::new()));
    }
}
