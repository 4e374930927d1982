//! What a holder used before this instance started, as its first report shows it.

use super::super::share::{Quota, SHARES};
use crate::time::Micros;

/// Bounds the share of a holder until the assignments from before the start have expired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EarlierUse {
    /// The holder reported no requests: it may have had no share.
    Unknown,
    /// At least this share, if a share allowed the requests. It is above 0.
    Share(u64),
    /// More than the whole quota. No share of it allowed these requests, but something that the Envoy has in
    /// place of a share, or a share of a higher limit before the start.
    OverQuota,
}

impl EarlierUse {
    /// The least share that allows `hits` in `elapsed` with a full token bucket. Envoy rounds `elapsed` down to
    /// seconds, so it counts as a second longer. Two hits do not count: every bucket has at least one token,
    /// and a hit may belong to the time before.
    pub(super) fn of(quota: &Quota, hits: u64, elapsed: Micros) -> EarlierUse {
        let (burst, requests) = (u128::from(quota.burst), u128::from(quota.requests));
        let filled = burst * u128::from(quota.window.0) / requests.max(1);
        let filled = Micros(u64::try_from(filled).unwrap_or(u64::MAX));
        let longest = elapsed.saturating_add(Micros::SECOND).saturating_add(filled);
        match quota.share_of(hits.saturating_sub(2), longest) {
            0 => EarlierUse::Unknown,
            share @ 1..=SHARES => EarlierUse::Share(share),
            _ => EarlierUse::OverQuota,
        }
    }

    /// The largest share of the holder, one of `holders` that report. Others may still use what they had.
    /// How much is unknown if this one had no share, so they count as one more holder.
    pub(super) fn most(self, holders: usize) -> u64 {
        match self {
            EarlierUse::Unknown => 0,
            EarlierUse::Share(share) => share,
            EarlierUse::OverQuota => SHARES / (holders as u64 + 1),
        }
    }

    /// Applies `convert` to the share.
    pub(super) fn convert(self, convert: impl Fn(u64) -> u64) -> EarlierUse {
        match self {
            EarlierUse::Share(share) => EarlierUse::Share(convert(share)),
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_show_the_share_that_allowed_them() {
        let quota = Quota { requests: 100, window: Micros::SECOND, burst: 20 };
        let of = |hits, secs| EarlierUse::of(&quota, hits, Micros::from_secs(secs));
        // 4 s are at most 5 s, and a full bucket is as much as 0.2 s.
        let table = [
            (0, EarlierUse::Unknown),
            (2, EarlierUse::Unknown),
            (262, EarlierUse::Share(SHARES / 2)),
            (522, EarlierUse::Share(SHARES)),
            (523, EarlierUse::OverQuota),
            (u64::MAX, EarlierUse::OverQuota),
        ];
        for (hits, expected) in table {
            assert_eq!(of(hits, 4), expected, "{hits}");
        }
        let none = Quota { requests: 0, ..quota };
        assert_eq!(EarlierUse::of(&none, 3, Micros::SECOND), EarlierUse::OverQuota);
        assert_eq!(
            [1, 2, 9].map(|n| EarlierUse::OverQuota.most(n)),
            [2, 3, 10].map(|n| SHARES / n)
        );
    }
}
