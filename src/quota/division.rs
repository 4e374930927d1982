//! The division of a quota by the wants of its holders.

use super::share::{SHARE_MAX, SHARES};

/// A want in percent of the demand. The head room lets a holder grow until its next report. Where
/// other holders want more than they get, it remains unused, so it is small.
pub const HEAD_ROOM_PERCENT: u64 = 110;

/// The least want of a holder with a known demand. It is one share, because the number of holders is not
/// known here: 2 % for each of 50 idle holders would be the whole quota.
pub const WANT_MIN: u64 = 1;

/// What a holder could use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// Unknown demand: as much as the quota divided by the number of holders.
    Fair,
    /// The same as [`Want::Share`], of a holder that appeared a short time ago. Never 0.
    Recent(u64),
    /// A share with head room, below [`SHARE_MAX`].
    Share(u64),
}

impl Want {
    /// The number that a [`Holding`](super::Holding) stores: the share, [`SHARE_MAX`] for [`Want::Fair`],
    /// and their sum for [`Want::Recent`]. It is below 2^53, so a Lua number represents it.
    pub fn number(self) -> u64 {
        match self {
            Want::Fair => SHARE_MAX,
            Want::Recent(share) => SHARE_MAX + share.clamp(WANT_MIN, SHARE_MAX - 1),
            Want::Share(share) => share.min(SHARE_MAX - 1),
        }
    }

    /// The want with this number. No want has a number from 2 · [`SHARE_MAX`] on; it is [`Want::Fair`].
    pub fn from_number(number: u64) -> Want {
        match number.checked_sub(SHARE_MAX) {
            None => Want::Share(number),
            Some(share @ WANT_MIN..SHARE_MAX) => Want::Recent(share),
            Some(_) => Want::Fair,
        }
    }

    /// Whether the holder may have appeared a short time ago.
    pub fn is_recent(self) -> bool {
        !matches!(self, Want::Share(_))
    }
}

/// The want of a holder that used or asked for the share `demand`: [`HEAD_ROOM_PERCENT`] of it, at
/// least [`WANT_MIN`].
pub fn want_of(demand: u64) -> Want {
    // Below 2^59.
    let share = demand.min(SHARE_MAX) * HEAD_ROOM_PERCENT / 100;
    Want::Share(share.clamp(WANT_MIN, SHARE_MAX - 1))
}

/// The shares of holders with these wants, in their order, by max-min fairness: a holder gets less
/// than its want only if no holder gets more than it, apart from the rounding rest.
///
/// What exceeds all wants is spread evenly. The sum is exactly [`SHARES`] unless there is no holder.
/// A larger want never gets less. The rounding rest, one share each, goes to the largest wants, and
/// among equal wants to the last ones.
pub fn divide(wants: &[Want]) -> Vec<u64> {
    let holders = wants.len() as u64;
    let fair = SHARES.checked_div(holders).unwrap_or(0);
    let mut by_want: Vec<(u64, usize)> = wants
        .iter()
        .enumerate()
        .map(|(index, want)| match want {
            Want::Fair => (fair, index),
            Want::Recent(share) | Want::Share(share) => (*share, index),
        })
        .collect();
    by_want.sort_unstable();
    let mut shares = vec![0; wants.len()];
    let mut rest = SHARES;
    // Each want takes at most an equal part of what the smaller wants left.
    for ((want, index), left) in by_want.iter().zip((1..=holders).rev()) {
        let share = (*want).min(rest / left);
        shares[*index] = share;
        rest -= share;
    }
    for ((_, index), left) in by_want.iter().zip((1..=holders).rev()) {
        let extra = rest / left;
        shares[*index] += extra;
        rest -= extra;
    }
    shares
}

#[cfg(test)]
mod tests;
