//! Tests of calendar windows: tables of single windows, their texts, and bounds.

use jiff::civil::DateTime;
use jiff::tz::Offset;

use super::*;

mod all_zones;

/// An instant in UTC: a date and a time. Instants before 1970 are the epoch.
fn at(text: &str) -> Micros {
    let time: DateTime = text.parse().expect("a date and a time");
    let at = Offset::UTC.to_timestamp(time).expect("an instant");
    Micros(u64::try_from(at.as_microsecond()).unwrap_or(0))
}

/// The calendar with a start of month, day, weekday and hour.
fn calendar(period: &str, zone: &str, start: [u8; 4]) -> Calendar {
    let [month, day, weekday, hour] = start;
    Calendar {
        period: Period::from_name(period).expect("a period"),
        zone: Zone::named(zone).expect("a zone"),
        starts: WindowStart { month, day, weekday, hour },
    }
}

/// The beginning of the period.
const FIRST: [u8; 4] = [1, 1, 1, 0];

/// A start like `d15h6`: letters of month, day, weekday and hour with their numbers, or `-`.
fn start(text: &str) -> [u8; 4] {
    let mut start = FIRST;
    for (at, letter) in text.match_indices(|c: char| c.is_ascii_alphabetic()) {
        let place = "mdwh".find(letter).expect("m, d, w or h");
        let digits = text[at + 1..].split(|c: char| !c.is_ascii_digit()).next();
        start[place] = digits.unwrap_or_default().parse().expect("a number");
    }
    start
}

/// Checks a table. A row has the period, the zone, the start, an instant, and the window of the
/// instant.
#[track_caller]
fn check(table: &str) {
    let rows = table.lines().map(str::trim).filter(|row| !row.is_empty() && !row.starts_with('#'));
    for row in rows {
        let words: Vec<&str> = row.split_whitespace().collect();
        let [period, zone, starts, instant, first, end] = words[..] else { panic!("{row}") };
        let window = calendar(period, zone, start(starts)).window_at(at(instant));
        assert_eq!(window, (at(first), at(end)), "{row}");
    }
}

#[test]
fn a_day_is_shorter_or_longer_when_clocks_change() {
    check(
        "
        day Europe/Zurich - 2024-03-31T12:00 2024-03-30T23:00 2024-03-31T22:00
        day Europe/Zurich - 2024-10-27T12:00 2024-10-26T22:00 2024-10-27T23:00
        # 02:00 does not exist, and exists twice.
        day Europe/Zurich h2 2024-03-31T12:00 2024-03-31T01:00 2024-04-01T00:00
        day Europe/Zurich h2 2024-10-27T00:30 2024-10-27T00:00 2024-10-28T01:00
        day Europe/Zurich h2 2024-10-27T01:30 2024-10-27T00:00 2024-10-28T01:00
        day Africa/Casablanca h2 2025-02-23T02:30 2025-02-23T01:00 2025-02-24T02:00
        # Midnight does not exist, and the hour before midnight exists twice.
        day America/Sao_Paulo - 2018-11-04T02:59:59 2018-11-03T03:00 2018-11-04T03:00
        day America/Sao_Paulo - 2018-11-04T03:00 2018-11-04T03:00 2018-11-05T02:00
        day America/Sao_Paulo - 2018-02-18T02:30 2018-02-17T02:00 2018-02-18T03:00
        day America/Sao_Paulo - 2018-02-18T03:00 2018-02-18T03:00 2018-02-19T03:00
        # Half an hour.
        day Australia/Lord_Howe h2 2024-04-06T14:30 2024-04-05T15:00 2024-04-06T15:30
        day Australia/Lord_Howe h2 2024-04-06T16:00 2024-04-06T15:30 2024-04-07T15:30
        day Australia/Lord_Howe h2 2024-10-05T16:00 2024-10-05T15:30 2024-10-06T15:00
        # Seven hours back: the longest day.
        day Antarctica/Vostok - 1994-01-31T18:00 1994-01-30T17:00 1994-02-01T00:00
        day Antarctica/Vostok h20 1994-01-31T18:00 1994-01-31T13:00 1994-02-01T20:00
        ",
    );
}

