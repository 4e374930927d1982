//! The series of the active rules, by which their activity is read.

use super::active_rules::RuleSnapshot;
use crate::telemetry::ActiveSeries;

/// The series of a rule set.
pub(super) fn series(active: &RuleSnapshot) -> ActiveSeries<'_> {
    ActiveSeries { version: active.version, metrics: &active.metrics }
}
