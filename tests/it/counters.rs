//! Counters by the admin interface: their display, access to them, and deletion.

use serde_json::{Value, json};

use crate::support::http::{Response, get, get_with, post, send};
use crate::support::rls::{Client, descriptor, request};
use crate::support::weir::{Setup, Weir};
use crate::support::window_edge::within_an_hour;

const RULES: &str = "
domain: d
descriptors:
  - key: user
    rate_limit: { name: per-user, unit: hour, requests_per_unit: 3 }
  - key: user
    value: root
    rate_limit: { unlimited: true }
  - key: path
    rate_limit:
      algorithm: sliding_window_log
      tiers:
        - { requests: 5, window: 1h }
        - { requests: 100, window: 24h }
  - key: job
    rate_limit: { algorithm: concurrency, max: 2, hold: 1h }
";

const ANN: &str = "/counters?domain=d&descriptor=user=ann";

fn take(client: &Client, entries: &[(&str, &str)]) -> i32 {
    client.check(request("d", vec![descriptor(entries)])).overall_code
}

fn delete(weir: &Weir, path: &str, headers: &[(&str, &str)]) -> Response {
    send(weir.admin, "DELETE", path, headers, b"")
}

#[test]
fn a_counter_is_shown_without_counting_and_emptied() {
    within_an_hour(|| {
        let weir = Weir::start(RULES);
        let client = weir.client();
        let shown = |path: &str| get(weir.admin, path).json();
        let empty = shown(ANN);
        assert_eq!((&empty["rule"], &empty["selector"]), (&json!("per-user"), &json!("user")));
        assert_eq!(empty["algorithm"], "fixed_window");
        assert_eq!(empty["store"], "memory");
        assert_eq!(empty["location"]["line"], 4);
        assert_eq!(
            (&empty["tiers"][0]["used"], &empty["tiers"][0]["remaining"]),
            (&json!(0), &json!(3))
        );
        assert_eq!([take(&client, &[("user", "ann")]), take(&client, &[("user", "ann")])], [1, 1]);
        for _ in 0..10 {
            let tier = &shown(ANN)["tiers"][0];
            assert_eq!(
                (&tier["used"], &tier["remaining"]),
                (&json!(2), &json!(1)),
                "looking is free"
            );
            assert_eq!(tier["window_seconds"], 3600.0);
            assert!(tier["reset_after_seconds"].as_f64().is_some_and(|after| after <= 3600.0));
        }
        assert_eq!(take(&client, &[("user", "ann")]), 1);
        assert_eq!(take(&client, &[("user", "ann")]), 2, "at the limit");
        assert_eq!(take(&client, &[("user", "bob")]), 1);
        let emptied = delete(&weir, ANN, &[]);
        assert_eq!((emptied.status, &emptied.json()["existed"]), (200, &json!(true)));
        assert_eq!(delete(&weir, ANN, &[]).json()["existed"], false, "there is none any more");
        assert_eq!(take(&client, &[("user", "ann")]), 1, "the counter starts from zero");
        let bob = &shown("/counters?domain=d&descriptor=user=bob")["tiers"][0];
        assert_eq!(bob["used"], 1, "the others stay");
    });
}

#[test]
fn every_tier_and_every_kind_of_counter_is_shown() {
    within_an_hour(|| {
        let weir = Weir::start(RULES);
        let client = weir.client();
        take(&client, &[("path", "/a,b")]);
        // A comma in a value, escaped for the descriptor and for the URL.
        let log = get(weir.admin, "/counters?domain=d&descriptor=path=/a%5C,b").json();
        let numbers = |name: &str| -> Vec<Value> {
            let tiers = log["tiers"].as_array().expect("tiers").iter();
            tiers.map(|tier| tier[name].clone()).collect()
        };
        assert_eq!(numbers("requests"), [5, 100]);
        assert_eq!(numbers("used"), [1, 1], "{log}");
        assert_eq!(numbers("remaining"), [4, 99]);
        take(&client, &[("job", "x")]);
        let slots = get(weir.admin, "/counters?domain=d&descriptor=job=x,lease=whatever").json();
        assert_eq!(slots["algorithm"], "concurrency");
        assert_eq!(slots["tiers"][0]["used"], 1, "the lease is no part of the counter: {slots}");
    });
}

