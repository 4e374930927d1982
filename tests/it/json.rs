//! The HTTP listener: `/json` in the form of envoyproxy/ratelimit, and the plain health responses.

use crate::support::http::{Response, get, post};
use crate::support::weir::Weir;
use crate::support::window_edge::within_an_hour;
use serde_json::json;

const RULES: &str = "
domain: shop
descriptors:
  - key: user
    rate_limit: { name: per-user, unit: day, requests_per_unit: 2 }
    metadata: { tier: gold, nested: { a: 1, b: [ x ] } }
  - key: team
    rate_limit: { unit: week, requests_per_unit: 5 }
    metadata: { tier: lost, nested: { c: 2 } }
";

fn check(weir: &Weir, body: &serde_json::Value) -> Response {
    post(weir.http, "/json", body.to_string())
}

fn user(name: &str) -> serde_json::Value {
    json!({ "domain": "shop", "descriptors": [{ "entries": [{ "key": "user", "value": name }] }] })
}

#[test]
fn the_response_is_proto3_json_with_200_or_429() {
    within_an_hour(|| {
        let weir = Weir::start(RULES);
        let ok = check(&weir, &user("ann"));
        assert_eq!(ok.status, 200);
        assert_eq!(ok.header("content-type").as_deref(), Some("application/json"));
        let limit = json!({ "name": "per-user", "requestsPerUnit": 2, "unit": "DAY" });
        let answer = ok.json();
        assert_eq!(answer["overallCode"], "OK");
        let status = &answer["statuses"][0];
        assert_eq!(status["code"], "OK");
        assert_eq!(status["currentLimit"], limit);
        assert_eq!(status["limitRemaining"], 1);
        let reset = status["durationUntilReset"].as_str().expect("a duration is a string");
        let reset: f64 = reset.strip_suffix('s').expect("in seconds").parse().expect("a number");
        assert!(0.0 < reset && reset <= 86_400.0, "{reset} s is after the end of the day");

        check(&weir, &user("ann"));
        let over = check(&weir, &user("ann"));
        assert_eq!(over.status, 429);
        assert_eq!(over.header("content-type").as_deref(), Some("application/json"));
        assert_eq!(over.json()["overallCode"], "OVER_LIMIT");
        assert_eq!(over.json()["statuses"][0]["code"], "OVER_LIMIT");
        assert_eq!(over.json()["statuses"][0]["currentLimit"], limit);
        assert_eq!(check(&weir, &user("bob")).status, 200);
    });
}

/// Field names may be camelCase or snake_case, and 64-bit numbers may be strings.
#[test]
fn json_accepts_both_cases_and_numbers_as_text() {
    within_an_hour(|| {
        let weir = Weir::start(RULES);
        let entries = json!([{ "key": "team", "value": "x" }]);
        let left = |request: serde_json::Value| {
            let answer = check(&weir, &request);
            assert_eq!(answer.status, 200, "{}", answer.body);
            answer.json()["statuses"][0]["limitRemaining"].as_u64().unwrap_or(0)
        };
        let descriptor = json!({ "entries": entries, "hits_addend": "0" });
        assert_eq!(left(json!({ "domain": "shop", "descriptors": [descriptor] })), 5);
        let descriptor = json!({ "entries": entries, "hitsAddend": 2 });
        assert_eq!(left(json!({ "domain": "shop", "descriptors": [descriptor] })), 3);
        let descriptor = json!({ "entries": entries, "hitsAddend": "1", "isNegativeHits": true });
        assert_eq!(left(json!({ "domain": "shop", "descriptors": [descriptor] })), 4);
        let whole = json!({
            "domain": "shop", "hitsAddend": 2, "descriptors": [{ "entries": entries }]
        });
        assert_eq!(left(whole), 2);
        let limit = json!({ "requestsPerUnit": 9, "unit": "HOUR" });
        let descriptor = json!({ "entries": entries, "limit": limit });
        assert_eq!(left(json!({ "domain": "shop", "descriptors": [descriptor] })), 8);
    });
}

