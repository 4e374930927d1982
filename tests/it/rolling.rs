//! A rolling restart: three instances behind a real Envoy restart one after the other, and no call
//! fails.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;

use crate::support::envoy::upstream::Upstream;
use crate::support::envoy::{self, Envoy, NEWEST};
use crate::support::http::get;
use crate::support::weir::{Setup, Weir};

const RULES: &str = "
domain: demo
descriptors:
  - key: user
    rate_limit: { unit: hour, requests_per_unit: 1000000 }
";

const INSTANCES: usize = 3;

fn setup() -> Setup {
    Weir::setup().rules("demo.yaml", RULES).env("WEIR__DRAIN__DELAY", "2s")
}

/// The number of requests of an instance.
fn answered(weir: &Weir) -> u64 {
    let page = get(weir.admin, "/metrics").body;
    let name = r#"weir_requests_total{code="ok"} "#;
    let count = page.lines().find_map(|line| line.strip_prefix(name));
    count.expect("the page has the metric").parse().expect("a number")
}

/// The basic example with health checks and all of `instances`. Envoy denies requests when no
/// instance responds.
fn config(instances: &[Weir]) -> String {
    let first = format!("port_value: {} }} }} }} }}", instances[0].grpc.port());
    let others = instances[1..].iter().map(|weir| {
        let port = weir.grpc.port();
        let address = format!("{{ address: 127.0.0.1, port_value: {port} }}");
        format!(", {{ endpoint: {{ address: {{ socket_address: {address} }} }} }}")
    });
    let checks = "    health_checks:
    - { timeout: 1s, interval: 0.1s, unhealthy_threshold: 1, healthy_threshold: 1,
        no_traffic_interval: 0.1s, grpc_health_check: { service_name: ratelimit } }
    # gRPC needs HTTP/2.";
    let example = include_str!("../../examples/envoy/basic.yaml")
        .replace("    # gRPC needs HTTP/2.", checks)
        .replace("failure_mode_deny: false", "failure_mode_deny: true")
        .replace("timeout: 0.1s", "timeout: 5s");
    let tuned = envoy::tuned(&example, instances[0].grpc, ([127, 0, 0, 1], 1).into());
    let config = tuned.replace(&first, &(first.clone() + &others.collect::<String>()));
    assert_eq!(config.matches("address: 127.0.0.1, port_value: ").count(), INSTANCES + 4);
    config
}

#[test]
fn a_rolling_restart_fails_no_call() {
    let mut instances: Vec<Weir> = (0..INSTANCES).map(|_| setup().start()).collect();
    let upstream = Upstream::start();
    let config = config(&instances)
        .replace("port_value: 1 }", &format!("port_value: {} }}", upstream.address.port()));
    let envoy = Envoy::start(NEWEST, &config);
    let (over, calls) = (AtomicBool::new(false), AtomicU32::new(0));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    let answer = envoy.get("/", &[("x-user", "anna")]);
                    assert_eq!(answer.status, 200, "{answer:?}");
                    assert!(answer.header("x-ratelimit-limit").is_some(), "weir decided");
                    calls.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let is_used = |weir: &Weir| {
            let before = answered(weir);
            while answered(weir) == before {
                thread::yield_now();
            }
        };
        instances.iter().for_each(is_used);
        for index in 0..INSTANCES {
            let mut old = instances.remove(index);
            old.process().terminate();
            assert_eq!(old.process().wait_for_exit().code(), Some(0));
            let address = old.grpc.to_string();
            let new = setup().without_flag("--grpc-listen").env("WEIR__GRPC__LISTEN", &address);
            let new = new.start();
            is_used(&new);
            instances.insert(index, new);
        }
        over.store(true, Ordering::Relaxed);
    });
    assert!(calls.load(Ordering::Relaxed) > 100, "{calls:?} calls are no load");
}
