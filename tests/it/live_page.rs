//! The live page: the state of the process, the activity of rules, and the page.

use serde_json::{Value, json};

use crate::support::http::{get, get_with, send};
use crate::support::rls::{descriptor, request};
use crate::support::wait::until;
use crate::support::weir::{Weir, write};

mod stream;

const RULES: &str = "
domain: d
descriptors:
  - key: user
    rate_limit: { name: per-user, unit: hour, requests_per_unit: 1 }
  - key: idle
    rate_limit: { unit: hour, requests_per_unit: 1 }
";

fn call(weir: &Weir, value: &str) {
    weir.client().check(request("d", vec![descriptor(&[("user", value)])]));
}

/// The parts of the problems.
fn parts(status: &Value) -> Vec<String> {
    let problems = status["problems"].as_array().expect("problems").iter();
    problems.map(|problem| problem["part"].as_str().expect("a part").to_owned()).collect()
}

#[test]
fn a_healthy_instance_has_no_problems() {
    let weir = Weir::start(RULES);
    let status = get(weir.admin, "/status").json();
    assert_eq!(status["problems"], json!([]), "{status}");
    assert_eq!(
        (&status["health"], &status["store"]["kind"]),
        (&json!("serving"), &json!("memory"))
    );
    assert_eq!((&status["rules"]["rules"], &status["viewers"]), (&json!(2), &json!(0)));
    for nothing in [&status["xds"], &status["plans"], &status["rules"]["last_error"]] {
        assert!(nothing.is_null(), "{status}");
    }
}

#[test]
fn each_problem_says_what_to_do() {
    let setup = Weir::setup().rules("rules.yaml", RULES).env("WEIR__STORE__KIND", "redis");
    let weir = setup.env("WEIR__REDIS__URL", "redis://:hunter2@127.0.0.1:1").start();
    write(&weir.rules_folder().join("bad.yaml"), "domain: d\ndescriptors:\n  - ky: \u{202e}x\n");
    let parts_now = || parts(&get(weir.admin, "/status").json());
    until("the refused rules", || parts_now().contains(&"rules".to_owned()));
    let page = get(weir.admin, "/status");
    let status = page.json();
    assert!(parts(&status).contains(&"redis".to_owned()), "{status}");
    assert!(!page.body.contains("hunter2"), "{status}");
    for problem in status["problems"].as_array().expect("problems") {
        let text = problem["text"].as_str().expect("a text");
        assert!(["check", "correct"].iter().any(|fix| text.contains(fix)), "{text}");
        assert!(!text.contains('\u{202e}') && !text.contains('\n'), "{text:?}");
    }
    assert_eq!(status["store"]["reachable"], false);
}

/// The history of an unchanged rule stays over a reload.
#[test]
fn activity_has_ticks_over_a_reload() {
    let weir = Weir::start(RULES);
    let activity = |query: &str| get(weir.admin, &format!("/activity{query}")).json();
    let named = activity("?rule=idle");
    assert_eq!((&named["total"], &named["rules"][0]["rule"]), (&json!(1), &json!("idle")));
    assert_eq!(named["rules"][0]["rates"]["hits"], 0.0);
    for (query, total, name) in [
        ("?rule=user", 1, Some("per-user")),
        ("?rule=per-user&domain=d", 1, Some("per-user")),
        ("?rule=user&domain=d", 1, Some("per-user")),
        ("?rule=user&domain=e", 0, None),
        ("?rule=users&domain=d", 0, None),
        ("?rule=users", 0, None),
        ("?order=name&domain=d&limit=1", 2, Some("idle")),
    ] {
        let shown = activity(query);
        assert_eq!((&shown["total"], shown["rules"][0]["rule"].as_str()), (&json!(total), name));
    }
    (0..3).for_each(|_| call(&weir, "ann"));
    let denied = |page: &Value| -> u64 {
        let ticks = page["rules"][0]["history"]["over"].as_array();
        ticks.into_iter().flatten().filter_map(Value::as_u64).sum()
    };
    until("a tick", || denied(&activity("")) == 2);
    let page = activity("");
    assert_eq!((&page["total"], page["rules"].as_array().map(Vec::len)), (&json!(2), Some(1)));
    let rule = &page["rules"][0];
    assert_eq!((&rule["domain"], &rule["rule"]), (&json!("d"), &json!("per-user")));
    assert_eq!((&rule["selector"], &rule["limit"]), (&json!("user"), &json!("1 per 1h")));
    for name in ["within", "near", "over", "fallback"] {
        assert_eq!(rule["history"][name].as_array().map(Vec::len), Some(60), "{name}");
    }
    assert!(page["until"].is_string(), "{page}");
    let more = "domain: e\ndescriptors:\n  - { key: k, rate_limit: { unlimited: true } }\n";
    write(&weir.rules_folder().join("a.yaml"), more);
    until("the reload", || activity("")["total"] == 3);
    assert_eq!(denied(&activity("")), 2, "the history stays");
    assert_eq!(activity("?domain=e&order=name")["rules"][0]["algorithm"], "unlimited");
    assert_eq!(activity("?domain=none")["rules"], json!([]));
    assert_eq!(get(weir.admin, "/activity?order=size").status, 400);
}

/// What a browser sends.
const ACCEPT: (&str, &str) = ("accept", "text/html,application/xhtml+xml,*/*;q=0.8");

#[test]
fn the_page_has_strict_headers() {
    let weir = Weir::start(RULES);
    let page = get_with(weir.admin, "/", &[ACCEPT]);
    let script = get(weir.admin, "/ui/app.js");
    assert!(page.body.starts_with("<!doctype html>"), "{}", page.body);
    for answer in [&page, &script] {
        let header = |name: &str| answer.header(name).unwrap_or_default();
        assert_eq!(answer.status, 200);
        let policy = header("content-security-policy");
        assert!(policy.contains("default-src 'none'; script-src 'self'"), "{policy}");
        assert!(
            !policy.contains("unsafe") && policy.contains("frame-ancestors 'none'"),
            "{policy}"
        );
        for (name, value) in [
            ("cache-control", "no-cache"),
            ("x-content-type-options", "nosniff"),
            ("referrer-policy", "no-referrer"),
            ("cross-origin-opener-policy", "same-origin"),
            ("cross-origin-resource-policy", "same-origin"),
        ] {
            assert_eq!(header(name), value, "{name}");
        }
    }
    let tag = script.header("etag").expect("a tag");
    assert_eq!(get_with(weir.admin, "/ui/app.js", &[("if-none-match", &tag)]).status, 304);
    let head = send(weir.admin, "HEAD", "/ui/app.js", &[], b"");
    assert_eq!((head.status, head.header("etag"), head.body.as_str()), (200, Some(tag), ""));
    assert!(get(weir.admin, "/").body.contains("/metrics "), "the index, for curl");
    assert_eq!(get_with(weir.admin, "/", &[ACCEPT, ("host", "attacker.example")]).status, 403);
}

#[test]
fn the_page_can_be_switched_off() {
    let weir = Weir::setup().rules("r.yaml", RULES).env("WEIR__ADMIN__PAGE", "false").start();
    assert!(get_with(weir.admin, "/", &[ACCEPT]).body.contains("/metrics "));
    for path in ["/ui/app.js", "/live"] {
        let answer = get(weir.admin, path);
        assert_eq!(answer.status, 404);
        assert!(answer.body.contains("admin.page"), "{}", answer.body);
    }
}
