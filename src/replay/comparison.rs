//! Compares the verdicts of two rule sets, and adds the differences up.

use super::call_batch::{BatchCall, CallBatch};
use super::differences::{DescriptorDifferences, Difference};
use super::report::{CallTotals, RecordedTotals, RuleReport, RuleTotals};
use super::rule_rows::RuleRows;
use super::side::{DescriptorVerdict, SideVerdicts};
use crate::decision::Code;
use crate::rules::descriptor_selector;

/// The sums of all batches so far.
pub(super) struct Comparison {
    calls: CallTotals,
    recorded: RecordedTotals,
    rules: Vec<RowTotals>,
    descriptors: DescriptorDifferences,
}

/// The sums of one row.
#[derive(Clone, Copy, Default)]
struct RowTotals {
    old: RuleTotals,
    new: RuleTotals,
    difference: Difference,
}

impl Comparison {
    /// No calls, for rules with this number of rows.
    pub(super) fn new(rows: usize) -> Comparison {
        Comparison {
            calls: CallTotals::default(),
            recorded: RecordedTotals::default(),
            rules: vec![RowTotals::default(); rows],
            descriptors: DescriptorDifferences::default(),
        }
    }

    /// Adds the verdicts of both rule sets about `batch`.
    pub(super) fn add(&mut self, batch: &CallBatch, old: &SideVerdicts, new: &SideVerdicts) {
        let verdicts = old.calls.iter().zip(&new.calls);
        for (call, (&denied_by_old, &denied_by_new)) in batch.calls().iter().zip(verdicts) {
            let mut hits = 0_u64;
            for index in call.descriptors() {
                let taken = batch.taken_hits(call, index);
                hits = hits.saturating_add(taken);
                let verdicts = (old.descriptors[index], new.descriptors[index]);
                self.add_descriptor(batch, call, index, taken, verdicts);
            }
            self.add_call(call, hits, denied_by_old, denied_by_new);
        }
    }

    fn add_call(&mut self, call: &BatchCall, hits: u64, denied_by_old: bool, denied_by_new: bool) {
        let totals = &mut self.calls;
        totals.replayed += 1;
        totals.hits = totals.hits.saturating_add(hits);
        if denied_by_old {
            totals.denied_by_old += 1;
            totals.denied_hits_by_old = totals.denied_hits_by_old.saturating_add(hits);
        }
        if denied_by_new {
            totals.denied_by_new += 1;
            totals.denied_hits_by_new = totals.denied_hits_by_new.saturating_add(hits);
        }
        totals.denied_by_both += u64::from(denied_by_old && denied_by_new);
        if denied_by_old != denied_by_new {
            totals.difference.add(denied_by_new, hits);
        }
        if let Some(code) = call.recorded {
            self.recorded.calls += 1;
            match (denied_by_old, code == Code::OverLimit) {
                (true, false) => self.recorded.denied_by_old_only += 1,
                (false, true) => self.recorded.denied_in_recording_only += 1,
                _ => {}
            }
        }
    }

    fn add_descriptor(
        &mut self,
        batch: &CallBatch,
        call: &BatchCall,
        index: usize,
        hits: u64,
        (old, new): (DescriptorVerdict, DescriptorVerdict),
    ) {
        self.rules[old.row as usize].old.add(old.denied, hits);
        self.rules[new.row as usize].new.add(new.denied, hits);
        if old.denied != new.denied {
            let row = if new.denied { new.row } else { old.row };
            self.rules[row as usize].difference.add(new.denied, hits);
            let text = descriptor_selector(&batch.entries_of(index));
            self.descriptors.add(batch.domain(call), &text, new.denied, hits);
        }
        if let Some(code) = batch.recorded_code(index) {
            self.recorded.descriptors += 1;
            let is_different = old.denied != (code == Code::OverLimit);
            self.recorded.descriptors_different += u64::from(is_different);
        }
    }

    /// All calls.
    pub(super) fn calls(&self) -> CallTotals {
        self.calls
    }

    /// The recorded codes.
    pub(super) fn recorded(&self) -> RecordedTotals {
        self.recorded
    }

    /// The differences by descriptor.
    pub(super) fn descriptors(&self) -> &DescriptorDifferences {
        &self.descriptors
    }

    /// The rules that decided a descriptor: those whose denials differ most first, then those that deny
    /// most.
    pub(super) fn rules(&self, rows: &RuleRows) -> Vec<RuleReport> {
        let named = rows.names().iter().zip(&self.rules);
        let used = named.filter(|(_, row)| row.old.descriptors + row.new.descriptors > 0);
        let mut rules: Vec<RuleReport> = used
            .map(|(name, row)| RuleReport {
                domain: name.domain.to_string(),
                rule: name.rule.to_string(),
                difference: row.difference,
                old: row.old,
                new: row.new,
            })
            .collect();
        let weight =
            |rule: &RuleReport| (rule.difference.times(), rule.old.denied + rule.new.denied);
        rules.sort_by(|a, b| {
            let most_first = weight(b).cmp(&weight(a));
            most_first.then_with(|| (&a.domain, &a.rule).cmp(&(&b.domain, &b.rule)))
        });
        rules
    }
}
