//! Schedules that once broke a guarantee. They stay in the tests, independent of the random ones.

use super::history::Decided;
use super::rules::{self, Counter, Windows};
use super::schedule::{Event, EventKind, FollowUp, Schedule};
use super::{history, laws, run};
use crate::limit::{Algorithm, Limit, Mode};
use crate::testing::network::Conditions;

/// The instant at which these schedules begin, in microseconds.
pub(super) const EPOCH: u64 = 86_400_000_000 * 20_000 + 30_000_000_000;

/// A schedule of one counter with a rule that `fits`, and a network of this latency.
pub(super) fn schedule(
    counter: Counter,
    mode: usize,
    fits: impl Fn(&Limit, Mode) -> bool,
    instances: usize,
    latency: u64,
) -> Schedule {
    let variant = variant(&counter, mode, fits);
    Schedule {
        seed: 1,
        offsets: (0..instances as i64).map(|number| 90_000_000 * number - 45_000_123).collect(),
        epoch: EPOCH,
        nodes: 1,
        conditions: Conditions { latency, ..Conditions::default() },
        timeout: 250,
        period: 10,
        counters: vec![counter],
        variant,
        events: Vec::new(),
    }
}

/// The first variant of a mode in which the rule of `counter` `fits`.
fn variant(counter: &Counter, mode: usize, fits: impl Fn(&Limit, Mode) -> bool) -> usize {
    let mut variants = (0..64).map(|limits| rules::variant(mode, limits));
    let variant = variants.find(|&variant| {
        let (limit, mode) = laws::rule(counter, variant);
        fits(&limit, mode)
    });
    variant.expect("a variant that fits")
}

pub(super) fn counter(algorithm: Algorithm) -> Counter {
    Counter { algorithm, windows: Windows::Day, reserves: false, free: false }
}

impl Schedule {
    fn event(mut self, at: u64, what: EventKind) -> Schedule {
        self.events.push(Event { at, what });
        self
    }

    fn hit(self, at: u64, instance: usize, hits: u64) -> Schedule {
        let (parts, then) = (vec![(0, hits)], FollowUp::Nothing);
        self.event(at, EventKind::Request { instance, parts, then })
    }

    fn hits(self, count: u64, from: u64, gap: u64, instance: usize) -> Schedule {
        (0..count).fold(self, |schedule, number| schedule.hit(from + number * gap, instance, 1))
    }

    fn holds(self) {
        let history = run::run(&self);
        if std::env::var("WEIR_SIMULATION_SHOW").is_ok() {
            println!("{}", history::text(&self, &history));
        }
        if let (Some(violation), _) = laws::judge(&self, &history) {
            panic!("{}: {}\n{}", violation.law, violation.what, history::text(&self, &history));
        }
    }
}

/// A settlement on one instance makes room on the others within one second.
#[test]
fn a_settlement_elsewhere_ends_cached_denials() {
    let algorithms = [
        Algorithm::FixedWindow,
        Algorithm::SlidingWindow,
        Algorithm::SlidingWindowLog,
        Algorithm::TokenBucket,
    ];
    for algorithm in algorithms {
        let counter = Counter { reserves: true, ..counter(algorithm) };
        let schedule = schedule(counter, 0, |limit, _| !limit.count_denied, 2, 1);
        let (limit, _) = laws::rule(&counter, schedule.variant);
        let bucket = matches!(algorithm, Algorithm::TokenBucket);
        let all = if bucket { limit.tiers[0].burst } else { limit.tiers[0].requests };
        let then = FollowUp::Close { after: 300, instance: 0, hits: 0 };
        let what = EventKind::Request { instance: 0, parts: vec![(0, all)], then };
        schedule.event(0, what).hit(100, 1, 1).hit(1_500, 1, 1).holds();
    }
}

/// A deletion ends the exchange that is under way: its reply says nothing about the hits that follow.
#[test]
fn a_deletion_ends_the_exchange_of_its_replica() {
    let fits = |limit: &Limit, mode: Mode| {
        limit.tiers[0].requests >= 20 && rules::interval(mode) == 100_000
    };
    for at in [130, 150, 170, 190, 210] {
        let schedule = schedule(counter(Algorithm::FixedWindow), 2, fits, 1, 57);
        let conditions = Conditions { latency: 1, ..Conditions::default() };
        // The replica is there after 114 ms, and its first exchange takes from 120 to 234 ms.
        let schedule = schedule.hit(0, 0, 1).hit(116, 0, 1).hit(117, 0, 1);
        let schedule = schedule
            .event(125, EventKind::Conditions { node: 0, conditions })
            .event(at, EventKind::Delete { instance: 0, counter: 0 })
            .hit(at + 5, 0, 1);
        let history = run::run(&schedule);
        let deletion = history.applied.iter().position(|one| one.step.is_none());
        let (before, after) = history.applied.split_at(deletion.expect("a deletion"));
        let deleted = after[0].at;
        let crosses = history.calls.iter().any(|call| {
            let sends = call.step.as_ref().is_some_and(|step| step.hits > 0);
            sends && call.sent < deleted && deleted < call.ended
        });
        assert!(crosses, "an exchange is under way");
        assert!(before.iter().chain(after).all(|one| one.added() >= 0), "no hit is given back");
        assert!(after.iter().any(|one| one.added() == 1), "the last hit is counted");
        schedule.holds();
    }
}

