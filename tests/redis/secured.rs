//! A Redis Cluster with TLS, client certificates, a user and a password.

use std::collections::HashMap;
use std::sync::Arc;

use crate::support::certificates::Certificates;
use crate::support::load::{LoadResult, MakeRequest, figures, send_all};
use crate::support::on_redis::{over, ready};
use crate::support::redis::cluster::Cluster;
use crate::support::rls::{costing, descriptor, request};
use crate::support::schedule::shared;
use crate::support::wait::until;
use crate::support::weir::{Weir, write};

const RULES: &str = "
domain: d
descriptors:
  - key: first
    rate_limit: { requests: 20, window: 1000d }
  - key: second
    rate_limit: { requests: 20, window: 1000d }
";

const LIMIT: usize = 20;

/// Counters per test: enough that every node has some.
const COUNTERS: usize = 40;

fn about(key: &'static str, hits: u64) -> MakeRequest {
    Arc::new(move |n| {
        let counter = (n % COUNTERS).to_string();
        request("d", vec![costing(hits, descriptor(&[(key, &counter)]))])
    })
}

/// Sends one and a half times the limit of each counter. Exactly the limit passes.
fn fill(weirs: &[Weir], key: &'static str) {
    let addresses: Vec<_> = weirs.iter().map(|weir| weir.grpc).collect();
    let answers = send_all(&addresses, 16, COUNTERS * LIMIT * 3 / 2, about(key, 1));
    figures(key, answers.iter());
    assert_eq!(answers.iter().find_map(LoadResult::fallback), None);
    let mut passed = HashMap::new();
    for answer in answers.iter().filter(|answer| answer.passed(0)) {
        *passed.entry(answer.index % COUNTERS).or_insert(0) += 1;
    }
    let wrong: Vec<_> = passed.iter().filter(|(_, passed)| **passed != LIMIT).collect();
    assert!(passed.len() == COUNTERS && wrong.is_empty(), "{key}: {wrong:?}");
}

/// The remaining hits of each counter, once Redis decides about all of them.
fn remaining(weirs: &[Weir], key: &'static str) -> Vec<usize> {
    let addresses: Vec<_> = weirs.iter().map(|weir| weir.grpc).collect();
    let mut left = Vec::new();
    until("nothing falls back", || {
        let answers = send_all(&addresses, 16, COUNTERS, about(key, 0));
        let of = |answer: &LoadResult| answer.response.statuses[0].limit_remaining as usize;
        left = answers.iter().map(of).collect();
        answers.iter().all(|answer| answer.fallback().is_none())
    });
    left
}

#[test]
fn limit_is_exact_on_a_cluster_over_tls() {
    let _permit = shared();
    let certificates = Certificates::new();
    let path = |name: &str| certificates.path(name).display().to_string();
    let page =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/operate/redis.md"));
    let page = page.expect("a page about Redis");
    let rights = page.lines().find_map(|line| line.strip_prefix("ACL SETUSER "));
    let rights: Vec<&str> = rights.expect("an example").split_whitespace().collect();
    let password = rights.iter().find_map(|word| word.strip_prefix('>')).expect("a password");
    // The default user has a password that weir does not have.
    let mut options = vec!["--requirepass", "others", "--masterauth", "others", "--user"];
    options.extend(&rights);
    options.extend(["--cluster-node-timeout", "1000", "--cluster-require-full-coverage", "no"]);
    let mut cluster = Cluster::tls(&certificates, &options);

    let file = certificates.path("password");
    write(&file, &format!("{password}\n"));
    let [first, second] = [&cluster.nodes[0], &cluster.nodes[1]].map(|node| node.address());
    let weirs = [0, 1].map(|_| {
        over(&format!("rediss-cluster://{first}?node={second}"), RULES)
            .store_timeout("20s")
            .env("WEIR__REDIS__TLS_CA", &path("ca.crt"))
            .env("WEIR__REDIS__TLS_CERT", &path("client.crt"))
            .env("WEIR__REDIS__TLS_KEY", &path("client.key"))
            .env("WEIR__REDIS__USERNAME", rights[0])
            .env("WEIR__REDIS__PASSWORD_FILE", &file.display().to_string())
            .start()
    });
    weirs.iter().for_each(ready);
    assert_eq!(remaining(&weirs, "first"), [LIMIT; COUNTERS]);
    fill(&weirs, "first");

    // A primary fails over to its replica without losing a write.
    let replica = cluster.replica_of(0);
    cluster.fail_over(replica);
    cluster.wait_until_whole();
    assert_eq!(remaining(&weirs, "first"), [0; COUNTERS], "all is still counted");

    // Another primary dies. Unreplicated writes are lost.
    let replica = cluster.replica_of(1);
    cluster.nodes[1].kill();
    cluster.wait_for_primary(replica);
    assert_eq!(remaining(&weirs, "second"), [LIMIT; COUNTERS]);
    fill(&weirs, "second");
}
