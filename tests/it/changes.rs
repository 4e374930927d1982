//! Temporary changes by the admin port and by `weir change`, with the memory store.

use std::path::Path;

use serde_json::{Value, json};

use crate::support::http::{Response, get, get_with, send};
use crate::support::rls::{Client, costing, descriptor, headers, request};
use crate::support::wait::until;
use crate::support::weir::cli::{Run, run};
use crate::support::weir::{Setup, Weir, write};
use crate::support::window_edge::within_an_hour;

const RULES: &str = "
domain: d
descriptors:
  - key: user
    rate_limit: { name: per-user, unit: hour, requests_per_unit: 2 }
  - key: path
    rate_limit: { algorithm: token_bucket, requests: 5, window: 1h, burst: 10 }
  - key: free
    rate_limit: { unlimited: true }
";

const OK: i32 = 1;
const OVER: i32 = 2;

fn setup() -> Setup {
    Weir::setup().rules("rules.yaml", RULES).env("WEIR__RESPONSE__DECISION_HEADER", "true")
}

fn hit(client: &Client, key: &str, value: &str) -> i32 {
    client.check(request("d", vec![descriptor(&[(key, value)])])).overall_code
}

fn patch(weir: &Weir, body: &Value) -> Response {
    patch_with(weir, &[], body)
}

fn patch_with(weir: &Weir, headers: &[(&str, &str)], body: &Value) -> Response {
    send(weir.admin, "PATCH", "/changes", headers, body.to_string().as_bytes())
}

/// Makes a change, and returns it.
fn change(weir: &Weir, body: &Value) -> Value {
    let response = patch(weir, body);
    assert_eq!(response.status, 200, "{}", response.body);
    response.json()["change"].clone()
}

fn end(weir: &Weir, id: &str) -> Response {
    send(weir.admin, "DELETE", &format!("/changes/{id}"), &[], b"")
}

fn list(weir: &Weir) -> Vec<Value> {
    let page = get(weir.admin, "/changes").json();
    page["changes"].as_array().expect("a list").clone()
}

/// The first log line with this message.
fn logged(weir: &mut Weir, message: &str) -> Value {
    weir.process().wait_for(message, |line| {
        let line: Value = serde_json::from_str(line).ok()?;
        (line["message"] == message).then_some(line)
    })
}

#[test]
fn a_block_applies_at_once_and_until_it_is_ended() {
    within_an_hour(|| {
        let mut weir = setup().start();
        let client = weir.client();
        assert_eq!(hit(&client, "user", "ann"), OK);
        let block = json!({
            "domain": "d", "descriptor": "user=ann", "block": true, "for": "1h",
            "reason": "scrapes",
        });
        let sent = patch_with(&weir, &[("x-weir-user", "bob@example.org")], &block);
        let made = sent.json();
        assert_eq!((&made["scope"], &made["replaces"]), (&json!("this_process"), &Value::Null));
        let made = &made["change"];
        assert_eq!((&made["action"], &made["descriptor"]), (&json!("block"), &json!("user=ann")));
        assert_eq!((&made["by"], &made["reason"]), (&json!("bob@example.org"), &json!("scrapes")));
        assert_eq!(list(&weir), vec![Value::clone(made)]);
        let denied = client.check(request("d", vec![descriptor(&[("user", "ann")])]));
        assert_eq!(denied.overall_code, OVER);
        let status = &denied.statuses[0];
        assert!(status.current_limit.is_none(), "no counter decided");
        let reset = status.duration_until_reset.as_ref().expect("the end of the block").seconds;
        assert!((3_500..=3_601).contains(&reset), "{reset}");
        let how = ("x-weir-decision", "rule=per-user;mode=exact;fallback=none;change=block");
        assert_eq!(headers(&denied), [how]);
        assert_eq!(hit(&client, "user", "bob"), OK, "the others are not blocked");
        assert_eq!(weir.metric("weir_changes", &["action=\"block\""]), 1);
        let blocked = ["rule=\"per-user\"", "outcome=\"blocked\""];
        assert_eq!(weir.metric("weir_decisions_total", &blocked), 1);

        let id = made["id"].as_str().expect("an id");
        let ended = end(&weir, id);
        assert_eq!((ended.status, &ended.json()["change"]["id"]), (200, &json!(id)));
        assert_eq!(end(&weir, id).status, 404);
        assert!(list(&weir).is_empty());
        let codes = [hit(&client, "user", "ann"), hit(&client, "user", "ann")];
        assert_eq!(codes, [OK, OVER], "the count was kept");

        let line = logged(&mut weir, "temporary change made");
        for (field, value) in [
            ("id", id),
            ("descriptor", "user=ann"),
            ("action", "block"),
            ("by", "bob@example.org"),
            ("reason", "scrapes"),
        ] {
            assert_eq!(line[field], value, "{line}");
        }
        assert_eq!((&line["until"], &line["level"]), (&made["until"], &json!("INFO")));
        let line = logged(&mut weir, "temporary change ended");
        assert_eq!((&line["id"], &line["by"]), (&json!(id), &json!("127.0.0.1")), "{line}");
        assert_eq!(line["made_by"], "bob@example.org");
    });
}

