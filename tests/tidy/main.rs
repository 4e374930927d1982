//! Checks the house rules that the compiler cannot check: dependencies between modules, banned
//! calls, sizes, names, and pairs of Rust and Lua files.
//!
//! Each rule is a row of a table below, and each message names the place and the row. To change a
//! rule, change its row in a commit that explains why.

use std::path::Path;

mod architecture_page;
mod blank;
mod cycles;
mod dependencies;
mod log_lines;
mod page_links;
mod page_list;
mod page_width;
mod paths;
mod prose;
mod pure;
mod tree;
mod type_names;
mod ui_files;
mod violations;

use dependencies::ALLOWED_DEPENDENCIES;
use paths::paths;
use pure::PURE_MODULES;
use tree::{Source, pages, tree};

/// The modules in which a word may or may not occur, with everything below them.
enum Where {
    Only(&'static [&'static str]),
    Not(&'static [&'static str]),
}

/// Modules that use gRPC: one adapter of the server, and the clients.
const USES_GRPC: &[&str] = &[
    "src/server/grpc/tonic_services",
    "src/cli",
    "src/telemetry",
    "src/xds/client",
    "crates/weir-tower/src",
];

/// Restricted words: the word, the modules where it may occur, and why. Test code may use all
/// words.
const WORDS: &[(&str, Where, &str)] = &[
    ("SystemTime::now", Where::Only(&["src/time"]), "time is an argument; only a Clock reads it"),
    (
        "Instant::now",
        // Connection timeouts use tokio's clock, which decides no request; a load generator
        // measures.
        Where::Only(&[
            "src/time",
            "src/server/grpc/io",
            "crates/weir-bench/src",
            "crates/weir-http2/src/server",
        ]),
        "time is an argument; only a Clock reads it",
    ),
    ("thread::sleep", Where::Only(&[]), "a sleeping thread serves no call"),
    (".await", Where::Not(PURE_MODULES), "decisions are pure functions"),
    ("tracing::", Where::Not(PURE_MODULES), "decisions are pure functions"),
    ("println!", Where::Only(&["src/cli", "src/main"]), "only the command line prints"),
    ("eprintln!", Where::Only(&["src/cli", "src/main"]), "only the command line prints"),
    ("dbg!", Where::Only(&[]), "left over"),
    ("doc(hidden)", Where::Only(&[]), "what is public for tests alone needs the feature `fuzz`"),
    ("todo!", Where::Only(&[]), "unfinished"),
    ("saphyr_parser::", Where::Only(&["src/yaml"]), "one file parses YAML"),
    (
        "crate::proto",
        Where::Only(&[
            "src/server",
            "src/cli/call",
            "src/cli/health",
            "src/rules/xds",
            "src/rlqs",
            "src/xds/client",
            "src/proto",
        ]),
        "edge only",
    ),
    (
        "tonic::",
        Where::Only(USES_GRPC),
        "edge only: one adapter of the server, the commands, the exporter, the xDS client, and the \
         tower layer",
    ),
    (
        "h2::",
        Where::Only(&["src/cli", "crates/weir-bench/src"]),
        "clients only: the server is weir-http2",
    ),
    ("weir_http2::", Where::Only(&["src/server/grpc"]), "one module serves gRPC"),
    ("tonic::codegen", Where::Only(&[]), "tonic hides it: it is for generated code"),
    ("opentelemetry", Where::Only(&["src/telemetry"]), "one folder sends to collectors"),
    ("weir_bench::", Where::Only(&["src/cli/bench"]), "only one command puts load on a service"),
    ("axum::", Where::Only(&["src/server"]), "edge only"),
    ("config::", Where::Only(&["src/settings"]), "settings are read in one place"),
    ("env::var", Where::Only(&["src/settings"]), "settings are read in one place"),
];

/// File stems that do not describe the content.
const EMPTY_NAMES: &[&str] =
    &["mod", "util", "utils", "common", "helper", "helpers", "types", "misc", "manager"];

/// Files of `lua/` whose twin is not in `src/step/`, with its path.
const TWINS_ELSEWHERE: &[(&str, &str)] = &[
    ("quota", "src/quota/ledger.rs"),
    ("repeated", "src/store/redis/batch/repeated.rs"),
    ("short_log", "src/step/entries.rs"),
];

/// Files of `src/step/` and `lua/` that have no twin, with their content.
const WITHOUT_TWIN: &[(&str, &str)] = &[
    ("lease", "lease ids; Lua compares them inline"),
    ("protocol", "how scripts read their argument and let a key expire"),
    ("globals", "what scripts use of Redis and of Lua"),
    ("fast_path", "Rust needs none"),
    ("single", "Rust has no calls of several steps"),
    ("runs", "how scripts read counters and reply"),
    ("result", "how scripts reply"),
    ("deque", "Rust uses VecDeque"),
];

