//! Calendar windows: windows that begin at civil times of a zone, such as the 15th of a month at 06:00.
//!
//! A window begins at the first instant at which the clocks of the zone show its start or a later time.
//! So a start that the clocks skip is the end of the gap, and of a start that they show twice the first
//! one counts. Starts at the same instant, because the clocks skip a day, begin one window.

use std::fmt;

use super::Unit;
use crate::time::Micros;

mod dates;
mod recent;
mod zone;

pub use zone::Zone;

/// The last instant with windows, in the year 9892, in seconds. Later ones count as this one.
const LAST_SECOND: u64 = 250_000_000_000;

const DAY_SECONDS: i64 = 86_400;
const HOUR_SECONDS: i64 = 3_600;

/// The names of the days of the week.
pub const WEEKDAYS: [&str; 7] =
    ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];

/// The names of the months.
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// How windows follow the calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Calendar {
    /// The period of a window.
    pub period: Period,
    /// The zone whose clocks count.
    pub zone: Zone,
    /// Where in its period a window begins.
    pub starts: WindowStart,
}

/// A period of the calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Period {
    /// A day of 23 to 25 hours, or of 24 where the clocks do not change.
    Day,
    /// Seven days.
    Week,
    /// 28 to 31 days.
    Month,
    /// Three months, by default from January, April, July and October.
    Quarter,
    /// Twelve months.
    Year,
}

/// Where in its period a window begins. A period reads only the fields that it needs: a day the hour,
/// a week the weekday and the hour, a month the day and the hour, and the others also the month.
/// Numbers out of their bounds count as the nearest ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WindowStart {
    /// The month: 1 to 12 of a year, 1 to 3 of a quarter.
    pub month: u8,
    /// The day of the month, 1 to 31. In a shorter month it is the last day.
    pub day: u8,
    /// The day of the week, 1 (Monday) to 7 (Sunday).
    pub weekday: u8,
    /// The hour, 0 to 23.
    pub hour: u8,
}

/// A window, and the one after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CalendarSpan {
    /// The first instant of the window.
    pub start: Micros,
    /// The first instant of the next window.
    pub end: Micros,
    /// The first instant of the window after the next one.
    pub next_end: Micros,
}

impl Period {
    /// Every period, shortest first.
    pub const ALL: [Period; 5] =
        [Period::Day, Period::Week, Period::Month, Period::Quarter, Period::Year];

    /// The name in rule files.
    pub const fn name(self) -> &'static str {
        match self {
            Period::Day => "day",
            Period::Week => "week",
            Period::Month => "month",
            Period::Quarter => "quarter",
            Period::Year => "year",
        }
    }

    /// The period with this name, in upper or lower case.
    pub fn from_name(name: &str) -> Option<Period> {
        Period::ALL.into_iter().find(|period| period.name().eq_ignore_ascii_case(name))
    }

    /// The months of a period that consists of months; 0 for the others.
    const fn months(self) -> i64 {
        match self {
            Period::Day | Period::Week => 0,
            Period::Month => 1,
            Period::Quarter => 3,
            Period::Year => 12,
        }
    }
}

impl WindowStart {
    /// The beginning of the period: January 1, Monday, midnight.
    pub const FIRST: WindowStart = WindowStart { month: 1, day: 1, weekday: 1, hour: 0 };
}

impl Default for WindowStart {
    fn default() -> WindowStart {
        WindowStart::FIRST
    }
}

impl Calendar {
    /// The window that contains `at`: its first instant, and the first one after it. It is never empty,
    /// and windows meet without gaps. A window that began before 1970 begins at the epoch.
    pub fn window_at(&self, at: Micros) -> (Micros, Micros) {
        let CalendarSpan { start, end, .. } = self.span_at(at);
        (start, end)
    }

    /// The window that contains `at`, and the next one.
    pub fn span_at(&self, at: Micros) -> CalendarSpan {
        let at = at.min(Micros::from_secs(LAST_SECOND));
        recent::span(self, at, || self.compute(at))
    }

    /// One length for everything that needs a number: 1, 7, 30, 91 or 365 days.
    pub fn nominal(&self) -> Micros {
        match self.period {
            Period::Day => Unit::Day.window(),
            Period::Week => Unit::Week.window(),
            Period::Month => Unit::Month.window(),
            Period::Quarter => Micros::from_secs(91 * DAY_SECONDS.unsigned_abs()),
            Period::Year => Unit::Year.window(),
        }
    }

