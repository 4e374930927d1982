//! Declares the settings `rules.xds.*`.

use std::path::PathBuf;
use std::time::Duration;

use http::uri::Authority;

use crate::settings::format::{
    checked, duration_or_off, file, masked, number, optional, positive_duration, switch, text,
};
use crate::settings::otlp::OtlpHeaders;
use crate::settings::scalar::{host_and_port, node_metadata};
use crate::settings::section::section;

section! {
    /// A server that sends rules by xDS ([xds.md](../guides/xds.md)).
    pub struct XdsSettings {
        /// Address of the server. Setting it switches rules by xDS on. Rules of files are then read
        /// only if `rules.paths` is set.
        server: Option<String> = "", optional(checked("host and port", host_and_port));
        /// Name under which the server knows this client. A server may send nothing to a client
        /// with another name. Envoy Gateway requires `envoy-ratelimit`.
        node_id: String = "default", text();
        /// Metadata of the client, all values as texts: `name=value,name=value`.
        node_metadata: String = "", checked("names and values", node_metadata);
        /// Headers of each stream, such as a token: `name=value,name=value`. weir never shows the
        /// values.
        headers: OtlpHeaders = "", masked("headers", OtlpHeaders::parse);
        /// Connect by TLS.
        tls: bool = "false", switch();
        /// Certificates of authorities to trust besides those of the system, PEM. weir reads the
        /// file again each minute and for every new connection.
        tls_ca: Option<PathBuf> = "", optional(file());
        /// Certificate chain of the client, PEM, for servers that require one. weir reads the file
        /// again each minute and for every new connection.
        tls_cert: Option<PathBuf> = "", optional(file());
        /// Private key of `tls_cert`, PEM: PKCS#8, PKCS#1 or SEC1.
        tls_key: Option<PathBuf> = "", optional(file());
        /// Name that the server's certificate must have. Empty: the host of `rules.xds.server`.
        tls_server_name: Option<String> = "", optional(text());
        /// Timeout of a connection attempt, with name resolution, TLS and the server's first bytes.
        /// If the name has several addresses, each has an equal part.
        connect_timeout: Duration = "10s", positive_duration();
        // Servers in Go close a connection with more than two pings in five minutes.
        /// Interval of the HTTP/2 pings that detect a server that hangs. `off`: no pings. Servers may
        /// close connections with many pings. The operating system detects a broken network earlier.
        keepalive_interval: Option<Duration> = "6m", duration_or_off();
        /// First pause after the end of a stream, before weir connects again. It doubles with each
        /// failed attempt. The actual pause is random, between half of this time and all of it.
        backoff_initial: Duration = "500ms", positive_duration();
        /// Longest pause before weir connects again.
        backoff_max: Duration = "10s", positive_duration();
        /// Largest response of the server, in bytes, and largest `rules.xds.cache_file`.
        max_message_bytes: usize = "67108864", number(1024..=1 << 30);
        /// Most limits of all rules by xDS. Resources and descriptors may be three times as many. A
        /// response over this bound is rejected, and the active rules stay. A limit takes about 4 KiB
        /// of memory.
        max_limits: usize = "200000", number(1..=10_000_000);
        /// File to which weir writes the active rules of the server. After a start, its rules are
        /// active until the server has sent some. Its folder must exist. Empty: no file.
        cache_file: Option<PathBuf> = "", optional(file());
    }
}

impl XdsSettings {
    /// Host and port of `server`, an IPv6 address without its brackets. `None` without a server.
    pub fn host_and_port(&self) -> Option<(String, u16)> {
        let authority: Authority = self.server.as_ref()?.parse().ok()?;
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        Some((host.to_owned(), authority.port_u16()?))
    }
}
