//! Tests of settings that are each valid, but not together.

use super::*;

#[test]
fn a_source_of_plans_needs_its_place() {
    let table = [
        ("plans: {source: none}", None),
        ("plans: {source: file}", Some("plans.source `file` needs plans.file; set it")),
        ("plans: {source: file, file: p.yaml, customers_file: c.csv}", None),
        ("plans: {file: p.yaml, url: 'http://h'}", None),
        ("plans: {source: http}", Some("plans.source `http` needs plans.url; set it")),
        ("plans: {source: http, url: 'https://h/p'}", None),
        ("plans: {source: http, url: 'h/p'}", Some("is not an address")),
        ("plans: {source: redis}", Some("plans.source `redis` needs store.kind `redis`;")),
        ("{plans: {source: redis}, redis: {url: 'redis://h'}}", None),
        ("plans: {source: fil}", Some("write `none` or `file` or `redis` or `http`")),
    ];
    for (file, expected) in table {
        let lines = run(file, &[], Flags::default()).err().unwrap_or_default();
        assert_eq!(lines.len(), usize::from(expected.is_some()), "{file}: {lines:?}");
        let part = expected.unwrap_or_default();
        assert!(lines.iter().all(|line| line.contains(part)), "{file}: {lines:?}");
    }
}

#[test]
fn settings_of_tls_need_each_other() {
    const REDIS: &str = "redis.tls_cert and redis.tls_key go together";
    const XDS: &str = "rules.xds.tls_cert and rules.xds.tls_key go together";
    const UNUSED: &str = "have an effect only with rules.xds.tls;";
    const NO_NAME: &str = "is not a name of a server";
    let table = [
        ("grpc: {tls_cert: c}", &["grpc.tls_cert and grpc.tls_key go together"][..]),
        ("grpc: {tls_key: k}", &["grpc.tls_cert and grpc.tls_key go together"]),
        ("grpc: {tls_client_ca: c}", &["grpc.tls_client_ca needs grpc.tls_cert and grpc.tls_key"]),
        ("grpc: {tls_client_san: a}", &["grpc.tls_client_san needs grpc.tls_client_ca"]),
        ("grpc: {tls_client_san: '*.a'}", &["is neither a DNS name nor a URI"]),
        ("grpc: {tls_client_san: ' , '}", &[]),
        ("redis: {url: 'rediss://h', tls_cert: c}", &[REDIS]),
        ("redis: {url: 'rediss://h', tls_key: k}", &[REDIS]),
        ("redis: {url: 'redis://h', tls_key: k}", &[]),
        ("{redis: {url: 'rediss://h', tls_key: k}, store: {kind: memory}}", &[]),
        ("rules: {xds: {server: 'h:1', tls: true, tls_cert: c}}", &[XDS]),
        ("rules: {xds: {server: 'h:1', tls_key: k}}", &[XDS, UNUSED]),
        ("rules: {xds: {server: 'h:1', tls_ca: c}}", &[UNUSED]),
        ("rules: {xds: {server: 'h:1', tls_server_name: n}}", &[UNUSED]),
        ("rules: {xds: {server: 'h:1', tls: true, tls_server_name: a b}}", &[NO_NAME]),
        ("rules: {xds: {server: 'a..b:1', tls: true}}", &[NO_NAME]),
        ("rules: {xds: {server: '[::1]:1', tls: true}}", &[]),
        ("rules: {xds: {tls_key: k}}", &[]),
    ];
    for (file, parts) in table {
        let lines = run(file, &[], Flags::default()).err().unwrap_or_default();
        assert_eq!(lines.len(), parts.len(), "{file}: {lines:?}");
        for (line, part) in lines.iter().zip(parts) {
            assert!(line.contains(part), "{file}: {lines:?}");
        }
    }
}