/// One instance spends a leased bucket to the last credit, at a rate at which credits stay unspent.
#[test]
fn one_leased_instance_passes_what_exact_passes() {
    for algorithm in [Algorithm::TokenBucket, Algorithm::LeakyBucket] {
        for (gap, latency) in [(300, 0), (300, 3), (600, 1), (1_150, 1), (40, 6)] {
            let fits = |limit: &Limit, _| limit.tiers[0].burst >= 40;
            let schedule = schedule(counter(algorithm), 1, fits, 1, latency);
            schedule.hits(50, 0, gap, 0).holds();
        }
    }
}

/// One synced instance is never over its limit, although many requests arrive before its replica.
#[test]
fn one_synced_instance_is_not_over_a_cold_counter() {
    for algorithm in [Algorithm::FixedWindow, Algorithm::SlidingWindow] {
        for latency in [1, 3, 60] {
            let fits = |limit: &Limit, _| (5..20).contains(&limit.tiers[0].requests);
            let schedule = schedule(counter(algorithm), 2, fits, 1, latency);
            schedule.hits(40, 0, 1, 0).holds();
        }
    }
}

/// Requests before the replica do not disturb an exchange.
#[test]
fn synced_hits_are_sent_once_when_answers_cross() {
    for (interval, latency, gap) in [(10, 6, 4), (20, 6, 4), (100, 60, 20)] {
        let fits = |limit: &Limit, mode: Mode| {
            limit.tiers[0].requests >= 8 && rules::interval(mode) == interval * 1_000
        };
        let schedule = schedule(counter(Algorithm::FixedWindow), 2, fits, 1, latency);
        schedule.hits(3, 0, gap, 0).holds();
    }
}

/// A drain sends the hits of exchanges and returns the credits of refills that are under way.
#[test]
fn a_drain_loses_nothing_that_is_under_way() {
    for mode in [1, 2] {
        for at in [20, 130, 210, 290, 350, 431, 470] {
            let fits = |limit: &Limit, mode: Mode| {
                limit.tiers[0].requests >= 60 && [0, 100_000].contains(&rules::interval(mode))
            };
            let schedule = schedule(counter(Algorithm::FixedWindow), mode, fits, 1, 60);
            let drain = EventKind::Drain { instance: 0 };
            let mut schedule = schedule.hits(50, 0, 10, 0).event(at, drain);
            schedule.events.sort_by_key(|event| event.at);
            schedule.holds();
        }
    }
}

/// Requests that wait for a refill count as of their arrival, so the bucket is as full as in mode
/// exact.
#[test]
fn waiting_requests_do_not_fill_a_bucket_later() {
    let counter = Counter { windows: Windows::Seconds, ..counter(Algorithm::LeakyBucket) };
    let fits = |limit: &Limit, _| {
        let tier = &limit.tiers[0];
        tier.burst == 2 && (20..100).contains(&tier.requests)
    };
    let schedule = schedule(counter, 1, fits, 1, 30);
    let instants = [8, 21, 23, 47, 137, 145];
    instants.into_iter().fold(schedule, |schedule, at| schedule.hit(at, 0, 1)).holds();
}

/// A request that the store decided before there was a credit pool may count after the first refills.
#[test]
fn a_late_first_request_does_not_fill_a_bucket() {
    let counter = Counter { windows: Windows::Seconds, ..counter(Algorithm::LeakyBucket) };
    let fits = |limit: &Limit, _| limit.tiers[0].burst >= 8 && limit.tiers[0].requests <= 20;
    let schedule = schedule(counter, 1, fits, 1, 100);
    let (limit, _) = laws::rule(&counter, schedule.variant);
    let (burst, one) = (limit.tiers[0].burst, 2_000 / limit.tiers[0].requests);
    let conditions = Conditions { latency: 1, ..Conditions::default() };
    let schedule = schedule.hit(0, 0, 1).event(1, EventKind::Conditions { node: 0, conditions });
    // As long as two more hits take to drain.
    schedule.hit(2, 0, 1).hit(6, 0, 1).hits(burst, 10 + 4 * one, 0, 0).holds();
}

