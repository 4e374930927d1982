//! The files of the tree that the rules read.

use std::path::{Path, PathBuf};

/// A file of the tree.
pub(crate) struct Source {
    /// The path from the root, with `/`.
    pub(crate) path: String,
    pub(crate) text: String,
}

/// Folders with code.
const CODE: &str = "src crates tests benches fuzz/fuzz_targets fuzz/src proto lua";
/// Folders with text for people, in addition to their code.
const PAGES: &str = "docs book helm examples tests lua proto fuzz ui .github .ci";
/// Single files with text for people.
const SINGLE: &[&str] = &[
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "SECURITY.md",
    "CODE_OF_CONDUCT.md",
    "CITATION.cff",
    "rust-toolchain.toml",
    "Makefile",
    "Dockerfile",
    "Cargo.toml",
    "book.toml",
    "deny.toml",
    ".ci/run",
];
/// Ends of the names of pages.
const PAGE_ENDS: &str = "md yaml yml py js html css table txt json sh tpl toml";

/// All Rust and Lua files.
pub(crate) fn tree() -> Vec<Source> {
    let mut sources = Vec::new();
    for folder in CODE.split(' ') {
        collect(&root().join(folder), &["rs", "lua"], &mut sources);
    }
    sources
}

/// Documentation, charts, examples, test data and the build's own files.
pub(crate) fn pages() -> Vec<Source> {
    let mut sources = Vec::new();
    let ends: Vec<&str> = PAGE_ENDS.split(' ').collect();
    for folder in PAGES.split(' ') {
        collect(&root().join(folder), &ends, &mut sources);
    }
    sources.extend(SINGLE.iter().filter_map(|name| read(&root().join(name))));
    sources
}

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn collect(folder: &Path, ends: &[&str], sources: &mut Vec<Source>) {
    // A folder that does not exist has no files.
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    for path in paths {
        let end = path.extension().and_then(|end| end.to_str()).unwrap_or_default();
        if path.is_dir() {
            // Written by builds, by fuzzing and by npm.
            if !["target", "corpus", "node_modules"].iter().any(|name| path.ends_with(name)) {
                collect(&path, ends, sources);
            }
        } else if ends.contains(&end) {
            sources.extend(read(&path));
        }
    }
}

fn read(path: &Path) -> Option<Source> {
    let text = std::fs::read_to_string(path).ok()?;
    let below = path.strip_prefix(root()).expect("a path in the tree");
    Some(Source { path: below.to_string_lossy().replace('\\', "/"), text })
}
