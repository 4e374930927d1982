//! Limits: the algorithm of a rule, its tiers, the cost of its hits, and their bounds.

use serde::{Deserialize, Serialize};

use crate::time::Micros;

mod calendar;
mod cost;
mod indivisible;
mod mode;
mod on_error;
mod request_lines;
mod tier_numbers;

pub use calendar::{Calendar, CalendarSpan, Period, WEEKDAYS, WindowStart, Zone};
pub use cost::{Cost, FACTORS_MAX, Factor, FactorError, FactorsByValue};
pub use indivisible::Indivisible;
pub use mode::Mode;
pub use on_error::OnError;
pub use request_lines::RequestLines;
pub use tier_numbers::{NumbersError, TierNumbers};

/// End (exclusive) of the range of hits and of limits. Lua's doubles represent all integers below
/// it exactly.
pub const HITS_END: u64 = 1 << 53;

/// End (exclusive) of the range of limits of a sliding window, whose weighted sum needs one more
/// bit.
pub const SLIDING_REQUESTS_END: u64 = 1 << 52;

/// The longest window: eight years of 365 days, just below 2^48 microseconds.
pub const WINDOW_MAX: Micros = Micros::from_secs(8 * 365 * 86_400);

/// The most entries of a sliding_window_log or concurrency counter, of 8 and 16 bytes each.
pub const ENTRIES_MAX: u64 = 100_000;

/// The longest time in which a bucket may fill or drain: 71 years.
pub const FILL_MAX: Micros = Micros(1 << 51);

/// The most tiers of one rule.
pub const TIERS_MAX: usize = 16;

/// A named window length, as rule files and the protocol write it. Its JSON form is [`Unit::name`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
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

    /// The length of one unit.
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

    /// The unit with this name, in upper or lower case.
    pub fn from_name(name: &str) -> Option<Unit> {
        Unit::ALL.into_iter().find(|unit| unit.name().eq_ignore_ascii_case(name))
    }
}

/// A limit that a request carries: a fixed window of `requests_per_unit` per `unit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Override {
    /// Hits that pass per window. 0 denies all.
    pub requests_per_unit: u32,
    /// The window.
    pub unit: Unit,
}

/// The algorithm that counts hits. `docs/reference/algorithms.md` has the exact definition of each one.
/// `src/algorithm.rs` lists the files to change for a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// One count per window. Windows are aligned to the epoch, or to the calendar of a zone.
    FixedWindow,
    /// The count of the current window, plus the count of the previous window weighted by its
    /// visible share.
    SlidingWindow,
    /// The instant of every hit, for an exact sliding window.
    SlidingWindowLog,
    /// Tokens that refill at a steady rate, up to a burst (GCRA).
    TokenBucket,
    /// A queue that drains at a steady rate.
    LeakyBucket,
    /// The number of requests that hold a slot at the same time.
    Concurrency,
}

impl Algorithm {
    /// Every algorithm.
    pub const ALL: [Algorithm; 6] = [
        Algorithm::FixedWindow,
        Algorithm::SlidingWindow,
        Algorithm::SlidingWindowLog,
        Algorithm::TokenBucket,
        Algorithm::LeakyBucket,
        Algorithm::Concurrency,
    ];

    /// The name in rule files.
    pub const fn name(self) -> &'static str {
        match self {
            Algorithm::FixedWindow => "fixed_window",
            Algorithm::SlidingWindow => "sliding_window",
            Algorithm::SlidingWindowLog => "sliding_window_log",
            Algorithm::TokenBucket => "token_bucket",
            Algorithm::LeakyBucket => "leaky_bucket",
            Algorithm::Concurrency => "concurrency",
        }
    }

    /// Whether its tiers have a burst, as those of the buckets do.
    pub const fn has_burst(self) -> bool {
        match self {
            Algorithm::TokenBucket | Algorithm::LeakyBucket => true,
            Algorithm::FixedWindow
            | Algorithm::SlidingWindow
            | Algorithm::SlidingWindowLog
            | Algorithm::Concurrency => false,
        }
    }

    /// The algorithm with this name.
    pub fn from_name(name: &str) -> Option<Algorithm> {
        Algorithm::ALL.into_iter().find(|algorithm| algorithm.name() == name)
    }
}

/// One (requests, window) pair of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tier {
    /// Hits that pass per window (for buckets: the rate's numerator; for concurrency: the slots).
    /// Below [`HITS_END`]. 0 denies all.
    pub requests: u64,
    /// The window (for concurrency: the time after which an unreleased slot expires). Never zero.
    pub window: Micros,
    /// The size of a token bucket, or the length of a leaky bucket's queue. Other algorithms do not
    /// use it.
    pub burst: u64,
    /// The calendar that the windows follow; only for fixed windows. `window` is then one length for
    /// everything that needs a number: [`Calendar::nominal`]. `None`: the windows have one length.
    pub calendar: Option<Calendar>,
}

/// The limit of a rule. Hits must fit into all tiers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// The algorithm of all tiers.
    pub algorithm: Algorithm,
    /// The tiers, at least one.
    pub tiers: Box<[Tier]>,
    /// Whether denied hits are counted. In a bucket they cause debt, of at most one full bucket.
    /// Not valid for concurrency, because a denied request never releases a slot.
    pub count_denied: bool,
}

