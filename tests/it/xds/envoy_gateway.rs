//! The service as Envoy Gateway deploys it, without a Redis: its probes, its metrics, and no written file.

use std::net::SocketAddr;

use super::one_limit;
use crate::support::ads::Ads;
use crate::support::certificates::{Certificates, trusting};
use crate::support::envoy_gateway::deployment;
use crate::support::http::{get, post};
use crate::support::rls::{Client, descriptor, request};
use crate::support::wait::until;

/// A request of `/json` for the rule of [`one_limit`].
const CALL: &str = r#"{"domain":"a","descriptors":[{"entries":[{"key":"k","value":"x"}]}]}"#;

/// No process listens on port 1 of loopback.
const NO_REDIS: &str = "localhost:1";

#[test]
fn the_environment_of_envoy_gateway_works() {
    let certificates = Certificates::new();
    let ads = Ads::with_tls(&certificates);
    let mut weir = deployment(&ads, &certificates, NO_REDIS).start();
    assert_eq!(get(weir.http, "/healthcheck").status, 200, "before the first policy exists");
    assert_eq!(get(weir.http, "/readyz").status, 200, "before the first policy exists");
    ads.set("1", one_limit(5));
    assert!(ads.answer().error_detail.is_none());
    assert_eq!(weir.metric("weir_rules", &[]), 1);
    // The name in the certificate of the service.
    let tls = trusting(&certificates).domain_name("weir");
    let client = Client::over_tls(weir.grpc, tls).expect("a connection");
    let calls = || client.try_check(request("a", vec![descriptor(&[("k", "x")])])).is_ok();
    until("calls are answered", calls);
    let metrics: SocketAddr = weir.process().wait_for("where its metrics are", |line| {
        let line: serde_json::Value = serde_json::from_str(line).ok()?;
        line["metrics"].as_str()?.parse().ok()
    });
    let page = get(metrics, "/metrics").body;
    for name in [
        "ratelimit_service_rate_limit_total_hits{domain=\"a\",key1=\"k\"",
        "ratelimit_service_rate_limit_within_limit{",
        "ratelimit_service_rate_limit_near_limit{",
        "ratelimit_service_rate_limit_over_limit{",
        "ratelimit_service_rate_limit_shadow_mode{",
        "ratelimit_service_total_requests{grpc_method=",
        "ratelimit_service_response_time_seconds_bucket{",
        "ratelimit_service_should_rate_limit_error{err_type=",
        "ratelimit_service_config_load_success ",
        "ratelimit_service_config_load_error ",
    ] {
        assert!(page.contains(name), "{name} is missing in:\n{page}");
    }
}

/// Envoy Gateway probes `/healthcheck` for liveness too. So a pod must not fail it because Redis is away,
/// even where readiness requires Redis.
#[test]
fn liveness_does_not_depend_on_redis() {
    let certificates = Certificates::new();
    let ads = Ads::with_tls(&certificates);
    ads.set("1", one_limit(5));
    for (required, ready) in [("false", 200), ("true", 503)] {
        let setup = deployment(&ads, &certificates, NO_REDIS);
        let weir = setup.env("WEIR__READYZ__REQUIRE_STORE", required).start();
        until("the fallback decides", || {
            assert_eq!(post(weir.http, "/json", CALL).status, 200);
            weir.metric("weir_fallback_total", &[]) > 0
        });
        assert_eq!(get(weir.http, "/readyz").status, ready, "require_store: {required}");
        assert_eq!(get(weir.http, "/healthcheck").status, 200, "require_store: {required}");
    }
}

/// The root file system of the pod is read-only, and no other volume can be written. A write to a file
/// would end the process ([`deployment`]).
#[test]
fn the_deployment_writes_no_file() {
    let certificates = Certificates::of_envoy_gateway();
    let ads = Ads::with_tls(&certificates);
    let mut weir = deployment(&ads, &certificates, NO_REDIS).start();
    ads.set("1", one_limit(5));
    assert!(ads.answer().error_detail.is_none());
    assert_eq!(post(weir.http, "/json", CALL).status, 200);
    assert!(weir.process().is_alive(), "it writes to a file");
}
