//! Metrics of what-if limits: how many hits each would have denied.

use std::sync::atomic::{AtomicU64, Ordering};

use super::outcomes::add;
use crate::decision::WhatIf;

/// The values of the label `outcome`, in the order of the counts.
pub(super) const OUTCOMES: [&str; 2] = ["within", "over"];

/// Results of the what-if limit of one rule. Hits that were given back have none.
#[derive(Debug, Default)]
pub(super) struct WhatIfMetrics {
    decisions: [AtomicU64; OUTCOMES.len()],
    hits: [AtomicU64; OUTCOMES.len()],
}

/// The counts of [`WhatIfMetrics`] at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct WhatIfSnapshot {
    pub(super) decisions: [u64; OUTCOMES.len()],
    pub(super) hits: [u64; OUTCOMES.len()],
}

impl WhatIfMetrics {
    /// Counts one result.
    pub(super) fn record(&self, result: &WhatIf) {
        if result.hits >= 0 {
            let outcome = usize::from(result.denied);
            add(&self.decisions[outcome], 1);
            add(&self.hits[outcome], result.hits.unsigned_abs());
        }
    }

    /// The sum of `to` and these counts.
    pub(super) fn added_to(&self, mut to: WhatIfSnapshot) -> WhatIfSnapshot {
        for outcome in 0..OUTCOMES.len() {
            to.decisions[outcome] += self.decisions[outcome].load(Ordering::Relaxed);
            to.hits[outcome] += self.hits[outcome].load(Ordering::Relaxed);
        }
        to
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_count_by_outcome_without_refunds() {
        let metrics = WhatIfMetrics::default();
        for (hits, denied) in [(3, false), (0, false), (5, true), (-7, false)] {
            metrics.record(&WhatIf { descriptor: 0, rule: 0, hits, denied });
        }
        let once = metrics.added_to(WhatIfSnapshot::default());
        assert_eq!(once, WhatIfSnapshot { decisions: [2, 1], hits: [3, 5] });
        let twice = metrics.added_to(once);
        assert_eq!(twice, WhatIfSnapshot { decisions: [4, 2], hits: [6, 10] });
    }
}