    /// The length of the longest window without a change of the clocks: 1, 7, 31, 92 or 366 days.
    pub fn longest(&self) -> Micros {
        let days = match self.period {
            Period::Day => 1,
            Period::Week => 7,
            Period::Month => 31,
            Period::Quarter => 92,
            Period::Year => 366,
        };
        Micros::from_secs(days * DAY_SECONDS.unsigned_abs())
    }

    fn compute(&self, at: Micros) -> CalendarSpan {
        let second = i64::try_from(at.0 / Micros::SECOND.0).unwrap_or(i64::MAX);
        // The clocks show the start of this window or a later time, so it has begun.
        let mut number = self.number_of(self.zone.local(second));
        let mut start = self.start_of(number);
        let mut end = self.start_of(number + 1);
        // After clocks were set back, a later window may have begun as well.
        while end <= second {
            number += 1;
            (start, end) = (end, self.start_of(number + 1));
        }
        number += 2;
        let mut next_end = self.start_of(number);
        while next_end <= end {
            number += 1;
            next_end = self.start_of(number);
        }
        let [start, end, next_end] = [start, end, next_end].map(instant);
        CalendarSpan { start, end, next_end }
    }

    /// The number of the last window whose start is not after `local`, in seconds on the clocks of
    /// the zone. Windows have consecutive numbers.
    fn number_of(&self, local: i64) -> i64 {
        let day = (local - self.hour()).div_euclid(DAY_SECONDS);
        match self.period {
            Period::Day => day,
            Period::Week => (day - self.first_weekday()).div_euclid(7),
            Period::Month | Period::Quarter | Period::Year => {
                let month = dates::month_of(day) - self.first_month();
                let number = month.div_euclid(self.period.months());
                number - i64::from(day < self.first_day(number))
            }
        }
    }

    /// The first second of the window with this number.
    fn start_of(&self, number: i64) -> i64 {
        self.zone.first_instant(DAY_SECONDS * self.first_day(number) + self.hour())
    }

    /// The day on which the window with this number begins, in days since 1970.
    fn first_day(&self, number: i64) -> i64 {
        match self.period {
            Period::Day => number,
            Period::Week => 7 * number + self.first_weekday(),
            Period::Month | Period::Quarter | Period::Year => {
                let month = self.period.months() * number + self.first_month();
                dates::day_of(month, self.starts.day)
            }
        }
    }

    /// The start's hour in seconds.
    fn hour(&self) -> i64 {
        HOUR_SECONDS * i64::from(self.starts.hour.min(23))
    }

    /// The first day since 1970 that is the start's weekday, or the last one before.
    fn first_weekday(&self) -> i64 {
        // 1970 began on a Thursday.
        i64::from(self.starts.weekday.clamp(1, 7)) - 4
    }

    /// The start's month from 0 in its quarter or year; 0 for a month.
    fn first_month(&self) -> i64 {
        let month = i64::from(self.starts.month.max(1)) - 1;
        month.min((self.period.months() - 1).max(0))
    }

    /// Where in its period a window begins, in words; empty at the beginning of its first day.
    fn start_text(&self) -> String {
        let WindowStart { day, hour, .. } = self.starts;
        let name = |names: &[&'static str], number: u8| {
            names.get(usize::from(number.saturating_sub(1))).copied().unwrap_or_default()
        };
        let day = match (self.period, self.starts.month, day) {
            (Period::Day, ..) | (Period::Month, _, 1) => String::new(),
            (Period::Quarter | Period::Year, 1, 1) => String::new(),
            (Period::Week, ..) => name(&WEEKDAYS, self.starts.weekday).to_owned(),
            (Period::Month, _, day) => format!("day {day}"),
            (Period::Quarter, month, day) => format!("month {month} day {day}"),
            (Period::Year, month, day) => format!("{} {day}", name(&MONTHS, month)),
        };
        match (day.is_empty(), hour) {
            (true, 0) => String::new(),
            (true, hour) => format!(" from {hour:02}:00"),
            (false, 0) => format!(" from {day}"),
            (false, hour) => format!(" from {day} at {hour:02}:00"),
        }
    }
}

impl fmt::Display for Calendar {
    /// Writes `calendar month from day 15 at 06:00 in Europe/Zurich`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (period, zone) = (self.period.name(), self.zone.name());
        write!(f, "calendar {period}{} in {zone}", self.start_text())
    }
}

impl CalendarSpan {
    /// Whether `at` is in the window.
    fn contains(&self, at: Micros) -> bool {
        self.start <= at && at < self.end
    }
}

/// A second of the epoch as an instant. Seconds before 1970 are the epoch.
fn instant(second: i64) -> Micros {
    Micros::from_secs(u64::try_from(second).unwrap_or(0))
}

#[cfg(test)]
mod tests;
