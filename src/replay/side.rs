//! One of the two rule sets of a replay, with its own counters in memory.

use futures_util::FutureExt;

use super::call_batch::{BatchCall, CallBatch};
use super::lease_names::LeaseNames;
use super::report::CounterTotals;
use super::rule_rows::{NO_RULE, RowsOfSet};
use super::{ReplayOptions, ReplayRules};
use crate::decision::{Code, DecisionReason, Verdict};
use crate::descriptor::{Descriptor, Entry, LEASE_KEY, Request};
use crate::key::KeySeed;
use crate::limiter::{Backend, CodeQueue, Limiter};
use crate::rules::RuleSet;
use crate::store::MemoryStore;

/// Descriptors from which a queue is decided. The processor waits for the counters of all of them at once,
/// and their cache lines fit into a first-level cache.
const QUEUED_DESCRIPTORS: usize = 32;

/// A rule set that decides a recording.
pub(super) struct ReplaySide<'r> {
    rules: &'r RuleSet,
    rows: RowsOfSet,
    limiter: Limiter,
    /// Calls that are resolved and not decided. Empty between two batches.
    queue: CodeQueue<'r>,
    leases: LeaseNames,
    totals: CounterTotals,
}

/// The verdicts of one rule set about a batch.
#[derive(Debug, Default)]
pub(super) struct SideVerdicts {
    /// Whether each call is denied.
    pub(super) calls: Vec<bool>,
    /// The verdict about each descriptor.
    pub(super) descriptors: Vec<DescriptorVerdict>,
}

/// The verdict of one rule set about a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DescriptorVerdict {
    /// The row of its rule.
    pub(super) row: u32,
    /// Whether the descriptor alone is denied.
    pub(super) denied: bool,
}

impl<'r> ReplaySide<'r> {
    /// A side without any hits. `rows` are those of `rules`.
    pub(super) fn new(
        rules: ReplayRules<'r>,
        rows: RowsOfSet,
        options: &ReplayOptions,
    ) -> ReplaySide<'r> {
        let backend = Backend::Memory(MemoryStore::new(options.max_counters));
        let limiter = Limiter::new(backend, KeySeed::random(), options.response.clone());
        let mut limiter = limiter.with_on_error(options.on_error);
        if let Some(plans) = rules.plans {
            limiter = limiter.with_plans(plans, None);
        }
        ReplaySide {
            rules: rules.rules,
            rows,
            limiter,
            queue: CodeQueue::default(),
            leases: LeaseNames::default(),
            totals: CounterTotals::default(),
        }
    }

    /// Decides the calls of a batch, one after the other.
    pub(super) fn decide(&mut self, batch: &CallBatch) -> SideVerdicts {
        let mut verdicts = SideVerdicts {
            calls: Vec::with_capacity(batch.calls().len()),
            descriptors: Vec::with_capacity(batch.descriptor_count()),
        };
        for call in batch.calls() {
            if !call.names_lease && self.queue_call(batch, call) {
                if self.queue.descriptor_count() >= QUEUED_DESCRIPTORS {
                    self.decide_queued(&mut verdicts);
                }
                continue;
            }
            self.decide_queued(&mut verdicts);
            let verdict = batch.with_request(call, |request| match call.names_lease {
                false => self.check(request, call),
                true => self.check_with_lease(request, call),
            });
            self.record(batch, call, verdict, &mut verdicts);
        }
        self.decide_queued(&mut verdicts);
        verdicts
    }

    /// Adds a call to the queue. Returns `false` if it needs a check: one that opens or closes leases, or
    /// that matches a rule which replaces others.
    fn queue_call(&mut self, batch: &CallBatch, call: &BatchCall) -> bool {
        let ReplaySide { rules, limiter, queue, .. } = self;
        batch.with_request(call, |request| limiter.queue_code(queue, rules, request, call.at))
    }

    /// Decides the calls of the queue.
    fn decide_queued(&mut self, verdicts: &mut SideVerdicts) {
        let ReplaySide { rows, limiter, queue, totals, .. } = self;
        limiter.decide_codes(queue, |code, descriptors| {
            verdicts.calls.push(code == Code::OverLimit);
            for one in descriptors {
                let row = rows.row_of(one.rule, one.is_counted);
                let denied = one.code == Code::OverLimit;
                verdicts.descriptors.push(DescriptorVerdict { row, denied });
                totals.fallbacks += u64::from(one.by_fallback);
            }
        });
    }

    fn check(&self, request: &Request<'_>, call: &BatchCall) -> Verdict {
        let verdict = self.limiter.check(self.rules, request, call.at).now_or_never();
        verdict.expect("a store in memory answers at once")
    }

    /// Decides a request after its recorded lease ids are replaced by those of this side.
    #[cold]
    fn check_with_lease(&self, request: &Request<'_>, call: &BatchCall) -> Verdict {
        let entries: Vec<Vec<Entry<'_>>> = request
            .descriptors
            .iter()
            .map(|descriptor| descriptor.entries.iter().map(|one| self.renamed(one)).collect())
            .collect();
        let pairs = request.descriptors.iter().zip(&entries);
        let descriptors: Vec<Descriptor<'_>> =
            pairs.map(|(descriptor, entries)| Descriptor { entries, ..*descriptor }).collect();
        self.check(&Request { descriptors: &descriptors, ..*request }, call)
    }

    /// An entry with the id that this side has for its lease.
    fn renamed<'e>(&'e self, entry: &Entry<'e>) -> Entry<'e> {
        match self.leases.own(entry.value) {
            Some(own) if entry.key == LEASE_KEY => Entry { key: entry.key, value: own },
            _ => *entry,
        }
    }

    /// Adds a verdict to those of its batch.
    fn record(
        &mut self,
        batch: &CallBatch,
        call: &BatchCall,
        mut verdict: Verdict,
        verdicts: &mut SideVerdicts,
    ) {
        if let Some(rollback) = verdict.rollback.take() {
            // The recorded caller has received the response, so it owns the lease.
            rollback.commit();
            match (batch.lease(call), lease_id(&verdict)) {
                (Some(recorded), Some(own)) => self.leases.add(recorded, own),
                _ => self.totals.leases_without_end += 1,
            }
        }
        verdicts.calls.push(verdict.code == Code::OverLimit);
        for status in &verdict.statuses {
            let denied = status.code == Code::OverLimit;
            let row = self.rows.row(&status.reason);
            verdicts.descriptors.push(DescriptorVerdict { row, denied });
            if matches!(status.reason, DecisionReason::Fallback { .. }) {
                self.totals.fallbacks += 1;
            }
        }
        // A verdict has one status per descriptor. The numbers of later ones depend on that.
        let passed = DescriptorVerdict { row: NO_RULE, denied: false };
        verdicts.descriptors.resize(call.descriptors().end, passed);
    }

    /// What happened to the counters so far.
    pub(super) fn totals(&self) -> CounterTotals {
        let memory = self.limiter.memory().map(MemoryStore::snapshot);
        let evicted = memory.map_or(0, |memory| memory.evicted);
        CounterTotals { evicted, ..self.totals }
    }
}

/// The id of the lease that a request opened.
fn lease_id(verdict: &Verdict) -> Option<&str> {
    verdict.metadata.as_ref()?.get("lease")?.get("id")?.as_str()
}
