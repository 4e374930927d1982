//! Groups: counters that share an argument, with values that random walks seldom leave.

use weir::limit::{Algorithm, Limit, Tier};
use weir::step::{Lease, LeaseId};
use weir::time::Micros;

use super::origin::Origin;
use super::twin::{BatchedWalks, Form, Twin};
use super::walk::Operation;
use super::{lines, operations};
use crate::support::redis::server::Server;
use crate::support::schedule::shared;

/// The most hits of a step.
const HITS_MAX: i64 = (1 << 53) - 1;

fn limit(algorithm: Algorithm, requests: u64, window: u64, count_denied: bool) -> Limit {
    let tier = Tier { requests, window: Micros(window), burst: requests, calendar: None };
    Limit { algorithm, tiers: [tier].into(), count_denied }
}

fn window(requests: u64, window: u64) -> Limit {
    limit(Algorithm::FixedWindow, requests, window, false)
}

fn take(limit: &Limit, now: u64, hits: i64) -> Operation {
    operations(limit, std::iter::once((now, hits, None))).remove(0)
}

/// Hits that another instance allowed in the window of this instant.
fn elsewhere(now: u64, hits: i64) -> Operation {
    let limit = window(9, 1_000_000_000);
    Operation { origin: Origin::Elsewhere(0), ..take(&limit, now, hits) }
}

/// Runs a walk on counters that share an argument, with each step once or several times.
fn compare(twin: &mut Twin, walk: &[Operation]) {
    for (form, times) in [(Form::Script, 1), (Form::Function, 1), (Form::Function, 3)] {
        twin.form = form;
        let found = twin.run_batches(&BatchedWalks::alike(walk, times));
        let shown = || format!("{times} times:\n{}", lines(walk));
        let figures = found.unwrap_or_else(|what| panic!("{what}\n{}", shown()));
        assert!(figures.grouped > 0, "no step shares an argument: {}", shown());
    }
}

#[test]
fn unusual_values_are_the_same_in_a_group() {
    let _permit = shared();
    let server = Server::local();
    let mut twin = Twin::new(server.client());
    let bucket = limit(Algorithm::TokenBucket, 10, 1_000_000, false);
    let counting = limit(Algorithm::FixedWindow, 9, 1_000_000, true);
    let open = |now, id, until| {
        let lease = Lease::Open { id: LeaseId::from_bits(id), until: Micros(until) };
        operations(&window(9, 1_000_000), std::iter::once((now, 1, Some(lease)))).remove(0)
    };
    let walks = [
        // The same start of a window that lasts longer now, and then less long.
        vec![
            take(&window(9, 1_000_000), 5_000_000_000, 1),
            take(&window(9, 1_000_000_000), 5_000_000_001, 1),
            take(&window(9, 1_000_000), 5_000_000_002, 1),
        ],
        // A window and a bucket whose numbers could be mistaken for each other.
        vec![
            take(&bucket, 5, 1),
            take(&window(200_000, 100_000), 6, 7),
            take(&bucket, 7, 1),
            take(&window(200_000, 100_000), 8, 7),
        ],
        // The most hits that a counter has.
        vec![
            elsewhere(1_000_000_001, 1),
            elsewhere(1_000_000_001, HITS_MAX),
            elsewhere(1_000_000_002, 1),
        ],
        // Fewer hits than the limit, but more with the next step; then denied.
        vec![
            take(&window(9, 1_000_000), 1, 8),
            take(&window(9, 1_000_000), 2, 2),
            take(&window(9, 1_000_000), 3, 1),
            take(&window(9, 1_000_000), 4, 1),
        ],
        // Denied hits count.
        vec![take(&counting, 1, 8), take(&counting, 2, 2), take(&counting, 3, HITS_MAX)],
        // The next window, and the clock set back to the one before.
        vec![
            take(&window(9, 1_000_000), 999_999, 4),
            take(&window(9, 1_000_000), 1_000_000, 1),
            take(&window(9, 1_000_000), 999_998, 1),
            elsewhere(2_000_000_000, 1),
            elsewhere(1_999_999_999, 1),
        ],
        // Counters with a reservation.
        vec![
            take(&window(9, 1_000_000), 1, 1),
            open(2, 7, 900_000),
            take(&window(9, 1_000_000), 2, 1),
            take(&window(9, 1_000_000), 2, 8),
        ],
    ];
    for walk in walks {
        compare(&mut twin, &walk);
    }
}

/// The script writes the hits alone if the counter has the step's window. A step by itself writes the window too.
#[test]
fn the_usual_step_of_a_group_writes_seven_bytes() {
    let _permit = shared();
    let server = Server::local();
    let mut twin = Twin::new(server.client());
    let mut monitor = server.client();
    monitor.run(&["MONITOR"]);
    compare(&mut twin, &[take(&window(9, 1_000_000), 1, 1), take(&window(9, 1_000_000), 2, 1)]);
    // MONITOR shows the bytes of these hits in hexadecimal.
    let mut writes = std::iter::repeat_with(|| monitor.read().expect("a command").text())
        .filter(|command| command.contains("\"SETRANGE\""))
        .map(|command| command.matches("\\x").count());
    assert_eq!(writes.next(), Some(7));
}
