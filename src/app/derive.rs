//! From the process's settings to what each part wants to know.

use std::sync::Arc;
use std::time::Duration;

use super::shutdown;
use crate::key::KeySeed;
use crate::limiter::{Headers, ResponseConfig};
use crate::rules::Options;
use crate::server;
use crate::settings::{self, Settings};
use crate::store::redis::{RedisConfig, RedisTls};
use crate::telemetry::{Destination, PushOptions, Resource, TraceOptions};

/// How rule files are read.
pub fn reading(settings: &Settings) -> Options {
    let from = &settings.rules;
    Options {
        merge_domains: from.merge_domains,
        unknown_fields: from.unknown_fields,
        denied_requests: from.denied_requests,
    }
}

/// How answers are given.
pub(super) fn answer(settings: &Settings) -> ResponseConfig {
    let from = &settings.answer;
    let names = || {
        [&from.limit_header, &from.remaining_header, &from.reset_header]
            .map(|name| name.clone().into_boxed_str())
    };
    ResponseConfig {
        headers: match from.headers {
            settings::LimitHeaders::Off => Headers::Off,
            settings::LimitHeaders::XRateLimit => Headers::XRateLimit,
            settings::LimitHeaders::Ietf => Headers::Ietf,
            settings::LimitHeaders::Both => Headers::Both,
        },
        envoy_ratelimit_headers: from.envoy_ratelimit_headers.then(names),
        decision_header: from.decision_header,
        shadow_mode: from.shadow_mode,
        quota_mode: from.quota_mode,
        dynamic_metadata: from.dynamic_metadata,
        on_error: settings.fallback.on_error,
    }
}

/// How Redis is reached. `cores` share the connections.
pub(super) fn redis(settings: &Settings, cores: usize) -> RedisConfig {
    let from = &settings.redis;
    RedisConfig {
        url: from.url.reveal().to_owned(),
        username: from.username.clone(),
        password_file: from.password_file.clone(),
        tls: RedisTls {
            ca: from.tls_ca.clone(),
            cert: from.tls_cert.clone(),
            key: from.tls_key.clone(),
            skip_hostname_check: from.tls_skip_hostname_check,
        },
        connections: from.pool_size.div_ceil(cores.max(1)),
        batch: from.batch,
    }
}

/// How requests are traced, if they shall be.
pub(super) fn traces(settings: &Settings) -> Option<TraceOptions> {
    let from = &settings.tracing;
    let to = || collector(from.endpoint.as_ref(), from.protocol, &from.headers, from.timeout);
    from.enabled.then(|| TraceOptions {
        to: to(),
        sampling_rate: from.sampling_rate,
        queue: from.queue,
        batch: from.batch,
        delay: from.delay,
    })
}

/// How metrics are sent, if they shall be.
pub(super) fn push(settings: &Settings) -> Option<PushOptions> {
    let from = &settings.metrics;
    let (endpoint, protocol) = (from.otlp_endpoint.as_ref(), from.otlp_protocol);
    let to = || collector(endpoint, protocol, &from.otlp_headers, from.otlp_timeout);
    from.otlp.then(|| PushOptions { to: to(), interval: from.otlp_interval })
}

/// Who a collector is told that spans and metrics are of.
pub(super) fn resource(settings: &Settings) -> Resource {
    let from = settings.tracing.clone();
    Resource {
        name: from.service_name,
        namespace: from.service_namespace,
        instance_id: from.service_instance_id,
    }
}

fn collector(
    endpoint: Option<&settings::SecretUrl>,
    protocol: settings::OtlpProtocol,
    headers: &settings::OtlpHeaders,
    timeout: Duration,
) -> Destination {
    let grpc = protocol == settings::OtlpProtocol::Grpc;
    let usual = if grpc { "http://localhost:4317" } else { "http://localhost:4318" };
    let endpoint = endpoint.map_or(usual, settings::SecretUrl::reveal).to_owned();
    Destination { grpc, endpoint, headers: headers.reveal().to_vec(), timeout }
}

