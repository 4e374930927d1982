//! docs/reference/openapi.yaml, checked against the routers and the responses of a running weir.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Value, json};

use crate::support::http::{Response, send};
use crate::support::rlqs::{SmallEnvoy, bucket};
use crate::support::weir::Weir;
use crate::support::yaml;

mod schema;

const METHODS: [&str; 5] = ["get", "post", "put", "delete", "patch"];

/// The files with the routes of the two listeners.
const ROUTERS: [&str; 14] = [
    "routes.rs",
    "admin.rs",
    "admin/activity.rs",
    "admin/changes.rs",
    "admin/counters.rs",
    "admin/explain.rs",
    "admin/limited.rs",
    "admin/live.rs",
    "admin/page.rs",
    "admin/log.rs",
    "admin/plans.rs",
    "admin/quotas.rs",
    "admin/try_request.rs",
    "admin/usage.rs",
];

const RULES: &str = "
domain: d
descriptors:
  - key: user
    rate_limit:
      name: per-user
      requests: 3
      window: { calendar: month }
      shadow: { requests: 2 }
      usage: true
  - key: shared
    rate_limit: { unit: hour, requests_per_unit: 3 }
  - key: job
    rate_limit: { algorithm: concurrency, max: 0, hold: 1h }
  - key: a
    rate_limit: { name: twice, unit: hour, requests_per_unit: 3 }
  - key: b
    rate_limit: { name: twice, unit: hour, requests_per_unit: 3 }
";

fn page() -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/reference/openapi.yaml");
    yaml::json(&std::fs::read_to_string(path).expect("docs/reference/openapi.yaml"))
}

fn paths(page: &Value) -> Vec<(String, Value)> {
    let paths = page["paths"].as_object().expect("paths");
    paths.iter().map(|(path, item)| (path.clone(), item.clone())).collect()
}

/// The path of the page for the path of a request. A segment in braces stands for any one.
fn documented_path(page: &Value, path: &str) -> String {
    let path = path.split('?').next().unwrap_or_default();
    let fits = |known: &str| {
        let same = |(known, sent): (&str, &str)| known == sent || known.starts_with('{');
        known.split('/').count() == path.split('/').count()
            && known.split('/').zip(path.split('/')).all(same)
    };
    let known = paths(page).into_iter().map(|(known, _)| known).find(|known| fits(known));
    known.unwrap_or_else(|| panic!("{path} is not on the page"))
}

/// The path of every `.route(`.
fn routes() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for file in ROUTERS {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/server/http").join(file);
        let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{file}: {e}"));
        let after = text.split(".route(").skip(1);
        let before = found.len();
        found.extend(after.filter_map(|rest| rest.split('"').nth(1)).map(str::to_owned));
        assert!(found.len() > before, "{file} has no route; correct ROUTERS");
    }
    found
}

/// The listener of a path, by its tag.
fn port(weir: &Weir, item: &Value) -> std::net::SocketAddr {
    let operation = METHODS.iter().find_map(|method| item.get(*method)).expect("an operation");
    match operation["tags"][0].as_str() {
        Some("http") => weir.http,
        Some("admin") => weir.admin,
        other => panic!("a tag that is no port: {other:?}"),
    }
}

/// Every path and method of the routers is in openapi.yaml, and the reverse.
#[test]
fn routes_and_openapi_paths_are_equal() {
    let page = page();
    let on_the_page: BTreeSet<String> = paths(&page).into_iter().map(|(path, _)| path).collect();
    assert_eq!(on_the_page, routes());
    let weir = Weir::start(RULES);
    let index = send(weir.admin, "GET", "/", &[], b"").body;
    for (path, item) in paths(&page) {
        let to = port(&weir, &item);
        assert!(to != weir.admin || path == "/" || index.contains(&path), "/ does not list {path}");
        // A stream that does not end.
        let methods = METHODS.iter().filter(|method| (path.as_str(), **method) != ("/live", "get"));
        for method in methods {
            let answer = send(to, &method.to_uppercase(), &path, &[], b"");
            let known = item.get(*method).is_some() || item["x-any-method"] == true;
            let has_reason = answer.body.contains("error");
            assert!(answer.status != 404 || has_reason, "{method} {path} has no route");
            assert_eq!(answer.status != 405, known, "{method} {path}: {}", answer.status);
        }
    }
}

/// Checks a response against the page. Returns its method, path and status.
fn check_response(page: &Value, method: &str, path: &str, answer: &Response) -> String {
    let known = documented_path(page, path);
    let what = format!("{method} {known} {}", answer.status);
    let responses = &page["paths"][known][method]["responses"];
    let mut response = responses
        .get(answer.status.to_string())
        .unwrap_or_else(|| panic!("{what} is not on the page: {}", answer.body));
    if let Some(pointer) = response.get("$ref") {
        response = schema::resolve(page, pointer);
    }
    let kind = answer.header("content-type").unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default();
    let content = response["content"].get(kind);
    let content = content.unwrap_or_else(|| panic!("{what}: {kind:?} is not on the page"));
    let value = match kind {
        "application/json" => answer.json(),
        _ => Value::from(answer.body.clone()),
    };
    let problems = schema::problems(page, &content["schema"], &value, &what);
    assert!(problems.is_empty(), "{problems:#?}\n{}", answer.body);
    what
}

