//! The metrics page of a weir with Redis, every mode, TLS, detailed series and the names of
//! envoyproxy/ratelimit: its format and its names.

use crate::support::certificates::Certificates;
use crate::support::http::get;
use crate::support::metrics_page::Page;
use crate::support::on_redis::{over, ready};
use crate::support::redis::server::Server;
use crate::support::rls::{Client, costing, descriptor, request};
use crate::support::schedule::shared;
use crate::support::wait::until;
use tonic::transport::{Certificate, ClientTlsConfig};

const RULES: &str = "
domain: d
descriptors:
  - key: exact
    detailed_metric: true
    rate_limit: { unit: hour, requests_per_unit: 5 }
  - key: leased
    rate_limit: { unit: hour, requests_per_unit: 1000, mode: leased }
  - key: synced
    rate_limit: { unit: hour, requests_per_unit: 5, mode: synced, sync_interval: 50ms }
";

/// The names of envoyproxy/ratelimit are fixed. All others follow Prometheus' conventions.
#[test]
fn metrics_on_redis_keep_the_format_and_names() {
    let _permit = shared();
    let (mut redis, certificates) = (Server::listening(&[]), Certificates::new());
    let path = |name: &str| certificates.path(name).display().to_string();
    let weir = over(&format!("redis://{}", redis.address()), RULES)
        .env("WEIR__METRICS__TOP", "true")
        .env("WEIR__METRICS__ENVOY_RATELIMIT_NAMES", "true")
        .env("WEIR__GRPC__TLS_CERT", &path("server.crt"))
        .env("WEIR__GRPC__TLS_KEY", &path("server.key"))
        .start();
    ready(&weir);
    let ca = std::fs::read(certificates.path("ca.crt")).expect("a certificate");
    let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(ca));
    let client = Client::over_tls(weir.grpc, tls.domain_name("localhost")).expect("it listens");
    let page = || get(weir.admin, "/metrics").body;
    let check = |hits| {
        let about = |key| costing(hits, descriptor(&[(key, "x")]));
        client.check(request("d", ["exact", "leased", "synced"].map(about).into()));
    };
    for hits in [1, 6, 6] {
        check(hits);
    }
    redis.kill();
    until("a fallback is counted", || {
        check(1);
        page().contains("weir_fallback_total{")
    });
    let page = Page::read(&page());
    page.check();
    page.check_names_of_weir();
    for name in [
        "weir_redis_calls_total",
        "weir_synced_exchanges_total",
        "weir_detailed_decisions_total",
        "weir_grpc_tls_handshakes_total",
        "ratelimit_service_total_requests",
    ] {
        assert!(page.names().contains(name), "the page has no {name}");
    }
}
