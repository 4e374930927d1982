//! Real Envoys, the newest and the oldest supported, in front of a real weir.

use std::collections::BTreeSet;

use crate::support::envoy::recorder::{Call, Recorder};
use crate::support::envoy::upstream::{self, Upstream};
use crate::support::envoy::{self, Envoy, NEWEST, OLDEST};
use crate::support::http::Response;
use crate::support::rls::Code;
use crate::support::wait::until;
use crate::support::weir::Weir;
use crate::support::window_edge::within_an_hour;

const BASIC: &str = include_str!("../../examples/envoy/basic.yaml");
const COSTS: &str = include_str!("../../examples/envoy/costs.yaml");
const RLQS: &str = include_str!("../../examples/envoy/rlqs.yaml");

/// The rules of the example, with windows of an hour or more (see [`within_an_hour`]).
const RULES: &str = "
domain: demo
descriptors:
  - key: user
    rate_limit: { name: per-user, unit: hour, requests_per_unit: 2 }
  - key: generic_key
    value: site
    descriptors:
      - key: remote_address
        rate_limit: { unit: day, requests_per_unit: 4 }
";

/// The example itself: its windows are long enough.
const COST_RULES: &str = include_str!("../../examples/rules/costs.yaml");

/// The example of limits that weir divides among Envoys.
const RLQS_RULES: &str = include_str!("../../examples/rules/rlqs.yaml");

fn get_as_anna(envoy: &Envoy, path: &str) -> Response {
    envoy.get(path, &[("x-user", "anna")])
}

#[test]
fn every_example_is_accepted_by_both_envoys() {
    for version in [NEWEST, OLDEST] {
        for (name, example) in [("basic", BASIC), ("costs", COSTS), ("rlqs", RLQS)] {
            let verdict = envoy::validate(version, example);
            assert_eq!(verdict, Ok(()), "{name}.yaml on {version}");
        }
    }
}

#[test]
fn the_newest_envoy_enforces_the_limit() {
    within_an_hour(|| until_the_limit(NEWEST));
}

#[test]
fn the_oldest_envoy_enforces_the_limit() {
    within_an_hour(|| until_the_limit(OLDEST));
}

/// 200 up to a limit, then 429. Another client has its own counter. A second rule, on the client's
/// address, limits both together. A denied request never reaches the service.
fn until_the_limit(version: &str) {
    let weir = Weir::start(RULES);
    let upstream = Upstream::start();
    let envoy = Envoy::start(version, &envoy::tuned(BASIC, weir.grpc, upstream.address));
    let check = |client| envoy.get("/", &[("x-user", client)]);

    for _ in 0..2 {
        let answer = check("anna");
        assert_eq!((answer.status, answer.body.as_str()), (200, upstream::BODY));
    }
    let refused = check("anna");
    assert_eq!(refused.status, 429);
    assert_eq!(refused.header("x-envoy-ratelimited").as_deref(), Some("true"));
    assert_eq!(check("bert").status, 200, "another user, the address's 4th of 4");
    assert_eq!(check("bert").status, 429, "the address is at its limit");
    assert_eq!(check("carl").status, 429, "for every user");
    assert_eq!(upstream.requests().len(), 3);
}

#[test]
fn envoy_adds_the_limit_headers() {
    within_an_hour(|| {
        let weir = Weir::start(RULES);
        let upstream = Upstream::start();
        let envoy = Envoy::start(NEWEST, &envoy::tuned(BASIC, weir.grpc, upstream.address));
        let header = |answer: &Response, name| answer.header(name).unwrap_or_default();

        // The tighter of the two is first: 1 of 2 left for the user, 3 of 4 for the address.
        let passed = get_as_anna(&envoy, "/");
        let limits = r#"2, 2;w=3600;name="per-user", 4;w=86400"#;
        assert_eq!(header(&passed, "x-ratelimit-limit"), limits);
        assert_eq!(header(&passed, "x-ratelimit-remaining"), "1");
        let reset: u64 = header(&passed, "x-ratelimit-reset").parse().expect("seconds");
        assert!(reset <= 3600, "{reset} s is after the end of the hour");

        get_as_anna(&envoy, "/");
        let refused = get_as_anna(&envoy, "/");
        assert_eq!(refused.status, 429);
        assert_eq!(header(&refused, "x-ratelimit-limit"), limits);
        assert_eq!(header(&refused, "x-ratelimit-remaining"), "0");
    });
}

