//! Compares docs/design/architecture.md with the modules and the threads of the code.

use std::collections::BTreeSet;

use super::dependencies::ALLOWED_DEPENDENCIES;
use super::tree::{pages, tree};

fn page() -> String {
    let found = pages().into_iter().find(|page| page.path == "docs/design/architecture.md");
    found.expect("docs/design/architecture.md").text
}

#[test]
fn the_architecture_names_every_module() {
    let page = page();
    let modules = ALLOWED_DEPENDENCIES.iter().map(|(module, _)| format!("`{module}`"));
    let missing: Vec<String> = modules.filter(|module| !page.contains(module)).collect();
    assert!(missing.is_empty(), "add to docs/design/architecture.md: {missing:?}");
}

#[test]
fn the_architecture_names_every_thread() {
    let page = page();
    let mut threads = BTreeSet::new();
    for source in tree().iter().filter(|source| source.path.starts_with("src/")) {
        threads.extend(thread_names(&source.text));
    }
    assert!(threads.len() > 10, "{threads:?}");
    let missing: Vec<&String> =
        threads.iter().filter(|name| !page.contains(&format!("`{name}"))).collect();
    assert!(missing.is_empty(), "add to docs/design/architecture.md: {missing:?}");
}

/// The names of threads among the literals of a file: `weir-` and a word. A number may follow.
fn thread_names(text: &str) -> Vec<String> {
    let literals = text.split("\"weir-").skip(1).filter_map(|rest| rest.split('"').next());
    let names = literals.map(|literal| literal.split("-{").next().unwrap_or_default());
    let is_word = |name: &&str| !name.is_empty() && name.bytes().all(|b| b.is_ascii_lowercase());
    names.filter(is_word).map(|name| format!("weir-{name}")).collect()
}

#[test]
fn thread_names_are_single_words() {
    let text = r#"a("weir-json"), b(format!("weir-worker-{index}")), C = "weir-xds-cache 1 ";"#;
    assert_eq!(thread_names(text), ["weir-json", "weir-worker"]);
}
