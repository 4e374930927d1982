//! Reads booleans and integers in every form that envoyproxy/ratelimit reads, and JSON.

use std::borrow::Cow;

use serde_json::{Map, Number, Value};

use crate::yaml::{Node, NodeKind, Scalar};

/// A boolean of YAML 1.1 (envoyproxy/ratelimit's version).
pub(super) fn boolean(text: &str) -> Option<bool> {
    match text {
        "true" | "True" | "TRUE" | "yes" | "Yes" | "YES" | "y" | "Y" | "on" | "On" | "ON" => {
            Some(true)
        }
        "false" | "False" | "FALSE" | "no" | "No" | "NO" | "n" | "N" | "off" | "Off" | "OFF" => {
            Some(false)
        }
        _ => None,
    }
}

/// A whole number that is not negative; the error is the problem with it.
pub(super) fn integer(text: &str) -> Result<u64, &'static str> {
    let digits = match text.contains('_') {
        true => Cow::Owned(text.replace('_', "")),
        false => Cow::Borrowed(text),
    };
    let digits = digits.strip_prefix('+').unwrap_or(&digits);
    if digits.starts_with('-') {
        return Err("it must not be negative");
    }
    let (radix, digits) = match digits.get(..2) {
        Some("0x" | "0X") => (16, &digits[2..]),
        Some("0o" | "0O") => (8, &digits[2..]),
        Some("0b" | "0B") => (2, &digits[2..]),
        Some(start) if start.starts_with('0') && start.as_bytes()[1].is_ascii_digit() => {
            return Err("leading zeros mean octal to some readers");
        }
        _ => (10, digits),
    };
    if digits.is_empty() || !digits.chars().all(|digit| digit.is_digit(radix)) {
        return Err("it must be a whole number");
    }
    u64::from_str_radix(digits, radix).map_err(|_| "it is too large")
}

/// A map as JSON; the error is the position of a value that JSON cannot express, and the reason.
pub(super) fn json_map(entries: &[(crate::yaml::Name, Node)]) -> JsonResult<Map<String, Value>> {
    entries.iter().map(|(name, node)| Ok((name.text.to_string(), json(node)?))).collect()
}

type JsonResult<T> = Result<T, (super::problem::Position, &'static str)>;

fn json(node: &Node) -> JsonResult<Value> {
    Ok(match &node.kind {
        NodeKind::Map(entries) => Value::Object(json_map(entries)?),
        NodeKind::List(items) => Value::Array(items.iter().map(json).collect::<Result<_, _>>()?),
        NodeKind::Scalar(scalar) => json_scalar(scalar).map_err(|why| (node.at, why))?,
    })
}

fn json_scalar(scalar: &Scalar) -> Result<Value, &'static str> {
    let text = &*scalar.text;
    if scalar.is_null() {
        return Ok(Value::Null);
    }
    if scalar.plain {
        if let Some(truth) = boolean(text) {
            return Ok(Value::Bool(truth));
        }
        if let Ok(number) = text.parse::<i64>() {
            return Ok(Value::Number(number.into()));
        }
        if let Ok(number) = integer(text) {
            return Ok(Value::Number(number.into()));
        }
        let bare = text.trim_start_matches(['+', '-']);
        if matches!(bare, ".inf" | ".Inf" | ".INF" | ".nan" | ".NaN" | ".NAN") {
            return Err("JSON has no such number");
        }
        // Rust also reads `inf` and `nan`, which are plain texts in YAML.
        let numeric = bare.starts_with(|first: char| first.is_ascii_digit() || first == '.');
        if let (true, Ok(number)) = (numeric, text.parse::<f64>()) {
            let number = Number::from_f64(number).ok_or("the number is too large")?;
            return Ok(Value::Number(number));
        }
    }
    Ok(Value::String(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_in_envoy_ratelimit_spellings() {
        for (text, number) in
            [("0", 0), ("10", 10), ("1_000", 1_000), ("0x1F", 31), ("0o17", 15), ("0b11", 3)]
        {
            assert_eq!(integer(text), Ok(number), "{text}");
        }
        for text in ["", "-1", "1.5", "1e3", "010", "ten", "0x", "99999999999999999999", "é1"] {
            assert!(integer(text).is_err(), "{text}");
        }
    }

    #[test]
    fn plain_scalars_become_json_of_their_kind() {
        let json = |text: &str, plain| json_scalar(&Scalar { text: text.into(), plain });
        for (text, expected) in [
            ("1", serde_json::json!(1)),
            ("-7", serde_json::json!(-7)),
            ("1.5", serde_json::json!(1.5)),
            ("yes", serde_json::json!(true)),
            ("~", serde_json::json!(null)),
            ("inf", serde_json::json!("inf")),
            ("v1", serde_json::json!("v1")),
        ] {
            assert_eq!(json(text, true), Ok(expected), "{text}");
            assert_eq!(json(text, false), Ok(serde_json::json!(text)), "{text} in quotes");
        }
        assert!(json(".inf", true).is_err());
        assert!(json("1e999", true).is_err());
    }
}
