//! Declares the settings `tracing.*`.

use std::time::Duration;

use crate::settings::format::{
    choice, duration, masked, number, optional, positive_duration, share, switch, text, url,
};
use crate::settings::otlp::{OtlpHeaders, OtlpProtocol, collector};
use crate::settings::secret::SecretUrl;
use crate::settings::section::section;

section! {
    /// The traces ([tracing.md](../operate/tracing.md)). OpenTelemetry's own variables set the sampler and
    /// further attributes of the resource.
    pub struct TracingSettings {
        /// Trace requests.
        enabled: bool = "false", switch();
        /// Address of the collector: `http://` or `https://`, host and port; over HTTP a path may
        /// follow. Empty: `http://localhost:4318`, over gRPC `http://localhost:4317`.
        endpoint: Option<SecretUrl> = "", optional(url("a URL", collector));
        /// Protocol of the collector: `http` (Protocol Buffers over HTTP/1.1) or `grpc`.
        protocol: OtlpProtocol = "http", choice(OtlpProtocol::NAMES);
        /// Headers of each message of spans, such as a token: `name=value,name=value`. Values are
        /// never shown.
        headers: OtlpHeaders = "", masked("headers", OtlpHeaders::parse);
        /// Timeout of one message of spans.
        timeout: Duration = "10s", positive_duration();
        /// Share of requests that are traced if their caller has no trace. Empty: as
        /// `OTEL_TRACES_SAMPLER` says, else all.
        sampling_rate: Option<f64> = "", share();
        /// Attribute `service.name`. Empty: as `OTEL_SERVICE_NAME` says, else `weir`.
        service_name: Option<String> = "", optional(text());
        /// Attribute `service.namespace`.
        service_namespace: Option<String> = "", optional(text());
        /// Attribute `service.instance.id`.
        service_instance_id: Option<String> = "", optional(text());
        /// Maximum number of spans that wait for the collector. Further spans are dropped.
        max_queue_size: usize = "2048", number(1..=1_000_000);
        /// Maximum number of spans in one message to the collector.
        max_batch_size: usize = "512", number(1..=1_000_000);
        /// Longest time that a message to the collector waits for further spans.
        batch_delay: Duration = "5s", duration();
    }
}
