//! The numbers of a limit: which algorithm, and its (requests, window) tiers.

use crate::time::Micros;

/// One past the largest number of hits, and the largest limit: integers below it are exact in the
/// doubles that Lua counts with.
pub const HITS_END: u64 = 1 << 53;

/// A named window length, as rule files and the protocol write it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unit {
    /// 1 s
    Second,
    /// 60 s
    Minute,
    /// 3600 s
    Hour,
    /// 24 h
    Day,
    /// 7 d; windows start on Thursdays, the weekday of the epoch
    Week,
    /// 30 d
    Month,
    /// 365 d
    Year,
}

impl Unit {
    /// Every unit, shortest first.
    pub const ALL: [Unit; 7] =
        [Unit::Second, Unit::Minute, Unit::Hour, Unit::Day, Unit::Week, Unit::Month, Unit::Year];

    /// The length of one.
    pub const fn window(self) -> Micros {
        let seconds = match self {
            Unit::Second => 1,
            Unit::Minute => 60,
            Unit::Hour => 3_600,
            Unit::Day => 86_400,
            Unit::Week => 604_800,
            Unit::Month => 2_592_000,
            Unit::Year => 31_536_000,
        };
        Micros::from_secs(seconds)
    }

    /// The unit whose length is exactly `window`.
    pub fn of_window(window: Micros) -> Option<Unit> {
        Unit::ALL.into_iter().find(|unit| unit.window() == window)
    }

    /// The unit's lower-case name.
    pub const fn name(self) -> &'static str {
        match self {
            Unit::Second => "second",
            Unit::Minute => "minute",
            Unit::Hour => "hour",
            Unit::Day => "day",
            Unit::Week => "week",
            Unit::Month => "month",
            Unit::Year => "year",
        }
    }

    /// The unit called `name`, in any mix of cases.
    pub fn from_name(name: &str) -> Option<Unit> {
        Unit::ALL.into_iter().find(|unit| unit.name().eq_ignore_ascii_case(name))
    }
}

/// A limit that came with a request: a fixed window of `requests_per_unit` per `unit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Override {
    /// How many hits pass per window; 0 blocks.
    pub requests_per_unit: u32,
    /// The window.
    pub unit: Unit,
}

/// How hits are counted. DESIGN's table (docs) gives each one's exact meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// One count per window, windows aligned to the epoch.
    FixedWindow,
    /// The current window's count plus the previous one's, weighted by how much of it still shows.
    SlidingWindow,
    /// Every admission's instant, for an exact sliding window.
    SlidingWindowLog,
    /// Tokens that come back at a steady rate, up to a burst (GCRA).
    TokenBucket,
    /// A queue that drains at a steady rate.
    LeakyBucket,
    /// How many requests hold a slot at the same time.
    Concurrency,
}

/// One (requests, window) pair of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tier {
    /// Hits that pass per window (for buckets: the rate's numerator; for concurrency: the slots).
    /// Below [`HITS_END`]; 0 blocks everything.
    pub requests: u64,
    /// The window (for concurrency: how long a slot is held when nobody gives it back). Never zero.
    pub window: Micros,
    /// Size of a token bucket, or length of a leaky bucket's queue. Unused by the others.
    pub burst: u64,
}

/// A rule's numbers: all tiers must pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// How hits are counted, the same for every tier.
    pub algorithm: Algorithm,
    /// At least one.
    pub tiers: Box<[Tier]>,
    /// Denied hits are recorded too.
    pub count_denied: bool,
}

impl Limit {
    /// The incumbent's only limit: a fixed window that counts denied hits as well.
    pub fn fixed_window(requests: u64, window: Micros) -> Limit {
        let tier = Tier { requests, window, burst: requests };
        Limit { algorithm: Algorithm::FixedWindow, tiers: Box::new([tier]), count_denied: true }
    }
}

impl From<Override> for Limit {
    fn from(sent: Override) -> Limit {
        Limit::fixed_window(u64::from(sent.requests_per_unit), sent.unit.window())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_is_found_by_its_name_and_by_its_length() {
        for unit in Unit::ALL {
            assert_eq!(Unit::from_name(&unit.name().to_uppercase()), Some(unit));
            assert_eq!(Unit::of_window(unit.window()), Some(unit));
        }
        assert_eq!(Unit::from_name("unknown"), None);
        assert_eq!(Unit::of_window(Micros::from_secs(10)), None);
    }
}
