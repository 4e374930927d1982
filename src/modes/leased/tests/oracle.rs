//! The oracle: this module checks the requests that passed against the limit, in every window and
//! every interval.
//!
//! A request counts at some instant between the one it read and the one of its response. So only
//! requests that lie wholly within an interval count against the interval's limit.

use crate::limit::{Algorithm, Limit};
use crate::time::Micros;

/// A request that passed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Passed {
    pub(super) hits: u64,
    /// The instant it read.
    pub(super) from: Micros,
    /// The instant of its response.
    pub(super) to: Micros,
}

/// Describes a violation of `limit`, if there is one.
pub(super) fn broken(limit: &Limit, passed: &[Passed]) -> Option<String> {
    match limit.algorithm {
        Algorithm::FixedWindow => windows(limit, passed),
        Algorithm::SlidingWindow => sliding(limit, passed),
        _ => intervals(limit, passed),
    }
}

/// Checks every sequence of up to three windows of every tier.
fn windows(limit: &Limit, passed: &[Passed]) -> Option<String> {
    for tier in &limit.tiers {
        let window = |at: Micros| at.0 / tier.window.0;
        let first = passed.iter().map(|one| window(one.from)).min()?;
        let last = passed.iter().map(|one| window(one.to)).max()?;
        for start in first..=last {
            for length in 1..=3 {
                let within =
                    |one: &&Passed| window(one.from) >= start && window(one.to) < start + length;
                let hits: u64 = passed.iter().filter(within).map(|one| one.hits).sum();
                if hits > tier.requests * length {
                    return Some(format!(
                        "{hits} hits in {length} windows from {start} of {tier:?}"
                    ));
                }
            }
        }
    }
    None
}

/// Checks the formula of the sliding window at the instant of every response. It counts the requests
/// that certainly counted in the previous window, and in the current one until then.
fn sliding(limit: &Limit, passed: &[Passed]) -> Option<String> {
    for tier in &limit.tiers {
        let length = tier.window.0;
        for last in passed {
            let start = last.to.0 - last.to.0 % length;
            let hits = |from: u64, to: u64| -> u128 {
                let within = |one: &&Passed| one.from.0 >= from && one.to.0 <= to;
                passed.iter().filter(within).map(|one| u128::from(one.hits)).sum()
            };
            let (previous, current) = (hits(start - length, start - 1), hits(start, last.to.0));
            let rest = start + length - last.to.0;
            let used = previous * u128::from(rest) + current * u128::from(length);
            if current > 0 && used > u128::from(tier.requests) * u128::from(length) {
                return Some(format!("{previous} and {current} hits at {last:?}: {tier:?}"));
            }
        }
    }
    None
}

/// Checks `burst + rate * length` in every interval.
fn intervals(limit: &Limit, passed: &[Passed]) -> Option<String> {
    for tier in &limit.tiers {
        for first in passed {
            let mut within: Vec<_> = passed.iter().filter(|one| one.from >= first.from).collect();
            within.sort_by_key(|one| one.to);
            let mut hits = 0;
            for one in within {
                hits += u128::from(one.hits);
                let length = u128::from(one.to.saturating_sub(first.from).0);
                let burst = u128::from(tier.burst) * u128::from(tier.window.0);
                if hits * u128::from(tier.window.0) > burst + length * u128::from(tier.requests) {
                    return Some(format!("{hits} hits in {length} us from {first:?}: {tier:?}"));
                }
            }
        }
    }
    None
}
