//! Lengths of time as rule files write them: `500ms`, `2s`, `1m`, `24h`, `7d`, `1h30m`.

use crate::time::Micros;

/// Units from long to short, with their lengths in microseconds.
const UNITS: [(&str, u64); 5] = [
    ("d", 86_400_000_000),
    ("h", 3_600_000_000),
    ("m", 60_000_000),
    ("s", 1_000_000),
    ("ms", 1_000),
];

/// Reads a length of time; the error says what is wrong with it.
pub(super) fn parse(text: &str) -> Result<Micros, &'static str> {
    let mut rest = text;
    let mut total = 0_u64;
    let mut shorter_than = u64::MAX;
    if rest.is_empty() {
        return Err("it is empty");
    }
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        if digits == 0 {
            return Err("it must be whole numbers with units");
        }
        let number: u64 = rest[..digits].parse().map_err(|_| "it is too long")?;
        rest = &rest[digits..];
        let letters = rest.bytes().take_while(u8::is_ascii_alphabetic).count();
        match letters {
            0 if rest.starts_with(['.', ',']) => return Err("it must be whole numbers with units"),
            0 => return Err("a number has no unit"),
            _ => {}
        }
        let unit = UNITS.iter().find(|(name, _)| *name == &rest[..letters]);
        let (_, length) = unit.ok_or("the units are d, h, m, s and ms")?;
        if *length >= shorter_than {
            return Err("longer units come first, and each only once");
        }
        shorter_than = *length;
        rest = &rest[letters..];
        total = number
            .checked_mul(*length)
            .and_then(|part| total.checked_add(part))
            .ok_or("it is too long")?;
    }
    if total == 0 { Err("it must be longer than nothing") } else { Ok(Micros(total)) }
}

/// Writes a length of time the way [`parse`] reads it.
pub(super) fn write(length: Micros) -> String {
    let mut rest = length.0;
    let mut text = String::new();
    for (name, unit) in UNITS {
        if rest >= unit {
            text.push_str(&format!("{}{name}", rest / unit));
            rest %= unit;
        }
    }
    if rest > 0 || text.is_empty() {
        text.push_str(&format!("{rest}us"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_and_written_back() {
        for (text, micros) in [
            ("500ms", 500_000),
            ("2s", 2_000_000),
            ("1m", 60_000_000),
            ("1d", 86_400_000_000),
            ("7d", 604_800_000_000),
            ("1h30m", 5_400_000_000),
            ("1d2h3m4s5ms", 93_784_005_000),
        ] {
            assert_eq!(parse(text), Ok(Micros(micros)), "{text}");
            assert_eq!(write(Micros(micros)), text);
        }
        assert_eq!(parse("90s"), Ok(Micros(90_000_000)));
        assert_eq!(write(Micros(90_000_000)), "1m30s");
    }

    #[test]
    fn what_is_not_a_duration_is_refused() {
        for text in [
            "",
            "0s",
            "s",
            "10",
            "1.5s",
            "-1s",
            "1s1s",
            "1s1m",
            "1 s",
            "1us",
            "1w",
            "1S",
            "1h30",
            "99999999999999999999s",
            "9999999999999d",
            "١s",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
