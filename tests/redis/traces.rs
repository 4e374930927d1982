//! Traces of calls to a real Redis.

use crate::bed::server::Server;
use crate::start::{alone, over, ready};
use crate::support::collector::{Collector, hex, text};
use crate::support::rls::{Client, descriptor, request};

const RULES: &str = "
domain: d
descriptors:
  - key: user
    rate_limit: { requests: 100, window: 1000d, on_error: local }
";

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

fn ask(client: &Client) {
    let traceparent = format!("00-{TRACE}-00f067aa0ba902b7-01");
    client.ask_in(&traceparent, request("d", vec![descriptor(&[("user", "ann")])]));
}

#[test]
fn a_call_to_redis_is_a_span_below_its_request_with_its_node_and_its_error() {
    let _turn = alone();
    let redis = Server::listening(&[]);
    let collector = Collector::grpc();
    let weir = over(&format!("redis://{}", redis.address()), RULES)
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", &format!("http://{}", collector.address))
        .env("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
        .env("OTEL_BSP_SCHEDULE_DELAY", "500")
        .env("WEIR__STORE__TIMEOUT", "1s")
        .start();
    ready(&weir);
    let client = weir.client();
    ask(&client);
    // Both are finished within a microsecond, and travel together.
    let (call, received) = collector.span(|span| span.name == "store");
    let request = received.spans.iter().find(|span| span.name == "ShouldRateLimit");
    let request = request.expect("the request's span is in the same message");
    assert_eq!((hex(&call.trace_id), &call.parent_span_id), (TRACE.to_owned(), &request.span_id));
    assert!(call.start_time_unix_nano >= request.start_time_unix_nano);
    assert!(call.end_time_unix_nano <= request.end_time_unix_nano);
    assert_eq!(text(&call.attributes, "db.system.name").as_deref(), Some("redis"));
    let node = redis.address().to_string();
    assert_eq!(text(&call.attributes, "server.address"), Some(node));
    assert_eq!(text(&call.attributes, "error.type"), None);
    assert_eq!(text(&request.attributes, "weir.outcome").as_deref(), Some("allowed"));
    assert!(request.events.is_empty());
    redis.process().freeze();
    ask(&client);
    redis.process().thaw();
    let failed = |name: &str| name == "timeout";
    let (call, received) = collector
        .span(|span| text(&span.attributes, "error.type").is_some_and(|error| failed(&error)));
    assert_eq!(call.name, "store");
    let request = received.spans.iter().find(|span| span.span_id == call.parent_span_id);
    let request = request.expect("the request's span is in the same message");
    let event = request.events.first().expect("an event of the fallback");
    assert_eq!(event.name, "fallback");
    for attributes in [&request.attributes, &event.attributes] {
        assert_eq!(text(attributes, "weir.fallback").as_deref(), Some("local"));
        assert_eq!(text(attributes, "weir.fallback.cause").as_deref(), Some("timeout"));
    }
}
