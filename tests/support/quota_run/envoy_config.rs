//! The configuration of an Envoy that asks an RLQS server for the quota of each tenant.

use std::net::{Ipv4Addr, SocketAddr};

use serde_json::{Value, json};

/// The domain of the rules.
pub(crate) const DOMAIN: &str = "rlqs";

/// A service, and the port on which Envoy asks for its health.
#[derive(Clone, Copy, Debug)]
pub(super) struct Endpoint {
    pub(super) address: SocketAddr,
    pub(super) health: u16,
}

/// What an Envoy does without a valid assignment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fallback {
    /// It denies.
    DenyAll,
    /// It allows, also before the first assignment.
    AllowAll,
    /// It denies before the first assignment, and allows this number per second after the last one.
    Rate(u32),
}

/// The configuration, as JSON. Envoy uses the first endpoint that is healthy, and connects from `address`. It
/// answers all requests itself.
pub(super) fn config(endpoints: &[Endpoint], address: Ipv4Addr, fallback: Fallback) -> String {
    let config = json!({
        "admin": { "address": socket("127.0.0.1", 0) },
        "static_resources": {
            "listeners": [listener(fallback)],
            "clusters": [cluster(endpoints, address)],
        },
    });
    config.to_string()
}

fn listener(fallback: Fallback) -> Value {
    let tenant = json!({
        "name": "tenant",
        "typed_config": {
            "@type": type_url("type.matcher.v3.HttpRequestHeaderMatchInput"),
            "header_name": "x-tenant",
        },
    });
    let blanket = |rule: &str| json!({ "blanket_rule": rule });
    let (unassigned, expired) = match fallback {
        Fallback::DenyAll => ("DENY_ALL", blanket("DENY_ALL")),
        Fallback::AllowAll => ("ALLOW_ALL", blanket("ALLOW_ALL")),
        Fallback::Rate(rate) => {
            let bucket =
                json!({ "max_tokens": rate, "tokens_per_fill": rate, "fill_interval": "1s" });
            ("DENY_ALL", json!({ "token_bucket": bucket }))
        }
    };
    let settings = json!({
        "@type": filter("RateLimitQuotaBucketSettings"),
        "bucket_id_builder": { "bucket_id_builder": {
            "policy": { "string_value": "per-tenant" },
            "tenant": { "custom_value": tenant },
        } },
        "reporting_interval": "5s",
        "no_assignment_behavior": { "fallback_rate_limit": blanket(unassigned) },
        "expired_assignment_behavior": {
            "expired_assignment_behavior_timeout": "60s",
            "fallback_rate_limit": expired,
        },
    });
    let quota = json!({
        "name": "envoy.filters.http.rate_limit_quota",
        "typed_config": {
            "@type": filter("RateLimitQuotaFilterConfig"),
            "domain": DOMAIN,
            "rlqs_server": { "envoy_grpc": { "cluster_name": "rlqs" } },
            "bucket_matchers": { "matcher_list": { "matchers": [{
                "predicate": { "single_predicate": {
                    "input": tenant,
                    "value_match": { "safe_regex": { "google_re2": {}, "regex": ".+" } },
                } },
                "on_match": { "action": { "name": "per-tenant", "typed_config": settings } },
            }] } },
        },
    });
    let router = json!({
        "name": "envoy.filters.http.router",
        "typed_config": { "@type": type_url("extensions.filters.http.router.v3.Router") },
    });
    let route = json!({ "match": { "prefix": "/" }, "direct_response": { "status": 200 } });
    let hosts = json!([{ "name": "all", "domains": ["*"], "routes": [route] }]);
    let manager = "extensions.filters.network.http_connection_manager.v3.HttpConnectionManager";
    let manager = json!({
        "name": "envoy.filters.network.http_connection_manager",
        "typed_config": {
            "@type": type_url(manager),
            "stat_prefix": "ingress",
            "http_filters": [quota, router],
            "route_config": { "virtual_hosts": hosts },
        },
    });
    json!({
        "name": "ingress",
        "address": socket("127.0.0.1", 0),
        "filter_chains": [{ "filters": [manager] }],
    })
}

fn cluster(endpoints: &[Endpoint], address: Ipv4Addr) -> Value {
    let by_priority = endpoints.iter().enumerate().map(|(priority, endpoint)| {
        let address = socket(&endpoint.address.ip().to_string(), endpoint.address.port());
        let health = json!({ "port_value": endpoint.health });
        let endpoint = json!({ "address": address, "health_check_config": health });
        json!({ "priority": priority, "lb_endpoints": [{ "endpoint": endpoint }] })
    });
    let by_priority: Vec<Value> = by_priority.collect();
    let http2 = json!({
        "@type": type_url("extensions.upstreams.http.v3.HttpProtocolOptions"),
        "explicit_http_config": { "http2_protocol_options": {} },
    });
    let mut cluster = json!({
        "name": "rlqs",
        "type": "STATIC",
        "connect_timeout": "1s",
        "upstream_bind_config": { "source_address": { "address": address, "port_value": 0 } },
        "typed_extension_protocol_options": {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": http2,
        },
        "load_assignment": { "cluster_name": "rlqs", "endpoints": by_priority },
    });
    if endpoints.len() > 1 {
        cluster["health_checks"] = json!([{
            "timeout": "0.5s",
            "interval": "1s",
            "no_traffic_interval": "1s",
            "unhealthy_threshold": 1,
            "healthy_threshold": 1,
            "grpc_health_check": {},
        }]);
    }
    cluster
}

fn socket(address: &str, port: u16) -> Value {
    json!({ "socket_address": { "address": address, "port_value": port } })
}

fn filter(message: &str) -> String {
    type_url(&format!("extensions.filters.http.rate_limit_quota.v3.{message}"))
}

fn type_url(message: &str) -> String {
    format!("type.googleapis.com/envoy.{message}")
}