#[test]
fn a_request_without_a_rule_is_ok() {
    let weir = Weir::start(RULES);
    let request = json!({ "domain": "shop", "descriptors": [{ "entries": [{ "key": "x" }] }] });
    let answer = check(&weir, &request);
    assert_eq!(answer.status, 200);
    assert_eq!(answer.json(), json!({ "overallCode": "OK", "statuses": [{ "code": "OK" }] }));
}

#[test]
fn an_invalid_request_is_a_400_with_a_reason() {
    let mut weir = Weir::start(RULES);
    let unknown_unit = json!({ "domain": "shop", "descriptors": [{
        "entries": [{ "key": "user", "value": "a" }],
        "limit": { "requestsPerUnit": 1, "unit": "FORTNIGHT" }
    }] });
    let bodies = [
        "",
        "{",
        "null",
        "[]",
        r#""text""#,
        r#"{"domain": 1}"#,
        r#"{"domain": "shop"}"#,
        r#"{"domain": "", "descriptors": [{"entries": [{"key": "user"}]}]}"#,
        r#"{"domain": "shop", "descriptors": []}"#,
        r#"{"domain": "shop", "descriptors": [{"entries": [{"key": ""}]}]}"#,
        r#"{"domain": "shop", "descriptor": [{"entries": [{"key": "user"}]}]}"#,
        r#"{"domain": "shop", "descriptors": [{"hitsAddend": -1}]}"#,
        r#"{"domain": "shop", "descriptors": [{"hitsAddend": "9223372036854775808"}]}"#,
        &unknown_unit.to_string(),
    ];
    for body in bodies {
        let answer = post(weir.http, "/json", body);
        assert_eq!(answer.status, 400, "{body} was answered {answer:?}");
        assert!(!answer.body.trim().is_empty(), "{body} was refused without a reason");
        assert_ne!(answer.header("content-type").as_deref(), Some("application/json"));
    }
    let deep = "[".repeat(100_000);
    assert_eq!(post(weir.http, "/json", deep).status, 400);
    assert!(weir.process().is_alive());
}

#[test]
fn dynamic_metadata_has_request_and_rule_metadata() {
    within_an_hour(|| {
        let weir = Weir::setup().rules("shop.yaml", RULES);
        let weir = weir.env("WEIR__RESPONSE__DYNAMIC_METADATA", "true").start();
        let request = json!({ "domain": "shop", "hitsAddend": 2, "descriptors": [
            { "entries": [{ "key": "user", "value": "ann" }], "hitsAddend": "1" },
            { "entries": [{ "key": "team", "value": "x" }, { "key": "more", "value": "" }] },
            { "entries": [{ "key": "team", "value": "x" }] },
        ] });
        let metadata = check(&weir, &request).json()["dynamicMetadata"].clone();
        assert_eq!(metadata["domain"], "shop");
        assert_eq!(metadata["hitsAddend"], 2.0);
        let descriptors = json!([
            { "entries": ["user=ann"], "hitsAddend": 1.0 },
            { "entries": ["team=x", "more="] },
            { "entries": ["team=x"] },
        ]);
        assert_eq!(metadata["descriptors"], descriptors);
        // The first descriptor wins on conflict, and maps are merged.
        let merged = json!({ "tier": "gold", "nested": { "a": 1.0, "b": ["x"], "c": 2.0 } });
        assert_eq!(metadata["metadata"], merged);

        // A rule that denies adds no metadata.
        let mut twice = user("bob");
        twice["descriptors"][0]["hitsAddend"] = json!(3);
        let over = check(&weir, &twice).json()["dynamicMetadata"].clone();
        assert_eq!((&over["domain"], &over["metadata"]), (&json!("shop"), &json!(null)));
        assert_eq!(over["hitsAddend"], json!(null));
    });
}

#[test]
fn without_the_setting_there_is_no_metadata() {
    let weir = Weir::start(RULES);
    assert_eq!(check(&weir, &user("ann")).json()["dynamicMetadata"], json!(null));
}

#[test]
fn health_is_reported_as_text() {
    let weir = Weir::start(RULES);
    let health = get(weir.http, "/healthcheck");
    assert_eq!((health.status, health.body.trim()), (200, "OK"));
    assert_eq!(get(weir.http, "/livez").status, 200);
    assert_eq!(get(weir.http, "/readyz").status, 200);
    assert_eq!(get(weir.http, "/nonsense").status, 404);
}
