//! Every way to reach Redis: credentials, sentinels, and passwords that change.

use crate::bed::sentinel::{SERVICE, Watched};
use crate::bed::server::Server;
use crate::start::{alone, over, ready, until};
use crate::support::rls::{descriptor, headers, request};
use crate::support::weir::{Weir, write};

const RULES: &str = "
domain: d
descriptors:
  - key: k
    rate_limit: { requests: 1000000, window: 1000d }
";

/// What is left, or nothing when the fallback answered.
fn left(weir: &Weir) -> Option<u32> {
    let answer = weir.client().ask(request("d", vec![descriptor(&[("k", "x")])]));
    let counted = headers(&answer).iter().any(|(_, how)| how.ends_with("fallback=none"));
    counted.then(|| answer.statuses[0].limit_remaining)
}

#[test]
fn an_acl_user_needs_no_more_than_the_documented_rights() {
    let _turn = alone();
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/redis.md"));
    let page = page.expect("a page about Redis");
    let line = page.lines().find(|line| line.starts_with("ACL SETUSER weir ")).expect("an example");
    let server = Server::listening(&[]);
    let words: Vec<&str> = line.split_whitespace().collect();
    server.client().ask(&words);
    let password = words.iter().find_map(|word| word.strip_prefix('>')).expect("a password");
    server.client().ask(&["ACL", "SETUSER", "default", "off"]);
    let weir = over(&format!("redis://weir:{password}@{}", server.address()), RULES)
        .env("WEIR__STORE__TIMEOUT", "5s")
        .start();
    ready(&weir);
    assert_eq!(left(&weir), Some(999_999));
}

#[test]
fn a_password_in_a_file_is_read_again_for_every_connection() {
    let _turn = alone();
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("password");
    write(&file, "first\n");
    let mut server = Server::listening(&["--requirepass", "first"]);
    let weir = over(&format!("redis://{}", server.address()), RULES)
        .env("WEIR__STORE__TIMEOUT", "5s")
        .env("WEIR__REDIS__PASSWORD_FILE", &file.display().to_string())
        .start();
    ready(&weir);
    assert_eq!(left(&weir), Some(999_999));
    // Wrong until the file is mended; then it goes on by itself.
    write(&file, "wrong\n");
    server.restart();
    until("it is let in no more", || left(&weir).is_none());
    write(&file, "first\n");
    until("it is let in again", || left(&weir).is_some());
}

#[test]
fn sentinels_lead_to_the_primary_and_to_the_next_one() {
    let _turn = alone();
    let mut watched = Watched::start();
    let ports = watched.sentinel_ports();
    let nodes = ports[1..].iter().map(|port| format!("&node=127.0.0.1:{port}"));
    let nodes: String = nodes.collect();
    let url =
        format!("redis-sentinel://127.0.0.1:{}?sentinelServiceName={SERVICE}{nodes}", ports[0]);
    let weir = over(&url, RULES).env("WEIR__STORE__TIMEOUT", "1s").start();
    ready(&weir);
    assert_eq!(left(&weir), Some(999_999));
    watched.servers[0].kill();
    watched.wait_for_failover();
    until("the new primary counts", || left(&weir).is_some());
}
