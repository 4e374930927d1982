//! Instants, durations, and the one trait that reads a clock.
//!
//! Time is an argument throughout weir. The service reads the clock once per request and passes the
//! instant on, so algorithms are tested to the microsecond without sleeping.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

mod clock_offset;
mod deadline;

pub use clock_offset::ClockOffset;
pub use deadline::Deadline;

/// Microseconds. A value has one of three meanings:
///
/// - An instant by the local clock ([`Clock`]). Where there is a second clock, its name is `local` or
///   `local_now`.
/// - An instant by the clock of a store, such as a Redis node's. Where there are both clocks, its name
///   is `now` or `store_now`. Only instants by one clock are compared; [`ClockOffset`] converts them.
/// - A duration, such as `window`, `interval` or `length`.
///
/// Instants count from the Unix epoch. They are below 2^53 until the year 2255, so a
/// Lua number represents them exactly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Micros(pub u64);

impl Micros {
    /// The epoch, or an empty duration.
    pub const ZERO: Micros = Micros(0);
    /// One second.
    pub const SECOND: Micros = Micros(1_000_000);

    /// `seconds` in microseconds. Saturates.
    pub const fn from_secs(seconds: u64) -> Micros {
        Micros(seconds.saturating_mul(1_000_000))
    }

    /// `millis` in microseconds. Saturates.
    pub const fn from_millis(millis: u64) -> Micros {
        Micros(millis.saturating_mul(1_000))
    }

    /// The sum. Saturates.
    pub const fn saturating_add(self, other: Micros) -> Micros {
        Micros(self.0.saturating_add(other.0))
    }

    /// The difference; zero if `other` is larger.
    pub const fn saturating_sub(self, other: Micros) -> Micros {
        Micros(self.0.saturating_sub(other.0))
    }

    /// Whole seconds, rounded up, so that a client that waits this long waits long enough.
    pub const fn ceil_secs(self) -> u64 {
        self.0.div_ceil(1_000_000)
    }
}

/// A clock that never goes backwards.
pub trait Clock: Send + Sync + 'static {
    /// The current instant.
    fn now(&self) -> Micros;
}

/// The machine's monotonic clock, anchored to the wall clock at its creation. Later changes of the
/// wall clock, by NTP or an operator, move no window.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock {
    anchor_wall: Micros,
    anchor: Instant,
}

impl SystemClock {
    /// This clock shifted by `micros`, to simulate a machine with a wrong clock.
    pub fn off_by(self, micros: i64) -> SystemClock {
        let anchor_wall = Micros(self.anchor_wall.0.saturating_add_signed(micros));
        SystemClock { anchor_wall, ..self }
    }

    /// A clock anchored to the current wall time.
    pub fn new() -> SystemClock {
        // Wall time before 1970 counts as the epoch. Windows still work; only their edges move.
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        SystemClock {
            anchor_wall: Micros(u64::try_from(wall.as_micros()).unwrap_or(u64::MAX)),
            anchor: Instant::now(),
        }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        SystemClock::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Micros {
        let elapsed = self.anchor.elapsed();
        let seconds = self.anchor_wall.saturating_add(Micros::from_secs(elapsed.as_secs()));
        seconds.saturating_add(Micros(u64::from(elapsed.subsec_micros())))
    }
}

/// A clock that moves only when it is set, for tests and simulations.
#[derive(Debug, Default)]
pub struct ManualClock(AtomicU64);

impl ManualClock {
    /// A clock that shows `now`.
    pub fn at(now: Micros) -> ManualClock {
        ManualClock(AtomicU64::new(now.0))
    }

    /// Moves the clock forward by `length`.
    pub fn advance(&self, length: Micros) {
        self.0.fetch_add(length.0, Ordering::Relaxed);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Micros {
        Micros(self.0.load(Ordering::Relaxed))
    }
}