/// Credits of a window that ends while their refill is in flight are returned before the refill for
/// the requests of the next window.
#[test]
fn late_credits_deny_no_request_of_the_next_window() {
    let counter = Counter { windows: Windows::Seconds, ..counter(Algorithm::SlidingWindow) };
    let fits = |limit: &Limit, _| limit.tiers[0].requests == 13 && !limit.count_denied;
    let schedule = schedule(counter, 1, fits, 1, 6);
    let early = schedule.hit(868, 0, 2).hit(1_683, 0, 2).hit(2_994, 0, 1);
    [2, 1, 2, 2, 2].into_iter().fold(early, |schedule, hits| schedule.hit(3_004, 0, hits)).holds();
}

/// A request waits for one more credit while its window ends, and spends the credits of that window,
/// although a request of the next window arrives before the refill.
#[test]
fn an_ended_window_serves_requests_that_wait() {
    let counter = Counter { windows: Windows::Seconds, ..counter(Algorithm::FixedWindow) };
    let fits = |limit: &Limit, _| limit.tiers[0].requests == 8;
    let schedule = schedule(counter, 1, fits, 1, 30);
    // Redis has five hits after the third request, and two of them are credits.
    let schedule = schedule.hits(3, 100, 100, 0);
    let schedule = schedule.hit(950, 0, 3).hit(955, 0, 1).hit(1_003, 0, 1);
    let history = run::run(&schedule);
    let decided: Vec<_> = history.requests.iter().map(|request| request.decided).collect();
    assert_eq!(decided, [Decided::Passed; 6]);
    schedule.holds();
}

/// Credits that stay for a request of an ended window are returned before a later request is denied.
#[test]
fn credits_of_an_ended_window_deny_no_later_one() {
    let counter = Counter { windows: Windows::Seconds, ..counter(Algorithm::SlidingWindow) };
    let fits = |limit: &Limit, _| limit.tiers[0].requests == 13;
    // Redis has five hits after the third request, and two of them are credits.
    let schedule = schedule(counter, 1, fits, 1, 30).hits(3, 100, 100, 0);
    // The first of these never fits. The other one fits only in addition to the three that passed.
    let schedule = schedule.hit(950, 0, 13).hit(1_003, 0, 10);
    let history = run::run(&schedule);
    let [.., denied, passed] = &*history.requests else { panic!("five requests") };
    assert_eq!((denied.decided, passed.decided), (Decided::Denied, Decided::Passed));
    schedule.holds();
}

/// A request for more hits than fit does not make the next one wait for a second call.
#[test]
fn too_many_hits_do_not_delay_one_that_fits() {
    let fits = |limit: &Limit, _| limit.tiers[0].requests >= 8;
    // Two calls take longer than the timeout.
    let schedule = schedule(counter(Algorithm::FixedWindow), 1, fits, 1, 100);
    let (limit, _) = laws::rule(&schedule.counters[0], schedule.variant);
    // Three hits pass, and two credits are left. So one hit less than this would fit.
    let too_many = limit.tiers[0].requests - 2;
    let schedule = schedule.hits(3, 0, 300, 0).hit(1_000, 0, too_many).hit(1_010, 0, 1);
    let history = run::run(&schedule);
    let [.., denied, passed] = &*history.requests else { panic!("five requests") };
    assert_eq!((denied.decided, passed.decided), (Decided::Denied, Decided::Passed));
    assert_eq!(denied.end, passed.end, "one reply decides both");
    schedule.holds();
}

/// At the end, credits return although the report of denied hits takes the whole timeout.
#[test]
fn credits_return_after_a_late_report() {
    let counter = counter(Algorithm::FixedWindow);
    let leased = |limit: &Limit, _| limit.tiers[0].requests >= 8;
    let full = |limit: &Limit, _| limit.count_denied && limit.tiers[0].requests <= 5;
    let exact = EventKind::Reload { variant: variant(&counter, 0, full) };
    // Every call takes the whole timeout.
    let schedule = Schedule { timeout: 2, ..schedule(counter, 1, leased, 1, 1) };
    // Redis has five hits after the third request, and two of them are credits.
    let schedule = schedule.hits(3, 0, 50, 0).event(105, exact);
    // Redis denies a hit and counts it. weir denies another one, and has to report it.
    schedule.hit(110, 0, 1).hit(140, 0, 1).holds();
}

