//! Requests that count in another order than that of their arrival.

use super::*;

/// A request that arrives when a bucket has drained, and one that is denied after one hit more has
/// drained. Returns the record, the hits of the bucket, and the milliseconds of these requests.
fn drained(mode: usize) -> (Record, i64, [u64; 2]) {
    let record = Record::new(Algorithm::TokenBucket, mode, 1);
    let (limit, _) = laws::rule(&record.schedule.counters[0], record.schedule.variant);
    let tier = &limit.tiers[0];
    // Rounded up.
    let one = tier.window.0 / 1_000 / tier.requests + 1;
    let at = [one * tier.burst, one * tier.burst + one];
    let record = record.passed(0, 0, tier.burst as i64).passed(at[0], 0, 1);
    (record.request(at[1], 0, 1, Decided::Denied), tier.burst as i64, at)
}

/// Synced requests that wait for the first reply count in any order, and others do not.
#[test]
fn only_waiting_requests_count_in_any_order() {
    let (mut record, _, at) = drained(SYNCED);
    assert_eq!(record.broken(), Some("early denial beside all hits"));
    for request in &mut record.history.requests {
        request.end = instant(at[1] + 1);
    }
    assert_eq!(record.broken(), None);
}

/// Leased requests count in the order of their steps in Redis.
#[test]
fn only_steps_in_another_order_count_in_it() {
    for (swaps, broken) in [(false, Some("early denial beside all hits")), (true, None)] {
        let (mut record, burst, at) = drained(LEASED);
        record.history.requests[0].end = instant(at[0] + 2);
        let mut steps = [(0, burst), (at[0], 1)];
        if swaps {
            steps.reverse();
        }
        let arrives = at[0] + 1;
        let record =
            steps.iter().fold(record, |record, &(now, hits)| record.step(now, arrives, 0, hits));
        assert_eq!(record.broken(), broken);
    }
}

/// A synced request for all hits of a bucket at 100 ms. Redis denies it at 700 ms, after a step as of `as_of`.
fn denied_after_a_step(as_of: u64) -> (Record, i64) {
    let record = Record::new(Algorithm::TokenBucket, SYNCED, 1).step(as_of, 600, 0, 1);
    let (limit, _) = laws::rule(&record.schedule.counters[0], record.schedule.variant);
    let burst = limit.tiers[0].burst as i64;
    let mut record = record.request(100, 0, burst, Decided::Denied).step(100, 700, 0, burst);
    record.history.requests[0].end = instant(800);
    (record, burst)
}

/// A denial as of an instant before that of an earlier step says nothing about early denials.
#[test]
fn a_denial_after_a_later_step_is_not_early() {
    for (as_of, broken) in [(0, Some("early denial beside all hits")), (500, None)] {
        assert_eq!(denied_after_a_step(as_of).0.broken(), broken);
    }
}

/// The same applies to requests that waited for the reply to this denial, and to no others.
#[test]
fn only_waiting_requests_are_denied_with_the_first() {
    for (end, broken) in [(650, Some("early denial beside all hits")), (800, None)] {
        let (record, burst) = denied_after_a_step(500);
        let mut record = record.request(101, 0, burst, Decided::Denied);
        record.history.requests[1].end = instant(end);
        assert_eq!(record.broken(), broken);
    }
}
