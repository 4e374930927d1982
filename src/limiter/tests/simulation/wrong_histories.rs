//! Wrong histories, made by hand: each law rejects one, and accepts it once it is corrected.

use super::history::{Decided, Disturbance, History, RequestKind, RequestRecord};
use super::instance::key_of;
use super::laws::{self, LAWS};
use super::recording_store::RecordedCall;
use super::regressions::{EPOCH, counter, schedule};
use super::rules;
use super::schedule::Schedule;
use crate::algorithm;
use crate::limit::{Algorithm, Limit};
use crate::store::StoreError;
use crate::testing::simulated_node::SimulatedNode;
use crate::testing::simulated_store::LostCall;
use crate::time::Micros;

mod order;

/// Modes, as [`schedule`] takes them.
const EXACT: usize = 0;
const LEASED: usize = 1;
const SYNCED: usize = 2;

/// A schedule of one counter, and a history that need not follow from it.
struct Record {
    schedule: Schedule,
    history: History,
}

/// Milliseconds after the beginning as an instant.
fn instant(at: u64) -> Micros {
    Micros(EPOCH + 1_000 * at)
}

impl Record {
    /// An empty history of one minute.
    fn new(algorithm: Algorithm, mode: usize, instances: usize) -> Record {
        let counter = counter(algorithm);
        let fits = |limit: &Limit, mode| {
            let short = rules::interval(mode) <= 20_000;
            let tier = &limit.tiers[0];
            short && tier.requests.min(tier.burst) >= 5 && !limit.count_denied
        };
        let schedule = schedule(counter, mode, fits, instances, 1);
        let rules = rules::rules(schedule.variant);
        let key = key_of(&rules, counter.domain(), &counter.name()).expect("a rule");
        let history = History {
            keys: vec![key],
            requests: Vec::new(),
            applied: Vec::new(),
            calls: Vec::new(),
            lost: Vec::new(),
            disturbances: Vec::new(),
            left_over: vec![(0, 0); instances],
            clock_error: Micros::ZERO,
            end: instant(60_000),
            nodes: vec![SimulatedNode::default()],
        };
        Record { schedule, history }
    }

    /// The limit, in hits.
    fn max(&self) -> i64 {
        let (limit, _) = laws::rule(&self.schedule.counters[0], self.schedule.variant);
        limit.tiers[0].requests as i64
    }

    /// A request that is decided at once.
    fn request(mut self, at: u64, instance: usize, hits: i64, decided: Decided) -> Record {
        let (counter, kind, begun) = (0, RequestKind::Hits, instant(at));
        let request = RequestRecord { instance, counter, hits, kind, begun, end: begun, decided };
        self.history.requests.push(request);
        self
    }

    /// Hits that pass.
    fn passed(self, at: u64, instance: usize, hits: i64) -> Record {
        self.request(at, instance, hits, Decided::Passed)
    }

    /// A step as of `now` that Redis applies at `at` without a limit.
    fn step(mut self, now: u64, at: u64, instance: usize, hits: i64) -> Record {
        let (limit, _) = laws::rule(&self.schedule.counters[0], self.schedule.variant);
        let mut step = algorithm::plan(&limit, hits, instant(now));
        step.count_denied = true;
        let (key, node) = (self.history.keys[0], &mut self.history.nodes[0]);
        node.apply(instant(at), instance, key, &step);
        self.history.applied.clone_from(&node.applied);
        self
    }

    /// A step that arrives in Redis at once.
    fn redis(self, at: u64, instance: usize, hits: i64) -> Record {
        self.step(at, at, instance, hits)
    }

    /// Hits that pass in Redis.
    fn both(self, at: u64, instance: usize, hits: i64) -> Record {
        self.passed(at, instance, hits).redis(at, instance, hits)
    }

    /// All hits of the limit except for `missing`.
    fn filled(self, at: u64, instance: usize, missing: i64) -> Record {
        let hits = self.max() - missing;
        self.both(at, instance, hits)
    }

