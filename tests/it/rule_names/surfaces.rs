//! The names of rules in headers, lines of the log, temporary changes, captures and quotas; of rules by xDS
//! and with overlays; and after a reload that renames a rule.

use serde_json::{Value, json};

use super::{NAMES, RULES, check};
use crate::support::ads::{Ads, NODE, limited, node, rules};
use crate::support::http::{get, post, send};
use crate::support::rlqs::{SmallEnvoy, bucket};
use crate::support::rls::{descriptor, headers, request};
use crate::support::wait::until;
use crate::support::weir::{Weir, write};
use crate::support::window_edge::within_an_hour;

/// The unit of a day in rules by xDS.
const DAY: i32 = 4;

/// The outcome of `/explain` for a descriptor or a name.
fn explained(weir: &Weir, text: &str) -> Value {
    let body = json!({ "domain": "d", "descriptor": text }).to_string();
    post(weir.admin, "/explain", body).json()["explanations"][0]["outcome"].clone()
}

/// Denies a hit of each rule, and checks its names in the metrics, in `/counters`, `/explain`, `/activity`
/// and `/top`.
fn check_all(weir: &Weir) {
    let client = weir.client();
    for (entry, name, selector) in NAMES {
        (0..2).for_each(|_| drop(client.check(request("d", vec![descriptor(&[entry])]))));
        let label = format!("rule=\"{name}\"");
        let over = ["domain=\"d\"", label.as_str(), "outcome=\"over\""];
        assert_eq!(weir.metric("weir_decisions_total", &over), 1, "{name}");
        let text = format!("{}={}", entry.0, entry.1);
        let path = format!("/counters?domain=d&descriptor={text}");
        check(&get(weir.admin, &path).json(), name, selector);
        check(&explained(weir, &text), name, selector);
        let path = format!("/activity?domain=d&rule={name}");
        check(&get(weir.admin, &path).json()["rules"][0], name, selector);
    }
    let top = get(weir.admin, "/top").json()["top"].clone();
    for (_, name, selector) in NAMES {
        let mut all = top.as_array().expect("a list").iter();
        let shown = all.find(|one| one["rule"] == name);
        check(shown.unwrap_or_else(|| panic!("no {name}: {top}")), name, selector);
    }
}

#[test]
fn headers_and_lines_have_the_name() {
    let setup = Weir::setup().rules("d.yaml", RULES).env("WEIR__RESPONSE__HEADERS", "ietf");
    let setup = setup.env("WEIR__RESPONSE__DECISION_HEADER", "true");
    let mut weir = setup.env("WEIR__LOG__REQUESTS", "all").start();
    let client = weir.client();
    for (entry, name, selector) in NAMES {
        let answer = client.check(request("d", vec![descriptor(&[entry])]));
        let header = |name: &str| {
            let all = headers(&answer);
            let found = all.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
            found.unwrap_or_else(|| panic!("no {name}: {all:?}")).1.to_owned()
        };
        assert_eq!(header("ratelimit-policy"), format!("\"{name}\";q=1;w=86400"));
        assert!(header("ratelimit").starts_with(&format!("\"{name}\";r=")));
        assert_eq!(header("x-weir-decision"), format!("rule={name};mode=exact;fallback=none"));
        let line = weir.process().wait_for("the line of the request", |line| {
            let line: Value = serde_json::from_str(line).ok()?;
            let is_about = line["descriptor"].as_str()?.starts_with(&format!("{}=", entry.0));
            (line["message"] == "request decided" && is_about).then_some(line)
        });
        check(&line, name, selector);
    }
}

#[test]
fn changes_and_captures_have_the_name() {
    let weir = Weir::start(RULES);
    let send = |method: &str, path: &str, body: &Value| {
        send(weir.admin, method, path, &[], body.to_string().as_bytes())
    };
    for (_, name, selector) in NAMES {
        for text in [Some(name), selector].into_iter().flatten() {
            let body = json!({ "domain": "d", "rule": text, "limit": 5, "for": "1h" });
            let made = send("PATCH", "/changes", &body);
            assert_eq!(made.status, 200, "{}", made.body);
            check(&made.json()["change"], name, selector);
            let body = json!({ "domain": "d", "rule": text, "requests": "denied", "for": "1m" });
            let begun = send("PUT", "/log", &body);
            assert_eq!(begun.status, 200, "{}", begun.body);
            check(&begun.json()["capture"], name, selector);
        }
    }
    let listed = |path: &str, list: &str| -> Vec<Value> {
        get(weir.admin, path).json()[list].as_array().expect("a list").clone()
    };
    for all in [listed("/changes", "changes"), listed("/log", "captures")] {
        assert_eq!(all.len(), NAMES.len(), "one per rule, whatever its text: {all:?}");
        for (_, name, selector) in NAMES {
            let shown = all.iter().find(|one| one["rule"] == name);
            check(shown.unwrap_or_else(|| panic!("no {name}: {all:?}")), name, selector);
        }
    }
    let shared = json!({ "domain": "d", "rule": "both", "limit": 5, "for": "1h" });
    let refused = send("PATCH", "/changes", &shared);
    assert_eq!(refused.status, 409, "{}", refused.body);
    assert!(refused.body.contains("`one`, `two`"), "{}", refused.body);
}

