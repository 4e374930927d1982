//! Words and names that the tree must not contain, in every text file that people read.

use super::Source;

/// Words and phrases that readers stumbled over, and what to say instead. Their case does not
/// matter, and parts of identifiers are words too.
const BANNED: &[(&str, &str)] = &[
    ("anew", "again"),
    ("anybody", "any client"),
    ("beyond", "over, after or outside"),
    ("company", "batch"),
    ("crowd", "load or clients"),
    ("dice", "rng"),
    ("ears", "file events"),
    ("farewell", "shutdown"),
    ("in force", "active"),
    ("incumbent", "envoyproxy/ratelimit"),
    ("keeper", "what it does: discovery"),
    ("lane", "connection or shard"),
    ("lanes", "connections or shards"),
    ("mend", "correct or fix"),
    ("mended", "corrected or fixed"),
    ("mends", "corrects or fixes"),
    ("nobody", "no client, or a passive"),
    ("of its own", "its own"),
    ("of their own", "their own"),
    ("patience", "timeout"),
    ("perhaps", "possibly, or the condition"),
    ("seat", "slot or permit"),
    ("seats", "slots or permits"),
    ("shall", "must"),
    ("so long", "as long as, or the duration"),
    ("so many", "the number"),
    ("somebody", "the client or the component"),
    ("stranger", "unknown"),
    ("strangers", "untrusted clients"),
    ("tat", "gcra"),
    ("told", "reported, set or received"),
    ("whoever", "the client or the component"),
];

/// Paths with a banned word that must stay: the word, and the reason.
const EXCEPTIONS: &[(&str, &str, &str)] = &[
    ("src/step.rs", "tat", "the abbreviation of GCRA's theoretical arrival time"),
    ("src/step/gcra.rs", "tat", "the abbreviation of GCRA's theoretical arrival time"),
];

/// Files that list the words.
const LISTS: &[&str] = &["tests/tidy/prose.rs"];

/// Longest name of a test function. Its doc comment has the details.
const TEST_NAME_MAX: usize = 50;

/// Lines with a banned word.
pub(crate) fn banned_words(source: &Source) -> Vec<String> {
    let path = source.path.as_str();
    let mut problems = Vec::new();
    if LISTS.contains(&path) {
        return problems;
    }
    for (number, line) in source.text.lines().enumerate() {
        let flat = words(line);
        for (word, better) in BANNED {
            let mut exceptions = EXCEPTIONS.iter();
            let excepted = exceptions.any(|(at, what, _)| *at == path && what == word);
            if !excepted && flat.contains(&format!(" {word} ")) {
                problems.push(format!("{path}:{}: not `{word}`; say {better}", number + 1));
            }
        }
    }
    problems
}

/// The words of a line in lower case, each between single spaces. Identifiers are split at `_` and
/// before capitals.
fn words(line: &str) -> String {
    let mut flat = String::from(" ");
    let mut before = ' ';
    for c in line.chars() {
        let starts_word = before.is_lowercase() && c.is_uppercase();
        if (starts_word || !c.is_alphanumeric()) && !flat.ends_with(' ') {
            flat.push(' ');
        }
        if c.is_alphanumeric() {
            flat.extend(c.to_lowercase());
        }
        before = c;
    }
    flat.push(' ');
    flat
}

/// Test functions whose names are too long.
pub(crate) fn test_names(source: &Source) -> Vec<String> {
    let mut problems = Vec::new();
    let mut lines = source.text.lines().enumerate();
    while let Some((_, line)) = lines.next() {
        let line = line.trim_start();
        if !line.starts_with("#[test]") && !line.starts_with("#[tokio::test") {
            continue;
        }
        let name = |line: &str| -> Option<String> {
            let (_, rest) = line.split_once("fn ")?;
            rest.split_once('(').map(|(name, _)| name.to_owned())
        };
        let found = lines.find_map(|(number, line)| Some((number + 1, name(line)?)));
        let Some((number, name)) = found else { break };
        let length = name.chars().count();
        if length > TEST_NAME_MAX {
            problems.push(format!(
                "{}:{number}: `{name}` has {length} characters, at most {TEST_NAME_MAX}",
                source.path
            ));
        }
    }
    problems
}

#[test]
fn banned_words_are_found_in_prose_and_names() {
    let found =
        |text: &str| banned_words(&Source { path: "src/x.rs".to_owned(), text: text.to_owned() });
    for text in ["It was told.", "let told_id;", "struct ToldId;", "TOLD", "rules In  force,"] {
        assert_eq!(found(text).len(), 1, "{text}");
    }
    for text in ["untold", "reinforced", "enforce", "a mending", "in forced"] {
        assert_eq!(found(text), Vec::<String>::new(), "{text}");
    }
    assert_eq!(found("a\ntold"), ["src/x.rs:2: not `told`; say reported, set or received"]);
}

#[test]
fn long_test_names_are_found() {
    let found = |length: usize| {
        let name = "a".repeat(length);
        let text =
            format!("#[tokio::test(start_paused = true)]\nasync fn {name}() {{}}\nfn f() {{}}");
        test_names(&Source { path: "tests/x.rs".to_owned(), text })
    };
    assert!(found(50).is_empty());
    assert!(found(51)[0].starts_with("tests/x.rs:2: "), "{:?}", found(51));
}
