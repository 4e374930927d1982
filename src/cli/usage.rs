//! `weir usage`: lists or exports the counters of a rule of a running service, page by page.

use std::collections::HashSet;
use std::io::{self, Write};

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};

use super::admin_client::{AdminArgs, query_value};
use super::{exit, say_error};
use crate::escape::{escaped_json, one_line};
use crate::usage::{
    ROWS_MAX, RowSelection, UsageOrder, UsagePage, UsageRow, UsageTier, csv_header, csv_rows,
};

/// How often a page is requested while the service cannot read it. The service waits before it refuses.
const TRIES_MAX: u32 = 5;

/// Rows of the counters nearest their limit, without `--limit`.
const NEAREST_DEFAULT: u64 = 20;

#[derive(Debug, Args)]
pub(crate) struct UsageArgs {
    /// Namespace of the rules.
    #[arg(long)]
    domain: String,
    /// The rule, by its name or its selector. It needs `usage: true`.
    #[arg(long)]
    rule: String,
    /// Which counters: those nearest their limit, or all.
    #[arg(long, value_enum, default_value_t = OrderArg::Nearest)]
    order: OrderArg,
    /// The most counters [default: 20 nearest, or all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
    /// Only counters with at least this many used hits.
    #[arg(long, value_name = "HITS", default_value_t = 1)]
    min_used: u64,
    /// The form of the output.
    #[arg(long, value_enum, default_value_t = FormatArg::Text)]
    format: FormatArg,
    #[command(flatten)]
    admin: AdminArgs,
}

/// The counters to list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum OrderArg {
    /// The counters nearest their limit, the fullest first.
    Nearest,
    /// All counters. Each page of the service is sorted by name.
    Name,
}

/// The form of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum FormatArg {
    /// A line per tier, for people.
    Text,
    /// A JSON object per line, one per counter.
    Json,
    /// RFC 4180, a line per tier. A value that begins like a formula gets an apostrophe before it.
    Csv,
}

/// Prints the counters. Returns 69 if the service does not answer, or cannot read its store.
pub(super) fn run(args: &UsageArgs) -> anyhow::Result<u8> {
    let mut out = io::stdout().lock();
    let read = match args.order {
        OrderArg::Nearest => nearest(args, &mut out),
        OrderArg::Name => all(args, &mut out),
    };
    match read {
        Ok(()) => Ok(0),
        Err(Failure::Output(error)) => Err(error.into()),
        Err(Failure::Refused(reason)) => bail!("{reason}"),
        Err(Failure::Unavailable(error)) => {
            say_error(&error);
            Ok(exit::UNAVAILABLE)
        }
    }
}

/// Why the counters were not printed.
enum Failure {
    /// The output was closed.
    Output(io::Error),
    /// The service refused the request.
    Refused(String),
    /// The service did not answer, or its store failed.
    Unavailable(anyhow::Error),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure::Output(error)
    }
}

/// Prints the counters nearest their limit of all pages.
fn nearest(args: &UsageArgs, out: &mut impl Write) -> Result<(), Failure> {
    let limit = args.limit.unwrap_or(NEAREST_DEFAULT);
    let limit = usize::try_from(limit).ok().filter(|limit| *limit <= ROWS_MAX);
    let Some(limit) = limit else {
        let reason = format!("--limit: write at most {ROWS_MAX}, or use --order name");
        return Err(Failure::Refused(reason));
    };
    let mut selection = RowSelection::new(UsageOrder::Nearest, limit, args.min_used);
    let mut first: Option<UsagePage> = None;
    let mut pages = UsagePages::new(args, limit);
    while let Some(mut page) = pages.next()? {
        page.counters.drain(..).for_each(|row| selection.add(row));
        first.get_or_insert(page);
    }
    let Some(page) = first else { return Ok(()) };
    let rows = selection.finish();
    write_head(args.format, &page, out)?;
    write_rows(args.format, &page, &rows, out)?;
    Ok(())
}

/// Prints all counters, each page when it has arrived.
fn all(args: &UsageArgs, out: &mut impl Write) -> Result<(), Failure> {
    let mut left =
        args.limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
    let (mut is_first, mut pages) = (true, UsagePages::new(args, left.min(ROWS_MAX)));
    while left > 0
        && let Some(mut page) = pages.next()?
    {
        if std::mem::take(&mut is_first) {
            write_head(args.format, &page, out)?;
        }
        let mut rows = std::mem::take(&mut page.counters);
        rows.truncate(left);
        left -= rows.len();
        write_rows(args.format, &page, &rows, out)?;
        out.flush()?;
    }
    Ok(())
}

/// The pages of the service.
struct UsagePages<'a> {
    args: &'a UsageArgs,
    limit: usize,
    /// The cursor of the next page; `None` after the last one.
    cursor: Option<String>,
    /// Counters that were read. The service may repeat one whose name is renewed meanwhile.
    seen: HashSet<String>,
}

