//! The listeners: where they are, whom they trust, and what one client may take.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;

use super::raw::Raw;
use super::reader::Reader;
use super::secret::Secret;
use super::{scalar, serialize};

/// The gRPC listener that proxies ask.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Grpc {
    /// Address. Default `[::]:8081`. `WEIR__GRPC__LISTEN`, `GRPC_HOST` with `GRPC_PORT`.
    pub listen: SocketAddr,
    /// Our certificate chain. Default none: plain text. `WEIR__GRPC__TLS_CERT`,
    /// `GRPC_SERVER_TLS_CERT` with `GRPC_SERVER_USE_TLS`.
    #[serde(with = "serialize::optional")]
    pub tls_cert: Option<PathBuf>,
    /// Its key. Default none. `WEIR__GRPC__TLS_KEY`, `GRPC_SERVER_TLS_KEY`.
    #[serde(with = "serialize::optional")]
    pub tls_key: Option<PathBuf>,
    /// Certificates of the authorities whose clients are let in. Default none: everybody is.
    /// `WEIR__GRPC__TLS_CLIENT_CA`, `GRPC_CLIENT_TLS_CACERT`.
    #[serde(with = "serialize::optional")]
    pub tls_client_ca: Option<PathBuf>,
    /// Whether a client must have such a certificate. Default required.
    /// `WEIR__GRPC__TLS_CLIENT_CERT`.
    pub tls_client_cert: ClientCert,
    /// Names of which such a certificate must have one, separated by commas. Default none: any.
    /// `WEIR__GRPC__TLS_CLIENT_SAN`, `GRPC_CLIENT_TLS_SAN`.
    pub tls_client_san: String,
    /// Largest request in bytes. Default 4194304. `WEIR__GRPC__MAX_MESSAGE_BYTES`.
    pub max_message_bytes: usize,
    /// Bytes of requests that are being received or decided, of all connections together. Default
    /// 67108864. `WEIR__GRPC__MAX_UPLOAD_BYTES`.
    pub max_upload_bytes: usize,
    /// Largest headers of a request in bytes. Default 16384. `WEIR__GRPC__MAX_HEADER_BYTES`.
    pub max_header_bytes: u32,
    /// Requests in flight on one connection. Default 1024. `WEIR__GRPC__MAX_CONCURRENT_STREAMS`.
    pub max_concurrent_streams: u32,
    /// Requests reset before they were looked at, in what is read in one go. Default 128.
    /// `WEIR__GRPC__MAX_PENDING_RESETS`.
    pub max_pending_resets: usize,
    /// Frames that ask for nothing, beyond what requests and time allow. Default 1000.
    /// `WEIR__GRPC__MAX_CONTROL_FRAMES`.
    pub max_control_frames: u32,
    /// Open connections. Default 16384. `WEIR__GRPC__MAX_CONNECTIONS`.
    pub max_connections: usize,
    /// Open connections of one address; `None` (written `off`): as many as there may be. Default
    /// off. `WEIR__GRPC__MAX_CONNECTIONS_PER_PEER`.
    #[serde(with = "serialize::number_or_off")]
    pub max_connections_per_peer: Option<usize>,
    /// TLS handshakes at a time on one core. Default 32. `WEIR__GRPC__MAX_HANDSHAKES`.
    pub max_handshakes: usize,
    /// How long a connection may take to open. Default 10s. `WEIR__GRPC__HANDSHAKE_TIMEOUT`.
    #[serde(with = "serialize::duration")]
    pub handshake_timeout: Duration,
    /// How long a call may take to be sent, answered and read. Default 10s.
    /// `WEIR__GRPC__CALL_TIMEOUT`.
    #[serde(with = "serialize::duration")]
    pub call_timeout: Duration,
    /// How long a client may leave what it is sent unread. Default 20s.
    /// `WEIR__GRPC__WRITE_TIMEOUT`.
    #[serde(with = "serialize::duration")]
    pub write_timeout: Duration,
    /// How often a ping asks whether a client still lives; `None` (written `off`): never. Default
    /// 60s. `WEIR__GRPC__KEEPALIVE_INTERVAL`.
    #[serde(with = "serialize::duration_or_off")]
    pub keepalive_interval: Option<Duration>,
    /// How long its answer may take. Default 20s. `WEIR__GRPC__KEEPALIVE_TIMEOUT`.
    #[serde(with = "serialize::duration")]
    pub keepalive_timeout: Duration,
    /// Age, give or take a tenth, at which a connection is closed gracefully, so that proxies spread
    /// over new instances; `None` (written `off`): never. Default 24h.
    /// `WEIR__GRPC__MAX_CONNECTION_AGE`, `GRPC_MAX_CONNECTION_AGE`.
    #[serde(with = "serialize::duration_or_off")]
    pub max_connection_age: Option<Duration>,
    /// What calls get to end after that. Default 1h. `WEIR__GRPC__MAX_CONNECTION_AGE_GRACE`,
    /// `GRPC_MAX_CONNECTION_AGE_GRACE`.
    #[serde(with = "serialize::duration")]
    pub max_connection_age_grace: Duration,
    /// How long a connection without calls may stay; `None` (written `off`): for ever. Default off.
    /// `WEIR__GRPC__MAX_CONNECTION_IDLE`.
    #[serde(with = "serialize::duration_or_off")]
    pub max_connection_idle: Option<Duration>,
    /// Single-threaded runtimes that serve; `None` (written `auto`): one per available core.
    /// Default auto. `WEIR__GRPC__CORES`.
    #[serde(with = "serialize::cores")]
    pub cores: Option<NonZeroUsize>,
}

