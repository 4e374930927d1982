//! Connections to Redis: credentials, sentinels, TLS, and credentials that change.

use crate::exact;
use crate::support::certificates::Certificates;
use crate::support::http::send;
use crate::support::on_redis::{over, ready};
use crate::support::redis::resp::Client;
use crate::support::redis::sentinel::{SERVICE, Watched};
use crate::support::redis::server::Server;
use crate::support::rls::{costing, descriptor, headers, request};
use crate::support::schedule::{exclusive, shared};
use crate::support::wait::until;
use crate::support::weir::{Setup, Weir, write};

const RULES: &str = "
domain: d
descriptors:
  - key: k
    rate_limit: { requests: 1000000, window: 1000d }
";

/// The remaining hits, or `None` if the fallback decided.
fn remaining(weir: &Weir) -> Option<u32> {
    let answer = weir.client().check(request("d", vec![descriptor(&[("k", "x")])]));
    let counted = headers(&answer).iter().any(|(_, value)| value.ends_with("fallback=none"));
    counted.then(|| answer.statuses[0].limit_remaining)
}

#[test]
fn the_documented_acl_rights_are_enough() {
    let _permit = shared();
    let page =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/operate/redis.md"));
    let page = page.expect("a page about Redis");
    let line = page.lines().find(|line| line.starts_with("ACL SETUSER weir ")).expect("an example");
    let server = Server::listening(&[]);
    let words: Vec<&str> = line.split_whitespace().collect();
    server.client().run(&words);
    let password = words.iter().find_map(|word| word.strip_prefix('>')).expect("a password");
    server.client().run(&["ACL", "SETUSER", "default", "off"]);
    let weir = over(&format!("redis://weir:{password}@{}", server.address()), exact::RULES)
        .store_timeout("5s")
        .start();
    ready(&weir);
    for algorithm in exact::ALGORITHMS {
        let check = |hits| {
            let descriptor = costing(hits, descriptor(&[(algorithm, "x")]));
            let answer = weir.client().check(request("d", vec![descriptor]));
            let headers = headers(&answer);
            let counted = headers.iter().any(|(_, value)| value.ends_with("fallback=none"));
            assert!(counted, "{algorithm}: {answer:?}");
            answer.statuses[0].limit_remaining
        };
        assert_eq!([check(0), check(2), check(1)], [60, 58, 57], "{algorithm}");
        check(60);
        let path = format!("/counters?domain=d&descriptor={algorithm}=x");
        let emptied = || send(weir.admin, "DELETE", &path, &[], b"").json();
        assert_eq!(emptied()["existed"], true, "{algorithm}");
        assert_eq!(emptied()["existed"], false, "{algorithm}");
        assert_eq!(check(0), 60, "{algorithm}");
    }
}

#[test]
fn the_password_file_is_read_per_connection() {
    let _permit = shared();
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("password");
    write(&file, "first\n");
    let mut server = Server::listening(&["--requirepass", "first"]);
    let weir = over(&format!("redis://{}", server.address()), RULES)
        .store_timeout("5s")
        .env("WEIR__REDIS__PASSWORD_FILE", &file.display().to_string())
        .start();
    ready(&weir);
    assert_eq!(remaining(&weir), Some(999_999));
    // The password is wrong until the file is corrected. Then weir recovers by itself.
    write(&file, "wrong\n");
    server.restart();
    until("Redis refuses the password", || remaining(&weir).is_none());
    write(&file, "first\n");
    until("Redis accepts the password", || remaining(&weir).is_some());
}

/// weir finds the primary through the sentinels, and its successor after a failover.
#[test]
fn sentinels_lead_to_the_new_primary() {
    let _permit = exclusive();
    let mut watched = Watched::start();
    let weir = over(&watched.url(), RULES).store_timeout("1s").start();
    ready(&weir);
    assert_eq!(remaining(&weir), Some(999_999));
    watched.servers[0].kill();
    watched.wait_for_failover();
    until("the new primary counts", || remaining(&weir).is_some());
}

#[test]
fn weir_leaves_a_demoted_primary() {
    let _permit = exclusive();
    let watched = Watched::start();
    let port = watched.sentinel_ports()[0];
    let url = format!("redis-sentinel://127.0.0.1:{port}?sentinelServiceName={SERVICE}");
    let weir = over(&url, RULES).store_timeout("1s").start();
    ready(&weir);
    assert!(remaining(&weir).is_some());
    let address = (std::net::Ipv4Addr::LOCALHOST, port).into();
    let mut sentinel = Client::tcp(address, crate::support::wait::TIMEOUT).expect("it listens");
    sentinel.run(&["SENTINEL", "FAILOVER", SERVICE]);
    watched.wait_for_failover();
    let role = || watched.servers[1].client().run(&["INFO", "replication"]).text();
    until("the new primary counts", || {
        role().contains("role:master") && remaining(&weir).is_some()
    });
}

