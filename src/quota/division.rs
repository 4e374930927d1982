//! The division of a quota by the wants of its holders.

use super::fair_parts::{PartClaim, fair_parts};
use super::share::SHARE_MAX;

/// A want in percent of the demand. The head room lets a holder grow until its next report. Where
/// other holders want more than they get, it remains unused, so it is small.
pub const HEAD_ROOM_PERCENT: u64 = 110;

/// The least want of a holder with a known demand. It is one share, because the number of holders is not
/// known here: 2 % for each of 50 idle holders would be the whole quota.
pub const WANT_MIN: u64 = 1;

/// What a holder could use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// Unknown demand: as much as the holder would get if all wanted everything.
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

/// The holders of one client, as [`divide`] needs them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientHolders {
    /// What its silent holders use, which no change reaches.
    pub silent: u64,
    /// The number of its other holders. At least 1.
    pub holders: usize,
}

/// The shares of holders, by max-min fairness among their clients, and among the holders of each client.
///
/// `wants` has what the holders could use, first those of the first client. `total` is divided with the
/// shares of silent holders, which are a part of what their client gets. All holders of one client have
/// together no more than one that wants as much, also if each was there for a short time only. What exceeds
/// all wants is spread evenly among the clients, and then among the holders of each.
///
/// The sum is exactly `total` without the silent shares, unless there is no client, or they are more. With
/// one client, or one holder for each, this is [`fair_parts`] of the holders.
pub fn divide(total: u64, clients: &[ClientHolders], wants: &[u64]) -> Vec<u64> {
    let mut behind = wants.iter();
    let claims: Vec<PartClaim> = clients
        .iter()
        .map(|client| {
            let own = behind.by_ref().take(client.holders);
            let want = own.fold(client.silent, |sum, want| sum.saturating_add(*want));
            PartClaim { held: client.silent, want }
        })
        .collect();
    let mut shares = Vec::with_capacity(wants.len());
    let mut behind = wants.iter();
    for (client, part) in clients.iter().zip(fair_parts(total, &claims)) {
        let part = part - client.silent;
        let own = behind.by_ref().take(client.holders);
        let claims: Vec<PartClaim> = own.map(|want| PartClaim { held: 0, want: *want }).collect();
        shares.extend(fair_parts(part, &claims));
    }
    shares
}

/// What each client would get with its silent shares, if all wanted everything. A client whose silent shares
/// are more has those instead.
pub fn equal_part(total: u64, clients: &[ClientHolders]) -> u64 {
    let claim = |client: &ClientHolders| PartClaim { held: client.silent, want: u64::MAX };
    let claims: Vec<PartClaim> = clients.iter().map(claim).collect();
    let parts = fair_parts(total, &claims).into_iter().zip(clients);
    // The others have one more, by the rounding rest.
    parts.filter(|(part, client)| *part > client.silent).map(|(part, _)| part).min().unwrap_or(0)
}

#[cfg(test)]
mod tests;
