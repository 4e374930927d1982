//! Agreement: the steps in Rust and in Lua have bit-for-bit equal results on a real Redis.
//!
//! Random walks over every algorithm: several tiers, windows of the calendar, which have unequal
//! lengths, hits below and above 0 and near 2^53, leases, reloaded rules, hits of other instances,
//! spans that an instance draws and returns, and time that stands still, jumps to the edges of
//! windows, and goes backwards.
//! Steps are called by scripts, by functions, and by both in turns. `WEIR_AGREEMENT_STEPS` sets the
//! steps per algorithm, `WEIR_AGREEMENT_SEED` repeats a run.

use std::hash::{BuildHasher, RandomState};

use weir::limit::{Algorithm, Limit, Tier};
use weir::step::{Lease, LeaseId};
use weir::time::Micros;

use crate::support::redis::server::Server;
use crate::support::schedule::shared;
use crate::support::vectors;
use origin::Origin;
use twin::{BatchFigures, BatchedWalks, Form, Twin};
use walk::Operation;
pub(crate) use walk::Rng;

mod groups;
mod origin;
mod twin;
mod walk;

/// Walks that are sent at once.
const AT_ONCE: usize = 16;

/// A number in the environment.
pub(crate) fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number in the environment"))
}

/// The seed of a run, which it prints.
pub(crate) fn seed() -> u64 {
    let random = || RandomState::new().hash_one(());
    let seed = number("WEIR_AGREEMENT_SEED").unwrap_or_else(random);
    println!("WEIR_AGREEMENT_SEED={seed}");
    seed
}

fn agree(algorithm: Algorithm) {
    let _permit = shared();
    let steps = number("WEIR_AGREEMENT_STEPS").unwrap_or(100_000);
    let seed = seed();
    let (server, mut rng, mut done) = (Server::local(), Rng(seed), 0);
    let mut twin = Twin::new(server.client());
    for form in Form::ALL.into_iter().cycle() {
        if done >= steps {
            break;
        }
        twin.form = form;
        let walks: Vec<Vec<Operation>> =
            (0..AT_ONCE).map(|_| walk::walk(algorithm, &mut rng)).collect();
        for (walk, difference) in walks.iter().zip(twin.compare(&walks)) {
            if let Some((index, _)) = difference {
                let (operations, what) = shrunk(&mut twin, walk[..=index].to_vec());
                panic!(
                    "{what}\nby {form:?}, at the last of\n{}\nWEIR_AGREEMENT_SEED={seed}",
                    lines(&operations)
                );
            }
            let own = walk.iter().filter(|operation| operation.limit.algorithm == algorithm);
            done += own.count() as u64;
        }
    }
    println!("{done} steps of {algorithm:?}");
}

fn lines(operations: &[Operation]) -> String {
    operations.iter().map(Operation::to_string).collect::<Vec<_>>().join("\n")
}

/// Shrinks a walk that differs: removes one operation after another as long as the difference
/// stays.
fn shrunk(twin: &mut Twin, mut operations: Vec<Operation>) -> (Vec<Operation>, String) {
    let mut differs = |operations: &[Operation]| twin.compare(&[operations.to_vec()]).remove(0);
    let (_, mut what) = differs(&operations).expect("the walk still differs");
    let mut index = operations.len();
    while index > 0 {
        index -= 1;
        let mut fewer = operations.clone();
        fewer.remove(index);
        if let Some((last, other)) = differs(&fewer) {
            fewer.truncate(last + 1);
            (operations, what) = (fewer, other);
            index = index.min(operations.len());
        }
    }
    (operations, what)
}

#[test]
fn fixed_window_is_the_same_in_lua() {
    agree(Algorithm::FixedWindow);
}

#[test]
fn sliding_window_is_the_same_in_lua() {
    agree(Algorithm::SlidingWindow);
}

#[test]
fn sliding_window_weights_are_exact_in_lua() {
    let _permit = shared();
    let (server, mut rng) = (Server::local(), Rng(seed()));
    let mut twin = Twin::new(server.client());
    for index in 0..50 {
        twin.form = Form::ALL[index % Form::ALL.len()];
        let walks: Vec<Vec<Operation>> = (0..100).map(|_| walk::edge(&mut rng)).collect();
        for (walk, difference) in walks.iter().zip(twin.compare(&walks)) {
            assert_eq!(difference, None, "\n{}", lines(walk));
        }
    }
}

#[test]
fn sliding_window_log_is_the_same_in_lua() {
    agree(Algorithm::SlidingWindowLog);
}

#[test]
fn token_bucket_is_the_same_in_lua() {
    agree(Algorithm::TokenBucket);
}

#[test]
fn leaky_bucket_is_the_same_in_lua() {
    agree(Algorithm::LeakyBucket);
}

