//! Reads and writes durations: `500ms`, `10s`, `1h30m`.

use std::fmt;
use std::time::Duration;

use crate::time::Micros;

/// The syntax of a duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Rule files: whole numbers with the units d, h, m, s and ms, longest unit first, not zero.
    Whole,
    /// Settings: also fractions, µs and ns, units in any order, and zero. This is Go's style, with
    /// days.
    Go,
}

/// Why a text is not a duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DurationError {
    /// The text is empty.
    Empty,
    /// A number is missing, or has a fraction where only whole numbers are read.
    NotWhole,
    /// A number has no unit.
    NoUnit,
    /// The unit is unknown.
    UnknownUnit,
    /// A unit follows a shorter one or itself.
    Order,
    /// The duration exceeds the type of the result.
    TooLong,
    /// The duration is zero.
    Zero,
}

/// Units from long to short, with their lengths in nanoseconds.
const UNITS: [(&str, u128); 9] = [
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("\u{b5}s", 1_000),
    ("\u{3bc}s", 1_000),
    ("ns", 1),
];

/// The units of [`Style::Whole`] are the first ones.
const WHOLE_UNITS: usize = 5;

/// Parses a duration and returns it in nanoseconds.
///
/// # Errors
/// The text is not a duration of this style.
pub fn parse(text: &str, style: Style) -> Result<u128, DurationError> {
    if text.is_empty() {
        return Err(DurationError::Empty);
    }
    if text == "0" && style == Style::Go {
        return Ok(0);
    }
    let units = if style == Style::Whole { &UNITS[..WHOLE_UNITS] } else { &UNITS[..] };
    let mut total = 0_u128;
    let mut shorter_than = u128::MAX;
    let mut rest = text;
    while !rest.is_empty() {
        let digit = |c: char| c.is_ascii_digit() || c == '.';
        let (number, tail) = rest.split_at(rest.find(|c| !digit(c)).unwrap_or(rest.len()));
        let end = tail.find(|c: char| !c.is_alphabetic()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(end);
        let fraction = number.contains('.') || unit.is_empty() && tail.starts_with(',');
        if number.is_empty() || fraction && style == Style::Whole {
            return Err(DurationError::NotWhole);
        }
        if unit.is_empty() {
            return Err(DurationError::NoUnit);
        }
        let unit = units.iter().find(|(name, _)| *name == unit);
        let (_, length) = unit.ok_or(DurationError::UnknownUnit)?;
        if *length >= shorter_than && style == Style::Whole {
            return Err(DurationError::Order);
        }
        shorter_than = *length;
        total = total.saturating_add(times(number, *length)?);
        rest = tail;
    }
    match (total, style) {
        (0, Style::Whole) => Err(DurationError::Zero),
        _ => Ok(total),
    }
}

/// `number` (digits, with or without a fraction) times `unit`, rounded down.
fn times(number: &str, unit: u128) -> Result<u128, DurationError> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() || fraction.contains('.') || fraction.len() > 18 {
        return Err(DurationError::NotWhole);
    }
    let digits = |text: &str| match text {
        "" => Ok(0),
        _ => text.parse::<u64>().map(u128::from).map_err(|_| DurationError::TooLong),
    };
    let scale = (0..fraction.len()).fold(1, |scale, _| scale * 10);
    Ok(digits(whole)? * unit + digits(fraction)? * unit / scale)
}

/// Writes a duration with several units: `1h30m`.
pub fn compound(length: Micros) -> String {
    let mut rest = 1_000 * u128::from(length.0);
    let mut text = String::new();
    for (name, unit) in UNITS {
        if rest >= unit {
            text.push_str(&format!("{}{name}", rest / unit));
            rest %= unit;
        }
    }
    if text.is_empty() { "0s".to_owned() } else { text }
}

/// Writes a duration as a whole number of the longest unit that divides it: `90m`.
pub fn single_unit(length: Duration) -> String {
    let nanos = length.as_nanos();
    if nanos == 0 {
        return "0s".to_owned();
    }
    let divides = |(_, unit): &&(&str, u128)| nanos.is_multiple_of(*unit);
    let (name, unit) = UNITS.iter().find(divides).expect("one nanosecond divides all");
    format!("{}{name}", nanos / unit)
}

impl fmt::Display for DurationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DurationError::Empty => "it is empty",
            DurationError::NotWhole => "it must be whole numbers with units",
            DurationError::NoUnit => "a number has no unit",
            DurationError::UnknownUnit => "the units are d, h, m, s and ms",
            DurationError::Order => "longer units come first, and each only once",
            DurationError::TooLong => "it is too long",
            DurationError::Zero => "it must be longer than nothing",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_durations_are_read_and_written_back() {
        for (text, millis) in [
            ("500ms", 500),
            ("2s", 2_000),
            ("1m", 60_000),
            ("1d", 86_400_000),
            ("7d", 604_800_000),
            ("1h30m", 5_400_000),
            ("1d2h3m4s5ms", 93_784_005),
        ] {
            let length = Micros::from_millis(millis);
            assert_eq!(parse(text, Style::Whole), Ok(1_000 * u128::from(length.0)), "{text}");
            assert_eq!(compound(length), text);
        }
        assert_eq!(compound(Micros::from_secs(90)), "1m30s");
        assert_eq!(compound(Micros(1)), "1us");
        assert_eq!(compound(Micros(0)), "0s");
    }

    #[test]
    fn other_texts_are_no_whole_durations() {
        use DurationError::{Empty, NoUnit, NotWhole, Order, TooLong, UnknownUnit, Zero};
        for (text, error) in [
            ("", Empty),
            ("0s", Zero),
            ("0", NoUnit),
            ("s", NotWhole),
            ("10", NoUnit),
            ("1.5s", NotWhole),
            ("1,5s", NotWhole),
            ("-1s", NotWhole),
            ("1s1s", Order),
            ("1s1m", Order),
            ("1 s", NoUnit),
            ("1us", UnknownUnit),
            ("1w", UnknownUnit),
            ("1S", UnknownUnit),
            ("1h30", NoUnit),
            ("99999999999999999999s", TooLong),
            ("\u{661}s", NotWhole),
        ] {
            assert_eq!(parse(text, Style::Whole), Err(error), "{text}");
        }
    }

    #[test]
    fn go_durations_are_read_and_written_back() {
        for (text, nanos, written) in [
            ("10ms", 10_000_000, "10ms"),
            ("1h30m", 5_400_000_000_000, "90m"),
            ("1.5h", 5_400_000_000_000, "90m"),
            (".5s", 500_000_000, "500ms"),
            ("24h", 86_400_000_000_000, "1d"),
            ("30m1h", 5_400_000_000_000, "90m"),
            ("1m0.001s", 60_001_000_000, "60001ms"),
            ("3us", 3_000, "3us"),
            ("3\u{b5}s", 3_000, "3us"),
            ("3\u{3bc}s", 3_000, "3us"),
            ("0", 0, "0s"),
            ("0s", 0, "0s"),
        ] {
            assert_eq!(parse(text, Style::Go), Ok(u128::from(nanos)), "{text}");
            assert_eq!(single_unit(Duration::from_nanos(nanos)), written);
            assert_eq!(parse(written, Style::Go), Ok(u128::from(nanos)), "{written}");
        }
        for text in ["", "5", "s", "5 s", "-5s", "+5s", "5x", "1..5s", ".s", "5s5", "1e3s", "9s9"] {
            assert!(parse(text, Style::Go).is_err(), "{text:?} was read as a time");
        }
    }
}
