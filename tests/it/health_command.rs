//! `weir health` without `--addr`: it finds the port by the settings, as the health check of the
//! image does.

use std::net::SocketAddr;
use std::path::Path;

use crate::support::certificates::Certificates;
use crate::support::weir::cli::Run;
use crate::support::weir::{Setup, Weir, weir, write};

const RULES: &str = "
domain: demo
descriptors:
  - key: user
    rate_limit: { unit: hour, requests_per_unit: 3 }
";

/// No process listens on these ports of loopback. They differ, because listeners must not share
/// one.
const CLOSED: &str = "127.0.0.1:1";
const CLOSED_HTTP: &str = "127.0.0.1:2";

/// Runs `weir health` with `args` and the environment `env`.
fn health(args: &[&str], env: &[(&str, &str)]) -> Run {
    let mut command = weir();
    command.arg("health").args(args).envs(env.iter().copied());
    let output = command.output().expect("the binary starts");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Run { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// Both answers of a service with its exit codes.
fn answers(run: &Run, serves: bool) {
    let expected = if serves { (Some(0), "SERVING\n") } else { (Some(1), "NOT_SERVING\n") };
    assert_eq!((run.code, run.stdout.as_str()), expected, "{run:?}");
}

/// A service that is not ready.
fn unready() -> Setup {
    Weir::setup()
        .rules("bad.yaml", "domain: d\ndescriptors:\n  - ky: x\n")
        .env("WEIR__RULES__START_WITHOUT_RULES", "true")
        .env("WEIR__READYZ__REQUIRE_RULES", "loaded")
}

/// The path of a certificate or key.
fn shown(path: &Path) -> String {
    path.display().to_string()
}

/// The HTTP port is closed, so gRPC has answered.
#[test]
fn health_finds_the_grpc_port() {
    let weir = Weir::start(RULES);
    let port = weir.grpc.port();
    for listen in [weir.grpc.to_string(), format!("0.0.0.0:{port}"), format!("[::]:{port}")] {
        let env = [("WEIR__GRPC__LISTEN", &*listen), ("WEIR__HTTP__LISTEN", CLOSED_HTTP)];
        answers(&health(&[], &env), true);
    }
    let port = port.to_string();
    answers(&health(&[], &[("GRPC_PORT", &port), ("WEIR__HTTP__LISTEN", CLOSED_HTTP)]), true);

    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("weir.yaml");
    write(
        &file,
        &format!("grpc: {{ listen: \"{}\" }}\nhttp: {{ listen: \"{CLOSED_HTTP}\" }}\n", weir.grpc),
    );
    answers(&health(&["--config", &shown(&file)], &[]), true);
    // The environment has precedence over the file, as for `weir serve`.
    let closed = health(&["--config", &shown(&file)], &[("WEIR__GRPC__LISTEN", CLOSED)]);
    assert_eq!(closed.code, Some(69), "{closed:?}");
}

#[test]
fn health_reaches_a_listener_of_all_addresses() {
    for listen in ["0.0.0.0:0", "[::]:0"] {
        let setup = Weir::setup().rules("rules.yaml", RULES).without_flag("--grpc-listen");
        let weir = setup.env("WEIR__GRPC__LISTEN", listen).start();
        let port = weir.grpc.port().to_string();
        answers(&health(&[], &[("GRPC_PORT", &port), ("WEIR__HTTP__LISTEN", CLOSED_HTTP)]), true);
    }
}

/// The gRPC port of the settings is closed, so `/readyz` has answered.
#[test]
fn health_over_tls_is_that_of_readyz() {
    let certificates = Certificates::new();
    let file = |name: &str| shown(&certificates.path(name));
    let (cert, key, ca) = (file("server.crt"), file("server.key"), file("ca.crt"));
    let ours = [("WEIR__GRPC__TLS_CERT", &*cert), ("WEIR__GRPC__TLS_KEY", &*key)];
    let mutual = [&ours[..], &[("WEIR__GRPC__TLS_CLIENT_CA", &*ca)]].concat();
    let theirs = [
        ("GRPC_SERVER_USE_TLS", "true"),
        ("GRPC_SERVER_TLS_CERT", &*cert),
        ("GRPC_SERVER_TLS_KEY", &*key),
    ];
    for tls in [&ours[..], &mutual[..], &theirs[..]] {
        for (setup, serves) in
            [(Weir::setup().rules("rules.yaml", RULES), true), (unready(), false)]
        {
            let weir = tls.iter().fold(setup, |setup, (name, value)| setup.env(name, value));
            let weir = weir.start();
            let port = weir.http.port();
            for listen in [weir.http.to_string(), format!("[::]:{port}")] {
                let listeners = [("WEIR__GRPC__LISTEN", CLOSED), ("WEIR__HTTP__LISTEN", &*listen)];
                answers(&health(&[], &[tls, &listeners].concat()), serves);
            }
            let port = port.to_string();
            answers(&health(&[], &[tls, &[("PORT", &*port)]].concat()), serves);
        }
    }
}

/// The HTTP port of the settings is closed, so gRPC has answered.
#[test]
fn health_with_flags_of_tls_calls_grpc() {
    let certificates = Certificates::new();
    let file = |name: &str| shown(&certificates.path(name));
    let (cert, key, ca) = (file("server.crt"), file("server.key"), file("ca.crt"));
    let tls = [("WEIR__GRPC__TLS_CERT", &*cert), ("WEIR__GRPC__TLS_KEY", &*key)];
    let setup = Weir::setup().rules("rules.yaml", RULES);
    let weir = tls.iter().fold(setup, |setup, (name, value)| setup.env(name, value)).start();
    let listen = weir.grpc.to_string();
    let listeners = [("WEIR__GRPC__LISTEN", &*listen), ("WEIR__HTTP__LISTEN", CLOSED_HTTP)];
    answers(&health(&["--ca", &ca], &[&tls[..], &listeners].concat()), true);
}

#[test]
fn health_without_a_usable_answer_says_why() {
    let tls = [("WEIR__GRPC__TLS_CERT", "a.crt"), ("WEIR__GRPC__TLS_KEY", "a.key")];
    let weir = Weir::start(RULES);
    let http = |address: SocketAddr| {
        let listen = address.to_string();
        health(&[], &[&tls[..], &[("WEIR__HTTP__LISTEN", &*listen)]].concat())
    };
    // A port without a listener, and one that does not serve HTTP/1.
    for address in [CLOSED.parse().expect("an address"), weir.grpc] {
        let run = http(address);
        assert_eq!((run.code, run.stdout.as_str()), (Some(69), ""), "{run:?}");
        assert!(run.stderr.contains(&format!("http://{address}/readyz")), "{run:?}");
        assert!(run.stderr.contains("with this http.listen?"), "{run:?}");
    }
    let wrong = [("WEIR__GRPC__LISTEN", "nonsense")];
    let run = health(&[], &wrong);
    assert_eq!(run.code, Some(64), "{run:?}");
    assert!(run.stderr.contains("WEIR__GRPC__LISTEN"), "{run:?}");
    // An address of the command line needs no settings.
    answers(&health(&["--addr", &weir.grpc.to_string()], &wrong), true);
    let both = health(&["--addr", CLOSED, "--config", "weir.yaml"], &[]);
    assert_eq!(both.code, Some(2), "{both:?}");
}
