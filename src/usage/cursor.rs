//! Cursors: the text after which the next page begins.

use std::fmt;
use std::str::FromStr;

use super::name_reader::NamePosition;
use super::name_set::SETS;
use crate::key::CounterKey;
use crate::time::Micros;

/// Where the next page begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UsageCursor {
    /// After this counter in memory.
    Memory(CounterKey),
    /// At this position of the names in Redis.
    Redis(NamePosition),
}

impl fmt::Display for UsageCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UsageCursor::Memory(key) => write!(f, "m{:016x}{:016x}", key.0[0], key.0[1]),
            UsageCursor::Redis(NamePosition { set, after: (until, key) }) => {
                write!(f, "r{set:02x}{:016x}{:016x}{:016x}", until.0, key.0[0], key.0[1])
            }
        }
    }
}

impl FromStr for UsageCursor {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<UsageCursor, &'static str> {
        let problem = "the cursor is invalid; send that of the page before, or none";
        parsed(text).ok_or(problem)
    }
}

fn parsed(text: &str) -> Option<UsageCursor> {
    let (kind, digits) = text.split_at_checked(1)?;
    if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let number = |digits: &str| u64::from_str_radix(digits, 16).ok();
    let numbers = |digits: &str| -> Option<Vec<u64>> {
        let parts = (0..digits.len()).step_by(16);
        parts.map(|at| number(digits.get(at..at + 16)?)).collect()
    };
    match kind {
        "m" => match numbers(digits)?[..] {
            [first, second] => Some(UsageCursor::Memory(CounterKey([first, second]))),
            _ => None,
        },
        "r" => {
            let (set, rest) = digits.split_at_checked(2)?;
            let set = usize::try_from(number(set)?).ok().filter(|set| *set < SETS)?;
            match numbers(rest)?[..] {
                [until, first, second] => {
                    let after = (Micros(until), CounterKey([first, second]));
                    Some(UsageCursor::Redis(NamePosition { set, after }))
                }
                _ => None,
            }
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_comes_back_from_its_text() {
        let keys = [CounterKey([0, 0]), CounterKey([u64::MAX, 7])];
        let memory = keys.map(UsageCursor::Memory);
        let redis = keys.map(|key| {
            let after = (Micros(1_785_000_000_000_000), key);
            UsageCursor::Redis(NamePosition { set: SETS - 1, after })
        });
        for cursor in memory.into_iter().chain(redis) {
            let text = cursor.to_string();
            assert!(text.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{text}");
            assert_eq!(text.parse::<UsageCursor>(), Ok(cursor), "{text}");
        }
    }

    #[test]
    fn other_texts_are_no_cursors() {
        let zeros = "0".repeat(48);
        for text in [
            "",
            "m",
            "r",
            "x00",
            "\u{fc}",
            &format!("m{}", &zeros[..31]),
            &format!("m{}", &zeros[..33]),
            &format!("m{}", &zeros[..48]),
            &format!("m+{}", &zeros[..31]),
            &format!("r80{zeros}"),
            &format!("r00{}", &zeros[..47]),
            &format!("r00{zeros}0"),
            &format!("r{zeros}"),
        ] {
            assert!(text.parse::<UsageCursor>().is_err(), "{text}");
        }
    }
}
