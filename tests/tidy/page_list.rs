//! The two lists of pages: docs/README.md for readers of the tree, and docs/SUMMARY.md for the site.

use super::Source;
use super::tree::pages;

/// The most lines of the README. More do not fit a first look.
const README_LINES_MAX: usize = 120;

/// A page in a list: its section, its title and its path in `docs/`.
type Entry<'t> = (&'t str, &'t str, &'t str);

/// The pages that begin an item of a list.
fn entries(text: &str) -> Vec<Entry<'_>> {
    let mut section = "";
    let mut entries = Vec::new();
    for line in text.lines() {
        if line.starts_with('#') {
            section = line.trim_start_matches('#').trim();
        }
        let Some((title, rest)) = line.strip_prefix("- [").and_then(|item| item.split_once("]("))
        else {
            continue;
        };
        let path = rest.split(')').next().unwrap_or_default();
        if path.ends_with(".md") && !path.starts_with("../") {
            entries.push((section, title, path));
        }
    }
    entries
}

fn page<'p>(pages: &'p [Source], path: &str) -> &'p Source {
    pages.iter().find(|page| page.path == path).unwrap_or_else(|| panic!("{path} is missing"))
}

#[test]
fn the_list_of_pages_is_complete() {
    let pages = pages();
    let listed = entries(&page(&pages, "docs/README.md").text);
    let inside = pages.iter().filter_map(|page| page.path.strip_prefix("docs/"));
    let names: Vec<&str> = inside
        .filter(|name| name.ends_with(".md") && !["README.md", "SUMMARY.md"].contains(name))
        .collect();
    assert!(names.len() > 20, "the pages were not found: {names:?}");
    let is_listed = |name: &str| listed.iter().any(|(_, _, path)| *path == name);
    let missing: Vec<&str> = names.into_iter().filter(|name| !is_listed(name)).collect();
    assert!(missing.is_empty(), "add to docs/README.md: {missing:?}");
}

/// mdBook reads docs/SUMMARY.md, and leaves out pages that it lacks.
#[test]
fn the_site_has_the_listed_pages() {
    let pages = pages();
    let [listed, on_site] =
        ["docs/README.md", "docs/SUMMARY.md"].map(|path| entries(&page(&pages, path).text));
    assert_eq!(listed, on_site, "docs/README.md and docs/SUMMARY.md differ");
}

#[test]
fn the_readme_is_short() {
    let lines = page(&pages(), "README.md").text.lines().count();
    assert!(lines <= README_LINES_MAX, "README.md: {lines} lines, at most {README_LINES_MAX}");
}

#[test]
fn entries_are_the_first_links_of_items() {
    let text = "# Site\n[Overview](README.md)\n## A\n- [One](a/one.md): see [two](a/two.md)\n\
                - [Code](../x.md)\n- [Data](a/data.yaml)\n- [Two](a/two.md)\n";
    assert_eq!(entries(text), [("A", "One", "a/one.md"), ("A", "Two", "a/two.md")]);
}
