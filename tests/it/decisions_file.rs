//! The decision log of a running service: its lines, and what becomes of the file.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::support::http::post;
use crate::support::rls::{
    RateLimitDescriptor, RateLimitOverride, RateLimitRequest, costing, descriptor, request,
};
use crate::support::wait::until;
use crate::support::weir::{Setup, Weir};
use crate::support::window_edge::within_an_hour;

const RULES: &str = "
domain: d
descriptors:
  - key: user
    rate_limit: { name: per-user, unit: hour, requests_per_unit: 2, shadow: { requests: 1 } }
  - key: plan
    value: free
    descriptors:
      - { key: user, rate_limit: { unit: hour, requests_per_unit: 1 } }
  - key: job
    rate_limit: { algorithm: concurrency, max: 1, hold: 1h }
";

/// A service with a decision log, and the path of the log.
fn with_log() -> (Setup, PathBuf) {
    let setup = Weir::setup().rules("d.yaml", RULES).env("WEIR__DRAIN__DELAY", "0s");
    let path = setup.path("decisions.log");
    let text = path.display().to_string();
    (setup.env("WEIR__LOG__DECISIONS__PATH", &text), path)
}

/// The lines that are written when the service has ended in order.
fn lines_at_the_end(weir: &mut Weir, path: &Path) -> Vec<Value> {
    weir.process().terminate();
    assert!(weir.process().wait_for_exit().success());
    read(path)
}

fn read(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).expect("the log");
    assert!(text.is_empty() || text.ends_with('\n'), "{text}");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

#[test]
fn each_request_is_a_line() {
    within_an_hour(|| {
        let (setup, path) = with_log();
        let mut weir = setup.start();
        let client = weir.client();
        let ann = || descriptor(&[("user", "ann")]);
        let limit = Some(RateLimitOverride { requests_per_unit: 5, unit: 2 });
        let two = RateLimitRequest { hits_addend: 2, ..request("d", vec![ann()]) };
        let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
        client.check_traced(&format!("00-{trace}-00f067aa0ba902b7-01"), request("d", vec![ann()]));
        client.check(two);
        client.check(request("d", vec![RateLimitDescriptor { limit, ..ann() }]));
        client.check(request("e", vec![costing(0, ann())]));
        let body = json!({ "domain": "d", "descriptors": [{ "entries": [{ "key": "job" }] }] });
        post(weir.http, "/json", body.to_string());
        // No decision, so no line.
        assert!(client.try_check(request("", vec![ann()])).is_err());
        let lines = lines_at_the_end(&mut weir, &path);
        let ats: Vec<u64> = lines.iter().filter_map(|line| line["at"].as_u64()).collect();
        assert!(ats.is_sorted() && ats.len() == 5, "{ats:?}");
        let entries = json!([["user", "ann"]]);
        let expected = [
            json!({
                "domain": "d", "hits": 0, "code": "OK", "trace": trace,
                "descriptors": [{
                    "entries": entries, "code": "OK", "rule": "per-user", "reason": "counted",
                    "remaining": 1, "what_if": "OK",
                }],
            }),
            json!({
                "domain": "d", "hits": 2, "code": "OVER_LIMIT",
                "descriptors": [{
                    "entries": entries, "code": "OVER_LIMIT", "rule": "per-user",
                    "reason": "counted", "remaining": 0, "what_if": "OVER_LIMIT",
                }],
            }),
            json!({
                "domain": "d", "hits": 0, "code": "OK",
                "descriptors": [{
                    "entries": entries, "limit": { "requests_per_unit": 5, "unit": "minute" },
                    "code": "OK", "reason": "override", "remaining": 4,
                }],
            }),
            json!({
                "domain": "e", "hits": 0, "code": "OK",
                "descriptors": [{
                    "entries": entries, "hits": 0, "code": "OK", "reason": "unknown_domain",
                }],
            }),
        ];
        for (line, expected) in lines.iter().zip(&expected) {
            let mut line = line.clone();
            line.as_object_mut().expect("a map").remove("at");
            assert_eq!(&line, expected);
        }
        let job = &lines[4]["descriptors"][0];
        assert_eq!((&job["rule"], &job["entries"]), (&"job".into(), &json!([["job", ""]])));
        assert_eq!(job["lease"].as_str().map(str::len), Some(16), "{job}");
    });
}

