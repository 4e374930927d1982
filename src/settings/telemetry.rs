//! What operators can see from outside: metrics and traces.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use serde::{Serialize, Serializer};

use super::raw::Raw;
use super::reader::Reader;
use super::secret::SecretUrl;
use super::{scalar, serialize};

/// What is counted for operators, and where they find it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Metrics {
    /// Adds metrics under envoyproxy/ratelimit's names. Default false. `WEIR__METRICS__COMPAT`,
    /// `USE_PROMETHEUS`.
    pub compat: bool,
    /// A listener for the metrics alone, beside the admin listener's. Default none.
    /// `WEIR__METRICS__LISTEN`, `PROMETHEUS_ADDR` with `USE_PROMETHEUS`.
    #[serde(with = "serialize::optional")]
    pub listen: Option<SocketAddr>,
    /// Their path there. Default `/metrics`. `WEIR__METRICS__PATH`, `PROMETHEUS_PATH`.
    pub path: String,
    /// Series made of values of requests, for all rules that ask for them together; the rest is
    /// counted as `other`. Default 1000. `WEIR__METRICS__MAX_SERIES`.
    pub max_series: usize,
    /// The counters denied most are metrics too, and not only at `/top`. Default false.
    /// `WEIR__METRICS__TOP`.
    pub top: bool,
    /// Values of requests are shown there, and not only their hash. Default false.
    /// `WEIR__METRICS__TOP_VALUES`.
    pub top_values: bool,
    /// They are sent to a collector too. Default false. `WEIR__METRICS__OTLP`,
    /// `OTEL_METRICS_EXPORTER`, `OTEL_EXPORTER_OTLP_METRICS_ENDPOINT`.
    pub otlp: bool,
    /// The collector; `None`: as [`Tracing::endpoint`]. `WEIR__METRICS__OTLP_ENDPOINT`,
    /// `OTEL_EXPORTER_OTLP_METRICS_ENDPOINT`, `OTEL_EXPORTER_OTLP_ENDPOINT`.
    #[serde(with = "serialize::optional")]
    pub otlp_endpoint: Option<SecretUrl>,
    /// How they travel. Default http. `WEIR__METRICS__OTLP_PROTOCOL`,
    /// `OTEL_EXPORTER_OTLP_METRICS_PROTOCOL`, `OTEL_EXPORTER_OTLP_PROTOCOL`.
    pub otlp_protocol: OtlpProtocol,
    /// Sent along. `WEIR__METRICS__OTLP_HEADERS`, `OTEL_EXPORTER_OTLP_METRICS_HEADERS`,
    /// `OTEL_EXPORTER_OTLP_HEADERS`.
    pub otlp_headers: OtlpHeaders,
    /// How long one message may take. Default 10s. `WEIR__METRICS__OTLP_TIMEOUT`,
    /// `OTEL_EXPORTER_OTLP_METRICS_TIMEOUT`, `OTEL_EXPORTER_OTLP_TIMEOUT`.
    #[serde(with = "serialize::duration")]
    pub otlp_timeout: Duration,
    /// Time between two messages. Default 60s. `WEIR__METRICS__OTLP_INTERVAL`,
    /// `OTEL_METRIC_EXPORT_INTERVAL`.
    #[serde(with = "serialize::duration")]
    pub otlp_interval: Duration,
}

