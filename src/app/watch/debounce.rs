//! The debounce: when to look, from when something changed. Pure; time is an argument.

use super::Digest;
use crate::time::Micros;

/// How patient a watcher is.
#[derive(Clone, Copy, Debug)]
pub(in crate::app) struct Timing {
    /// So long must nothing stir before a look.
    pub(in crate::app) quiet: Micros,
    /// So long after the first stir a look comes, quiet or not.
    pub(in crate::app) longest: Micros,
    /// Time between looks without a hint.
    pub(in crate::app) poll: Micros,
    /// The same where hints may be missing.
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

/// Waits for quiet.
#[derive(Debug)]
pub(super) struct Debounce {
    timing: Timing,
    pending: Option<Pending>,
    polled: Micros,
}

/// Something has changed, or seems to have.
#[derive(Clone, Copy, Debug)]
struct Pending {
    first: Micros,
    last: Micros,
    /// What a look without a hint saw: nobody tells when it changes once more.
    seen: Option<Digest>,
}

impl Debounce {
    pub(super) fn new(timing: Timing) -> Debounce {
        Debounce { timing, pending: None, polled: Micros::ZERO }
    }

    /// Whether the next look follows an event.
    pub(super) fn is_pending(&self) -> bool {
        self.pending.is_some()
    }

    /// Something was heard.
    pub(super) fn on_event(&mut self, now: Micros) {
        let Pending { first, seen, .. } =
            self.pending.unwrap_or(Pending { first: now, last: now, seen: None });
        self.pending = Some(Pending { first, last: now, seen });
    }

    /// Something was seen that nobody had told.
    pub(super) fn on_poll_change(&mut self, digest: Digest, now: Micros) {
        self.on_event(now);
        if let Some(pending) = &mut self.pending {
            pending.seen = Some(digest);
        }
    }

    /// A look without a hint was taken.
    pub(super) fn polled(&mut self, now: Micros) {
        self.polled = now;
    }

    /// When to look next.
    pub(super) fn next(&self, sharp: bool) -> Micros {
        let Timing { quiet, longest, poll, poll_degraded } = self.timing;
        match self.pending {
            Some(Pending { first, last, .. }) => {
                last.saturating_add(quiet).min(first.saturating_add(longest))
            }
            None => self.polled.saturating_add(if sharp { poll } else { poll_degraded }),
        }
    }

    /// Takes what a look saw when it was due. Tells whether that is believed; if not, another look
    /// comes after another quiet while.
    pub(super) fn settle(&mut self, digest: Digest, now: Micros) -> bool {
        let Some(pending) = self.pending else { return true };
        let moving = pending.seen.is_some_and(|seen| seen != digest);
        if moving && now < pending.first.saturating_add(self.timing.longest) {
            self.pending = Some(Pending { last: now, seen: Some(digest), ..pending });
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
    fn a_look_comes_after_200_ms_of_quiet_and_after_2_s_in_any_case() {
        let mut debounce = Debounce::new(Timing::default());
        debounce.polled(at(0));
        assert_eq!(debounce.next(true), at(5_000), "nothing happened: the poll is next");
        assert_eq!(debounce.next(false), at(1_000), "sooner where hints may be missing");
        debounce.on_event(at(100));
        assert!(debounce.is_pending());
        assert_eq!(debounce.next(true), at(300));
        debounce.on_event(at(250));
        assert_eq!(debounce.next(true), at(450), "every event restarts the quiet period");
        for millis in (300..2_100).step_by(100) {
            debounce.on_event(at(millis));
        }
        assert_eq!(debounce.next(true), at(2_100), "2 s after the first");
        assert!(debounce.settle(7, at(2_100)));
        assert!(!debounce.is_pending());
        assert_eq!(debounce.next(true), at(7_100), "a look is as good as a poll");
    }

    #[test]
    fn what_a_poll_sees_is_believed_when_two_looks_agree_or_after_2_s() {
        let mut debounce = Debounce::new(Timing::default());
        debounce.on_poll_change(1, at(0));
        assert_eq!(debounce.next(true), at(200));
        assert!(!debounce.settle(2, at(200)), "it is still being written");
        assert_eq!(debounce.next(true), at(400));
        assert!(debounce.settle(2, at(400)));

        debounce.on_poll_change(0, at(1_000));
        let mut digest = 0;
        let now = loop {
            let now = debounce.next(true);
            digest += 1;
            if debounce.settle(digest, now) {
                break now;
            }
        };
        assert_eq!(now, at(3_000), "what never rests is taken after 2 s");
    }
}
