//! The descriptors that Envoy Gateway makes of HTTPRoutes with limits, in a real Envoy: a table of
//! requests and responses.
//!
//! The service is the deployment of Envoy Gateway with its certificates, except that it counts in
//! memory. Its rules come from a scripted server.

use envoy_types::pb::google::protobuf::Any;

use super::HOUR;
use crate::support::ads::{Ads, RateLimitDescriptor, limited, node, rules};
use crate::support::certificates::Certificates;
use crate::support::envoy::upstream::Upstream;
use crate::support::envoy::{self, Envoy, NEWEST, OF_GATEWAY};
use crate::support::envoy_gateway::deployment;
use crate::support::http::{self, get, post};
use crate::support::wait::until;
use crate::support::weir::{Setup, Weir};
use crate::support::window_edge::within_an_hour;
use crate::support::yaml;

/// One host per case.
const CONFIG: &str = include_str!("../data/envoy_gateway.yaml");

/// Units of time.
const MINUTE: i32 = 2;
const DAY: i32 = 4;
const MONTH: i32 = 5;

/// Several equal requests, one after the other.
struct Case {
    what: &'static str,
    /// The host without `.test`, the method and the path.
    call: &'static str,
    headers: &'static [(&'static str, &'static str)],
    statuses: &'static [u16],
    /// `x-ratelimit-limit` of the last response: the limit with the fewest remaining hits, then all.
    /// Empty without this header. `None` is not compared, because two filters add it.
    limit: Option<&'static str>,
}

const fn case(
    what: &'static str,
    call: &'static str,
    headers: &'static [(&'static str, &'static str)],
    statuses: &'static [u16],
    limit: &'static str,
) -> Case {
    Case { what, call, headers, statuses, limit: Some(limit) }
}

const fn shared(
    what: &'static str,
    call: &'static str,
    headers: &'static [(&'static str, &'static str)],
    statuses: &'static [u16],
) -> Case {
    Case { what, call, headers, statuses, limit: None }
}

const ACME: &[(&str, &str)] = &[("x-org", "acme"), ("x-user", "ann"), ("x-internal", "yes")];
const ANN: &[(&str, &str)] = &[("x-user", "ann")];
const BOB: &[(&str, &str)] = &[("x-user", "bob")];

#[rustfmt::skip]
const CASES: &[Case] = &[
    case("no selector", "plain GET /", &[], &[200, 200, 200, 429], "3, 3;w=3600"),
    case("Exact and Distinct", "hdr GET /", ACME, &[200, 200, 200, 200, 429], "4, 4;w=3600"),
    case("another value has its own counter", "hdr GET /",
        &[("x-org", "acme"), ("x-user", "bob"), ("x-internal", "yes")], &[200], "4, 4;w=3600"),
    case("another value of Exact", "hdr GET /",
        &[("x-org", "other"), ("x-user", "ann"), ("x-internal", "yes")], &[200; 6], ""),
    case("without Distinct", "hdr GET /",
        &[("x-org", "acme"), ("x-internal", "yes")], &[200; 6], ""),
    case("inverted", "hdr GET /", &[], &[200, 200, 429], "2, 2;w=86400"),
    case("a regular expression", "hdr GET /",
        &[("x-agent", "bot-1"), ("x-internal", "yes")], &[200, 429], "1, 1;w=2592000"),
    case("another text", "hdr GET /",
        &[("x-agent", "browser"), ("x-internal", "yes")], &[200; 3], ""),
    case("three networks", "cidr GET /", &[], &[200, 200, 200, 429],
        "3, 3;w=3600, 5;w=3600, 100;w=60"),
    case("another address of the network, with its own counter", "cidr GET /",
        &[("x-forwarded-for", "127.1.0.1")], &[200], "3, 3;w=3600, 100;w=60"),
    case("an address outside", "cidr GET /", &[("x-forwarded-for", "192.0.2.1")], &[200],
        "100, 100;w=60"),
    case("an address of the inverted network", "cidr GET /",
        &[("x-forwarded-for", "10.1.2.3")], &[200; 6], ""),
    case("a method and a path", "methods GET /orders", &[], &[200, 200], "3, 3;w=3600"),
    case("the other method, with the same counter", "methods POST /orders/1", &[], &[200, 429],
        "3, 3;w=3600"),
    case("a third method", "methods PUT /orders", &[], &[200], ""),
    case("another path", "methods GET /other", &[], &[200], ""),
    case("a query parameter", "query GET /?user=ann", &[], &[200, 200, 429], "2, 2;w=3600"),
    case("another value has its own counter", "query GET /?user=bob&x=y", &[], &[200],
        "2, 2;w=3600"),
    case("without the parameter", "query GET /?x=y", &[], &[200; 4], ""),
    case("two parameters", "query-match GET /?plan=free", &[], &[200, 200, 429],
        "2, 2;w=3600, 9;w=3600"),
    case("the inverted parameter", "query-match GET /?plan=free&internal=yes", &[], &[429],
        "2, 2;w=3600"),
    case("another value of Exact", "query-match GET /?plan=paid", &[], &[200], "9, 9;w=3600"),
    case("a regular expression of a parameter", "query-match GET /?internal=yes&version=v2", &[],
        &[200, 429], "1, 1;w=3600"),
    case("another text", "query-match GET /?internal=yes&version=beta", &[], &[200; 2], ""),
    case("shadow mode", "shadow GET /", &[], &[200, 200, 200], "1, 1;w=3600"),
    shared("a shared rule", "sh-a GET /", ANN, &[200, 200]),
    shared("the other route, with the same counter", "sh-b GET /", ANN, &[200, 429]),
    shared("another value has its own counter", "sh-b GET /", BOB, &[200, 200]),
    shared("the limit of the route", "sh-b GET /", &[("x-user", "cid")], &[200, 429]),
    shared("the other route has its own limit", "sh-a GET /", &[("x-user", "dan")],
        &[200, 200, 200, 429]),
];

