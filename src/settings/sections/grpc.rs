//! Declares the settings `grpc.*`.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use crate::settings::format::{
    COUNT_MAX, address, choice, duration, duration_or_off, file, number, number_or_off, optional,
    positive_duration, san_names, switch, threads,
};
use crate::settings::section::section;
use crate::tls::SanName;

section! {
    /// The gRPC listener that proxies call.
    pub struct GrpcSettings {
        /// Address of the listener.
        listen: SocketAddr = "[::]:8081", address();
        /// Certificate chain of the server, PEM. Setting it switches the listener to TLS
        /// ([tls.md](../operate/tls.md)). weir reloads the file when it changes.
        tls_cert: Option<PathBuf> = "", optional(file());
        /// Private key of `tls_cert`, PEM: PKCS#8, PKCS#1 or SEC1.
        tls_key: Option<PathBuf> = "", optional(file());
        /// Certificates of the authorities that sign client certificates, PEM. Empty: any client
        /// may connect.
        tls_client_ca: Option<PathBuf> = "", optional(file());
        /// With `tls_client_ca`: `required` refuses clients without a certificate; `optional`
        /// accepts them, and verifies the certificate of a client that sends one.
        tls_client_cert: ClientCert = "required", choice([
            ("required", ClientCert::Required),
            ("optional", ClientCert::Optional),
        ]);
        /// With `tls_client_ca`: accepted subject alternative names, separated by commas. A client
        /// certificate must have one of them. Each is a DNS name, or a URI such as
        /// `spiffe://cluster.local/ns/gw/sa/envoy`. Empty: any name.
        tls_client_san: Vec<SanName> = "", san_names();
        /// Whether plain, uncompressed `ShouldRateLimit` calls take a shorter path than other calls
        /// ([grpc-server.md](../design/grpc-server.md)). `false`: tonic serves every call of a known method.
        fast_path: bool = "true", switch();
        /// Largest request message, in bytes, before and after decompression.
        max_message_bytes: usize = "4194304", number(1024..=1 << 30);
        /// Largest headers of one request, in bytes, as HPACK counts them.
        max_header_bytes: u32 = "16384", number(1024..=1 << 20);
        /// Maximum number of requests in flight on one connection. Further requests wait at the
        /// client.
        max_concurrent_streams: u32 = "1024", number(1..=COUNT_MAX);
        // 512 MiB: 4096 connections, and 10 000 calls that wait for their client. The chart derives
        // its memory limit from this.
        /// Maximum memory, in bytes, that clients make the process hold: connections, headers,
        /// incomplete messages, undecided requests and unread responses
        /// ([memory.md](../operate/memory.md)). One client address gets at most half of the memory of
        /// waiting calls. At a limit, weir decides a call by `on_error`, rejects it with
        /// RESOURCE_EXHAUSTED, or closes a connection.
        max_client_memory: usize = "536870912", number(1 << 22..=1 << 40);
        // 1024, like `max_concurrent_streams`: after a stall of weir, a proxy has reset every request
        // that timed out meanwhile.
        /// Maximum number of requests of one connection that the client has reset and weir has not yet
        /// started. At one more, weir closes the connection. It also closes the connection after 32
        /// times this number of resets in a row that precede the start of their request. A request
        /// that weir starts before any reset offsets one of these resets.
        max_pending_resets: usize = "1024", number(1..=COUNT_MAX);
        /// Maximum number of control frames (pings, settings, their acknowledgements, resets) of one
        /// connection over the allowance of 4 per request and 100 per second. At one more, weir closes
        /// the connection.
        max_control_frames: u32 = "1000", number(10..=COUNT_MAX);
        /// Maximum number of open gRPC connections of the process. At the maximum, weir closes the
        /// connection that has waited longest for its TLS handshake or HTTP/2 preface. If none waits,
        /// weir closes the new connection. The client address with most connections
        /// [makes room for others](../operate/client-limits.md#client-addresses).
        /// `max_client_memory` may have room for fewer connections.
        max_connections: usize = "16384", number(1..=COUNT_MAX);
        /// Maximum number of open gRPC connections of one client address. At the maximum, weir closes
        /// the connection of this address that has waited longest. If none waits, weir closes the new
        /// connection. An IPv6 client counts by the first 64 bits of its address. `off`: no limit.
        max_connections_per_peer: Option<usize> = "off", number_or_off(1..=COUNT_MAX);
        // 8: about 2 ms of cryptography with ECDSA keys, and 8 ms with RSA keys.
        /// Maximum number of TLS handshakes that a worker continues in one round. Further handshakes
        /// wait for the next round. In each round, the worker also serves its open connections. A
        /// handshake that waits for its client does not count.
        max_handshakes_per_round: usize = "8", number(1..=COUNT_MAX);
        /// Time for a new connection to finish TLS and to send the first 24 bytes of HTTP/2.
        handshake_timeout: Duration = "10s", positive_duration();
        /// Time from the first byte of a call to the last byte of its response. Health watches,
        /// reflection and quota streams may stay open, but their first message and each response must
        /// arrive in this time. If the headers of a call are incomplete after this time, weir closes
        /// the connection.
        call_timeout: Duration = "10s", positive_duration();
        /// Longest time that a client may leave sent data unread. After it the connection is closed.
        write_timeout: Duration = "20s", positive_duration();
        /// Interval of the HTTP/2 pings that check whether a client is alive. `off`: no pings.
        keepalive_interval: Option<Duration> = "60s", duration_or_off();
        /// Longest wait for the reply to a ping of `keepalive_interval`. After it the connection is
        /// closed.
        keepalive_timeout: Duration = "20s", positive_duration();
        /// Age, give or take a tenth, at which a connection is closed gracefully. Proxies reconnect
        /// and spread over new instances. `off`: no limit.
        max_connection_age: Option<Duration> = "24h", duration_or_off();
        /// Time for the calls in flight on a connection that reached `max_connection_age`. After it
        /// the connection is closed.
        max_connection_age_grace: Duration = "1h", duration();
        /// Time without calls after which a connection is closed. It may take twice as long. `off`:
        /// no limit.
        max_connection_idle: Option<Duration> = "off", duration_or_off();
        /// Workers that serve gRPC, each a thread with its own runtime. `auto`: one per available
        /// core.
        workers: Option<NonZeroUsize> = "auto", threads();
    }
}

/// Whether a client must send a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientCert {
    /// A client without a certificate is refused.
    Required,
    /// A client without a certificate is accepted.
    Optional,
}
