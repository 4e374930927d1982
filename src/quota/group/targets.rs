//! The target of every holder: its part of the quota by the wants of all.

use super::super::division::{HEAD_ROOM_PERCENT, Want, divide};
use super::super::ledger::HolderId;
use super::super::share::{SHARE_MAX, SHARES};

/// What holders without demand keep together, as a divisor of [`SHARES`]: 1 %. They need it until their
/// first report of a demand.
const IDLE_PARTS: u64 = 100;

/// The wants in percent of the demands if not all of them fit. Head room that a holder does not use is
/// lost for the others then, so it is smaller than [`HEAD_ROOM_PERCENT`], and most of the quota is used.
const SCARCE_PERCENT: u64 = 103;

/// The division of what silent holders leave.
///
/// A holder is silent when its stream ended or its report is overdue. It uses its share until it expires,
/// and no change reaches it, so the others divide the rest.
///
/// An Envoy without a name that starts again and again is another holder each time. If each had a fair part
/// until it expires, the quota would soon be theirs. So while a recent holder is silent, no want raises
/// another recent one above the part of a holder without demand. What exceeds all wants is still spread
/// evenly. An Envoy that ran for longer and starts again limits no other.
#[derive(Debug, Default)]
pub(super) struct Division {
    silent: u64,
    /// Whether a silent holder is a recent one with a share.
    recent_is_silent: bool,
    /// The holders that report, with their wants and present shares.
    holders: Vec<(HolderId, Want, u64)>,
}

impl Division {
    /// Adds what a silent holder uses.
    pub(super) fn add_silent(&mut self, want: Want, used: u64) {
        self.silent = self.silent.saturating_add(used);
        self.recent_is_silent |= want.is_recent() && used > 0;
    }

    /// Adds a holder that reports.
    pub(super) fn add(&mut self, holder: HolderId, want: Want, share: u64) {
        self.holders.push((holder, want, share));
    }

    /// Whether the present shares exceed the quota together.
    pub(super) fn is_over(&self) -> bool {
        let shares = self.holders.iter().map(|(_, _, share)| *share);
        shares.fold(self.silent, u64::saturating_add) > SHARES
    }

    /// The target of every holder that reports, ordered by holder. Every instance with the same snapshot
    /// calculates the same targets, and their sum is at most [`SHARES`] minus the silent shares.
    pub(super) fn targets(mut self) -> Vec<HolderTarget> {
        self.holders.sort_unstable_by_key(|(holder, _, _)| *holder);
        self.holders.dedup_by_key(|(holder, _, _)| *holder);
        let count = (self.holders.len() as u64).max(1);
        let rest = SHARES.saturating_sub(self.silent);
        let floor = SHARES / IDLE_PARTS / count;
        let (fair, fair_of_rest) = (SHARES / count, rest / count);
        let most = |want: &Want, share: u64| {
            if self.recent_is_silent && want.is_recent() { floor.max(share) } else { SHARE_MAX }
        };
        let of_rest = |want: &Want, share: u64, percent: u64| {
            let most = most(want, share);
            let wanted = match want {
                Want::Fair if most >= fair_of_rest => return Want::Fair,
                Want::Fair => fair_of_rest,
                Want::Recent(share) | Want::Share(share) => {
                    scaled(*share, percent, HEAD_ROOM_PERCENT).max(floor)
                }
            };
            Want::Share(scaled(wanted.min(most), SHARES, rest).min(SHARE_MAX - 1))
        };
        let wants = |percent| -> Vec<Want> {
            self.holders.iter().map(|(_, want, share)| of_rest(want, *share, percent)).collect()
        };
        let generous = wants(HEAD_ROOM_PERCENT);
        let sum = generous.iter().fold(0_u64, |sum, want| match want {
            Want::Fair => sum.saturating_add(fair),
            Want::Recent(share) | Want::Share(share) => sum.saturating_add(*share),
        });
        let wants = if sum > SHARES { wants(SCARCE_PERCENT) } else { generous };
        let targets = divide(&wants).into_iter().map(|share| scaled(share, rest, SHARES));
        let holders = self.holders.iter().zip(targets);
        holders
            .map(|((holder, _, from), to)| HolderTarget { holder: *holder, from: *from, to })
            .collect()
    }
}

/// What a holder should have.
#[derive(Clone, Copy, Debug)]
pub(super) struct HolderTarget {
    pub(super) holder: HolderId,
    /// The present share.
    from: u64,
    pub(super) to: u64,
}

/// The sum of all significant raises, also of holders of other instances.
pub(super) fn wanted_raises(targets: &[HolderTarget]) -> u64 {
    let raises = targets.iter().filter(|target| is_significant(target.from, target.to, false));
    raises.fold(0, |sum, target| sum.saturating_add(target.to.saturating_sub(target.from)))
}

/// Whether a holder has so much too much that it is lowered while others wait for room. Without a report
/// to answer this is more than 1 %: with [`SCARCE_PERCENT`], at most 4 % of the quota are unused then. The
/// answer to a report is sent anyway, so it lowers any excess: a new holder among 200 equal ones needs
/// less than 1 % of the share of each.
pub(super) fn leaves_room(from: u64, to: u64, answers_report: bool) -> bool {
    let kept = if answers_report { 0 } else { from / 100 };
    from.saturating_sub(to) > kept
}

/// `share * up / down`, rounded down; saturates, also for a `down` of 0.
fn scaled(share: u64, up: u64, down: u64) -> u64 {
    let product = u128::from(share) * u128::from(up);
    let quotient = product.checked_div(u128::from(down)).unwrap_or(u128::MAX);
    u64::try_from(quotient).unwrap_or(u64::MAX)
}

/// Whether a change of a share is worth a message: more than 2 % of the quota or 4 % of the share, and any
/// change from or to 0. Two holders with equal demand differ by less than 10 % then. A report is answered
/// anyway, so its answer contains smaller changes too.
pub(super) fn is_significant(from: u64, to: u64, answers_report: bool) -> bool {
    if from == 0 || to == 0 {
        return from != to;
    }
    let larger = from.max(to);
    let part = if answers_report { larger / 200 } else { larger / 25 };
    from.abs_diff(to) > part.min(SHARES / 50)
}