    /// A call of an instance that had an outcome.
    fn call(mut self, instance: usize, sent: u64, ended: u64) -> Record {
        let (key, sent, ended) = (self.history.keys[0], instant(sent), instant(ended));
        self.history.calls.push(RecordedCall {
            instance,
            key,
            step: None,
            sent,
            ended,
            error: None,
        });
        self
    }

    /// A report of a denied hit that fails.
    fn failed_report(mut self, instance: usize, at: u64) -> Record {
        let (limit, _) = laws::rule(&self.schedule.counters[0], self.schedule.variant);
        let (key, sent) = (self.history.keys[0], instant(at));
        let mut step = algorithm::plan(&limit, 1, sent);
        step.count_denied = true;
        let (step, error) = (Some(step), Some(StoreError::ErrorReply));
        self.history.calls.push(RecordedCall { instance, key, step, sent, ended: sent, error });
        self
    }

    /// The rules are loaded again.
    fn reload(mut self, at: u64) -> Record {
        self.history.disturbances.push((instant(at), Disturbance::Reload(self.schedule.variant)));
        self
    }

    /// The same on a network that loses calls.
    fn with_loss(mut self) -> Record {
        self.schedule.conditions.loss_percent = 5;
        self
    }

    /// The law that rejects it.
    fn broken(&self) -> Option<&'static str> {
        let (violation, _) = laws::judge(&self.schedule, &self.history);
        violation.map(|violation| violation.law)
    }
}

/// A history that breaks a law, and the same without its mistake.
fn wrong_and_right(law: &str) -> [Record; 2] {
    let window = |mode, instances| Record::new(Algorithm::FixedWindow, mode, instances);
    match law {
        // A request has no decision.
        "answered" => [Decided::Pending, Decided::Failed(StoreError::Timeout)]
            .map(|decided| window(EXACT, 1).request(0, 0, 1, decided)),
        // Redis does not have a hit that passed.
        "conservation" => [0, 1].map(|hits| window(EXACT, 1).passed(0, 0, 1).redis(1, 0, hits)),
        // A slot is in use that no request has taken.
        "slots" => [2, 1].map(|taken| {
            Record::new(Algorithm::Concurrency, EXACT, 1).passed(0, 0, 1).redis(0, 0, taken)
        }),
        // More hits than the limit pass.
        "never over" => [-1, 0].map(|missing| window(EXACT, 1).filled(0, 0, missing)),
        // A hit passes before another one has returned, or after that.
        "never over with refunds" => [30, 10]
            .map(|refund| window(EXACT, 1).filled(0, 0, 0).both(20, 0, 1).both(refund, 0, -1)),
        // An instance does not know hits of the other that passed long ago, or just now.
        "overrun" => [30_000, 1].map(|at| window(SYNCED, 2).filled(0, 1, 0).both(at, 0, 1)),
        // A denial although Redis had room.
        "early denial" => [1, 0].map(|missing| {
            window(EXACT, 1).filled(0, 0, missing).request(3_000, 0, 1, Decided::Denied)
        }),
        // The same by a replica.
        "early denial beside all hits" => [1, 0].map(|missing| {
            window(SYNCED, 2).filled(0, 1, missing).request(3_000, 0, 1, Decided::Denied)
        }),
        // A denial by a leased bucket although Redis had room beside all credits.
        "early denial beside credits" => [1, 0].map(|missing| {
            let record = Record::new(Algorithm::TokenBucket, LEASED, 2);
            let (limit, _) = laws::rule(&record.schedule.counters[0], record.schedule.variant);
            let credits = limit.tiers[0].burst as i64 - missing;
            record.both(0, 1, credits).request(1, 0, 1, Decided::Denied)
        }),
        // A call is still in flight at the end.
        "leak" => [1, 0].map(|in_flight| {
            let mut record = window(EXACT, 1);
            record.history.left_over[0].0 = in_flight;
            record
        }),
        _ => panic!("no wrong history for `{law}`"),
    }
}

/// Every law can be broken, and nothing else is wrong with the history that breaks it.
#[test]
fn every_law_rejects_a_wrong_history() {
    for law in &LAWS {
        let [wrong, right] = wrong_and_right(law.name);
        assert_eq!(wrong.broken(), Some(law.name));
        assert_eq!(right.broken(), None, "corrected for `{}`", law.name);
    }
}

