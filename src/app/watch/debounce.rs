//! The debounce: decides when to check the content after events. Pure; time is an argument.

use super::Digest;
use crate::time::Micros;

/// Periods of a watcher.
#[derive(Clone, Copy, Debug)]
pub(in crate::app) struct Timing {
    /// Quiet period before a check.
    pub(in crate::app) quiet: Micros,
    /// Longest time from the first event to a check, even if events continue.
    pub(in crate::app) longest: Micros,
    /// Period of checks without an event.
    pub(in crate::app) poll: Micros,
    /// Period of checks without an event, while events may be missing.
    pub(in crate::app) poll_degraded: Micros,
}

impl Default for Timing {
    fn default() -> Timing {
        Timing {
            quiet: Micros::from_millis(200),
            longest: Micros::from_secs(2),
            poll: Micros::from_secs(5),
            poll_degraded: Micros::SECOND,
        }
    }
}

/// The state between two checks.
#[derive(Debug)]
pub(super) struct Debounce {
    timing: Timing,
    pending: Option<PendingChange>,
    /// The instant of the last check without an event.
    polled: Micros,
}

/// A change that has not been checked.
#[derive(Clone, Copy, Debug)]
struct PendingChange {
    /// The instants of the first and the last event.
    first: Micros,
    last: Micros,
    /// The digest of the last check. If there was one, the next check must have the same digest.
    seen: Option<Digest>,
}

impl Debounce {
    pub(super) fn new(timing: Timing) -> Debounce {
        Debounce { timing, pending: None, polled: Micros::ZERO }
    }

    /// Whether the next check follows an event, or a difference that no event had reported.
    pub(super) fn is_pending(&self) -> bool {
        self.pending.is_some()
    }

    /// Records an event.
    pub(super) fn on_event(&mut self, now: Micros) {
        let PendingChange { first, seen, .. } =
            self.pending.unwrap_or(PendingChange { first: now, last: now, seen: None });
        self.pending = Some(PendingChange { first, last: now, seen });
    }

    /// Records a difference that no event had reported.
    pub(super) fn on_poll_change(&mut self, digest: Digest, now: Micros) {
        self.on_event(now);
        if let Some(pending) = &mut self.pending {
            pending.seen = Some(digest);
        }
    }

    /// Records a check without an event.
    pub(super) fn polled(&mut self, now: Micros) {
        self.polled = now;
    }

    /// The instant of the next check. `complete`: every watched path has a working watch.
    pub(super) fn next(&self, complete: bool) -> Micros {
        let Timing { quiet, longest, poll, poll_degraded } = self.timing;
        match self.pending {
            Some(PendingChange { first, last, .. }) => {
                last.saturating_add(quiet).min(first.saturating_add(longest))
            }
            None => self.polled.saturating_add(if complete { poll } else { poll_degraded }),
        }
    }

    /// Records the result of a due check. Returns false if the content is still changing: the next
    /// check then follows after another quiet period.
    pub(super) fn accept(&mut self, digest: Digest, now: Micros) -> bool {
        let Some(pending) = self.pending else { return true };
        let moving = pending.seen.is_some_and(|seen| seen != digest);
        if moving && now < pending.first.saturating_add(self.timing.longest) {
            self.pending = Some(PendingChange { last: now, seen: Some(digest), ..pending });
            return false;
        }
        self.pending = None;
        self.polled = now;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Micros {
        Micros::from_millis(millis)
    }

    #[test]
    fn a_check_follows_200_ms_of_quiet_or_2_s() {
        let mut debounce = Debounce::new(Timing::default());
        debounce.polled(at(0));
        assert_eq!(debounce.next(true), at(5_000), "nothing happened: the poll is next");
        assert_eq!(debounce.next(false), at(1_000), "sooner while events may be missing");
        debounce.on_event(at(100));
        assert!(debounce.is_pending());
        assert_eq!(debounce.next(true), at(300));
        debounce.on_event(at(250));
        assert_eq!(debounce.next(true), at(450), "every event restarts the quiet period");
        for millis in (300..2_100).step_by(100) {
            debounce.on_event(at(millis));
        }
        assert_eq!(debounce.next(true), at(2_100), "2 s after the first");
        assert!(debounce.accept(7, at(2_100)));
        assert!(!debounce.is_pending());
        assert_eq!(debounce.next(true), at(7_100), "a check counts as a poll");
    }

    #[test]
    fn two_equal_polls_or_2_s_confirm_a_change() {
        let mut debounce = Debounce::new(Timing::default());
        debounce.on_poll_change(1, at(0));
        assert_eq!(debounce.next(true), at(200));
        assert!(!debounce.accept(2, at(200)), "it is still being written");
        assert_eq!(debounce.next(true), at(400));
        assert!(debounce.accept(2, at(400)));

        debounce.on_poll_change(0, at(1_000));
        let mut digest = 0;
        let now = loop {
            let now = debounce.next(true);
            digest += 1;
            if debounce.accept(digest, now) {
                break now;
            }
        };
        assert_eq!(now, at(3_000), "constant changes are accepted after 2 s");
    }
}
