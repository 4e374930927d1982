//! Costs, and limits over 32 bits: by `/json`, in headers, metrics, `/counters` and `/explain`.

use serde_json::{Value, json};

use crate::support::http::{get, post};
use crate::support::weir::Weir;
use crate::support::window_edge::within_an_hour;

const RULES: &str = r#"
domain: d
descriptors:
  - key: job
    rate_limit: { name: jobs, unit: day, requests_per_unit: 10, cost: 3 }
  - key: user
    descriptors:
      - key: model
        value: "*"
        share_threshold: true
        rate_limit:
          name: models
          requests: 9007199254740991
          window: 30d
          count_denied: false
          cost: { by: model, factors: { large: 10, small: "1/2" } }
  - key: tokens
    rate_limit:
      requests: 9007199254740991
      window: 30d
      count_denied: false
      reserve: { hold: 10m }
"#;

/// The largest number in a status.
const U32_MAX: u64 = 4_294_967_295;

fn start() -> Weir {
    Weir::setup().rules("d.yaml", RULES).env("WEIR__RESPONSE__HEADERS", "both").start()
}

/// Sends `hits` of one descriptor: the code of the response, and the response.
fn send(weir: &Weir, entries: &[(&str, &str)], hits: u64) -> (u16, Value) {
    let entries: Vec<Value> =
        entries.iter().map(|(key, value)| json!({ "key": key, "value": value })).collect();
    // proto3 JSON writes 64-bit numbers as texts.
    let descriptor = json!({ "entries": entries, "hitsAddend": hits.to_string() });
    let body = json!({ "domain": "d", "descriptors": [descriptor] });
    let answer = post(weir.http, "/json", body.to_string());
    (answer.status, answer.json())
}

/// The remaining hits of the status; proto3 JSON leaves out a zero.
fn remaining(answer: &Value) -> u64 {
    answer["statuses"][0]["limitRemaining"].as_u64().unwrap_or(0)
}

fn header(answer: &Value, name: &str) -> String {
    let headers = answer["responseHeadersToAdd"].as_array().expect("headers");
    let found = headers.iter().find(|header| header["key"] == name);
    found.unwrap_or_else(|| panic!("no {name} in {answer}"))["value"]
        .as_str()
        .expect("a text")
        .to_owned()
}

/// The only tier of the counter of a descriptor.
fn tier(weir: &Weir, descriptor: &str) -> Value {
    let shown = get(weir.admin, &format!("/counters?domain=d&descriptor={descriptor}")).json();
    shown["tiers"][0].clone()
}

#[test]
fn a_cost_shows_in_responses_metrics_and_counters() {
    within_an_hour(|| {
        let weir = start();
        for left in [7, 4, 1] {
            let (status, answer) = send(&weir, &[("job", "x")], 1);
            assert_eq!((status, remaining(&answer)), (200, left));
            assert_eq!(header(&answer, "x-ratelimit-remaining"), left.to_string());
        }
        let (status, answer) = send(&weir, &[("job", "x")], 1);
        assert_eq!((status, remaining(&answer)), (429, 0));
        assert_eq!(answer["statuses"][0]["currentLimit"]["requestsPerUnit"], 10);
        let of_jobs = r#"rule="jobs""#;
        assert_eq!(weir.metric("weir_decisions_total", &[of_jobs]), 4);
        assert_eq!(weir.metric("weir_hits_total", &[of_jobs]), 12);
        assert_eq!(weir.metric("weir_hits_total", &[of_jobs, r#"outcome="over""#]), 3);
        assert_eq!(tier(&weir, "job=x")["used"], 12, "denied hits count too, with their cost");
        let body = json!({ "domain": "d", "descriptor": "user=a,model=small" });
        let explained = post(weir.admin, "/explain", body.to_string()).json();
        let text = explained["explanations"][0]["text"].as_str().expect("a text").to_owned();
        let cost = "\n        cost: 0.5 per hit, rounded up, by `model` = `small`\n";
        assert!(text.contains(cost), "{text}");
    });
}

/// A status has 32 bits for a number. Everything else has all digits, except that an integer of
/// `RateLimit` has at most 15 (RFC 9651).
#[test]
fn limits_over_32_bits_are_shown_with_all_digits() {
    within_an_hour(|| {
        let weir = start();
        let model = |name, hits| send(&weir, &[("user", "a"), ("model", name)], hits);
        let (status, answer) = model("small", 1 << 52);
        assert_eq!((status, remaining(&answer)), (200, U32_MAX));
        assert_eq!(answer["statuses"][0]["currentLimit"]["requestsPerUnit"], U32_MAX);
        let limit = r#"9007199254740991, 9007199254740991;w=2592000;name="models""#;
        assert_eq!(header(&answer, "x-ratelimit-limit"), limit);
        assert_eq!(header(&answer, "x-ratelimit-remaining"), "6755399441055743");
        let policy = r#""models";q=999999999999999;w=2592000"#;
        assert_eq!(header(&answer, "ratelimit-policy"), policy);
        let shown = tier(&weir, "user=a,model=small");
        assert_eq!(shown["used"], 1_u64 << 51);
        assert_eq!(shown["requests"], (1_u64 << 53) - 1);
        assert_eq!(shown["remaining"], 6_755_399_441_055_743_u64);
        let other = tier(&weir, "user=a,model=large");
        let numbers = ["used", "requests", "remaining"];
        assert_eq!(numbers.map(|it| &other[it]), numbers.map(|it| &shown[it]), "one counter");
        let of_models = r#"rule="models""#;
        assert_eq!(weir.metric("weir_hits_total", &[of_models]), 1 << 51);

        // To the last hit.
        let (status, answer) = model("large", 675_539_944_105_574);
        assert_eq!((status, remaining(&answer)), (200, 3));
        assert_eq!(model("small", 7).0, 429, "3.5 are rounded up");
        assert_eq!(model("other", 4).0, 429);
        let (status, answer) = model("small", 6);
        assert_eq!((status, remaining(&answer)), (200, 0));
        assert_eq!(model("small", 1).0, 429);
        assert_eq!(tier(&weir, "user=a,model=small")["used"], (1_u64 << 53) - 1);
    });
}

#[test]
fn a_settlement_over_32_bits_replaces_its_reservation() {
    within_an_hour(|| {
        let weir = start();
        let used = || tier(&weir, "tokens=x")["used"].as_u64();
        for (reserved, cost) in [(5_000_000_000, 4_999_999_999), (2_000, 1 << 52), (1 << 51, 0)] {
            let before = used().expect("a number");
            let (status, answer) = send(&weir, &[("tokens", "x")], reserved);
            let lease = &answer["dynamicMetadata"]["lease"];
            assert_eq!((status, lease["n"].as_f64()), (200, Some(reserved as f64)));
            assert_eq!(used(), Some(before + reserved));
            let id = lease["id"].as_str().expect("an id");
            for _ in 0..2 {
                send(&weir, &[("tokens", "x"), ("lease", id)], cost);
                assert_eq!(used(), Some(before + cost), "{reserved} were reserved");
            }
        }
    });
}