/// Calls that were lost do not explain hits that were never sent, and neither does a reload.
#[test]
fn loss_does_not_explain_other_hits() {
    for (hits, broken) in [(0, Some("conservation")), (1, None), (2, Some("conservation"))] {
        for mode in [EXACT, LEASED] {
            let record = || Record::new(Algorithm::SlidingWindow, mode, 1).with_loss();
            let counted = |record: Record| record.passed(0, 0, 1).redis(1, 0, hits).broken();
            assert_eq!(counted(record()), broken);
            assert_eq!(counted(record().reload(3_000)), broken, "after a reload");
        }
    }
}

/// Calls that take longer than an interval extend the time in which others do not know of a hit.
#[test]
fn slow_calls_extend_the_overrun() {
    for (later, broken) in [(480, None), (520, Some("overrun"))] {
        let mut record = Record::new(Algorithm::FixedWindow, SYNCED, 2);
        record.schedule.conditions.latency = 60;
        assert_eq!(record.filled(0, 1, 0).both(later, 0, 1).broken(), broken);
    }
}

/// Logs and slots have their own checks.
#[test]
fn logs_and_slots_are_never_over() {
    for algorithm in [Algorithm::SlidingWindowLog, Algorithm::Concurrency] {
        for (missing, broken) in [(-1, Some("never over")), (0, None)] {
            let record = Record::new(algorithm, EXACT, 1).with_loss();
            assert_eq!(record.filled(0, 0, missing).broken(), broken, "{algorithm:?}");
        }
    }
}

/// A failed report explains the credits of its instance, and no other hits.
#[test]
fn a_failed_report_explains_unspent_credits() {
    let drawn = |instance| {
        let record = Record::new(Algorithm::FixedWindow, LEASED, 2).with_loss().reload(3_000);
        record.passed(0, 0, 1).redis(0, instance, 3)
    };
    assert_eq!(drawn(0).broken(), Some("conservation"));
    assert_eq!(drawn(0).failed_report(0, 5_000).broken(), None);
    assert_eq!(drawn(1).failed_report(0, 5_000).broken(), Some("conservation"));
}

/// Credits of other instances explain a denial, if they were drawn.
#[test]
fn only_credits_that_exist_explain_a_denial() {
    for (missing, broken) in [(0, None), (1, Some("early denial beside all hits"))] {
        let record = Record::new(Algorithm::FixedWindow, LEASED, 2);
        let credits = record.max() - missing;
        let record = record.redis(0, 1, credits).request(3_000, 0, 1, Decided::Denied);
        assert_eq!(record.redis(9_000, 1, -credits).broken(), broken);
    }
}

/// Two hits pass on one instance, and are given back through another one at 61 ms. The second hit
/// reaches Redis at `arrives`, and refunds of `returned` hits at 91 ms.
fn refunded(arrives: u64, returned: i64) -> Record {
    let record = Record::new(Algorithm::SlidingWindow, SYNCED, 2).both(0, 0, 1).passed(50, 0, 1);
    let record = record.passed(61, 1, -1).passed(61, 1, -1);
    if arrives < 91 {
        record.redis(arrives, 0, 1).redis(91, 1, -returned)
    } else {
        record.redis(91, 1, -returned).redis(arrives, 0, 1)
    }
}

/// Credits of the same instance explain a denial by Redis, which does not know them, if they were
/// drawn after the request arrived.
#[test]
fn own_later_credits_explain_a_denial_by_redis() {
    let early = Some("early denial beside all hits");
    for (drawn, end, broken) in [(50, 40, early), (50, 100, None), (30, 100, early)] {
        let record = Record::new(Algorithm::FixedWindow, LEASED, 1);
        let max = record.max();
        let mut record = record.request(40, 0, 1, Decided::Denied).redis(drawn, 0, max);
        record.history.requests[0].end = instant(end);
        let record = record.step(40, 80, 0, 1).redis(9_000, 0, -max - 1);
        assert_eq!(record.broken(), broken, "drawn at {drawn} ms, denied at {end} ms");
    }
}

