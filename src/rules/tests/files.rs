//! Files that load, and what is said about those that do not.

use super::*;

/// Renders all problems of a file without its name, one per line.
fn problems(text: &str) -> String {
    let (list, prefix) = match compiled(text, &Options::default()) {
        Ok((_, warnings)) => (warnings, "warning "),
        Err(errors) => (errors, ""),
    };
    let line = |problem: &Problem| {
        let text = problem.to_string();
        let text = text.strip_prefix("test.yaml").expect("the file is named first");
        format!("{prefix}{}\n", text.strip_prefix(':').unwrap_or(text))
    };
    list.iter().map(line).collect()
}

/// Splits the case file into (claim, yaml, expected problems).
fn cases(text: &str) -> Vec<(&str, &str, &str)> {
    let blocks = text.split("\n==== ").skip(1);
    let case = |block| {
        let (claim, rest) = str::split_once(block, '\n').expect("a claim, then the file");
        let (yaml, expected) = rest.split_once("====\n").expect("a line that ends the file");
        (claim, yaml, expected)
    };
    blocks.map(case).collect()
}

#[test]
fn every_case_reports_its_problems_with_places_and_hints() {
    let cases = cases(include_str!("../../../tests/data/rules/cases.txt"));
    assert!(cases.len() > 25, "the case file was read");
    for (claim, yaml, expected) in cases {
        assert_eq!(problems(yaml).trim_end(), expected.trim_end(), "{claim}");
    }
}
