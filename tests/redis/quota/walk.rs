//! Random settlements of one quota that favour edge cases, with what Rust makes of each.

use std::fmt;

use weir::limit::{HITS_END, WINDOW_MAX};
use weir::quota::{
    Change, HELD_MAX, HolderId, Ledger, LedgerSnapshot, SHARE_MAX, SHARES, Settlement,
};
use weir::time::Micros;

use crate::agreement::Rng;

/// A settlement, and the holdings after it.
pub(crate) struct Settled {
    pub(crate) settlement: Settlement,
    pub(crate) snapshot: LedgerSnapshot,
    /// Whether it changes nothing, so that the script must not write.
    pub(crate) reads_only: bool,
}

impl fmt::Display for Settled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Settlement { now, requests, window, grace, changes } = &self.settlement;
        write!(f, "at {} {requests}/{}us grace {}", now.0, window.0, grace.0)?;
        for change in changes {
            let Change { holder, share, held, want, expires } = change;
            write!(f, " | {:x?} {share} held {held} want {want} till {}", holder.0, expires.0)?;
        }
        Ok(())
    }
}

/// Limits that walks change between: equal rates of other windows, rates that are no multiple of each
/// other, no rate, and the largest and the smallest.
const RATES: [(u64, u64); 10] = [
    (1_000, 1_000_000),
    (500, 1_000_000),
    (1_000, 2_000_000),
    (2_000, 2_000_000),
    (3, 1_000_000),
    (7, 3_000_000),
    (0, 1_000_000),
    (5, 0),
    (HITS_END - 1, 1),
    (1, WINDOW_MAX.0),
];

/// Holders of one quota. Half of an id alone does not tell them apart.
const HOLDERS: [HolderId; 7] = [
    HolderId([0, 0]),
    HolderId([0, 1]),
    HolderId([1, 0]),
    HolderId([1, u64::MAX]),
    HolderId([1 << 63, 5]),
    HolderId([u64::MAX, 0]),
    HolderId([u64::MAX, u64::MAX]),
];

/// About forty settlements of one quota.
pub(crate) fn walk(rng: &mut Rng) -> Vec<Settled> {
    let mut ledger = Ledger::default();
    let mut now = rng.pick(&[1, 99, 1_785_000_000_000_000, (1 << 52) - 7]);
    let mut rate = rng.pick(&RATES);
    let (changes_max, steady) = (rng.pick(&[2, 3, 6]), rng.below(3) == 0);
    let mut last = LedgerSnapshot::default();
    let length = 20 + rng.below(40);
    let settled = (0..length).map(|index| {
        let before = (now, rate);
        if !steady && rng.below(6) == 0 {
            let any = (1 + rng.of_any_size(HITS_END - 1), 1 + rng.of_any_size(WINDOW_MAX.0));
            rate = if rng.below(3) == 0 { any } else { rng.pick(&RATES) };
        }
        now = later(now, &last, rng);
        let changes: Vec<Change> =
            (0..rng.below(changes_max)).map(|_| change(now, &last, rng)).collect();
        let reads_only = index > 0 && changes.is_empty() && before == (now, rate);
        let (requests, window) = (rate.0, Micros(rate.1));
        let grace = Micros(rng.pick(&[500_000, 500_000, 0, 1]));
        let settlement = Settlement { now: Micros(now), requests, window, grace, changes };
        last = ledger.settle(&settlement);
        Settled { settlement, snapshot: last.clone(), reads_only }
    });
    settled.collect()
}

/// The same instant, a later one, an earlier one, or one about which a holding changes.
fn later(now: u64, last: &LedgerSnapshot, rng: &mut Rng) -> u64 {
    match rng.below(10) {
        0..5 => now,
        5..7 => now + rng.of_any_size(600_000),
        7 => now + rng.of_any_size(20_000_000),
        8 => now - rng.of_any_size(1_000_000).min(now),
        _ if last.holdings.is_empty() => now,
        _ => {
            let (_, holding) = last.holdings[rng.below(last.holdings.len() as u64) as usize];
            let near = rng.pick(&[holding.old_until, holding.expires]).0.max(1);
            near - 1 + rng.below(3)
        }
    }
}

fn change(now: u64, last: &LedgerSnapshot, rng: &mut Rng) -> Change {
    let holder = rng.pick(&HOLDERS);
    let (known, free) = (last.get(holder).copied(), last.free(Micros(now)));
    let own = known.map_or(rng.of_any_size(SHARES), |known| known.share.max(known.old_share));
    let any = [rng.of_any_size(SHARES), rng.of_any_size(SHARE_MAX)];
    let share =
        rng.pick(&[0, SHARES, SHARES / 3, any[0], any[1], own, own + 1, own + free, HELD_MAX]);
    let held = rng.pick(&[0, 0, any[0], any[1], free, free + 1]);
    let after = known.map_or(Micros(now), |known| known.expires);
    let later = now + rng.of_any_size(15_000_000);
    let expires = rng.pick(&[now, now + 1, later, now + 13_000_000, after.0, after.0 + 1]);
    let want = rng.of_any_size(SHARE_MAX + 1);
    Change { holder, share, held, want, expires: Micros(expires) }
}
