//! When reports renew a holding in the ledger.

use crate::time::Micros;

/// The least time between two renewals of a holder. An Envoy reports every 5 s. Reports that follow each other
/// faster than this are answered together, so a stream that reports all the time costs the ledger little. These
/// are three ticks of the driver, so that a report in each second still has its own answer.
const RENEWAL_SPACING: Micros = Micros::from_millis(750);

/// The renewals of one holder, for one stream.
#[derive(Debug)]
pub(super) struct Renewal {
    /// Whether a report waits for its renewal.
    is_wanted: bool,
    /// Whether the change in flight renews.
    is_sent: bool,
    /// The last renewal that was sent and did not fail.
    last: Option<Micros>,
}

impl Renewal {
    /// That of a new stream, which waits for its first renewal.
    pub(super) fn new() -> Renewal {
        Renewal { is_wanted: true, is_sent: false, last: None }
    }

    /// A report waits for a renewal.
    pub(super) fn want(&mut self) {
        self.is_wanted = true;
    }

    /// No report waits any longer.
    pub(super) fn cancel(&mut self) {
        self.is_wanted = false;
    }

    /// Whether a report waits, maybe for the end of the spacing.
    pub(super) fn is_wanted(&self) -> bool {
        self.is_wanted
    }

    /// Whether a report is answered now.
    pub(super) fn is_due(&self, now: Micros) -> bool {
        self.due_at().is_some_and(|at| at <= now)
    }

    /// When the report that waits is answered.
    pub(super) fn due_at(&self) -> Option<Micros> {
        let at = self.last.map_or(Micros::ZERO, |last| last.saturating_add(RENEWAL_SPACING));
        self.is_wanted.then_some(at)
    }

    /// A change is sent, which `renews` or not. A report that arrives before its answer waits for another one.
    pub(super) fn send(&mut self, renews: bool, now: Micros) {
        self.is_sent = renews;
        if renews {
            self.is_wanted = false;
            self.last = Some(now);
        }
    }

    /// The change is answered. Returns whether it renewed.
    pub(super) fn take_sent(&mut self) -> bool {
        std::mem::take(&mut self.is_sent)
    }

    /// The change failed.
    pub(super) fn fail(&mut self) {
        if self.take_sent() {
            self.is_wanted = true;
            self.last = None;
        }
    }
}