/// Samoa had no 2011-12-30: the day before was followed by the 31st. Its starts are the end of the gap.
#[test]
fn a_skipped_day_has_no_empty_window() {
    check(
        "
        day Pacific/Apia - 2011-12-30T09:59:59 2011-12-29T10:00 2011-12-30T10:00
        day Pacific/Apia - 2011-12-30T10:00 2011-12-30T10:00 2011-12-31T10:00
        day Pacific/Apia h6 2011-12-30T10:00 2011-12-30T10:00 2011-12-30T16:00
        day Pacific/Apia h6 2011-12-30T16:00 2011-12-30T16:00 2011-12-31T16:00
        month Pacific/Apia d30 2011-12-30T10:00 2011-12-30T10:00 2012-01-29T10:00
        ",
    );
}

#[test]
fn weeks_begin_on_their_weekday() {
    check(
        "
        week America/New_York w7 2024-03-10T12:00 2024-03-10T05:00 2024-03-17T04:00
        week America/New_York w7 2024-03-10T04:59:59 2024-03-03T05:00 2024-03-10T05:00
        week Asia/Tehran w6 2022-03-21T12:00 2022-03-18T20:30 2022-03-25T19:30
        week UTC w4 1970-01-01T00:00 1970-01-01T00:00 1970-01-08T00:00
        week UTC w1 1970-01-01T00:00 1969-12-29T00:00 1970-01-05T00:00
        ",
    );
}

#[test]
fn months_have_leap_days_and_last_days() {
    check(
        "
        month Europe/Zurich - 2024-02-29T22:59:59 2024-01-31T23:00 2024-02-29T23:00
        month Europe/Zurich - 2024-02-29T23:00 2024-02-29T23:00 2024-03-31T22:00
        month Europe/Zurich d15h6 2024-04-10T00:00 2024-03-15T05:00 2024-04-15T04:00
        month UTC d31 2024-02-10T00:00 2024-01-31T00:00 2024-02-29T00:00
        month UTC d31 2024-03-01T00:00 2024-02-29T00:00 2024-03-31T00:00
        # 2100 is no leap year.
        month UTC d30 2100-02-15T00:00 2100-01-30T00:00 2100-02-28T00:00
        month UTC d29 2100-02-28T00:00 2100-02-28T00:00 2100-03-29T00:00
        month America/New_York - 1970-01-01T00:00 1969-12-01T05:00 1970-01-01T05:00
        ",
    );
}

#[test]
fn quarters_and_years_begin_in_their_month() {
    check(
        "
        quarter America/New_York - 2024-05-20T00:00 2024-04-01T04:00 2024-07-01T04:00
        quarter America/New_York m2d15 2024-02-10T00:00 2023-11-15T05:00 2024-02-15T05:00
        year UTC - 2024-12-31T23:59:59 2024-01-01T00:00 2025-01-01T00:00
        year Europe/London m4d6 2024-04-05T22:59:59 2023-04-05T23:00 2024-04-05T23:00
        year Europe/London m4d6 2024-04-05T23:00 2024-04-05T23:00 2025-04-05T23:00
        year UTC m2d29 2023-06-01T00:00 2023-02-28T00:00 2024-02-29T00:00
        # The offset of Nepal changed by 15 minutes at the beginning of a year.
        year Asia/Kathmandu - 1985-12-31T18:30 1985-12-31T18:30 1986-12-31T18:15
        day Asia/Kathmandu - 1985-12-31T18:29:59 1985-12-30T18:30 1985-12-31T18:30
        day Asia/Kathmandu - 2024-06-01T18:14:59 2024-05-31T18:15 2024-06-01T18:15
        ",
    );
}

#[test]
fn a_span_has_the_next_window_too() {
    let month = calendar("month", "UTC", FIRST);
    let span = month.span_at(at("2025-02-10T00:00"));
    assert_eq!((span.start, span.end), month.window_at(at("2025-02-10T00:00")));
    assert_eq!(span.next_end, at("2025-04-01T00:00"));
    // The next start is the same instant, so it begins no window.
    let samoa = calendar("day", "Pacific/Apia", FIRST);
    let span = samoa.span_at(at("2011-12-30T09:59:59"));
    assert_eq!(span.next_end, at("2011-12-31T10:00"));
}

