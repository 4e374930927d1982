//! Links between pages: each leads to a file or folder of the tree, and each anchor to a heading.

use std::collections::HashMap;

use super::Source;
use super::tree::{pages, root};

#[test]
fn every_link_and_every_anchor_exists() {
    let pages = pages();
    let pages: Vec<&Source> = pages.iter().filter(|page| page.path.ends_with(".md")).collect();
    let number: usize = pages.iter().map(|page| links(&page.text).len()).sum();
    assert!(pages.len() > 20 && number > 200, "{} pages, {number} links", pages.len());
    let problems: Vec<String> = pages.iter().flat_map(|page| broken_links(page, &find)).collect();
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// The text of a page, an empty text for another file or a folder, or `None` if there is nothing.
fn find(path: &str) -> Option<String> {
    let file = root().join(path);
    match path.ends_with(".md") {
        true => std::fs::read_to_string(file).ok(),
        false => file.exists().then(String::new),
    }
}

/// The links of a page that lead nowhere. Links to other sites are not followed.
fn broken_links(page: &Source, find: &dyn Fn(&str) -> Option<String>) -> Vec<String> {
    let mut problems = Vec::new();
    for (line, target) in links(&page.text) {
        if target.contains("://") || target.starts_with("mailto:") {
            continue;
        }
        let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
        let path = match file {
            "" => Some(page.path.clone()),
            _ => resolve(&page.path, file),
        };
        let problem = match path.and_then(|path| find(&path)) {
            None => "no such file",
            Some(text) if !anchor.is_empty() && !anchors(&text).iter().any(|it| it == anchor) => {
                "no such heading"
            }
            Some(_) => continue,
        };
        problems.push(format!("{}:{line}: {target}: {problem}", page.path));
    }
    problems
}

/// `target` in the folder of `page`, as a path from the root. `None` if it leaves the tree.
fn resolve(page: &str, target: &str) -> Option<String> {
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// The lines of a page outside of fenced blocks, with their numbers.
fn prose(text: &str) -> Vec<(usize, &str)> {
    let mut lines = Vec::new();
    let mut is_code = false;
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        } else if !is_code {
            lines.push((index + 1, line));
        }
    }
    lines
}

/// The targets of links and images, with the numbers of their lines.
fn links(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    for (number, line) in prose(text) {
        let targets = line.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        found.extend(targets.map(|target| (number, target)));
    }
    found
}

/// The anchors of the headings of a page, as GitHub and mdBook make them: in lower case, with dashes
/// for blanks and without punctuation. A repeated one ends with its number.
fn anchors(text: &str) -> Vec<String> {
    let mut times: HashMap<String, usize> = HashMap::new();
    let mut anchors = Vec::new();
    for heading in prose(text).into_iter().filter_map(|(_, line)| heading(line)) {
        let plain = heading.trim().to_lowercase().replace(' ', "-");
        let is_kept = |c: &char| c.is_alphanumeric() || matches!(c, '-' | '_');
        let anchor: String = plain.chars().filter(is_kept).collect();
        let before = times.entry(anchor.clone()).or_default();
        anchors.push(if *before == 0 { anchor } else { format!("{anchor}-{before}") });
        *before += 1;
    }
    anchors
}

/// The text of a heading.
fn heading(line: &str) -> Option<&str> {
    let text = line.trim_start_matches('#');
    let level = line.len() - text.len();
    text.strip_prefix(' ').filter(|_| (1..=6).contains(&level))
}

#[test]
fn anchors_are_those_of_github() {
    let text = "# A page\n```sh\n# no heading\n```\n## `a_b`: why, and *when*?\n### x\n#x\n## X\n";
    assert_eq!(anchors(text), ["a-page", "a_b-why-and-when", "x", "x-1"]);
}

#[test]
fn broken_links_are_found() {
    let find = |path: &str| match path {
        "pages/a/page.md" | "pages/b/other.md" => Some("# One\n## Two\n".to_owned()),
        "examples" | "pages/picture.svg" => Some(String::new()),
        _ => None,
    };
    let found = |text: &str| {
        broken_links(&Source { path: "pages/a/page.md".to_owned(), text: text.to_owned() }, &find)
    };
    for text in [
        "[a](page.md), [b](#two), [c](../b/other.md#one), [d](../../examples)",
        "![e](../picture.svg) and [f](https://a.example/b#c)",
        "```\n[g](missing.md)\n```",
        "[a link\nof two lines](../b/other.md)",
    ] {
        assert_eq!(found(text), Vec::<String>::new(), "{text}");
    }
    for (text, problem) in [
        ("[a](other.md)", "pages/a/page.md:1: other.md: no such file"),
        ("\n![a](picture.svg)", "pages/a/page.md:2: picture.svg: no such file"),
        ("[a](#three)", "pages/a/page.md:1: #three: no such heading"),
        ("[a](../b/other.md#three)", "pages/a/page.md:1: ../b/other.md#three: no such heading"),
        ("[a](../../examples#x)", "pages/a/page.md:1: ../../examples#x: no such heading"),
        ("[a](../../../examples)", "pages/a/page.md:1: ../../../examples: no such file"),
    ] {
        assert_eq!(found(text), [problem]);
    }
}