#[test]
fn a_changed_limit_keeps_counts_and_is_shown() {
    within_an_hour(|| {
        let weir = setup().start();
        let client = weir.client();
        let counter = || get(weir.admin, "/counters?domain=d&descriptor=user=ann").json();
        assert_eq!([hit(&client, "user", "ann"), hit(&client, "user", "ann")], [OK, OK]);
        let body = json!({ "domain": "d", "rule": "per-user", "limit": 4, "for": "1h" });
        let made = change(&weir, &body);
        assert_eq!((&made["rule"], &made["selector"]), (&json!("per-user"), &json!("user")));
        assert_eq!(made["limit"], json!([{ "requests": 4 }]));
        assert_eq!([hit(&client, "user", "ann"), hit(&client, "user", "ann")], [OK, OK]);
        let denied = client.check(request("d", vec![descriptor(&[("user", "ann")])]));
        assert_eq!(denied.overall_code, OVER);
        let limit = denied.statuses[0].current_limit.as_ref().expect("a limit");
        assert_eq!((limit.requests_per_unit, limit.name.as_str()), (4, "per-user"));
        assert!(headers(&denied)[0].1.ends_with(";change=limit"), "{:?}", headers(&denied));
        let shown = counter();
        assert_eq!(shown["tiers"][0]["requests"], 4, "{shown}");
        let mut public = made.clone();
        let fields = public.as_object_mut().expect("a change");
        fields.retain(|name, _| name != "by" && name != "reason");
        assert_eq!(shown["changes"], json!([public]));
        let question = json!({ "domain": "d", "descriptor": "user=ann" }).to_string();
        for question in [question, json!({ "domain": "d", "descriptor": "per-user" }).to_string()] {
            let answer = send(weir.admin, "POST", "/explain", &[], question.as_bytes()).json();
            let explained = &answer["explanations"][0];
            assert_eq!(explained["changes"], json!([public]), "it needs no token");
            let text = explained["text"].as_str().expect("a text");
            assert!(text.contains("\nchange  limit 4 until "), "{text}");
        }
        // A lower limit, for one descriptor of the rule.
        let lower = json!({ "domain": "d", "descriptor": "user=bob", "limit": 0, "for": "1h" });
        change(&weir, &lower);
        assert_eq!(hit(&client, "user", "bob"), OVER);
        end(&weir, made["id"].as_str().expect("an id"));
        assert_eq!(counter()["tiers"][0]["requests"], 2);
        assert_eq!(hit(&client, "user", "ann"), OVER, "the rule decides again, by the same count");
    });
}

#[test]
fn a_bypass_counts_nothing() {
    within_an_hour(|| {
        let weir = setup().start();
        let client = weir.client();
        change(&weir, &json!({ "domain": "d", "rule": "path", "bypass": true, "for": "1h" }));
        for _ in 0..20 {
            assert_eq!(hit(&client, "path", "/a"), OK);
        }
        let counter = get(weir.admin, "/counters?domain=d&descriptor=path=/a").json();
        assert_eq!((&counter["tiers"][0]["used"], &counter["denied"]), (&json!(0), &json!(false)));
        assert_eq!(weir.metric("weir_decisions_total", &["outcome=\"bypassed\""]), 20);
        let both = vec![descriptor(&[("path", "/a")]), costing(9, descriptor(&[("user", "x")]))];
        assert_eq!(client.check(request("d", both)).overall_code, OVER, "others still deny");
    });
}

/// The end of a change needs no call, and is logged.
#[test]
fn a_change_ends_by_itself() {
    let mut weir = setup().start();
    let client = weir.client();
    let block = json!({ "domain": "d", "descriptor": "free=x", "block": true, "for": "2s" });
    let made = change(&weir, &block);
    assert_eq!(hit(&client, "free", "x"), OVER, "a rule without a limit can be blocked");
    until("the block ends", || hit(&client, "free", "x") == OK);
    let line = logged(&mut weir, "temporary change expired");
    assert_eq!((&line["id"], &line["until"]), (&made["id"], &made["until"]));
    assert!(list(&weir).is_empty());
    assert_eq!(weir.metric("weir_changes", &[]), 0);
}

