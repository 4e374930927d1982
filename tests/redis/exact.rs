//! Exactness: several instances with wrong clocks allow exactly the limit.

use std::sync::Arc;
use std::time::Instant;

use crate::support::load::{LoadResult, figures, send_all};
use crate::support::on_redis::{cluster_url, over, ready};
use crate::support::redis::cluster::Cluster;
use crate::support::redis::server::Server;
use crate::support::rls::{costing, descriptor, request};
use crate::support::schedule::shared;
use crate::support::weir::Weir;

/// A store timeout that no busy machine reaches. These tests are about counts.
const LONG_TIMEOUT: &str = "20s";

const COUNTERS: usize = 20;
const LIMIT: usize = 60;

/// One rule per algorithm. Nothing expires during a test.
pub(crate) const RULES: &str = "
domain: d
descriptors:
  - key: fixed_window
    rate_limit: { requests: 60, window: 1000d }
  - key: sliding_window
    rate_limit: { algorithm: sliding_window, requests: 60, window: 1000d }
  - key: sliding_window_log
    rate_limit: { algorithm: sliding_window_log, requests: 60, window: 1000d }
  - key: token_bucket
    rate_limit: { algorithm: token_bucket, requests: 60, window: 1000d }
  - key: leaky_bucket
    rate_limit: { algorithm: leaky_bucket, requests: 60, window: 1000d }
  - key: concurrency
    rate_limit: { algorithm: concurrency, max: 60, hold: 1d }
";

/// The keys of `RULES`.
pub(crate) const ALGORITHMS: [&str; 6] = [
    "fixed_window",
    "sliding_window",
    "sliding_window_log",
    "token_bucket",
    "leaky_bucket",
    "concurrency",
];

/// Four instances whose clocks are minutes apart allow exactly the limit.
#[test]
fn limit_is_exact_across_instances() {
    let _permit = shared();
    let cluster = Cluster::start();
    let url = cluster_url(&cluster);
    let weirs = ["0s", "5m", "-5m", "150s"].map(|offset| {
        over(&url, RULES).store_timeout(LONG_TIMEOUT).env("WEIR__CLOCK__OFFSET", offset).start()
    });
    weirs.iter().for_each(ready);
    let addresses = weirs.each_ref().map(|weir| weir.grpc);
    // Twice the limit for every counter.
    let count = ALGORITHMS.len() * COUNTERS * LIMIT * 2;
    let question = Arc::new(|n: usize| {
        let (algorithm, counter) = named(n);
        request("d", vec![descriptor(&[(algorithm, &counter.to_string())])])
    });
    let answers = send_all(&addresses, 64, count, question);
    figures("4 instances, 64 callers each", answers.iter());
    assert_eq!(answers.len(), count);
    assert_eq!(answers.iter().find_map(|answer| answer.fallback()), None);
    for algorithm in ALGORITHMS {
        for counter in 0..COUNTERS {
            let its = |answer: &&LoadResult| named(answer.index) == (algorithm, counter);
            let passed = answers.iter().filter(its).filter(|answer| answer.passed(0)).count();
            assert_eq!(passed, LIMIT, "{algorithm}, counter {counter}");
        }
    }
}

/// The algorithm and the counter of request `n`.
fn named(n: usize) -> (&'static str, usize) {
    (ALGORITHMS[n % ALGORITHMS.len()], n / ALGORITHMS.len() % COUNTERS)
}

#[test]
fn each_descriptor_of_a_request_counts_once() {
    let _permit = shared();
    let server = Server::local();
    let url = format!("redis+unix://{}", server.socket().display());
    let weir = over(&url, RULES).store_timeout(LONG_TIMEOUT).start();
    ready(&weir);
    let question = Arc::new(|_| {
        let all = ALGORITHMS[..5].iter().map(|algorithm| descriptor(&[(algorithm, "x")]));
        request("d", all.collect())
    });
    let answers = send_all(&[weir.grpc], 16, 100, question);
    for (index, algorithm) in ALGORITHMS[..5].iter().enumerate() {
        let passed = answers.iter().filter(|answer| answer.passed(index)).count();
        assert_eq!(passed, LIMIT, "{algorithm}");
    }
}

/// Instances share counters if and only if they have the same `redis.key_secret`.
#[test]
fn instances_share_counters_by_secret() {
    let _permit = shared();
    let server = Server::local();
    let url = format!("redis+unix://{}", server.socket().display());
    let start = |secret: &str| {
        let weir = over(&url, RULES)
            .store_timeout(LONG_TIMEOUT)
            .env("WEIR__REDIS__KEY_SECRET", secret)
            .start();
        ready(&weir);
        weir
    };
    let left = |weir: &Weir| {
        let check = request("d", vec![descriptor(&[("fixed_window", "x")])]);
        weir.client().check(check).statuses[0].limit_remaining
    };
    let (first, second, other) = (start("one"), start("one"), start("two"));
    assert_eq!([left(&first), left(&second), left(&first)], [59, 58, 57]);
    assert_eq!(left(&other), 59);
}

/// Instances whose clocks are minutes apart report the same end of a window.
#[test]
fn instances_agree_on_the_end_of_a_window() {
    let _permit = shared();
    let server = Server::local();
    let url = format!("redis+unix://{}", server.socket().display());
    let rules = "
domain: d
descriptors:
  - key: k
    rate_limit: { requests: 60, window: 1h }
  - key: month
    rate_limit: { requests: 60, window: { calendar: month, zone: Europe/Zurich } }
";
    let weirs = ["0s", "5m", "-5m"].map(|offset| {
        over(&url, rules).store_timeout(LONG_TIMEOUT).env("WEIR__CLOCK__OFFSET", offset).start()
    });
    weirs.iter().for_each(ready);
    // Milliseconds to the end of the window, per instance.
    let ends = |key: &str| {
        weirs.each_ref().map(|weir| {
            let check = request("d", vec![costing(0, descriptor(&[(key, "x")]))]);
            let answer = weir.client().check(check);
            let until = answer.statuses[0].duration_until_reset.expect("there is a window");
            until.seconds * 1_000 + i64::from(until.nanos) / 1_000_000
        })
    };
    for key in ["k", "month"] {
        let began = Instant::now();
        let mut seen = ends(key);
        // The window may have ended between two of the requests.
        if seen.iter().max() > seen.iter().min().map(|min| min + 3_000_000).as_ref() {
            seen = ends(key);
        }
        let took = began.elapsed().as_millis() as i64;
        let spread = seen.iter().max().expect("three") - seen.iter().min().expect("three");
        // The requests are sent one after the other.
        assert!(spread <= 1_000 + took, "{spread} ms apart, sent in {took} ms: {seen:?}");
    }
}
