//! The target of every holder: its part of the quota by the wants of all.

use super::super::division::{Want, divide};
use super::super::ledger::HolderId;
use super::super::share::{SHARE_MAX, SHARES};

/// What holders without demand keep together, as a divisor of [`SHARES`]: 2 %. They need it until their
/// first report of a demand.
const IDLE_PARTS: u64 = 50;

/// The division of what silent holders leave.
///
/// A holder is silent when its stream ended or its report is overdue. It uses its share until it expires,
/// and no change reaches it, so the others divide the rest.
#[derive(Debug, Default)]
pub(super) struct Division {
    silent: u64,
    wants: Vec<(HolderId, Want)>,
}

impl Division {
    /// Adds what a silent holder uses.
    pub(super) fn add_silent(&mut self, used: u64) {
        self.silent = self.silent.saturating_add(used);
    }

    /// Adds a holder that reports.
    pub(super) fn add(&mut self, holder: HolderId, want: Want) {
        self.wants.push((holder, want));
    }

    /// The target of every holder that reports, ordered by holder. Every instance with the same snapshot
    /// calculates the same targets, and their sum is at most [`SHARES`] minus the silent shares.
    pub(super) fn targets(mut self) -> Vec<(HolderId, u64)> {
        self.wants.sort_unstable_by_key(|(holder, _)| *holder);
        self.wants.dedup_by_key(|(holder, _)| *holder);
        let rest = SHARES.saturating_sub(self.silent);
        let floor = SHARES / IDLE_PARTS / (self.wants.len() as u64).max(1);
        let of_rest = |share: u64| match scaled(share.max(floor), SHARES, rest) {
            share if share < SHARE_MAX => Want::Share(share),
            _ => Want::Share(SHARE_MAX - 1),
        };
        let wants: Vec<Want> = self
            .wants
            .iter()
            .map(|(_, want)| match want {
                Want::Share(share) => of_rest(*share),
                Want::Fair => Want::Fair,
            })
            .collect();
        let targets = divide(&wants).into_iter().map(|share| scaled(share, rest, SHARES));
        self.wants.iter().map(|(holder, _)| *holder).zip(targets).collect()
    }
}

/// `share * up / down`, rounded down; saturates, also for a `down` of 0.
fn scaled(share: u64, up: u64, down: u64) -> u64 {
    let product = u128::from(share) * u128::from(up);
    let quotient = product.checked_div(u128::from(down)).unwrap_or(u128::MAX);
    u64::try_from(quotient).unwrap_or(u64::MAX)
}

/// Whether a change of a share is worth a message: 2 % of the quota or a twentieth of the share, and any
/// change from or to 0. A report is answered anyway, so its answer contains smaller changes too.
pub(super) fn is_significant(from: u64, to: u64, answers_report: bool) -> bool {
    if from == 0 || to == 0 {
        return from != to;
    }
    let larger = from.max(to);
    let part = if answers_report { larger / 200 } else { larger / 20 };
    from.abs_diff(to) > part.min(SHARES / 50)
}