#[test]
fn a_missing_counter_has_a_reason() {
    let weir = Weir::start(RULES);
    for (path, status, why) in [
        ("/counters?domain=x&descriptor=user=a", 404, "no file defines this domain"),
        ("/counters?domain=d&descriptor=k=a", 404, "no rule limits this descriptor"),
        ("/counters?domain=d&descriptor=user=root", 404, "unlimited"),
        ("/counters?domain=d", 400, "write ?domain=D&descriptor=key=value"),
        ("/counters", 400, "write ?domain=D&descriptor=key=value"),
        ("/counters?domain=d&descriptor=user", 400, "has no value"),
        ("/counters?domain=d&descriptor==user", 400, "no key"),
        ("/counters?domain=&descriptor=user=a", 400, "domain must not be empty"),
    ] {
        for method in ["GET", "DELETE"] {
            let answer = send(weir.admin, method, path, &[], b"");
            let error = answer.json()["error"].as_str().unwrap_or_default().to_owned();
            assert_eq!(answer.status, status, "{path}: {error}");
            assert!(error.contains(why), "{path}: {error}");
        }
    }
    let long = format!("{ANN}{}", "x".repeat(20_000));
    assert_eq!(get(weir.admin, &long).status, 200, "within the bounds of a request");
    let deep: String = (0..40).map(|_| ",k=v").collect();
    assert_eq!(get(weir.admin, &format!("{ANN}{deep}")).status, 400, "over the bound");
}

/// `/limited` names the counters of rules that permit it, and shows hashes of the others.
#[test]
fn limited_counters_are_shown_with_their_state() {
    const LISTED: &str = "
domain: d
descriptors:
  - key: listed
    rate_limit: { unit: hour, requests_per_unit: 1, usage: true }
  - key: hidden
    rate_limit: { name: secret, unit: hour, requests_per_unit: 1 }
";
    within_an_hour(|| {
        let weir = Weir::start(LISTED);
        let client = weir.client();
        let hostile = "<script>\u{202e},a=b";
        for key in ["listed", "hidden"] {
            assert_eq!(
                [take(&client, &[(key, hostile)]), take(&client, &[(key, hostile)])],
                [1, 2]
            );
        }
        let page = get(weir.admin, "/limited").json();
        let counters = page["counters"].as_array().expect("counters");
        let of = |rule: &str| counters.iter().find(|one| one["rule"] == rule).expect("a counter");
        let (listed, hidden) = (of("listed"), of("secret"));
        assert_eq!((&hidden["selector"], listed.get("selector")), (&json!("hidden"), None));
        assert_eq!(listed["descriptor"], "listed=<script>\u{202e}\\,a=b");
        assert_eq!((&listed["denied"], &listed["requests"]), (&json!(true), &json!(1)), "{listed}");
        assert_eq!(listed["remaining"], 0);
        assert!(listed["denied_until"].is_string() && listed["error"].is_null(), "{listed}");
        assert_eq!((&hidden["descriptor"], &hidden["denied"]), (&Value::Null, &Value::Null));
        assert_eq!((&hidden["denied_hits"], &hidden["at_least"]), (&json!(1), &json!(1)));
        assert!(!hidden.to_string().contains("<script"), "{hidden}");
        let top = get(weir.admin, "/top").json();
        let hashes = |page: &Value, list: &str| -> std::collections::BTreeSet<String> {
            let counters = page[list].as_array().expect("counters").iter();
            counters.map(|one| one["counter"].to_string()).collect()
        };
        assert_eq!(hashes(&top, "top"), hashes(&page, "counters"));
        assert!(!top.to_string().contains("<script"), "{top}");
    });
}