#[test]
fn concurrency_is_the_same_in_lua() {
    agree(Algorithm::Concurrency);
}

/// Operations at these instants: hits and their lease.
fn operations(
    limit: &Limit,
    about: impl Iterator<Item = (u64, i64, Option<Lease>)>,
) -> Vec<Operation> {
    let operation = |(now, hits, lease)| Operation {
        limit: limit.clone(),
        now: Micros(now),
        hits,
        lease,
        origin: Origin::Decided,
    };
    about.map(operation).collect()
}

/// Sizes that walks do not reach: lists as long as a limit allows, and many reservations.
fn large_walks() -> Vec<Vec<Operation>> {
    let limit = |algorithm, requests| {
        let tier = Tier { requests, window: Micros(1_000_000), burst: requests, calendar: None };
        Limit { algorithm, tiers: [tier].into(), count_denied: false }
    };
    let open = |id, until| Some(Lease::Open { id: LeaseId::from_bits(id), until: Micros(until) });
    let close = |id| Some(Lease::Close(LeaseId::from_bits(id)));
    let log = limit(Algorithm::SlidingWindowLog, 100_000);
    let slots = limit(Algorithm::Concurrency, 100_000);
    // 100 000 hits at once, then some denied, some expired, some refunded.
    let full = |lease: Option<Lease>| {
        let hits = [(5, 60_000), (7, 39_999), (7, 2), (8, 1), (1_000_004, 1), (1_000_005, 9_000)];
        let more = [(1_000_006, -5_000), (1_000_007, 60_000), (2_000_006, 0), (2_000_007, 3)];
        hits.into_iter().chain(more).map(move |(now, hits)| (now, hits, lease))
    };
    // Each entry replaces an expired one.
    let steady = (0..3_000).map(|now| (10_000 * now, 1, None));
    // Logs that become longer and shorter than those that are written as a whole.
    let about_100 = |hits: i64| {
        let grows = (0..130).map(move |n| (1_000 * n, hits, None));
        let shrinks = (0..30).map(|n| (130_000 + n, -2, None));
        let again = (0..130).map(|n| (140_000 + 1_000 * n, 1, None));
        let expires = (0..160).map(|n| (1_000_000 + 7_000 * n, 1, None));
        grows.chain(shrinks).chain(again).chain(expires)
    };
    // Leases that end in another order than they started.
    let held = (0..600).map(|id| (id, 1 + (id % 5) as i64, open(1 + id, 0)));
    let freed = (0..600).map(|id| (700 + id, 2, close(1 + id * 7 % 600)));
    let mut walks = vec![
        operations(&log, full(None)),
        operations(&slots, full(open(9, 0))),
        operations(&slots, full(open(9, 0)).chain([(2_000_008, 70_000, close(9))])),
        operations(&log, steady.clone()),
        operations(&slots, steady),
        operations(&slots, held.chain(freed)),
    ];
    for (requests, count_denied, hits) in
        [(99, true, 1), (100, false, 1), (101, true, 7), (150, false, 1), (1_000, true, 60)]
    {
        let limit = Limit { count_denied, ..limit(Algorithm::SlidingWindowLog, requests) };
        walks.push(operations(&limit, about_100(hits)));
    }
    // Far more reservations than are kept; some expire, some are closed from both ends.
    for algorithm in walk::ALGORITHMS.into_iter().filter(|&a| a != Algorithm::Concurrency) {
        let limit = limit(algorithm, 100_000);
        let until = |id: u64| if id.is_multiple_of(3) { 20_000 } else { 5_000_000 };
        let opened = (1..=11_000).map(|id| (id, 2, open(id, until(id))));
        let settled =
            (0..1_200).map(|n| (21_000 + n, 1, close(if n % 2 == 0 { n } else { 11_000 - n })));
        let again = (1..=200).map(|id| (30_000 + id, 3, open(20_000 + id, 40_000)));
        let late = (1..=200).map(|id| (39_900 + id, 5, close(20_000 + id)));
        walks.push(operations(&limit, opened.chain(settled).chain(again).chain(late)));
        // Most expire. Those that stay are moved together and must still be found.
        let until = |id: u64| if id <= 200 { 1_000 } else { 5_000_000 };
        let opened = (1..=300).map(|id| (id, 2, open(id, until(id))));
        let one_more = [(2_000, 2, open(301, 5_000_000))];
        let settled = (150..=301).map(|id| (2_000 + id, 1, close(id)));
        walks.push(operations(&limit, opened.chain(one_more).chain(settled)));
    }
    walks
}