/// What is traced, and where the traces go. Sampling and more of who sends them are told by
/// OpenTelemetry's own variables.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Tracing {
    /// Requests are traced. Default false. `WEIR__TRACING__ENABLED`, `OTEL_TRACES_EXPORTER`,
    /// `OTEL_EXPORTER_OTLP_ENDPOINT`, `TRACING_ENABLED`.
    pub enabled: bool,
    /// The collector; `None`: `http://localhost:4318`, over gRPC `http://localhost:4317`.
    /// `WEIR__TRACING__ENDPOINT`, `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`,
    /// `OTEL_EXPORTER_OTLP_ENDPOINT`.
    #[serde(with = "serialize::optional")]
    pub endpoint: Option<SecretUrl>,
    /// How spans travel. Default http. `WEIR__TRACING__PROTOCOL`,
    /// `OTEL_EXPORTER_OTLP_TRACES_PROTOCOL`, `OTEL_EXPORTER_OTLP_PROTOCOL`,
    /// `TRACING_EXPORTER_PROTOCOL`.
    pub protocol: OtlpProtocol,
    /// Sent along. `WEIR__TRACING__HEADERS`, `OTEL_EXPORTER_OTLP_TRACES_HEADERS`,
    /// `OTEL_EXPORTER_OTLP_HEADERS`.
    pub headers: OtlpHeaders,
    /// How long one message may take. Default 10s. `WEIR__TRACING__TIMEOUT`,
    /// `OTEL_EXPORTER_OTLP_TRACES_TIMEOUT`, `OTEL_EXPORTER_OTLP_TIMEOUT`.
    #[serde(with = "serialize::duration")]
    pub timeout: Duration,
    /// The share of requests whose caller has no trace that are traced; default as
    /// `OTEL_TRACES_SAMPLER` says, else all. `WEIR__TRACING__SAMPLING_RATE`,
    /// `TRACING_SAMPLING_RATE`.
    #[serde(with = "serialize::optional")]
    pub sampling_rate: Option<f64>,
    /// `service.name`; default as `OTEL_SERVICE_NAME` says, else weir.
    /// `WEIR__TRACING__SERVICE_NAME`, `TRACING_SERVICE_NAME`.
    #[serde(with = "serialize::optional")]
    pub service_name: Option<String>,
    /// `service.namespace`. `WEIR__TRACING__SERVICE_NAMESPACE`, `TRACING_SERVICE_NAMESPACE`.
    #[serde(with = "serialize::optional")]
    pub service_namespace: Option<String>,
    /// `service.instance.id`. `WEIR__TRACING__SERVICE_INSTANCE_ID`, `TRACING_SERVICE_INSTANCE_ID`.
    #[serde(with = "serialize::optional")]
    pub service_instance_id: Option<String>,
    /// Spans that wait for the collector; further ones are dropped. Default 2048.
    /// `WEIR__TRACING__QUEUE`, `OTEL_BSP_MAX_QUEUE_SIZE`.
    pub queue: usize,
    /// Spans per message, at most. Default 512. `WEIR__TRACING__BATCH`,
    /// `OTEL_BSP_MAX_EXPORT_BATCH_SIZE`.
    pub batch: usize,
    /// How long a message waits to become full. Default 5s. `WEIR__TRACING__DELAY`,
    /// `OTEL_BSP_SCHEDULE_DELAY`.
    #[serde(with = "serialize::duration")]
    pub delay: Duration,
}

/// How OTLP travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum OtlpProtocol {
    /// As Protocol Buffers in HTTP/1.1.
    Http,
    /// As gRPC.
    Grpc,
}

/// Headers for a collector: names and values. Values are never printed.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct OtlpHeaders(Vec<(String, String)>);

impl OtlpHeaders {
    /// The headers, for the one who sends them.
    pub fn reveal(&self) -> &[(String, String)] {
        &self.0
    }

    /// Reads `name=value,name=value`, percent-encoded where need be.
    fn read(text: &str) -> Result<OtlpHeaders, String> {
        let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
        let headers = parts.map(|part| {
            let (name, value) = part.split_once('=')?;
            let (name, value) = (name.trim(), decoded(value.trim())?);
            http::HeaderName::try_from(name).ok()?;
            http::HeaderValue::try_from(&value).ok()?;
            Some((name.to_owned(), value))
        });
        let wrong = "are not headers; write `name=value,name=value`, with %2C for a comma";
        headers.collect::<Option<_>>().map(OtlpHeaders).ok_or_else(|| wrong.to_owned())
    }
}

impl fmt::Display for OtlpHeaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<String> = self.0.iter().map(|(name, _)| format!("{name}=hidden")).collect();
        f.write_str(&names.join(","))
    }
}

impl fmt::Debug for OtlpHeaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for OtlpHeaders {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// `text` with its `%20`s and the like as what they stand for.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || char::from(rest.next()?).to_digit(16);
        bytes.push(u8::try_from(digit()? * 16 + digit()?).ok()?);
    }
    String::from_utf8(bytes).ok()
}