impl<'a> UsagePages<'a> {
    fn new(args: &'a UsageArgs, limit: usize) -> UsagePages<'a> {
        UsagePages { args, limit, cursor: Some(String::new()), seen: HashSet::new() }
    }

    /// The next page, without counters of earlier ones. `None` after the last one.
    fn next(&mut self) -> Result<Option<UsagePage>, Failure> {
        let Some(cursor) = &self.cursor else { return Ok(None) };
        let UsageArgs { domain, rule, order, min_used, admin, .. } = self.args;
        let order = match order {
            OrderArg::Nearest => "nearest",
            OrderArg::Name => "name",
        };
        let path = format!(
            "/usage?domain={}&rule={}&order={order}&limit={}&min_used={min_used}&cursor={cursor}",
            query_value(domain),
            query_value(rule),
            self.limit,
        );
        let mut tries = 1;
        let answer = loop {
            let answer = admin.send("GET", &path, &[], None).map_err(Failure::Unavailable)?;
            if answer.status != 503 || tries >= TRIES_MAX {
                break answer;
            }
            tries += 1;
        };
        if answer.status != 200 {
            let reason = answer.reason();
            return Err(match answer.status {
                503 => Failure::Unavailable(anyhow::Error::msg(reason)),
                _ => Failure::Refused(reason),
            });
        }
        let page = serde_json::from_value::<UsagePage>(answer.body);
        let page = page.context("this is no page of /usage; use the version of the service");
        let mut page = page.map_err(Failure::Unavailable)?;
        page.counters.retain(|row| self.seen.insert(row.counter.clone()));
        self.cursor = page.cursor.clone();
        Ok(Some(page))
    }
}

/// Prints what comes before the rows.
fn write_head(format: FormatArg, page: &UsagePage, out: &mut impl Write) -> io::Result<()> {
    match format {
        FormatArg::Text => {
            let UsagePage { domain, rule, algorithm, store, .. } = page;
            let (domain, rule) = (one_line(domain), one_line(rule));
            writeln!(out, "rule {rule} of domain {domain}, {algorithm}, counters in {store}")
        }
        FormatArg::Csv => out.write_all(csv_header(&page.columns).as_bytes()),
        FormatArg::Json => Ok(()),
    }
}

fn write_rows(
    format: FormatArg,
    page: &UsagePage,
    rows: &[UsageRow],
    out: &mut impl Write,
) -> io::Result<()> {
    match format {
        FormatArg::Text => rows.iter().try_for_each(|row| write_text(page, row, out)),
        FormatArg::Csv => out.write_all(csv_rows(page, rows).as_bytes()),
        FormatArg::Json => rows.iter().try_for_each(|row| {
            let row = serde_json::to_string(row)?;
            writeln!(out, "{}", escaped_json(&row))
        }),
    }
}

/// Prints a line per tier: the share, the hits, and the values of the counter.
fn write_text(page: &UsagePage, row: &UsageRow, out: &mut impl Write) -> io::Result<()> {
    let value = |column: &String| {
        let text = row.values.get(column).map_or("", String::as_str);
        format!("{}={}", one_line(column), one_line(text))
    };
    let values: Vec<String> = page.columns.iter().map(value).collect();
    let cut = if row.cut { " (cut)" } else { "" };
    for tier in &row.tiers {
        let UsageTier { requests, used, remaining, window_seconds, reset_after_seconds } = tier;
        writeln!(
            out,
            "{:>4.0} %  {used} of {requests} per {window_seconds} s, {remaining} remaining, resets \
             in {reset_after_seconds} s  {}{cut}",
            100.0 * row.share,
            values.join(",")
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page() -> UsagePage {
        let tier = UsageTier {
            requests: 8,
            used: 6,
            remaining: 2,
            window_seconds: 60.0,
            reset_after_seconds: 1.5,
        };
        let row = UsageRow {
            values: [("user".to_owned(), "=a\n\u{202e}".to_owned())].into(),
            cut: true,
            share: 0.75,
            tiers: vec![tier],
            counter: "c".to_owned(),
        };
        UsagePage {
            domain: "d".to_owned(),
            rule: "user".to_owned(),
            selector: None,
            algorithm: "fixed_window".to_owned(),
            store: "memory".to_owned(),
            order: UsageOrder::Nearest,
            columns: vec!["user".to_owned()],
            names_read: 1,
            unreadable: 0,
            cursor: None,
            counters: vec![row],
        }
    }

    fn shown(format: FormatArg) -> String {
        let (page, mut out) = (page(), Vec::new());
        write_head(format, &page, &mut out).expect("memory");
        write_rows(format, &page, &page.counters, &mut out).expect("memory");
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn a_counter_has_a_line_in_every_form() {
        assert_eq!(
            shown(FormatArg::Text),
            "rule user of domain d, fixed_window, counters in memory\n  \
             75 %  6 of 8 per 60 s, 2 remaining, resets in 1.5 s  user==a\\n\\u{202e} (cut)\n"
        );
        let json: UsageRow = serde_json::from_str(&shown(FormatArg::Json)).expect("one object");
        assert_eq!(json, page().counters[0]);
        let csv = shown(FormatArg::Csv);
        assert!(csv.ends_with(",true,\"'=a\n\u{202e}\"\r\n"), "{csv}");
        assert_eq!(csv.matches("\r\n").count(), 2);
    }
}
