//! The lines of `weir top`: totals, problems, rules by denials, and limited counters.

use serde_json::Value;

use super::TopReading;
use crate::duration::compound;
use crate::escape::{excerpt, one_line};
use crate::time::Micros;

/// Levels of a sparkline; the first one is 0.
const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Ticks of history that share one character of a sparkline.
const TICKS_PER_CHAR: usize = 2;

/// Characters of a sparkline: ten minutes.
const SPARKLINE_CHARS: usize = 30;

/// Longest descriptor in characters.
const NAME_CHARS_MAX: usize = 200;

/// The most problems on a screen.
const PROBLEMS_MAX: usize = 4;

/// Rules and counters without a terminal.
const ROWS_DEFAULT: usize = 20;

/// The lines for a terminal with `size` columns and rows, or for any other output. `problem` is why the
/// last refresh failed.
pub(super) fn frame(
    reading: &TopReading,
    problem: Option<&str>,
    size: Option<(usize, usize)>,
) -> Vec<String> {
    let mut lines = head(&reading.status);
    let problems = problems(&reading.status);
    let shown = size.map_or(problems.len(), |_| PROBLEMS_MAX);
    lines.extend(problem.map(|text| format!("old numbers: {}", one_line(text))));
    lines.extend(problems.into_iter().take(shown));
    let rules: Vec<String> = items(&reading.activity, "rules").map(rule).collect();
    let list = ["counters", "top"].into_iter().find(|name| reading.limited[name].is_array());
    let counters: Vec<String> =
        items(&reading.limited, list.unwrap_or_default()).map(counter).collect();
    // Two blank lines, two titles, and the line of keys.
    let room = size.map(|(_, rows)| rows.saturating_sub(lines.len() + 5));
    let for_counters = room.map_or(ROWS_DEFAULT, |room| counters.len().min(room.div_ceil(3)));
    let for_rules = room.map_or(ROWS_DEFAULT, |room| room - for_counters);
    let titles = ["hits/s", "denied/s", "near/s", "fallback/s"];
    lines.push(String::new());
    lines.push(format!("{}  {:<SPARKLINE_CHARS$}  RULE", cells(titles), "denials in 10 min"));
    lines.extend(rules.into_iter().take(for_rules));
    lines.push(String::new());
    let titles = ["denied", "left", "limit", "reset in s"];
    lines.push(format!("{}  LIMITED IN THE LAST MINUTE", cells(titles)));
    lines.extend(counters.into_iter().take(for_counters));
    if let Some((columns, rows)) = size {
        lines.push("q or Ctrl-C ends".to_owned());
        lines.truncate(rows);
        lines.iter_mut().for_each(|line| *line = line.chars().take(columns).collect());
    }
    lines
}

/// Who answers, and the totals.
fn head(status: &Value) -> Vec<String> {
    let uptime = status["uptime_seconds"].as_f64().map_or("-".to_owned(), |seconds| {
        // A negative number is no uptime, and becomes 0.
        compound(Micros::from_secs(seconds as u64))
    });
    let of = &status["decisions"];
    let [all, denied, near, fallback, p50, p99] = [
        "per_second",
        "denied_per_second",
        "near_per_second",
        "fallback_per_second",
        "p50_ms",
        "p99_ms",
    ]
    .map(|name| number(&of[name]));
    vec![
        format!(
            "weir {} on {}, {}, up {uptime}",
            word(&status["version"]),
            word(&status["host"]),
            word(&status["health"])
        ),
        format!(
            "per second: {all} decisions, {denied} denied, {near} near, {fallback} by the \
             fallback; p50 {p50} ms, p99 {p99} ms"
        ),
    ]
}

fn problems(status: &Value) -> Vec<String> {
    let line =
        |problem: &Value| format!("problem {}: {}", word(&problem["part"]), word(&problem["text"]));
    items(status, "problems").map(line).collect()
}

fn rule(rule: &Value) -> String {
    let rates = ["hits", "over", "near", "fallback"].map(|name| number(&rule["rates"][name]));
    let line = sparkline(&rule["history"]["over"]);
    let (domain, name) = (word(&rule["domain"]), word(&rule["rule"]));
    let cells = cells(rates.each_ref().map(String::as_str));
    format!("{cells}  {line:<SPARKLINE_CHARS$}  {domain}  {name}")
}

/// A limited counter: its descriptor, or its hash where the descriptor is not shown.
fn counter(counter: &Value) -> String {
    let state = ["denied_hits", "remaining", "requests", "reset_after_seconds"]
        .map(|name| number(&counter[name]));
    let name = counter["descriptor"].as_str().or_else(|| counter["counter"].as_str());
    let name = excerpt(name.unwrap_or("-"), NAME_CHARS_MAX);
    let (domain, rule) = (word(&counter["domain"]), word(&counter["rule"]));
    let cells = cells(state.each_ref().map(String::as_str));
    format!("{cells}  {domain}  {rule}  {name}")
}