pub(super) fn metrics(reader: &mut Reader<'_>) -> Metrics {
    Metrics {
        compat: reader.switch("metrics.compat", |raw| &raw.metrics.compat),
        listen: reader.read(
            "metrics.listen",
            |raw| &raw.metrics.listen,
            |text| if text.is_empty() { Ok(None) } else { scalar::address(text).map(Some) },
        ),
        path: reader.read("metrics.path", |raw| &raw.metrics.path, scalar::url_path),
        max_series: reader.read(
            "metrics.max_series",
            |raw| &raw.metrics.max_series,
            |text| scalar::size(text, 0..=1_000_000),
        ),
        top: reader.switch("metrics.top", |raw| &raw.metrics.top),
        top_values: reader.switch("metrics.top_values", |raw| &raw.metrics.top_values),
        otlp: reader.switch("metrics.otlp", |raw| &raw.metrics.otlp),
        otlp_endpoint: reader.read(
            "metrics.otlp_endpoint",
            |raw| &raw.metrics.otlp_endpoint,
            collector,
        ),
        otlp_protocol: reader.read(
            "metrics.otlp_protocol",
            |raw| &raw.metrics.otlp_protocol,
            protocol,
        ),
        otlp_headers: headers(reader, "metrics.otlp_headers", |raw| &raw.metrics.otlp_headers),
        otlp_timeout: reader.read(
            "metrics.otlp_timeout",
            |raw| &raw.metrics.otlp_timeout,
            scalar::positive_duration,
        ),
        otlp_interval: reader.read(
            "metrics.otlp_interval",
            |raw| &raw.metrics.otlp_interval,
            scalar::positive_duration,
        ),
    }
}

pub(super) fn tracing(reader: &mut Reader<'_>) -> Tracing {
    let spans = |text: &str| scalar::size(text, 1..=1_000_000);
    Tracing {
        enabled: reader.switch("tracing.enabled", |raw| &raw.tracing.enabled),
        endpoint: reader.read("tracing.endpoint", |raw| &raw.tracing.endpoint, collector),
        protocol: reader.read("tracing.protocol", |raw| &raw.tracing.protocol, protocol),
        headers: headers(reader, "tracing.headers", |raw| &raw.tracing.headers),
        timeout: reader.read(
            "tracing.timeout",
            |raw| &raw.tracing.timeout,
            scalar::positive_duration,
        ),
        sampling_rate: reader.read(
            "tracing.sampling_rate",
            |raw| &raw.tracing.sampling_rate,
            scalar::share,
        ),
        service_name: reader.optional(|raw| &raw.tracing.service_name),
        service_namespace: reader.optional(|raw| &raw.tracing.service_namespace),
        service_instance_id: reader.optional(|raw| &raw.tracing.service_instance_id),
        queue: reader.read("tracing.queue", |raw| &raw.tracing.queue, spans),
        batch: reader.read("tracing.batch", |raw| &raw.tracing.batch, spans),
        delay: reader.read("tracing.delay", |raw| &raw.tracing.delay, scalar::duration),
    }
}

fn protocol(text: &str) -> Result<OtlpProtocol, String> {
    scalar::choice(text, &[("http", OtlpProtocol::Http), ("grpc", OtlpProtocol::Grpc)])
}

/// Where a collector is, or nothing.
fn collector(text: &str) -> Result<Option<SecretUrl>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    let what = "is not the address of a collector; write `http://` or `https://`, a host and a \
                port, and put a password into the headers";
    let uri = text.parse::<http::Uri>().map_err(|_| what.to_owned())?;
    let known = matches!(uri.scheme_str(), Some("http" | "https"));
    let bare = uri.authority().is_some_and(|authority| !authority.as_str().contains('@'));
    if known && bare { Ok(Some(SecretUrl::new(text))) } else { Err(what.to_owned()) }
}

fn headers(reader: &mut Reader<'_>, path: &str, text: fn(&Raw) -> &str) -> OtlpHeaders {
    reader.secret(path, text, OtlpHeaders::read)
}