/// A reload of the rules keeps changes, also if the windows of a rule change.
#[test]
fn a_change_survives_a_reload() {
    let weir = setup().start();
    let client = weir.client();
    let limit = json!({ "domain": "d", "rule": "per-user", "limit": 0, "for": "1h" });
    change(&weir, &limit);
    assert_eq!(hit(&client, "user", "ann"), OVER);
    let file = weir.rules_folder().join("rules.yaml");
    write(&file, &RULES.replace("unit: hour", "unit: day"));
    let shown = || get(weir.admin, "/counters?domain=d&descriptor=user=ann").json();
    until("the new rule is changed", || {
        let tier = &shown()["tiers"][0];
        tier["window_seconds"] == 86_400.0 && tier["requests"] == 0
    });
    assert_eq!(hit(&client, "user", "ann"), OVER);
    // Numbers that do not fit the new rule have no effect, and the list says so.
    let two = "tiers: [{ requests: 1, window: 1h }, { requests: 9, window: 1d }]";
    write(&file, &RULES.replace("unit: hour, requests_per_unit: 2", two));
    until("the change has a problem", || !list(&weir)[0]["problem"].is_null());
    assert_eq!(hit(&client, "user", "ann"), OK);
}

#[test]
fn changes_need_the_token() {
    let token = "WEIR__ADMIN__TOKEN";
    let weir = setup().env(token, "s3cret").start();
    let block = json!({ "domain": "d", "rule": "user", "block": true, "for": "1h" });
    let right = [("authorization", "Bearer s3cret")];
    for wrong in [Vec::new(), vec![("authorization", "Bearer other")]] {
        assert_eq!(get_with(weir.admin, "/changes", &wrong).status, 403);
        assert_eq!(patch_with(&weir, &wrong, &block).status, 403);
        assert_eq!(send(weir.admin, "DELETE", "/changes/x", &wrong, b"").status, 403);
    }
    assert_eq!(hit(&weir.client(), "user", "ann"), OK);
    assert_eq!(patch_with(&weir, &right, &block).status, 200);
    assert_eq!(get_with(weir.admin, "/changes", &right).status, 200);
    // A script on a foreign page, on the machine of an operator.
    let open = setup().start();
    let foreign = [("origin", "http://attacker.example")];
    assert_eq!(patch_with(&open, &foreign, &block).status, 403);
    assert!(list(&open).is_empty());
}