/// A refill that Redis allowed did not decide the denied request of as many hits.
#[test]
fn an_allowed_step_explains_no_denial() {
    for (more, broken) in [(0, Some("early denial beside all hits")), (1, None)] {
        let record = Record::new(Algorithm::FixedWindow, LEASED, 1);
        let drawn = record.max() - 1 + more;
        let mut record = record.request(40, 0, 1, Decided::Denied).redis(50, 0, drawn);
        record.history.requests[0].end = instant(100);
        let record = record.step(40, 80, 0, 1).redis(9_000, 0, -drawn - 1);
        assert_eq!(record.broken(), broken);
    }
}

/// Hits of a bucket whose reply was lost drain after the credits that were drawn before them, unless
/// these have drained by then.
#[test]
fn lost_hits_drain_after_earlier_credits() {
    let early = Some("early denial beside all hits");
    for (ahead, drained, broken) in
        [(false, false, early), (true, false, None), (true, true, early)]
    {
        let mut record = Record::new(Algorithm::TokenBucket, LEASED, 1);
        let (limit, _) = laws::rule(&record.schedule.counters[0], record.schedule.variant);
        let (key, tier) = (record.history.keys[0], &limit.tiers[0]);
        let half = tier.burst / 2;
        // The time in which this many hits drain, rounded up.
        let drains = tier.window.0 / 1_000 * half / tier.requests + 2;
        let at = if drained { drains } else { 1 };
        let step = algorithm::plan(&limit, half as i64, instant(at));
        let sent = instant(at);
        record.history.lost.push(LostCall { key, step, sent, may_have_run: true });
        let drawn = if ahead { half } else { 1 };
        let record = record.passed(0, 0, 1).redis(0, 0, drawn as i64);
        let record = record.step(at, at + 1, 0, half as i64);
        // As many hits as were lost have drained by then.
        let hits = if drained { tier.burst } else { tier.burst - 1 };
        let record = record.request(at + drains, 0, hits as i64, Decided::Denied);
        assert_eq!(record.broken(), broken);
    }
}

/// Lost hits count in the window of their step, which may begin just after they were sent.
#[test]
fn lost_hits_count_in_the_window_of_their_step() {
    let day = 86_400_000;
    let begins = day - EPOCH / 1_000 % day;
    for (as_of, broken) in [(0, Some("early denial beside all hits")), (2, None)] {
        let mut record = Record::new(Algorithm::FixedWindow, LEASED, 1);
        let (limit, _) = laws::rule(&record.schedule.counters[0], record.schedule.variant);
        let (key, max) = (record.history.keys[0], record.max());
        let (sent, now) = (instant(begins - 1), instant(begins - 1 + as_of));
        let step = algorithm::plan(&limit, max, now);
        record.history.lost.push(LostCall { key, step, sent, may_have_run: true });
        let record = record.request(begins + 5, 0, 1, Decided::Denied);
        assert_eq!(record.broken(), broken);
    }
}

/// Only hits that are in flight when they are given back through another instance stay counted.
#[test]
fn only_hits_in_flight_outlast_their_refund() {
    assert_eq!(refunded(91, 1).broken(), None, "one of two hits was in flight");
    assert_eq!(refunded(91, 0).broken(), Some("conservation"), "the other hit is in Redis");
    assert_eq!(refunded(60, 2).broken(), None);
    assert_eq!(refunded(60, 1).broken(), Some("conservation"), "both hits are in Redis");
    let (before, after) = (refunded(57, 1).call(1, 55, 60), refunded(57, 1).call(1, 58, 60));
    assert_eq!(before.broken(), None, "the replica has one hit");
    assert_eq!(after.broken(), Some("conservation"), "the replica has both hits");
}

/// A hit that stays counted explains the denial of one hit.
#[test]
fn hits_that_stay_counted_explain_a_denial() {
    let denied =
        |record: Record| record.filled(1_000, 0, 1).request(3_000, 0, 1, Decided::Denied).broken();
    assert_eq!(denied(refunded(91, 1)), None);
    assert_eq!(denied(refunded(60, 2)), Some("early denial beside all hits"));
}
