//! Lines about requests in the log: by settings, by rules, and for a time by `PUT /log`.

use serde_json::{Value, json};

use crate::support::http::{Response, get, get_with, post, send};
use crate::support::rls::{Client, descriptor, request};
use crate::support::wait::until;
use crate::support::weir::{Setup, Weir, write};
use crate::support::window_edge::within_an_hour;

const RULES: &str = "
domain: d
descriptors:
  - key: user
    rate_limit: { name: per-user, unit: hour, requests_per_unit: 1 }
  - key: api_key
    rate_limit: { unit: hour, requests_per_unit: 1 }
  - key: open
    rate_limit: { unlimited: true }
";

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

const OK: i32 = 1;
const OVER: i32 = 2;

fn setup() -> Setup {
    Weir::setup().rules("d.yaml", RULES).env("WEIR__DRAIN__DELAY", "0s")
}

fn hit(client: &Client, key: &str, value: &str) -> i32 {
    client.check(request("d", vec![descriptor(&[(key, value)])])).overall_code
}

/// The first log line with this message.
fn logged(weir: &mut Weir, message: &str) -> Value {
    weir.process().wait_for(message, |line| {
        let line: Value = serde_json::from_str(line).ok()?;
        (line["message"] == message).then_some(line)
    })
}

/// The log lines about requests so far.
fn request_lines(weir: &mut Weir) -> Vec<Value> {
    let output = weir.process().output();
    let lines = output.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let messages = ["request denied", "request decided"];
    lines.filter(|line| messages.iter().any(|message| line["message"] == *message)).collect()
}

fn put(weir: &Weir, body: &Value) -> Response {
    send(weir.admin, "PUT", "/log", &[], body.to_string().as_bytes())
}

#[test]
fn a_denied_request_has_one_telling_line() {
    within_an_hour(|| {
        let mut weir = setup().env("WEIR__LOG__REQUESTS", "denied").start();
        let client = weir.client();
        let ann =
            || request("d", vec![descriptor(&[("open", "x")]), descriptor(&[("user", "ann")])]);
        let parent = format!("00-{TRACE}-00f067aa0ba902b7-01");
        assert_eq!(client.check_traced(&parent, ann()).overall_code, OK);
        assert_eq!(client.check_traced(&parent, ann()).overall_code, OVER);
        let line = logged(&mut weir, "request denied");
        assert_eq!(request_lines(&mut weir).len(), 1, "the first request passed");
        for (field, value) in [
            ("level", json!("INFO")),
            ("domain", json!("d")),
            ("rule", json!("per-user")),
            ("selector", json!("user")),
            ("code", json!("OVER_LIMIT")),
            ("request", json!("OVER_LIMIT")),
            ("reason", json!("counted")),
            ("hits", json!(1)),
            ("limit", json!(1)),
            ("used", json!(2)),
            ("remaining", json!(0)),
            ("trace_id", json!(TRACE)),
        ] {
            assert_eq!(line[field], value, "{field}: {line}");
        }
        let left = line["reset_after_seconds"].as_f64().expect("a number");
        assert!(left > 0.0 && left <= 3_600.0, "{line}");
        // The values are hashed, and the counter has the hash of the other tools.
        assert!(!line.to_string().contains("ann"), "{line}");
        let shown = line["descriptor"].as_str().expect("a text");
        assert!(shown.starts_with("user=hash:") && shown.len() == 10 + 32, "{line}");
        let all = line["descriptors"].as_str().expect("a text");
        assert!(all.starts_with("open=hash:") && all.ends_with(&format!("; {shown}")), "{line}");
        let question = json!({ "domain": "d", "descriptor": "user=ann" }).to_string();
        let explained = post(weir.admin, "/explain", question).json();
        assert_eq!(explained["explanations"][0]["counter"], line["counter"], "{line}");
        assert_eq!(weir.metric("weir_request_log_lines_total", &[]), 1);
    });
}

