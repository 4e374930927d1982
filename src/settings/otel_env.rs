//! Translates OpenTelemetry's standard environment variables into settings.
//!
//! They override the defaults only, like those of envoyproxy/ratelimit, because a platform sets
//! them for all its programs. OpenTelemetry's library itself reads the variables of the sampler
//! and the resource: `OTEL_TRACES_SAMPLER`, `OTEL_TRACES_SAMPLER_ARG`, `OTEL_SERVICE_NAME`,
//! `OTEL_RESOURCE_ATTRIBUTES`.

use super::problem::Problem;
use super::source_values::SourceValue;
use super::{scalar, secret};

type Env = [(String, String)];

/// Name and value of a variable.
type Set<'a> = (&'a str, &'a str);

/// The settings that `env` sets.
pub(super) fn translate(env: &Env) -> Vec<SourceValue> {
    if let Some(set) = get(env, "OTEL_SDK_DISABLED").filter(|set| is_true(set.1)) {
        // The other variables are not read, so a bad value in them is no error.
        let off = |path| source_value(path, set, |_| Ok("false".to_owned()));
        return vec![off("tracing.enabled"), off("metrics.otlp")];
    }
    let mut values = Vec::new();
    values.extend(traces(env));
    values.extend(metrics(env));
    values.extend(destination(env, "TRACES", "tracing.", "/v1/traces"));
    values.extend(destination(env, "METRICS", "metrics.otlp_", "/v1/metrics"));
    for (name, path) in [
        ("OTEL_BSP_MAX_QUEUE_SIZE", "tracing.max_queue_size"),
        ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "tracing.max_batch_size"),
    ] {
        values.extend(get(env, name).map(|set| source_value(path, set, as_is)));
    }
    for (name, path) in [
        ("OTEL_BSP_SCHEDULE_DELAY", "tracing.batch_delay"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "metrics.otlp_interval"),
    ] {
        values.extend(get(env, name).map(|set| source_value(path, set, millis)));
    }
    values
}

/// The value of `tracing.enabled`.
fn traces(env: &Env) -> Option<SourceValue> {
    let endpoint = get(env, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
        .or(get(env, "OTEL_EXPORTER_OTLP_ENDPOINT"))
        .filter(|_| get(env, "TRACING_ENABLED").is_none());
    switch(env, "tracing.enabled", "OTEL_TRACES_EXPORTER", endpoint, |text| match text {
        "otlp" => Ok("true".to_owned()),
        "none" => Ok("false".to_owned()),
        _ => Err("is not a supported exporter; write `otlp` or `none`".to_owned()),
    })
}

/// The value of `metrics.otlp`. Prometheus can scrape the metrics in any case.
fn metrics(env: &Env) -> Option<SourceValue> {
    let endpoint = get(env, "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT");
    switch(env, "metrics.otlp", "OTEL_METRICS_EXPORTER", endpoint, |text| match text {
        "otlp" => Ok("true".to_owned()),
        "none" | "prometheus" => Ok("false".to_owned()),
        _ => Err("is not a supported exporter; write `otlp`, `prometheus` or `none`".to_owned()),
    })
}

/// The value of the variable `exporter`. Without it, the switch is on if `implied_by` is set.
fn switch(
    env: &Env,
    path: &str,
    exporter: &str,
    implied_by: Option<Set<'_>>,
    translate: impl Fn(&str) -> Result<String, String>,
) -> Option<SourceValue> {
    match get(env, exporter) {
        Some(set) => Some(source_value(path, set, translate)),
        None => Some(source_value(path, implied_by?, |_| Ok("true".to_owned()))),
    }
}

/// The collector of a signal: from the signal's own variables, else from those of all signals.
fn destination(env: &Env, signal: &str, section: &str, path: &str) -> Vec<SourceValue> {
    let own = |what: &str| get(env, &format!("OTEL_EXPORTER_OTLP_{signal}_{what}"));
    let all = |what: &str| get(env, &format!("OTEL_EXPORTER_OTLP_{what}"));
    let setting = |name: &str| format!("{section}{name}");
    // The address for all signals is a base, to which each signal appends its path.
    let below = |text: &str| Ok(format!("{}{path}", text.trim_end_matches('/')));
    let protocol = |text: &str| match text {
        "grpc" => Ok("grpc".to_owned()),
        "http/protobuf" => Ok("http".to_owned()),
        _ => Err("is not a supported protocol; write `grpc` or `http/protobuf`".to_owned()),
    };
    let endpoint = match own("ENDPOINT") {
        Some(set) => Some(source_value(&setting("endpoint"), set, as_is)),
        None => all("ENDPOINT").map(|set| source_value(&setting("endpoint"), set, below)),
    };
    let either = |what: &str| own(what).or(all(what));
    let others = [
        either("PROTOCOL").map(|set| source_value(&setting("protocol"), set, protocol)),
        either("HEADERS").map(|set| source_value(&setting("headers"), set, as_is)),
        either("TIMEOUT").map(|set| source_value(&setting("timeout"), set, millis)),
    ];
    others.into_iter().chain([endpoint]).flatten().collect()
}

fn is_true(text: &str) -> bool {
    scalar::switch(text) == Ok(true)
}

fn as_is(text: &str) -> Result<String, String> {
    Ok(text.to_owned())
}

/// A number of milliseconds, as the text of a duration.
fn millis(text: &str) -> Result<String, String> {
    match scalar::whole(text, 1..=u64::from(u32::MAX)) {
        Ok(millis) => Ok(format!("{millis}ms")),
        Err(what) => Err(format!("{what}, of milliseconds")),
    }
}

fn get<'a>(env: &'a Env, variable: &str) -> Option<Set<'a>> {
    let found = env.iter().find(|(name, value)| name == variable && !value.is_empty());
    found.map(|(name, value)| (name.as_str(), value.as_str()))
}

fn source_value(
    path: &str,
    (name, text): Set<'_>,
    translate: impl Fn(&str) -> Result<String, String>,
) -> SourceValue {
    let value = translate(text).map_err(|what| {
        let (origin, key, value) = (name.to_owned(), path.to_owned(), secret::mask(text));
        Problem::BadValue { origin, key, value, what }
    });
    SourceValue { path: path.to_owned(), origin: name.to_owned(), value }
}
