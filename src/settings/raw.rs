//! The shape of `weir.yaml`: every setting as the text it is written as, with its default.
//!
//! All leaves are texts here, so that one bad value does not hide the next: [`super::live`] reads
//! them and reports every problem.

use serde::{Deserialize, Serialize};

/// Declares a section: its settings and their defaults, one line each.
macro_rules! section {
    ($name:ident { $($field:ident: $kind:ty = $default:expr),+ $(,)? }) => {
        #[derive(Clone, Debug, Deserialize, Serialize)]
        #[serde(deny_unknown_fields)]
        pub(super) struct $name {
            $(pub(super) $field: $kind,)+
        }

        impl Default for $name {
            fn default() -> Self {
                $name { $($field: $default.into(),)+ }
            }
        }
    };
}

/// Several texts: a YAML list, or one text with commas in a variable.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(transparent)]
pub(super) struct List(pub(super) Vec<String>);

impl From<&str> for List {
    fn from(one: &str) -> List {
        List(vec![one.to_owned()])
    }
}

/// The whole file.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Raw {
    pub(super) grpc: Grpc,
    pub(super) http: Http,
    pub(super) admin: Admin,
    pub(super) rules: Rules,
    pub(super) answer: Answer,
    pub(super) store: Store,
    pub(super) redis: Redis,
    pub(super) bounds: Bounds,
    pub(super) fallback: Fallback,
    pub(super) readyz: Readyz,
    pub(super) drain: Drain,
    pub(super) clock: Clock,
    pub(super) log: Log,
    pub(super) metrics: Metrics,
    pub(super) tracing: Tracing,
}

section!(Grpc {
    listen: String = "[::]:8081",
    tls_cert: String = "",
    tls_key: String = "",
    tls_client_ca: String = "",
    tls_client_cert: String = "required",
    tls_client_san: String = "",
    max_message_bytes: String = "4194304",
    max_upload_bytes: String = "67108864",
    max_header_bytes: String = "16384",
    max_concurrent_streams: String = "1024",
    max_pending_resets: String = "128",
    max_control_frames: String = "1000",
    max_connections: String = "16384",
    max_connections_per_peer: String = "off",
    max_handshakes: String = "32",
    handshake_timeout: String = "10s",
    call_timeout: String = "10s",
    write_timeout: String = "20s",
    keepalive_interval: String = "60s",
    keepalive_timeout: String = "20s",
    max_connection_age: String = "24h",
    max_connection_age_grace: String = "1h",
    max_connection_idle: String = "off",
    cores: String = "auto",
});

section!(Http {
    listen: String = "[::]:8080",
    max_body_bytes: String = "262144",
    max_head_bytes: String = "32768",
    head_timeout: String = "30s",
    request_timeout: String = "10s",
    max_connection_age: String = "10m",
    max_connections: String = "1024",
    max_connections_per_peer: String = "256",
});

section!(Admin {
    listen: String = "127.0.0.1:6070",
    token: String = "",
    token_file: String = "",
    max_connections: String = "64",
});

section!(Rules {
    paths: List = "rules/",
    merge_domains: String = "false",
    unknown_fields: String = "error",
    start_without: String = "false",
    watch: String = "true",
    denied_requests: String = "count",
});

section!(Answer {
    headers: String = "off",
    shadow_mode: String = "false",
    quota_mode: String = "false",
    dynamic_metadata: String = "false",
    decision_header: String = "false",
    envoy_ratelimit_headers: String = "false",
    limit_header: String = "RateLimit-Limit",
    remaining_header: String = "RateLimit-Remaining",
    reset_header: String = "RateLimit-Reset",
});

section!(Store {
    kind: String = "memory",
    timeout: String = "10ms",
    max_counters: String = "4000000",
    over_limit_cache: String = "true",
});

section!(Redis {
    url: String = "redis-cluster://127.0.0.1:7000",
    pool_size: String = "1",
    batch: String = "128",
    username: String = "",
    password_file: String = "",
    key_secret: String = "",
    tls_ca: String = "",
    tls_cert: String = "",
    tls_key: String = "",
    tls_skip_hostname_check: String = "false",
});

section!(Bounds {
    descriptors: String = "256",
    entries: String = "32",
    text_bytes: String = "65536",
});

section!(Fallback { on_error: String = "allow", instances: String = "1" });

section!(Readyz { require_store: String = "false", require_rules: String = "off" });

section!(Drain { delay: String = "5s", timeout: String = "30s" });

section!(Clock { offset: String = "0s" });

section!(Log { level: String = "info", format: String = "pretty" });

section!(Metrics {
    compat: String = "false",
    listen: String = "",
    path: String = "/metrics",
    max_series: String = "1000",
    top: String = "false",
    top_values: String = "false",
    otlp: String = "false",
    otlp_endpoint: String = "",
    otlp_protocol: String = "http",
    otlp_headers: String = "",
    otlp_timeout: String = "10s",
    otlp_interval: String = "60s",
});

section!(Tracing {
    enabled: String = "false",
    endpoint: String = "",
    protocol: String = "http",
    headers: String = "",
    timeout: String = "10s",
    sampling_rate: String = "",
    service_name: String = "",
    service_namespace: String = "",
    service_instance_id: String = "",
    queue: String = "2048",
    batch: String = "512",
    delay: String = "5s",
});
