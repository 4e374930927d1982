//! A holder of this instance: its demand, its share, and what its Envoy was sent.

use super::super::assignment::Assignment;
use super::super::division::Want;
use super::super::ledger::{Change, HolderId, Holding};
use super::super::share::Quota;
use super::demand_meter::DemandMeter;
use super::earlier_use::EarlierUse;
use super::ledger_view::CLOCK_SLACK;
use super::renewal::Renewal;
use super::{DueAssignment, GroupConfig};
use crate::time::Micros;

/// By how much a change without a report moves the expiry in the ledger. The ledger skips a change whose
/// expiry is before the stored one, so changes that arrive late and out of order have no effect.
const EXPIRY_STEP: Micros = Micros::from_millis(1);

/// The largest generation: Envoy wants less than a second of nanoseconds.
const GENERATION_MAX: u64 = 999_999_999;

/// One holder.
///
/// What its Envoy uses is at most `share`, or `old` until its grace ends, and nothing from `until` on.
/// The ledger has at least as much:
///
/// - `share` rises only to a share of a snapshot.
/// - `share` falls before the ledger is asked, which keeps the old share for the grace.
/// - No assignment is sent with a TTL that ends after `until` minus the grace, and `until` is an expiry
///   from a snapshot (or set by [`OwnHolder::renew_without_ledger`], the exception that a rule asks for).
#[derive(Debug)]
pub(super) struct OwnHolder {
    demand: DemandMeter,
    /// When it appeared here.
    appeared: Micros,
    /// When its stream appeared.
    joined: Micros,
    /// The last report, or the start.
    reported: Micros,
    /// The renewals by its reports.
    renewal: Renewal,
    /// Whether a snapshot showed what the ledger had of it when it appeared.
    known: bool,
    share: u64,
    /// The share that it should have.
    target: u64,
    /// The largest share that a message lowered, until a report proves that the stream still works.
    old: u64,
    /// When it was lowered.
    lowered: Micros,
    /// When the ledger ends the holding.
    until: Micros,
    /// The largest expiry that this group sent to the ledger.
    written: Micros,
    /// The share of the change in flight.
    asked: Option<u64>,
    /// Whether the ledger has less than the holder uses, or another want, so that it must be written again.
    restore: bool,
    /// Whether the quota has changed since the change in flight was made: its want is one of the quota before.
    is_outdated: bool,
    /// The first expiry that another instance wrote within [`CLOCK_SLACK`]; zero if there is none.
    foreign: Micros,
    /// Whether another instance writes it.
    pub(super) taken_over: bool,
    /// Whether its stream ended.
    pub(super) left: bool,
    /// Its use before this instance started, while assignments of that time may be in use.
    earlier: EarlierUse,
    sent: Option<Assignment>,
    generation: u64,
}

impl OwnHolder {
    pub(super) fn new(now: Micros) -> OwnHolder {
        OwnHolder {
            demand: DemandMeter::default(),
            appeared: now,
            joined: now,
            reported: now,
            renewal: Renewal::new(),
            known: false,
            share: 0,
            target: 0,
            old: 0,
            lowered: Micros::ZERO,
            until: Micros::ZERO,
            written: Micros::ZERO,
            asked: None,
            restore: false,
            is_outdated: false,
            foreign: Micros::ZERO,
            taken_over: false,
            left: false,
            earlier: EarlierUse::Unknown,
            sent: None,
            // Different from that of an earlier stream: Envoy ignores a change of the seconds alone.
            generation: (now.0 / 1_000) % GENERATION_MAX,
        }
    }

    /// The stream of the holder appears again. Its Envoy may still use what the last stream sent.
    pub(super) fn rejoin(&mut self, now: Micros) {
        let before = std::mem::replace(self, OwnHolder::new(now));
        self.appeared = before.appeared;
        self.written = before.written;
        self.generation = self.generation.max(before.generation);
        self.earlier = before.earlier;
        if !before.taken_over {
            self.share = before.share;
            self.old = before.old;
            self.lowered = before.lowered;
            self.until = before.until;
        }
    }

    /// Sets what the Envoy was seen to use before this instance started.
    pub(super) fn set_earlier_use(&mut self, earlier: EarlierUse) {
        self.earlier = earlier;
    }

    /// Counts a report.
    pub(super) fn report(&mut self, hits: u64, now: Micros, grace: Micros) {
        self.demand.add(hits, now);
        self.reported = now;
        self.renewal.want();
        if now > self.lowered.saturating_add(grace) {
            self.old = 0;
        }
    }

    /// The stream ended. If a message lowered the share since the last report, it may be lost, so the
    /// ledger gets the old share back.
    pub(super) fn leave(&mut self) {
        self.left = true;
        self.renewal.cancel();
        self.restore |= self.known && self.old > self.share;
    }