#[test]
fn quotas_have_the_name() {
    let limit = "unit: second, requests_per_unit: 100";
    let rules = RULES.replace("unit: day, requests_per_unit: 1, usage: true", limit);
    assert_eq!(rules.matches(limit).count(), NAMES.len());
    let weir = Weir::setup().rules("d.yaml", &rules).env("WEIR__RLQS__RELEARN", "false").start();
    let envoy = SmallEnvoy::start(weir.grpc, "d");
    for (entry, name, selector) in NAMES {
        let bucket = bucket(&[entry]);
        envoy.demand(&bucket, 20.0);
        envoy.until_rate(&bucket, |rate| rate > 0.0);
        let page = get(weir.admin, "/quotas").json();
        let mut quotas = page["quotas"].as_array().expect("a list").iter();
        let shown = quotas.find(|one| one["rule"] == name);
        check(shown.unwrap_or_else(|| panic!("no {name}: {page}")), name, selector);
        let label = format!("rule=\"{name}\"");
        let allowed = ["domain=\"d\"", label.as_str(), "result=\"allowed\""];
        until("a report", || weir.metric("weir_rlqs_requests_total", &allowed) > 0);
    }
}

#[test]
fn rules_by_xds_have_the_same_names() {
    let policy = |key: &str, name: &str| {
        let mut one = limited(key, DAY, 1);
        one.rate_limit.as_mut().expect("a limit").name = name.to_owned();
        one
    };
    let mut of_value = node("org", "a", Vec::new());
    of_value.rate_limit = limited("org", DAY, 1).rate_limit;
    within_an_hour(|| {
        let ads = Ads::start();
        let descriptors = vec![
            policy("user", "per-user"),
            of_value.clone(),
            policy("one", "both"),
            policy("two", "both"),
        ];
        ads.set("1", vec![rules("d", descriptors)]);
        let setup = Weir::setup().rules_of_settings().env("WEIR__RULES__XDS__NODE_ID", NODE);
        let weir = setup.env("WEIR__RULES__XDS__SERVER", &ads.address.to_string()).start();
        until("the rules", || weir.metric("weir_rules", &[]) == NAMES.len() as u64);
        check_all(&weir);
    });
}

#[test]
fn rules_with_overlays_keep_their_names() {
    let tier = "{ requests: 1, window: 24h }";
    let overlay =
        format!("overlays: [{{ domain: d, rule: '*', rate_limit: {{ tiers: [{tier}] }} }}]\n");
    within_an_hour(|| {
        let setup = Weir::setup().rules("d.yaml", RULES).file("overlays.yaml", &overlay);
        let path = setup.path("overlays.yaml");
        let path = path.to_str().expect("a plain path");
        let weir = setup.env("WEIR__RULES__OVERLAY_PATHS", path).start();
        check_all(&weir);
    });
}

/// The selector stays, so that a change of the rule follows it.
#[test]
fn a_renamed_rule_has_its_new_name() {
    within_an_hour(|| {
        let weir = Weir::start(RULES);
        check_all(&weir);
        let body = json!({ "domain": "d", "rule": "per-user", "limit": 3, "for": "1h" });
        let made = send(weir.admin, "PATCH", "/changes", &[], body.to_string().as_bytes());
        assert_eq!(made.status, 200, "{}", made.body);
        let renamed = RULES.replace("per-user", "of-user");
        write(&weir.rules_folder().join("rules.yaml"), &renamed);
        let is_loaded = || explained(&weir, "user=x")["rule"] == "of-user";
        until("the reload", is_loaded);
        for text in ["user=x", "user", "of-user"] {
            check(&explained(&weir, text), "of-user", Some("user"));
        }
        let first_change = || get(weir.admin, "/changes").json()["changes"][0].clone();
        until("the change of the rule", || first_change()["rule"] == "of-user");
        check(&first_change(), "of-user", Some("user"));
        let call = || weir.client().check(request("d", vec![descriptor(&[("user", "new")])]));
        (0..4).for_each(|_| drop(call()));
        let over = ["rule=\"of-user\"", "outcome=\"over\""];
        assert_eq!(weir.metric("weir_decisions_total", &over), 1, "the fourth is over the change");
        let old = get(weir.admin, "/activity?domain=d&rule=per-user").json();
        assert_eq!(old["total"], 0, "{old}");
        let top = get(weir.admin, "/top").json();
        let of_new = |one: &Value| one["rule"] == "of-user" && one["selector"] == "user";
        assert!(top["top"].as_array().expect("a list").iter().any(of_new), "{top}");
        let run = send(weir.admin, "GET", "/usage?domain=d&rule=of-user", &[], b"");
        check(&run.json(), "of-user", Some("user"));
    });
}