/// A running deployment behind an Envoy.
struct Gateway {
    ads: Ads,
    weir: Weir,
    envoy: Envoy,
    _upstream: Upstream,
    _certificates: Certificates,
}

impl Gateway {
    /// Starts all of it with these rules.
    fn start(resources: Vec<Any>) -> Gateway {
        Gateway::of_envoy(NEWEST, resources)
    }

    /// The same with another version of Envoy.
    fn of_envoy(version: &str, resources: Vec<Any>) -> Gateway {
        Gateway::configured(version, resources, |setup, _| setup)
    }

    /// The same with more variables.
    fn configured(
        version: &str,
        resources: Vec<Any>,
        configure: impl FnOnce(Setup, &Certificates) -> Setup,
    ) -> Gateway {
        let certificates = Certificates::of_envoy_gateway();
        let ads = Ads::with_tls(&certificates);
        // The memory store ignores the address.
        let setup = configure(deployment(&ads, &certificates, "none:6379"), &certificates);
        let weir = setup.env("WEIR__STORE__KIND", "memory").start();
        let upstream = Upstream::start();
        let path = |name: &str| certificates.path(name).display().to_string();
        let config = envoy::tuned(CONFIG, weir.grpc, upstream.address)
            .replace("/certs/ca.crt", &path("ca.crt"))
            .replace("/certs/tls.crt", &path("client.crt"))
            .replace("/certs/tls.key", &path("client.key"));
        let envoy = Envoy::start(version, &config);
        let gateway =
            Gateway { ads, weir, envoy, _upstream: upstream, _certificates: certificates };
        gateway.send("1", resources);
        gateway
    }

    /// Sends rules, which must be accepted as a whole.
    fn send(&self, version: &str, resources: Vec<Any>) {
        self.ads.set(version, resources);
        let answer = self.ads.answer();
        assert!(answer.error_detail.is_none(), "{answer:?}");
        assert_eq!(answer.version_info, version);
    }

    fn check(&self, case: &Case) {
        let Case { what, call, headers, statuses, limit } = case;
        let mut words = call.split(' ');
        let mut word = || words.next().expect("a host, a method and a path");
        let (host, method, path) = (format!("{}.test", word()), word(), word());
        let mut all = vec![("host", host.as_str())];
        all.extend(*headers);
        let mut shown = None;
        for (number, status) in statuses.iter().enumerate() {
            let response = http::send(self.envoy.ingress, method, path, &all, b"");
            assert_eq!(response.status, *status, "{what}, request {number}: {response:?}");
            shown = response.header("x-ratelimit-limit");
        }
        if let Some(limit) = limit {
            assert_eq!(shown.as_deref().unwrap_or_default(), *limit, "{what}");
        }
    }
}

/// A route of the configuration, as the key of its rules.
fn route(host: &str) -> String {
    format!("httproute/default/{host}/rule/0/match/0/{host}_test")
}