/// The metrics count what the log has and lacks, and a sample of 0 has nothing.
#[test]
fn the_log_can_be_narrowed() {
    for (name, value, lines) in [
        ("WEIR__LOG__DECISIONS__ONLY", "denied", 3),
        ("WEIR__LOG__DECISIONS__SAMPLE", "0", 0),
        ("WEIR__LOG__DECISIONS__MAX_PER_SECOND", "1000000", 5),
    ] {
        within_an_hour(|| {
            let (setup, path) = with_log();
            let mut weir = setup.env(name, value).start();
            let client = weir.client();
            for _ in 0..5 {
                client.check(request("d", vec![descriptor(&[("user", "ann")])]));
            }
            let written = || weir.metric("weir_decision_log_lines_total", &[]);
            until("the lines are written", || written() == lines);
            let causes = ["rate", "queue", "size", "write"];
            for cause in causes.map(|cause| format!("cause=\"{cause}\"")) {
                let labels = [cause.as_str()];
                assert_eq!(weir.metric("weir_decision_log_dropped_total", &labels), 0, "{cause}");
            }
            let all = lines_at_the_end(&mut weir, &path);
            assert_eq!(all.len() as u64, lines);
            let denied = all.iter().filter(|line| line["code"] == "OVER_LIMIT").count();
            assert_eq!(denied as u64, lines.min(3));
        });
    }
}

#[test]
fn lines_over_the_rate_are_counted() {
    let (setup, path) = with_log();
    let mut weir = setup.env("WEIR__LOG__DECISIONS__MAX_PER_SECOND", "1").start();
    let client = weir.client();
    for _ in 0..200 {
        client.check(request("d", vec![descriptor(&[("user", "ann")])]));
    }
    let dropped = || weir.metric("weir_decision_log_dropped_total", &["cause=\"rate\""]);
    let written = || weir.metric("weir_decision_log_lines_total", &[]);
    until("each request is counted", || written() + dropped() == 200);
    let written = written();
    let lines = lines_at_the_end(&mut weir, &path);
    let second = |line: &Value| Some(line["at"].as_u64()? / 1_000_000);
    let mut seconds: Vec<u64> = lines.iter().filter_map(second).collect();
    seconds.dedup();
    assert_eq!((lines.len() as u64, seconds.len() as u64), (written, written), "one per second");
}

/// Values of clients cannot add lines, and values of rules stay plain with `hashed`.
#[test]
fn hostile_and_secret_values_stay_in_their_line() {
    let hostile = ["a\n{\"at\":1}", "\u{2028}\u{0}\u{1b}[31m", "\"},{\"", "\\", "grün \u{1f600}"];
    let (setup, path) = with_log();
    let mut weir = setup.start();
    for value in hostile {
        weir.client().check(request(value, vec![descriptor(&[(value, value)])]));
    }
    let lines = lines_at_the_end(&mut weir, &path);
    for (line, value) in lines.iter().zip(hostile) {
        assert_eq!(line["domain"], value);
        assert_eq!(line["descriptors"][0]["entries"], json!([[value, value]]));
    }
    assert_eq!(lines.len(), hostile.len());

    let (setup, path) = with_log();
    let mut weir = setup.env("WEIR__LOG__DECISIONS__VALUES", "hashed").start();
    for user in ["secret-a", "secret-a", "secret-b"] {
        weir.client().check(request("d", vec![descriptor(&[("plan", "free"), ("user", user)])]));
    }
    let lines = lines_at_the_end(&mut weir, &path);
    let values: Vec<_> =
        lines.iter().map(|line| line["descriptors"][0]["entries"].clone()).collect();
    assert_eq!((&values[0], &values[0][0]), (&values[1], &json!(["plan", "free"])));
    assert_ne!(values[0][1], values[2][1]);
    let text = std::fs::read_to_string(&path).expect("the log");
    assert!(!text.contains("secret"), "{text}");
}

#[test]
fn standard_output_has_the_lines_too() {
    let setup = Weir::setup().rules("d.yaml", RULES).env("WEIR__DRAIN__DELAY", "0s");
    let mut weir = setup.env("WEIR__LOG__DECISIONS__PATH", "stdout").start();
    weir.client().check(request("d", vec![descriptor(&[("user", "ann")])]));
    let line = weir.process().wait_for("the decision", |line| {
        let line: Value = serde_json::from_str(line).ok()?;
        line.get("at").is_some().then_some(line)
    });
    assert_eq!(line["descriptors"][0]["rule"], "per-user", "{line}");
}

/// A full file is renamed, and both files have whole lines.
#[test]
fn a_full_file_gets_another_name() {
    let (setup, path) = with_log();
    let mut weir = setup.env("WEIR__LOG__DECISIONS__MAX_BYTES", "1048576").start();
    let client = weir.client();
    let large = "x".repeat(60_000);
    for number in 0..20 {
        let value = format!("{number}{large}");
        client.check(request("d", vec![descriptor(&[("user", &value)])]));
    }
    let new = lines_at_the_end(&mut weir, &path);
    let old = path.with_file_name("decisions.log.1");
    let length = std::fs::metadata(&old).expect("the full file").len();
    assert!((950_000..=1_048_576).contains(&length), "{length}");
    let all: Vec<Value> = [read(&old), new].concat();
    assert_eq!(all.len(), 20);
    for (number, line) in all.iter().enumerate() {
        let value = line["descriptors"][0]["entries"][0][1].as_str().expect("a text");
        assert_eq!(value.trim_end_matches('x'), number.to_string());
    }
}