/// A weir process that connects over TLS with these settings, not started yet.
fn over_tls(url: &str, settings: &[(&str, &std::path::Path)]) -> Setup {
    let setup = over(url, RULES).store_timeout("5s");
    settings.iter().fold(setup, |setup, (name, path)| setup.env(name, &path.display().to_string()))
}

#[test]
fn tls_uses_the_configured_ca_and_certificate() {
    let _permit = shared();
    let certificates = Certificates::new();
    let path = |name: &str| certificates.path(name);
    let server = Server::tls(&certificates, true);
    let url = format!("rediss://localhost:{}", server.port());
    let (ca, cert, key) = (path("ca.crt"), path("client.crt"), path("client.key"));
    let weir = over_tls(
        &url,
        &[
            ("WEIR__REDIS__TLS_CA", &ca),
            ("WEIR__REDIS__TLS_CERT", &cert),
            ("WEIR__REDIS__TLS_KEY", &key),
        ],
    );
    let weir = weir.start();
    ready(&weir);
    assert_eq!(remaining(&weir), Some(999_999));

    // Without a client certificate the server closes the connection, and weir serves by fallback.
    let mut nameless = over_tls(&url, &[("WEIR__REDIS__TLS_CA", &ca)]).start();
    wait_for_log(&mut nameless, "no connection to Redis");
    assert_eq!(remaining(&nameless), None);
}

#[test]
fn tls_checks_the_host_name_by_default() {
    let _permit = shared();
    let certificates = Certificates::new();
    let ca = certificates.path("ca.crt");
    let server = Server::tls(&certificates, false);
    // The URL has an address of the machine that is not in the certificate.
    let url = format!("rediss://[::ffff:127.0.0.1]:{}", server.port());
    let start = |skip: &str| {
        over_tls(&url, &[("WEIR__REDIS__TLS_CA", &ca)])
            .env("WEIR__REDIS__TLS_SKIP_HOSTNAME_CHECK", skip)
            .start()
    };
    let mut strict = start("false");
    wait_for_log(&mut strict, "certificate not valid for name");
    assert_eq!(remaining(&strict), None);
    let lax = start("true");
    ready(&lax);
    assert_eq!(remaining(&lax), Some(999_999));
    // Only the name is not checked: another authority is still rejected.
    let other = Certificates::new();
    let mut fooled = over_tls(&url, &[("WEIR__REDIS__TLS_CA", &other.path("ca.crt"))])
        .env("WEIR__REDIS__TLS_SKIP_HOSTNAME_CHECK", "true")
        .start();
    wait_for_log(&mut fooled, "no connection to Redis");
    assert_eq!(remaining(&fooled), None);
}

#[test]
fn certificates_are_read_per_connection() {
    let _permit = shared();
    let mut certificates = Certificates::new();
    let path = |name: &str| certificates.path(name);
    let (ca, cert, key) = (path("ca.crt"), path("client.crt"), path("client.key"));
    let mut server = Server::tls(&certificates, true);
    let mut weir = over_tls(
        &format!("rediss://localhost:{}", server.port()),
        &[
            ("WEIR__REDIS__TLS_CA", &ca),
            ("WEIR__REDIS__TLS_CERT", &cert),
            ("WEIR__REDIS__TLS_KEY", &key),
        ],
    )
    .start();
    ready(&weir);
    assert_eq!(remaining(&weir), Some(999_999));
    // Both sides change to a new authority, so neither trusts the old files.
    certificates.renew();
    server.restart();
    wait_for_log(&mut weir, "certificates for Redis reloaded");
    until("Redis accepts the new certificates", || remaining(&weir).is_some());
    // The key is half-written. weir keeps the previous certificates.
    write(&key, "no key");
    server.restart();
    wait_for_log(&mut weir, "certificates for Redis not reloaded: old ones stay");
    until("Redis accepts the certificates in use", || remaining(&weir).is_some());
    assert!(!weir.process().output().contains("BEGIN"), "no key in the log");
}

/// Waits until weir has logged `text`.
fn wait_for_log(weir: &mut Weir, text: &str) {
    weir.process().wait_for(text, |line| line.contains(text).then_some(()));
}