/// Why a limit is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LimitError {
    /// No tier, or too many.
    #[error("{0} tiers; write between 1 and {TIERS_MAX}")]
    Tiers(usize),
    /// A window of 0.
    #[error("the window is 0; write at least 1ms")]
    NoWindow,
    /// A window that is too long.
    #[error("a window of {}s is too long; write at most 2920d (eight years)", .0.ceil_secs())]
    LongWindow(Micros),
    /// More requests than every store counts exactly.
    #[error("{0} requests are too many; write less than {1}")]
    Requests(u64, u64),
    /// A larger burst than every store counts exactly.
    #[error("a burst of {0} is too large; write less than {HITS_END}")]
    Burst(u64),
    /// A log of more than [`ENTRIES_MAX`] entries.
    #[error(
        "sliding_window_log stores each request, so {0} requests are too many; write {ENTRIES_MAX} \
         at most, or use `algorithm: sliding_window`, which stores two counts"
    )]
    Log(u64),
    /// More slots than [`ENTRIES_MAX`].
    #[error("concurrency stores each slot, so {0} are too many; write {ENTRIES_MAX} at most")]
    Slots(u64),
    /// A bucket of size 0.
    #[error("a burst of 0 denies every request; write at least 1, or `requests: 0` to block")]
    NoBurst,
    /// A bucket that fills in more than [`FILL_MAX`].
    #[error("a burst of {0} takes more than 71 years to refill at this rate; write a smaller one")]
    SlowBucket(u64),
    /// A calendar for another algorithm than fixed_window.
    #[error(
        "{} cannot follow the calendar; use `algorithm: fixed_window`, or a window of one length \
         such as `window: 30d`",
        .0.name()
    )]
    Calendar(Algorithm),
    /// `count_denied` on concurrency.
    #[error("concurrency cannot count denied requests, which hold no slot; remove `count_denied`")]
    DeniedSlots,
}

impl Limit {
    /// The only limit of envoyproxy/ratelimit: a fixed window that counts denied hits as well.
    pub fn fixed_window(requests: u64, window: Micros) -> Limit {
        let tier = Tier { requests, window, burst: requests, calendar: None };
        Limit { algorithm: Algorithm::FixedWindow, tiers: Box::new([tier]), count_denied: true }
    }

    /// Whether the limit is a number of slots instead of hits per window.
    pub fn counts_slots(&self) -> bool {
        self.algorithm == Algorithm::Concurrency
    }

    /// Whether the windows of a tier follow the calendar, so that they differ in length.
    pub fn has_calendar(&self) -> bool {
        self.tiers.iter().any(|tier| tier.calendar.is_some())
    }

    /// Checks that every number can be counted exactly and in bounded memory. An invalid limit is
    /// still safe to use: it decides by the nearest valid numbers, and never panics.
    ///
    /// # Errors
    ///
    /// The first problem of the limit.
    pub fn check(&self) -> Result<(), LimitError> {
        self.problems().next().map_or(Ok(()), |(_, error)| Err(error))
    }

    /// All problems of the limit: the first one of each tier, with the tier's index.
    pub fn problems(&self) -> impl Iterator<Item = (Option<usize>, LimitError)> {
        let count = self.tiers.len();
        let number = (count == 0 || count > TIERS_MAX).then_some(LimitError::Tiers(count));
        let denied = self.count_denied && self.algorithm == Algorithm::Concurrency;
        let whole = number.into_iter().chain(denied.then_some(LimitError::DeniedSlots));
        let of_tier = |(index, tier): (usize, &Tier)| {
            tier.check(self.algorithm).err().map(|error| (Some(index), error))
        };
        whole.map(|error| (None, error)).chain(self.tiers.iter().enumerate().filter_map(of_tier))
    }
}

impl Tier {
    /// A tier of a fixed window by the calendar.
    pub fn by_calendar(requests: u64, calendar: Calendar) -> Tier {
        let window = calendar.nominal();
        Tier { requests, window, burst: requests, calendar: Some(calendar) }
    }

    fn check(&self, algorithm: Algorithm) -> Result<(), LimitError> {
        if self.calendar.is_some() && algorithm != Algorithm::FixedWindow {
            return Err(LimitError::Calendar(algorithm));
        }
        if self.window == Micros::ZERO {
            return Err(LimitError::NoWindow);
        }
        if self.window > WINDOW_MAX {
            return Err(LimitError::LongWindow(self.window));
        }
        let (end, too_many): (_, fn(u64) -> LimitError) = match algorithm {
            Algorithm::SlidingWindowLog => (ENTRIES_MAX + 1, LimitError::Log),
            Algorithm::Concurrency => (ENTRIES_MAX + 1, LimitError::Slots),
            Algorithm::SlidingWindow => {
                (SLIDING_REQUESTS_END, |n| LimitError::Requests(n, SLIDING_REQUESTS_END))
            }
            Algorithm::FixedWindow | Algorithm::TokenBucket | Algorithm::LeakyBucket => {
                (HITS_END, |n| LimitError::Requests(n, HITS_END))
            }
        };
        if self.requests >= end {
            return Err(too_many(self.requests));
        }
        if algorithm.has_burst() { self.check_bucket() } else { Ok(()) }
    }

    fn check_bucket(&self) -> Result<(), LimitError> {
        if self.burst >= HITS_END {
            return Err(LimitError::Burst(self.burst));
        }
        if self.requests == 0 {
            return Ok(());
        }
        if self.burst == 0 {
            return Err(LimitError::NoBurst);
        }
        let fill = u128::from(self.burst) * u128::from(self.window.0) / u128::from(self.requests);
        if fill > u128::from(FILL_MAX.0) { Err(LimitError::SlowBucket(self.burst)) } else { Ok(()) }
    }
}

impl From<Override> for Limit {
    fn from(sent: Override) -> Limit {
        Limit::fixed_window(u64::from(sent.requests_per_unit), sent.unit.window())
    }
}

#[cfg(test)]
mod tests;