/// No value can add a line, reorder one or make one long, and keys of secrets are hashed.
#[test]
fn hostile_values_and_secrets_are_harmless() {
    let plain = setup().env("WEIR__LOG__REQUESTS", "all").env("WEIR__LOG__REQUEST_VALUES", "plain");
    let mut weir = plain.start();
    let client = weir.client();
    let long = "y".repeat(8_000);
    let hostile = ["a\nb", "\u{202e}x\u{7}", "<script>alert(1)</script>", &long];
    for value in hostile {
        hit(&client, "user", value);
    }
    hit(&client, "api_key", "hunter2");
    hit(&client, "user", "last");
    weir.process().wait_for("the last", |line| line.contains("user=last").then_some(()));
    let lines = request_lines(&mut weir);
    assert_eq!(lines.len(), hostile.len() + 2);
    let shown: Vec<&str> =
        lines.iter().map(|line| line["descriptor"].as_str().expect("a text")).collect();
    assert_eq!(
        shown[..3],
        [r"user=a\nb", r"user=\u{202e}x\u{7}", "user=<script>alert(1)</script>"]
    );
    assert!(shown[3].len() < 500 && shown[3].ends_with("..."), "{}", shown[3]);
    assert!(shown[4].starts_with("api_key=hash:"), "{}", shown[4]);
    assert!(!weir.process().output().contains("hunter2"));
}

/// The path of a rule may have a secret.
#[test]
fn secrets_of_rules_are_in_no_line() {
    let rule = "{ key: api_key, value: hunter2, rate_limit: { unit: hour, requests_per_unit: 9 } }";
    let rules = format!("domain: d\ndescriptors: [{rule}]\n");
    let mut weir = Weir::setup().rules("d.yaml", &rules).start();
    let body = json!({ "requests": "all", "domain": "d", "rule": "api_key=hunter2", "for": "10m" });
    let begun = put(&weir, &body);
    assert_eq!(begun.status, 200, "{}", begun.body);
    assert_eq!(hit(&weir.client(), "api_key", "hunter2"), OK);
    assert_eq!(send(weir.admin, "DELETE", "/log", &[], b"").status, 200);
    for message in ["request capture started", "request decided", "request capture ended"] {
        let line = logged(&mut weir, message);
        assert_eq!(line["rule"], "api_key=..", "{line}");
    }
    assert!(!weir.process().output().contains("hunter2"));
}

/// Redis does not answer, so that the rule uses its fallback.
#[test]
fn secrets_of_rules_are_in_no_line_about_fallbacks() {
    let rule = "{ key: api_key, value: hunter2, rate_limit: { unit: hour, requests_per_unit: 9 } }";
    let rules = format!("domain: d\ndescriptors: [{rule}]\n");
    let mut weir = Weir::setup()
        .rules("d.yaml", &rules)
        .env("WEIR__LOG__LEVEL", "info,weir::limiter=debug")
        .env("WEIR__STORE__KIND", "redis")
        .env("WEIR__REDIS__URL", "redis://127.0.0.1:1")
        .start();
    hit(&weir.client(), "api_key", "hunter2");
    for message in ["fallback started: the store did not decide", "fallback decided"] {
        assert_eq!(logged(&mut weir, message)["rule"], "api_key=..", "{message}");
    }
    assert!(!weir.process().output().contains("hunter2"));
}

/// The path of a rule and the descriptor of a temporary change may have a secret.
#[test]
fn secrets_are_in_no_line_about_changes() {
    let rule = "{ key: api_key, value: hunter2, rate_limit: { unit: hour, requests_per_unit: 9 } }";
    let rules = format!("domain: d\ndescriptors: [{rule}]\n");
    let mut weir = Weir::setup().rules("d.yaml", &rules).start();
    for target in ["rule", "descriptor"] {
        let body = json!({ "domain": "d", target: "api_key=hunter2", "block": true, "for": "10m" });
        let made = send(weir.admin, "PATCH", "/changes", &[], body.to_string().as_bytes());
        assert_eq!(made.status, 200, "{}", made.body);
        let is_line = |line: &str| {
            let line: Value = serde_json::from_str(line).ok()?;
            (line["message"] == "temporary change made" && line[target] == "api_key=..")
                .then_some(())
        };
        weir.process().wait_for(target, is_line);
    }
    let counter = "/counters?domain=d&descriptor=api_key=hunter2";
    let deleted = send(weir.admin, "DELETE", counter, &[], b"");
    assert_eq!(deleted.status, 200, "{}", deleted.body);
    assert_eq!(logged(&mut weir, "counter deleted by an operator")["rule"], "api_key=..");
    assert!(!weir.process().output().contains("hunter2"));
}