    /// Whether the holder has nothing in the ledger that this group must still care about.
    pub(super) fn is_over(&self, now: Micros) -> bool {
        self.left && self.asked.is_none() && (self.taken_over || self.until <= now)
    }

    /// Whether it reports, so that changes reach it.
    pub(super) fn is_live(&self, now: Micros, config: &GroupConfig) -> bool {
        let overdue = self.reported.saturating_add(config.silence()) < now;
        self.known && !self.left && !self.taken_over && !overdue
    }

    /// Whether its stream is open and no snapshot showed it.
    pub(super) fn is_new(&self) -> bool {
        !self.known && !self.left
    }

    /// Whether its stream is open, and its Envoy was sent nothing that could be sent.
    pub(super) fn waits_for_first_share(&self, now: Micros, config: &GroupConfig) -> bool {
        self.sent.is_none() && !self.left && !self.taken_over && !self.is_unknown_yet(now, config)
    }

    /// Whether what it had before a restart is not known yet. It is sent nothing then.
    fn is_unknown_yet(&self, now: Micros, config: &GroupConfig) -> bool {
        self.earlier == EarlierUse::Unknown && now < config.relearn_until
    }

    pub(super) fn share(&self) -> u64 {
        self.share
    }

    /// What its Envoy may use: the old share until its grace ends.
    pub(super) fn held(&self, now: Micros, grace: Micros) -> u64 {
        let in_grace = self.lowered.saturating_add(grace) > now;
        if in_grace { self.share.max(self.old) } else { self.share }
    }

    /// Whether a report is answered now.
    pub(super) fn renews(&self, now: Micros) -> bool {
        self.renewal.is_due(now)
    }

    /// When a report is answered that waits.
    pub(super) fn renewal_at(&self) -> Option<Micros> {
        self.renewal.due_at()
    }

    pub(super) fn until(&self) -> Micros {
        self.until
    }

    /// What it could use, by its demand alone.
    pub(super) fn want(&self, quota: &Quota) -> Want {
        self.demand.want(quota)
    }

    /// What it could use, and whether it appeared within the time for which the ledger keeps a holding.
    pub(super) fn claim(&self, quota: &Quota, now: Micros, config: &GroupConfig) -> Want {
        match self.want(quota) {
            Want::Share(share) if now < self.appeared.saturating_add(config.life()) => {
                Want::Recent(share)
            }
            want => want,
        }
    }

    pub(super) fn set_target(&mut self, target: u64) {
        self.target = target;
    }

    /// `target` of one of `holders`, limited while assignments of the time before the start may be in use.
    pub(super) fn limited(
        &self,
        target: u64,
        holders: usize,
        now: Micros,
        config: &GroupConfig,
    ) -> u64 {
        if now < config.relearn_until { target.min(self.earlier.most(holders)) } else { target }
    }

    /// Lowers the share at once. The Envoy may use the old one until the message arrives.
    pub(super) fn lower(&mut self, share: u64, now: Micros, grace: Micros) {
        let old = if self.lowered.saturating_add(grace) > now { self.old } else { 0 };
        self.old = old.max(self.share);
        self.lowered = now;
        self.share = share;
    }

    /// An Envoy whose assignment expired uses nothing. It gets another one if it still reports.
    ///
    /// Another instance, whose clock may be ahead, gives the share away when the holding expires by that
    /// clock. So the share ends here before any clock is there, and is not claimed again by
    /// [`Change::held`]. The assignment has expired by then: it ends a whole grace before the holding.
    pub(super) fn end(&mut self, now: Micros) {
        if self.until <= now.saturating_add(CLOCK_SLACK) {
            self.share = 0;
            self.old = 0;
            self.renewal.want();
        }
    }

    /// Whether the ledger must be written although the share stays.
    pub(super) fn must_write(&self, now: Micros, config: &GroupConfig) -> bool {
        let restores = self.restore && self.known && !self.taken_over && self.until > now;
        restores || self.renews_now(now, config)
    }

    /// Whether a report renews the holding now. If a new stream is lowered, only after the grace: a stream
    /// that ends before has its old share again, because the message may be lost. So a client that opens
    /// and ends streams of one name all the time would keep the old share, although none may renew it.
    fn renews_now(&self, now: Micros, config: &GroupConfig) -> bool {
        let in_grace = |since: Micros, at| since.saturating_add(config.grace) > at;
        let is_lowered = self.old > self.share && in_grace(self.lowered, now);
        let waits = is_lowered && in_grace(self.joined, self.lowered);
        self.renews(now) && self.is_live(now, config) && !waits
    }

    /// The end of the holding after a renewal at `now`. With a shared ledger it counts from the report: a change
    /// that is made again after a failure, or sent late, must not end later than one of another instance to which
    /// the Envoy has moved since.
    fn renewed_until(&self, now: Micros, config: &GroupConfig) -> Micros {
        let from = if config.shared { self.reported } else { now };
        from.saturating_add(config.life())
    }