/// What the names of counters in Redis are hashed with. Without a secret it is the same everywhere:
/// instances that disagreed would each let the whole limit through.
pub(super) fn shared_seed(settings: &Settings) -> KeySeed {
    let secret = settings.redis.key_secret.as_ref();
    KeySeed::from_secret(secret.map_or("", |secret| secret.reveal()))
}

/// The files of TLS, where it is asked for. What belongs together must be there together: a
/// forgotten line must not mean plain text, or that everybody is let in.
pub(super) fn tls(settings: &Settings) -> Result<Option<server::TlsConfig>, String> {
    let grpc = &settings.grpc;
    let names = grpc.tls_client_san.split(',').map(str::trim).filter(|name| !name.is_empty());
    let client_san: Vec<String> = names.map(str::to_owned).collect();
    if grpc.tls_client_ca.is_none() && !client_san.is_empty() {
        return Err("grpc.tls_client_san needs grpc.tls_client_ca; set both or none".to_owned());
    }
    match (&grpc.tls_cert, &grpc.tls_key) {
        (Some(cert), Some(key)) => Ok(Some(server::TlsConfig {
            cert: cert.clone(),
            key: key.clone(),
            client_ca: grpc.tls_client_ca.clone(),
            client_optional: grpc.tls_client_cert == settings::ClientCert::Optional,
            client_san,
        })),
        (None, None) if grpc.tls_client_ca.is_none() => Ok(None),
        (None, None) => {
            Err("grpc.tls_client_ca needs grpc.tls_cert and grpc.tls_key; set them".to_owned())
        }
        _ => Err("grpc.tls_cert and grpc.tls_key go together; set both or none".to_owned()),
    }
}

/// What the listeners want to know, but for TLS.
pub(super) fn server(settings: &Settings) -> server::Settings {
    let (grpc, http) = (&settings.grpc, &settings.http);
    let limits = server::HttpLimits {
        head_timeout: http.head_timeout,
        request_timeout: http.request_timeout,
        max_connection_age: http.max_connection_age,
        max_connections: http.max_connections,
        max_connections_per_peer: http.max_connections_per_peer,
        max_head_bytes: http.max_head_bytes,
    };
    server::Settings {
        grpc: server::Grpc {
            listen: grpc.listen.to_string(),
            max_message_bytes: grpc.max_message_bytes,
            max_upload_bytes: grpc.max_upload_bytes,
            max_header_bytes: grpc.max_header_bytes,
            max_concurrent_streams: grpc.max_concurrent_streams,
            max_pending_resets: grpc.max_pending_resets,
            max_control_frames: grpc.max_control_frames,
            max_connections: grpc.max_connections,
            max_connections_per_peer: grpc.max_connections_per_peer,
            max_handshakes: grpc.max_handshakes,
            handshake_timeout: grpc.handshake_timeout,
            call_timeout: grpc.call_timeout,
            write_timeout: grpc.write_timeout,
            keepalive_interval: grpc.keepalive_interval,
            keepalive_timeout: grpc.keepalive_timeout,
            max_connection_age: grpc.max_connection_age,
            max_connection_age_grace: grpc.max_connection_age_grace,
            max_connection_idle: grpc.max_connection_idle,
            tls: None,
        },
        http: server::Http {
            listen: http.listen.to_string(),
            max_body_bytes: http.max_body_bytes,
            limits,
        },
        admin: server::Admin {
            listen: settings.admin.listen.to_string(),
            limits: server::HttpLimits {
                max_connections: settings.admin.max_connections,
                ..limits
            },
            token: token(&settings.admin),
        },
        metrics: settings.metrics.listen.map(|address| server::Scraped {
            listen: address.to_string(),
            path: settings.metrics.path.clone(),
        }),
        drain: server::Drain {
            delay: settings.drain.delay,
            timeout: shutdown::for_calls(settings.drain.timeout),
        },
        bounds: settings.bounds,
        cores: settings.grpc.cores.map(std::num::NonZeroUsize::get),
        server_metrics: Arc::default(),
    }
}

/// What callers of `/counters` must know; a file wins.
fn token(settings: &settings::AdminSettings) -> Option<server::Token> {
    let text = || settings.token.as_ref().map(|token| server::Token::Text(token.reveal().into()));
    settings.token_file.clone().map(server::Token::File).or_else(text)
}
