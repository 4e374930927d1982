//! What operators see of limits that RLQS divides: `/quotas` and the metrics.

use std::path::Path;

use serde_json::{Value, json};

use crate::support::http::{get, post};
use crate::support::rlqs::{SmallEnvoy, bucket};
use crate::support::rls::{descriptor, request};
use crate::support::wait::until;
use crate::support::weir::Weir;
use crate::support::weir::cli::run;

const RULES: &str = "
domain: d
descriptors:
  - key: tenant
    rate_limit: { name: per-tenant, unit: second, requests_per_unit: 100 }
";

/// A weir that assigns at once after its start.
fn serving() -> Weir {
    Weir::setup().rules("d.yaml", RULES).env("WEIR__RLQS__RELEARN", "false").start()
}

fn quotas(weir: &Weir, query: &str) -> Value {
    let answer = get(weir.admin, &format!("/quotas{query}"));
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.json()
}

/// The kinds of the holders of a quota, in alphabetical order.
fn kinds(quota: &Value) -> Vec<&str> {
    let holders = quota["holders"].as_array().into_iter().flatten();
    let mut kinds: Vec<&str> = holders.filter_map(|holder| holder["kind"].as_str()).collect();
    kinds.sort_unstable();
    kinds
}

#[test]
fn quotas_shows_the_share_of_each_holder() {
    let weir = serving();
    assert_eq!(quotas(&weir, ""), json!({ "total": 0, "quotas": [] }));
    let envoy = SmallEnvoy::named(weir.grpc, "d", Some("gateway-1"));
    let tenant = bucket(&[("tenant", "a")]);
    envoy.demand(&tenant, 50.0);
    envoy.until_rate(&tenant, |rate| rate > 0.0);
    let page = quotas(&weir, "");
    let quota = &page["quotas"][0];
    assert_eq!((&page["total"], &quota["holder_count"]), (&json!(1), &json!(1)), "{page}");
    assert_eq!((&quota["domain"], &quota["rule"]), (&json!("d"), &json!("per-tenant")), "{page}");
    assert_eq!((&quota["requests"], &quota["window_seconds"]), (&json!(100), &json!(1.0)));
    let counter = get(weir.admin, "/counters?domain=d&descriptor=tenant=a").json();
    assert_eq!(quota["key"], counter["key"], "{page}");
    let holder = &quota["holders"][0];
    assert_eq!((&holder["holder"], &holder["kind"]), (&json!("gateway-1"), &json!("envoy")));
    let [share, rate] = ["share", "per_second"].map(|name| holder[name].as_f64().expect("both"));
    assert!(share > 0.0 && share <= 1.0 && (rate - 100.0 * share).abs() < 1e-6, "{page}");

    let body = json!({ "domain": "d", "descriptor": "tenant=a" }).to_string();
    let tried = post(weir.admin, "/try", body).json();
    let note = tried["descriptors"][0]["note"].as_str().expect("a note");
    assert!(note.starts_with("RLQS divides this limit"), "{note}");
    // Without a share, the fallback decides, or the counter.
    assert!(note.contains("the share of this instance usually decides"), "{note}");
    assert_eq!(get(weir.admin, "/counters?domain=d&descriptor=tenant=a").json()["note"], note);
    explain_has_the_note(&weir, note);
    assert_eq!(kinds(&quotas(&weir, "")["quotas"][0]), ["envoy"], "a trial makes no holder");

    // The first call makes this instance a holder as well.
    weir.client().check(request("d", vec![descriptor(&[("tenant", "a")])]));
    let page = quotas(&weir, "");
    assert_eq!(kinds(&page["quotas"][0]), ["envoy", "local"], "{page}");
    // The driver counts them four times a second.
    until("the local holder", || weir.metric("weir_rlqs_local_holders", &[]) == 1);
    for (name, value) in [
        ("weir_rlqs_streams", 1),
        ("weir_rlqs_buckets", 1),
        ("weir_rlqs_quotas", 1),
        ("weir_rlqs_violations_total", 0),
    ] {
        assert_eq!(weir.metric(name, &[]), value, "{name}");
    }
    let of_rule = [r#"domain="d""#, r#"rule="per-tenant""#, r#"result="allowed""#];
    until("a report with requests", || weir.metric("weir_rlqs_requests_total", &of_rule) > 0);
}

/// `weir explain` asks for the state of a bucket's counter, which does not decide.
fn explain_has_the_note(weir: &Weir, note: &str) {
    let address = format!("http://{}", weir.admin);
    let asked = ["explain", "--addr", &address, "--domain", "d", "--bucket", "tenant=a"];
    let words = run(Path::new("."), &asked);
    assert!(words.stdout.contains(&format!("\nnote    {note}\n")), "{words:?}");
    let json = run(Path::new("."), &[&asked[..], &["--json"]].concat());
    let shown: Value = serde_json::from_str(&json.stdout).expect("one object");
    assert_eq!(shown["explanations"][0]["state"]["note"], note, "{shown}");
}

#[test]
fn quotas_begins_with_the_largest_demand() {
    let weir = serving();
    let envoy = SmallEnvoy::start(weir.grpc, "d");
    for (tenant, demand) in [("a", 5.0), ("b", 90.0), ("c", 20.0)] {
        envoy.demand(&bucket(&[("tenant", tenant)]), demand);
    }
    let demands = |page: &Value| -> Vec<f64> {
        let quotas = page["quotas"].as_array().into_iter().flatten();
        quotas.filter_map(|quota| quota["demand_per_second"].as_f64()).collect()
    };
    until("three demands", || {
        demands(&quotas(&weir, "")).iter().filter(|one| **one > 0.0).count() == 3
    });
    let page = quotas(&weir, "?limit=2");
    assert_eq!(page["total"], 3, "{page}");
    let shown = demands(&page);
    assert!(shown.len() == 2 && shown[0] > shown[1], "{page}");
    drop(envoy);
    until("reserved shares of all three", || {
        let body = get(weir.admin, "/metrics").body;
        let has = |line: &str| body.contains(&format!("{line}\n"));
        has(r#"weir_rlqs_reserved_per_second{domain="d",rule="per-tenant"} 300"#)
            && has(r#"weir_rlqs_share_in_use{domain="d",rule="per-tenant"} 1"#)
    });
    assert_eq!(quotas(&weir, "")["quotas"][2]["reserved"], 1.0);
}

/// Calls are decided by their counters, and there is nothing to show.
#[test]
fn without_rlqs_there_are_no_quotas() {
    let weir = Weir::setup().rules("d.yaml", RULES).env("WEIR__RLQS__ENABLED", "false").start();
    assert_eq!(quotas(&weir, ""), json!({ "total": 0, "quotas": [] }));
    assert!(!get(weir.admin, "/metrics").body.contains("weir_rlqs_"));
    let envoy = SmallEnvoy::start(weir.grpc, "d");
    envoy.demand(&bucket(&[("tenant", "a")]), 10.0);
    until("the end of the stream", || !envoy.ended().is_empty());
    assert_eq!(envoy.ended()[0].0, tonic::Code::Unimplemented);
}