/// A rule asks for lines by itself, and a reload changes that.
#[test]
fn a_rule_chooses_its_lines() {
    within_an_hour(|| {
        let chatty = RULES.replace("unlimited: true", "unlimited: true, log: all");
        let quiet = RULES.replace("name: per-user", "name: per-user, log: off");
        let setup = Weir::setup().rules("d.yaml", &chatty).env("WEIR__LOG__REQUESTS", "denied");
        let mut weir = setup.start();
        let client = weir.client();
        let parent = format!("00-{TRACE}-00f067aa0ba902b7-00");
        client.check_traced(&parent, request("d", vec![descriptor(&[("open", "x")])]));
        let line = logged(&mut weir, "request decided");
        assert_eq!(
            (&line["rule"], &line["reason"]),
            (&json!("open"), &json!("unlimited")),
            "{line}"
        );
        assert_eq!(line["trace_id"], TRACE, "{line}");
        write(&weir.rules_folder().join("d.yaml"), &quiet);
        weir.process().wait_for("the reload", |line| line.contains("rules reloaded").then_some(()));
        assert_eq!([hit(&client, "user", "ann"), hit(&client, "user", "ann")], [OK, OVER]);
        assert_eq!([hit(&client, "api_key", "k"), hit(&client, "api_key", "k")], [OK, OVER]);
        let line = logged(&mut weir, "request denied");
        assert_eq!(line["rule"], "api_key", "{line}");
        assert_eq!(request_lines(&mut weir).len(), 2);
    });
}

#[test]
fn a_capture_logs_requests_for_a_time() {
    within_an_hour(|| {
        let mut weir = setup().start();
        let client = weir.client();
        assert_eq!([hit(&client, "user", "ann"), hit(&client, "user", "ann")], [OK, OVER]);
        let body = json!({ "requests": "denied", "domain": "d", "rule": "user", "for": "10m" });
        let by = [("x-weir-user", "bob@example.org")];
        let begun = send(weir.admin, "PUT", "/log", &by, body.to_string().as_bytes());
        assert_eq!(begun.status, 200, "{}", begun.body);
        let capture = begun.json()["capture"].clone();
        for (field, value) in
            [("rule", "per-user"), ("selector", "user"), ("domain", "d"), ("by", "bob@example.org")]
        {
            assert_eq!(capture[field], value, "{capture}");
        }
        let page = get(weir.admin, "/log").json();
        assert_eq!((&page["requests"], &page["values"]), (&json!("off"), &json!("hashed")));
        assert_eq!(page["captures"], json!([capture]));
        assert_eq!([hit(&client, "user", "ann"), hit(&client, "open", "x")], [OVER, OK]);
        logged(&mut weir, "request denied");
        assert_eq!(request_lines(&mut weir).len(), 1, "only what was asked for");
        let line = logged(&mut weir, "request capture started");
        assert_eq!((&line["by"], &line["seconds"]), (&json!("bob@example.org"), &json!(600)));

        let ended = send(weir.admin, "DELETE", "/log", &[], b"").json();
        assert_eq!(ended["ended"], json!([capture]));
        let line = logged(&mut weir, "request capture ended");
        assert_eq!(line["ended_by"], "127.0.0.1", "{line}");
        assert_eq!(hit(&client, "user", "ann"), OVER);
        assert_eq!(get(weir.admin, "/log").json()["captures"], json!([]));
        assert_eq!(request_lines(&mut weir).len(), 1, "the capture has ended");
        assert_eq!(weir.metric("weir_request_log_captures", &[]), 0);
    });
}

