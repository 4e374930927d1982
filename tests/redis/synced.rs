//! Synced rules on a real Cluster: cost, overshoot, and behaviour without Redis.

use std::collections::HashMap;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crate::support::load::{Load, LoadResult, MakeRequest, figures};
use crate::support::on_redis::{cluster_url, over, ready};
use crate::support::redis::cluster::Cluster;
use crate::support::redis::proxy::Proxy;
use crate::support::redis::server::Server;
use crate::support::rls::{costing, descriptor, request};
use crate::support::schedule::exclusive;
use crate::support::wait::until;
use crate::support::weir::Weir;
use crate::support::weir::metrics::Metrics;

const COUNTERS: usize = 25;
const LIMIT: usize = 400;

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

fn passed(answers: &[LoadResult]) -> HashMap<usize, usize> {
    let mut passed = HashMap::new();
    for answer in answers.iter().filter(|answer| answer.passed(0)) {
        *passed.entry(tenant(answer.index)).or_default() += 1;
    }
    passed
}

fn metric(weir: &Weir, name: &str) -> u64 {
    Metrics::scrape(weir.admin).sum(name, &[])
}

/// Waits until every instance has made as many exchanges as `rounds` of all its counters need.
fn exchanged(weirs: &[Weir], rounds: usize) {
    let exchanges = |weir: &Weir| metric(weir, "weir_synced_exchanges_total");
    let before: Vec<u64> = weirs.iter().map(exchanges).collect();
    let more = (rounds * COUNTERS) as u64;
    until("all exchange what they know", || {
        weirs.iter().zip(&before).all(|(weir, before)| exchanges(weir) >= before + more)
    });
}

/// Three instances allow at least the limit and exceed it by at most the traffic of one interval.
#[test]
fn overshoot_is_at_most_one_interval_of_traffic() {
    let _permit = exclusive();
    let cluster = Cluster::start();
    let url = cluster_url(&cluster);
    let weirs = ["0s", "5m", "-5m"].map(|offset| {
        over(&url, RULES)
            .env("WEIR__STORE__TIMEOUT", "20s")
            .env("WEIR__CLOCK__OFFSET", offset)
            .start()
    });
    weirs.iter().for_each(ready);
    let addresses = weirs.each_ref().map(|weir| weir.grpc);
    let load = Load::start(&addresses, 4, spread("tenant"));
    let began = Instant::now();
    // Requests of the probe that pass count too.
    let mut looked = HashMap::<usize, usize>::new();
    until("every counter is full and all know it", || {
        weirs.iter().all(|weir| {
            let client = weir.client();
            (0..COUNTERS).all(|tenant| {
                let entry = [("tenant", tenant.to_string())];
                let entry = entry.each_ref().map(|(key, value)| (*key, value.as_str()));
                let denied = client.check(request("d", vec![descriptor(&entry)])).overall_code == 2;
                *looked.entry(tenant).or_default() += usize::from(!denied);
                denied
            })
        })
    });
    // Denials change no replica, so this is the constant cost of synchronization.
    let before: u64 = cluster.nodes.iter().map(Server::script_calls).sum();
    let first = Instant::now();
    exchanged(&weirs, 12);
    let after: u64 = cluster.nodes.iter().map(Server::script_calls).sum();
    let length = first.elapsed();
    let answers = load.stop();
    let rate = answers.len() as f64 / began.elapsed().as_secs_f64();
    figures("synced, 3 instances", answers.iter());
    assert_eq!(answers.iter().find_map(LoadResult::fallback), None);
    let mut passed = passed(&answers);
    for (tenant, hits) in looked {
        *passed.entry(tenant).or_default() += hits;
    }
    let most = passed.values().max().expect("25 counters");
    let least = passed.values().min().expect("25 counters");
    // The most that all instances can allow in one interval: every request that they answered.
    let in_interval = rate * 0.5 / COUNTERS as f64;
    let calls = (after - before) as f64 / length.as_secs_f64();
    eprintln!(
        "limit {LIMIT}: passed {least} to {most}; at {rate:.0} requests/s all instances together \
         let {in_interval:.0} per counter pass in an interval; {calls:.0} calls/s for {} copies, \
         two exchanges each per interval of 0.5 s",
        3 * COUNTERS
    );
    assert!(*least >= LIMIT, "denied early: {least}");
    let exchanges: u64 = weirs.iter().map(|weir| metric(weir, "weir_synced_exchanges_total")).sum();
    assert!(exchanges > 0);
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
        let weir = over(&format!("redis://{}", proxy.address()), RULES)
            .env("WEIR__STORE__TIMEOUT", "500ms")
            .start();
        ready(&weir);
        weir
    });
    let addresses = weirs.each_ref().map(|weir| weir.grpc);
    // Every instance uses every counter once while Redis is reachable.
    let mut before = 0;
    let mut warm = |weir: &Weir| {
        until("every counter is known", || {
            let question = spread("wide");
            let answers = crate::support::load::send_all(&[weir.grpc], 4, COUNTERS * 2, question);
            let fallen = answers.iter().filter(|answer| answer.fallback().is_some()).count();
            before += 2;
            // A hit that the fallback decided may or may not have been counted.
            assert_eq!(fallen, 0, "a quiet Redis answers in time");
            true
        });
        metric(weir, "weir_synced_counters")
    };
    assert_eq!(weirs.each_ref().map(&mut warm), [COUNTERS as u64; 2]);
    let left = |weir: &Weir| {
        let look = request("d", vec![costing(0, descriptor(&[("wide", "0")]))]);
        u64::from(weir.client().check(look).statuses[0].limit_remaining)
    };
    let load = Load::start(&addresses, 4, spread("wide"));
    exchanged(&weirs, 1);
    proxy.silence();
    // The fixed pause is the outage that is tested.
    thread::sleep(Duration::from_secs(5));
    proxy.heal();
    exchanged(&weirs, 2);
    let answers = load.stop();
    figures("synced, Redis silent for 5 s", answers.iter());
    assert_eq!(answers.iter().find_map(LoadResult::fallback), None, "zero errors");
    let asked = answers.iter().filter(|answer| tenant(answer.index) == 0).count();
    let (mut last, asked) = ([0, 0], before + asked as u64);
    until("both agree about all that was asked", || {
        last = weirs.each_ref().map(left);
        let counted = last.map(|left| 1_000_000 - left);
        assert!(counted.iter().all(|counted| *counted <= asked), "{last:?} left, {asked} asked");
        counted == [asked; 2]
    });
    eprintln!("{asked} asked of one counter: the instances see {last:?} of 1000000 left");
    let failures: u64 = weirs.iter().map(|weir| metric(weir, "weir_synced_errors_total")).sum();
    assert!(failures > 0, "Redis was away");
}
