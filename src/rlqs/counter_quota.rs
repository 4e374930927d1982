//! The quota of one counter in this process: its group, its holders here, and where assignments go.

use std::collections::HashMap;
use std::sync::Arc;

use super::bucket_id::BucketKey;
use super::due_quotas::DueMark;
use super::member::{Member, Recipient};
use super::metrics::RlqsMetrics;
use super::outbox::DueAction;
use super::quota_action::QuotaAction;
use super::quota_rule::QuotaRule;
use super::tokens::Tokens;
use crate::quota::{
    Assignment, DueAssignment, GroupConfig, HolderId, HolderTakenOver, Ledger, LedgerSnapshot,
    OutstandingShares, PresentUse, Quota, QuotaGroup, SHARES, Settlement, SettlementPace,
};
use crate::time::{ClockOffset, Micros};

/// Most settlements of one quota in a row. A new holder needs two: one reads, and one asks.
const SETTLEMENTS_IN_A_ROW: usize = 4;

/// The quota of one counter.
#[derive(Debug)]
pub(super) struct CounterQuota {
    pub(super) rule: Arc<QuotaRule>,
    quota: Quota,
    group: QuotaGroup,
    /// The ledger of a memory store. Empty with Redis.
    ledger: Ledger,
    members: HashMap<HolderId, Member>,
    /// The ledger's clock minus the local clock, as it was last known.
    offset: ClockOffset,
    /// The last instant of the group, by the ledger's clock. It does not go back.
    group_now: Micros,
    /// Its entries in the driver's queue of due quotas.
    pub(super) due: DueMark,
    /// When the driver is due to look at it, by the local clock.
    pub(super) wakes_at: Option<Micros>,
    pace: SettlementPace,
    /// Whether Envoys may pass everything, because the rule is in shadow mode. That takes no share, so their
    /// reports are answered without the ledger, which has what they would have.
    is_shadow: bool,
    /// How long an assignment is valid.
    ttl: Micros,
    /// Whether a reload lowered the limit, or moved more to this counter than its limit, and the sum of the
    /// shares has not fallen since.
    was_lowered: bool,
}

/// An assignment of the local holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LocalShare {
    pub(super) assignment: Assignment,
    pub(super) valid_until: Micros,
    /// The hits that the share which it should have would save up. The first bucket begins with them.
    pub(super) burst: u64,
}

/// A settlement to send, and the instant of the group.
#[derive(Debug)]
pub(super) struct SettlementCall {
    pub(super) settlement: Settlement,
    pub(super) sent_at: Micros,
}

/// The use of a bucket, as its Envoy reported it.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReportedUse {
    pub(super) allowed: u64,
    pub(super) denied: u64,
    /// By Envoy's clock.
    pub(super) elapsed: Micros,
}

impl CounterQuota {
    pub(super) fn new(rule: Arc<QuotaRule>, quota: Quota, config: GroupConfig) -> CounterQuota {
        let is_shadow = rule.is_shadow();
        CounterQuota {
            rule,
            quota,
            group: QuotaGroup::new(quota, config),
            ledger: Ledger::default(),
            members: HashMap::new(),
            offset: ClockOffset::default(),
            group_now: Micros::ZERO,
            due: DueMark::default(),
            wakes_at: None,
            pace: SettlementPace::default(),
            is_shadow,
            ttl: config.ttl,
            was_lowered: false,
        }
    }

    /// The instant of the group when the local clock shows `now`. `offset` is that of the ledger's
    /// clock; `None` while it is unknown.
    pub(super) fn group_time(&mut self, now: Micros, offset: Option<ClockOffset>) -> Micros {
        self.offset = offset.unwrap_or(self.offset);
        self.group_now = self.group_now.max(self.offset.remote(now));
        self.group_now
    }

    /// The quota.
    pub(super) fn quota(&self) -> &Quota {
        &self.quota
    }

    /// Sets the quota after a reload. Returns whether it changed.
    pub(super) fn set_quota(&mut self, quota: Quota) -> bool {
        if quota == self.quota {
            return false;
        }
        self.was_lowered |= quota.is_lower_than(&self.quota);
        self.group.set_quota(quota);
        self.quota = quota;
        true
    }

    /// Sends all assignments again if a reload changed the shadow mode of the rule. Returns whether it did.
    ///
    /// A bucket without a share has no assignment to send, as while the store is away. It may pass everything
    /// for a second at most. The share of another one replaces that, in the next settlement.
    pub(super) fn apply_shadow_mode(&mut self, now: Micros) -> bool {
        let is_shadow = self.rule.is_shadow();
        if std::mem::replace(&mut self.is_shadow, is_shadow) == is_shadow {
            return false;
        }
        if is_shadow {
            self.members.values().for_each(|member| member.allow_all(now, self.ttl));
        } else {
            self.members.values().for_each(|member| member.end_allow_all(now));
        }
        self.group.send_again();
        true
    }

