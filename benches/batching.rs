//! The effect of batching: Redis CPU per decision with batches and with one call each.
//!
//! 256 clients on two cores send as fast as one real Redis replies: for one counter, and for 100
//! 000. Rounds of both are interleaved, and the median of each is printed. Both must make the same
//! decisions.
//!
//!   cargo bench --bench batching [PART OF A NAME...]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use weir::algorithm::plan;
use weir::key::CounterKey;
use weir::limit::{Algorithm, Limit, Tier};
use weir::settings::{RedisSettings, RedisUrl};
use weir::store::redis::NodeSnapshot;
use weir::store::{NodeId, RedisStore, SharedStore};
use weir::time::{Clock, Micros, SystemClock};

#[allow(dead_code, unused_imports, reason = "the tests use the rest")]
#[path = "../tests/support"]
mod support {
    pub(crate) mod certificates;
    pub(crate) mod redis;
    pub(crate) mod wait;
}

use support::redis::server::Server;

const CORES: usize = 2;
const CALLERS: usize = 128;
const ROUNDS: usize = 5;
const DECISIONS: usize = 30_000;
const COUNTERS: u64 = 100_000;

/// One case of the comparison.
#[derive(Clone, Copy)]
struct Way {
    name: &'static str,
    counters: u64,
    algorithm: Algorithm,
    requests: u64,
}

/// The result of one round.
#[derive(Clone, Copy)]
struct Round {
    /// Redis CPU per decision.
    us: f64,
    per_second: f64,
    per_call: f64,
    passed: usize,
}

fn main() {
    let server = Server::local();
    let store = |batch| {
        let url = RedisUrl::parse(&server.socket().display().to_string()).expect("a path");
        let settings = RedisSettings { url, max_batch_size: batch, ..RedisSettings::default() };
        let started = RedisStore::start(&settings, 1, SystemClock::default());
        Arc::new(started.expect("settings that work"))
    };
    let stores = [store(1), store(128)];
    while !stores.iter().all(|store| store.is_reachable()) {
        std::thread::yield_now();
    }
    let hot = |name, algorithm, requests| Way { name, counters: 1, algorithm, requests };
    let ways = [
        hot("hot, fixed_window", Algorithm::FixedWindow, 1 << 40),
        hot("hot, fixed_window, most denied", Algorithm::FixedWindow, 1_000),
        hot("hot, sliding_window", Algorithm::SlidingWindow, 1 << 40),
        hot("hot, token_bucket", Algorithm::TokenBucket, 1_000_000_000),
        Way { counters: COUNTERS, ..hot("100 000, fixed_window", Algorithm::FixedWindow, 1 << 40) },
        Way {
            counters: COUNTERS,
            ..hot("100 000, token_bucket", Algorithm::TokenBucket, 1_000_000_000)
        },
    ];
    let wanted: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let ways = ways.into_iter().filter(|way| {
        wanted.is_empty() || wanted.iter().any(|word| way.name.contains(word.as_str()))
    });
    println!("{:<32} {:>22} {:>36}", "", "alone", "together");
    for way in ways {
        let mut rounds: [Vec<Round>; 2] = Default::default();
        for _ in 0..ROUNDS {
            for (store, rounds) in stores.iter().zip(&mut rounds) {
                rounds.push(round(&server, store, way));
            }
        }
        let passed = rounds.iter().flatten().map(|round| round.passed);
        let passed: std::collections::BTreeSet<usize> = passed.collect();
        assert_eq!(passed.len(), 1, "{}: other decisions: {passed:?}", way.name);
        let median = |rounds: &[Round], of: fn(&Round) -> f64| {
            let mut all: Vec<f64> = rounds.iter().map(of).collect();
            all.sort_by(f64::total_cmp);
            all[all.len() / 2]
        };
        let [alone, together] = &rounds;
        let (one, many) = (median(alone, |one| one.us), median(together, |one| one.us));
        println!(
            "{:<32} {one:>6.2} us {:>8.0}/s {many:>10.2} us {:>8.0}/s {:>5.1} per call {:.1} times",
            way.name,
            median(alone, |one| one.per_second),
            median(together, |one| one.per_second),
            median(together, |one| one.per_call),
            one / many,
        );
    }
}

/// CPU seconds of the main thread, which runs commands.
fn cpu(server: &Server) -> f64 {
    let info = server.client().run(&["INFO", "cpu"]).text();
    let value = |name: &str| {
        let line = info.lines().find_map(|line| line.strip_prefix(name)).expect("Redis 7 tells");
        line.trim_start_matches(':').trim().parse::<f64>().expect("seconds")
    };
    value("used_cpu_user_main_thread") + value("used_cpu_sys_main_thread")
}

fn round(server: &Server, store: &Arc<RedisStore>, way: Way) -> Round {
    server.client().run(&["FLUSHDB"]);
    // All in one window, in which no bucket refills.
    let tier = Tier {
        requests: way.requests,
        window: Micros(1 << 46),
        burst: way.requests,
        calendar: None,
    };
    let limit = Limit { algorithm: way.algorithm, tiers: [tier].into(), count_denied: false };
    if way.counters > 1 {
        work(store, way.counters, &limit, COUNTERS as usize);
    }
    let (before, began, sent) = (cpu(server), Instant::now(), store.node_snapshot(NodeId(0)));
    let passed = work(store, way.counters, &limit, DECISIONS);
    let took = began.elapsed().as_secs_f64();
    let NodeSnapshot { calls, steps, .. } = store.node_snapshot(NodeId(0));
    Round {
        us: (cpu(server) - before) * 1e6 / DECISIONS as f64,
        per_second: DECISIONS as f64 / took,
        per_call: (steps - sent.steps) as f64 / (calls - sent.calls) as f64,
        passed,
    }
}

/// Sends this many requests. Returns how many were allowed.
fn work(store: &Arc<RedisStore>, counters: u64, limit: &Limit, decisions: usize) -> usize {
    let (left, passed) = (Arc::new(AtomicUsize::new(decisions)), Arc::new(AtomicUsize::new(0)));
    std::thread::scope(|scope| {
        for _ in 0..CORES {
            scope.spawn(|| {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                runtime.expect("a runtime").block_on(async {
                    let tasks: Vec<_> = (0..CALLERS)
                        .map(|_| {
                            let (store, limit) = (store.clone(), limit.clone());
                            let (left, passed) = (left.clone(), passed.clone());
                            tokio::spawn(async move {
                                while let Some(index) = next(&left) {
                                    let key = key(index as u64 % counters);
                                    let now = store.now(&key, SystemClock::default().now());
                                    let step = plan(&limit, 1, now.expect("measured"));
                                    let outcome = store.apply(&key, &step).await.expect("one");
                                    passed.fetch_add(outcome.allowed.into(), Ordering::Relaxed);
                                }
                            })
                        })
                        .collect();
                    for task in tasks {
                        task.await.expect("no panic");
                    }
                });
            });
        }
    });
    passed.load(Ordering::Relaxed)
}

fn next(left: &AtomicUsize) -> Option<usize> {
    let relaxed = Ordering::Relaxed;
    left.fetch_update(relaxed, relaxed, |left| left.checked_sub(1)).ok().map(|left| left - 1)
}

/// Counter number `n`, distributed like a hash.
fn key(n: u64) -> CounterKey {
    CounterKey([n.wrapping_mul(0x9e37_79b9_7f4a_7c15), n.wrapping_mul(0xbf58_476d_1ce4_e5b9)])
}
