//! Traces of calls to a real Redis.

use opentelemetry_proto::tonic::trace::v1::Span;

use crate::support::collector::{Collector, hex, text};
use crate::support::on_redis::{over, ready};
use crate::support::redis::server::Server;
use crate::support::rls::{Client, descriptor, request};
use crate::support::schedule::shared;

const RULES: &str = "
domain: d
descriptors:
  - key: user
    rate_limit: { requests: 100, window: 1000d, on_error: local }
";

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

fn check(client: &Client) {
    let traceparent = format!("00-{TRACE}-00f067aa0ba902b7-01");
    client.check_traced(&traceparent, request("d", vec![descriptor(&[("user", "ann")])]));
}

/// A Redis call is a child span of its request and names its node and its error.
#[test]
fn a_redis_call_is_a_child_span() {
    let _permit = shared();
    let redis = Server::listening(&[]);
    let collector = Collector::grpc();
    let mut weir = over(&format!("redis://{}", redis.address()), RULES)
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", &format!("http://{}", collector.address))
        .env("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
        // Long enough for a busy machine. One call waits for it.
        .store_timeout("2s")
        .start();
    ready(&weir);
    let client = weir.client();
    check(&client);
    redis.process().freeze();
    check(&client);
    redis.process().thaw();
    drop(client);
    // On termination, pending spans are sent before the process ends.
    weir.process().terminate();
    assert!(weir.process().wait_for_exit().success());
    let spans: Vec<Span> = collector.rest().into_iter().flat_map(|all| all.spans).collect();
    let node = redis.address().to_string();
    let (calls, requests): (Vec<&Span>, Vec<&Span>) =
        spans.iter().partition(|span| span.name == "store");
    assert_eq!((calls.len(), requests.len()), (2, 2), "{spans:?}");
    for call in &calls {
        let request = requests.iter().find(|request| request.span_id == call.parent_span_id);
        let request = request.expect("a call is below its request");
        assert_eq!([hex(&call.trace_id), hex(&request.trace_id)], [TRACE, TRACE]);
        assert!(call.start_time_unix_nano >= request.start_time_unix_nano);
        assert!(call.end_time_unix_nano <= request.end_time_unix_nano);
        assert_eq!(text(&call.attributes, "db.system.name").as_deref(), Some("redis"));
        assert_eq!(text(&call.attributes, "server.address").as_ref(), Some(&node));
        let outcome = text(&request.attributes, "weir.outcome");
        match text(&call.attributes, "error.type").as_deref() {
            None => {
                assert_eq!(outcome.as_deref(), Some("within"));
                assert!(request.events.is_empty());
            }
            Some(error) => {
                assert_eq!((error, outcome.as_deref()), ("timeout", Some("fallback")));
                let event = request.events.first().expect("an event of the fallback");
                assert_eq!(event.name, "fallback");
                for attributes in [&request.attributes, &event.attributes] {
                    assert_eq!(text(attributes, "weir.fallback").as_deref(), Some("local"));
                    let cause = text(attributes, "weir.fallback.cause");
                    assert_eq!(cause.as_deref(), Some("timeout"));
                }
            }
        }
    }
    let failed = requests.iter().filter(|request| !request.events.is_empty()).count();
    assert_eq!(failed, 1, "one call was answered, one was not");
}
