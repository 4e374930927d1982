//! The answer to each kind of response.

use envoy_types::pb::google::protobuf::Any;

use super::{HOUR, limit, of, one_limit, until_limit};
use crate::support::ads::{
    Ads, RateLimitDescriptor, RateLimitPolicy, RateLimitReplace, limited, named_rules, node, rules,
};
use crate::support::http::{get, post};
use crate::support::wait::until;

/// Rules of domain `b`, which has the mistakes.
fn mistaken(descriptor: RateLimitDescriptor) -> Vec<Any> {
    let mut resources = one_limit(9);
    resources.push(rules("b", vec![descriptor]));
    resources
}

/// What envoyproxy/ratelimit accepts, and the limit of key `k` that follows. Two siblings with the same
/// key and value, which Envoy Gateway makes from valid policies, are merged instead of rejected.
#[test]
fn valid_responses_are_accepted() {
    let ads = Ads::start();
    let weir = of(&ads).start();
    let client = weir.client();
    let siblings = |below: &str| node("c", "10.0.0.0/8", vec![limited(below, HOUR, 4)]);
    let table: [(&str, Vec<Any>, u32); 6] = [
        ("1", one_limit(5), 5),
        // The same version with other content.
        ("1", one_limit(6), 6),
        ("2", one_limit(6), 6),
        ("3", Vec::new(), 0),
        ("4", vec![rules("a", vec![siblings("x"), siblings("y"), limited("k", HOUR, 7)])], 7),
        // Another order of the same resources.
        ("5", [vec![rules("z", vec![limited("k", HOUR, 1)])], one_limit(8)].concat(), 8),
    ];
    for (index, (version, resources, wanted)) in table.into_iter().enumerate() {
        ads.set(version, resources);
        let answer = ads.answer();
        assert!(answer.error_detail.is_none(), "response {index}: {answer:?}");
        assert_eq!(answer.version_info, version, "response {index}");
        assert_eq!(answer.response_nonce, (index + 1).to_string());
        assert_eq!(limit(&client, "k"), wanted, "response {index} is active before its answer");
    }
    assert_eq!(weir.metric("weir_xds_nacks_total", &[]), 0);
    // Version 2 has the content of the response before.
    assert_eq!(weir.metric("weir_xds_updates_total", &[r#"result="accepted""#]), 5);
    assert_eq!(weir.metric("weir_xds_last_update_successful", &[]), 1);
    // The same response again changes nothing.
    ads.set("5", [one_limit(8), vec![rules("z", vec![limited("k", HOUR, 1)])]].concat());
    assert!(ads.answer().error_detail.is_none());
    assert_eq!(weir.metric("weir_xds_updates_total", &[r#"result="accepted""#]), 5);
}

/// What envoyproxy/ratelimit rejects, with its texts. Unlike there, the valid parts become active.
#[test]
fn responses_with_errors_are_rejected() {
    let ads = Ads::start();
    let weir = of(&ads).start();
    let client = weir.client();
    let policy = |policy: RateLimitPolicy| {
        mistaken(RateLimitDescriptor { rate_limit: Some(policy), ..node("k", "", Vec::new()) })
    };
    let replacing = |name: &str| {
        let (name, replaced) = ("n".to_owned(), RateLimitReplace { name: name.to_owned() });
        policy(RateLimitPolicy { unit: HOUR, name, replaces: vec![replaced], ..Default::default() })
    };
    let unlimited = RateLimitPolicy { unit: HOUR, unlimited: true, ..Default::default() };
    let with = |resource: Any| [one_limit(9), vec![resource]].concat();
    let other = Any { type_url: "type.googleapis.com/a.B".to_owned(), value: Vec::new() };
    let broken = Any { value: vec![0xff; 5], ..rules("b", Vec::new()) };
    let table: [(Vec<Any>, &str); 10] = [
        (mistaken(limited("k", 0, 5)), "invalid rate limit unit 'UNKNOWN'"),
        (mistaken(limited("k", 99, 5)), "invalid rate limit unit '99'"),
        (policy(unlimited), "should not specify rate limit unit when unlimited"),
        (replacing(""), "should not have an empty replaces entry"),
        (replacing("n"), "replaces should not contain name of same descriptor"),
        (mistaken(limited("", HOUR, 5)), "descriptor has empty key"),
        (with(named_rules("x", "", Vec::new())), "config file cannot have empty domain"),
        (with(other), "mismatched message type"),
        (with(broken), "cannot parse invalid wire-format data"),
        (with(named_rules("a2", "a", Vec::new())), "duplicate domain 'a' in config file"),
    ];
    for (index, (resources, part)) in table.into_iter().enumerate() {
        let good = format!("good {index}");
        ads.set(&good, one_limit(5));
        assert!(ads.answer().error_detail.is_none(), "{part}");
        assert_eq!(limit(&client, "k"), 5, "{part}");
        ads.set("bad", resources);
        let answer = ads.answer();
        let error = answer.error_detail.as_ref().map(|error| error.message.as_str());
        assert!(error.is_some_and(|error| error.contains(part)), "{part}: {error:?}");
        assert_eq!(answer.version_info, good, "the last accepted version");
        assert_eq!(answer.response_nonce, (2 * index + 2).to_string());
        assert_eq!(weir.metric("weir_xds_last_update_successful", &[]), 0, "{part}");
        assert_eq!(weir.metric("weir_xds_nacks_total", &[]), index as u64 + 1);
        assert_eq!(limit(&client, "k"), 9, "{part}: the valid part is active");
    }
    ads.set("good", one_limit(4));
    until_limit(&client, 4);
    until("the error is gone", || weir.metric("weir_xds_last_update_successful", &[]) == 1);
}

/// All errors of one response are in one rejection.
#[test]
fn a_rejection_has_every_reason() {
    let ads = Ads::start();
    let weir = of(&ads).start();
    let descriptors = vec![limited("p", 0, 1), limited("q", 99, 1), limited("r", HOUR, 2)];
    ads.set("1", vec![rules("a", descriptors)]);
    let error = ads.answer().error_detail.expect("a rejection").message;
    for part in ["'UNKNOWN'", "'99'"] {
        assert!(error.contains(part), "{part}: {error}");
    }
    assert_eq!(error.lines().count(), 2, "{error}");
    assert_eq!(limit(&weir.client(), "r"), 2);
    until("ready with the valid part", || super::is_ready(&weir));
}

/// The pages of the admin port show which version of a resource each rule has, and what was rejected.
#[test]
fn pages_show_versions_and_reasons() {
    let ads = Ads::start();
    let weir = of(&ads).start();
    let with = |of_a, unit| [one_limit(of_a), vec![rules("b", vec![limited("k", unit, 3)])]];
    ads.set("7", with(5, HOUR).concat());
    assert!(ads.answer().error_detail.is_none());
    ads.set("8", with(6, 99).concat());
    assert!(ads.answer().error_detail.is_some());
    let page = get(weir.admin, "/rules").json();
    let file = |domain: &str| {
        let path = format!("xds:{domain}");
        serde_json::json!({ "path": path, "domain": domain, "rules": 1, "version": "8" })
    };
    assert_eq!(page["files"], serde_json::json!([file("a"), file("b")]));
    assert_eq!(page["xds_error"], "xds:b: b.k: invalid rate limit unit '99'");
    assert!(page["last_error"].is_null(), "{page}");
    let lines = get(weir.admin, "/rlconfig").body;
    for (domain, requests, version) in [("a", 6, "8"), ("b", 3, "7")] {
        let line =
            format!("{domain}.k: unit=HOUR requests_per_unit={requests}, shadow_mode: false");
        assert!(lines.lines().any(|one| one.starts_with(&line)), "{line}: {lines}");
        let body = serde_json::json!({ "domain": domain, "descriptor": "k=x" });
        let shown = post(weir.admin, "/explain", body.to_string());
        let place = format!("(xds:{domain} version {version})");
        assert!(shown.body.contains(&place), "{place}: {}", shown.body);
    }
}
