//! A real Envoy that balances calls over instances as in production: over TLS, and only to healthy
//! ones. It retries nothing.

use std::net::SocketAddr;
use std::path::Path;

use serde_json::Value;

use crate::support::envoy::{Envoy, NEWEST};
use crate::support::http::get;
use crate::support::weir::Weir;

/// Calls per connection. It is small, so that new connections are opened all the time.
const CALLS_PER_CONNECTION: u32 = 5_000;

/// The balancer's statistics of one instance.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Share {
    /// Calls sent.
    pub(crate) calls: u64,
    /// Calls that failed.
    pub(crate) errors: u64,
    /// Calls without a response yet.
    pub(crate) waiting: u64,
    /// Whether the balancer sends more calls.
    pub(crate) healthy: bool,
}

/// A running balancer.
pub(crate) struct Balancer(Envoy);

impl Balancer {
    /// Starts in front of `instances`, whose certificates `authority` issued for localhost.
    pub(crate) fn before(instances: &[Weir], authority: &Path) -> Balancer {
        Balancer(Envoy::start(NEWEST, &config(instances, authority)))
    }

    /// The balancer's address, without TLS.
    pub(crate) fn address(&self) -> SocketAddr {
        self.0.ingress
    }

    /// The statistics of `instance`.
    pub(crate) fn share(&self, instance: &Weir) -> Share {
        let clusters = get(self.0.admin, "/clusters?format=json").json();
        let hosts = clusters["cluster_statuses"][0]["host_statuses"].as_array().expect("hosts");
        let port = instance.grpc.port();
        let is_it = |host: &&Value| host["address"]["socket_address"]["port_value"] == port;
        let host = hosts.iter().find(is_it).expect("it lists the instance");
        let number = |name: &str| {
            let all = host["stats"].as_array().expect("statistics");
            let stat = all.iter().find(|stat| stat["name"] == name).expect("the statistic exists");
            // Envoy omits zeros.
            stat["value"].as_str().unwrap_or("0").parse().expect("a number")
        };
        let health = &host["health_status"];
        Share {
            calls: number("rq_total"),
            errors: number("rq_error"),
            waiting: number("rq_active"),
            healthy: health["failed_active_health_check"] != true,
        }
    }
}

fn config(instances: &[Weir], authority: &Path) -> String {
    let ports = instances.iter().map(|weir| weir.grpc.port());
    let endpoints: String = ports
        .map(|port| {
            format!(
                "\n        - endpoint: {{ address: {{ socket_address: \
                 {{ address: 127.0.0.1, port_value: {port} }} }} }}"
            )
        })
        .collect();
    CONFIG
        .replace("TYPE", "type.googleapis.com/envoy.extensions")
        .replace("ENDPOINTS", &endpoints)
        .replace("AUTHORITY", &authority.display().to_string())
        .replace("CALLS_PER_CONNECTION", &CALLS_PER_CONNECTION.to_string())
}

const CONFIG: &str = r#"
admin: { address: { socket_address: { address: 127.0.0.1, port_value: 0 } } }
static_resources:
  listeners:
  - name: ingress
    address: { socket_address: { address: 127.0.0.1, port_value: 0 } }
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": TYPE.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: ingress
          http_filters:
          - name: envoy.filters.http.router
            typed_config: { "@type": TYPE.filters.http.router.v3.Router }
          route_config:
            virtual_hosts:
            - name: all
              domains: ["*"]
              routes: [ { match: { prefix: "/" }, route: { cluster: weir, timeout: 30s } } ]
  clusters:
  - name: weir
    type: STATIC
    connect_timeout: 10s
    circuit_breakers:
      thresholds:
      - { max_connections: 100000, max_pending_requests: 100000, max_requests: 100000 }
    # Without a healthy instance a call fails, rather than going to any.
    common_lb_config: { healthy_panic_threshold: { value: 0 } }
    health_checks:
    - { timeout: 10s, interval: 0.1s, unhealthy_threshold: 1, healthy_threshold: 1,
        no_traffic_interval: 0.1s, grpc_health_check: { service_name: ratelimit } }
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": TYPE.upstreams.http.v3.HttpProtocolOptions
        common_http_protocol_options: { max_requests_per_connection: CALLS_PER_CONNECTION }
        explicit_http_config: { http2_protocol_options: {} }
    transport_socket:
      name: envoy.transport_sockets.tls
      typed_config:
        "@type": TYPE.transport_sockets.tls.v3.UpstreamTlsContext
        sni: localhost
        common_tls_context: { validation_context: { trusted_ca: { filename: AUTHORITY } } }
    load_assignment:
      cluster_name: weir
      endpoints:
      - lb_endpoints:ENDPOINTS
"#;