/// A trial takes nothing, explains the descriptor, and also decides by another limit.
#[test]
fn a_tried_request_takes_nothing() {
    within_an_hour(|| {
        let weir = Weir::start(RULES);
        let client = weir.client();
        let attempt = |body: Value| {
            let answer = post(weir.admin, "/try", body.to_string());
            assert_eq!(answer.status, 200, "{}", answer.body);
            answer.json()
        };
        let ann = |hits: u64| json!({ "domain": "d", "descriptor": "user=ann", "hits": hits });
        for _ in 0..5 {
            let tried = attempt(ann(3));
            assert_eq!(tried["code"], "OK");
            let one = &tried["descriptors"][0];
            assert_eq!((&one["remaining"], &one["reason"]), (&json!(0), &json!("counted")));
            assert_eq!(one["tiers"][0]["used"], 0, "{one}");
            assert_eq!(one["explain"]["outcome"]["kind"], "rule");
        }
        take(&client, &[("user", "ann")]);
        let raised = json!({
            "domain": "d", "descriptor": "user=ann", "hits": 3, "limit": { "requests": 4 },
        });
        let tried = attempt(raised);
        assert_eq!(tried["code"], "OVER_LIMIT", "{tried}");
        let with_limit = &tried["descriptors"][0]["with_limit"];
        assert_eq!((&with_limit["code"], &with_limit["remaining"]), (&json!("OK"), &json!(0)));
        assert_eq!(get(weir.admin, ANN).json()["tiers"][0]["used"], 1);
    });
}

fn on_all_addresses(setup: Setup) -> Setup {
    setup.without_flag("--admin-listen").env("WEIR__ADMIN__LISTEN", "0.0.0.0:0")
}

#[test]
fn counters_need_the_token_from_other_hosts() {
    let setup = || Weir::setup().rules("d.yaml", RULES);
    let open = on_all_addresses(setup()).start();
    for answer in [get(open.admin, ANN), get(open.admin, "/limited"), delete(&open, ANN, &[])] {
        assert_eq!(answer.status, 403);
        assert!(answer.body.contains("set admin.token_file"), "{}", answer.body);
    }
    assert_eq!(get(open.admin, "/rules").status, 200, "the rest is open");
    assert_eq!(get_with(open.admin, "/rules", &[("host", "weir.example")]).status, 200);

    const TOKEN: &str = "hunter2-and-more";
    let of_setting = setup().env("WEIR__ADMIN__TOKEN", TOKEN);
    let file = "token.txt";
    let of_file = setup().file(file, &format!("{TOKEN}\n"));
    let path = of_file.path(file);
    let of_file = of_file.env("WEIR__ADMIN__TOKEN_FILE", path.to_str().expect("a plain path"));
    for setup in [of_setting, of_file] {
        let mut weir = on_all_addresses(setup.env("WEIR__LOG__LEVEL", "trace")).start();
        for (header, status) in [
            (None, 403),
            (Some("Bearer hunter2-and-mor"), 403),
            (Some("Bearer hunter2-and-less"), 403),
            (Some("Basic hunter2-and-more"), 403),
            (Some("Bearer hunter2-and-more"), 200),
        ] {
            let headers: Vec<_> =
                header.map(|value| ("authorization", value)).into_iter().collect();
            for path in [ANN, "/quotas"] {
                assert_eq!(get_with(weir.admin, path, &headers).status, status, "{header:?}");
            }
            assert_eq!(delete(&weir, ANN, &headers).status, status, "{header:?}");
        }
        assert!(!get(weir.admin, "/settings").body.contains("hunter2"));
        let output = weir.process().output();
        assert!(!output.contains("hunter2"), "the token was logged: {output}");
    }
    // A configured token is required on loopback too.
    let weir = setup().env("WEIR__ADMIN__TOKEN", TOKEN).start();
    assert_eq!(get(weir.admin, ANN).status, 403);
}

