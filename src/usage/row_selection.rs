//! The rows of a page, selected as their counters are read.

use std::cmp::Ordering;

use super::query::UsageOrder;
use super::usage_page::UsageRow;

/// The rows that were selected up to now: at most twice those of the page.
#[derive(Debug)]
pub struct RowSelection {
    order: UsageOrder,
    limit: usize,
    min_used: u64,
    rows: Vec<UsageRow>,
}

impl RowSelection {
    /// Selects at most `limit` rows, of counters with at least `min_used` used hits.
    pub fn new(order: UsageOrder, limit: usize, min_used: u64) -> RowSelection {
        RowSelection { order, limit, min_used, rows: Vec::new() }
    }

    /// Adds a row, if it has enough hits. Not after the selection is full.
    pub fn add(&mut self, row: UsageRow) {
        if row.used() < self.min_used {
            return;
        }
        self.rows.push(row);
        if self.order == UsageOrder::Nearest && self.rows.len() >= 2 * self.limit {
            self.keep_nearest();
        }
    }

    /// Whether no further row has room. Rows nearest their limit always have.
    pub fn is_full(&self) -> bool {
        self.order == UsageOrder::Name && self.rows.len() >= self.limit
    }

    /// The selected rows, in their order.
    pub fn finish(mut self) -> Vec<UsageRow> {
        match self.order {
            UsageOrder::Nearest => self.keep_nearest(),
            UsageOrder::Name => self.rows.sort_by(by_name),
        }
        self.rows
    }

    fn keep_nearest(&mut self) {
        self.rows.sort_by(nearest_first);
        self.rows.truncate(self.limit);
    }
}

/// The fullest counters first, of equal ones those with the most hits.
fn nearest_first(one: &UsageRow, other: &UsageRow) -> Ordering {
    let by_share = other.share.total_cmp(&one.share);
    by_share.then(other.used().cmp(&one.used())).then_with(|| by_name(one, other))
}

fn by_name(one: &UsageRow, other: &UsageRow) -> Ordering {
    one.values.cmp(&other.values).then_with(|| one.counter.cmp(&other.counter))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Rng;
    use crate::usage::UsageTier;

    fn row(name: u64, used: u64) -> UsageRow {
        let tier = UsageTier {
            requests: 100,
            used,
            remaining: 100 - used,
            window_seconds: 1.0,
            reset_after_seconds: 1.0,
        };
        UsageRow {
            values: [("user".to_owned(), format!("{name:04}"))].into(),
            cut: false,
            share: used as f64 / 100.0,
            tiers: vec![tier],
            counter: name.to_string(),
        }
    }

    fn shown(rows: &[UsageRow]) -> Vec<(u64, u64)> {
        rows.iter().map(|row| (row.counter.parse().expect("a number"), row.used())).collect()
    }

    /// Compared with a sort of all rows.
    #[test]
    fn the_nearest_rows_are_selected() {
        let mut rng = Rng::new(3);
        for limit in [1, 7, 100, 5_000] {
            let all: Vec<(u64, u64)> = (0..1_000).map(|name| (name, rng.below(101))).collect();
            let mut selection = RowSelection::new(UsageOrder::Nearest, limit, 20);
            for (name, used) in &all {
                selection.add(row(*name, *used));
                assert!(selection.rows.len() <= 2 * limit && !selection.is_full());
            }
            let mut expected: Vec<(u64, u64)> =
                all.into_iter().filter(|(_, used)| *used >= 20).collect();
            expected.sort_by_key(|(name, used)| (u64::MAX - used, *name));
            expected.truncate(limit);
            assert_eq!(shown(&selection.finish()), expected);
        }
    }

    #[test]
    fn rows_by_name_end_with_the_page() {
        let mut selection = RowSelection::new(UsageOrder::Name, 3, 1);
        for (name, used) in [(9, 1), (4, 0), (2, 50)] {
            selection.add(row(name, used));
            assert!(!selection.is_full());
        }
        selection.add(row(5, 2));
        assert!(selection.is_full());
        assert_eq!(shown(&selection.finish()), [(2, 50), (5, 2), (9, 1)]);
    }
}