/// Cells of a row, right-aligned.
fn cells(cells: [&str; 4]) -> String {
    let [a, b, c, d] = cells;
    format!("{a:>10} {b:>10} {c:>10} {d:>10}")
}

/// One character per [`TICKS_PER_CHAR`] numbers, relative to the largest. A tick that is not known is a
/// blank.
fn sparkline(history: &Value) -> String {
    let ticks: Vec<Option<f64>> =
        history.as_array().into_iter().flatten().map(Value::as_f64).collect();
    let known = |ticks: &[Option<f64>]| ticks.iter().flatten().copied().reduce(f64::max);
    let largest = known(&ticks).unwrap_or(0.0);
    let level = |ticks: &[Option<f64>]| match known(ticks) {
        None => ' ',
        Some(value) if value <= 0.0 => LEVELS[0],
        // From 1 to 7: a cast of a float saturates.
        Some(value) => LEVELS[1 + ((6.0 * value / largest) as usize).min(6)],
    };
    ticks.chunks(TICKS_PER_CHAR).take(SPARKLINE_CHARS).map(level).collect()
}

fn items<'v>(page: &'v Value, name: &str) -> impl Iterator<Item = &'v Value> {
    page[name].as_array().into_iter().flatten()
}

fn word(value: &Value) -> String {
    one_line(value.as_str().unwrap_or("-")).into_owned()
}

/// A whole number with all digits, any other with one or two decimals; `-` if it is not known.
fn number(value: &Value) -> String {
    match (value.as_u64(), value.as_f64()) {
        (Some(whole), _) => whole.to_string(),
        (None, Some(number)) if number.abs() < 10.0 => format!("{number:.2}"),
        (None, Some(number)) => format!("{number:.1}"),
        (None, None) => "-".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use serde_json::json;

    fn reading() -> TopReading {
        let rates = json!({ "hits": 12.5, "over": 3.0, "near": 0, "fallback": 0 });
        let rule = json!({
            "domain": "d", "rule": "per\u{1b}-user", "rates": rates,
            "history": { "over": [null, null, 0, 0, 1, 2, 6, 12] },
        });
        TopReading {
            status: json!({
                "version": "0.1.0", "host": "h", "health": "serving", "uptime_seconds": 90.7,
                "decisions": { "per_second": 12.5, "p99_ms": 0.25 },
                "problems": [{ "part": "redis", "text": "no\nanswer" }],
            }),
            activity: json!({ "rules": [rule] }),
            limited: json!({ "counters": [
                { "domain": "d", "rule": "r", "descriptor": "user=a\u{202e}", "denied_hits": 7,
                    "remaining": 0, "requests": 3, "reset_after_seconds": 1.5 },
                { "domain": "d", "rule": "r", "descriptor": null, "counter": "9f",
                  "denied_hits": 1 },
            ] }),
        }
    }

    #[test]
    fn all_parts_are_shown_and_escaped() {
        let text = frame(&reading(), None, None).join("\n");
        for part in [
            "weir 0.1.0 on h, serving, up 1m30s\n",
            "per second: 12.5 decisions, - denied, - near",
            "problem redis: no\\nanswer\n",
            "      12.5       3.00          0          0   ▁▃█",
            "  d  per\\u{1b}-user",
            "         7          0          3       1.50  d  r  user=a\\u{202e}",
            "         1          -          -          -  d  r  9f",
        ] {
            assert!(text.contains(part), "no {part:?} in\n{text}");
        }
        assert!(!text.contains('\u{1b}') && !text.contains('\u{202e}'), "{text}");
    }

    #[test]
    fn a_screen_is_never_exceeded() {
        for size in [(80, 24), (20, 5), (1, 1), (500, 100)] {
            let lines = frame(&reading(), Some("gone"), Some(size));
            assert!(lines.len() <= size.1, "{size:?}: {lines:?}");
            assert!(lines.iter().all(|line| line.chars().count() <= size.0), "{size:?}");
        }
        let empty = || TopReading { status: json!({}), activity: json!(1), limited: json!(null) };
        assert!(frame(&empty(), None, Some((80, 24))).len() >= 5);
    }

    #[test]
    fn a_sparkline_is_relative_to_its_largest_tick() {
        assert_eq!(sparkline(&json!([null, null, 0, null, 1, 2, 3, 6])), " ▁▄█");
        assert_eq!(sparkline(&json!([0, 0])), "▁");
        assert_eq!(sparkline(&json!(null)), "");
        assert_eq!(sparkline(&json!(vec![1; 600])).chars().count(), SPARKLINE_CHARS);
    }
}
