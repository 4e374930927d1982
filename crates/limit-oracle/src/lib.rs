//! Checks a record of allowed requests against a limit, in every window and every interval.
//!
//! Unit tests and black-box tests of weir use it. It shares no code with weir, so that a mistake in
//! weir cannot also be a mistake of the check. All times are microseconds since the epoch.
//!
//! A request counts at an unknown instant from [`Allowed::from`] to [`Allowed::to`]. So only
//! requests whose whole span lies in a window or interval can prove that a limit was exceeded.

/// How a limit counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Law {
    /// At most `requests` in every aligned window.
    FixedWindow,
    /// The weighted sum of this window and the one before is at most `requests`.
    SlidingWindow,
    /// At most `burst + rate * length` in every interval.
    Bucket,
}

/// One tier of a limit.
#[derive(Clone, Copy, Debug)]
pub struct Tier {
    /// Hits per window.
    pub requests: u64,
    /// Length of the window in microseconds.
    pub window: u64,
    /// Hits of a full bucket. Windows ignore it.
    pub burst: u64,
}

/// An allowed request.
#[derive(Clone, Copy, Debug)]
pub struct Allowed {
    /// The cost of the request.
    pub hits: u64,
    /// The earliest instant at which the request may have counted.
    pub from: u64,
    /// The latest instant at which the request may have counted.
    pub to: u64,
}

/// The first violation of a limit, as text. Every tier is checked.
pub fn violation(law: Law, tiers: &[Tier], allowed: &[Allowed]) -> Option<String> {
    let check = match law {
        Law::FixedWindow => fixed_windows,
        Law::SlidingWindow => sliding_window,
        Law::Bucket => intervals,
    };
    tiers.iter().find_map(|tier| check(tier, allowed))
}

/// The first violation of a limit of `requests` in windows of any length. A window is between two
/// consecutive `edges`, which are sorted. Every run of up to three windows is checked.
pub fn violation_between(requests: u64, edges: &[u64], allowed: &[Allowed]) -> Option<String> {
    for (first, start) in edges.iter().enumerate() {
        for (length, end) in (1_u64..=3).zip(&edges[first + 1..]) {
            let within = |one: &&Allowed| one.from >= *start && one.to < *end;
            let hits: u64 = allowed.iter().filter(within).map(|one| one.hits).sum();
            if hits > requests * length {
                return Some(format!("{hits} hits of {requests} from {start} to {end}"));
            }
        }
    }
    None
}

/// Checks every run of up to three windows.
fn fixed_windows(tier: &Tier, allowed: &[Allowed]) -> Option<String> {
    let window = |at: u64| at / tier.window;
    let first = allowed.iter().map(|one| window(one.from)).min()?;
    let last = allowed.iter().map(|one| window(one.to)).max()?;
    for start in first..=last {
        for length in 1..=3 {
            let within =
                |one: &&Allowed| window(one.from) >= start && window(one.to) < start + length;
            let hits: u64 = allowed.iter().filter(within).map(|one| one.hits).sum();
            if hits > tier.requests * length {
                return Some(format!("{hits} hits in {length} windows from {start} of {tier:?}"));
            }
        }
    }
    None
}

/// Checks the formula of the sliding window at every response. The sum contains only requests that
/// certainly counted in the previous window, or in the current one before the response.
fn sliding_window(tier: &Tier, allowed: &[Allowed]) -> Option<String> {
    let length = tier.window;
    for last in allowed {
        let start = last.to - last.to % length;
        let hits = |from: u64, to: u64| -> u128 {
            let within = |one: &&Allowed| one.from >= from && one.to <= to;
            allowed.iter().filter(within).map(|one| u128::from(one.hits)).sum()
        };
        let (previous, current) = (hits(start - length, start - 1), hits(start, last.to));
        let rest = start + length - last.to;
        let used = previous * u128::from(rest) + current * u128::from(length);
        if current > 0 && used > u128::from(tier.requests) * u128::from(length) {
            return Some(format!("{previous} and {current} hits at {last:?}: {tier:?}"));
        }
    }
    None
}

/// Checks every interval that starts with one request and ends with another.
fn intervals(tier: &Tier, allowed: &[Allowed]) -> Option<String> {
    for first in allowed {
        let mut within: Vec<_> = allowed.iter().filter(|one| one.from >= first.from).collect();
        within.sort_by_key(|one| one.to);
        let mut hits = 0;
        for one in within {
            hits += u128::from(one.hits);
            let length = u128::from(one.to.saturating_sub(first.from));
            let burst = u128::from(tier.burst) * u128::from(tier.window);
            if hits * u128::from(tier.window) > burst + length * u128::from(tier.requests) {
                return Some(format!("{hits} hits in {length} us from {first:?}: {tier:?}"));
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIER: Tier = Tier { requests: 2, window: 10, burst: 2 };

    fn at(instants: &[u64]) -> Vec<Allowed> {
        instants.iter().map(|&at| Allowed { hits: 1, from: at, to: at }).collect()
    }

    #[test]
    fn a_kept_limit_has_no_violation() {
        for law in [Law::FixedWindow, Law::SlidingWindow, Law::Bucket] {
            assert_eq!(violation(law, &[TIER], &at(&[100, 101, 115, 120])), None, "{law:?}");
        }
    }

    #[test]
    fn one_hit_too_many_is_a_violation() {
        for law in [Law::FixedWindow, Law::SlidingWindow, Law::Bucket] {
            assert!(violation(law, &[TIER], &at(&[100, 101, 102])).is_some(), "{law:?}");
        }
        // Two windows hold two hits each, but not at a distance of one microsecond.
        let edge = at(&[108, 109, 110, 111]);
        assert_eq!(violation(Law::FixedWindow, &[TIER], &edge), None);
        assert!(violation(Law::SlidingWindow, &[TIER], &edge).is_some());
        assert!(violation(Law::Bucket, &[TIER], &edge).is_some());
    }

    #[test]
    fn windows_of_any_length_are_checked() {
        let edges = [100, 107, 120, 130];
        let checked = |instants: &[u64]| violation_between(2, &edges, &at(instants));
        assert_eq!(checked(&[100, 106, 107, 119, 120, 129, 130]), None);
        assert!(checked(&[100, 101, 106]).is_some());
        assert!(checked(&[107, 113, 119]).is_some());
        assert_eq!(violation_between(2, &[], &at(&[1, 1, 1])), None);
        // More hits than two windows hold, of which none is certainly in the first or in the second.
        let mut across = at(&[100, 101, 107, 108]);
        across.push(Allowed { hits: 1, from: 106, to: 107 });
        assert!(violation_between(2, &edges, &across).is_some());
    }

    #[test]
    fn a_request_across_a_window_edge_proves_nothing() {
        let mut allowed = at(&[100, 101]);
        allowed.push(Allowed { hits: 1, from: 109, to: 110 });
        assert_eq!(violation(Law::FixedWindow, &[TIER], &allowed), None);
    }
}
