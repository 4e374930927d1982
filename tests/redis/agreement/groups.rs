//! Groups: counters that share an argument, with values that random walks seldom leave.

use weir::limit::{Algorithm, Limit, Tier};
use weir::time::Micros;

use super::origin::Origin;
use super::twin::{BatchedWalks, Form, Twin};
use super::walk::Operation;
use super::{lines, operations};
use crate::support::redis::server::Server;
use crate::support::schedule::shared;

/// The most hits of a step.
const HITS_MAX: i64 = (1 << 53) - 1;

#[test]
fn unusual_values_are_the_same_in_a_group() {
    let _permit = shared();
    let server = Server::local();
    let mut twin = Twin::new(server.client());
    let limit = |algorithm, requests, window| {
        let tier = Tier { requests, window: Micros(window), burst: requests, calendar: None };
        Limit { algorithm, tiers: [tier].into(), count_denied: false }
    };
    let take =
        |limit: &Limit, now, hits| operations(limit, std::iter::once((now, hits, None))).remove(0);
    let window = |requests, window| limit(Algorithm::FixedWindow, requests, window);
    let bucket = limit(Algorithm::TokenBucket, 10, 1_000_000);
    let elsewhere = |hits| Operation {
        origin: Origin::Elsewhere(0),
        ..take(&window(9, 1_000_000_000), 1_000_000_001, hits)
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
        vec![elsewhere(1), elsewhere(HITS_MAX), elsewhere(1)],
        // Less hits than the limit, but more with the next step; then denied.
        vec![
            take(&window(9, 1_000_000), 1, 8),
            take(&window(9, 1_000_000), 2, 2),
            take(&window(9, 1_000_000), 3, 1),
            take(&window(9, 1_000_000), 4, 1),
        ],
    ];
    for walk in walks {
        for form in [Form::Script, Form::Function] {
            twin.form = form;
            let found = twin.run_batches(&BatchedWalks::alike(&walk));
            let figures = found.unwrap_or_else(|what| panic!("{what}\n{}", lines(&walk)));
            assert!(figures.grouped > 0, "no step shares an argument:\n{}", lines(&walk));
        }
    }
}