#[test]
fn the_largest_counters_are_the_same_in_lua() {
    let _permit = shared();
    let server = Server::local();
    let mut twin = Twin::new(server.client());
    for walk in large_walks() {
        for form in [Form::Script, Form::Function] {
            twin.form = form;
            if let Some((index, what)) = twin.compare(std::slice::from_ref(&walk)).remove(0) {
                let (length, operation) = (walk.len(), &walk[index]);
                panic!("{what}\nby {form:?}, at operation {index} of {length}:\n{operation}");
            }
        }
    }
}

/// Batched steps are decided like single ones: random steps on six counters, often several of one
/// counter in a row or equal ones on several counters, in calls of up to two hundred.
fn agree_together(algorithm: Algorithm) {
    let steps = number("WEIR_AGREEMENT_STEPS").unwrap_or(100_000);
    let seed = seed();
    let (server, mut rng) = (Server::local(), Rng(seed));
    let mut twin = Twin::new(server.client());
    let mut all = BatchFigures::default();
    for form in Form::ALL.into_iter().cycle() {
        if all.steps as u64 >= steps {
            break;
        }
        twin.form = form;
        let batched = BatchedWalks::new(&mut rng, |rng| walk::walk(algorithm, rng));
        match twin.run_batches(&batched) {
            Ok(BatchFigures { steps, calls, shared, at_once, grouped }) => {
                assert_eq!(steps, batched.operations().count());
                all.steps += steps;
                all.calls += calls;
                all.shared += shared;
                all.at_once += at_once;
                all.grouped += grouped;
            }
            Err(what) => {
                let lines = batched.lines();
                panic!("{what}\nby {form:?}, in\n{lines}\nWEIR_AGREEMENT_SEED={seed}");
            }
        }
    }
    println!("{algorithm:?} {all:?}");
    assert!(all.calls * 3 < all.steps, "few steps share a call: {all:?}");
    let lists = [Algorithm::SlidingWindowLog, Algorithm::Concurrency].contains(&algorithm);
    assert!(lists || all.at_once * 20 > all.calls, "few calls read all counters at once: {all:?}");
    let groups = algorithm == Algorithm::FixedWindow;
    assert_eq!(groups, all.grouped * 50 > all.calls, "calls with shared arguments: {all:?}");
}

#[test]
fn fixed_window_is_the_same_in_a_batch() {
    let _permit = shared();
    agree_together(Algorithm::FixedWindow);
}

#[test]
fn sliding_window_is_the_same_in_a_batch() {
    let _permit = shared();
    agree_together(Algorithm::SlidingWindow);
}

#[test]
fn sliding_window_log_is_the_same_in_a_batch() {
    let _permit = shared();
    agree_together(Algorithm::SlidingWindowLog);
}

#[test]
fn token_bucket_is_the_same_in_a_batch() {
    let _permit = shared();
    agree_together(Algorithm::TokenBucket);
}

#[test]
fn leaky_bucket_is_the_same_in_a_batch() {
    let _permit = shared();
    agree_together(Algorithm::LeakyBucket);
}

#[test]
fn concurrency_is_the_same_in_a_batch() {
    let _permit = shared();
    agree_together(Algorithm::Concurrency);
}

#[test]
fn a_call_reads_the_maximum_of_counters() {
    let _permit = shared();
    /// The maximum of `redis.max_batch_size`.
    const COUNTERS: usize = 1_024;
    let server = Server::local();
    let mut twin = Twin::new(server.client());
    for algorithm in [Algorithm::FixedWindow, Algorithm::SlidingWindow, Algorithm::TokenBucket] {
        let tier = Tier { requests: 2, window: Micros(1_000_000), burst: 2, calendar: None };
        let limit = Limit { algorithm, tiers: [tier].into(), count_denied: false };
        let operations = operations(&limit, (0..4).map(|now| (now, 1, None)));
        for form in [Form::Script, Form::Function] {
            twin.form = form;
            let compared = twin.compare_many(&operations, COUNTERS);
            assert_eq!(compared, Ok(()), "{algorithm:?} by {form:?}");
            server.client().try_run(&["FLUSHALL"]).expect("an answer");
        }
    }
}

#[test]
fn lua_decisions_match_the_table() {
    let _permit = shared();
    let server = Server::local();
    let mut twin = Twin::new(server.client());
    let walk = |vector: &vectors::Vector| {
        let operations = vector.operations.iter().map(|operation| Operation {
            limit: vector.limit.clone(),
            now: operation.now,
            hits: operation.hits,
            lease: operation.lease,
            origin: Origin::Decided,
        });
        operations.collect()
    };
    // Another test checks the decisions of Rust against the table, so equality with Rust is enough.
    let walks: Vec<Vec<Operation>> = vectors::all().iter().map(walk).collect();
    for form in Form::ALL {
        twin.form = form;
        for (walk, difference) in walks.iter().zip(twin.compare(&walks)) {
            assert_eq!(difference, None, "\nby {form:?}\n{}", lines(walk));
        }
    }
}
