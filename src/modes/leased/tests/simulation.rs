//! Simulations of several instances with random faults. Limits are never exceeded, and early
//! denials are due to unspent credits of other instances only.
//!
//! `src/limiter/tests/simulation` covers what this one does not: reloads, outages, several nodes,
//! hits that return through other instances, and early denials of all algorithms.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::fixture::{BEGIN, Instance};
use super::oracle::{Passed, broken};
use crate::key::CounterKey;
use crate::limit::{Algorithm, Limit, Tier};
use crate::step::State;
use crate::testing::network::{Conditions, Network};
use crate::testing::{Rng, calendar_edges};
use crate::time::Micros;

/// Every edge of a window is a multiple of it, in microseconds.
const EDGES: u64 = 250_000;

const KEY: CounterKey = CounterKey([7, 7]);

/// The traffic of one run.
#[derive(Default)]
struct History {
    passed: Vec<Passed>,
    /// Denied hits.
    denied: Vec<Passed>,
    refunds: u64,
}

fn limit(rng: &mut Rng, algorithm: Algorithm) -> Limit {
    let tiers = if rng.once_in(3) { 2 } else { 1 };
    let mut limit = Limit { algorithm, tiers: Box::new([]), count_denied: false };
    limit.tiers = (0..tiers)
        .map(|index| {
            let window = Micros::from_millis([250, 1_000, 3_000][rng.below(3) as usize] << index);
            let requests = 1 + rng.below(200);
            Tier { requests, window, burst: 1 + rng.below(100), calendar: None }
        })
        .collect();
    limit
}

/// Runs one simulation.
fn run(seed: u64, algorithm: Algorithm) -> (Limit, History, Arc<Network>) {
    let mut rng = Rng::new(seed);
    let limit = limit(&mut rng, algorithm);
    run_from(BEGIN, limit, rng)
}

/// Runs one simulation of `limit`, which begins at `begin`.
fn run_from(begin: Micros, limit: Limit, mut rng: Rng) -> (Limit, History, Arc<Network>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(async {
        let (jitter, cut_percent) = (rng.pick(&[0, 1, 5]), rng.pick(&[0, 0, 10]));
        let conditions = Conditions { jitter, cut_percent, ..Conditions::default() };
        let cluster = Network::new(rng.next(), begin, 1, conditions);
        let history = Arc::new(Mutex::new(History::default()));
        let mut drivers = Vec::new();
        for _ in 0..=rng.below(4) {
            let offset = rng.below(600_000_000) as i64 - 300_000_000;
            let instance = Instance::new(&cluster, offset);
            let (cluster, history) = (cluster.clone(), history.clone());
            let driver =
                drive(instance, cluster, history, limit.clone(), Rng::new(rng.next()), jitter);
            drivers.push(tokio::spawn(driver));
        }
        for driver in drivers {
            driver.await.unwrap();
        }
        // Calls in flight complete.
        tokio::time::sleep(Duration::from_secs(10)).await;
        let history = std::mem::take(&mut *history.lock().unwrap());
        (limit, history, cluster)
    })
}

/// The traffic of one instance, whose calls take at most `jitter` milliseconds each way.
async fn drive(
    instance: Arc<Instance>,
    cluster: Arc<Network>,
    history: Arc<Mutex<History>>,
    limit: Limit,
    mut rng: Rng,
    jitter: u64,
) {
    // The instance estimates the clock of Redis with an error of half the difference between the
    // ways there and back. So a hit counts that much earlier or later.
    let error = jitter * 500;
    let gap = [1_000, 10_000, 100_000][rng.below(3) as usize];
    let mut requests = Vec::new();
    for _ in 0..60 + rng.below(200) {
        let pause = match rng.below(100) {
            0 => rng.below(6_000_000),
            1..=20 => 0,
            _ => rng.below(2 * gap),
        };
        tokio::time::sleep(Duration::from_micros(pause)).await;
        if rng.once_in(30) {
            instance.run_due().await;
        }
        let hits = [1, 1, 1, 1, 2, 5, 0][rng.below(7) as usize];
        // A thread may be stopped after it has read the clock, for less than the second that Redis
        // keeps an ended counter (docs/operate/redis.md, Clocks). The oracle of sliding windows needs
        // to know in which window a request counted, so none is in flight at the edge of a window.
        let slides = limit.algorithm == Algorithm::SlidingWindow;
        let into = cluster.now().0 % EDGES;
        let pause = match into {
            _ if !slides => 0,
            into if into > EDGES - 70_000 => EDGES - into + error,
            into => error.saturating_sub(into),
        };
        tokio::time::sleep(Duration::from_micros(pause)).await;
        let stops = if slides { 0 } else { 50 };
        let stopped = if rng.once_in(stops) { rng.below(1_000_000) } else { 0 };
        let refunds = rng.once_in(40);
        let (instance, cluster, history) = (instance.clone(), cluster.clone(), history.clone());
        let limit = limit.clone();
        requests.push(tokio::spawn(async move {
            let (from, local) = (cluster.now(), instance.local());
            tokio::time::sleep(Duration::from_micros(stopped)).await;
            let result = instance.hit_as_of(&KEY, &limit, hits, local).await;
            let (to, hits) = (cluster.now(), hits.unsigned_abs());
            let (begun, ended) = (from, to);
            let (from, to) = (Micros(from.0 - error), Micros(to.0 + error));
            let passed = Passed { hits, from, to };
            match result {
                Ok(decision) if decision.allowed && hits > 0 => {
                    // Only at the same instant: drained hits of a bucket would be returned twice.
                    if refunds && begun == ended && jitter == 0 {
                        // A lost call may have been applied.
                        let _ = instance.hit(&KEY, &limit, -(hits as i64)).await;
                        history.lock().unwrap().refunds += 1;
                        return;
                    }
                    history.lock().unwrap().passed.push(passed);
                }
                Ok(decision) if !decision.allowed => history.lock().unwrap().denied.push(passed),
                _ => {}
            }
        }));
    }
    if rng.once_in(2) {
        instance.close().await;
    }
    for request in requests {
        request.await.unwrap();
    }
}

