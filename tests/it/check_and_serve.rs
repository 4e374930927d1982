//! `weir check` and `weir serve` accept and reject the same settings, with the same lines.

use crate::support::certificates::Certificates;
use crate::support::weir::cli::{Run, run};
use crate::support::weir::{Setup, Weir};

const RULES: &str = "domain: d\ndescriptors: [{ key: k, rate_limit: { unlimited: true } }]\n";

/// A file of settings, and a part of each line about it. `DIR` is a folder with the files of
/// [`Certificates`].
const REJECTED: &[(&str, &[&str])] = &[
    ("grpc: {listn: ':1'}", &["there is no setting `grpc.listn`"]),
    ("grpc: {tls_cert: DIR/server.crt}", &["grpc.tls_cert and grpc.tls_key go together"]),
    ("grpc: {tls_client_ca: DIR/ca.crt}", &["needs grpc.tls_cert and grpc.tls_key"]),
    ("grpc: {tls_client_san: a}", &["needs grpc.tls_client_ca"]),
    ("grpc: {tls_client_san: '*.a'}", &["is neither a DNS name nor a URI"]),
    ("grpc: {tls_cert: DIR/server.crt, tls_key: DIR/client.key}", &["does not work with"]),
    ("grpc: {tls_cert: DIR/missing, tls_key: DIR/server.key}", &["No such file"]),
    ("grpc: {tls_cert: DIR/ca.crt, tls_key: DIR/ca.crt}", &["holds no private key"]),
    (
        "grpc: {tls_cert: DIR/server.crt, tls_key: DIR/server.key, tls_client_ca: DIR/missing}",
        &["grpc.tls_client_ca: "],
    ),
    ("redis: {url: 'redis://h:x'}", &["or an invalid port"]),
    ("redis: {url: 'redis://u:hunter2@h/x'}", &["has a database that is no number"]),
    ("redis: {url: 'redis-sentinel://h:1'}", &["has no sentinelServiceName"]),
    ("redis: {url: 'rediss://h', tls_key: DIR/client.key}", &["redis.tls_key go together"]),
    ("redis: {url: 'rediss://h', tls_ca: DIR/missing}", &["redis.tls_ca: "]),
    ("redis: {url: 'redis://h', password_file: DIR/missing}", &["redis.password_file: "]),
    ("rules: {xds: {server: h}}", &["is not a host and a port"]),
    ("rules: {xds: {server: 'h:1', tls_ca: DIR/ca.crt}}", &["only with rules.xds.tls"]),
    (
        "rules: {xds: {server: 'h:1', tls: true, tls_key: DIR/client.key}}",
        &["rules.xds.tls_key go together"],
    ),
    ("rules: {xds: {server: 'h:1', tls: true, tls_ca: DIR/missing}}", &["rules.xds.tls_ca: "]),
    ("rules: {xds: {server: 'a..b:1', tls: true}}", &["is not a name of a server"]),
    (
        "tracing: {enabled: true, endpoint: 'https://a..b:4317'}",
        &["is not the address of a collector"],
    ),
    (
        "metrics: {otlp: true, otlp_protocol: grpc, otlp_endpoint: 'https://-a:4317'}",
        &["is not the address of a collector"],
    ),
    ("log: {level: 'a[b=info'}", &["is not a log level"]),
    ("log: {decisions: {sample: 2}}", &["is not a share"]),
    ("log: {decisions: {sample: ''}}", &["is empty; write a number from 0 to 1"]),
    ("log: {decisions: {only: some}}", &["is not a choice"]),
    ("log: {decisions: {path: DIR}}", &["log.decisions.path: cannot write `"]),
    ("log: {decisions: {path: DIR/missing/d.log}}", &["in a folder that weir may write to"]),
    ("plans: {source: file}", &["plans.source `file` needs plans.file"]),
    ("plans: {source: redis}", &["plans.source `redis` needs store.kind `redis`"]),
    ("plans: {source: http}", &["plans.source `http` needs plans.url"]),
    ("plans: {source: http, url: 'http://u:hunter2@h'}", &["put a password into a file"]),
    ("plans: {source: file, file: DIR/missing}", &["plans.file: "]),
    ("plans: {source: file, file: DIR/missing, customers_file: DIR/missing}", &["plans.file: "]),
    (
        "{grpc: {tls_client_san: a}, redis: {url: 'redis://'}}",
        &["redis.url: ", "grpc.tls_client_san needs"],
    ),
    (
        "{grpc: {tls_cert: DIR/a, tls_key: DIR/b}, redis: {url: 'h:1', password_file: DIR/c}}",
        &["grpc.tls_cert: ", "redis.password_file: "],
    ),
];

/// Files of settings. No server that they name exists.
const ACCEPTED: &[&str] = &[
    "grpc: {tls_cert: DIR/server.crt, tls_key: DIR/server.key}",
    "grpc: {tls_cert: DIR/server.crt, tls_key: DIR/server.key, tls_client_ca: DIR/ca.crt, \
     tls_client_san: 'a, spiffe://b/c'}",
    "redis: {url: 'redis-cluster://u:p@127.0.0.1:1', password_file: DIR/ca.crt}",
    "redis: {url: 'rediss://127.0.0.1:1', tls_ca: DIR/ca.crt, tls_cert: DIR/client.crt, \
     tls_key: DIR/client.key}",
    // Without Redis and without a server of rules, their files are not read.
    "{store: {kind: memory}, redis: {url: 'rediss://h', tls_key: k, password_file: missing}}",
    "rules: {xds: {tls_ca: missing}}",
    "rules: {xds: {server: '127.0.0.1:1', tls: true, tls_ca: DIR/ca.crt, tls_server_name: weir}}",
    "log: {level: 'info,h2=off'}",
    "log: {decisions: {path: stdout, sample: 0.5, only: denied, values: hashed}}",
    // Without the source, its files are not read.
    "plans: {file: missing, customers_file: missing, url: 'http://127.0.0.1:1'}",
];

/// A process with these settings, and the output of `weir check` about them.
fn checked(settings: &str, certificates: &Certificates) -> (Setup, Run) {
    let folder = certificates.path("").display().to_string();
    let settings = settings.replace("DIR", folder.trim_end_matches('/'));
    let setup = Weir::setup().rules("rules.yaml", RULES).rules_of_settings();
    let setup = setup.file("weir.yaml", &settings);
    let file = setup.path("weir.yaml").display().to_string();
    let run = run(&setup.path(""), &["check", "--config", &file]);
    (setup.config("weir.yaml"), run)
}

#[test]
fn check_and_serve_reject_the_same_settings() {
    let certificates = Certificates::new();
    for (settings, parts) in REJECTED {
        let (setup, check) = checked(settings, &certificates);
        let (status, output) = setup.start_in_vain();
        assert_eq!((check.code, status.code()), (Some(1), Some(64)), "{settings}: {check:?}");
        assert_eq!(check.stderr.trim_end(), output, "{settings}");
        let lines: Vec<&str> = output.lines().collect();
        assert_eq!(lines.len(), parts.len(), "{settings}: {output}");
        for (line, part) in lines.iter().zip(*parts) {
            assert!(line.contains(part), "{settings}: {output}");
        }
        assert!(!output.contains("hunter2") && !output.contains("BEGIN"), "{output}");
    }
}

#[test]
fn check_and_serve_accept_the_same_settings() {
    let certificates = Certificates::new();
    for settings in ACCEPTED {
        let (setup, check) = checked(settings, &certificates);
        assert_eq!(check.code, Some(0), "{settings}: {check:?}");
        drop(setup.start());
    }
}
