//! The circuit breaker of one node: a pure algorithm that says when asking is a waste of time.
//!
//! Closed, it lets everything through and looks for a burst of failures. Open, it lets nothing
//! through, so nobody waits for a node that does not answer. Then it lets one call through; that
//! call's result closes it or opens it again for twice as long.

use crate::time::Micros;

/// Failures in a row that are a burst.
const BURST: u32 = 5;

/// How long the failures of a burst must span: a hiccup of one moment fails many calls at once,
/// and is over by the next.
const SPAN: Micros = Micros::from_millis(20);

/// The first rest. Failing over takes seconds, so trying ten times a second finds its end soon.
const REST: Micros = Micros::from_millis(100);

/// The longest rest: what a node that came back may have to wait for its first call.
const REST_MAX: Micros = Micros::from_millis(800);

/// The longest wait for a probe's result. Its caller's deadline is far shorter; if it never reports,
/// another call may try.
const PROBE: Micros = Micros::SECOND;

/// Whether to let calls through to one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Breaker {
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Serving. Failures in a row, and when the first of them was seen.
    Closed { failures: u32, since: Micros },
    /// Tripped until then, after a rest of that length.
    Open { until: Micros, rest: Micros },
    /// One call is on its way and must report until then.
    Probing { until: Micros, rest: Micros },
}

/// What to do with a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallPermit {
    /// Let it through.
    Pass,
    /// Let it through: the node's result hangs on it.
    Probe,
    /// Do not ask the node.
    Refuse,
}

/// What became of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallResult {
    /// The node answered, be it with an error.
    Answered,
    /// It did not.
    Failed,
    /// Nobody waited for it as long as a node may take.
    Abandoned,
}

/// What an operator sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakerState {
    /// Serving.
    Closed,
    /// Tripped.
    Open,
    /// Tripped, with one call on its way.
    Probing,
}

impl Default for Breaker {
    fn default() -> Self {
        Breaker { state: State::Closed { failures: 0, since: Micros::ZERO } }
    }
}

impl Breaker {
    /// Decides about a call at `now`.
    pub(super) fn admit(&mut self, now: Micros) -> CallPermit {
        match self.state {
            State::Closed { .. } => CallPermit::Pass,
            State::Open { until, rest } | State::Probing { until, rest } if now >= until => {
                self.state = State::Probing { until: now.saturating_add(PROBE), rest };
                CallPermit::Probe
            }
            State::Open { .. } | State::Probing { .. } => CallPermit::Refuse,
        }
    }

    /// Learns the result of a call that was let through as `permit`.
    pub(super) fn report(&mut self, permit: CallPermit, result: CallResult, now: Micros) {
        match (self.state, result) {
            (State::Closed { .. }, CallResult::Answered) => *self = Breaker::default(),
            (State::Closed { failures, since }, CallResult::Failed) => {
                let since = if failures == 0 { now } else { since };
                let failures = failures.saturating_add(1);
                let spanned = now.saturating_sub(since) >= SPAN;
                self.state = if failures >= BURST && spanned {
                    State::Open { until: now.saturating_add(REST), rest: REST }
                } else {
                    State::Closed { failures, since }
                };
            }
            (State::Probing { rest, .. }, _) if permit == CallPermit::Probe => match result {
                CallResult::Answered => *self = Breaker::default(),
                CallResult::Failed => {
                    let rest = rest.saturating_add(rest).min(REST_MAX);
                    self.state = State::Open { until: now.saturating_add(rest), rest };
                }
                // Nothing was learned: the next call probes.
                CallResult::Abandoned => self.state = State::Open { until: now, rest },
            },
            // Calls from before it opened: an answer is no promise that the next one comes too.
            (State::Closed { .. } | State::Open { .. } | State::Probing { .. }, _) => {}
        }
    }

    /// Closed and without a failure: nothing to decide, and an answer would change nothing.
    pub(super) fn always_passes(&self) -> bool {
        matches!(self.state, State::Closed { failures: 0, .. })
    }