#[test]
fn a_wrong_request_has_a_status_and_a_fix() {
    let mut weir = setup().start();
    let large = format!(r#"{{"domain":"{}"}}"#, "x".repeat(20_000));
    let deep = "[".repeat(10_000);
    for (body, status, why) in [
        ("", 400, "write {"),
        (&*deep, 400, "write {"),
        ("\u{0}\u{1}", 400, "write {"),
        (&*large, 413, "larger than 16384 bytes"),
        (r#"{"domain":"d","rule":"user","block":true}"#, 400, "`until`"),
        (r#"{"domain":"d","rule":"user","limit":[1,2],"for":"1h"}"#, 400, "the rule has 1"),
        (r#"{"domain":"elsewhere","rule":"user","block":true,"for":"1h"}"#, 404, "GET /rules"),
        (r#"{"domain":"d","rule":"pre-user","block":true,"for":"1h"}"#, 404, "`per-user`?"),
        (r#"{"domain":"d","descriptor":"x=y","limit":1,"for":"1h"}"#, 404, "no rule limits it"),
    ] {
        let answer = send(weir.admin, "PATCH", "/changes", &[], body.as_bytes());
        assert_eq!(answer.status, status, "{body:.80}: {}", answer.body);
        let error = answer.json()["error"].as_str().unwrap_or_default().to_owned();
        assert!(error.contains(why), "{body:.80}: {error}");
    }
    for id in ["x", "%00", "%ff", "..", "%7Bid%7D", &"0".repeat(8_000)] {
        let status = end(&weir, id).status;
        assert!((400..500).contains(&status), "{id:.20}: {status}");
    }
    // Texts of a change cannot add a line to the log.
    let said = json!({
        "domain": "d", "descriptor": "k=a\nb\u{202e}", "block": true, "for": "1h",
        "reason": "x\n{\"level\":\"ERROR\"}",
    });
    let by = [("x-weir-user", "a\u{1b}[31m")];
    let before = weir.process().output().lines().count();
    // A header cannot have the escape character at all.
    assert_eq!(patch_with(&weir, &by, &said).status, 400);
    assert_eq!(patch(&weir, &said).status, 200);
    let line = logged(&mut weir, "temporary change made");
    assert_eq!(line["descriptor"], "k=a\\nb\\u{202e}");
    assert_eq!(weir.process().output().lines().count(), before + 1);
}

/// Runs `weir change` with the service's address.
fn command(weir: &Weir, args: &[&str]) -> Run {
    let address = format!("http://{}", weir.admin);
    run(Path::new("."), &[&["change"], args, &["--addr", &address]].concat())
}

/// A changed limit replaces the numbers of plans, which a caller may not expect.
#[test]
fn a_limit_of_a_rule_with_plans_warns() {
    let rules = "
domain: d
descriptors:
  - key: api_key
    rate_limit:
      name: calls
      unit: hour
      requests_per_unit: 2
      limit_from: { customer: api_key, default: free }
";
    let weir = Weir::setup().rules("rules.yaml", rules).start();
    let limit = json!({ "domain": "d", "rule": "calls", "limit": 4, "for": "1h" });
    let made = patch(&weir, &limit).json();
    let warning = made["warnings"][0].as_str().unwrap_or_default();
    assert!(warning.contains("replace those of every plan"), "{made}");
    let block = json!({ "domain": "d", "rule": "calls", "block": true, "for": "1h" });
    assert_eq!(patch(&weir, &block).json()["warnings"], json!([]));
    let target = ["--domain", "d", "--descriptor", "api_key=acme"];
    let run = command(&weir, &[&["add"], &target[..], &["--limit", "3", "--for", "1h"]].concat());
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(run.stderr.contains("warning: the rule takes its numbers from plans"), "{run:?}");
    assert!(run.stdout.contains("limit of descriptor api_key=acme"), "{run:?}");
}

#[test]
fn the_command_makes_lists_and_ends_changes() {
    let weir = setup().start();
    let client = weir.client();
    let add = |args: &[&str]| command(&weir, &[&["add", "--domain", "d"], args].concat());
    #[rustfmt::skip]
    let made = add(&[
        "--rule", "path", "--limit", "50:60", "--for", "1h", "--reason", "a sale", "--user", "ann",
    ]);
    assert_eq!(made.code, Some(0), "{made:?}");
    for words in ["limit of rule path in domain d 50:60 until ", ", by ann: a sale", "this process"]
    {
        assert!(made.stdout.contains(words), "{words}: {made:?}");
    }
    let blocked = add(&["--descriptor", "user=ann", "--block", "--for", "1h"]);
    assert_eq!(blocked.code, Some(0), "{blocked:?}");
    assert_eq!(hit(&client, "user", "ann"), OVER);
    let again = add(&["--descriptor", "user=ann", "--block", "--for", "2h"]);
    assert!(again.stdout.contains("\nreplaces "), "{again:?}");
    let listed = command(&weir, &["list"]);
    assert_eq!(listed.stdout.lines().count(), 2, "{listed:?}");
    let printed = command(&weir, &["list", "--json"]);
    let page: Value = serde_json::from_str(&printed.stdout).expect("JSON");
    assert_eq!(page, get(weir.admin, "/changes").json());
    let ended = command(&weir, &["end", "--domain", "d", "--descriptor", "user=ann"]);
    assert!(ended.code == Some(0) && ended.stdout.starts_with("ended "), "{ended:?}");
    assert_eq!(hit(&client, "user", "ann"), OK);
    let left = listed.stdout.lines().find(|line| line.contains("rule path")).expect("a line");
    let id = left.split(' ').next().expect("an id");
    assert_eq!(command(&weir, &["end", id]).code, Some(0));
    assert!(list(&weir).is_empty());

    let unknown = command(&weir, &["end", id]);
    assert!(unknown.code == Some(64) && unknown.stderr.contains("no change"), "{unknown:?}");
    for (args, why) in [
        (&["--rule", "path", "--for", "1h"][..], "--limit"),
        (&["--block", "--for", "1h"][..], "--rule"),
        (&["--rule", "path", "--block"][..], "--for"),
        (&["--rule", "path", "--block", "--limit", "1", "--for", "1h"][..], "cannot be used with"),
        (&["--rule", "path", "--limit", "x", "--for", "1h"][..], "whole numbers"),
        (&["--rule", "path", "--block", "--for", "1h", "--user", "a\nb"][..], "one line"),
    ] {
        let run = add(args);
        assert!(run.code == Some(2) && run.stderr.contains(why), "{args:?}: {run:?}");
    }
    let refused = add(&["--rule", "path", "--block", "--for", "91d"]);
    assert!(refused.code == Some(64) && refused.stderr.contains("at most 90d"), "{refused:?}");
    let nothing = run(Path::new("."), &["change", "list", "--addr", "http://127.0.0.1:1"]);
    assert_eq!(nothing.code, Some(69), "{nothing:?}");
}

#[test]
fn the_command_sends_a_token() {
    let setup = setup().env("WEIR__ADMIN__TOKEN", "s3cret").file("token", "s3cret\n");
    let path = setup.path("token").display().to_string();
    let weir = setup.start();
    let without = command(&weir, &["list"]);
    assert!(without.code == Some(64) && without.stderr.contains("admin.token"), "{without:?}");
    let listed = command(&weir, &["list", "--token-file", &path]);
    assert_eq!((listed.code, listed.stdout.as_str()), (Some(0), ""), "{listed:?}");
}
