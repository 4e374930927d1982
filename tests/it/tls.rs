//! TLS on the gRPC port of the real binary: real Envoys, `weir call`, and rotated files.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;

use crate::support::certificates::{Certificates, trusting};
use crate::support::envoy::upstream::Upstream;
use crate::support::envoy::{self, Envoy, NEWEST, OLDEST};
use crate::support::rls::{Client, descriptor, request};
use crate::support::secret::Secret;
use crate::support::weir::cli;
use crate::support::weir::{Setup, Weir, write};

const RULES: &str = "
domain: demo
descriptors:
  - key: user
    rate_limit: { unit: hour, requests_per_unit: 1000000 }
";

fn over_tls(cert: &Path, key: &Path) -> Setup {
    Weir::setup()
        .rules("demo.yaml", RULES)
        .env("WEIR__GRPC__TLS_CERT", &cert.display().to_string())
        .env("WEIR__GRPC__TLS_KEY", &key.display().to_string())
}

fn server(certificates: &Certificates) -> Setup {
    over_tls(&certificates.path("server.crt"), &certificates.path("server.key"))
}

/// One call on a new connection.
fn is_answered(weir: &Weir, authority: &Certificates) -> bool {
    let client = Client::over_tls(weir.grpc, trusting(authority));
    let check =
        |client: Client| client.try_check(request("demo", vec![descriptor(&[("user", "anna")])]));
    client.is_ok_and(|client| check(client).is_ok())
}