/// A limit at the end of a chain of keys and values; an empty value is any value.
fn chain(keys: &[(&str, &str)], unit: i32, requests: u32) -> RateLimitDescriptor {
    let ((key, value), above) = keys.split_last().expect("at least one key");
    let last = RateLimitDescriptor { value: (*value).to_owned(), ..limited(key, unit, requests) };
    above.iter().rev().fold(last, |below, (key, value)| node(key, value, vec![below]))
}

/// The chain of a rule without selectors.
fn whole_route(requests: u32) -> RateLimitDescriptor {
    chain(&[("rule-0-match--1", "rule-0-match--1")], HOUR, requests)
}

/// The rules of all routes, of which `plain` has this limit, and those of `more` routes.
fn all_rules(plain: u32, more: Vec<(&str, Vec<RateLimitDescriptor>)>) -> Vec<Any> {
    let both = |key| (key, key);
    let network = |value| ("masked_remote_address", value);
    let shadow = RateLimitDescriptor { shadow_mode: true, ..whole_route(1) };
    let mut routes = vec![
        ("plain", vec![whole_route(plain)]),
        (
            "hdr",
            vec![
                chain(&[both("rule-0-match-0"), ("rule-0-match-1", "")], HOUR, 4),
                chain(&[both("rule-1-match-0")], DAY, 2),
                chain(&[both("rule-2-match-0")], MONTH, 1),
            ],
        ),
        (
            "cidr",
            vec![
                chain(&[network("127.0.0.0/8"), ("remote_address", "")], HOUR, 3),
                chain(&[network("127.0.0.0/16")], HOUR, 5),
                chain(&[network("invert:10.0.0.0/8")], MINUTE, 100),
            ],
        ),
        ("methods", vec![chain(&[both("rule-0-method"), both("rule-0-path")], HOUR, 3)]),
        ("cost", vec![chain(&[("rule-0-match-0", "")], HOUR, 10)]),
        ("query", vec![chain(&[("rule-0-match-0", "")], HOUR, 2)]),
        (
            "query-match",
            vec![
                chain(&[both("rule-0-match-0")], HOUR, 2),
                chain(&[both("rule-1-match-0")], HOUR, 9),
                chain(&[both("rule-2-match-0")], HOUR, 1),
            ],
        ),
        ("shadow", vec![shadow]),
        ("sh-a", vec![whole_route(5)]),
        ("sh-b", vec![whole_route(5)]),
    ];
    routes.extend(more);
    let routes = routes.into_iter().map(|(host, chains)| {
        let key = route(host);
        node(&key, &key, chains)
    });
    let rule = "default/team/rule/0";
    let team = node(rule, rule, vec![chain(&[("rule-0-match-0", "")], HOUR, 3)]);
    vec![rules("default/eg/http", routes.collect()), rules("default/team", vec![team])]
}

