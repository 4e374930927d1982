//! `/explain`, `/counters` and `/top` name one counter alike, and `weir explain` asks a running
//! service.

use std::path::Path;

use serde_json::{Value, json};

use crate::support::http::{get, post};
use crate::support::rls::{descriptor, request};
use crate::support::weir::Weir;
use crate::support::weir::cli::{Run, run};
use crate::support::window_edge::within_an_hour;

mod buckets;

const RULES: &str = "
domain: d
descriptors:
  - key: user
    rate_limit: { name: per-user, unit: hour, requests_per_unit: 1 }
  - key: path
    value: /login
    descriptors:
      - key: ip
        value_cidr: 10.0.0.0/8
        rate_limit: { name: login, unit: hour, requests_per_unit: 5 }
";

const ANN: &str = "/counters?domain=d&descriptor=user=ann";

/// A service whose counter of `user=ann` is full after two calls.
fn full() -> Weir {
    let weir = Weir::start(RULES);
    let client = weir.client();
    for _ in 0..2 {
        client.check(request("d", vec![descriptor(&[("user", "ann")])]));
    }
    weir
}

fn explain(weir: &Weir, text: &str) -> Value {
    let body = json!({ "domain": "d", "descriptor": text });
    post(weir.admin, "/explain", body.to_string()).json()["explanations"][0].clone()
}

#[test]
fn one_hash_names_a_counter_on_every_page() {
    within_an_hour(|| {
        let weir = full();
        let top = get(weir.admin, "/top").json()["top"][0].clone();
        assert_eq!(top["denied_hits"], 1, "{top}");
        let hash = &top["counter"];
        assert!(hash.is_string(), "{top}");
        assert_eq!(&get(weir.admin, ANN).json()["counter"], hash);
        assert_eq!(&explain(&weir, "user=ann")["counter"], hash);
        assert_ne!(&explain(&weir, "user=bob")["counter"], hash);
        assert!(explain(&weir, "other=x")["counter"].is_null());
    });
}

#[test]
fn a_counter_shows_the_most_important_first() {
    within_an_hour(|| {
        let weir = full();
        let body = get(weir.admin, ANN).body;
        let start = r#"{"domain":"d","rule":"per-user","selector":"user","denied":true,"#;
        let rest = body.strip_prefix(start).unwrap_or_else(|| panic!("{body}"));
        let rest = rest.strip_prefix("\"denied_until\":\"").unwrap_or_else(|| panic!("{body}"));
        let until = rest.split('"').next().unwrap_or_default();
        assert!(until.ends_with(":00:00Z"), "the window ends with the hour: {body}");
        let bob = get(weir.admin, "/counters?domain=d&descriptor=user=bob").body;
        let start = r#""denied":false,"denied_until":null,"tiers":[{"used":0,"requests":1,"#;
        assert!(bob.contains(start), "{bob}");
    });
}

#[test]
fn explain_accepts_each_name_of_a_rule() {
    let weir = Weir::start(RULES);
    let selector = "path=/login,ip=cidr:10.0.0.0/8";
    for text in ["login", selector, "path=/login,ip=10.1.2.3"] {
        let outcome = &explain(&weir, text)["outcome"];
        assert_eq!(outcome["rule"], "login", "{text}: {outcome}");
        assert_eq!(outcome["selector"], selector, "{text}: {outcome}");
    }
    let body = json!({ "domain": "d", "descriptor": "nothing" });
    let answer = post(weir.admin, "/explain", body.to_string());
    assert_eq!(answer.status, 400);
    assert!(answer.body.contains("or the name of a rule"), "{}", answer.body);
}

#[test]
fn get_of_explain_says_that_post_is_needed() {
    let weir = Weir::start(RULES);
    let answer = get(weir.admin, "/explain");
    assert_eq!((answer.status, answer.header("allow").as_deref()), (405, Some("POST")));
    let error = answer.json()["error"].as_str().unwrap_or_default().to_owned();
    assert!(error.contains("use POST with the body"), "{error}");
}

fn explain_command(args: &[&str]) -> Run {
    run(Path::new("."), &[&["explain", "--domain", "d"][..], args].concat())
}

#[test]
fn weir_explain_asks_a_running_service() {
    within_an_hour(|| {
        let weir = full();
        let address = format!("http://{}", weir.admin);
        let ann = explain_command(&["--addr", &address, "user=ann"]);
        assert_eq!(ann.code, Some(0), "{ann:?}");
        let top = get(weir.admin, "/top").json()["top"][0].clone();
        let hash = format!("\nhash    {}, as at /top\n", top["counter"].as_str().expect("a hash"));
        let name = "\n        selector user\n";
        for part in ["\nrule    per-user (", name, &hash, "\nstate   2 used, 0 of 1 remaining"] {
            assert!(ann.stdout.contains(part), "no {part:?}: {ann:?}");
        }
        assert!(ann.stdout.contains("denied until "), "{ann:?}");
        let named = explain_command(&["--addr", &address, "login"]);
        assert!(named.stdout.contains("selector path=/login,ip=cidr:10.0.0.0/8\n"), "{named:?}");
        let none = explain_command(&["--addr", &address, "nothing"]);
        assert_eq!(none.code, Some(64), "{none:?}");
        assert!(none.stderr.contains("or the name of a rule"), "{none:?}");
    });
    // No process listens on port 1 of loopback.
    let nowhere = explain_command(&["--addr", "http://127.0.0.1:1", "user=ann"]);
    assert_eq!(nowhere.code, Some(69), "{nowhere:?}");
    assert!(nowhere.stderr.contains("no admin port answers at 127.0.0.1:1"), "{nowhere:?}");
}

/// `--json` prints one object; a wrong port and a missing token say what to do.
#[test]
fn explain_prints_json_and_friendly_errors() {
    let weir = Weir::setup().rules("d.yaml", RULES).env("WEIR__ADMIN__TOKEN", "s3cret").start();
    let address = format!("http://{}", weir.admin);
    let open = explain_command(&["--addr", &address, "--json", "user=ann"]);
    let shown: Value = serde_json::from_str(&open.stdout).expect("one object");
    let error = shown["explanations"][0]["state"]["error"].as_str().unwrap_or_default();
    assert!(error.contains("with --token-file (HTTP status 403)"), "{shown}");
    let token = tempfile::NamedTempFile::new().expect("a temporary file");
    std::fs::write(token.path(), "s3cret\n").expect("it can be written");
    let token = token.path().display().to_string();
    let args = ["--addr", &address, "--token-file", &token, "--json", "user=ann"];
    let shown: Value = serde_json::from_str(&explain_command(&args).stdout).expect("one object");
    assert_eq!(shown["explanations"][0]["state"]["tiers"][0]["requests"], 1, "{shown}");
    for (port, words) in [(weir.grpc, "name the admin port"), (weir.http, "name the admin port")] {
        let wrong = explain_command(&["--addr", &format!("http://{port}"), "user=ann"]);
        assert_eq!(wrong.code, Some(69), "{wrong:?}");
        assert!(wrong.stderr.contains(words), "{wrong:?}");
    }
    let tls = explain_command(&["--addr", "https://127.0.0.1:6070", "user=ann"]);
    assert_eq!(tls.code, Some(2), "{tls:?}");
    assert!(tls.stderr.contains("write http://127.0.0.1:6070"), "{tls:?}");
}