/// A counter that exists once a request has used it.
const COUNTER: &str = "/counters?domain=d&descriptor=user=x";

/// A page of a rule whose counter exists once a request has used it.
const USAGE: &str = "/usage?domain=d&rule=user";

/// Names that are those of the parameters, so that the paths are those of the page.
const PLAN: &str = "/plans/{plan}";
const CUSTOMER: &str = "/plans/customers/{customer}";

/// Requests to a healthy instance, with every kind of response: method, path, body.
fn requests() -> Vec<(&'static str, &'static str, String)> {
    let check = |key: &str| {
        let entries = json!([{ "entries": [{ "key": key, "value": "x" }] }]);
        json!({ "domain": "d", "descriptors": entries }).to_string()
    };
    let explain = |text: &str| json!({ "domain": "d", "descriptor": text }).to_string();
    let long = format!("user={}", "x".repeat(5_000));
    let buckets = json!({ "domain": "d", "buckets": ["user=x", "k=x", "job=x", long] });
    let elsewhere = json!({ "domain": "e", "descriptor": "a=b" }).to_string();
    let large = "x".repeat(300_000);
    let change = |domain: &str, rule: &str| {
        json!({ "domain": domain, "rule": rule, "limit": 9, "for": "1h", "reason": "r" })
            .to_string()
    };
    let block = json!({ "domain": "d", "descriptor": "user=x", "block": true, "for": "1h" });
    let none = "/counters?domain=d&descriptor=k=x";
    let capture = |domain: &str| {
        json!({ "requests": "all", "domain": domain, "rule": "user", "sample": 0.5, "for": "1m" })
            .to_string()
    };
    vec![
        ("put", "/log", capture("d")),
        ("put", "/log", capture("e")),
        ("put", "/log", "nonsense".to_owned()),
        ("put", "/log", large.clone()),
        ("get", "/log", String::new()),
        ("delete", "/log", String::new()),
        ("post", "/json", check("user")),
        ("post", "/json", check("job")),
        ("patch", "/changes", change("d", "per-user")),
        ("patch", "/changes", block.to_string()),
        ("patch", "/changes", change("e", "per-user")),
        ("patch", "/changes", change("d", "twice")),
        ("patch", "/changes", "nonsense".to_owned()),
        ("patch", "/changes", large.clone()),
        ("get", "/changes", String::new()),
        ("delete", "/changes/unknown", String::new()),
        ("post", "/json", "nonsense".to_owned()),
        ("post", "/json", large.clone()),
        ("get", "/healthcheck", String::new()),
        ("get", "/livez", String::new()),
        ("get", "/readyz", String::new()),
        ("get", "/", String::new()),
        ("get", "/ui/app.js", String::new()),
        ("get", "/ui/unknown", String::new()),
        ("get", "/metrics", String::new()),
        ("get", "/rules", String::new()),
        ("get", "/rlconfig", String::new()),
        ("get", "/settings", String::new()),
        ("get", "/status", String::new()),
        ("get", "/activity", String::new()),
        ("get", "/activity?order=name&limit=1000", String::new()),
        ("get", "/activity?limit=0", String::new()),
        ("get", "/top", String::new()),
        ("get", "/limited", String::new()),
        ("post", "/explain", explain("user=x")),
        ("post", "/explain", explain("k=x")),
        ("post", "/explain", explain("job=x,lease=a")),
        ("post", "/explain", elsewhere),
        ("post", "/explain", buckets.to_string()),
        ("post", "/explain", "nonsense".to_owned()),
        ("post", "/try", explain("user=x")),
        ("post", "/try", explain("k=x")),
        ("post", "/try", "nonsense".to_owned()),
        ("post", "/try", large.clone()),
        ("post", "/explain", large.clone()),
        ("get", COUNTER, String::new()),
        ("get", none, String::new()),
        ("get", "/counters", String::new()),
        ("delete", COUNTER, String::new()),
        ("delete", none, String::new()),
        ("delete", "/counters", String::new()),
        ("get", "/quotas", String::new()),
        ("get", "/quotas?limit=1000", String::new()),
        ("get", "/quotas?limit=0", String::new()),
        ("get", USAGE, String::new()),
        ("get", "/usage?domain=d&rule=user&format=csv", String::new()),
        ("get", "/usage?domain=d", String::new()),
        ("get", "/usage?domain=d&rule=k", String::new()),
        ("get", "/usage?domain=d&rule=job", String::new()),
        ("get", "/plans", String::new()),
        ("get", "/plans?limit=0", String::new()),
        ("put", PLAN, json!({ "calls": 1 }).to_string()),
        ("put", PLAN, "nonsense".to_owned()),
        ("put", PLAN, large.clone()),
        ("delete", PLAN, String::new()),
        ("get", CUSTOMER, String::new()),
        ("put", CUSTOMER, json!({ "plan": "pro" }).to_string()),
        ("put", CUSTOMER, "nonsense".to_owned()),
        ("put", CUSTOMER, large),
        ("delete", CUSTOMER, String::new()),
    ]
}

