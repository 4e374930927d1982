//! Compares the log lines of `src/` with the table "The log" of docs/operate/logs.md.

use std::collections::BTreeSet;

use super::tree::{pages, tree};

/// Levels that `log.level: info` shows.
const MACROS: [&str; 3] = ["tracing::info!(", "tracing::warn!(", "tracing::error!("];

#[test]
fn the_log_table_lists_every_line() {
    let sources = tree();
    let code = sources
        .iter()
        .filter(|source| source.path.starts_with("src/") && !source.path.contains("/tests"));
    let written: BTreeSet<String> = code.flat_map(|source| messages(&source.text)).collect();
    assert!(written.len() > 20, "the lines were not found: {written:?}");
    let pages = pages();
    let page = pages.iter().find(|page| page.path == "docs/operate/logs.md").expect("the page");
    let listed = listed(&page.text);
    let unlisted: Vec<_> = written.difference(&listed).collect();
    let unwritten: Vec<_> = listed.difference(&written).collect();
    assert!(unlisted.is_empty(), "add to the table of docs/operate/logs.md: {unlisted:?}");
    assert!(unwritten.is_empty(), "in docs/operate/logs.md, but never logged: {unwritten:?}");
}

/// The constant starts of the messages in `text`, without its tests.
fn messages(text: &str) -> Vec<String> {
    let text = &text[..text.find("#[cfg(test)]\nmod tests {").unwrap_or(text.len())];
    let calls = MACROS.iter().flat_map(|name| text.match_indices(name));
    let literals = calls.filter_map(|(at, name)| text[at + name.len()..].split('"').nth(1));
    literals.map(start).filter(|start| !start.is_empty()).collect()
}

/// The first column of the table's rows. A row may list several lines.
fn listed(page: &str) -> BTreeSet<String> {
    let section = page.split("## The log\n").nth(1).expect("the section");
    let section = section.split("\n## ").next().expect("its text");
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `"));
    let cells = rows.filter_map(|row| row.split(" |").next());
    cells.flat_map(|cell| cell.trim_end_matches('`').split("`, `")).map(start).collect()
}

/// The message up to its first variable part or explanation.
fn start(message: &str) -> String {
    message.split([':', ';', '{']).next().unwrap_or_default().trim().to_owned()
}
