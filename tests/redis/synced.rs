//! Synced rules on a real Cluster: cost, overshoot, and behaviour without Redis.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crate::support::load::{Load, LoadResult, MakeRequest, figures, send_all};
use crate::support::on_redis::{cluster_url, over, ready};
use crate::support::redis::cluster::Cluster;
use crate::support::redis::proxy::Proxy;
use crate::support::redis::server::Server;
use crate::support::rls::{descriptor, request};
use crate::support::schedule::exclusive;
use crate::support::wait::until;
use crate::support::weir::Weir;
use crate::support::weir::metrics::Metrics;

const COUNTERS: usize = 25;
const LIMIT: usize = 400;

/// The `sync_interval` of `tenant`.
const SYNC_INTERVAL: Duration = Duration::from_millis(500);

/// The period of weir's background job, as docs/guides/modes.md states it.
const JOB_PERIOD: Duration = Duration::from_millis(10);

const STORE_TIMEOUT: Duration = Duration::from_secs(20);

const RULES: &str = "
domain: d
descriptors:
  - key: tenant
    rate_limit: { requests: 400, window: 1000d, mode: synced, sync_interval: 500ms }
  - key: wide
    rate_limit:
      { requests: 1000000, window: 1000d, mode: synced, sync_interval: 200ms, on_error: deny }
";

/// The counter of request `n`.
fn tenant(n: usize) -> usize {
    n % COUNTERS
}

fn spread(key: &'static str) -> MakeRequest {
    Arc::new(move |n| request("d", vec![descriptor(&[(key, &tenant(n).to_string())])]))
}

/// An allowed request.
#[derive(Clone, Copy)]
struct Hit {
    tenant: usize,
    instance: SocketAddr,
    /// The instance decided between these two instants.
    sent: Instant,
    answered: Instant,
}

fn allowed(answers: &[LoadResult]) -> Vec<Hit> {
    let allowed = answers.iter().filter(|answer| answer.passed(0));
    let hit = |answer: &LoadResult| Hit {
        tenant: tenant(answer.index),
        instance: answer.instance,
        sent: answer.at - answer.latency,
        answered: answer.at,
    };
    allowed.map(hit).collect()
}

/// The largest number of hits on one counter that an instance had to know of when it allowed its
/// last one: its own hits, and those that other instances allowed at least `delay` earlier.
fn most_known_hits(hits: &[Hit], delay: Duration) -> usize {
    let mut own = HashMap::<(usize, SocketAddr), (usize, Instant)>::new();
    for hit in hits {
        let (count, last) = own.entry((hit.tenant, hit.instance)).or_insert((0, hit.sent));
        *count += 1;
        *last = hit.sent.max(*last);
    }
    let known = own.iter().map(|((tenant, instance), (count, last))| {
        let others = hits.iter().filter(|hit| hit.tenant == *tenant && hit.instance != *instance);
        count + others.filter(|hit| hit.answered + delay <= *last).count()
    });
    known.max().expect("some requests are allowed")
}

/// The duration of the slowest call to Redis, rounded up to a bound of the histogram.
fn slowest_call(weirs: &[Weir]) -> Duration {
    let slowest = weirs
        .iter()
        .map(|weir| Metrics::scrape(weir.admin).slowest("weir_redis_step_duration_seconds"));
    let slowest = slowest.fold(0.0, f64::max);
    Duration::try_from_secs_f64(slowest).unwrap_or(STORE_TIMEOUT)
}

/// Waits until every instance has made as many exchanges as `rounds` of all its counters need.
fn exchanged(weirs: &[Weir], rounds: usize) {
    let exchanges = |weir: &Weir| weir.metric("weir_synced_exchanges_total", &[]);
    let before: Vec<u64> = weirs.iter().map(exchanges).collect();
    let more = (rounds * COUNTERS) as u64;
    until("all instances have exchanged counts", || {
        weirs.iter().zip(&before).all(|(weir, before)| exchanges(weir) >= before + more)
    });
}

