//! Checks that the prose of pages is wrapped.

use super::Source;
use super::tree::{pages, tree};

/// The most columns of a line of prose. Pages are wrapped at about 100.
const COLUMNS_MAX: usize = 110;

/// Generated pages.
const GENERATED: &[&str] = &["docs/design/performance.md", "docs/reference/settings.md"];

#[test]
fn the_prose_of_pages_is_wrapped() {
    let (sources, pages) = (tree(), pages());
    let is_written =
        |page: &&Source| page.path.ends_with(".md") && !GENERATED.contains(&page.path.as_str());
    let written: Vec<&Source> = sources.iter().chain(&pages).filter(is_written).collect();
    assert!(written.len() > 20, "{} pages were found", written.len());
    let problems: Vec<String> = written.into_iter().flat_map(wide_lines).collect();
    assert!(problems.is_empty(), "wrap these lines:\n{}", problems.join("\n"));
}

/// The lines of prose that are too wide. Code, rows of tables, and lines with an address have no
/// limit.
fn wide_lines(page: &Source) -> Vec<String> {
    let mut problems = Vec::new();
    let mut is_code = false;
    for (number, line) in page.text.lines().enumerate() {
        let start = line.trim_start();
        if start.starts_with("```") {
            is_code = !is_code;
        }
        let columns = line.chars().count();
        let is_prose = !is_code && !start.starts_with('|') && !line.contains("://");
        if is_prose && columns > COLUMNS_MAX {
            let (path, number) = (&page.path, number + 1);
            problems.push(format!("{path}:{number}: {columns} columns, at most {COLUMNS_MAX}"));
        }
    }
    problems
}

#[test]
fn wide_lines_of_prose_are_found() {
    let found = |text: &str| {
        wide_lines(&Source { path: "docs/README.md".to_owned(), text: text.to_owned() })
    };
    let wide = "a ".repeat(56);
    assert_eq!(found(&format!("a\n{wide}")), ["docs/README.md:2: 112 columns, at most 110"]);
    assert_eq!(found(&format!("```sh\n{wide}\n```\n{wide}")).len(), 1, "after the code");
    for text in [
        "\u{b5}".repeat(110),
        format!("```sh\n{wide}\n```"),
        format!("| {wide} |"),
        format!("[a](https://a.example), {wide}"),
    ] {
        assert_eq!(found(&text), Vec::<String>::new(), "{text}");
    }
}
