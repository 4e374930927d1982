//! Declares the settings `metrics.*`.

use std::net::SocketAddr;
use std::time::Duration;

use crate::settings::format::{
    address, checked, choice, masked, number, optional, positive_duration, switch, url,
};
use crate::settings::otlp::{OtlpHeaders, OtlpProtocol, collector};
use crate::settings::scalar::url_path;
use crate::settings::secret::SecretUrl;
use crate::settings::section::section;

section! {
    /// The metrics ([metrics.md](metrics.md)).
    pub struct MetricsSettings {
        /// Add metrics under the names of envoyproxy/ratelimit.
        envoy_ratelimit_names: bool = "false", switch();
        /// Address of a listener for metrics alone, for scrapers that must not reach the admin
        /// listener. Empty: none.
        listen: Option<SocketAddr> = "", optional(address());
        /// Path of the metrics on the listener `metrics.listen`.
        path: String = "/metrics", checked("a path", url_path);
        /// Maximum number of series by values of requests (`detailed_metric`, `value_to_metric`),
        /// of all rules together. Further values are counted as `overflow`. With
        /// `envoy_ratelimit_names`, also the maximum number of unknown domains, and of limits from
        /// requests, that have a series.
        max_series: usize = "1000", number(0..=1_000_000);
        /// Export the counters with the most denials as metrics, not only at `/top`.
        top: bool = "false", switch();
        /// Show values of requests at `/top` and in its metrics, not only their hash.
        top_values: bool = "false", switch();
        /// Also send metrics to an OpenTelemetry collector ([tracing.md](../operate/tracing.md)).
        otlp: bool = "false", switch();
        /// Address of the collector of metrics, in the form of `tracing.endpoint`.
        otlp_endpoint: Option<SecretUrl> = "", optional(url("a URL", collector));
        /// Protocol of the collector of metrics: `http` (Protocol Buffers over HTTP/1.1) or `grpc`.
        otlp_protocol: OtlpProtocol = "http", choice(OtlpProtocol::NAMES);
        /// Headers of each message of metrics, such as a token: `name=value,name=value`. Values are
        /// never shown.
        otlp_headers: OtlpHeaders = "", masked("headers", OtlpHeaders::parse);
        /// Timeout of one message of metrics.
        otlp_timeout: Duration = "10s", positive_duration();
        /// Time between two messages of metrics.
        otlp_interval: Duration = "60s", positive_duration();
    }
}
