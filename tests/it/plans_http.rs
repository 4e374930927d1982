//! Plans by HTTP: limits follow what the server sends, and a server that is slow, wrong or gone changes
//! nothing.

use crate::support::certificates::Certificates;
use crate::support::http::{get, send};
use crate::support::plans_page::{left, page, until_error};
use crate::support::plans_server::{PlansAnswer, PlansServer};
use crate::support::rls::{Client, descriptor, request};
use crate::support::wait::until;
use crate::support::weir::{Setup, Weir};

const RULES: &str = "
domain: d
descriptors:
  - key: api_key
    rate_limit:
      name: calls
      requests: 2
      window: 1000d
      limit_from: { customer: api_key, default: free }
";

/// Plans with these numbers, and a customer `acme` of the plan `pro`.
fn plans(free: u64, pro: u64) -> String {
    format!(
        r#"{{"plans": {{"free": {{"calls": {free}}}, "pro": {{"calls": {pro}}}}},
            "customers": {{"acme": "pro"}}}}"#
    )
}

/// A process that reads plans from `url` ten times a second.
fn setup(url: &str) -> Setup {
    Weir::setup()
        .rules("d.yaml", RULES)
        .env("WEIR__PLANS__SOURCE", "http")
        .env("WEIR__PLANS__URL", url)
        .env("WEIR__PLANS__POLL_INTERVAL", "100ms")
}

fn url(server: &PlansServer) -> String {
    format!("http://{}/plans", server.address())
}

fn take(client: &Client, customer: &str) {
    client.check(request("d", vec![descriptor(&[("api_key", customer)])]));
}

/// The first requests find the plans. A change needs no reload, and counts stay.
#[test]
fn changed_plans_keep_counts() {
    let server = PlansServer::start(PlansAnswer::json(&plans(3, 10)));
    let weir = setup(&url(&server)).start();
    let client = weir.client();
    assert_eq!([left(&client, "acme"), left(&client, "other")], [10, 3]);
    (0..2).for_each(|_| take(&client, "acme"));
    server.answer(PlansAnswer::json(&plans(3, 20)));
    until("20 calls of the plan", || left(&client, "acme") == 18);
    let yaml = "plans:\n  free: { calls: 7 }\n  pro: { calls: 9 }\n";
    server.answer(PlansAnswer::Body { kind: "application/yaml", body: yaml.into(), etag: None });
    until("the default plan", || left(&client, "acme") == 5);
    assert_eq!(left(&client, "other"), 7);
    let page = page(&weir);
    assert_eq!(page["source"], "http", "{page}");
    assert_eq!(page["plan_count"], 2, "{page}");
    assert_eq!(page["plans"][0]["name"], "free", "{page}");
    assert_eq!(page["plans"][0]["limits"]["calls"], 7, "{page}");
    assert!(page["read_at"].is_string() && page["last_error"].is_null(), "{page}");
}

/// The server sends plans once, and the token comes with each request.
#[test]
fn requests_are_conditional_and_have_the_token() {
    let body = plans(3, 10);
    let etag = Some("\"v1\"");
    let answer = |body| PlansAnswer::Body { kind: "application/json", body, etag };
    let server = PlansServer::start(answer(body));
    let setup = setup(&url(&server)).file("token", "s3cret-of-plans\n");
    let token = setup.path("token").display().to_string();
    let setup = setup.env("WEIR__PLANS__TOKEN_FILE", &token).env("WEIR__LOG__LEVEL", "trace");
    let mut weir = setup.start();
    until("five requests", || server.requests().len() >= 5);
    let requests = server.requests();
    assert!(requests.iter().all(|head| head.starts_with("get /plans http/1.1\r\n")));
    assert!(requests.iter().all(|head| head.contains("authorization: bearer s3cret-of-plans\r\n")));
    assert!(!requests[0].contains("if-none-match"));
    assert!(requests[1..].iter().all(|head| head.contains("if-none-match: \"v1\"\r\n")));
    assert_eq!(weir.metric("weir_plans_updates_total", &[]), 1);
    assert_eq!(weir.metric("weir_plans_source_up", &[]), 1);
    let output = weir.process().output();
    assert!(!output.contains("s3cret"), "the token was logged: {output}");
    assert!(!get(weir.admin, "/settings").body.contains("s3cret"));
}