/// The most lines of a file, tests included.
const LINES_MAX: usize = 400;
/// Files that may be longer, with the reason.
const LONG_FILES: &[(&str, usize, &str)] = &[];
/// The most Rust files directly in `src/server/`, apart from `tests.rs`: more need a folder.
const SERVER_FILES_MAX: usize = 8;
/// The most columns of a line of code.
const COLUMNS_MAX: usize = 100;
/// The most columns of a comment, which rustfmt does not wrap. Rows of a table and addresses have
/// no limit.
const COMMENT_COLUMNS_MAX: usize = 120;

#[test]
fn the_tree_keeps_the_house_rules() {
    let sources = tree();
    assert!(sources.len() > 20, "the tree was not found: {} files", sources.len());
    let tests = test_files(&sources);
    let mut problems: Vec<String> = sources.iter().flat_map(shape).collect();
    let code = sources.iter().filter(|source| !tests.contains(&source.path));
    problems.extend(code.flat_map(dependencies_and_words));
    problems.extend(cycles::cycles(&sources, &tests));
    problems.extend(type_names::repeated(&sources, &tests));
    problems.extend(twins(&sources));
    problems.extend(flat_server(&sources));
    problems.extend(sources.iter().flat_map(prose::test_names));
    problems.extend(sources.iter().chain(&pages()).flat_map(prose::banned_words));
    let report = problems.join("\n");
    assert!(problems.is_empty(), "{} problems:\n{report}", problems.len());
}

#[test]
fn allowed_dependencies_form_no_cycle() {
    for (index, (module, uses)) in ALLOWED_DEPENDENCIES.iter().enumerate() {
        for used in uses.split_whitespace() {
            let above = ALLOWED_DEPENDENCIES[..index].iter().any(|(name, _)| *name == used);
            assert!(above, "{module} -> {used}: {used} has no row above {module}'s");
        }
    }
}

/// Dependencies and restricted words.
fn dependencies_and_words(source: &Source) -> Vec<String> {
    let Source { path, text } = source;
    let in_crate = path.starts_with("crates/") && path.contains("/src/");
    if !(path.starts_with("src/") || in_crate) || !path.ends_with(".rs") {
        return Vec::new();
    }
    let code = blank::code(text);
    // The compiler checks the dependencies of other crates.
    let mut problems = if in_crate { Vec::new() } else { disallowed_dependencies(path, &code) };
    problems.extend(words(path, &code));
    problems
}

/// Files of `src/` that exist in test builds only: declared as `#[cfg(test)] mod name;`, and below.
fn test_files(sources: &[Source]) -> Vec<String> {
    let mut folders = Vec::new();
    for Source { path, text } in sources {
        let code = blank::code(text);
        for (at, attribute) in code.match_indices("#[cfg(test)]") {
            let item = code[at + attribute.len()..].trim_start();
            let declared = item.strip_prefix("mod ").and_then(|rest| rest.split_once(';'));
            let inside = path.trim_end_matches(".rs").trim_end_matches("/lib");
            folders.extend(declared.map(|(name, _)| format!("{inside}/{name}")));
        }
    }
    let paths = sources.iter().map(|source| source.path.clone());
    paths
        .filter(|path| {
            let inside = path.trim_end_matches(".rs");
            let within = |folder: &String| {
                inside
                    .strip_prefix(folder.as_str())
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            };
            folders.iter().any(within)
        })
        .collect()
}

/// Size, name and first line.
fn shape(source: &Source) -> Vec<String> {
    let Source { path, text } = source;
    let mut problems = Vec::new();
    let stem = Path::new(path).file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    if EMPTY_NAMES.contains(&stem) {
        problems.push(format!("{path}: `{stem}` does not describe the file; name its noun"));
    }
    let allowed = LONG_FILES.iter().find(|(long, ..)| long == path);
    let max = allowed.map_or(LINES_MAX, |(_, lines, _)| *lines);
    let lines = text.lines().count();
    if lines > max {
        problems.push(format!("{path}: {lines} lines, at most {max}; split it by noun"));
    }
    if !path.ends_with(".rs") {
        return problems;
    }
    if !text.starts_with("//! ") {
        problems.push(format!("{path}:1: start with `//! ` and a noun phrase for what this is"));
    }
    for (number, line) in text.lines().enumerate() {
        let comment = line.trim_start().starts_with("//");
        if comment && (line.contains("//! |") || line.contains("/// |") || line.contains("://")) {
            continue;
        }
        // A path cannot be broken, and generated packages have long ones.
        let import = ["use ", "pub use ", "pub(crate) use "];
        if import.iter().any(|word| line.trim_start().starts_with(word)) {
            continue;
        }
        let max = if comment { COMMENT_COLUMNS_MAX } else { COLUMNS_MAX };
        let columns = line.chars().count();
        if columns > max {
            problems.push(format!("{path}:{}: {columns} columns, at most {max}", number + 1));
        }
    }
    problems
}