#[test]
fn foreign_web_pages_cannot_use_the_admin_port() {
    within_an_hour(|| {
        let weir = Weir::start(RULES);
        take(&weir.client(), &[("user", "ann")]);
        // DNS rebinding: the page's name resolves to 127.0.0.1.
        for path in ["/", "/rules", "/settings", "/metrics", ANN, "/nonsense"] {
            let answer = get_with(weir.admin, path, &[("host", "attacker.example:6070")]);
            assert_eq!(answer.status, 403, "{path}");
            assert!(answer.body.contains("localhost"), "{}", answer.body);
        }
        // A form or a script on a foreign page.
        for header in [("origin", "http://attacker.example"), ("sec-fetch-site", "cross-site")] {
            assert_eq!(delete(&weir, ANN, &[header]).status, 403, "{header:?}");
            let body = br#"{"domain": "d", "descriptor": "user=ann"}"#;
            assert_eq!(send(weir.admin, "POST", "/explain", &[header], body).status, 403);
            let answer = get_with(weir.admin, ANN, &[header]);
            assert_eq!(answer.header("access-control-allow-origin"), None, "browsers block it");
        }
        assert_eq!(get(weir.admin, ANN).json()["tiers"][0]["used"], 1);
        let own = format!("http://{}", weir.admin);
        assert_eq!(delete(&weir, ANN, &[("origin", &own)]).status, 200);
    });
}

#[test]
fn explain_equals_the_command() {
    let weir = Weir::start(RULES);
    let check = |body: Value| post(weir.admin, "/explain", body.to_string());
    let answer = check(json!({ "domain": "d", "descriptor": "user=ann" }));
    assert_eq!(answer.status, 200);
    let rule = &answer.json()["explanations"][0]["outcome"];
    assert_eq!(rule["kind"], "rule");
    assert_eq!(rule["rule"], "per-user");
    assert_eq!(rule["tiers"][0], "3 per 1h");
    assert!(rule["location"]["file"].as_str().is_some_and(|file| file.ends_with("rules.yaml")));
    let several = check(json!({
        "domain": "d",
        "descriptors": [
            "k=v",
            { "entries": [{ "key": "job", "value": "x" }, { "key": "lease", "value": "abc" }] },
        ],
    }));
    let several = several.json();
    assert_eq!(several["explanations"][0]["outcome"]["kind"], "no_rule");
    assert_eq!(several["explanations"][1]["lease"], "abc", "{several}");
    assert_eq!(several["explanations"][1]["outcome"]["rule"], "job");
    let elsewhere = check(json!({ "domain": "e", "descriptor": "user=ann" })).json();
    let outcome = &elsewhere["explanations"][0]["outcome"];
    assert_eq!(outcome["kind"], "unknown_domain");
    assert!(outcome["hint"].as_str().is_some_and(|hint| hint.contains("`d`")));
}

#[test]
fn explain_refuses_impossible_requests() {
    let weir = Weir::start(RULES);
    for (body, status, why) in [
        ("".to_owned(), 400, "write {"),
        ("[]".to_owned(), 400, "write {"),
        (r#"{"domain": "d"}"#.to_owned(), 400, "in `descriptors` or `buckets`"),
        (r#"{"domain": "d", "buckets": []}"#.to_owned(), 400, "in `descriptors` or `buckets`"),
        (r#"{"domain": "d", "buckets": [1]}"#.to_owned(), 400, "as \"buckets\": [..]"),
        (r#"{"domain": "", "descriptor": "a=b"}"#.to_owned(), 400, "domain must not be empty"),
        (r#"{"domain": "d", "descriptor": "a"}"#.to_owned(), 400, "has no value"),
        (r#"{"domain": "d", "descriptr": "a=b"}"#.to_owned(), 400, "unknown field `descriptr`"),
        (json!({ "domain": "d", "descriptors": vec!["a=b"; 257] }).to_string(), 400, "257"),
        ("x".repeat(300_000), 413, "larger than"),
    ] {
        let answer = post(weir.admin, "/explain", &body);
        assert_eq!(answer.status, status, "{body:.60}");
        let error = answer.json()["error"].as_str().unwrap_or_default().to_owned();
        assert!(error.contains(why), "{body:.60}: {error}");
    }
}