fn seeds() -> std::ops::Range<u64> {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    match number("WEIR_LEASED_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("WEIR_LEASED_SEEDS").unwrap_or(1_000),
    }
}

fn run_all(algorithm: Algorithm) {
    let (mut passed, mut denied, mut calls, mut refunds) = (0, 0, 0, 0);
    for seed in seeds() {
        let (limit, history, cluster) = run(seed, algorithm);
        if let Some(how) = broken(&limit, &history.passed) {
            panic!("{how}\nWEIR_LEASED_SEED={seed} {limit:?}");
        }
        passed += history.passed.len();
        denied += history.denied.len();
        refunds += history.refunds;
        calls += cluster.calls();
    }
    println!("{algorithm:?}: {passed} passed, {denied} denied, {refunds} refunds, {calls} calls");
    // One seed may have no refunds.
    let several = seeds().count() > 1;
    assert!(passed > 0);
    assert!(!several || (denied > 0 && refunds > 0));
}

#[test]
fn fixed_windows_are_never_exceeded() {
    run_all(Algorithm::FixedWindow);
}

#[test]
fn sliding_windows_are_never_exceeded() {
    run_all(Algorithm::SlidingWindow);
}

#[test]
fn token_buckets_are_never_exceeded() {
    run_all(Algorithm::TokenBucket);
}

#[test]
fn leaky_buckets_are_never_exceeded() {
    run_all(Algorithm::LeakyBucket);
}

/// Credits of a day or a month are not spent in the next one, which has another length.
#[test]
fn calendar_windows_are_never_exceeded() {
    let (mut before, mut after) = (0, 0);
    for seed in seeds() {
        let mut rng = Rng::new(seed);
        let edge = rng.pick(&calendar_edges());
        let tier = Tier::by_calendar(1 + rng.below(200), edge.calendar);
        let second = Tier {
            requests: 1 + rng.below(200),
            ..Limit::fixed_window(1, Micros::SECOND).tiers[0]
        };
        let tiers = if rng.once_in(3) { vec![tier, second] } else { vec![tier] };
        let limit =
            Limit { algorithm: Algorithm::FixedWindow, tiers: tiers.into(), count_denied: false };
        let begin = Micros(edge.start.0 - rng.below(4_000_000));
        let (limit, history, _) = run_from(begin, limit, rng);
        if let Some(how) = broken(&limit, &history.passed) {
            panic!("{how}\nWEIR_LEASED_SEED={seed} {limit:?}");
        }
        before += history.passed.iter().filter(|one| one.to < edge.start).count();
        after += history.passed.iter().filter(|one| one.from >= edge.start).count();
    }
    assert!((before > 0 && after > 0) || seeds().count() == 1);
}

/// The largest count of each fixed window.
fn highest(cluster: &Network) -> HashMap<Micros, u64> {
    let mut highest = HashMap::new();
    for one in &cluster.node(0).applied {
        if let Some(State::FixedWindow(tiers)) = &one.state {
            let first = tiers.as_slice()[0];
            let most = highest.entry(first.start).or_default();
            *most = first.count.max(*most);
        }
    }
    highest
}

#[test]
fn a_denial_means_all_credits_were_drawn() {
    let mut all_denied = 0;
    for seed in seeds() {
        let (limit, history, cluster) = run(seed, Algorithm::FixedWindow);
        let [tier] = &*limit.tiers else { continue };
        all_denied += history.denied.len();
        let highest = highest(&cluster);
        for denied in &history.denied {
            // The window that the request read, or one that had begun when its refill arrived.
            let window = |at: Micros| Micros(at.0 - at.0 % tier.window.0);
            let its = |start: Micros| window(denied.from) <= start && start <= denied.to;
            let full = highest
                .iter()
                .any(|(&start, drawn)| its(start) && drawn + denied.hits > tier.requests);
            let full = full || denied.hits > tier.requests;
            assert!(full, "{denied:?}\nWEIR_LEASED_SEED={seed} {limit:?}");
        }
    }
    assert!(all_denied > 0 || seeds().count() == 1);
}