    /// Whether it has this holder, also one of another instance. `now` is the local instant.
    pub(super) fn knows(&self, holder: HolderId, now: Micros) -> bool {
        self.group.knows(holder, self.group_now.max(self.offset.remote(now)))
    }

    /// What its holders may still use when `holder`, which is `bucket` of its Envoy, moves to another counter:
    /// of all of them, if this counter has no other bucket id, so that all move there.
    pub(super) fn outstanding(
        &self,
        holder: HolderId,
        bucket: BucketKey,
        now: Micros,
    ) -> OutstandingShares {
        let all_move = self.members.values().all(|member| match &member.to {
            Recipient::Bucket { bucket: other, .. } => *other == bucket,
            Recipient::Local => true,
        });
        let at = self.group_now.max(self.offset.remote(now));
        if all_move { self.group.outstanding(at) } else { self.group.outstanding_of(holder, at) }
    }

    /// Reserves shares of a counter from which holders come.
    pub(super) fn reserve(&mut self, outstanding: &OutstandingShares, at: Micros) {
        self.was_lowered |= self.quota.is_lower_than(outstanding.rate());
        self.group.reserve(outstanding, at);
    }

    /// A holder appears. `now` is the local instant, and `at` the group's instant, as in all calls below.
    pub(super) fn join(&mut self, holder: HolderId, to: Recipient, now: Micros, at: Micros) {
        self.group.join(holder, at);
        let member = Member { to, last_report: None, demand: 0.0, shadow: None };
        if self.is_shadow {
            member.allow_all(now, self.ttl);
        }
        self.members.insert(holder, member);
    }

    /// A report of a bucket.
    ///
    /// # Errors
    ///
    /// Another instance has this holder, so two Envoys have one name. The use is not counted.
    pub(super) fn report(
        &mut self,
        holder: HolderId,
        used: ReportedUse,
        now: Micros,
        at: Micros,
    ) -> Result<(), HolderTakenOver> {
        let hits = used.allowed.saturating_add(used.denied);
        let Some(member) = self.members.get_mut(&holder) else { return Ok(()) };
        if self.is_shadow {
            member.allow_all(now, self.ttl);
        }
        let before = member.last_report.replace(now);
        match before {
            Some(before) => {
                let elapsed = now.saturating_sub(before).max(Micros::from_millis(1));
                member.demand = hits as f64 * 1e6 / elapsed.0 as f64;
            }
            None if used.elapsed > Micros::ZERO => {
                self.group.limit_by_earlier_use(holder, used.allowed, used.elapsed);
            }
            None => {}
        }
        if let Some(tokens) = &mut member.shadow {
            self.rule.shadow_denied.add_many(tokens.take_evenly(hits, now));
        }
        self.group.report(holder, hits, at)
    }

    /// A holder ends. The ledger has it until its last assignment has expired.
    pub(super) fn leave(&mut self, holder: HolderId) -> bool {
        self.group.leave(holder);
        let is_known = self.members.remove(&holder).is_some();
        if self.members.capacity() > 64 && self.members.len() < self.members.capacity() / 4 {
            self.members.shrink_to(2 * self.members.len());
        }
        is_known
    }

    /// Whether this holder is a member.
    pub(super) fn has(&self, holder: HolderId) -> bool {
        self.members.contains_key(&holder)
    }

    /// How often it planned.
    #[cfg(test)]
    pub(super) fn plans(&self) -> usize {
        self.pace.plans
    }

    /// The members.
    pub(super) fn members(&self) -> &HashMap<HolderId, Member> {
        &self.members
    }

    /// The holders of all instances, as far as they are known.
    pub(super) fn holders(&self) -> usize {
        self.pace.holders().max(self.members.len())
    }

    /// Own holders with their shares and wants.
    pub(super) fn shares(&self) -> impl Iterator<Item = (HolderId, u64, u64)> {
        self.group.shares()
    }

    /// The shares of all instances when the local clock shows `now`.
    pub(super) fn present_use(&self, now: Micros) -> PresentUse {
        self.group.present_use(self.group_now.max(self.offset.remote(now)))
    }

