//! Numbers as labels.

/// Three significant digits, or all digits before the point.
#[must_use]
pub fn short(value: f64) -> String {
    match value.abs() {
        100.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        1.0.. => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// A label of an axis.
pub(crate) fn tick(value: f64) -> String {
    grouped(&value.to_string())
}

/// Digits with a space between groups of three before the point.
pub(crate) fn grouped(digits: &str) -> String {
    let (whole, fraction) = digits.split_at(digits.find('.').unwrap_or(digits.len()));
    let mut grouped = String::new();
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at) % 3 == 0 {
            grouped.push(' ');
        }
        grouped.push(digit);
    }
    grouped + fraction
}

#[test]
fn numbers_have_few_digits() {
    let table = [(0.776, "0.776"), (7.943, "7.94"), (46.78, "46.8"), (467.8, "468")];
    for (value, text) in table {
        assert_eq!(short(value), text);
    }
    let table = [(0.0, "0"), (0.5, "0.5"), (200.0, "200"), (5e3, "5 000"), (2e6, "2 000 000")];
    for (value, text) in table {
        assert_eq!(tick(value), text);
    }
}