/// Whether a client must show a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ClientCert {
    /// It must.
    Required,
    /// It may; one that it shows is verified.
    Optional,
}

/// The HTTP listener: `/json` and health. Its bounds, but for the number of connections, hold for
/// the admin listener as well.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Http {
    /// Address. Default `[::]:8080`. `WEIR__HTTP__LISTEN`, `HOST` with `PORT`.
    pub listen: SocketAddr,
    /// Largest body of `/json` in bytes. Default 262144. `WEIR__HTTP__MAX_BODY_BYTES`.
    pub max_body_bytes: usize,
    /// Largest head of a request in bytes. Default 32768. `WEIR__HTTP__MAX_HEAD_BYTES`.
    pub max_head_bytes: usize,
    /// How long a head may take, and how long a connection may idle. Default 30s.
    /// `WEIR__HTTP__HEAD_TIMEOUT`.
    #[serde(with = "serialize::duration")]
    pub head_timeout: Duration,
    /// How long a request may take from its head to its answer. Default 10s.
    /// `WEIR__HTTP__REQUEST_TIMEOUT`.
    #[serde(with = "serialize::duration")]
    pub request_timeout: Duration,
    /// How long a connection lives, however busy. Default 10m. `WEIR__HTTP__MAX_CONNECTION_AGE`.
    #[serde(with = "serialize::duration")]
    pub max_connection_age: Duration,
    /// Open connections. Default 1024. `WEIR__HTTP__MAX_CONNECTIONS`.
    pub max_connections: usize,
    /// Open connections of one address; `None` (written `off`): as many as there may be. Default
    /// 256. `WEIR__HTTP__MAX_CONNECTIONS_PER_PEER`.
    #[serde(with = "serialize::number_or_off")]
    pub max_connections_per_peer: Option<usize>,
}

/// The admin listener. Most of it has no authentication, hence loopback unless told otherwise.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Admin {
    /// Address. Default `127.0.0.1:6070`. `WEIR__ADMIN__LISTEN`, `DEBUG_HOST` with `DEBUG_PORT`.
    pub listen: SocketAddr,
    /// What `/counters` wants as bearer token; beyond loopback it needs one. Default none.
    /// `WEIR__ADMIN__TOKEN`. Never printed.
    #[serde(with = "serialize::optional")]
    pub token: Option<Secret>,
    /// A file whose first line is the token, instead; read for every request that needs it.
    /// Default none. `WEIR__ADMIN__TOKEN_FILE`.
    #[serde(with = "serialize::optional")]
    pub token_file: Option<PathBuf>,
    /// Open connections; the listener for metrics alone has as many. Default 64.
    /// `WEIR__ADMIN__MAX_CONNECTIONS`.
    pub max_connections: usize,
}

/// A million of anything is more than a process can serve.
const MANY: u64 = 1_000_000;