    /// Settles with the memory ledger until nothing is due, unless it pauses.
    pub(super) fn settle_in_memory(
        &mut self,
        now: Micros,
        metrics: &RlqsMetrics,
        local: &mut Option<LocalShare>,
    ) {
        let at = self.group_time(now, Some(ClockOffset::default()));
        for number in 0..SETTLEMENTS_IN_A_ROW {
            let next = match number {
                0 => self.pace.settlement(&mut self.group, now, at),
                _ => self.pace.further_settlement(&mut self.group, now, at),
            };
            let Some(settlement) = next else { break };
            self.note_moves();
            metrics.count_moves(&settlement);
            let snapshot = self.ledger.settle(&settlement);
            metrics.settlements_ok.add();
            self.pace.settled(snapshot.holdings.len(), now);
            self.check_sum(&snapshot, at, metrics);
            self.group.settled(Some(&snapshot), at, at, self.rule.renews_without_ledger());
        }
        if self.members.is_empty() {
            // The group does not ask for it: what has expired must not keep this quota.
            let Quota { requests, window, .. } = self.quota;
            let changes = Vec::new();
            let grace = Micros::ZERO;
            self.ledger.settle(&Settlement { now: at, requests, window, grace, changes });
        }
        self.deliver(now, local);
    }

    /// The next settlement to send to a shared ledger, if one is due and none is on its way.
    pub(super) fn next_call(
        &mut self,
        now: Micros,
        at: Micros,
        metrics: &RlqsMetrics,
        local: &mut Option<LocalShare>,
    ) -> Option<SettlementCall> {
        let call = self.pace.settlement(&mut self.group, now, at);
        self.note_moves();
        // A lowering is sent before the ledger answers, so that it does not use up the grace.
        self.deliver(now, local);
        let settlement = call?;
        metrics.count_moves(&settlement);
        self.pace.call(now);
        Some(SettlementCall { settlement, sent_at: at })
    }

    /// The result of a call; `None` if the store failed.
    pub(super) fn finish_call(
        &mut self,
        snapshot: Option<&LedgerSnapshot>,
        sent_at: Micros,
        now: Micros,
        metrics: &RlqsMetrics,
        local: &mut Option<LocalShare>,
    ) {
        let at = self.group_time(now, None);
        match snapshot {
            Some(snapshot) => {
                metrics.settlements_ok.add();
                self.pace.settled(snapshot.holdings.len(), now);
                self.check_sum(snapshot, at, metrics);
            }
            None => metrics.settlements_error.add(),
        }
        self.group.settled(snapshot, sent_at, at, self.rule.renews_without_ledger());
        self.deliver(now, local);
    }

    /// When the driver must look at it again, by the local clock.
    pub(super) fn next(&mut self, now: Micros) -> Option<Micros> {
        self.pace.next(&mut self.group, now, self.group_now)
    }

    /// Whether a settlement is on its way to the ledger.
    pub(super) fn is_in_flight(&self) -> bool {
        self.group.is_in_flight()
    }

    /// Holders of several counters move to this one. What these allow together is more than its limit.
    fn note_moves(&mut self) {
        self.was_lowered |= self.group.moves_excess();
    }

    /// Whether it can be deleted: no member is left, and nothing is in use.
    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty() && self.group.is_empty() && self.ledger.is_empty()
    }

    /// Sends due assignments to the outboxes of their streams. That of the local holder is returned in
    /// `local`.
    fn deliver(&mut self, now: Micros, local: &mut Option<LocalShare>) {
        let is_shadow = self.is_shadow;
        for DueAssignment { holder, assignment, generation, ttl, target } in
            self.group.take_due_assignments()
        {
            let Some(member) = self.members.get_mut(&holder) else { continue };
            member.shadow = match (is_shadow, member.shadow.take()) {
                (false, _) => None,
                (true, None) => Some(Box::new(Tokens::full(assignment, now))),
                (true, Some(mut tokens)) => {
                    tokens.assign(assignment, now);
                    Some(tokens)
                }
            };
            match &member.to {
                Recipient::Local => {
                    let valid_until = now.saturating_add(ttl);
                    let burst = match Assignment::of(&self.quota, target) {
                        Assignment::Bucket { max_tokens, .. } => u64::from(max_tokens),
                        Assignment::AllowAll | Assignment::DenyAll => 0,
                    };
                    *local = Some(LocalShare { assignment, valid_until, burst });
                }
                // It may pass everything, and has that assignment.
                Recipient::Bucket { .. } if is_shadow => {}
                Recipient::Bucket { outbox, bucket, .. } => {
                    let action = QuotaAction::Assign { assignment, generation };
                    let ttl_seconds = ttl.0 / Micros::SECOND.0;
                    outbox.put(*bucket, DueAction { action, at: now, ttl_seconds });
                }
            }
        }
    }

    /// Checks that at most the whole quota is in use.
    fn check_sum(&mut self, snapshot: &LedgerSnapshot, at: Micros, metrics: &RlqsMetrics) {
        let used = snapshot.used(at);
        if used <= SHARES {
            self.was_lowered = false;
        } else if !self.was_lowered {
            metrics.violations.add();
        }
        // A lowered limit is the documented exception.
        if !self.was_lowered {
            metrics.record_in_use(used);
        }
    }
}
