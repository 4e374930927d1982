//! Edges of calendar windows, between windows of unequal length.

use crate::limit::{Calendar, Period, WindowStart, Zone};
use crate::time::Micros;

/// A calendar, and a window of it that is shorter or longer than the one before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CalendarEdge {
    pub(crate) calendar: Calendar,
    /// The first instant of the window.
    pub(crate) start: Micros,
    /// The first instant after it.
    pub(crate) end: Micros,
}

/// 2025-03-01 in UTC, between 28 and 31 days.
pub(crate) const MARCH: CalendarEdge = edge(Period::Month, Zone::UTC, 1_740_787_200, 31 * 24);

/// The edges of tests.
pub(crate) fn calendar_edges() -> [CalendarEdge; 6] {
    let zurich = Zone::named("Europe/Zurich").expect("a zone");
    [
        MARCH,
        // 2025-06-01, between 31 and 30 days.
        edge(Period::Month, Zone::UTC, 1_748_736_000, 30 * 24),
        // 2026-03-29, a day of 23 hours, and the day after it.
        edge(Period::Day, zurich, 1_774_738_800, 23),
        edge(Period::Day, zurich, 1_774_821_600, 24),
        // 2026-10-25, a day of 25 hours.
        edge(Period::Day, zurich, 1_792_879_200, 25),
        // 2028, a leap year.
        edge(Period::Year, Zone::UTC, 1_830_297_600, 366 * 24),
    ]
}

/// The window that begins at a second since 1970 and has this length in hours.
const fn edge(period: Period, zone: Zone, second: u64, hours: u64) -> CalendarEdge {
    CalendarEdge {
        calendar: Calendar { period, zone, starts: WindowStart::FIRST },
        start: Micros::from_secs(second),
        end: Micros::from_secs(second + 3_600 * hours),
    }
}