    /// The state, without its numbers.
    pub(super) fn state(&self) -> BreakerState {
        match self.state {
            State::Closed { .. } => BreakerState::Closed,
            State::Open { .. } => BreakerState::Open,
            State::Probing { .. } => BreakerState::Probing,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MS: u64 = 1_000;

    /// Reads a script of `<ms> <what>` and compares the state after each line.
    fn check(script: &[(u64, &str, BreakerState)]) {
        let mut breaker = Breaker::default();
        for (line, (ms, what, shown)) in script.iter().enumerate() {
            let now = Micros(ms * MS);
            match *what {
                "pass" => assert_eq!(breaker.admit(now), CallPermit::Pass, "line {line}"),
                "probe" => assert_eq!(breaker.admit(now), CallPermit::Probe, "line {line}"),
                "refuse" => assert_eq!(breaker.admit(now), CallPermit::Refuse, "line {line}"),
                "failed" => breaker.report(CallPermit::Pass, CallResult::Failed, now),
                "answered" => breaker.report(CallPermit::Pass, CallResult::Answered, now),
                "probe failed" => breaker.report(CallPermit::Probe, CallResult::Failed, now),
                "probe answered" => breaker.report(CallPermit::Probe, CallResult::Answered, now),
                "probe abandoned" => breaker.report(CallPermit::Probe, CallResult::Abandoned, now),
                other => panic!("{other}"),
            }
            assert_eq!(breaker.state(), *shown, "line {line}: {what} at {ms} ms");
        }
    }

    #[test]
    fn it_opens_after_a_burst_and_closes_after_one_probe() {
        use BreakerState::*;
        check(&[
            (0, "failed", Closed),
            (0, "failed", Closed),
            (0, "failed", Closed),
            (0, "failed", Closed),
            (0, "failed", Closed),
            (19, "failed", Closed),
            (20, "failed", Open),
            (20, "refuse", Open),
            (119, "refuse", Open),
            (120, "probe", Probing),
            (121, "refuse", Probing),
            (125, "answered", Probing),
            (130, "probe failed", Open),
            (329, "refuse", Open),
            (330, "probe", Probing),
            (331, "probe abandoned", Open),
            (331, "probe", Probing),
            (332, "probe answered", Closed),
            (332, "pass", Closed),
        ]);
    }

    #[test]
    fn an_answer_in_between_keeps_it_closed() {
        use BreakerState::*;
        check(&[
            (0, "failed", Closed),
            (30, "failed", Closed),
            (60, "failed", Closed),
            (90, "failed", Closed),
            (91, "answered", Closed),
            (120, "failed", Closed),
            (150, "failed", Closed),
            (150, "pass", Closed),
        ]);
    }

    #[test]
    fn a_probe_that_never_reports_is_followed_by_another() {
        use BreakerState::*;
        check(&[
            (0, "failed", Closed),
            (1, "failed", Closed),
            (2, "failed", Closed),
            (3, "failed", Closed),
            (50, "failed", Open),
            (150, "probe", Probing),
            (1_149, "refuse", Probing),
            (1_150, "probe", Probing),
        ]);
    }

    proptest! {
        #[test]
        fn whatever_happened_a_node_that_answers_is_asked_again_within_two_seconds(
            events in prop::collection::vec((0_u64..300, 0_u8..3), 0..200),
        ) {
            let mut breaker = Breaker::default();
            let mut now = Micros::ZERO;
            for (ms, result) in events {
                now = now.saturating_add(Micros(ms * MS));
                let permit = breaker.admit(now);
                let results = [CallResult::Answered, CallResult::Failed, CallResult::Abandoned];
                let result = results[usize::from(result)];
                if permit != CallPermit::Refuse {
                    breaker.report(permit, result, now);
                }
            }
            let end = now.saturating_add(Micros::from_secs(2));
            while now < end {
                let permit = breaker.admit(now);
                if permit != CallPermit::Refuse {
                    breaker.report(permit, CallResult::Answered, now);
                }
                now = now.saturating_add(Micros(10 * MS));
            }
            prop_assert!(breaker.always_passes());
        }

        #[test]
        fn while_it_is_open_at_most_one_call_waits(
            events in prop::collection::vec(0_u64..50, 0..200),
        ) {
            let mut breaker = Breaker::default();
            for ms in [0, 5, 10, 15, 20] {
                breaker.report(CallPermit::Pass, CallResult::Failed, Micros(ms * MS));
            }
            prop_assert_eq!(breaker.state(), BreakerState::Open);
            let mut now = Micros(20 * MS);
            let mut waiting = 0_u64;
            let mut last_probe = Micros::ZERO;
            for ms in events {
                now = now.saturating_add(Micros(ms * MS));
                match breaker.admit(now) {
                    CallPermit::Refuse => {}
                    CallPermit::Probe => {
                        prop_assert!(waiting == 0 || now >= last_probe.saturating_add(PROBE));
                        waiting = 1;
                        last_probe = now;
                    }
                    CallPermit::Pass => prop_assert!(false, "it never closed"),
                }
            }
        }
    }
}
