//! The circuit breaker of one node: a pure state machine without I/O or clock.
//!
//! - Closed: every call passes. A burst of failures opens it.
//! - Open: every call is rejected, so no caller waits for a node that does not answer.
//! - Probing: after the open time one call passes. Its success closes the breaker. Its failure
//!   opens the breaker again for twice the time.

use crate::time::Micros;

/// Consecutive failures that open the breaker.
const FAILURES_TO_OPEN: u32 = 5;

/// Shortest time between the first and the last failure of a burst. A short interruption
/// fails many calls at once and ends before the next call.
const FAILURES_SPAN_MIN: Micros = Micros::from_millis(20);

/// First open time. It doubles with each failed probe, up to [`OPEN_TIME_MAX`].
const OPEN_TIME_MIN: Micros = Micros::from_millis(100);

/// Longest open time, and so the longest wait of a recovered node for its first call.
const OPEN_TIME_MAX: Micros = Micros::from_millis(800);

/// Longest wait for a probe's result, after which another call probes. If `store.timeout` is
/// shorter, only a lost report takes this long.
const PROBE_TIMEOUT: Micros = Micros::SECOND;

/// Decides whether a call may be sent to one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Breaker {
    state: TimedState,
}

/// The state with its times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TimedState {
    /// Every call passes. `failures` is the number of consecutive failures, the first one at
    /// `since`.
    Closed { failures: u32, since: Micros },
    /// No call passes before `until`; the open time was `length`.
    Open { until: Micros, length: Micros },
    /// One call is in flight and must report before `until`.
    Probing { until: Micros, length: Micros },
}

/// The breaker's decision about a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallPermit {
    /// Send it.
    Pass,
    /// Send it; its result closes or reopens the breaker.
    Probe,
    /// Do not send it.
    Reject,
}

/// The result of a call, reduced to what it shows about the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallResult {
    /// The node replied, with an outcome or an error.
    Answered,
    /// The node did not reply within the store's timeout, or the connection failed.
    Failed,
    /// The call was not sent, or the caller stopped waiting before the store's timeout. So the node
    /// may be healthy.
    Abandoned,
}

/// The breaker's state, for logs and metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakerState {
    /// Every call passes.
    Closed,
    /// No call passes.
    Open,
    /// One call is in flight as a probe.
    Probing,
}

impl Default for Breaker {
    fn default() -> Self {
        Breaker { state: TimedState::Closed { failures: 0, since: Micros::ZERO } }
    }
}

impl Breaker {
    /// Decides about a call at `now`.
    pub(super) fn admit(&mut self, now: Micros) -> CallPermit {
        match self.state {
            TimedState::Closed { .. } => CallPermit::Pass,
            TimedState::Open { until, length } | TimedState::Probing { until, length }
                if now >= until =>
            {
                self.state =
                    TimedState::Probing { until: now.saturating_add(PROBE_TIMEOUT), length };
                CallPermit::Probe
            }
            TimedState::Open { .. } | TimedState::Probing { .. } => CallPermit::Reject,
        }
    }

    /// Takes the result of a call that passed with `permit`.
    pub(super) fn report(&mut self, permit: CallPermit, result: CallResult, now: Micros) {
        match (self.state, result) {
            (TimedState::Closed { .. }, CallResult::Answered) => *self = Breaker::default(),
            (TimedState::Closed { failures, since }, CallResult::Failed) => {
                let since = if failures == 0 { now } else { since };
                let failures = failures.saturating_add(1);
                let spanned = now.saturating_sub(since) >= FAILURES_SPAN_MIN;
                self.state = if failures >= FAILURES_TO_OPEN && spanned {
                    TimedState::Open {
                        until: now.saturating_add(OPEN_TIME_MIN),
                        length: OPEN_TIME_MIN,
                    }
                } else {
                    TimedState::Closed { failures, since }
                };
            }
            (TimedState::Probing { length, .. }, _) if permit == CallPermit::Probe => {
                match result {
                    CallResult::Answered => *self = Breaker::default(),
                    CallResult::Failed => {
                        let length = length.saturating_add(length).min(OPEN_TIME_MAX);
                        self.state = TimedState::Open { until: now.saturating_add(length), length };
                    }
                    // The probe has no result, so the next call probes.
                    CallResult::Abandoned => self.state = TimedState::Open { until: now, length },
                }
            }
            // Calls sent before it opened: their success does not prove that the node recovered.
            (
                TimedState::Closed { .. } | TimedState::Open { .. } | TimedState::Probing { .. },
                _,
            ) => {}
        }
    }

