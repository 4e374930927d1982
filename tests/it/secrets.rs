//! Secrets: no log line at any level and no page shows one.

use std::net::TcpListener;

use crate::support::certificates::{Certificates, trusting};
use crate::support::collector::Collector;
use crate::support::http::{get, get_with, post};
use crate::support::rls::{Client, descriptor, request};
use crate::support::weir::{Setup, Weir};

const RULES: &str = "
domain: d
descriptors:
  - key: user
    rate_limit: { unit: hour, requests_per_unit: 1 }
";

/// The marker in every secret. Its suffix names the secret.
const SECRET: &str = "hunter2";

/// Accepts connections and sends nothing.
fn unresponsive_listener() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it listens").to_string();
    (listener, address)
}

/// The middle of a private key, as in its file.
fn part_of(key: &str) -> String {
    let line = key.lines().nth(1).expect("a key has several lines");
    line[..40].to_owned()
}

fn with_secrets(redis: &str, collector: &str, protocol: &str, tls: &Certificates) -> Setup {
    let path = |name: &str| tls.path(name).display().to_string();
    let setup = Weir::setup().rules("d.yaml", RULES).file("token", &format!("{SECRET}-file\n"));
    let token = setup.path("token").display().to_string();
    setup
        .env("WEIR__LOG__LEVEL", "trace")
        .env("WEIR__DRAIN__DELAY", "0s")
        .env("WEIR__STORE__KIND", "redis")
        .env("WEIR__REDIS__URL", redis)
        .env("WEIR__REDIS__KEY_SECRET", &format!("{SECRET}-key"))
        .env("WEIR__ADMIN__TOKEN_FILE", &token)
        .env("WEIR__GRPC__TLS_CERT", &path("server.crt"))
        .env("WEIR__GRPC__TLS_KEY", &path("server.key"))
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", &format!("http://{collector}"))
        .env("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
        .env("OTEL_EXPORTER_OTLP_HEADERS", &format!("x-token={SECRET}-otel"))
        .env("OTEL_EXPORTER_OTLP_METRICS_HEADERS", &format!("x-token={SECRET}-metrics"))
        .env("OTEL_METRICS_EXPORTER", "otlp")
        .env("OTEL_METRIC_EXPORT_INTERVAL", "100")
        .env("OTEL_BSP_SCHEDULE_DELAY", "50")
}

fn assert_no_secret(what: &str, output: &str, secrets: &[String]) {
    assert!(!output.is_empty(), "{what} has no output");
    for secret in secrets {
        let line = output.lines().find(|line| line.contains(secret));
        assert!(line.is_none(), "{what} shows {secret}: {line:?}");
    }
}

/// Uses weir, causes errors, and searches all its output.
fn assert_no_secret_in_use(
    mut weir: Weir,
    tls: &Certificates,
    secrets: &[String],
    collector: Option<&Collector>,
) {
    let check = |weir: &Weir| {
        let client = Client::over_tls(weir.grpc, trusting(tls)).expect("a connection");
        client.check(request("d", vec![descriptor(&[("user", "ann")])]));
    };
    check(&weir);
    let counters = "/counters?domain=d&descriptor=user=ann";
    let token = format!("Bearer {SECRET}-file");
    for page in ["/", "/metrics", "/rules", "/rlconfig", "/settings", "/top", counters] {
        assert_no_secret(page, &get(weir.admin, page).body, secrets);
        let known = get_with(weir.admin, page, &[("authorization", &token)]);
        assert_no_secret(page, &known.body, secrets);
    }
    assert!(get(weir.admin, "/settings").body.contains("x-token=hidden"));
    let body = r#"{"domain": "d", "descriptors": [{"entries": [{"key": "user", "value": "x"}]}]}"#;
    for (address, path) in [(weir.http, "/json"), (weir.admin, "/explain")] {
        for body in [body, "{"] {
            assert_no_secret(path, &post(address, path, body).body, secrets);
        }
    }
    std::fs::write(weir.rules_folder().join("bad.yaml"), "domain: [").expect("a file");
    weir.process().signal("HUP");
    weir.process().wait_for("that the rules are bad", |line| {
        line.contains("rules not reloaded").then_some(())
    });
    assert_no_secret("/rules", &get(weir.admin, "/rules").body, secrets);
    match collector {
        // The secret was really sent.
        Some(collector) => {
            let token = |of: &str| Some(format!("{SECRET}-{of}"));
            let (_, traces) = collector.span(|_| true);
            assert_eq!(traces.token, token("otel"));
            let (_, metrics) = collector.wait(|one| one.metrics.first().map(|_| ()));
            assert_eq!(metrics.token, token("metrics"));
        }
        None => weir.process().wait_for("that the collector fails", |line| {
            line.contains("collector failed").then_some(())
        }),
    }
    weir.process().terminate();
    assert!(weir.process().wait_for_exit().success());
    let log = weir.process().output();
    for chatty in ["\"level\":\"TRACE\"", "\"target\":\"hyper_util::"] {
        assert!(log.contains(chatty), "the log is not at its most verbose: no {chatty}");
    }
    assert_no_secret("the log", &log, secrets);
}

/// A setup with secrets in the environment and for TLS.
fn secrets(tls: &Certificates) -> [String; 2] {
    let key = std::fs::read_to_string(tls.path("server.key")).expect("a key");
    [SECRET.to_owned(), part_of(&key)]
}

/// No log line and no page shows a secret that is in use.
#[test]
fn secrets_in_use_are_not_shown() {
    let tls = Certificates::new();
    let secrets = secrets(&tls);
    let (_listener, mute) = unresponsive_listener();
    let collector = Collector::grpc();
    let address = collector.address.to_string();
    let redis = format!("redis://weir:{SECRET}-url@{mute}");
    let weir = with_secrets(&redis, &address, "grpc", &tls).start();
    assert_no_secret_in_use(weir, &tls, &secrets, Some(&collector));
    let collector = Collector::http();
    let address = collector.address.to_string();
    let redis = format!("redis-cluster://{mute}");
    let setup = with_secrets(&redis, &address, "http/protobuf", &tls)
        .file("password", &format!("{SECRET}-password\n"));
    let password = setup.path("password").display().to_string();
    let weir = setup.env("WEIR__REDIS__PASSWORD_FILE", &password).start();
    assert_no_secret_in_use(weir, &tls, &secrets, Some(&collector));
}

/// No log line and no page shows a secret while Redis or the collector is unreachable.
#[test]
fn secrets_of_unreachable_services_are_not_shown() {
    let tls = Certificates::new();
    let secrets = secrets(&tls);
    let closed = unresponsive_listener().1;
    let redis = format!(
        "redis-sentinel://:{SECRET}-url@{closed}?sentinelServiceName=m&sentinelPassword={SECRET}"
    );
    for protocol in ["grpc", "http/protobuf"] {
        let setup = with_secrets(&redis, &closed, protocol, &tls)
            .env("WEIR__ADMIN__TOKEN_FILE", "")
            .env("WEIR__ADMIN__TOKEN", &format!("{SECRET}-file"));
        assert_no_secret_in_use(setup.start(), &tls, &secrets, None);
    }
}

#[test]
fn no_refusal_to_start_shows_a_secret() {
    for (name, value) in [
        ("WEIR__REDIS__URL", format!("http://u:{SECRET}@h")),
        ("WEIR__REDIS__URL", format!("redis://u:{SECRET}@h:port")),
        ("REDIS_URL", format!("redis://u:{SECRET}@:x")),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", format!("::not an address::{SECRET}@")),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://u:{SECRET}@collector:4318")),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://c ?api_key={SECRET}")),
        ("OTEL_EXPORTER_OTLP_HEADERS", format!("Bearer {SECRET}")),
        ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", format!("a b={SECRET}")),
        ("WEIR__METRICS__OTLP_HEADERS", format!("authorization={SECRET}\u{1}")),
    ] {
        let setup = Weir::setup().rules("d.yaml", RULES).env("WEIR__STORE__KIND", "redis");
        let (status, output) = setup.env(name, &value).start_in_vain();
        assert!(!status.success(), "{name}={value}");
        assert_no_secret(name, &output, &[SECRET.to_owned()]);
    }
}
