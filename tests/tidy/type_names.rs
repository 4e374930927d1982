//! Names of types: no two types of the crate have the same one.

use std::collections::BTreeMap;

use super::{Source, blank, is_word};

/// Types whose names an earlier type of `src/` has. `tests` are the paths of test code, which may use
/// all names.
pub(crate) fn repeated(sources: &[Source], tests: &[String]) -> Vec<String> {
    let mut declared: BTreeMap<String, String> = BTreeMap::new();
    let mut problems = Vec::new();
    let code = sources.iter().filter(|source| {
        source.path.starts_with("src/")
            && source.path.ends_with(".rs")
            && !tests.contains(&source.path)
    });
    for source in code {
        for (number, line) in blank::code(&source.text).lines().enumerate() {
            let Some(name) = declaration(line) else { continue };
            let place = format!("{}:{}", source.path, number + 1);
            match declared.get(name) {
                Some(first) => problems.push(format!(
                    "{place}: {first} has a type `{name}` too; rename the one that fewer files \
                     use, or use one type for both"
                )),
                None => {
                    declared.insert(name.to_owned(), place);
                }
            }
        }
    }
    problems
}

/// The name of the type that `line` declares. An indented alias is an associated type, whose trait
/// names it.
fn declaration(line: &str) -> Option<&str> {
    let code = line.trim_start();
    let is_indented = code.len() < line.len();
    let item = match code.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => rest.split_once(')')?.1,
        Some(rest) => rest,
        None => code,
    };
    let item = item.trim_start();
    let (keyword, rest) = item.strip_prefix("unsafe ").unwrap_or(item).split_once(' ')?;
    let is_type = match keyword {
        "struct" | "enum" | "trait" | "union" => true,
        "type" => !is_indented,
        _ => false,
    };
    let name = &rest[..rest.find(|c: char| !is_word(c)).unwrap_or(rest.len())];
    (is_type && !name.is_empty()).then_some(name)
}

#[test]
fn a_declared_type_has_its_name() {
    let table = [
        ("struct Entry;", Some("Entry")),
        ("pub struct Entry<'a> {", Some("Entry")),
        ("pub(super) enum Entry {", Some("Entry")),
        ("pub(in crate::a) trait Entry: Send {", Some("Entry")),
        ("unsafe trait Entry {}", Some("Entry")),
        ("    struct Entry(u8);", Some("Entry")),
        ("type Entry = (u8, u8);", Some("Entry")),
        ("    type Item = Entry;", None),
        ("impl Entry {", None),
        ("    entry: Entry,", None),
        ("pub fn structure() -> Entry {", None),
        ("    struct $name {", None),
        ("", None),
    ];
    for (line, name) in table {
        assert_eq!(declaration(line), name, "{line}");
    }
}

#[test]
fn a_second_type_of_one_name_is_found() {
    let source = |path: &str, text: &str| Source { path: path.to_owned(), text: text.to_owned() };
    let first = || source("src/a.rs", "//! A noun.\npub struct Entry;");
    let found =
        |path: &str, text: &str, tests: &[String]| repeated(&[first(), source(path, text)], tests);
    let problems = found("src/m/b.rs", "struct Other;\n\ntype Entry = u8;", &[]);
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(problems[0].starts_with("src/m/b.rs:3: src/a.rs:2 has a type `Entry` too; "));
    for (path, text) in [
        ("src/m/b.rs", "struct Entries;\n// struct Entry;"),
        ("src/m/b.rs", "#[cfg(test)]\nmod tests {\n    struct Entry;\n}"),
        ("tests/it/b.rs", "struct Entry;"),
    ] {
        assert_eq!(found(path, text, &[]), Vec::<String>::new(), "{path} {text}");
    }
    let tests = ["src/m/b.rs".to_owned()];
    assert!(found("src/m/b.rs", "struct Entry;", &tests).is_empty());
}
