//! Reads `grpc-timeout`, and subtracts a margin for sending the response.

use std::time::Duration;

/// The timeout divided by this is the margin for the network and for encoding.
const MARGIN_SHARE: u32 = 5;

/// The largest margin for the network and for encoding.
const MARGIN_MAX: Duration = Duration::from_millis(5);

/// The `grpc-timeout` of `text` less the margin; `None` if it is invalid.
pub(super) fn of(text: &str) -> Option<Duration> {
    let timeout = read(text)?;
    Some(timeout - (timeout / MARGIN_SHARE).min(MARGIN_MAX))
}

/// Parses a timeout: at most eight digits and a unit
/// (<https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md>).
fn read(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number: u64 = digits.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(number * 3600),
        "M" => Duration::from_secs(number * 60),
        "S" => Duration::from_secs(number),
        "m" => Duration::from_millis(number),
        "u" => Duration::from_micros(number),
        "n" => Duration::from_nanos(number),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_margin_is_a_fifth_and_at_most_5_ms() {
        let table = [
            ("20m", Some(16_000)),
            ("1000u", Some(800)),
            ("1S", Some(995_000)),
            ("2M", Some(119_995_000)),
            ("99999999H", Some(359_999_996_399_995_000)),
            ("0n", Some(0)),
            ("123456789m", None),
            ("", None),
            ("m", None),
            ("+1m", None),
            ("20", None),
            ("20s", None),
            ("2\u{e9}", None),
        ];
        for (text, micros) in table {
            let left = read(text).map(|timeout| {
                assert!(of(text).unwrap() <= timeout);
                of(text).unwrap().as_micros()
            });
            assert_eq!(left, micros, "{text:?}");
        }
    }
}
