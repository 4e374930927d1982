//! The configuration of the measured Envoy: a listener without a rate limit, and one for each rate
//! limit service. One process has all of them, so that the service is their only difference.

use std::net::SocketAddr;

use serde_json::{Value, json};

/// The header whose value is the key of the counter.
pub(crate) const KEY_HEADER: &str = "x-user";

/// Above the requests of any load. Envoy would answer 503 above its default, 1024.
const MOST: u32 = 100_000;

/// How long Envoy waits for a connection or an answer. A machine that stands still for a second must show
/// as latency, and not as errors that end the measurement.
const TIMEOUT: &str = "10s";

/// The configuration, as JSON. `services` are the addresses of the rate limit services.
pub(crate) fn config(upstream: SocketAddr, services: &[SocketAddr]) -> String {
    let mut listeners = vec![listener("ingress", None)];
    let mut clusters = vec![cluster("upstream", upstream, json!({ "http_protocol_options": {} }))];
    for (index, service) in services.iter().enumerate() {
        let name = listener_name(index);
        listeners.push(listener(&name, Some(limit(&name))));
        clusters.push(cluster(&name, *service, json!({ "http2_protocol_options": {} })));
    }
    let config = json!({
        "admin": { "address": socket("127.0.0.1", 0) },
        "static_resources": { "listeners": listeners, "clusters": clusters },
    });
    config.to_string()
}

/// The name of the listener with service `index`, and of the service's cluster.
pub(crate) fn listener_name(index: usize) -> String {
    format!("limited-{index}")
}

fn listener(name: &str, limit: Option<Value>) -> Value {
    let router = json!({
        "name": "envoy.filters.http.router",
        "typed_config": { "@type": type_url("filters.http.router.v3.Router") },
    });
    let filters: Vec<Value> = limit.into_iter().chain([router]).collect();
    // Every listener has the actions; only the filter evaluates them.
    let actions = json!([
        { "generic_key": { "descriptor_key": "tenant", "descriptor_value": "acme" } },
        { "request_headers": { "header_name": KEY_HEADER, "descriptor_key": "user" } },
    ]);
    let route = json!({
        "match": { "prefix": "/" },
        "route": { "cluster": "upstream", "rate_limits": [{ "actions": actions }] },
    });
    let hosts = json!([{ "name": "all", "domains": ["*"], "routes": [route] }]);
    let manager = "filters.network.http_connection_manager.v3.HttpConnectionManager";
    let manager = json!({
        "name": "envoy.filters.network.http_connection_manager",
        "typed_config": {
            "@type": type_url(manager),
            "stat_prefix": name,
            "http_filters": filters,
            "route_config": { "virtual_hosts": hosts },
        },
    });
    json!({
        "name": name,
        "address": socket("127.0.0.1", 0),
        "filter_chains": [{ "filters": [manager] }],
    })
}

/// The filter that calls the service behind `cluster`.
fn limit(cluster: &str) -> Value {
    json!({
        "name": "envoy.filters.http.ratelimit",
        "typed_config": {
            "@type": type_url("filters.http.ratelimit.v3.RateLimit"),
            "domain": "bench",
            // With the default, 20ms, Envoy would hide the tails of a service.
            "timeout": TIMEOUT,
            // A call without an answer is an error of the load.
            "failure_mode_deny": true,
            "rate_limit_service": {
                "transport_api_version": "V3",
                "grpc_service": { "envoy_grpc": { "cluster_name": cluster } },
            },
        },
    })
}

/// A cluster of one address, with the options of its protocol.
fn cluster(name: &str, address: SocketAddr, protocol: Value) -> Value {
    let address = socket(&address.ip().to_string(), address.port());
    let endpoint = json!({ "endpoint": { "address": address } });
    let most = json!({
        "max_connections": MOST,
        "max_pending_requests": MOST,
        "max_requests": MOST,
    });
    json!({
        "name": name,
        "type": "STATIC",
        "connect_timeout": TIMEOUT,
        "circuit_breakers": { "thresholds": [most] },
        "typed_extension_protocol_options": {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                "@type": type_url("upstreams.http.v3.HttpProtocolOptions"),
                "explicit_http_config": protocol,
            },
        },
        "load_assignment": {
            "cluster_name": name,
            "endpoints": [{ "lb_endpoints": [endpoint] }],
        },
    })
}

fn socket(ip: &str, port: u16) -> Value {
    json!({ "socket_address": { "address": ip, "port_value": port } })
}

/// The URL of a type of Envoy's extensions.
fn type_url(name: &str) -> String {
    format!("type.googleapis.com/envoy.extensions.{name}")
}