/// A fallback counts nothing, so Envoy has no remaining hits to show.
#[test]
fn envoy_adds_no_limit_headers_in_a_fallback() {
    // No process listens on port 1 of loopback.
    let weir = Weir::setup().rules("demo.yaml", RULES);
    let weir = weir.env("WEIR__REDIS__URL", "redis://127.0.0.1:1").start();
    let upstream = Upstream::start();
    let envoy = Envoy::start(NEWEST, &envoy::tuned(BASIC, weir.grpc, upstream.address));
    let passed = get_as_anna(&envoy, "/");
    assert_eq!(passed.status, 200);
    for name in ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"] {
        assert_eq!(passed.header(name), None, "{name}");
    }
    assert!(weir.metric("weir_fallback_total", &[]) > 0, "weir decided, not Envoy");
}

/// The headers of weir reach the client through an Envoy that adds none.
#[test]
fn weir_headers_reach_the_client() {
    within_an_hour(|| {
        let weir = Weir::setup().rules("demo.yaml", RULES);
        let weir = weir.env("WEIR__RESPONSE__HEADERS", "ietf").start();
        let upstream = Upstream::start();
        let envoy = Envoy::start(OLDEST, &envoy::tuned(BASIC, weir.grpc, upstream.address));

        let passed = get_as_anna(&envoy, "/");
        assert_eq!(passed.status, 200);
        let policy = passed.header("ratelimit-policy").expect("each rule's policy");
        assert!(policy.contains(r#""per-user";q=2;w=3600"#), "{policy}");
        let state = passed.header("ratelimit").expect("where the client stands");
        assert!(state.starts_with(r#""per-user";r=1;t="#), "{state}");
        assert_eq!(passed.header("retry-after"), None);

        get_as_anna(&envoy, "/");
        let refused = get_as_anna(&envoy, "/");
        assert_eq!(refused.status, 429);
        let wait: u64 = refused.header("retry-after").expect("when to come back").parse().unwrap();
        assert!((1..=3600).contains(&wait), "{wait} s is not within the hour");
    });
}

/// The settings of `make run` and the first example for Envoy: only Envoy adds rate-limit headers.
#[test]
fn the_examples_send_each_limit_header_once() {
    let (weir, upstream) = (Weir::example().start(), Upstream::start());
    let envoy = Envoy::start(NEWEST, &envoy::tuned(BASIC, weir.grpc, upstream.address));
    let answer = envoy.get("/", &[("x-user", "alice")]);
    let names = answer.headers.iter().map(|(name, _)| name.as_str());
    let limits: Vec<&str> = names.filter(|name| name.contains("ratelimit")).collect();
    let different: BTreeSet<&str> = limits.iter().copied().collect();
    assert_eq!(limits.len(), different.len(), "{limits:?}");
    assert!(different.contains("x-ratelimit-remaining"), "{limits:?}");
}

/// The rule file in the values for Istio, with windows of a day (see [`within_an_hour`]).
fn istio_rules() -> String {
    let values = include_str!("../../examples/istio/weir-values.yaml");
    let (_, rest) = values.split_once("  edge.yaml: |\n").expect("the values have the file");
    let lines = rest.lines().map_while(|line| line.strip_prefix("    "));
    lines.collect::<Vec<_>>().join("\n").replace("unit: minute", "unit: day")
}

/// Envoy's `:path` contains the query string, which gives a client no other counter.
#[test]
fn istio_rules_ignore_the_query_string() {
    let example = BASIC.replace("domain: demo", "domain: edge");
    let by_path = example.replace(
        "header_name: x-user, descriptor_key: user",
        "header_name: \":path\", descriptor_key: path",
    );
    assert_ne!(by_path, example, "the example sends another header");
    within_an_hour(|| {
        let (weir, upstream) = (Weir::start(&istio_rules()), Upstream::start());
        let envoy = Envoy::start(NEWEST, &envoy::tuned(&by_path, weir.grpc, upstream.address));
        for (path, remaining) in [
            ("/reviews?x=1", "99"),
            ("/reviews?x=2", "98"),
            ("/reviews", "97"),
            ("/reviews?", "96"),
            ("/ratings?x=1", "99"),
            ("/productpage?x=1", "9"),
            ("/productpage?x=2", "8"),
        ] {
            let left = envoy.get(path, &[]).header("x-ratelimit-remaining");
            assert_eq!(left.as_deref(), Some(remaining), "{path}");
        }
    });
}

#[test]
fn a_descriptor_is_charged_its_hits_addend() {
    for version in [NEWEST, OLDEST] {
        within_an_hour(|| {
            let (weir, upstream) = (Weir::start(COST_RULES), Upstream::start());
            let recorder = Recorder::before(weir.grpc);
            let envoy =
                Envoy::start(version, &envoy::tuned(COSTS, recorder.address, upstream.address));
            let statuses = [(); 3].map(|()| get_as_anna(&envoy, "/batch").status);
            assert_eq!(statuses, [200, 200, 429], "3 of 7, 6 of 7, 9 of 7");

            let call = &recorder.wait_for(1)[0];
            assert_eq!(entries(call), [("job", "batch"), ("user", "anna")]);
            assert_eq!(cost(call), Some(3));
            assert_eq!(call.response.statuses[0].limit_remaining, 4);
            // Envoy sends its timeout, so weir stops work that would be too late.
            let timeout = call.metadata.get("grpc-timeout").expect("a deadline");
            assert_eq!(timeout.to_str().ok(), Some("100m"), "0.1 s");
        });
    }
}

/// A peek takes nothing. The actual cost is charged after the response, and the next peek includes
/// it: with 9 bytes per response and a limit of 20 the third call overdraws and the fourth is
/// denied.
#[test]
fn a_cost_in_the_response_is_charged_at_the_end() {
    for version in [NEWEST, OLDEST] {
        within_an_hour(|| {
            let (weir, upstream) = (Weir::start(COST_RULES), Upstream::start());
            let recorder = Recorder::before(weir.grpc);
            let envoy =
                Envoy::start(version, &envoy::tuned(COSTS, recorder.address, upstream.address));

            for (number, left_before) in [(1, 20), (2, 11), (3, 2)] {
                assert_eq!(get_as_anna(&envoy, "/download").status, 200);
                // The charge is fire-and-forget: wait until weir has decided it.
                let calls = recorder.wait_for(2 * number);
                let (peek, charge) = (&calls[2 * number - 2], &calls[2 * number - 1]);
                assert_eq!((cost(peek), remaining(peek)), (Some(0), left_before), "peek {number}");
                assert_eq!(cost(charge), Some(upstream::BODY.len() as u64), "charge {number}");
                assert_eq!(entries(peek), entries(charge));
            }
            assert_eq!(get_as_anna(&envoy, "/download").status, 429, "27 of 20 are used");
            let peek = &recorder.wait_for(7)[6];
            assert_eq!((cost(peek), remaining(peek)), (Some(0), 0));
            assert_eq!(peek.response.overall_code, Code::OverLimit as i32);
            assert_eq!(upstream.requests().len(), 3);
        });
    }
}

/// Envoy allows until it has an assignment, then five requests at once and one in two seconds. Each tenant
/// has its own bucket.
#[test]
fn the_quota_of_the_example_is_enforced() {
    for version in [NEWEST, OLDEST] {
        // No Envoy has an assignment of a service before this one.
        let weir = Weir::setup().rules("rlqs.yaml", RLQS_RULES).env("WEIR__RLQS__RELEARN", "false");
        let (weir, upstream) = (weir.start(), Upstream::start());
        let envoy = Envoy::start(version, &envoy::tuned(RLQS, weir.grpc, upstream.address));
        let status = |tenant| envoy.get("/", &[("x-tenant", tenant)]).status;
        let mut passed = 0;
        until("a request is denied", || {
            let status = status("acme");
            assert!([200, 429].contains(&status), "{status}");
            passed += u32::from(status == 200);
            status == 429
        });
        assert!(passed > 5, "{passed} passed, with the first one");
        assert_eq!(status("other"), 200);
        assert_eq!(envoy.get("/", &[]).status, 200, "the bucket of requests without a tenant");
        assert_eq!(weir.metric("weir_rlqs_streams", &[]), 1);
    }
}

fn entries(call: &Call) -> Vec<(&str, &str)> {
    let entries = call.request.descriptors[0].entries.iter();
    entries.map(|entry| (entry.key.as_str(), entry.value.as_str())).collect()
}

fn cost(call: &Call) -> Option<u64> {
    call.request.descriptors[0].hits_addend.as_ref().map(|hits| hits.value)
}

fn remaining(call: &Call) -> u32 {
    call.response.statuses[0].limit_remaining
}
