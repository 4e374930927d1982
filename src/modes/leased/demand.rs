//! Demand: the rate at which an instance spends credits of a counter. It determines the size of
//! refills. Pure.

use crate::time::Micros;

/// The time that the credits of a refill should last.
pub(crate) const DRAW_AHEAD: Micros = Micros::from_secs(2);

/// The shortest interval from which a rate is computed.
const RATE_INTERVAL_MIN: Micros = Micros::from_millis(500);

/// The age at which a rate is discarded.
pub(crate) const RATE_STALE: Micros = Micros::from_secs(4);

/// The share of the wanted credits at which the next refill starts, as a shift: an eighth.
pub(crate) const LOW_SHIFT: u32 = 3;

/// The recent demand for one counter on this instance.
#[derive(Clone, Copy, Debug)]
pub(super) struct Demand {
    /// Credits per 1000 s.
    rate: u64,
    /// Start of the interval in which `spent` is counted.
    since: Micros,
    spent: u64,
}

impl Demand {
    /// The demand for a counter first used at `now`.
    pub(super) fn new(now: Micros) -> Demand {
        Demand { rate: 0, since: now, spent: 0 }
    }

    /// Records `credits` spent at `now`.
    pub(super) fn spent(&mut self, credits: u64, now: Micros) {
        self.roll(now);
        self.spent = self.spent.saturating_add(credits);
    }

    fn roll(&mut self, now: Micros) {
        let length = now.saturating_sub(self.since);
        if length < RATE_INTERVAL_MIN {
            return;
        }
        let sample = u128::from(self.spent) * 1_000_000_000 / u128::from(length.0);
        let sample = u64::try_from(sample).unwrap_or(u64::MAX);
        let old = if length >= RATE_STALE || self.rate == 0 { sample } else { self.rate };
        self.rate = (old >> 1) + (sample >> 1) + (old & sample & 1);
        (self.since, self.spent) = (now, 0);
    }

    /// Credits wanted for the next `span`, or for [`DRAW_AHEAD`] if that is shorter.
    ///
    /// For a new counter the rate is unknown, and for one that is suddenly more than twice as busy
    /// it is too low. Both want twice the credits spent in this interval, so the drawn credits triple
    /// with each refill.
    pub(super) fn want(&self, span: Micros) -> u64 {
        let lasting = self.within(span.min(DRAW_AHEAD));
        let usual = u128::from(self.rate) * u128::from(RATE_INTERVAL_MIN.0);
        if u128::from(self.spent) * 1_000_000_000 < 2 * usual {
            return lasting;
        }
        lasting.max(self.spent.saturating_mul(2))
    }

    /// Credits spent in `span` at the current rate, rounded up.
    fn within(&self, span: Micros) -> u64 {
        let credits = u128::from(self.rate) * u128::from(span.0);
        u64::try_from(credits.div_ceil(1_000_000_000)).unwrap_or(u64::MAX)
    }
}

/// The remaining credits at which the next refill starts, if `want` were wanted.
pub(super) fn low_water(want: u64) -> u64 {
    match want {
        0 | 1 => 0,
        _ => (want >> LOW_SHIFT).max(1),
    }
}

/// The size of a refill: the `need` of waiting requests, plus the credits that `left` lacks to
/// reach `want`. The second part leaves half of the counter's `room` to other instances, whose
/// number is unknown. Each of them takes half of the rest, so the last credits are drawn one by one.
pub(super) fn refill_size(need: u64, want: u64, left: u64, room: u64) -> u64 {
    let stock = need.saturating_add(want.saturating_sub(left));
    need.max(stock.min(room >> 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refills_follow_demand_and_leave_half() {
        //   need want left room  draw
        for (need, want, left, room, draw) in [
            (1, 0, 0, 100, 1),
            (1, 2, 0, 100, 3),
            (0, 26, 3, 1000, 23),
            (0, 26, 3, 20, 10),
            (0, 26, 3, 1, 0),
            (1, 26, 0, 1, 1),
            (1, 26, 0, 0, 1),
            (7, 26, 0, 2, 7),
            (0, 5, 9, 100, 0),
            (1, u64::MAX, 0, u64::MAX, u64::MAX >> 1),
        ] {
            assert_eq!(refill_size(need, want, left, room), draw, "{need} {want} {left} {room}");
        }
    }

    #[test]
    fn a_refill_starts_before_the_last_credit() {
        for (want, low) in [(0, 0), (1, 0), (2, 1), (15, 1), (16, 2), (800, 100)] {
            assert_eq!(low_water(want), low, "{want}");
        }
    }

    #[test]
    fn a_cold_counter_grows_threefold() {
        let start = Micros::from_secs(1_000);
        let mut demand = Demand::new(start);
        assert_eq!(demand.want(DRAW_AHEAD), 0);
        let mut grown = Vec::new();
        for _ in 0..4 {
            let draw = 1 + demand.want(DRAW_AHEAD);
            demand.spent(draw, start);
            grown.push(draw);
        }
        assert_eq!(grown, [1, 3, 9, 27]);
        // 20 per second from here on.
        for tick in 1..=200 {
            demand.spent(1, start.saturating_add(Micros::from_millis(50 * tick)));
        }
        let steady = demand.want(DRAW_AHEAD);
        assert!((40..=42).contains(&steady), "{steady}");
        assert!((10..=11).contains(&demand.want(Micros::from_millis(500))));
    }

    #[test]
    fn an_old_rate_is_discarded() {
        let start = Micros::from_secs(1_000);
        let mut demand = Demand::new(start);
        demand.spent(1_000, start);
        let later = |secs| start.saturating_add(Micros::from_secs(secs));
        demand.spent(1, later(1));
        assert_eq!(demand.want(DRAW_AHEAD), 2_000);
        demand.spent(1, later(101));
        assert_eq!(demand.want(DRAW_AHEAD), 2, "one in 100 s, and the one just now twice");
        demand.spent(1, Micros::ZERO);
        assert_eq!(demand.want(DRAW_AHEAD), 4, "a clock that was set back");
    }

    #[test]
    fn demand_does_not_overflow() {
        let mut demand = Demand::new(Micros::ZERO);
        for second in 0..5 {
            demand.spent(u64::MAX, Micros::from_secs(second));
        }
        assert_eq!(demand.want(DRAW_AHEAD), u64::MAX);
    }
}
