//! The target of every holder: its part of the quota by the wants of all.

use std::collections::BTreeMap;

use super::super::division::{ClientHolders, HEAD_ROOM_PERCENT, Want, divide, equal_part};
use super::super::ledger::HolderId;
use super::super::share::{SHARE_MAX, SHARES};

/// What holders without demand keep together, as a divisor of [`SHARES`]: 1 %, of which each client has an
/// equal part. They need it until their first report of a demand.
const IDLE_PARTS: u64 = 100;

/// The wants in percent of the demands if not all of them fit. Head room that a holder does not use is
/// lost for the others then, so it is smaller than [`HEAD_ROOM_PERCENT`], and most of the quota is used.
const SCARCE_PERCENT: u64 = 103;

/// The most that is kept for holders which appear, as a divisor of [`SHARES`]: 10 %.
const RESERVE_PARTS: u64 = 10;

/// The least burst of a quota with a reserve. The reserve takes at least one token of it.
pub(super) const RESERVE_BURST_MIN: u64 = RESERVE_PARTS;

/// The division of a quota.
///
/// A holder is silent when its stream ended or its report is overdue. It uses its share until it expires,
/// and no change reaches it. So its share is a part of what its client gets, and the other holders of the
/// client divide the rest of that. If the client has no other holder, all others divide what is left.
///
/// An Envoy without a name that starts again and again is another holder each time. If each had a fair part
/// until it expires, what its client gets would soon be theirs. So while a recent holder of a client is
/// silent, no want raises another recent one of the client above the part of a holder without demand. What
/// exceeds all wants is still spread evenly. An Envoy that ran for longer and starts again limits no other.
#[derive(Debug, Default)]
pub(super) struct Division {
    /// By client.
    silent: BTreeMap<u64, SilentUse>,
    /// The holders that report, with their wants and present shares.
    holders: Vec<(HolderId, Want, u64)>,
}

/// The silent holders of one client.
#[derive(Clone, Copy, Debug, Default)]
struct SilentUse {
    used: u64,
    /// Whether one of them is a recent one with a share.
    recent: bool,
}

impl Division {
    /// Adds what a silent holder uses.
    pub(super) fn add_silent(&mut self, holder: HolderId, want: Want, used: u64) {
        if used > 0 {
            let silent = self.silent.entry(holder.client()).or_default();
            silent.used = silent.used.saturating_add(used);
            silent.recent |= want.is_recent();
        }
    }

    /// Adds a holder that reports.
    pub(super) fn add(&mut self, holder: HolderId, want: Want, share: u64) {
        self.holders.push((holder, want, share));
    }

    /// Whether the present shares exceed the quota together.
    pub(super) fn is_over(&self) -> bool {
        let shares = self.holders.iter().map(|(_, _, share)| *share);
        let silent = self.silent.values().map(|silent| silent.used);
        shares.chain(silent).fold(0, u64::saturating_add) > SHARES
    }

    /// The target of every holder that reports, ordered by holder, and the reserve for those that appear.
    /// Every instance with the same snapshot calculates the same targets. Their sum is at most [`SHARES`] minus
    /// the silent shares and the reserve.
    ///
    /// What exceeds all wants is the reserve first, if the quota `has_reserve`, and the rest of it is spread
    /// evenly. So a new holder has a share at once, although the others have to be lowered first for the rest
    /// of its part. A quota that is wanted as a whole has no reserve.
    pub(super) fn targets(mut self, has_reserve: bool) -> Targets {
        // The holders of a client follow one another.
        self.holders.sort_unstable_by_key(|(holder, _, _)| *holder);
        self.holders.dedup_by_key(|(holder, _, _)| *holder);
        let of_clients = self.holders.chunk_by(|a, b| a.0.client() == b.0.client());
        let (mut clients, mut recent_is_silent) = (Vec::new(), Vec::new());
        for holders in of_clients.clone() {
            let silent = self.silent.remove(&holders[0].0.client()).unwrap_or_default();
            clients.push(ClientHolders { silent: silent.used, holders: holders.len() });
            recent_is_silent.push(silent.recent);
        }
        let silent = |silent: u64, of: u64| silent.saturating_add(of);
        let of_others = self.silent.values().map(|of| of.used).fold(0, silent);
        let total = SHARES.saturating_sub(of_others);
        let rest = total.saturating_sub(clients.iter().map(|of| of.silent).fold(0, silent));
        let equal = equal_part(total, &clients);
        let idle_part = SHARES / IDLE_PARTS / (clients.len() as u64).max(1);
        let wants = |percent| -> Vec<u64> {
            let of_clients = of_clients.clone().zip(clients.iter().zip(&recent_is_silent));
            let wants = of_clients.flat_map(|(holders, (client, recent_is_silent))| {
                let count = holders.len() as u64;
                let (fair, floor) =
                    (equal.saturating_sub(client.silent) / count, idle_part / count);
                holders.iter().map(move |(_, want, share)| {
                    let wanted = match want {
                        Want::Fair => fair,
                        Want::Recent(share) | Want::Share(share) => {
                            scaled(*share, percent, HEAD_ROOM_PERCENT)
                        }
                    };
                    let limited = *recent_is_silent && want.is_recent();
                    let most = if limited { floor.max(*share) } else { SHARE_MAX };
                    wanted.max(floor).min(most)
                })
            });
            wants.collect()
        };
        let generous = wants(HEAD_ROOM_PERCENT);
        let sum = generous.iter().fold(0, |sum: u64, want| sum.saturating_add(*want));
        let wants = if sum > rest { wants(SCARCE_PERCENT) } else { generous };
        let surplus = rest.saturating_sub(sum);
        let reserve = if has_reserve { surplus.min(SHARES / RESERVE_PARTS) } else { 0 };
        let parts = divide(total.saturating_sub(reserve), &clients, &wants);
        let holders = self.holders.iter().zip(parts);
        let holders = holders.map(|((holder, _, from), to)| HolderTarget {
            holder: *holder,
            from: *from,
            to,
        });
        Targets { holders: holders.collect(), reserve }
    }
}

/// A division.
#[derive(Debug)]
pub(super) struct Targets {
    /// Ordered by holder.
    pub(super) holders: Vec<HolderTarget>,
    /// What only holders without a share are raised by.
    pub(super) reserve: u64,
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

/// `share * up / down`, rounded down; saturates.
fn scaled(share: u64, up: u64, down: u64) -> u64 {
    let quotient = u128::from(share) * u128::from(up) / u128::from(down.max(1));
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