    /// The change to `share`.
    pub(super) fn change(
        &mut self,
        holder: HolderId,
        share: u64,
        quota: &Quota,
        now: Micros,
        config: &GroupConfig,
    ) -> Change {
        let held = self.held(now, config.grace);
        let share = if self.left { share.max(self.old) } else { share };
        let renews = self.renews_now(now, config);
        let end = if renews { self.renewed_until(now, config) } else { self.until };
        let expires = end.max(self.written.saturating_add(EXPIRY_STEP));
        self.written = expires;
        self.asked = Some(share);
        self.is_outdated = false;
        self.renewal.send(renews, now);
        Change { holder, share, held, want: self.claim(quota, now, config).number(), expires }
    }

    /// Takes a snapshot. Returns whether the Envoy must get an assignment.
    pub(super) fn take(&mut self, holding: Option<&Holding>, now: Micros, grace: Micros) -> bool {
        let asked = self.asked.take();
        let Some(holding) = holding else {
            self.known = true;
            // Lost, then it is written again; or refused, because there are too many holders.
            self.restore = asked.is_none() && self.until > now;
            if asked.is_some() {
                self.renewal.take_sent();
                self.lower(0, now, grace);
                self.until = self.written;
            }
            return asked.is_some();
        };
        if !self.known {
            self.known = true;
            self.share = holding.share;
            self.until = holding.expires;
            self.written = self.written.max(holding.expires);
            return false;
        }
        if self.notes_other_writer(holding.expires) {
            self.taken_over = true;
            return false;
        }
        let Some(asked) = asked else {
            self.restore |= holding.expires < self.until;
            // Another instance lowered it, and may have given the rest away.
            let is_lowered = holding.expires > self.written && holding.share < self.share;
            if is_lowered {
                self.lower(holding.share, now, grace);
            }
            return is_lowered;
        };
        let (renewed, before) = (self.renewal.take_sent(), self.share);
        // The stream may have ended, or the quota have changed, while an earlier change was in flight.
        self.restore = if self.left { asked < self.old } else { self.is_outdated };
        self.until = holding.expires;
        let granted = asked.min(holding.share);
        if granted < before {
            self.lower(granted, now, grace);
        }
        self.share = granted;
        renewed || granted != before
    }

    /// Whether another instance writes the holder. Within [`CLOCK_SLACK`] it may be the last write for an Envoy
    /// that moved here, by a clock that is ahead. A renewal after that is none: two Envoys with one name
    /// report within this time of each other.
    fn notes_other_writer(&mut self, expires: Micros) -> bool {
        if expires <= self.written {
            return false;
        }
        if self.foreign == Micros::ZERO {
            self.foreign = expires;
        }
        expires > self.written.saturating_add(CLOCK_SLACK)
            || expires > self.foreign.saturating_add(Micros::SECOND)
    }

    /// The store failed, so it is unknown whether the change was made.
    pub(super) fn fail(&mut self) {
        self.asked = None;
        self.renewal.fail();
    }

    /// Renews the last share without the ledger. Returns whether the Envoy must get it.
    pub(super) fn renew_without_ledger(&mut self, now: Micros, config: &GroupConfig) -> bool {
        if !self.renewal.is_wanted() || self.sent.is_none() || !self.is_live(now, config) {
            return false;
        }
        self.renewal.cancel();
        self.restore = true;
        self.until = self.until.max(self.renewed_until(now, config));
        true
    }

    /// The assignment to send.
    pub(super) fn next_assignment(
        &mut self,
        holder: HolderId,
        quota: &Quota,
        now: Micros,
        config: &GroupConfig,
    ) -> Option<DueAssignment> {
        if self.left || self.taken_over || self.is_unknown_yet(now, config) {
            return None;
        }
        let assignment = Assignment::of(quota, self.share);
        if self.sent != Some(assignment) {
            self.generation = self.generation % GENERATION_MAX + 1;
            self.sent = Some(assignment);
        }
        let rest = self.until.saturating_sub(now.saturating_add(config.grace));
        let ttl = if self.share == 0 { config.ttl } else { config.ttl.min(rest) };
        let generation = u32::try_from(self.generation).unwrap_or(1);
        Some(DueAssignment {
            holder,
            assignment,
            generation,
            ttl: Micros::from_secs(ttl.0 / 1_000_000),
            target: self.target,
        })
    }

    /// Applies `convert` to every share, for another quota. The ledger has the want as a part of the quota before,
    /// by which the other instances divide, so it is written again.
    pub(super) fn convert(&mut self, convert: impl Fn(u64) -> u64) {
        self.restore |= !self.left;
        self.is_outdated = true;
        self.share = convert(self.share);
        self.target = convert(self.target);
        self.old = convert(self.old);
        self.earlier = self.earlier.convert(&convert);
        self.asked = self.asked.map(convert);
    }
}