#[test]
fn a_capture_ends_by_itself() {
    let mut weir = setup().start();
    assert_eq!(put(&weir, &json!({ "requests": "all", "for": "1s" })).status, 200);
    let line = logged(&mut weir, "request capture ended");
    assert!(line.get("ended_by").is_none(), "{line}");
    assert_eq!(get(weir.admin, "/log").json()["captures"], json!([]));
    assert_eq!(hit(&weir.client(), "user", "ann"), OK);
    weir.process().terminate();
    weir.process().wait_for_exit();
    assert_eq!(request_lines(&mut weir).len(), 0);
}

#[test]
fn captures_need_the_token_and_a_shown_level() {
    let body = json!({ "requests": "denied", "for": "1m" });
    let weir = setup().env("WEIR__ADMIN__TOKEN", "s3cret").start();
    for wrong in [Vec::new(), vec![("authorization", "Bearer other")]] {
        assert_eq!(get_with(weir.admin, "/log", &wrong).status, 403);
        let put = send(weir.admin, "PUT", "/log", &wrong, body.to_string().as_bytes());
        assert_eq!(put.status, 403);
        assert_eq!(send(weir.admin, "DELETE", "/log", &wrong, b"").status, 403);
    }
    let right = [("authorization", "Bearer s3cret")];
    let put_right = send(weir.admin, "PUT", "/log", &right, body.to_string().as_bytes());
    assert_eq!(put_right.status, 200, "{}", put_right.body);
    // The other lines stay visible, so that the test sees where the service listens.
    let hidden = setup().env("WEIR__LOG__LEVEL", "info,weir::request_log=warn");
    let mut weir = hidden.env("WEIR__LOG__REQUESTS", "all").start();
    let warned = weir.process().output();
    assert!(warned.contains("log.requests has no effect"), "{warned}");
    let refused = put(&weir, &body);
    assert_eq!(refused.status, 409, "{}", refused.body);
    assert!(refused.body.contains("log.level"), "{}", refused.body);
}

#[test]
fn wrong_captures_have_a_status_and_a_fix() {
    let weir = setup().start();
    let large = "x".repeat(20_000);
    for (body, status, why) in [
        ("", 400, "write {"),
        ("\u{0}", 400, "write {"),
        (&*large, 413, "larger than 16384 bytes"),
        (r#"{"requests":"denied"}"#, 400, "`for`"),
        (r#"{"requests":"denied","for":"2h"}"#, 400, "at most 1h"),
        (r#"{"requests":"denied","for":"1m","domain":"x"}"#, 404, "did you mean `d`?"),
        (r#"{"requests":"denied","for":"1m","domain":"d","rule":"users"}"#, 404, "no rule"),
    ] {
        let answer = send(weir.admin, "PUT", "/log", &[], body.as_bytes());
        assert_eq!(answer.status, status, "{body:.80}: {}", answer.body);
        let error = answer.json()["error"].as_str().unwrap_or_default().to_owned();
        assert!(error.contains(why), "{body:.80}: {error}");
    }
}

/// The lines over the bound are counted, and one line a second says how many.
#[test]
fn lines_over_the_bound_are_counted() {
    let bounded = setup().env("WEIR__LOG__REQUESTS", "all");
    let mut weir = bounded.env("WEIR__LOG__REQUESTS_PER_SECOND", "1").start();
    let client = weir.client();
    until("lines are left out", || {
        hit(&client, "open", "x");
        weir.metric("weir_request_log_left_out_total", &[]) > 0
    });
    let message = "request lines left out: over log.requests_per_second; raise it, or log a sample";
    let line = logged(&mut weir, message);
    assert!(line["number"].as_u64().is_some_and(|number| number > 0), "{line}");
}

/// Without a trace of the caller, the line has the id of the span.
#[test]
fn a_line_has_the_trace_of_its_span() {
    let traced = setup().env("WEIR__LOG__REQUESTS", "all").env("WEIR__TRACING__ENABLED", "true");
    let mut weir = traced.env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1").start();
    hit(&weir.client(), "open", "x");
    let line = logged(&mut weir, "request decided");
    let id = line["trace_id"].as_str().expect("an id");
    assert!(id.len() == 32 && id.bytes().any(|byte| byte != b'0'), "{line}");
}
