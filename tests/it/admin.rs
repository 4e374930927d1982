//! The admin listener: the pages for operators.

use crate::support::http::get;
use crate::support::rls::{costing, descriptor, request};
use crate::support::weir::Weir;
use crate::support::window_edge::within_an_hour;

const RULES: &str = "
domain: d
descriptors:
  - key: user
    rate_limit: { name: per-user, unit: hour, requests_per_unit: 2 }
  - key: user
    value: root
    rate_limit: { unlimited: true }
";

#[test]
fn metrics_count_decisions_per_rule_not_per_value() {
    within_an_hour(|| {
        let weir = Weir::start(RULES);
        let client = weir.client();
        for user in ["annika", "annika", "annika", "bobby"] {
            client.check(request("d", vec![descriptor(&[("user", user)])]));
        }
        client.check(request("elsewhere", vec![descriptor(&[("user", "ann")])]));
        let _ = client.try_check(request("", vec![descriptor(&[("user", "ann")])]));

        let answer = get(weir.admin, "/metrics");
        assert_eq!(answer.status, 200);
        let kind = answer.header("content-type").unwrap_or_default();
        assert!(kind.starts_with("text/plain"), "{kind}");
        for sample in [
            r#"weir_requests_total{code="ok"} 4"#,
            r#"weir_requests_total{code="over_limit"} 1"#,
            r#"weir_requests_total{code="invalid"} 1"#,
            r#"weir_decisions_total{domain="d",rule="per-user",outcome="within"} 2"#,
            r#"weir_decisions_total{domain="d",rule="per-user",outcome="near"} 1"#,
            r#"weir_decisions_total{domain="d",rule="per-user",outcome="over"} 1"#,
            r#"weir_hits_total{domain="d",rule="per-user",outcome="over"} 1"#,
            r#"weir_uncounted_descriptors_total{cause="unknown_domain"} 1"#,
        ] {
            assert!(answer.body.lines().any(|line| line == sample), "no {sample}: {}", answer.body);
        }
        for value in ["annika", "bobby"] {
            assert!(!answer.body.contains(value), "{value} is in the metrics");
        }
    });
}

#[test]
fn rules_shows_what_is_loaded_and_from_where() {
    let weir = Weir::start(RULES);
    let page = get(weir.admin, "/rules").json();
    assert_eq!(page["files"][0]["domain"], "d");
    assert_eq!(page["files"][0]["rules"], 2);
    let path = page["files"][0]["path"].as_str().expect("a path");
    assert!(path.ends_with("rules.yaml"), "{path}");
    assert!(page["loaded_at"].is_string(), "{page}");
    for nothing in [&page["last_error"], &page["xds_error"], &page["files"][0]["version"]] {
        assert!(nothing.is_null(), "{page}");
    }
    assert_eq!(page["warnings"], serde_json::json!([]));
}

#[test]
fn rules_shows_why_nothing_is_loaded() {
    let bad = "domain: d\ndescriptors:\n  - ky: x\n";
    let setup = Weir::setup().rules("bad.yaml", bad);
    let weir = setup.env("WEIR__RULES__START_WITHOUT_RULES", "true").start();
    let page = get(weir.admin, "/rules").json();
    let error = page["last_error"].as_str().expect("an error");
    assert!(error.contains("bad.yaml:3:5"), "{error}");
}

#[test]
fn rlconfig_has_envoy_ratelimit_line_per_limit() {
    let weir = Weir::start(RULES);
    let page = get(weir.admin, "/rlconfig");
    assert_eq!(page.status, 200);
    let mut lines: Vec<&str> = page.body.lines().filter(|line| !line.is_empty()).collect();
    lines.sort_unstable();
    let limit = "d.user: unit=HOUR requests_per_unit=2, shadow_mode: false, quota_mode: false";
    assert!(lines[0].starts_with(limit), "{lines:?}");
    assert!(lines[1].starts_with("d.user_root: unit=UNKNOWN requests_per_unit=0"), "{lines:?}");
    assert_eq!(lines.len(), 2);
}

#[test]
fn settings_shows_active_values_and_no_secret() {
    let setup = Weir::setup().rules("d.yaml", RULES).env("WEIR__RESPONSE__HEADERS", "ietf");
    let weir = setup.env("WEIR__REDIS__URL", "redis://:hunter2@127.0.0.1:6379").start();
    let page = get(weir.admin, "/settings");
    assert_eq!(page.status, 200);
    assert_eq!(page.json()["response"]["headers"], "ietf");
    assert!(!page.body.contains("hunter2"), "{}", page.body);
}

#[test]
fn admin_pages_count_no_hits() {
    within_an_hour(|| {
        let weir = Weir::start(RULES);
        for page in ["/metrics", "/rules", "/rlconfig", "/settings", "/nonsense"] {
            get(weir.admin, page);
        }
        let user = || descriptor(&[("user", "ann")]);
        let answer = weir.client().check(request("d", vec![costing(0, user())]));
        assert_eq!(answer.statuses[0].limit_remaining, 2);
    });
}