/// Envoy calls weir over TLS with a client certificate. Without the certificate it gets no
/// response, and denies the request.
#[test]
fn both_envoys_use_mutual_tls() {
    for version in [NEWEST, OLDEST] {
        let certificates = Certificates::new();
        let weir = server(&certificates)
            .env("WEIR__GRPC__TLS_CLIENT_CA", &certificates.path("ca.crt").display().to_string())
            .env("WEIR__GRPC__TLS_CLIENT_SAN", "envoy.example, weir")
            .start();
        let upstream = Upstream::start();
        let start = |shows: bool| {
            let config = secured(&certificates, shows);
            Envoy::start(version, &envoy::tuned(&config, weir.grpc, upstream.address))
        };
        let anna = |envoy: &Envoy| envoy.get("/", &[("x-user", "anna")]);
        let passed = anna(&start(true));
        assert_eq!(passed.status, 200, "{version}");
        let limit = passed.header("x-ratelimit-limit").expect("weir has decided");
        assert!(limit.starts_with("1000000"), "{version}: {limit}");
        assert_eq!(anna(&start(false)).status, 500, "{version}: refused without a certificate");
        assert!(weir.metric("weir_grpc_tls_handshakes_total", &[r#"result="failed""#]) > 0);
    }
}

/// The basic example with TLS to weir. It denies when weir does not respond.
fn secured(certificates: &Certificates, shows: bool) -> String {
    let path = |name: &str| certificates.path(name).display().to_string();
    let own = format!(
        "tls_certificates: [ {{ certificate_chain: {{ filename: {} }}, \
         private_key: {{ filename: {} }} }} ], ",
        path("client.crt"),
        path("client.key"),
    );
    let own = if shows { own.as_str() } else { "" };
    let context = format!(
        "    transport_socket:
      name: envoy.transport_sockets.tls
      typed_config:
        \"@type\": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext
        sni: localhost
        common_tls_context: {{ {own}validation_context: {{ trusted_ca: {{ filename: {} }} }} }}
    # gRPC needs HTTP/2.",
        path("ca.crt"),
    );
    let example = include_str!("../../examples/envoy/basic.yaml");
    let config = example
        .replace("    # gRPC needs HTTP/2.", &context)
        .replace("failure_mode_deny: false", "failure_mode_deny: true")
        .replace("timeout: 0.1s", "timeout: 5s");
    assert!(config.contains("UpstreamTlsContext") && config.contains("failure_mode_deny: true"));
    config
}

/// Connections are opened all the time while the certificate changes in every way that files
/// change.
#[test]
fn a_rotation_under_load_fails_no_call() {
    const NAMES: [&str; 1] = ["localhost"];
    let authority = Certificates::new();
    let mut secret = Secret::new(&authority.issue(&NAMES));
    let (cert, key) = (secret.path("tls.crt"), secret.path("tls.key"));
    let mut weir = over_tls(&cert, &key).start();
    let (over, calls) = (AtomicBool::new(false), AtomicU32::new(0));
    let weir_process = weir.process().pid();
    let reloads = |weir: &Weir, count: u64| {
        while weir.metric("weir_grpc_tls_reloads_total", &[r#"result="ok""#]) < count {
            thread::yield_now();
        }
    };
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    assert!(is_answered(&weir, &authority), "of {weir_process}");
                    calls.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        secret.swap(&authority.issue(&NAMES));
        reloads(&weir, 1);
        // In place: for a moment certificate and key do not match.
        let (new_cert, new_key) = authority.issue(&NAMES);
        let real = std::fs::canonicalize(&cert).expect("a file");
        write(&real, &new_cert);
        write(&real.with_file_name("tls.key"), &new_key);
        reloads(&weir, 2);
        // By rename, replacing the link itself.
        let (new_cert, new_key) = authority.issue(&NAMES);
        for (name, text) in [("tls.crt", new_cert), ("tls.key", new_key)] {
            write(&secret.path("new"), &text);
            std::fs::rename(secret.path("new"), secret.path(name)).expect("a rename");
        }
        reloads(&weir, 3);
        let seen = calls.load(Ordering::Relaxed);
        while calls.load(Ordering::Relaxed) < seen + 4 {
            thread::yield_now();
        }
        over.store(true, Ordering::Relaxed);
    });
    assert_eq!(weir.metric("weir_grpc_tls_handshakes_total", &[r#"result="failed""#]), 0);
}

#[test]
fn a_bad_certificate_is_logged_once_and_ignored() {
    let (authority, other) = (Certificates::new(), Certificates::new());
    let (cert, key) = (authority.path("server.crt"), authority.path("server.key"));
    let mut weir = server(&authority).start();
    let (bad, _) = other.issue(&["localhost"]);
    write(&cert, &bad);
    weir.process().wait_for("that it stays", |line| {
        line.contains("certificates not reloaded: old ones stay").then_some(())
    });
    assert!(is_answered(&weir, &authority));
    assert_eq!(weir.metric("weir_grpc_tls_reloads_total", &[r#"result="failed""#]), 1);
    let (good, its_key) = other.issue(&["localhost"]);
    write(&key, &its_key);
    write(&cert, &good);
    weir.process()
        .wait_for("that it follows", |line| line.contains("certificates reloaded").then_some(()));
    assert!(is_answered(&weir, &other));
    assert!(!is_answered(&weir, &authority));
    assert!(!weir.process().output().contains("BEGIN"), "no key in the log");
}

#[test]
fn weir_call_uses_tls_and_reports_its_errors() {
    let certificates = Certificates::new();
    let folder = certificates.path("");
    let ca = certificates.path("ca.crt").display().to_string();
    let weir = server(&certificates).env("WEIR__GRPC__TLS_CLIENT_CA", &ca).start();
    let address = weir.grpc.to_string();
    let call = |flags: &[&str]| {
        let fixed = ["call", "--addr", &address, "--domain", "demo", "--timeout", "30000"];
        cli::run(&folder, &[&fixed[..], flags, &["user=anna"]].concat())
    };
    let own = ["--ca", "ca.crt", "--cert", "client.crt", "--key", "client.key"];
    let answered = call(&own);
    assert_eq!(answered.code, Some(0), "{answered:?}");
    assert!(answered.stdout.starts_with("OK"), "{answered:?}");
    let named = call(&[&own[..], &["--server-name", "localhost"]].concat());
    assert_eq!(named.code, Some(0), "{named:?}");
    for (flags, advice) in [
        (&["--ca", "ca.crt"][..], "use --cert and --key"),
        (&[&own[..], &["--server-name", "other"]].concat(), "with --server-name"),
        // What is wrong first depends on the authorities of the system.
        (&["--tls"], ""),
        (&[], "use --tls"),
    ] {
        let refused = call(flags);
        assert_eq!(refused.code, Some(69), "{flags:?}: {refused:?}");
        assert!(refused.stderr.contains(advice), "{flags:?}: {refused:?}");
    }
    assert_eq!(call(&["--ca", "missing.crt"]).code, Some(69));
}
