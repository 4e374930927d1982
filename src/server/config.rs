//! The server's knobs, with their defaults.

use std::sync::Arc;
use std::time::Duration;

use crate::descriptor::Bounds;
use crate::server::admin::Token;
use crate::server::metrics::ServerMetrics;
use crate::server::tls::TlsAcceptor;

/// Everything that can be set.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The gRPC port.
    pub grpc: Grpc,
    /// The HTTP port.
    pub http: Http,
    /// The admin port.
    pub admin: Admin,
    /// A listener for metrics alone, if there shall be one.
    pub metrics: Option<Scraped>,
    /// How to stop.
    pub drain: Drain,
    /// How large a request may be.
    pub bounds: Bounds,
    /// Threads that serve gRPC; none: one per core that this process may use.
    pub cores: Option<usize>,
    /// Where connections are counted.
    pub server_metrics: Arc<ServerMetrics>,
}

/// The gRPC port.
#[derive(Clone, Debug)]
pub struct Grpc {
    /// `host:port`. ListenerMetrics 0 takes a free one; `[::]` takes IPv4 as well. Default `[::]:8081`.
    pub listen: String,
    /// Largest request in bytes. Default 4 MiB, as every gRPC server's.
    pub max_message_bytes: usize,
    /// Bytes of calls that are being received or decided, of all connections together, beside the
    /// first 1024 of each. Default 64 MiB.
    pub max_upload_bytes: usize,
    /// Calls in flight on one connection; more wait at the client. Default 1024.
    pub max_concurrent_streams: u32,
    /// Open connections of the whole process; one more is closed at once. Default 16384.
    pub max_connections: usize,
    /// Open connections of one address. None: as many as there may be. Default none.
    pub max_connections_per_peer: Option<usize>,
    /// Largest headers of one request in bytes, as HPACK counts them. Default 16 KiB.
    pub max_header_bytes: u32,
    /// Calls that a client may reset before they were looked at, in what is read in one go. Default
    /// 128: more than calls of a usual size fit, fewer than a flood has.
    pub max_pending_resets: usize,
    /// ControlFrameLimiter that ask for nothing (pings, settings, resets), beyond what calls and time allow.
    /// Default 1000.
    pub max_control_frames: u32,
    /// How long a new connection may take to open: TLS, and the first 24 bytes. Default 10 s.
    pub handshake_timeout: Duration,
    /// TLS handshakes at a time on one core; more wait. Default 32.
    pub max_handshakes: usize,
    /// From the first byte of a call to the last of its answer; health watches and reflection are
    /// exempt. Default 10 s.
    pub call_timeout: Duration,
    /// How long a client may leave what it is sent unread. Default 20 s.
    pub write_timeout: Duration,
    /// How often an HTTP/2 ping asks whether the other end still lives. None: never. Default 60 s.
    pub keepalive_interval: Option<Duration>,
    /// How long the answer to such a ping may take. Default 20 s.
    pub keepalive_timeout: Duration,
    /// Age at which a connection is told to go away, so that clients spread over new instances.
    /// Default 24 h; none: never.
    pub max_connection_age: Option<Duration>,
    /// What a connection gets beyond that age to finish its calls. Default 1 h.
    pub max_connection_age_grace: Duration,
    /// How long a connection on which nothing is asked may stay. None: for ever. Default none.
    pub max_connection_idle: Option<Duration>,
    /// TLS. None: plain text. Default none.
    pub tls: Option<TlsAcceptor>,
}

impl Default for Grpc {
    fn default() -> Self {
        Grpc {
            listen: "[::]:8081".into(),
            max_message_bytes: 4 << 20,
            max_upload_bytes: 64 << 20,
            max_concurrent_streams: 1024,
            max_connections: 16_384,
            max_connections_per_peer: None,
            max_header_bytes: 16 << 10,
            max_pending_resets: 128,
            max_control_frames: 1000,
            handshake_timeout: Duration::from_secs(10),
            max_handshakes: 32,
            call_timeout: Duration::from_secs(10),
            write_timeout: Duration::from_secs(20),
            keepalive_interval: Some(Duration::from_secs(60)),
            keepalive_timeout: Duration::from_secs(20),
            max_connection_age: Some(Duration::from_secs(24 * 3600)),
            max_connection_age_grace: Duration::from_secs(3600),
            max_connection_idle: None,
            tls: None,
        }
    }
}

/// The HTTP port.
#[derive(Clone, Debug)]
pub struct Http {
    /// `host:port`, as [`Grpc::listen`]. Default `[::]:8080`.
    pub listen: String,
    /// Largest body in bytes. Default 256 KiB: JSON takes many times its size in memory.
    pub max_body_bytes: usize,
    /// Bounds that keep slow and hostile clients from pinning the server.
    pub limits: HttpLimits,
}

impl Default for Http {
    fn default() -> Self {
        Http {
            listen: "[::]:8080".into(),
            max_body_bytes: 256 << 10,
            limits: HttpLimits::default(),
        }
    }
}

/// The admin port.
#[derive(Clone, Debug)]
pub struct Admin {
    /// `host:port`, as [`Grpc::listen`]. Default `127.0.0.1:6070`: what it shows is not for strangers.
    pub listen: String,
    /// What `/metrics` wants to hear; beyond loopback it needs one.
    pub token: Option<Token>,
    /// Bounds that keep slow and hostile clients from pinning the server. Default 64 connections,
    /// the others as for HTTP: each may hold a page of metrics that it does not read.
    pub limits: HttpLimits,
}

impl Default for Admin {
    fn default() -> Self {
        let listen = "127.0.0.1:6070".into();
        let limits = HttpLimits { max_connections: 64, ..HttpLimits::default() };
        Admin { listen, token: None, limits }
    }
}

/// A listener for metrics alone. Its limits are the admin port's.
#[derive(Clone, Debug)]
pub struct Scraped {
    /// `host:port`, as [`Grpc::listen`].
    pub listen: String,
    /// Where they are, from the slash on.
    pub path: String,
}

/// What one HTTP/1 client may take.
#[derive(Clone, Copy, Debug)]
pub struct HttpLimits {
    /// How long the head of a request may take, and how long a connection may idle. Default 30 s.
    pub head_timeout: Duration,
    /// How long a request may take from its head to its answer. Default 10 s.
    pub request_timeout: Duration,
    /// How long one connection lives, however busy. Default 10 min.
    pub max_connection_age: Duration,
    /// Open connections; one more is closed at once. Default 1024.
    pub max_connections: usize,
    /// Open connections of one address. None: as many as there may be. Default 256: probes come
    /// from other addresses than a client that takes all it can get.
    pub max_connections_per_peer: Option<usize>,
    /// Largest head of a request, in bytes; at least 8 KiB. Default 32 KiB.
    pub max_head_bytes: usize,
}

impl Default for HttpLimits {
    fn default() -> Self {
        HttpLimits {
            head_timeout: Duration::from_secs(30),
            request_timeout: Duration::from_secs(10),
            max_connection_age: Duration::from_secs(600),
            max_connections: 1024,
            max_connections_per_peer: Some(256),
            max_head_bytes: 32 << 10,
        }
    }
}

/// How to stop.
#[derive(Clone, Copy, Debug)]
pub struct Drain {
    /// From saying "not serving" to refusing connections: load balancers need it to notice. Default 5 s.
    pub delay: Duration,
    /// What calls in flight get to finish after that. Default 30 s.
    pub timeout: Duration,
}

impl Default for Drain {
    fn default() -> Self {
        Drain { delay: Duration::from_secs(5), timeout: Duration::from_secs(30) }
    }
}
