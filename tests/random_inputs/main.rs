//! A million random and mutated inputs cause no panic, no hang and no growth of memory.
//!
//! Runs the functions of the fuzz targets with a fixed seed and without a fuzzer, so that every
//! test run covers them. A failure prints the seed and the round. `WEIR_RANDOM_INPUTS_SEED` and
//! `WEIR_RANDOM_INPUTS_ROUNDS` set another seed and another number of rounds.

mod corpus;
#[expect(unreachable_pub, reason = "public in the crate of the fuzz targets")]
#[path = "../../fuzz/src/files.rs"]
mod files;
mod good;
#[expect(unreachable_pub, reason = "public in the crate of the fuzz targets")]
#[path = "../../fuzz/src/http2.rs"]
mod http2;
mod mutate;
#[expect(unreachable_pub, reason = "public in the crate of the fuzz targets")]
#[path = "../../fuzz/src/plans.rs"]
mod plans;
#[expect(unreachable_pub, reason = "public in the crate of the fuzz targets")]
#[path = "../../fuzz/src/regexes.rs"]
mod regexes;
#[expect(unreachable_pub, reason = "public in the crate of the fuzz targets")]
#[path = "../../fuzz/src/replies.rs"]
mod replies;
#[expect(unreachable_pub, reason = "public in the crate of the fuzz targets")]
#[path = "../../fuzz/src/requests.rs"]
mod requests;
#[path = "../support/resident.rs"]
mod resident;
#[expect(unreachable_pub, reason = "public in the crate of the fuzz targets")]
#[path = "../../fuzz/src/responses.rs"]
mod responses;
mod rng;
mod seeds;
#[expect(unreachable_pub, reason = "public in the crate of the fuzz targets")]
#[path = "../../fuzz/src/settings.rs"]
mod settings;
#[expect(unreachable_pub, reason = "public in the crate of the fuzz targets")]
#[path = "../../fuzz/src/tls.rs"]
mod tls;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::thread;

use mutate::Language;
use requests::Service;
use resident::resident_kib;
use rng::Rng;

/// Total number of inputs.
const ROUNDS: usize = 1_000_000;

/// Maximum growth of the resident memory between the first tenth and the end.
const GROWTH_KIB: u64 = 64 * 1024;

#[test]
fn a_million_inputs_cause_no_panic() {
    let seed = variable("WEIR_RANDOM_INPUTS_SEED").unwrap_or(0x77_65_69_72);
    let rounds = variable("WEIR_RANDOM_INPUTS_ROUNDS").unwrap_or(ROUNDS as u64) as usize;
    println!("seed {seed}, {rounds} inputs");
    // Rule files take longest and are rarely read. Requests come from untrusted clients.
    let (yaml, json) = (rounds / 5, rounds / 5);
    let protobuf = rounds - yaml - json;
    let run = |share: usize, salt: u64| {
        let service = Service::default();
        thread::scope(|scope| {
            scope.spawn(|| {
                check_inputs(seed ^ salt, protobuf / share, &corpus::protobuf(), |bytes| {
                    service.protobuf(bytes)
                });
                // A tenth of the inputs: each of them makes four calls.
                check_inputs(seed ^ salt, protobuf / share / 10, &corpus::protobuf(), |bytes| {
                    service.both_paths(bytes)
                });
            });
            scope.spawn(|| {
                check_inputs(seed ^ salt, json / share, &corpus::json(), |bytes| {
                    service.json(bytes)
                });
                check_inputs(seed ^ salt, yaml / share, &corpus::yaml(), files::yaml);
            });
        });
    };
    // The first tenth fills the pools of the allocator. Growth after it is a leak.
    run(10, 1);
    let before = resident_kib("self");
    run(1, 0);
    let grown = resident_kib("self").saturating_sub(before);
    assert!(grown < GROWTH_KIB, "grown by {grown} KiB");
}

/// Passes `rounds` inputs of a language to `accepts`, which returns whether it accepts one. Between
/// 10 % and 90 % must be accepted: outside that range the inputs would reach little code.
fn check_inputs(seed: u64, rounds: usize, language: &Language, accepts: impl Fn(&[u8]) -> bool) {
    let mut rng = Rng::new(seed);
    let mut accepted = 0;
    for round in 0..rounds {
        let input = language.input(&mut rng);
        match catch_unwind(AssertUnwindSafe(|| accepts(&input))) {
            Ok(accepts) => accepted += usize::from(accepts),
            Err(panic) => {
                eprintln!("seed {seed}, round {round}: b\"{}\"", input.escape_ascii());
                resume_unwind(panic);
            }
        }
    }
    println!("{accepted} of {rounds} were accepted");
    assert!((rounds / 10..rounds - rounds / 10).contains(&accepted), "{accepted} of {rounds}");
}

/// Aliases that would expand to more than memory holds are rejected before they are expanded.
#[test]
fn an_alias_bomb_is_refused() {
    for (depth, width) in [(9, 9), (40, 9), (9, 300), (63, 2)] {
        assert!(!files::yaml(&corpus::bomb(depth, width)), "{depth} levels of {width}");
    }
}

fn variable(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is a number, not {text}")))
}
