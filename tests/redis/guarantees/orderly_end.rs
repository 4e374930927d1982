//! The end of instances with synced rules, while they are busy and Redis is distant.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use super::{passed, start, used};
use crate::support::redis::delaying_proxy::DelayingProxy;
use crate::support::redis::server::Server;
use crate::support::rls::{Client, descriptor, request};
use crate::support::schedule::exclusive;
use crate::support::wait::until;

const RULES: &str = "
domain: d
descriptors:
  - key: k
    rate_limit: { requests: 1000000, window: 1000d, mode: synced, sync_interval: 100ms }
";

const STORE_TIMEOUT: &str = "250ms";

/// The round trip of each instance, in milliseconds. Farther ones have exchanges in flight for most
/// of the time.
const ROUND_TRIPS: [u64; 4] = [1, 6, 60, 60];

/// Counters of each instance.
const COUNTERS: usize = 24;

/// Clients of each instance, and the pause between two calls of one.
const CLIENTS: usize = 3;
const PAUSE: Duration = Duration::from_millis(5);

/// Calls that each instance answers before it gets SIGTERM.
const CALLS: usize = 400;

/// Hits of one counter.
#[derive(Clone, Copy, Default)]
struct Hits {
    sent: u64,
    passed: u64,
}

/// After SIGTERM, Redis has every hit that passed, and none twice (docs/guides/modes.md, synced).
#[test]
fn an_orderly_end_loses_no_synced_hit() {
    let _permit = exclusive();
    let server = Server::listening(&[]);
    let address = server.address();
    let ended: Vec<Vec<Hits>> = thread::scope(|scope| {
        let mut running = Vec::new();
        for (number, round_trip) in ROUND_TRIPS.into_iter().enumerate() {
            let round_trip = Duration::from_millis(round_trip);
            running.push(scope.spawn(move || hits_until_the_end(address, number, round_trip)));
        }
        running.into_iter().map(|one| one.join().expect("the instance has ended")).collect()
    });
    let reader = start(address, RULES, STORE_TIMEOUT, &["k"]);
    for (instance, hits) in ended.iter().enumerate() {
        let counted: Vec<u64> =
            (0..COUNTERS).map(|counter| used(&reader, "k", &name(instance, counter))).collect();
        let sum = |hits_of: fn(&Hits) -> u64| hits.iter().map(hits_of).sum::<u64>();
        eprintln!(
            "{} ms: {} sent, {} passed, {} counted",
            ROUND_TRIPS[instance],
            sum(|hits| hits.sent),
            sum(|hits| hits.passed),
            counted.iter().sum::<u64>()
        );
        for (counter, (hits, counted)) in hits.iter().zip(counted).enumerate() {
            let Hits { sent, passed } = *hits;
            let place = format!("{} ms, counter {counter}", ROUND_TRIPS[instance]);
            assert!(passed <= counted, "{place}: {passed} passed, {counted} counted");
            // The response of a counted hit may be lost with its connection.
            assert!(counted <= sent, "{place}: {sent} sent, {counted} counted");
        }
    }
}

fn name(instance: usize, counter: usize) -> String {
    format!("{instance}-{counter}")
}

/// Starts an instance, sends hits to it, and ends it with SIGTERM meanwhile. Returns the hits of
/// each counter.
fn hits_until_the_end(redis: SocketAddr, instance: usize, round_trip: Duration) -> Vec<Hits> {
    let proxy = DelayingProxy::to(redis, round_trip);
    let mut weir = start(proxy.address(), RULES, STORE_TIMEOUT, &["k"]);
    let (grpc, answered) = (weir.grpc, AtomicUsize::new(0));
    thread::scope(|scope| {
        let mut clients = Vec::new();
        for _ in 0..CLIENTS {
            clients.push(scope.spawn(|| hit_until_closed(grpc, instance, &answered)));
        }
        until("calls are answered", || answered.load(Ordering::Relaxed) >= CALLS);
        weir.process().terminate();
        weir.process().wait_for_exit();
        let mut all = vec![Hits::default(); COUNTERS];
        for client in clients {
            for (all, its) in all.iter_mut().zip(client.join().expect("no client panics")) {
                all.sent += its.sent;
                all.passed += its.passed;
            }
        }
        all
    })
}

/// Sends hits to all counters in turn, until a call fails because the instance has closed its port.
fn hit_until_closed(to: SocketAddr, instance: usize, answered: &AtomicUsize) -> Vec<Hits> {
    let client = Client::connect(to);
    let mut hits = vec![Hits::default(); COUNTERS];
    for counter in (0..COUNTERS).cycle() {
        hits[counter].sent += 1;
        let hit = request("d", vec![descriptor(&[("k", &name(instance, counter))])]);
        let Ok(answer) = client.try_check(hit) else { break };
        hits[counter].passed += u64::from(passed(&answer));
        answered.fetch_add(1, Ordering::Relaxed);
        thread::sleep(PAUSE);
    }
    hits
}