#[test]
fn every_selector_counts_what_it_selects() {
    for version in [NEWEST, OF_GATEWAY] {
        within_an_hour(|| {
            let gateway = Gateway::of_envoy(version, all_rules(3, Vec::new()));
            for case in CASES {
                gateway.check(case);
            }
            let shadowed = gateway.weir.metric(
                "ratelimit_service_rate_limit_shadow_mode",
                &[&format!("key1=\"{0}_{0}\"", route("shadow"))],
            );
            assert_eq!(shadowed, 2);
            assert_eq!(gateway.weir.metric("weir_requests_total", &[r#"code="invalid""#]), 0);
        });
    }
}

/// The cost is metadata of another filter. A look with 0 hits decides before the request, and Envoy sends
/// the cost after the response. A cost over the rest counts too.
#[test]
fn a_cost_by_metadata_is_charged_at_the_end() {
    for version in [NEWEST, OF_GATEWAY] {
        within_an_hour(|| {
            let gateway = Gateway::of_envoy(version, all_rules(3, Vec::new()));
            let get = |user, tokens| {
                let headers = [("host", "cost.test"), ("x-user", user), ("x-tokens", tokens)];
                gateway.envoy.get("/", &headers)
            };
            for (count, remaining) in [(1, "10"), (2, "3")] {
                let response = get("ann", "7");
                assert_eq!(response.status, 200);
                assert_eq!(response.header("x-ratelimit-remaining").as_deref(), Some(remaining));
                // Envoy does not wait for the second call.
                until("the charge is decided", || {
                    gateway.weir.metric("weir_requests_total", &[]) == 2 * count
                });
            }
            let response = get("ann", "7");
            assert_eq!(response.status, 429, "14 of 10 are used");
            assert_eq!(response.header("x-ratelimit-limit").as_deref(), Some("10, 10;w=3600"));
            assert_eq!(response.header("x-ratelimit-remaining").as_deref(), Some("0"));
            assert_eq!(get("bob", "7").status, 200, "another user");
        });
    }
}

#[test]
fn changed_rules_are_active_at_once() {
    within_an_hour(|| {
        let gateway = Gateway::start(all_rules(3, Vec::new()));
        gateway.check(&case("at first", "plain GET /", &[], &[200], "3, 3;w=3600"));
        gateway.send("2", all_rules(6, Vec::new()));
        gateway.check(&case("changed", "plain GET /", &[], &[200], "6, 6;w=3600"));
        gateway.check(&case("unchanged", "query GET /?user=a", &[], &[200], "2, 2;w=3600"));
        gateway.send("3", Vec::new());
        for call in ["plain GET /", "query GET /?user=a"] {
            gateway.check(&case("deleted", call, &[], &[200; 8], ""));
        }
        gateway.send("4", all_rules(3, Vec::new()));
        let restored = &[200, 200, 429];
        gateway.check(&case("restored", "query GET /?user=b", &[], restored, "2, 2;w=3600"));
    });
}

/// Two rules of one route that begin with one network are two equal siblings, which envoyproxy/ratelimit
/// rejects again and again. Both limit.
#[test]
fn two_rules_with_one_network_both_limit() {
    within_an_hour(|| {
        let network = ("masked_remote_address", "127.0.0.0/8");
        let distinct = chain(&[network, ("remote_address", "")], HOUR, 3);
        let exact = chain(&[network], HOUR, 5);
        let gateway = Gateway::start(all_rules(3, vec![("same", vec![distinct, exact])]));
        // A denied request counts for the other rule too.
        let statuses = &[200, 200, 200, 429];
        gateway.check(&case("both", "same GET /", &[], statuses, "3, 3;w=3600, 5;w=3600"));
        let other = &[("x-forwarded-for", "127.1.0.1")];
        let limit = "5, 3;w=3600, 5;w=3600";
        gateway.check(&case("the network is full", "same GET /", other, &[200, 429], limit));
        gateway.check(&case("another route", "plain GET /", &[], &[200], "3, 3;w=3600"));
        assert_eq!(gateway.weir.metric("weir_xds_nacks_total", &[]), 0);
    });
}

/// Envoy presents its certificate, so the service can require it.
#[test]
fn certificates_of_envoy_can_be_verified() {
    let gateway = Gateway::configured(NEWEST, all_rules(3, Vec::new()), |setup, certificates| {
        let authority = certificates.path("ca.crt").display().to_string();
        setup.env("GRPC_CLIENT_TLS_CACERT", &authority)
    });
    gateway.check(&case("with a certificate", "plain GET /", &[], &[200], "3, 3;w=3600"));
}

/// The overlays of docs/start/envoy-gateway.md change the limits that they name.
#[test]
fn the_example_overlays_fit_the_rules() {
    let manifest = yaml::json(include_str!("../../../examples/envoy-gateway/overlays.yaml"));
    let overlays = manifest["data"]["overlays.yaml"].as_str().expect("a file");
    let ads = Ads::start();
    let setup = super::of(&ads).file("overlays.yaml", overlays);
    let path = setup.path("overlays.yaml").display().to_string();
    let weir = setup.env("WEIR__RULES__OVERLAY_PATHS", &path).start();
    ads.set("1", all_rules(3, Vec::new()));
    assert!(ads.answer().error_detail.is_none());
    let rules = get(weir.admin, "/rules").json();
    assert_eq!(rules["warnings"], serde_json::json!([]), "an overlay matches nothing");
    let of_route = |host: &str, rest: &str| format!("{0}={0},{rest}", route(host));
    for (domain, descriptor, words) in [
        ("default/eg/http", of_route("plain", "rule-0-match--1=rule-0-match--1"), "token_bucket"),
        ("default/eg/http", of_route("cost", "rule-0-match-0=ann"), "sliding_window"),
        ("default/eg/http", of_route("query", "rule-0-match-0=ann"), "on error: local"),
        (
            "default/team",
            "default/team/rule/0=default/team/rule/0,rule-0-match-0=ann".to_owned(),
            { "2 per 1s" },
        ),
    ] {
        let body = serde_json::json!({ "domain": domain, "descriptor": descriptor });
        let answer = post(weir.admin, "/explain", body.to_string());
        assert_eq!(answer.status, 200, "{}", answer.body);
        assert!(answer.body.contains(words), "{words}: {}", answer.body);
    }
}
