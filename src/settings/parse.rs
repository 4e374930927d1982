//! This module parses the texts of all settings and reports every bad one.

use super::leaf::Origins;
use super::problem::{Problem, Problems};
use super::raw::Raw;
use super::reader::Reader;
use super::secret::Secret;
use super::{
    Answer, Clock, DeniedRequests, Drain, Fallback, Headers, Log, LogFormat, OnError, Readyz,
    Redis, RequireRules, Rules, Settings, Store, StoreKind, UnknownFields, listeners, redis_url,
    scalar, telemetry,
};
use crate::descriptor::Bounds;

/// Parses `raw`.
pub(super) fn parse(raw: &Raw, origins: &Origins) -> Result<Settings, Problems> {
    let mut reader = Reader::new(raw, origins);
    let settings = Settings {
        grpc: listeners::grpc(&mut reader),
        http: listeners::http(&mut reader),
        admin: listeners::admin(&mut reader),
        rules: rules(&mut reader),
        answer: answer(&mut reader),
        store: store(&mut reader),
        redis: redis(&mut reader),
        bounds: bounds(&mut reader),
        fallback: Fallback {
            on_error: reader.read("fallback.on_error", |raw| &raw.fallback.on_error, on_error),
            instances: reader.read(
                "fallback.instances",
                |raw| &raw.fallback.instances,
                |text| scalar::whole(text, 1..=1_000_000),
            ),
        },
        readyz: Readyz {
            require_store: reader.switch("readyz.require_store", |raw| &raw.readyz.require_store),
            require_rules: reader.read(
                "readyz.require_rules",
                |raw| &raw.readyz.require_rules,
                require_rules,
            ),
        },
        drain: Drain {
            delay: reader.read("drain.delay", |raw| &raw.drain.delay, scalar::duration),
            timeout: reader.read("drain.timeout", |raw| &raw.drain.timeout, scalar::duration),
        },
        clock: Clock {
            offset: reader.read("clock.offset", |raw| &raw.clock.offset, scalar::signed_duration),
        },
        log: log(&mut reader),
        metrics: telemetry::metrics(&mut reader),
        tracing: telemetry::tracing(&mut reader),
    };
    reader.problems.extend(shared_addresses(&settings));
    if reader.problems.is_empty() { Ok(settings) } else { Err(Problems(reader.problems)) }
}

fn rules(reader: &mut Reader<'_>) -> Rules {
    let paths = &reader.raw.rules.paths.0;
    if paths.is_empty() || paths.iter().any(String::is_empty) {
        let what = "has no path, or an empty one; write files or folders, such as `[rules/]`";
        reader.bad("rules.paths", &paths.join(","), what.to_owned());
    }
    Rules {
        paths: paths.iter().map(Into::into).collect(),
        merge_domains: reader.switch("rules.merge_domains", |raw| &raw.rules.merge_domains),
        unknown_fields: reader.read(
            "rules.unknown_fields",
            |raw| &raw.rules.unknown_fields,
            |text| {
                let choices = [("error", UnknownFields::Error), ("warn", UnknownFields::Warn)];
                scalar::choice(text, &choices)
            },
        ),
        start_without: reader.switch("rules.start_without", |raw| &raw.rules.start_without),
        watch: reader.switch("rules.watch", |raw| &raw.rules.watch),
        denied_requests: reader.read(
            "rules.denied_requests",
            |raw| &raw.rules.denied_requests,
            |text| {
                let choices = [("count", DeniedRequests::Count), ("free", DeniedRequests::Free)];
                scalar::choice(text, &choices)
            },
        ),
    }
}

fn answer(reader: &mut Reader<'_>) -> Answer {
    let header = scalar::header_name;
    Answer {
        headers: reader.read("answer.headers", |raw| &raw.answer.headers, headers),
        shadow_mode: reader.switch("answer.shadow_mode", |raw| &raw.answer.shadow_mode),
        quota_mode: reader.switch("answer.quota_mode", |raw| &raw.answer.quota_mode),
        dynamic_metadata: reader
            .switch("answer.dynamic_metadata", |raw| &raw.answer.dynamic_metadata),
        decision_header: reader.switch("answer.decision_header", |raw| &raw.answer.decision_header),
        envoy_ratelimit_headers: reader
            .switch("answer.envoy_ratelimit_headers", |raw| &raw.answer.envoy_ratelimit_headers),
        limit_header: reader.read("answer.limit_header", |raw| &raw.answer.limit_header, header),
        remaining_header: reader.read(
            "answer.remaining_header",
            |raw| &raw.answer.remaining_header,
            header,
        ),
        reset_header: reader.read("answer.reset_header", |raw| &raw.answer.reset_header, header),
    }
}

