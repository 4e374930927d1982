//! Pages of usage as CSV (RFC 4180): one line per tier of a counter.
//!
//! A spreadsheet takes a cell that begins with `=`, `+`, `-` or `@` for a formula, and values of requests
//! are chosen by clients. Such a cell, and one that begins with a tab or a line break, gets an apostrophe
//! before it (<https://owasp.org/www-community/attacks/CSV_Injection>).
//!
//! A spreadsheet may also separate cells by semicolons or tabs, as it does in many countries, and then a
//! quote inside a cell does not quote. So a formula after such a separator or a line break gets an
//! apostrophe too.

use std::fmt::Display;

use super::usage_page::{UsagePage, UsageRow};

/// The content type of the lines.
pub const CSV_TYPE: &str = "text/csv; charset=utf-8";

/// The columns before those of the rule.
const COLUMNS: [&str; 10] = [
    "domain",
    "rule",
    "tier",
    "window_seconds",
    "requests",
    "used",
    "remaining",
    "reset_after_seconds",
    "counter",
    "cut",
];

/// The line with the names of the columns. Those of the rule begin with `value.`.
pub fn csv_header(columns: &[String]) -> String {
    let mut line = CsvLine::default();
    COLUMNS.iter().for_each(|name| line.text(name));
    columns.iter().for_each(|name| line.text(&format!("value.{name}")));
    line.end()
}

/// The lines of `rows`, which are counters of `page`.
pub fn csv_rows(page: &UsagePage, rows: &[UsageRow]) -> String {
    rows.iter().map(|row| row_lines(page, row)).collect()
}

fn row_lines(page: &UsagePage, row: &UsageRow) -> String {
    let mut lines = String::new();
    for (number, tier) in row.tiers.iter().enumerate() {
        let mut line = CsvLine::default();
        line.text(&page.domain);
        line.text(&page.rule);
        line.number(number + 1);
        line.number(tier.window_seconds);
        line.number(tier.requests);
        line.number(tier.used);
        line.number(tier.remaining);
        line.number(tier.reset_after_seconds);
        line.text(&row.counter);
        line.number(row.cut);
        for column in &page.columns {
            line.text(row.values.get(column).map_or("", String::as_str));
        }
        lines.push_str(&line.end());
    }
    lines
}

/// A line that is being written.
#[derive(Default)]
struct CsvLine(String);

impl CsvLine {
    /// Adds a cell with a number or a flag.
    fn number(&mut self, number: impl Display) {
        self.cell(&number.to_string());
    }

    /// Adds a cell with a text.
    fn text(&mut self, text: &str) {
        let harmless = harmless(text);
        if harmless.contains(['"', ',', '\r', '\n']) {
            self.cell(&format!("\"{}\"", harmless.replace('"', "\"\"")));
        } else {
            self.cell(&harmless);
        }
    }

    fn cell(&mut self, written: &str) {
        self.0.push_str(written);
        self.0.push(',');
    }

    /// The line with its end.
    fn end(mut self) -> String {
        // The last comma is not a separator.
        self.0.pop();
        self.0.push_str("\r\n");
        self.0
    }
}

/// `text` with an apostrophe before each part that a spreadsheet may take for a formula.
fn harmless(text: &str) -> String {
    let mut harmless = String::with_capacity(text.len() + 1);
    if text.starts_with(['\t', '\r', '\n']) {
        harmless.push('\'');
    }
    let mut begins_cell = true;
    for character in text.chars() {
        if begins_cell && matches!(character, '=' | '+' | '-' | '@') {
            harmless.push('\'');
        }
        harmless.push(character);
        // A quote at the beginning of a cell is not part of its text.
        begins_cell = match character {
            ';' | '\t' | '\r' | '\n' => true,
            '"' => begins_cell,
            _ => false,
        };
    }
    harmless
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::usage::{UsageOrder, UsageTier};

    fn cell(text: &str) -> String {
        let mut line = CsvLine::default();
        line.text(text);
        line.end()
    }

    #[test]
    fn cells_are_quoted_and_harmless() {
        for (text, written) in [
            ("ann", "ann"),
            ("", ""),
            (" a b ", " a b "),
            ("a,b", "\"a,b\""),
            ("a\"b", "\"a\"\"b\""),
            ("a\r\nb", "\"a\r\nb\""),
            ("=1+1", "'=1+1"),
            ("+1", "'+1"),
            ("-1", "'-1"),
            ("@SUM(A1)", "'@SUM(A1)"),
            ("\t=1", "'\t'=1"),
            ("\r=1", "\"'\r'=1\""),
            ("\n=1", "\"'\n'=1\""),
            ("\tx", "'\tx"),
            ("a;=1", "a;'=1"),
            ("a;b", "a;b"),
            ("a;\"=1", "\"a;\"\"'=1\""),
            ("a\t@SUM(A1);-1", "a\t'@SUM(A1);'-1"),
            ("a\r\n+1", "\"a\r\n'+1\""),
            ("=HYPERLINK(\"x\",1)", "\"'=HYPERLINK(\"\"x\"\",1)\""),
            ("a=1", "a=1"),
            ("'=1", "'=1"),
        ] {
            assert_eq!(cell(text), format!("{written}\r\n"), "{text:?}");
        }
    }

    #[test]
    fn a_counter_has_a_line_per_tier() {
        let tier = |used: u64, window_seconds: f64| UsageTier {
            requests: 9_007_199_254_740_991,
            used,
            remaining: 9_007_199_254_740_991 - used,
            window_seconds,
            reset_after_seconds: 0.25,
        };
        let values = [("user", "=x"), ("path.id", "7")];
        let row = UsageRow {
            values: values.map(|(name, text)| (name.to_owned(), text.to_owned())).into(),
            cut: false,
            share: 0.5,
            tiers: vec![tier(1, 60.0), tier(2, 86_400.0)],
            counter: "weir:{x}".into(),
        };
        let page = UsagePage {
            domain: "d".into(),
            rule: "user,path=template:/{id}".into(),
            selector: None,
            algorithm: "fixed_window".into(),
            store: "redis".into(),
            order: UsageOrder::Name,
            columns: vec!["user".into(), "path.id".into()],
            names_read: 1,
            unreadable: 0,
            cursor: None,
            counters: vec![row],
        };
        assert_eq!(
            csv_header(&page.columns),
            "domain,rule,tier,window_seconds,requests,used,remaining,reset_after_seconds,counter,\
             cut,value.user,value.path.id\r\n"
        );
        assert_eq!(
            csv_rows(&page, &page.counters),
            "d,\"user,path=template:/{id}\",1,60,9007199254740991,1,9007199254740990,0.25,\
             weir:{x},false,'=x,7\r\n\
             d,\"user,path=template:/{id}\",2,86400,9007199254740991,2,9007199254740989,0.25,\
             weir:{x},false,'=x,7\r\n"
        );
    }
}