/// Three instances allow at least the limit, and exceed it by at most what the other instances
/// allow in one interval: each allows its last hit only if the limit has room for its own hits and
/// for those of the others that are older than an interval and two exchanges.
#[test]
fn overshoot_is_at_most_one_interval_of_traffic() {
    let _permit = exclusive();
    let cluster = Cluster::start();
    let url = cluster_url(&cluster);
    let weirs = ["0s", "5m", "-5m"].map(|offset| {
        over(&url, RULES)
            .store_timeout(&format!("{}s", STORE_TIMEOUT.as_secs()))
            .env("WEIR__CLOCK__OFFSET", offset)
            .start()
    });
    weirs.iter().for_each(ready);
    let addresses = weirs.each_ref().map(|weir| weir.grpc);
    let load = Load::start(&addresses, 4, spread("tenant"));
    // Requests of the probe that pass count too.
    let mut probed = Vec::new();
    until("every instance denies every counter", || {
        weirs.iter().all(|weir| {
            let client = weir.client();
            (0..COUNTERS).all(|tenant| {
                let entry = [("tenant", tenant.to_string())];
                let entry = entry.each_ref().map(|(key, value)| (*key, value.as_str()));
                let sent = Instant::now();
                let denied = client.check(request("d", vec![descriptor(&entry)])).overall_code == 2;
                if !denied {
                    probed.push(Hit {
                        tenant,
                        instance: weir.grpc,
                        sent,
                        answered: Instant::now(),
                    });
                }
                denied
            })
        })
    });
    // Denials change no replica, so this is the constant cost of synchronization.
    let first = Instant::now();
    let before: u64 = cluster.nodes.iter().map(Server::script_calls).sum();
    exchanged(&weirs, 12);
    let after: u64 = cluster.nodes.iter().map(Server::script_calls).sum();
    let length = first.elapsed();
    let answers = load.stop();
    figures("synced, 3 instances", answers.iter());
    assert_eq!(answers.iter().find_map(LoadResult::fallback), None);
    let hits = [allowed(&answers), probed].concat();
    let mut passed = HashMap::<usize, usize>::new();
    for hit in &hits {
        *passed.entry(hit.tenant).or_default() += 1;
    }
    let most = passed.values().max().expect("25 counters");
    let least = passed.values().min().expect("25 counters");
    // Both exchanges of a hit may be late by what the machine was slow: by the slowest call to
    // Redis, and by the longest time in which an instance did not answer.
    let stall = answers.iter().map(|answer| answer.latency).max().expect("some answers");
    let delay = SYNC_INTERVAL + 2 * (JOB_PERIOD + slowest_call(&weirs) + stall);
    let known = most_known_hits(&hits, delay);
    let calls = (after - before) as f64 / length.as_secs_f64();
    eprintln!(
        "limit {LIMIT}: passed {least} to {most}; an instance knew of at most {known} hits within \
         {delay:?}; {calls:.0} calls/s for {} copies, two exchanges each per interval of 0.5 s",
        3 * COUNTERS
    );
    assert!(*least >= LIMIT, "denied early: {least}");
    assert!(known <= LIMIT, "an instance allowed its last hit after {known} that it knew of");
    // At most one call per replica and exchange. Batching reduces the number of calls.
    let exchanges_each = length.as_micros() as u64 / 250_000 + 1;
    assert!(after - before <= 3 * COUNTERS as u64 * exchanges_each, "{calls} calls per second");
}

/// While Redis is unreachable for 5 s nothing falls back, and afterwards every hit is counted.
#[test]
fn redis_outage_causes_no_fallback_and_no_loss() {
    let _permit = exclusive();
    let server = Server::listening(&[]);
    let proxy = Proxy::to(server.address());
    let weirs = [0, 1].map(|_| {
        let weir =
            over(&format!("redis://{}", proxy.address()), RULES).store_timeout("500ms").start();
        ready(&weir);
        weir
    });
    let addresses = weirs.each_ref().map(|weir| weir.grpc);
    // Every instance uses every counter twice while Redis is reachable.
    for weir in &weirs {
        let answers = send_all(&[weir.grpc], 4, COUNTERS * 2, spread("wide"));
        // A hit that the fallback decided may or may not have been counted.
        assert_eq!(answers.iter().find_map(LoadResult::fallback), None, "Redis answers in time");
        until("the instance has a replica of every counter", || {
            weir.metric("weir_synced_counters", &[]) == COUNTERS as u64
        });
    }
    let before = 2 * weirs.len() as u64;
    let remaining = |weir: &Weir| u64::from(weir.client().remaining("d", &[("wide", "0")]));
    let load = Load::start(&addresses, 4, spread("wide"));
    exchanged(&weirs, 1);
    proxy.silence();
    // The fixed pause is the outage that is tested.
    thread::sleep(Duration::from_secs(5));
    proxy.heal();
    exchanged(&weirs, 2);
    let answers = load.stop();
    figures("synced, Redis silent for 5 s", answers.iter());
    assert_eq!(answers.iter().find_map(LoadResult::fallback), None, "no decision falls back");
    let sent = answers.iter().filter(|answer| tenant(answer.index) == 0).count();
    let (mut last, sent) = ([0, 0], before + sent as u64);
    until("both instances have counted every hit", || {
        last = weirs.each_ref().map(remaining);
        let counted = last.map(|remaining| 1_000_000 - remaining);
        assert!(counted.iter().all(|counted| *counted <= sent), "{last:?} remain, {sent} sent");
        counted == [sent; 2]
    });
    eprintln!("{sent} hits on one counter: the instances show {last:?} of 1000000 remaining");
    let failures: u64 = weirs.iter().map(|weir| weir.metric("weir_synced_errors_total", &[])).sum();
    assert!(failures > 0, "no exchange failed while Redis was unreachable");
}
