//! The debounce: when to look, from when something stirred. Pure; time is an argument.

use super::Digest;
use crate::time::Micros;

/// How patient a watcher is.
#[derive(Clone, Copy, Debug)]
pub(in crate::app) struct Pace {
    /// So long must nothing stir before a look.
    pub(in crate::app) quiet: Micros,
    /// So long after the first stir a look comes, quiet or not.
    pub(in crate::app) longest: Micros,
    /// Time between looks without a hint.
    pub(in crate::app) poll: Micros,
    /// The same where hints may be missing.
    pub(in crate::app) poll_deaf: Micros,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace {
            quiet: Micros::from_millis(200),
            longest: Micros::from_secs(2),
            poll: Micros::from_secs(5),
            poll_deaf: Micros::SECOND,
        }
    }
}

/// Waits for quiet.
#[derive(Debug)]
pub(super) struct Debounce {
    pace: Pace,
    stirred: Option<Stirred>,
    polled: Micros,
}

/// Something has changed, or seems to have.
#[derive(Clone, Copy, Debug)]
struct Stirred {
    first: Micros,
    last: Micros,
    /// What a look without a hint saw: nobody tells when it changes once more.
    seen: Option<Digest>,
}

impl Debounce {
    pub(super) fn new(pace: Pace) -> Debounce {
        Debounce { pace, stirred: None, polled: Micros::ZERO }
    }

    /// Whether the next look is one that something stirred.
    pub(super) fn is_stirred(&self) -> bool {
        self.stirred.is_some()
    }

    /// Something was heard.
    pub(super) fn stir(&mut self, now: Micros) {
        let Stirred { first, seen, .. } =
            self.stirred.unwrap_or(Stirred { first: now, last: now, seen: None });
        self.stirred = Some(Stirred { first, last: now, seen });
    }

    /// Something was seen that nobody had told.
    pub(super) fn stir_seen(&mut self, digest: Digest, now: Micros) {
        self.stir(now);
        if let Some(stirred) = &mut self.stirred {
            stirred.seen = Some(digest);
        }
    }

    /// A look without a hint was taken.
    pub(super) fn polled(&mut self, now: Micros) {
        self.polled = now;
    }

    /// When to look next.
    pub(super) fn next(&self, sharp: bool) -> Micros {
        let Pace { quiet, longest, poll, poll_deaf } = self.pace;
        match self.stirred {
            Some(Stirred { first, last, .. }) => {
                last.saturating_add(quiet).min(first.saturating_add(longest))
            }
            None => self.polled.saturating_add(if sharp { poll } else { poll_deaf }),
        }
    }

    /// Takes what a look saw when it was due. Tells whether that is believed; if not, another look
    /// comes after another quiet while.
    pub(super) fn settle(&mut self, digest: Digest, now: Micros) -> bool {
        let Some(stirred) = self.stirred else { return true };
        let moving = stirred.seen.is_some_and(|seen| seen != digest);
        if moving && now < stirred.first.saturating_add(self.pace.longest) {
            self.stirred = Some(Stirred { last: now, seen: Some(digest), ..stirred });
            return false;
        }
        self.stirred = None;
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
        let mut debounce = Debounce::new(Pace::default());
        debounce.polled(at(0));
        assert_eq!(debounce.next(true), at(5_000), "nothing stirred: the poll is next");
        assert_eq!(debounce.next(false), at(1_000), "sooner where hints may be missing");
        debounce.stir(at(100));
        assert!(debounce.is_stirred());
        assert_eq!(debounce.next(true), at(300));
        debounce.stir(at(250));
        assert_eq!(debounce.next(true), at(450), "every stir begins the quiet anew");
        for millis in (300..2_100).step_by(100) {
            debounce.stir(at(millis));
        }
        assert_eq!(debounce.next(true), at(2_100), "2 s after the first");
        assert!(debounce.settle(7, at(2_100)));
        assert!(!debounce.is_stirred());
        assert_eq!(debounce.next(true), at(7_100), "a look is as good as a poll");
    }

    #[test]
    fn what_a_poll_sees_is_believed_when_two_looks_agree_or_after_2_s() {
        let mut debounce = Debounce::new(Pace::default());
        debounce.stir_seen(1, at(0));
        assert_eq!(debounce.next(true), at(200));
        assert!(!debounce.settle(2, at(200)), "it is still being written");
        assert_eq!(debounce.next(true), at(400));
        assert!(debounce.settle(2, at(400)));

        debounce.stir_seen(0, at(1_000));
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