pub(super) fn grpc(reader: &mut Reader<'_>) -> Grpc {
    Grpc {
        listen: reader.read("grpc.listen", |raw| &raw.grpc.listen, scalar::address),
        tls_cert: reader.optional(|raw| &raw.grpc.tls_cert).map(Into::into),
        tls_key: reader.optional(|raw| &raw.grpc.tls_key).map(Into::into),
        tls_client_ca: reader.optional(|raw| &raw.grpc.tls_client_ca).map(Into::into),
        tls_client_cert: reader.read(
            "grpc.tls_client_cert",
            |raw| &raw.grpc.tls_client_cert,
            |text| {
                let choices =
                    [("required", ClientCert::Required), ("optional", ClientCert::Optional)];
                scalar::choice(text, &choices)
            },
        ),
        tls_client_san: reader.optional(|raw| &raw.grpc.tls_client_san).unwrap_or_default(),
        max_message_bytes: reader.read(
            "grpc.max_message_bytes",
            |raw| &raw.grpc.max_message_bytes,
            |text| scalar::size(text, 1024..=1 << 30),
        ),
        max_upload_bytes: reader.read(
            "grpc.max_upload_bytes",
            |raw| &raw.grpc.max_upload_bytes,
            |text| scalar::size(text, 1024..=1 << 40),
        ),
        max_header_bytes: number(
            reader,
            ("grpc.max_header_bytes", |raw| &raw.grpc.max_header_bytes),
            1024..=1 << 20,
        ),
        max_concurrent_streams: number(
            reader,
            ("grpc.max_concurrent_streams", |raw| &raw.grpc.max_concurrent_streams),
            1..=MANY,
        ),
        max_pending_resets: number(
            reader,
            ("grpc.max_pending_resets", |raw| &raw.grpc.max_pending_resets),
            1..=MANY,
        ),
        max_control_frames: number(
            reader,
            ("grpc.max_control_frames", |raw| &raw.grpc.max_control_frames),
            10..=MANY,
        ),
        max_connections: number(
            reader,
            ("grpc.max_connections", |raw| &raw.grpc.max_connections),
            1..=MANY,
        ),
        max_connections_per_peer: reader.read(
            "grpc.max_connections_per_peer",
            |raw| &raw.grpc.max_connections_per_peer,
            |text| scalar::number_or_off(text, 1..=MANY),
        ),
        max_handshakes: number(
            reader,
            ("grpc.max_handshakes", |raw| &raw.grpc.max_handshakes),
            1..=MANY,
        ),
        handshake_timeout: time(reader, "grpc.handshake_timeout", |raw| {
            &raw.grpc.handshake_timeout
        }),
        call_timeout: time(reader, "grpc.call_timeout", |raw| &raw.grpc.call_timeout),
        write_timeout: time(reader, "grpc.write_timeout", |raw| &raw.grpc.write_timeout),
        keepalive_interval: reader.read(
            "grpc.keepalive_interval",
            |raw| &raw.grpc.keepalive_interval,
            scalar::duration_or_off,
        ),
        keepalive_timeout: time(reader, "grpc.keepalive_timeout", |raw| {
            &raw.grpc.keepalive_timeout
        }),
        max_connection_age: reader.read(
            "grpc.max_connection_age",
            |raw| &raw.grpc.max_connection_age,
            scalar::duration_or_off,
        ),
        max_connection_age_grace: reader.read(
            "grpc.max_connection_age_grace",
            |raw| &raw.grpc.max_connection_age_grace,
            scalar::duration,
        ),
        max_connection_idle: reader.read(
            "grpc.max_connection_idle",
            |raw| &raw.grpc.max_connection_idle,
            scalar::duration_or_off,
        ),
        cores: reader.read("grpc.cores", |raw| &raw.grpc.cores, scalar::cores),
    }
}

pub(super) fn http(reader: &mut Reader<'_>) -> Http {
    Http {
        listen: reader.read("http.listen", |raw| &raw.http.listen, scalar::address),
        max_body_bytes: number(
            reader,
            ("http.max_body_bytes", |raw| &raw.http.max_body_bytes),
            1024..=1 << 26,
        ),
        max_head_bytes: number(
            reader,
            ("http.max_head_bytes", |raw| &raw.http.max_head_bytes),
            8192..=1 << 20,
        ),
        head_timeout: time(reader, "http.head_timeout", |raw| &raw.http.head_timeout),
        request_timeout: time(reader, "http.request_timeout", |raw| &raw.http.request_timeout),
        max_connection_age: time(reader, "http.max_connection_age", |raw| {
            &raw.http.max_connection_age
        }),
        max_connections: number(
            reader,
            ("http.max_connections", |raw| &raw.http.max_connections),
            1..=MANY,
        ),
        max_connections_per_peer: reader.read(
            "http.max_connections_per_peer",
            |raw| &raw.http.max_connections_per_peer,
            |text| scalar::number_or_off(text, 1..=MANY),
        ),
    }
}

pub(super) fn admin(reader: &mut Reader<'_>) -> Admin {
    Admin {
        listen: reader.read("admin.listen", |raw| &raw.admin.listen, scalar::address),
        token: reader.optional(|raw| &raw.admin.token).map(Secret::new),
        token_file: reader.optional(|raw| &raw.admin.token_file).map(Into::into),
        max_connections: number(
            reader,
            ("admin.max_connections", |raw| &raw.admin.max_connections),
            1..=MANY,
        ),
    }
}

/// A length of time that is not zero.
fn time(reader: &mut Reader<'_>, path: &str, text: fn(&Raw) -> &str) -> Duration {
    reader.read(path, text, scalar::positive_duration)
}

/// A number of bytes or of things.
fn number<T: TryFrom<u64>>(
    reader: &mut Reader<'_>,
    (path, text): (&str, fn(&Raw) -> &str),
    range: std::ops::RangeInclusive<u64>,
) -> T {
    reader.read(path, text, |text| {
        let number = scalar::whole(text, range.clone())?;
        T::try_from(number).map_err(|_| "is more than this machine can address".to_owned())
    })
}
