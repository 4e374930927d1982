//! Dates: the days of the Gregorian calendar as numbers, and the months that they are in.
//!
//! A day is counted since 1970-01-01, a month since January of the year 0. The arithmetic is that of
//! <https://howardhinnant.github.io/date_algorithms.html>: it counts years from March, so that a leap
//! day is the last day of a year.

/// Days of 400 years, after which the calendar repeats.
const ERA_DAYS: i64 = 146_097;

/// Days from 0000-03-01 to 1970-01-01.
const EPOCH_DAYS: i64 = 719_468;

/// Day number `day` of a month. In a shorter month it is the last day.
pub(super) fn day_of(month: i64, day: u8) -> i64 {
    let first = first_day(month);
    let length = first_day(month + 1) - first;
    first + i64::from(day.max(1)).min(length) - 1
}

/// The month that a day is in.
pub(super) fn month_of(day: i64) -> i64 {
    let since = day + EPOCH_DAYS;
    let era = since.div_euclid(ERA_DAYS);
    let of_era = since.rem_euclid(ERA_DAYS);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    12 * (400 * era + year) + month_from_march + 2
}

/// The first day of a month.
fn first_day(month: i64) -> i64 {
    let since_march = month - 2;
    let (year, month_from_march) = (since_march.div_euclid(12), since_march.rem_euclid(12));
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let days = 365 * of_era + of_era / 4 - of_era / 100 + (153 * month_from_march + 2) / 5;
    ERA_DAYS * era + days - EPOCH_DAYS
}
