//! The service as Envoy Gateway deploys it: its environment, its probes, and its user, who may write
//! nothing. Addresses and paths are those of the test, and there is no Redis.

use std::net::SocketAddr;

use super::one_limit;
use crate::support::ads::{Ads, NODE};
use crate::support::certificates::{Certificates, trusting};
use crate::support::http::{get, post};
use crate::support::rls::{Client, descriptor, request};
use crate::support::wait::until;
use crate::support::weir::{Setup, Weir};

/// The user and the group of the container.
const USER: u32 = 65534;

/// A request of `/json` for the rule of [`one_limit`].
const CALL: &str = r#"{"domain":"a","descriptors":[{"entries":[{"key":"k","value":"x"}]}]}"#;

/// The deployment: the binary as `ratelimit`, without arguments. One secret has the certificate of the
/// service for both, the calls of Envoy and the server of rules.
pub(super) fn deployment(ads: &Ads, certificates: &Certificates) -> Setup {
    let path = |name: &str| certificates.path(name).display().to_string();
    let url = format!("localhost:{}", ads.address.port());
    let env = [
        ("RUNTIME_ROOT", "/data".to_owned()),
        ("RUNTIME_SUBDIRECTORY", "ratelimit".to_owned()),
        ("RUNTIME_IGNOREDOTFILES", "true".to_owned()),
        ("RUNTIME_WATCH_ROOT", "false".to_owned()),
        ("LOG_LEVEL", "info".to_owned()),
        ("USE_STATSD", "false".to_owned()),
        ("CONFIG_TYPE", "GRPC_XDS_SOTW".to_owned()),
        ("CONFIG_GRPC_XDS_SERVER_URL", url),
        ("CONFIG_GRPC_XDS_NODE_ID", NODE.to_owned()),
        ("GRPC_SERVER_USE_TLS", "true".to_owned()),
        ("GRPC_SERVER_TLS_CERT", path("client.crt")),
        ("GRPC_SERVER_TLS_KEY", path("client.key")),
        ("GRPC_SERVER_TLS_CA_CERT", path("ca.crt")),
        ("CONFIG_GRPC_XDS_SERVER_USE_TLS", "true".to_owned()),
        ("CONFIG_GRPC_XDS_CLIENT_TLS_CERT", path("client.crt")),
        ("CONFIG_GRPC_XDS_CLIENT_TLS_KEY", path("client.key")),
        ("CONFIG_GRPC_XDS_SERVER_TLS_CACERT", path("ca.crt")),
        ("FORCE_START_WITHOUT_INITIAL_CONFIG", "true".to_owned()),
        ("REDIS_SOCKET_TYPE", "tcp".to_owned()),
        // No process listens on port 1 of loopback.
        ("REDIS_URL", "localhost:1".to_owned()),
        ("USE_PROMETHEUS", "true".to_owned()),
        ("PROMETHEUS_ADDR", "127.0.0.1:0".to_owned()),
        ("PROMETHEUS_MAPPER_YAML", "/etc/statsd-exporter/conf.yaml".to_owned()),
    ];
    let setup = env.iter().fold(Weir::image(), |setup, (name, value)| setup.env(name, value));
    setup.of_user(USER)
}

#[test]
fn the_environment_of_envoy_gateway_works() {
    let certificates = Certificates::new();
    let ads = Ads::with_tls(&certificates);
    let mut weir = deployment(&ads, &certificates).start();
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
        let setup = deployment(&ads, &certificates);
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
/// would end the process ([`Weir::image`]).
#[test]
fn the_deployment_writes_no_file() {
    let certificates = Certificates::of_envoy_gateway();
    let ads = Ads::with_tls(&certificates);
    let mut weir = deployment(&ads, &certificates).start();
    ads.set("1", one_limit(5));
    assert!(ads.answer().error_detail.is_none());
    assert_eq!(post(weir.http, "/json", CALL).status, 200);
    assert!(weir.process().is_alive(), "it writes to a file");
}