/// Numbers that no file can set, and instants that no clock shows, still have windows.
#[test]
fn numbers_out_of_bounds_count_as_the_nearest() {
    let now = at("2024-05-20T10:00");
    for period in Period::ALL {
        let of = |start| calendar(period.name(), "Europe/Zurich", start).window_at(now);
        assert_eq!(of([0, 0, 0, 0]), of(FIRST), "{period:?}");
        assert_eq!(of([255; 4]), of([12, 31, 7, 23]), "{period:?}");
        for last in [u64::MAX, 1 << 62, LAST_SECOND * 1_000_000] {
            let (start, end) = calendar(period.name(), "UTC", FIRST).window_at(Micros(last));
            assert!(start < end && start.0 <= last, "{period:?} at {last}");
        }
    }
}

#[test]
fn lengths_are_those_of_the_units() {
    let days = |period| {
        let calendar = Calendar { period, zone: Zone::UTC, starts: WindowStart::FIRST };
        [calendar.nominal(), calendar.longest()].map(|length| length.0 / 86_400_000_000)
    };
    assert_eq!(days(Period::Day), [1, 1]);
    assert_eq!(days(Period::Week), [7, 7]);
    assert_eq!(days(Period::Month), [30, 31]);
    assert_eq!(days(Period::Quarter), [91, 92]);
    assert_eq!(days(Period::Year), [365, 366]);
    for period in Period::ALL {
        assert_eq!(Period::from_name(&period.name().to_uppercase()), Some(period));
    }
    assert_eq!(Period::from_name("fortnight"), None);
    assert_eq!(size_of::<Option<Calendar>>(), 8);
}

#[test]
fn a_calendar_is_written_in_words() {
    for (period, zone, start, text) in [
        ("day", "UTC", FIRST, "calendar day in UTC"),
        ("day", "Asia/Tokyo", [1, 1, 1, 6], "calendar day from 06:00 in Asia/Tokyo"),
        ("week", "UTC", FIRST, "calendar week from Monday in UTC"),
        ("week", "UTC", [9, 9, 7, 18], "calendar week from Sunday at 18:00 in UTC"),
        ("month", "UTC", FIRST, "calendar month in UTC"),
        ("month", "UTC", [9, 15, 9, 6], "calendar month from day 15 at 06:00 in UTC"),
        ("quarter", "UTC", FIRST, "calendar quarter in UTC"),
        ("quarter", "UTC", [2, 1, 1, 0], "calendar quarter from month 2 day 1 in UTC"),
        ("year", "UTC", FIRST, "calendar year in UTC"),
        ("year", "UTC", [4, 6, 1, 0], "calendar year from April 6 in UTC"),
        ("year", "UTC", [1, 1, 1, 5], "calendar year from 05:00 in UTC"),
    ] {
        assert_eq!(calendar(period, zone, start).to_string(), text);
    }
}

#[test]
fn zones_are_found_by_their_names() {
    assert_eq!(Zone::named("UTC"), Some(Zone::UTC));
    assert_eq!(Zone::named("utc"), Some(Zone::UTC));
    assert_eq!(Zone::UTC.name(), "UTC");
    for zone in Zone::all() {
        assert_eq!(Zone::named(zone.name()), Some(zone), "{zone:?}");
        assert_eq!(Zone::named(&zone.name().to_lowercase()), Some(zone), "{zone:?}");
    }
    for name in ["", " ", "Zurich", "Europe", "Europe/Zurich ", "Europe/Zürich", "+01:00", "\0"] {
        assert_eq!(Zone::named(name), None, "{name:?}");
    }
    for (written, meant) in [
        ("Zurich", Some("Europe/Zurich")),
        ("Europe/Zürich", Some("Europe/Zurich")),
        ("europe/zurch", Some("Europe/Zurich")),
        ("New York", Some("America/New_York")),
        ("Eastern Standard Time", None),
        ("", None),
    ] {
        assert_eq!(Zone::similar(written).map(Zone::name), meant, "{written}");
    }
    assert_eq!(Zone::similar(&"x".repeat(100_000)), None);
}
