//! From the process's settings to what each part wants to know.

use crate::key::KeySeed;
use crate::limit::OnError;
use crate::limiter::{Answer, Headers};
use crate::rules::{DeniedRequests, Options, Unknown};
use crate::server;
use crate::settings::{self, Settings};
use crate::store::redis::{Reach, Tls};

/// How rule files are read.
pub fn reading(settings: &Settings) -> Options {
    let unknown_fields = match settings.rules.unknown_fields {
        settings::UnknownFields::Error => Unknown::Error,
        settings::UnknownFields::Warn => Unknown::Warn,
    };
    let denied_requests = match settings.rules.denied_requests {
        settings::DeniedRequests::Count => DeniedRequests::Count,
        settings::DeniedRequests::Free => DeniedRequests::Free,
    };
    Options { merge_domains: settings.rules.merge_domains, unknown_fields, denied_requests }
}

/// How answers are given.
pub(super) fn answer(settings: &Settings) -> Answer {
    let from = &settings.answer;
    let names = || {
        [&from.limit_header, &from.remaining_header, &from.reset_header]
            .map(|name| name.clone().into_boxed_str())
    };
    Answer {
        headers: match from.headers {
            settings::Headers::Off => Headers::Off,
            settings::Headers::XRatelimit => Headers::XRateLimit,
            settings::Headers::Ietf => Headers::Ietf,
            settings::Headers::Both => Headers::Both,
        },
        incumbent_headers: from.incumbent_headers.then(names),
        decision_header: from.decision_header,
        shadow_mode: from.shadow_mode,
        quota_mode: from.quota_mode,
        dynamic_metadata: from.dynamic_metadata,
        on_error: match settings.fallback.on_error {
            settings::OnError::Allow => OnError::Allow,
            settings::OnError::Deny => OnError::Deny,
            settings::OnError::Local => OnError::Local,
        },
    }
}

/// How Redis is reached. `cores` share the connections.
pub(super) fn redis(settings: &Settings, cores: usize) -> Reach {
    let from = &settings.redis;
    Reach {
        url: from.url.reveal().to_owned(),
        username: from.username.clone(),
        password_file: from.password_file.clone(),
        tls: Tls {
            ca: from.tls_ca.clone(),
            cert: from.tls_cert.clone(),
            key: from.tls_key.clone(),
            skip_hostname_check: from.tls_skip_hostname_check,
        },
        connections: from.pool_size.div_ceil(cores.max(1)),
        batch: from.batch,
    }
}

/// What the names of counters in Redis are hashed with. Without a secret it is the same everywhere:
/// instances that disagreed would each let the whole limit through.
pub(super) fn shared_seed(settings: &Settings) -> KeySeed {
    let secret = settings.redis.key_secret.as_ref();
    KeySeed::from_secret(secret.map_or("", |secret| secret.reveal()))
}

/// What the listeners want to know.
pub(super) fn server(settings: &Settings) -> server::Settings {
    let defaults = server::Settings::default();
    server::Settings {
        grpc: server::Grpc {
            listen: settings.grpc.listen.to_string(),
            max_message_bytes: settings.grpc.max_message_bytes,
            max_concurrent_streams: settings.grpc.max_concurrent_streams,
            max_connection_age: settings.grpc.max_connection_age,
            ..defaults.grpc
        },
        http: server::Http { listen: settings.http.listen.to_string(), ..defaults.http },
        admin: server::Admin {
            listen: settings.admin.listen.to_string(),
            token: token(&settings.admin),
            ..defaults.admin
        },
        metrics: settings.metrics.listen.map(|address| server::Scraped {
            listen: address.to_string(),
            path: settings.metrics.path.clone(),
        }),
        drain: server::Drain { delay: settings.drain.delay, timeout: settings.drain.timeout },
        bounds: settings.bounds,
        cores: settings.grpc.cores.map(std::num::NonZeroUsize::get),
    }
}

/// What callers of `/counters` must know; a file wins.
fn token(settings: &settings::Admin) -> Option<server::Token> {
    let text = || settings.token.as_ref().map(|token| server::Token::Text(token.reveal().into()));
    settings.token_file.clone().map(server::Token::File).or_else(text)
}
