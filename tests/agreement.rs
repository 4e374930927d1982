//! Agreement: the state machines in Rust and in Lua do the same, bit for bit, on a real Redis.
//!
//! Random walks over every algorithm: several tiers, hits below and above 0 and near 2^53, leases,
//! reloaded rules, time that stands still, jumps to the edges of windows, and goes backwards.
//! `WEIR_AGREEMENT_STEPS` sets the steps per algorithm, `WEIR_AGREEMENT_SEED` repeats a run.

use std::hash::{BuildHasher, RandomState};

use weir::limit::Algorithm;
use weir::{limit, step, time};

use redis::server::Server;
use twin::Twin;
use walk::{Ask, Dice};

#[path = "agreement/algorithm.rs"]
mod algorithm;
#[path = "bed/redis.rs"]
mod redis;
#[path = "agreement/twin.rs"]
mod twin;
#[path = "agreement/walk.rs"]
mod walk;

/// Walks that travel together.
const AT_ONCE: usize = 16;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number in the environment"))
}

fn agree(algorithm: Algorithm) {
    let steps = number("WEIR_AGREEMENT_STEPS").unwrap_or(100_000);
    let random = || RandomState::new().hash_one(());
    let seed = number("WEIR_AGREEMENT_SEED").unwrap_or_else(random);
    println!("WEIR_AGREEMENT_SEED={seed} {algorithm:?}");
    let (server, mut dice, mut done) = (Server::local(), Dice(seed), 0);
    let mut twin = Twin::new(server.client());
    while done < steps {
        let walks: Vec<Vec<Ask>> = (0..AT_ONCE).map(|_| walk::walk(algorithm, &mut dice)).collect();
        for (walk, difference) in walks.iter().zip(twin.compare(&walks)) {
            if let Some((index, _)) = difference {
                let (asks, what) = shrunk(&mut twin, walk[..=index].to_vec());
                panic!("{what}\nat the last of\n{}\nWEIR_AGREEMENT_SEED={seed}", lines(&asks));
            }
            let own = walk.iter().filter(|ask| ask.limit.algorithm == algorithm);
            done += own.count() as u64;
        }
    }
    println!("{done} steps");
}

fn lines(asks: &[Ask]) -> String {
    asks.iter().map(Ask::to_string).collect::<Vec<_>>().join("\n")
}

/// A shortest walk that still differs: one after the other, asks are left out as long as it does.
fn shrunk(twin: &mut Twin, mut asks: Vec<Ask>) -> (Vec<Ask>, String) {
    let mut differs = |asks: &[Ask]| twin.compare(&[asks.to_vec()]).remove(0);
    let (_, mut what) = differs(&asks).expect("it differed just now");
    let mut index = asks.len();
    while index > 0 {
        index -= 1;
        let mut fewer = asks.clone();
        fewer.remove(index);
        if let Some((last, other)) = differs(&fewer) {
            fewer.truncate(last + 1);
            (asks, what) = (fewer, other);
            index = index.min(asks.len());
        }
    }
    (asks, what)
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

#[test]
fn every_request_of_the_table_is_answered_by_lua_as_it_says() {
    let server = Server::local();
    let mut twin = Twin::new(server.client());
    let walk = |vector: &algorithm::vectors::Vector| {
        let asks = vector.asks.iter().map(|ask| Ask {
            limit: vector.limit.clone(),
            now: ask.now,
            hits: ask.hits,
            lease: ask.lease,
        });
        asks.collect()
    };
    // Rust answers the table as it says: a test in the library. So it is enough to do as Rust does.
    let walks: Vec<Vec<Ask>> = algorithm::vectors::all().iter().map(walk).collect();
    for (walk, difference) in walks.iter().zip(twin.compare(&walks)) {
        assert_eq!(difference, None, "\n{}", lines(walk));
    }
}
