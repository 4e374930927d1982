//! Tests that the documentation has the measured memory per counter.

use super::*;
use crate::algorithm::plan;
use crate::limit::{Algorithm, Limit, Tier};

/// The most bytes of an entry with its share of the index; tests/memory_size.rs measures them.
const ENTRY: usize = 64;

/// Bytes of a large state after `hits` hits of a limit with `tiers` tiers.
fn bytes(algorithm: Algorithm, tiers: usize, hits: usize) -> usize {
    let tier = Tier { requests: 1000, window: Micros::from_secs(60), burst: 1000, calendar: None };
    let limit = Limit { algorithm, tiers: vec![tier; tiers].into(), count_denied: false };
    let mut state = None;
    for _ in 0..hits {
        plan(&limit, 1, Micros::from_secs(1000)).apply(&mut state);
    }
    bytes_of(&state.expect("hits were counted"))
}

/// The documented memory of a counter with one tier, and with several.
fn memory(algorithm: Algorithm) -> (String, Option<String>) {
    let what = match algorithm {
        Algorithm::SlidingWindowLog => "request in the window",
        Algorithm::Concurrency => "slot in use",
        _ => {
            let per_tier = bytes(algorithm, 3, 1) - bytes(algorithm, 2, 1);
            let fixed = ENTRY + bytes(algorithm, 2, 1) - 2 * per_tier;
            return (format!("{ENTRY} bytes"), Some(format!("{fixed} + {per_tier} per tier")));
        }
    };
    // Capacity for 4 and for 128 entries. A log that shrinks may have four times the capacity it
    // needs.
    let each = (bytes(algorithm, 1, 128) - bytes(algorithm, 1, 4)) / 124;
    let fixed = ENTRY + bytes(algorithm, 1, 4) - 4 * each;
    (format!("{fixed} + {each} to {} per {what}", 4 * each), None)
}

#[test]
fn the_docs_state_the_memory_of_a_counter() {
    let path = format!("{}/docs/reference/algorithms.md", env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(path).expect("a page of the repository");
    for algorithm in Algorithm::ALL {
        let (one, several) = memory(algorithm);
        let start = format!("| `{}`", algorithm.name());
        let row = page.lines().find(|line| line.starts_with(&start)).expect("a row for each");
        for bytes in [Some(one), several].into_iter().flatten() {
            assert!(row.contains(&format!("| {bytes} |")), "{bytes}\n{row}");
        }
    }
}