fn headers(text: &str) -> Result<Headers, String> {
    let choices = [
        ("off", Headers::Off),
        ("false", Headers::Off),
        ("none", Headers::Off),
        ("x-ratelimit", Headers::XRatelimit),
        ("ietf", Headers::Ietf),
        ("both", Headers::Both),
    ];
    scalar::choice(text, &choices)
}

fn store(reader: &mut Reader<'_>) -> Store {
    Store {
        kind: reader.read(
            "store.kind",
            |raw| &raw.store.kind,
            |text| {
                scalar::choice(text, &[("memory", StoreKind::Memory), ("redis", StoreKind::Redis)])
            },
        ),
        timeout: reader.read("store.timeout", |raw| &raw.store.timeout, scalar::positive_duration),
        max_counters: reader.read(
            "store.max_counters",
            |raw| &raw.store.max_counters,
            |text| scalar::size(text, 1..=1_000_000_000),
        ),
        over_limit_cache: reader
            .switch("store.over_limit_cache", |raw| &raw.store.over_limit_cache),
    }
}

fn redis(reader: &mut Reader<'_>) -> Redis {
    Redis {
        url: reader.read("redis.url", |raw| &raw.redis.url, redis_url::read),
        pool_size: reader.read(
            "redis.pool_size",
            |raw| &raw.redis.pool_size,
            |text| scalar::size(text, 1..=1024),
        ),
        batch: reader.read(
            "redis.batch",
            |raw| &raw.redis.batch,
            |text| scalar::size(text, 1..=1024),
        ),
        username: reader.optional(|raw| &raw.redis.username),
        password_file: reader.optional(|raw| &raw.redis.password_file).map(Into::into),
        key_secret: reader.optional(|raw| &raw.redis.key_secret).map(Secret::new),
        tls_ca: reader.optional(|raw| &raw.redis.tls_ca).map(Into::into),
        tls_cert: reader.optional(|raw| &raw.redis.tls_cert).map(Into::into),
        tls_key: reader.optional(|raw| &raw.redis.tls_key).map(Into::into),
        tls_skip_hostname_check: reader
            .switch("redis.tls_skip_hostname_check", |raw| &raw.redis.tls_skip_hostname_check),
    }
}

fn bounds(reader: &mut Reader<'_>) -> Bounds {
    // The upper ends keep one request cheap whatever is written here.
    Bounds {
        descriptors: reader.read(
            "bounds.descriptors",
            |raw| &raw.bounds.descriptors,
            |text| scalar::size(text, 1..=10_000),
        ),
        entries: reader.read(
            "bounds.entries",
            |raw| &raw.bounds.entries,
            |text| scalar::size(text, 1..=1_000),
        ),
        text_bytes: reader.read(
            "bounds.text_bytes",
            |raw| &raw.bounds.text_bytes,
            |text| scalar::size(text, 1..=1 << 20),
        ),
    }
}

fn on_error(text: &str) -> Result<OnError, String> {
    let choices = [("allow", OnError::Allow), ("deny", OnError::Deny), ("local", OnError::Local)];
    scalar::choice(text, &choices)
}

fn require_rules(text: &str) -> Result<RequireRules, String> {
    let choices = [
        ("off", RequireRules::Off),
        ("loaded", RequireRules::Loaded),
        ("current", RequireRules::Current),
        ("false", RequireRules::Off),
    ];
    scalar::choice(text, &choices)
}

fn log(reader: &mut Reader<'_>) -> Log {
    Log {
        level: reader.read("log.level", |raw| &raw.log.level, scalar::log_level),
        format: reader.read(
            "log.format",
            |raw| &raw.log.format,
            |text| {
                scalar::choice(text, &[("pretty", LogFormat::Pretty), ("json", LogFormat::Json)])
            },
        ),
    }
}

fn shared_addresses(settings: &Settings) -> Vec<Problem> {
    let mut listeners = vec![
        ("grpc.listen", settings.grpc.listen),
        ("http.listen", settings.http.listen),
        ("admin.listen", settings.admin.listen),
    ];
    listeners.extend(settings.metrics.listen.map(|address| ("metrics.listen", address)));
    let mut problems = Vec::new();
    for (index, (second, address)) in listeners.iter().enumerate() {
        for (first, earlier) in &listeners[..index] {
            if earlier == address && address.port() != 0 {
                problems.push(Problem::SameAddress { first, second, value: address.to_string() });
            }
        }
    }
    problems
}
