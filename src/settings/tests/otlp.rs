//! Tests of OpenTelemetry's variables.

use super::{NO_FILE, errors, run, value_of};
use crate::settings::Flags;

#[test]
fn opentelemetry_variables_set_traces_and_metrics() {
    /// Variables, a setting, and its value.
    type Row<'a> = (&'a [(&'a str, &'a str)], &'a str, &'a str);
    let all = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318/");
    let own = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://t:1/x");
    let pushed = ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "http://m:2");
    let grpc = ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc");
    let http = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/protobuf");
    let off = ("OTEL_SDK_DISABLED", "true");
    let key = ("OTEL_EXPORTER_OTLP_HEADERS", "api-key=a%20b");
    let table: &[Row<'_>] = &[
        (&[], "tracing.enabled", "false"),
        (&[("OTEL_TRACES_EXPORTER", "otlp")], "tracing.enabled", "true"),
        (&[all], "tracing.enabled", "true"),
        (&[own], "tracing.enabled", "true"),
        (&[all, ("OTEL_TRACES_EXPORTER", "none")], "tracing.enabled", "false"),
        (&[all, off], "tracing.enabled", "false"),
        (&[off, ("OTEL_TRACES_EXPORTER", "zipkin")], "tracing.enabled", "false"),
        (&[off, ("OTEL_EXPORTER_OTLP_ENDPOINT", "collector")], "metrics.otlp", "false"),
        (&[all, ("OTEL_SDK_DISABLED", "false")], "tracing.enabled", "true"),
        (&[all, ("TRACING_ENABLED", "false")], "tracing.enabled", "false"),
        (&[all, ("WEIR__TRACING__ENABLED", "false")], "tracing.enabled", "false"),
        (&[all], "metrics.otlp", "false"),
        (&[pushed], "metrics.otlp", "true"),
        (&[pushed, off], "metrics.otlp", "false"),
        (&[("OTEL_METRICS_EXPORTER", "otlp")], "metrics.otlp", "true"),
        (&[pushed, ("OTEL_METRICS_EXPORTER", "prometheus")], "metrics.otlp", "false"),
        (&[all], "tracing.endpoint", "http://c:4318/v1/traces"),
        (&[all, own], "tracing.endpoint", "http://t:1/x"),
        (&[all, own], "metrics.otlp_endpoint", "http://c:4318/v1/metrics"),
        (&[grpc], "tracing.protocol", "grpc"),
        (&[grpc, http], "tracing.protocol", "http"),
        (&[grpc, http], "metrics.otlp_protocol", "grpc"),
        (&[key], "tracing.headers", "api-key=hidden"),
        (&[key, ("OTEL_EXPORTER_OTLP_METRICS_HEADERS", "b=c")], "metrics.otlp_headers", "b=hidden"),
        (&[("OTEL_EXPORTER_OTLP_TIMEOUT", "1500")], "tracing.timeout", "1500ms"),
        (&[("OTEL_BSP_MAX_QUEUE_SIZE", "10")], "tracing.max_queue_size", "10"),
        (&[("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "11")], "tracing.max_batch_size", "11"),
        (&[("OTEL_BSP_SCHEDULE_DELAY", "12")], "tracing.batch_delay", "12ms"),
        (&[("OTEL_METRIC_EXPORT_INTERVAL", "30000")], "metrics.otlp_interval", "30s"),
    ];
    for (env, path, meaning) in table {
        let loaded = run(NO_FILE, env, Flags::default());
        assert_eq!(value_of(loaded, path), *meaning, "{env:?} {path}");
    }
    let loaded = run(NO_FILE, &[key], Flags::default()).expect("valid");
    let headers = loaded.settings.tracing.headers.reveal().to_vec();
    assert_eq!(headers, [("api-key".to_owned(), "a b".to_owned())], "values are percent-encoded");
}

#[test]
fn a_bad_opentelemetry_variable_shows_no_secret() {
    for ((name, value), part) in [
        (("OTEL_TRACES_EXPORTER", "zipkin"), "write `otlp` or `none`"),
        (("OTEL_METRICS_EXPORTER", "console"), "write `otlp`, `prometheus` or `none`"),
        (("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json"), "write `grpc` or `http/protobuf`"),
        (("OTEL_EXPORTER_OTLP_TIMEOUT", "10s"), "of milliseconds"),
        (("OTEL_BSP_MAX_QUEUE_SIZE", "0"), "whole number from 1"),
        (("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4317"), "write `http://` or `https://`"),
        (("OTEL_EXPORTER_OTLP_ENDPOINT", "https://a..b:4317"), "write `http://` or `https://`"),
        (("OTEL_EXPORTER_OTLP_ENDPOINT", "http://u:hunter2@c"), "into the headers"),
        (("OTEL_EXPORTER_OTLP_ENDPOINT", "::no address:hunter2@"), "`http://` or `https://`"),
        (("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318/?key=hunter2@"), "into the headers"),
        (("OTEL_EXPORTER_OTLP_HEADERS", "Bearer hunter2"), "write `name=value"),
        (("OTEL_EXPORTER_OTLP_HEADERS", "a b=hunter2"), "write `name=value"),
        (("OTEL_EXPORTER_OTLP_HEADERS", "a=hunter2%0"), "write `name=value"),
        (("WEIR__TRACING__HEADERS", "hunter2"), "write `name=value"),
        (("WEIR__TRACING__SAMPLING_RATE", "1.5"), "from 0 to 1"),
    ] {
        let lines = errors(NO_FILE, &[(name, value)], Flags::default());
        assert!(lines[0].contains(name) && lines[0].contains(part), "{lines:?}");
        assert!(!lines.concat().contains("hunter2"), "{lines:?}");
    }
}