/// The dependencies of a file of `src/` that its module may not have.
fn disallowed_dependencies(path: &str, code: &str) -> Vec<String> {
    let inside = path.trim_start_matches("src/").trim_end_matches(".rs");
    let (module, depth) = match inside.split_once('/') {
        Some((module, below)) => (module, 2 + below.matches('/').count()),
        None => (inside, 1),
    };
    if module == "lib" {
        return Vec::new();
    }
    let Some((_, allowed)) = ALLOWED_DEPENDENCIES.iter().find(|(name, _)| *name == module) else {
        return vec![format!("{path}:1: module `{module}` has no row in tests/tidy/main.rs")];
    };
    let mut roots = vec!["crate::".to_owned(), "super::".repeat(depth)];
    if module == "main" {
        roots.push("weir::".to_owned());
    }
    let mut problems = Vec::new();
    for root in &roots {
        for (at, _) in code.match_indices(root.as_str()) {
            if !stands_alone(code, at) {
                continue;
            }
            let paths = paths(&code[at + root.len()..]);
            for used in paths.iter().filter_map(|path| path.first().copied()) {
                let known = ALLOWED_DEPENDENCIES.iter().any(|(name, _)| *name == used);
                if known && used != module && !allowed.split_whitespace().any(|a| a == used) {
                    let line = line_of(code, at);
                    problems.push(format!(
                        "{path}:{line}: dependency {module} -> {used} is not allowed"
                    ));
                }
            }
        }
    }
    problems
}

fn words(path: &str, code: &str) -> Vec<String> {
    let mut problems = Vec::new();
    for (word, place, why) in WORDS {
        let below = |module: &str| {
            let rest = path.strip_prefix(module);
            rest.is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
        };
        let fits = |modules: &[&str]| modules.iter().any(|module| below(module));
        let allowed = match place {
            Where::Only(modules) => fits(modules),
            Where::Not(modules) => !fits(modules),
        };
        if allowed {
            continue;
        }
        for (at, _) in code.match_indices(word) {
            if stands_alone(code, at) {
                let line = line_of(code, at);
                problems.push(format!("{path}:{line}: `{word}` is not allowed here: {why}"));
            }
        }
    }
    problems
}

/// `src/server/` is sorted into folders.
fn flat_server(sources: &[Source]) -> Option<String> {
    let inside = |source: &&Source| {
        let name = source.path.strip_prefix("src/server/");
        name.is_some_and(|name| name.ends_with(".rs") && !name.contains('/') && name != "tests.rs")
    };
    let files = sources.iter().filter(inside).count();
    (files > SERVER_FILES_MAX).then(|| {
        format!("src/server/: {files} files, at most {SERVER_FILES_MAX}; sort them into folders")
    })
}

/// Each state machine exists in Rust and in Lua.
fn twins(sources: &[Source]) -> Vec<String> {
    let stems = |folder: &str, end: &str| -> Vec<String> {
        let paths = sources.iter().map(|source| source.path.as_str());
        paths
            .filter_map(|path| path.strip_prefix(folder)?.strip_suffix(end))
            .filter(|stem| !stem.contains('/') && WITHOUT_TWIN.iter().all(|(not, _)| not != stem))
            .filter(|stem| TWINS_ELSEWHERE.iter().all(|(elsewhere, _)| elsewhere != stem))
            .map(str::to_owned)
            .collect()
    };
    let exists = |path: &str| sources.iter().any(|source| source.path == path);
    let elsewhere = TWINS_ELSEWHERE.iter().filter_map(|(stem, twin)| {
        let lua = format!("lua/{stem}.lua");
        match (exists(&lua), exists(twin)) {
            (true, false) => Some(format!("lua/{stem}: its twin {twin} is missing")),
            (false, true) => Some(format!("{twin}: its twin {lua} is missing")),
            _ => None,
        }
    });
    let mut problems: Vec<String> = elsewhere.collect();
    let (rust, lua) = (stems("src/step/", ".rs"), stems("lua/", ".lua"));
    if lua.is_empty() {
        return problems;
    }
    let without_twin =
        |have: &[String], want: &[String], of: &str, to: &str, end: &str| -> Vec<String> {
            let alone = have.iter().filter(|stem| !want.contains(stem));
            alone.map(|stem| format!("{of}{stem}: its twin {to}{stem}{end} is missing")).collect()
        };
    problems.extend(without_twin(&rust, &lua, "src/step/", "lua/", ".lua"));
    problems.extend(without_twin(&lua, &rust, "lua/", "src/step/", ".rs"));
    problems
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Whether the word at `at` is not part of a longer name or of another crate's path. Clocks and
/// `env` match wherever their path starts.
fn stands_alone(code: &str, at: usize) -> bool {
    let starts_with_word = code[at..].starts_with(is_word);
    !starts_with_word
        || !code[..at].ends_with(|c: char| is_word(c) || c == ':' || c == '$')
        || code[..at].ends_with("std::")
        || code[..at].ends_with("time::")
}

fn line_of(code: &str, at: usize) -> usize {
    code[..at].matches('\n').count() + 1
}