/// A refill that was denied before a refund does not deny a request after it.
#[test]
fn a_refill_from_before_a_refund_denies_nothing() {
    for algorithm in [Algorithm::FixedWindow, Algorithm::SlidingWindow] {
        let fits = |limit: &Limit, _| limit.tiers[0].requests >= 2;
        let schedule = schedule(counter(algorithm), 1, fits, 1, 10);
        let (limit, _) = laws::rule(&schedule.counters[0], schedule.variant);
        // The refund is sent after the refill, on a faster network, and answered before it.
        let then = FollowUp::Refund { after: 16, instance: 0 };
        let parts = vec![(0, limit.tiers[0].requests)];
        let conditions = Conditions { latency: 5, ..Conditions::default() };
        let schedule = schedule
            .event(0, EventKind::Request { instance: 0, parts, then })
            .hit(30, 0, 1)
            .event(33, EventKind::Conditions { node: 0, conditions })
            .hit(48, 0, 1);
        let history = run::run(&schedule);
        let [.., late] = &*history.requests else { panic!("four requests") };
        assert_eq!((history.requests.len(), late.decided), (4, Decided::Passed));
        schedule.holds();
    }
}

/// Without a connection at the end, unspent credits stay charged, and no other hits.
#[test]
fn only_unspent_credits_stay_charged_at_the_end() {
    for algorithm in [Algorithm::FixedWindow, Algorithm::SlidingWindow] {
        let fits = |limit: &Limit, _| limit.tiers[0].requests >= 20;
        let schedule = schedule(counter(algorithm), 1, fits, 1, 1);
        schedule.hits(3, 0, 10, 0).event(300, EventKind::Down { node: 0, down: true }).holds();
    }
}

/// Without a connection at the end, hits that were given back to a replica stay in Redis.
#[test]
fn a_replica_may_end_with_unsent_refunds() {
    let fits = |limit: &Limit, _| limit.tiers[0].requests >= 3;
    let schedule = schedule(counter(Algorithm::FixedWindow), 2, fits, 1, 1);
    let then = FollowUp::Refund { after: 300, instance: 0 };
    let hit = EventKind::Request { instance: 0, parts: vec![(0, 1)], then };
    schedule
        .event(0, hit.clone())
        .event(0, hit)
        .event(200, EventKind::Down { node: 0, down: true })
        .holds();
}

/// A refund through an instance that lacks the hit has no effect, and the hit stays counted.
#[test]
fn a_refund_may_overtake_its_hit() {
    let fits =
        |limit: &Limit, mode: Mode| limit.tiers[0].requests >= 3 && rules::interval(mode) == 20_000;
    let schedule = schedule(counter(Algorithm::SlidingWindow), 2, fits, 2, 30);
    // The first hit creates the replica, which decides the second one. It is sent later.
    let then = FollowUp::Refund { after: 1, instance: 1 };
    let hit = EventKind::Request { instance: 0, parts: vec![(0, 1)], then };
    let schedule = schedule.event(0, hit.clone()).event(0, hit);
    let history = run::run(&schedule);
    let kept: i64 =
        history.requests.iter().map(|request| request.passed() - request.returned()).sum();
    let counted: i64 = history.applied.iter().map(|one| one.added()).sum();
    assert_eq!((kept, counted), (0, 1));
    schedule.holds();
}

/// A node that is down does not disturb the counters of the other.
#[test]
fn nodes_fail_separately() {
    for mode in [0, 1, 2] {
        let fits = |limit: &Limit, _| limit.tiers[0].requests >= 20;
        let first = counter(Algorithm::FixedWindow);
        let mut schedule = schedule(first, mode, fits, 2, 3);
        schedule.nodes = 3;
        schedule.counters.push(counter(Algorithm::SlidingWindow));
        schedule.counters.push(counter(Algorithm::LeakyBucket));
        for at in 0..60 {
            let parts = vec![(0, 1), (1, 1), (2, 1)];
            let what =
                EventKind::Request { instance: at as usize % 2, parts, then: FollowUp::Nothing };
            schedule = schedule.event(20 * at, what);
        }
        for (node, at) in [(0, 200), (1, 400), (2, 600)] {
            let down = |down| EventKind::Down { node, down };
            schedule = schedule.event(at, down(true)).event(at + 300, down(false));
        }
        schedule.events.sort_by_key(|event| event.at);
        let history = run::run(&schedule);
        let failed =
            |request: &&history::RequestRecord| matches!(request.decided, Decided::Failed(_));
        assert!(mode > 0 || history.requests.iter().any(|request| failed(&request)));
        for failed in history.requests.iter().filter(failed) {
            let node = history.keys[failed.counter].0[1] % 3;
            let from = EPOCH + 1_000 * (200 + 200 * node);
            // The breaker is open for at most a second after the connections are there again.
            let within = from..from + 1_500_000;
            assert!(within.contains(&failed.end.0), "{failed:?} on node {node}");
        }
        schedule.holds();
    }
}