    /// Whether the breaker is closed without a failure: every call passes, and a success changes
    /// nothing.
    pub(super) fn has_no_failure(&self) -> bool {
        matches!(self.state, TimedState::Closed { failures: 0, .. })
    }

    /// The state without its times.
    pub(super) fn state(&self) -> BreakerState {
        match self.state {
            TimedState::Closed { .. } => BreakerState::Closed,
            TimedState::Open { .. } => BreakerState::Open,
            TimedState::Probing { .. } => BreakerState::Probing,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MS: u64 = 1_000;

    /// Runs events of `(ms, event)` and compares the state after each.
    fn check(script: &[(u64, &str, BreakerState)]) {
        let mut breaker = Breaker::default();
        for (line, (ms, what, shown)) in script.iter().enumerate() {
            let now = Micros(ms * MS);
            match *what {
                "pass" => assert_eq!(breaker.admit(now), CallPermit::Pass, "line {line}"),
                "probe" => assert_eq!(breaker.admit(now), CallPermit::Probe, "line {line}"),
                "reject" => assert_eq!(breaker.admit(now), CallPermit::Reject, "line {line}"),
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
    fn opens_after_a_burst_and_closes_after_one_probe() {
        use BreakerState::*;
        check(&[
            (0, "failed", Closed),
            (0, "failed", Closed),
            (0, "failed", Closed),
            (0, "failed", Closed),
            (0, "failed", Closed),
            (19, "failed", Closed),
            (20, "failed", Open),
            (20, "reject", Open),
            (119, "reject", Open),
            (120, "probe", Probing),
            (121, "reject", Probing),
            (125, "answered", Probing),
            (130, "probe failed", Open),
            (329, "reject", Open),
            (330, "probe", Probing),
            (331, "probe abandoned", Open),
            (331, "probe", Probing),
            (332, "probe answered", Closed),
            (332, "pass", Closed),
        ]);
    }

    #[test]
    fn a_success_in_between_keeps_it_closed() {
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
    fn a_lost_probe_is_followed_by_another() {
        use BreakerState::*;
        check(&[
            (0, "failed", Closed),
            (1, "failed", Closed),
            (2, "failed", Closed),
            (3, "failed", Closed),
            (50, "failed", Open),
            (150, "probe", Probing),
            (1_149, "reject", Probing),
            (1_150, "probe", Probing),
        ]);
    }

    proptest! {
        #[test]
        fn a_recovered_node_closes_within_two_seconds(
            events in prop::collection::vec((0_u64..300, 0_u8..3), 0..200),
        ) {
            let mut breaker = Breaker::default();
            let mut now = Micros::ZERO;
            for (ms, result) in events {
                now = now.saturating_add(Micros(ms * MS));
                let permit = breaker.admit(now);
                let results = [CallResult::Answered, CallResult::Failed, CallResult::Abandoned];
                let result = results[usize::from(result)];
                if permit != CallPermit::Reject {
                    breaker.report(permit, result, now);
                }
            }
            let end = now.saturating_add(Micros::from_secs(2));
            while now < end {
                let permit = breaker.admit(now);
                if permit != CallPermit::Reject {
                    breaker.report(permit, CallResult::Answered, now);
                }
                now = now.saturating_add(Micros(10 * MS));
            }
            prop_assert!(breaker.has_no_failure());
        }

        #[test]
        fn at_most_one_call_waits_while_open(
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
                    CallPermit::Reject => {}
                    CallPermit::Probe => {
                        let overdue = last_probe.saturating_add(PROBE_TIMEOUT);
                        prop_assert!(waiting == 0 || now >= overdue);
                        waiting = 1;
                        last_probe = now;
                    }
                    CallPermit::Pass => prop_assert!(false, "it never closed"),
                }
            }
        }
    }
}
