//! The environment that Envoy Gateway sets, with addresses of loopback, and no Redis.

use super::one_limit;
use crate::support::ads::{Ads, NODE};
use crate::support::certificates::{Certificates, trusting};
use crate::support::http::get;
use crate::support::rls::{Client, descriptor, request};
use crate::support::wait::until;
use crate::support::weir::Weir;

#[test]
fn the_environment_of_envoy_gateway_works() {
    let certificates = Certificates::new();
    let ads = Ads::with_tls(&certificates);
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
        ("GRPC_SERVER_TLS_CERT", path("server.crt")),
        ("GRPC_SERVER_TLS_KEY", path("server.key")),
        ("GRPC_SERVER_TLS_CA_CERT", path("ca.crt")),
        ("CONFIG_GRPC_XDS_SERVER_USE_TLS", "true".to_owned()),
        ("CONFIG_GRPC_XDS_CLIENT_TLS_CERT", path("client.crt")),
        ("CONFIG_GRPC_XDS_CLIENT_TLS_KEY", path("client.key")),
        ("CONFIG_GRPC_XDS_SERVER_TLS_CACERT", path("ca.crt")),
        ("FORCE_START_WITHOUT_INITIAL_CONFIG", "true".to_owned()),
        ("REDIS_SOCKET_TYPE", "tcp".to_owned()),
        ("REDIS_URL", "localhost:1".to_owned()),
        ("USE_PROMETHEUS", "true".to_owned()),
        ("PROMETHEUS_ADDR", "127.0.0.1:0".to_owned()),
        ("PROMETHEUS_MAPPER_YAML", "/etc/statsd-exporter/conf.yaml".to_owned()),
    ];
    let setup = Weir::setup().rules_of_settings();
    let setup = env.iter().fold(setup, |setup, (name, value)| setup.env(name, value));
    let weir = setup.start();
    assert_eq!(get(weir.http, "/readyz").status, 200, "before the first policy exists");
    ads.set("1", one_limit(5));
    assert!(ads.answer().error_detail.is_none());
    assert_eq!(weir.metric("weir_rules", &[]), 1);
    let client = Client::over_tls(weir.grpc, trusting(&certificates)).expect("a connection");
    let calls = || client.try_check(request("a", vec![descriptor(&[("k", "x")])])).is_ok();
    until("calls are answered", calls);
    // All three probes of Envoy Gateway ask for this path. Redis must not restart the pod.
    assert_eq!(get(weir.http, "/healthcheck").status, 200);
    let page = get(weir.admin, "/metrics").body;
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
