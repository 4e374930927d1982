//! Violations: each rule must report a file that breaks it.

use super::{Source, blank, dependencies_and_words, shape, test_files, twins};

/// A valid header, for files whose body is tested.
const HEAD: &str = "//! A noun.\n";

fn source(path: &str, body: &str) -> Source {
    Source { path: path.to_owned(), text: format!("{HEAD}{body}") }
}

fn check(source: &Source) -> Vec<String> {
    [shape(source), dependencies_and_words(source)].concat()
}

#[test]
fn every_violation_is_found_at_its_line() {
    let table = [
        ("src/step/x.rs", "use crate::rules::Rule;", "src/step/x.rs:2: dependency step -> rules"),
        ("src/step.rs", "use crate::{time::A, store::{B}};", ":2: dependency step -> store"),
        ("src/step.rs", "use crate::{\n    time::A,\n    limiter,\n};", "step -> limiter"),
        ("src/key.rs", "fn f() { super::store::g() }", ":2: dependency key -> store"),
        ("src/rules/a.rs", "\nuse super::super::store;", ":3: dependency rules -> store"),
        ("src/main.rs", "fn main() { weir::server::run() }", ":2: dependency main -> server"),
        ("src/novel.rs", "", "module `novel` has no row"),
        ("src/server/x.rs", "fn f() { Instant::now(); }", ":2: `Instant::now` is not allowed"),
        ("src/limiter.rs", "fn f() { std::time::SystemTime::now(); }", "`SystemTime::now`"),
        ("src/store/x.rs", "fn f() { tokio::time::Instant::now(); }", "`Instant::now`"),
        ("src/algorithm/x.rs", "async fn f() { g().await }", "`.await` is not allowed"),
        ("src/rules/lookup/tree.rs", "fn f() { tracing::info!(1) }", "`tracing::` is not allowed"),
        ("src/rules/file/x.rs", "use saphyr_parser::Parser;", "`saphyr_parser::` is not allowed"),
        ("src/cli/explain.rs", "use crate::proto::Code;", "`crate::proto` is not allowed"),
        ("src/limiter/x.rs", "use tonic::Status;", "`tonic::` is not allowed"),
        ("src/server/x.rs", "fn f() { std::env::var(1); }", "`env::var` is not allowed"),
        ("src/store/x.rs", "fn f() { todo!() }", "`todo!` is not allowed"),
        ("src/rules/mod.rs", "", "`mod` does not describe"),
        ("tests/it/utils.rs", "", "`utils` does not describe"),
    ];
    for (path, body, part) in table {
        let problems = check(&source(path, body));
        assert_eq!(problems.len(), 1, "{path} {body}: {problems:?}");
        assert!(problems[0].contains(part), "{path} {body}: {problems:?}");
    }
}

#[test]
fn size_and_head_are_measured() {
    let long = source("src/time.rs", &"\n".repeat(400));
    assert!(check(&long)[0].contains("401 lines, at most 400"));
    assert!(check(&source("src/time.rs", &"\n".repeat(399))).is_empty());
    let wide = source("tests/x.rs", &format!("// a\nconst X: u8 = {};", "1".repeat(90)));
    assert!(check(&wide)[0].starts_with("tests/x.rs:3: 105 columns, at most 100"));
    let wide = source("src/time.rs", &format!("// {}", "\u{b5}".repeat(118)));
    assert!(check(&wide)[0].starts_with("src/time.rs:2: 121 columns, at most 120"));
    let without_header = Source { path: "src/time.rs".to_owned(), text: "fn f() {}".to_owned() };
    assert!(check(&without_header)[0].starts_with("src/time.rs:1: start with"));
}

#[test]
fn allowed_code_is_not_reported() {
    let table = [
        ("src/time.rs", "fn f() { Instant::now(); SystemTime::now(); }"),
        ("src/limiter/x.rs", "use crate::{rules::RuleSet, store::SharedStore};"),
        ("src/step/x.rs", "// crate::rules and .await\nconst A: &str = \"Instant::now\";"),
        ("src/step/x.rs", "const A: &str = r#\"crate::rules\"#; const B: char = '\"';"),
        ("src/step/x.rs", "fn f<'a>(a: &'a str) {}\n#[cfg(test)]\nmod t { use crate::rules; }"),
        ("src/limiter.rs", "async fn f() { g().await }"),
        ("src/step/x.rs", "use crate::step::y; use super::z; use other_crate::rules;"),
        ("src/rules/x.rs", "use super::store;"),
        ("src/main.rs", "fn main() { weir::cli::run() }"),
        ("src/cli/call.rs", "use crate::proto::Code;"),
    ];
    for (path, body) in table {
        let problems = check(&source(path, body));
        assert!(problems.is_empty(), "{path} {body}: {problems:?}");
    }
}

#[test]
fn only_declared_test_files_are_exempt() {
    let step = source("src/step.rs", "#[cfg(test)]\nmod laws;\nmod count;\n#[cfg(test)] mod t {}");
    let below = ["laws", "laws/deep", "fixed_window", "lawsuit", "t"];
    let mut sources = vec![step];
    sources.extend(below.map(|stem| source(&format!("src/step/{stem}.rs"), "")));
    assert_eq!(test_files(&sources), ["src/step/laws.rs", "src/step/laws/deep.rs"]);
}

#[test]
fn a_missing_lua_twin_is_reported() {
    let rust = || source("src/step/fixed_window.rs", "");
    let lua = |name: &str| Source { path: format!("lua/{name}.lua"), text: String::new() };
    assert!(twins(&[rust()]).is_empty());
    assert!(twins(&[rust(), lua("fixed_window")]).is_empty());
    assert_eq!(
        twins(&[rust(), lua("fixed_window"), lua("gcra")]),
        ["lua/gcra: its twin src/step/gcra.rs is missing"]
    );
    assert_eq!(twins(&[rust(), lua("gcra")]).len(), 2);
    let ledger = || source("src/quota/ledger.rs", "");
    assert!(twins(&[ledger(), lua("quota")]).is_empty());
    let missing = ["lua/quota: its twin src/quota/ledger.rs is missing"];
    assert_eq!(twins(&[lua("quota")]), missing);
    let missing = ["src/quota/ledger.rs: its twin lua/quota.lua is missing"];
    assert_eq!(twins(&[ledger(), rust(), lua("fixed_window")]), missing);
}

#[test]
fn blanking_keeps_positions() {
    let text = "a(\"x\\\"y\"); // z\nb('\\'', 'q', &'l c); /* d\n */ e r\"f\" br#\"g\"h\"#;\n";
    let code = blank::code(text);
    assert_eq!(code.len(), text.len());
    assert_eq!(
        code.split_whitespace().collect::<Vec<_>>(),
        ["a(", ");", "b(", ",", ",", "&'l", "c);", "e", ";"]
    );
    assert_eq!(code.matches('\n').count(), text.matches('\n').count());
}
