//! Traces and metrics, as an OpenTelemetry collector receives them.

use std::net::TcpListener;

use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value;
use opentelemetry_proto::tonic::metrics::v1::{Metric, metric};

use crate::support::certificates::Certificates;
use crate::support::collector::{Collector, hex, text};
use crate::support::http::{get, send};
use crate::support::rls::{Client, descriptor, request};
use crate::support::weir::{Setup, Weir};
use crate::support::window_edge::within_an_hour;

const RULES: &str = "
domain: d
descriptors:
  - key: user
    rate_limit: { unit: hour, requests_per_unit: 1 }
";

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";

fn setup() -> Setup {
    Weir::setup().rules("d.yaml", RULES)
}

fn to(collector: &Collector, protocol: &str) -> Setup {
    setup()
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", &format!("http://{}", collector.address))
        .env("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
        .env("OTEL_EXPORTER_OTLP_HEADERS", "x-token=hunter2")
        .env("OTEL_BSP_SCHEDULE_DELAY", "50")
        .env("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
}

/// Sends one request in the trace of the test.
fn check(weir: &Weir, user: &str, sampled: bool) {
    check_by(&weir.client(), user, sampled);
}

fn check_by(client: &Client, user: &str, sampled: bool) {
    let parent = format!("00-{TRACE}-{PARENT}-{:02x}", u8::from(sampled));
    client.check_traced(&parent, request("d", vec![descriptor(&[("user", user)])]));
}

/// The value of a series.
fn number(weir: &Weir, series: &str) -> u64 {
    let page = get(weir.admin, "/metrics").body;
    let line = page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {series} in {page}")).parse().expect("a number")
}

/// Accepts connections and never responds.
fn unresponsive_listener() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = format!("http://{}", listener.local_addr().expect("it listens"));
    (listener, address)
}

#[test]
fn a_request_is_a_span_in_its_callers_trace() {
    for protocol in ["grpc", "http/protobuf"] {
        let collector = if protocol == "grpc" { Collector::grpc() } else { Collector::http() };
        within_an_hour(|| {
            let weir = to(&collector, protocol).start();
            check(&weir, "ann", true);
            check(&weir, "ann", true);
            let denied = |name: &str| name == "over_limit";
            let (span, received) = collector
                .span(|span| text(&span.attributes, "weir.code").is_some_and(|code| denied(&code)));
            assert_eq!(span.name, "ShouldRateLimit", "{protocol}");
            assert_eq!(hex(&span.trace_id), TRACE);
            assert_eq!(hex(&span.parent_span_id), PARENT);
            assert!(span.end_time_unix_nano >= span.start_time_unix_nano);
            for (name, value) in [
                ("weir.domain", "d"),
                ("weir.rule", "user"),
                ("weir.mode", "exact"),
                ("weir.outcome", "over"),
            ] {
                assert_eq!(text(&span.attributes, name).as_deref(), Some(value), "{protocol}");
            }
            assert_eq!(received.token.as_deref(), Some("hunter2"));
            assert_eq!(received.resource("service.name").as_deref(), Some("weir"));
            let environment = received.resource("deployment.environment.name");
            assert_eq!(environment.as_deref(), Some("test"));
            assert!(!format!("{span:?}").contains("ann"), "values of requests are in no span");
        });
    }
}

#[test]
fn a_collector_may_be_behind_tls() {
    let certificates = Certificates::new();
    let authority = certificates.path("ca.crt").display().to_string();
    let pair = certificates.issue(&["127.0.0.1"]);
    for protocol in ["grpc", "http/protobuf"] {
        let collector = match protocol {
            "grpc" => Collector::grpc_over_tls(&pair),
            _ => Collector::http_over_tls(&pair),
        };
        let weir = to(&collector, protocol)
            .env("OTEL_EXPORTER_OTLP_ENDPOINT", &format!("https://{}", collector.address))
            .env("SSL_CERT_FILE", &authority)
            .start();
        check(&weir, "ann", true);
        let (_, received) = collector.span(|span| span.name == "ShouldRateLimit");
        assert_eq!(received.token.as_deref(), Some("hunter2"), "{protocol}");
    }
}

#[test]
fn the_caller_decides_whether_its_request_is_sampled() {
    let collector = Collector::http();
    let weir = to(&collector, "http/protobuf").env("OTEL_SERVICE_NAME", "limits").start();
    check(&weir, "ann", false);
    let headers = [("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")];
    let body =
        r#"{"domain": "d", "descriptors": [{"entries": [{"key": "user", "value": "bob"}]}]}"#;
    send(weir.http, "POST", "/json", &headers, body.as_bytes());
    let (span, received) = collector.span(|_| true);
    assert_eq!(hex(&span.trace_id), "0af7651916cd43dd8448eb211c80319c", "that over HTTP");
    assert_eq!(received.spans.len(), 1, "the other one was not sampled");
    assert_eq!(received.resource("service.name").as_deref(), Some("limits"));
}

#[test]
fn a_fallback_shows_in_the_trace() {
    let (_listener, address) = unresponsive_listener();
    let collector = Collector::grpc();
    let weir = to(&collector, "grpc")
        .env("WEIR__STORE__KIND", "redis")
        .env("WEIR__REDIS__URL", &address.replace("http", "redis"))
        .start();
    check(&weir, "ann", true);
    let (span, _) = collector.span(|span| span.name == "ShouldRateLimit");
    let event = span.events.iter().find(|event| event.name == "fallback").expect("an event");
    for attributes in [&span.attributes, &event.attributes] {
        assert_eq!(text(attributes, "weir.rule").as_deref(), Some("user"));
        assert_eq!(text(attributes, "weir.code").as_deref(), Some("ok"));
        assert_eq!(text(attributes, "weir.fallback").as_deref(), Some("allow"));
        assert_eq!(text(attributes, "weir.fallback.cause").as_deref(), Some("unreachable"));
        assert_eq!(text(attributes, "weir.outcome").as_deref(), Some("fallback"));
    }
}

#[test]
fn unreachable_collector_drops_spans() {
    let closed = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = closed.local_addr().expect("it listens");
    drop(closed);
    for protocol in ["grpc", "http/protobuf"] {
        let mut weir = setup()
            .env("OTEL_EXPORTER_OTLP_ENDPOINT", &format!("http://{address}"))
            .env("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
            .env("OTEL_BSP_SCHEDULE_DELAY", "50")
            .env("WEIR__DRAIN__DELAY", "0s")
            .start();
        let client = weir.client();
        (0..50).for_each(|user| check_by(&client, &user.to_string(), true));
        drop(client);
        weir.process().wait_for("that spans are dropped", |line| {
            line.contains("collector failed").then_some(())
        });
        check(&weir, "last", true);
        let page = get(weir.admin, "/metrics").body;
        assert!(page.contains("weir_requests_total{code=\"ok\"} 51\n"), "{page}");
        let dropped = page
            .lines()
            .find(|line| line.starts_with("weir_spans_dropped_total{cause=\"collector\"}"));
        assert!(dropped.is_some_and(|line| !line.ends_with(" 0")), "{dropped:?}");
        weir.process().terminate();
        assert!(weir.process().wait_for_exit().success());
    }
}

/// A slow collector delays no decision, and the queue of spans is bounded.
#[test]
fn a_slow_collector_delays_no_decision() {
    const REQUESTS: u64 = 300;
    const QUEUE: u64 = 16;
    const BATCH: u64 = 4;
    for protocol in ["grpc", "http/protobuf"] {
        let (_listener, address) = unresponsive_listener();
        let mut weir = setup()
            .env("OTEL_EXPORTER_OTLP_ENDPOINT", &address)
            .env("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
            .env("OTEL_EXPORTER_OTLP_TIMEOUT", "600000")
            .env("OTEL_BSP_MAX_QUEUE_SIZE", &QUEUE.to_string())
            .env("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", &BATCH.to_string())
            .env("OTEL_BSP_SCHEDULE_DELAY", "1")
            .env("WEIR__DRAIN__DELAY", "0s")
            .start();
        let client = weir.client();
        (0..REQUESTS).for_each(|user| check_by(&client, &user.to_string(), true));
        assert_eq!(number(&weir, "weir_requests_total{code=\"ok\"}"), REQUESTS);
        let dropped = number(&weir, "weir_spans_dropped_total{cause=\"queue_full\"}");
        assert!(dropped >= REQUESTS - QUEUE - BATCH, "{protocol}: only {dropped} were dropped");
        assert_eq!(number(&weir, "weir_spans_exported_total"), 0);
        // It ends although it could not send its spans.
        drop(client);
        weir.process().terminate();
        assert!(weir.process().wait_for_exit().success());
    }
}

#[test]
fn pending_telemetry_is_sent_at_shutdown() {
    const REQUESTS: usize = 20;
    for protocol in ["grpc", "http/protobuf"] {
        let collector = if protocol == "grpc" { Collector::grpc() } else { Collector::http() };
        let mut weir = to(&collector, protocol)
            .env("OTEL_BSP_SCHEDULE_DELAY", "3600000")
            .env("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "64")
            .env("OTEL_METRICS_EXPORTER", "otlp")
            .env("OTEL_METRIC_EXPORT_INTERVAL", "3600000")
            .env("WEIR__DRAIN__DELAY", "0s")
            .start();
        let client = weir.client();
        (0..REQUESTS).for_each(|user| check_by(&client, &user.to_string(), true));
        assert!(collector.rest().is_empty(), "an hour has not passed");
        drop(client);
        weir.process().terminate();
        assert!(weir.process().wait_for_exit().success());
        let received = collector.rest();
        let spans: usize = received.iter().map(|message| message.spans.len()).sum();
        assert_eq!(spans, REQUESTS, "{protocol}");
        assert!(received.iter().any(|message| !message.metrics.is_empty()), "{protocol}");
    }
}

#[test]
fn the_sampler_decides_for_untraced_callers() {
    let table: [(&[(&str, &str)], usize); 4] = [
        (&[], 1),
        (
            &[
                ("OTEL_TRACES_SAMPLER", "parentbased_traceidratio"),
                ("OTEL_TRACES_SAMPLER_ARG", "0"),
            ],
            0,
        ),
        (&[("OTEL_TRACES_SAMPLER", "parentbased_always_off")], 0),
        (&[("WEIR__TRACING__SAMPLING_RATE", "0")], 0),
    ];
    for (variables, expected) in table {
        let collector = Collector::grpc();
        let weir = variables
            .iter()
            .fold(to(&collector, "grpc"), |weir, (name, value)| weir.env(name, value));
        let mut weir = weir.env("WEIR__DRAIN__DELAY", "0s").start();
        weir.client().check(request("d", vec![descriptor(&[("user", "ann")])]));
        check(&weir, "bob", true);
        weir.process().terminate();
        assert!(weir.process().wait_for_exit().success());
        let spans: Vec<_> = collector.rest().into_iter().flat_map(|all| all.spans).collect();
        let own = spans.iter().filter(|span| hex(&span.trace_id) != TRACE).count();
        assert_eq!((own, spans.len() - own), (expected, 1), "{variables:?}");
    }
}

/// OTLP metrics have the names, labels and values of `/metrics`.
#[test]
fn otlp_metrics_equal_the_prometheus_page() {
    for protocol in ["grpc", "http/protobuf"] {
        let collector = if protocol == "grpc" { Collector::grpc() } else { Collector::http() };
        let weir = to(&collector, protocol)
            .env("OTEL_METRICS_EXPORTER", "otlp")
            .env("OTEL_TRACES_EXPORTER", "none")
            .env("OTEL_METRIC_EXPORT_INTERVAL", "100")
            .start();
        check(&weir, "ann", true);
        let ok = |metric: &Metric| match &metric.data {
            Some(metric::Data::Sum(sum)) if metric.name == "weir_requests_total" => {
                let mut points = sum.data_points.iter();
                let point = points
                    .find(|point| text(&point.attributes, "code").as_deref() == Some("ok"))?;
                (point.value == Some(Value::AsInt(1))).then_some(sum.is_monotonic)
            }
            _ => None,
        };
        let (monotonic, received) = collector.wait(|received| received.metrics.iter().find_map(ok));
        assert!(monotonic);
        assert_eq!(received.token.as_deref(), Some("hunter2"));
        assert_eq!(received.resource("service.name").as_deref(), Some("weir"));
        let page = get(weir.admin, "/metrics").body;
        let mut histograms = 0;
        for metric in &received.metrics {
            let kind = match &metric.data {
                Some(metric::Data::Sum(_)) => "counter",
                Some(metric::Data::Gauge(_)) => "gauge",
                _ => {
                    histograms += 1;
                    "histogram"
                }
            };
            assert!(page.contains(&format!("# TYPE {} {kind}\n", metric.name)), "{}", metric.name);
        }
        assert!(histograms > 0, "{protocol}: no histogram was sent");
    }
}

#[test]
fn tracing_is_off_by_default() {
    let collector = Collector::http();
    let exporters = |weir: &mut Weir| {
        let tasks = format!("/proc/{}/task", weir.process().pid());
        let tasks = std::fs::read_dir(tasks).expect("threads").flatten();
        let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
        names.filter(|name| name.trim() == "weir-otlp").count()
    };
    for mut weir in
        [setup().start(), to(&collector, "http/protobuf").env("OTEL_SDK_DISABLED", "true").start()]
    {
        check(&weir, "ann", true);
        let page = get(weir.admin, "/metrics").body;
        assert!(!page.contains("weir_spans_"), "{page}");
        assert_eq!(exporters(&mut weir), 0);
    }
    assert!(collector.rest().is_empty());
    let mut weir = setup().env("TRACING_ENABLED", "true").start();
    assert!(get(weir.admin, "/metrics").body.contains("weir_spans_exported_total 0\n"));
    assert_eq!(exporters(&mut weir), 1);
}
