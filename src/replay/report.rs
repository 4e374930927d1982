//! The report of a replay: the calls that each rule set denies, by rule and by descriptor.

use serde::Serialize;

use super::call_reader::LineTotals;
use super::differences::{DescriptorDifference, Difference};

/// What two rule sets decided about one recording.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReplayReport {
    /// All calls.
    pub calls: CallTotals,
    /// The recorded codes, compared with those of the old rules.
    pub recorded: RecordedTotals,
    /// The instant of the first call, in microseconds since 1970; `None` without calls.
    pub first_at: Option<u64>,
    /// The instant of the last call.
    pub last_at: Option<u64>,
    /// The lines of the recording.
    pub lines: LineTotals,
    /// The counters of the old rules.
    pub old_counters: CounterTotals,
    /// The counters of the new rules.
    pub new_counters: CounterTotals,
    /// The number of rules that decided a descriptor.
    pub rules_used: usize,
    /// The rules whose denials differ most, then those that deny most.
    pub rules: Vec<RuleReport>,
    /// The number of descriptors that differ and are counted one by one.
    pub descriptors_tracked: usize,
    /// The descriptors whose denials differ most.
    pub descriptors: Vec<DescriptorDifference>,
    /// The sum of the differences of all descriptors that are not counted one by one.
    pub descriptors_untracked: Difference,
}

/// How many calls each rule set denied. A call counts with the hits of all its descriptors, without
/// those that it gives back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CallTotals {
    /// Calls that were decided.
    pub replayed: u64,
    /// Their hits.
    pub hits: u64,
    /// Calls that the old rules deny.
    pub denied_by_old: u64,
    /// Calls that the new rules deny.
    pub denied_by_new: u64,
    /// Calls that both deny.
    pub denied_by_both: u64,
    /// Hits of the calls that the old rules deny.
    pub denied_hits_by_old: u64,
    /// Hits of the calls that the new rules deny.
    pub denied_hits_by_new: u64,
    /// Calls that only one of them denies.
    #[serde(flatten)]
    pub difference: Difference,
}

/// The recorded codes beside those of the old rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RecordedTotals {
    /// Calls with a recorded code.
    pub calls: u64,
    /// Those of them that only the old rules deny.
    pub denied_by_old_only: u64,
    /// Those of them that were denied when they were recorded, and that the old rules pass.
    pub denied_in_recording_only: u64,
    /// Descriptors with a recorded code.
    pub descriptors: u64,
    /// Those of them that the old rules decide differently.
    pub descriptors_different: u64,
}

/// What happened to the counters of one rule set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CounterTotals {
    /// Counters that were evicted, because there were more than `store.max_counters`. Their hits are
    /// lost.
    pub evicted: u64,
    /// Descriptors that the fallback decided, because no counter could be evicted.
    pub fallbacks: u64,
    /// Leases that the recording does not close, because it did not open them. They expire.
    pub leases_without_end: u64,
}

/// The denials of one rule. Rules of both rule sets with one domain and name are one rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RuleReport {
    /// The domain; empty for descriptors without a rule.
    pub domain: String,
    /// The rule name.
    pub rule: String,
    /// What the rule denies by one rule set only. A descriptor counts for the rule that denies it.
    #[serde(flatten)]
    pub difference: Difference,
    /// What the rule decides by the old rules.
    pub old: RuleTotals,
    /// What the rule decides by the new rules.
    pub new: RuleTotals,
}

/// What one rule of one rule set decided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RuleTotals {
    /// Descriptors that it decided.
    pub descriptors: u64,
    /// Their hits.
    pub hits: u64,
    /// Descriptors that it denied.
    pub denied: u64,
    /// Hits of those that it denied.
    pub denied_hits: u64,
}

impl RuleTotals {
    /// Adds a descriptor with `hits`.
    pub(super) fn add(&mut self, denied: bool, hits: u64) {
        self.descriptors += 1;
        self.hits = self.hits.saturating_add(hits);
        if denied {
            self.denied += 1;
            self.denied_hits = self.denied_hits.saturating_add(hits);
        }
    }
}