/// Bytes of a response that announces `length` bytes, with the first ones.
fn begun(length: &str, body: &str) -> PlansAnswer {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n";
    PlansAnswer::Bytes(format!("{head}{length}\r\n\r\n{body}").into_bytes())
}

/// Whatever the server does, the last plans decide, and the page says what to do.
#[test]
fn a_failing_server_changes_nothing() {
    let server = PlansServer::start(PlansAnswer::json(&plans(3, 10)));
    let weir = setup(&url(&server))
        .env("WEIR__PLANS__TIMEOUT", "500ms")
        .env("WEIR__PLANS__MAX_BYTES", "1048576")
        .start();
    let client = weir.client();
    let large = format!("200000\r\n{}\r\n", " ".repeat(2 << 20));
    let html = "<!doctype html><title>Log in</title>".to_owned();
    let many = format!("x: {}\r\n", "y".repeat(50)).repeat(10_000);
    let table = [
        ("silent", PlansAnswer::Bytes(Vec::new()), "plans.timeout"),
        ("half of it", begun("content-length: 100", "{\"plans\""), "plans.timeout"),
        ("a closed connection", PlansAnswer::Close, "does not answer"),
        (
            "another protocol",
            PlansAnswer::Bytes(b"SSH-2.0-OpenSSH\r\n".to_vec()),
            "does not answer",
        ),
        ("a long head", begun(&format!("{many}content-length: 2"), "{}"), "does not answer"),
        ("an error", PlansAnswer::status("500 Internal Server Error"), "status 500"),
        ("gone", PlansAnswer::status("404 Not Found"), "status 404"),
        ("no access", PlansAnswer::status("401 Unauthorized"), "plans.token_file"),
        ("not modified, unasked", PlansAnswer::status("304 Not Modified"), "status 304"),
        ("announced as large", begun("content-length: 1048577", ""), "plans.max_bytes"),
        ("large", begun("transfer-encoding: chunked", &large), "plans.max_bytes"),
        ("a page", PlansAnswer::Body { kind: "text/html", body: html, etag: None }, "invalid"),
        ("half a document", PlansAnswer::json("{\"plans\": {"), "invalid"),
        ("a wrong number", PlansAnswer::json(r#"{"plans": {"pro": {"calls": "many"}}}"#), "pro"),
        ("another document", PlansAnswer::json(r#"{"error": "maintenance"}"#), "invalid"),
        ("no plans", PlansAnswer::json("{}"), "no plans"),
    ];
    for (what, answer, part) in table {
        eprintln!("{what}");
        server.answer(answer);
        until_error(&weir, Some(part));
        assert_eq!([left(&client, "acme"), left(&client, "other")], [10, 3], "{what}");
        server.answer(PlansAnswer::json(&plans(3, 10)));
        until_error(&weir, None);
    }
    assert!(weir.metric("weir_plans_source_errors_total", &[]) >= 16);
    assert_eq!(weir.metric("weir_plans_updates_total", &[]), 1, "the plans never changed");
}

/// The token goes to no other server.
#[test]
fn redirects_are_refused() {
    let other = PlansServer::start(PlansAnswer::json(&plans(30, 100)));
    let location = format!("302 Found\r\nlocation: {}", url(&other));
    let server = PlansServer::start(PlansAnswer::status(&location));
    let weir = setup(&url(&server)).start();
    until_error(&weir, Some("redirect"));
    assert!(other.requests().is_empty(), "{:?}", other.requests());
    assert_eq!(left(&weir.client(), "acme"), 2, "the numbers of the rule");
}

/// weir starts without the server, keeps the plans while it is gone, and finds it again.
#[test]
fn a_server_may_be_late_and_may_leave() {
    let server = PlansServer::start(PlansAnswer::Close);
    let address = server.address();
    let url = url(&server);
    drop(server);
    let mut weir = setup(&url).start();
    let client = weir.client();
    assert_eq!(left(&client, "acme"), 2, "the numbers of the rule");
    assert_eq!(weir.metric("weir_plans_source_up", &[]), 0);
    let server = PlansServer::start_at(address, PlansAnswer::json(&plans(3, 10)));
    until("the plans", || left(&client, "acme") == 10);
    drop(server);
    until_error(&weir, Some("does not answer"));
    assert_eq!(left(&client, "acme"), 10);
    weir.process().wait_for("the outage", |line| {
        line.contains("plans are not read: the last ones stay").then_some(())
    });
    let _server = PlansServer::start_at(address, PlansAnswer::json(&plans(3, 20)));
    until("new plans", || left(&client, "acme") == 20);
    weir.process()
        .wait_for("the return", |line| line.contains("plans are read again").then_some(()));
}

/// The authority of `plans.ca_file` may change while weir runs.
#[test]
fn a_server_with_tls_is_verified() {
    let certificates = Certificates::new();
    let server = PlansServer::start_tls(&certificates, PlansAnswer::json(&plans(3, 10)));
    let url = format!("https://localhost:{}/plans", server.address().port());
    let authority = std::fs::read_to_string(certificates.path("ca.crt")).expect("a certificate");
    let other = std::fs::read_to_string(Certificates::new().path("ca.crt")).expect("another one");
    let setup = setup(&url).file("ca.crt", &other);
    let path = setup.path("ca.crt");
    let weir = setup.env("WEIR__PLANS__CA_FILE", &path.display().to_string()).start();
    until_error(&weir, Some("does not answer"));
    assert!(server.requests().is_empty(), "nothing was sent to an unknown server");
    std::fs::write(&path, authority).expect("the folder is ours");
    until("the plans", || left(&weir.client(), "acme") == 10);
}

/// Other sources than Redis refuse changes, and say where the plans are.
#[test]
fn plans_of_other_sources_are_not_changed() {
    let server = PlansServer::start(PlansAnswer::json(&plans(3, 10)));
    let by_http = setup(&url(&server)).start();
    let without = Weir::start("domain: d\n");
    for (weir, part) in [(&by_http, "plans.url"), (&without, "plans.source")] {
        for (method, path, body) in [
            ("PUT", "/plans/pro", r#"{"calls": 1}"#),
            ("DELETE", "/plans/pro", ""),
            ("GET", "/plans/customers/acme", ""),
            ("PUT", "/plans/customers/acme", r#"{"plan": "pro"}"#),
            ("DELETE", "/plans/customers/acme", ""),
        ] {
            let answer = send(weir.admin, method, path, &[], body.as_bytes());
            assert_eq!(answer.status, 409, "{method} {path}: {}", answer.body);
            assert!(answer.body.contains(part), "{}", answer.body);
        }
    }
    for (path, body) in [
        ("/plans/pro", "nonsense"),
        ("/plans/customers/acme", r#"{"plans": "pro"}"#),
        ("/plans/customers/%ff", r#"{"plan": "pro"}"#),
    ] {
        assert_eq!(send(by_http.admin, "PUT", path, &[], body.as_bytes()).status, 400, "{path}");
    }
    let large = " ".repeat(200_000);
    assert_eq!(send(by_http.admin, "PUT", "/plans/pro", &[], large.as_bytes()).status, 413);
    for query in ["?limit=0", "?limit=10001", "?limit=x"] {
        assert_eq!(get(by_http.admin, &format!("/plans{query}")).status, 400, "{query}");
    }
    let shown = get(by_http.admin, "/plans?limit=1").json();
    assert_eq!(shown["plans"].as_array().map(Vec::len), Some(1), "{shown}");
    assert_eq!(shown["plan_count"], 2);
    assert_eq!(page(&without)["source"], "none");
}

/// Settings that cannot work end the start, and `weir check` reports them.
#[test]
fn wrong_settings_end_the_start() {
    let table = [
        ("WEIR__PLANS__URL", "", "plans.url"),
        ("WEIR__PLANS__URL", "ftp://h/plans", "plans.url"),
        ("WEIR__PLANS__URL", "https://user:hunter2@h/plans", "plans.url"),
        ("WEIR__PLANS__CA_FILE", "missing.crt", "plans.ca_file"),
    ];
    for (name, value, part) in table {
        let (status, output) = setup("https://h.example/plans").env(name, value).start_in_vain();
        assert_eq!(status.code(), Some(64), "{value}: {output}");
        assert!(output.contains(part) && !output.contains("hunter2"), "{value}: {output}");
    }
}
