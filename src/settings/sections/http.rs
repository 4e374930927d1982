//! Declares the settings `http.*`.

use std::net::SocketAddr;
use std::time::Duration;

use crate::settings::format::{COUNT_MAX, address, number, number_or_off, positive_duration};
use crate::settings::section::section;

section! {
    /// The HTTP listener: `/json`, `/healthcheck`, `/livez`, `/readyz`. Its limits also apply to
    /// the admin listener, except `max_body_bytes` and `max_connections`.
    pub struct HttpSettings {
        /// Address of the listener.
        listen: SocketAddr = "[::]:8080", address();
        /// Largest body of `/json`, in bytes. JSON takes many times its size in memory.
        max_body_bytes: usize = "262144", number(1024..=1 << 26);
        /// Largest request line and headers together, in bytes.
        max_head_bytes: usize = "32768", number(8192..=1 << 20);
        /// Time for the headers of a request to arrive, and time that a connection may be idle.
        head_timeout: Duration = "30s", positive_duration();
        /// Time from the headers of a request to its response. In each such time, the client must also
        /// accept 16 KiB of the response, or the rest of it.
        request_timeout: Duration = "10s", positive_duration();
        /// Lifetime of a connection, busy or idle.
        max_connection_age: Duration = "10m", positive_duration();
        /// Maximum number of open connections of the HTTP listener. At the maximum, weir closes the
        /// connection that has waited longest for a request or its body. If none waits, weir closes the new
        /// connection. The client address with most connections
        /// [makes room for others](../operate/client-limits.md#client-addresses).
        max_connections: usize = "1024", number(1..=COUNT_MAX);
        // Health probes and a client that opens all the connections it can have different addresses.
        /// Maximum number of open connections of one client address to one listener. At the maximum,
        /// weir closes the connection of this address that has waited longest. If none waits, weir
        /// closes the new connection. `off`: no limit.
        max_connections_per_peer: Option<usize> = "256", number_or_off(1..=COUNT_MAX);
    }
}