/// The method, path and status of every documented response.
fn documented_responses(page: &Value) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for (path, item) in paths(page) {
        for method in METHODS {
            let responses = item[method]["responses"].as_object();
            let statuses = responses.into_iter().flat_map(|responses| responses.keys());
            all.extend(statuses.map(|status| format!("{method} {path} {status}")));
        }
    }
    // Responses of a process that is shutting down; tests/it/startup.rs has them.
    all.retain(|what| !what.ends_with("/livez 500") && !what.ends_with("/healthcheck 500"));
    // Streams that do not end, and those that are switched off; tests/it/live_page.rs has them.
    all.retain(|what| !what.contains(" /live ") || what.ends_with(" 403"));
    // Responses that need Redis; tests/redis/plans.rs has them.
    all.retain(|what| {
        let is_below = what.contains("/plans/");
        !is_below || !what.ends_with(" 200") && !what.ends_with(" 404")
    });
    all
}

/// Real responses match openapi.yaml, and every documented response occurs.
#[test]
fn responses_match_openapi() {
    let page = page();
    let weir = Weir::start(RULES);
    let bad = Weir::setup()
        .rules("bad.yaml", "domain: d\ndescriptors:\n  - ky: x\n")
        .env("WEIR__RULES__START_WITHOUT_RULES", "true")
        .env("WEIR__READYZ__REQUIRE_RULES", "loaded")
        .env("WEIR__LOG__LEVEL", "info,weir::request_log=warn")
        .start();
    // Redis is absent, and a draining instance is neither live nor ready for long.
    let lost = Weir::setup()
        .rules("rules.yaml", RULES)
        .env("WEIR__STORE__KIND", "redis")
        .env("WEIR__REDIS__URL", "redis://127.0.0.1:1")
        .env("WEIR__PLANS__SOURCE", "redis")
        .start();
    let requests = requests();
    let mut seen = BTreeSet::new();
    let mut one = |weir: &Weir, method: &str, path: &str, headers: &[(&str, &str)], body: &str| {
        let to = port(weir, &page["paths"][documented_path(&page, path)]);
        let answer = send(to, &method.to_uppercase(), path, headers, body.as_bytes());
        seen.insert(check_response(&page, method, path, &answer));
        answer
    };
    for (method, path, body) in &requests {
        one(&weir, method, path, &[], body);
    }
    one(&bad, "get", "/readyz", &[], "");
    one(&bad, "get", "/rules", &[], "");
    one(&bad, "put", "/log", &[], r#"{"requests": "all", "for": "1m"}"#);
    one(&bad, "get", "/status", &[], "");
    one(&lost, "get", "/status", &[], "");
    one(&lost, "get", COUNTER, &[], "");
    one(&lost, "delete", COUNTER, &[], "");
    one(&lost, "get", USAGE, &[], "");
    one(&lost, "get", "/plans", &[], "");
    one(&lost, "put", PLAN, &[], r#"{"calls": 1}"#);
    one(&lost, "delete", PLAN, &[], "");
    one(&lost, "get", CUSTOMER, &[], "");
    one(&lost, "put", CUSTOMER, &[], r#"{"plan": "pro"}"#);
    one(&lost, "delete", CUSTOMER, &[], "");
    let (_, _, change) = requests.iter().find(|request| request.1 == "/changes").expect("a change");
    let made = one(&weir, "patch", "/changes", &[], change).json();
    let id = made["change"]["id"].as_str().expect("an id").to_owned();
    one(&weir, "delete", &format!("/changes/{id}"), &[], "");
    one(&lost, "patch", "/changes", &[], change);
    one(&lost, "delete", "/changes/unknown", &[], "");
    for (path, item) in paths(&page) {
        for method in METHODS {
            if item.get(method).is_some() && port(&weir, &item) == weir.admin {
                one(&weir, method, &path, &[("host", "attacker.example")], "");
            }
        }
    }
    let documented = documented_responses(&page);
    let unseen: Vec<_> = documented.difference(&seen).collect();
    assert!(unseen.is_empty(), "no request got {unseen:?}");
}

/// A page with a divided limit, which the pages above do not have.
#[test]
fn quotas_of_envoys_match_openapi() {
    let weir = Weir::setup().rules("d.yaml", RULES).env("WEIR__RLQS__RELEARN", "false").start();
    let envoy = SmallEnvoy::start(weir.grpc, "d");
    let user = bucket(&[("shared", "x")]);
    envoy.demand(&user, 10.0);
    envoy.until_assigned(&user);
    let answer = send(weir.admin, "GET", "/quotas", &[], b"");
    check_response(&page(), "get", "/quotas", &answer);
    assert!(answer.json()["quotas"][0]["holders"][0].is_object(), "{}", answer.body);
}
