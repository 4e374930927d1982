//! The decisions of `tests/data/vectors.txt`, by the algorithms in Rust.

use weir::algorithm::{plan, report};
use weir::limit::{Algorithm, Limit, Tier};
use weir::time::Micros;

use crate::support::vectors;

#[test]
fn decisions_match_the_table() {
    let mut wrong = Vec::new();
    for vector in vectors::all() {
        let mut state = None;
        for operation in &vector.operations {
            let mut step = plan(&vector.limit, operation.hits, operation.now);
            step.lease = operation.lease;
            let outcome = step.apply(&mut state);
            let got = report(&vector.limit, &step, &outcome);
            if (got.allowed, got.remaining, got.reset_after) != operation.answer {
                wrong.push(format!("line {}: {:?} but {got:?}", operation.line, operation.answer));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn sliding_log_matches_the_published_example() {
    // Five in 60 s. Denied requests count too.
    let tier = Tier { requests: 5, window: Micros::from_secs(60), burst: 5, calendar: None };
    let limit = Limit {
        algorithm: Algorithm::SlidingWindowLog,
        tiers: Box::new([tier]),
        count_denied: true,
    };
    let minute = |hour: u64, minute: u64| 3_600 * hour + 60 * minute;
    let times = [
        (minute(9, 30), vec![20, 25, 50]),
        (minute(9, 31), vec![10, 22, 45, 48]),
        (minute(9, 32), vec![5, 9, 15, 46]),
    ];
    let mut state = None;
    let mut codes = Vec::new();
    for second in times.iter().flat_map(|(start, seconds)| seconds.iter().map(move |s| start + s)) {
        let step = plan(&limit, 1, Micros::from_secs(second));
        let allowed = report(&limit, &step, &step.apply(&mut state)).allowed;
        codes.push(if allowed { 200 } else { 429 });
    }
    assert_eq!(codes, [200, 200, 200, 200, 200, 200, 200, 200, 429, 429, 200]);
}
