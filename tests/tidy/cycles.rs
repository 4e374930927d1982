//! Cycles of dependencies between the modules of one folder of `src/`. The order of the top-level
//! modules is in `ALLOWED_DEPENDENCIES`.

use std::collections::{BTreeMap, BTreeSet};

use super::paths::paths;
use super::{Source, blank, stands_alone};

/// Permitted dependencies that close a cycle: the folder, the module, the module that it names, and
/// why.
const PERMITTED: &[(&str, &str, &str, &str)] = &[];

/// A folder, a module in it, and a module of the same folder that the first one names.
type Edge = (String, String, String);

/// Dependencies that are part of a cycle. `tests` are the paths of test code, which may name any
/// module.
pub(crate) fn cycles(sources: &[Source], tests: &[String]) -> Vec<String> {
    let modules: BTreeSet<&str> = sources.iter().filter_map(module).collect();
    let mut edges: BTreeMap<Edge, &str> = BTreeMap::new();
    for source in sources.iter().filter(|source| !tests.contains(&source.path)) {
        let Some(module) = module(source) else { continue };
        let own: Vec<&str> = module.split('/').collect();
        let code = blank::code(&source.text);
        let used = used_paths(&own, &code);
        let used = used.iter().filter_map(|path| edge(&own, path, &modules));
        edges.extend(used.map(|edge| (edge, source.path.as_str())));
    }
    let in_cycle = edges.iter().filter(|((folder, from, to), _)| reaches(&edges, folder, to, from));
    in_cycle
        .map(|((folder, from, to), path)| {
            format!("{path}: {from} -> {to} is part of a cycle of modules in src/{folder}/")
        })
        .collect()
}

/// The path of a module below `src/`.
fn module(source: &Source) -> Option<&str> {
    source.path.strip_prefix("src/")?.strip_suffix(".rs")
}

/// Every path of `code` that starts with `crate` or `super`, from the crate's root on. `own` is the
/// path of the module.
fn used_paths<'a>(own: &[&'a str], code: &'a str) -> Vec<Vec<&'a str>> {
    let mut used = Vec::new();
    for (at, root) in code.match_indices("crate::").chain(code.match_indices("super::")) {
        // One of several `super::` counts with the first.
        if !stands_alone(code, at) {
            continue;
        }
        let mut rest = &code[at + root.len()..];
        let mut depth = if root == "crate::" { own.len() } else { 1 };
        while let Some(after) = rest.strip_prefix("super::") {
            (rest, depth) = (after, depth + 1);
        }
        let base = &own[..own.len().saturating_sub(depth)];
        used.extend(paths(rest).into_iter().map(|path| [base, &path[..]].concat()));
    }
    used
}

/// The dependency of the module `own` on the module that `path` leads into, if a folder has both.
fn edge(own: &[&str], path: &[&str], modules: &BTreeSet<&str>) -> Option<Edge> {
    // Names after the last module are items.
    let is_module = |end: &usize| modules.contains(path[..*end].join("/").as_str());
    let used = &path[..(1..=path.len()).rev().find(is_module)?];
    let shared = own.iter().zip(used).take_while(|(own, used)| own == used).count();
    let (from, to) = (own.get(shared)?, used.get(shared)?);
    let folder = own[..shared].join("/");
    let names = (folder.as_str(), *from, *to);
    let permitted = PERMITTED.iter().any(|row| (row.0, row.1, row.2) == names);
    (shared > 0 && !permitted).then(|| (folder.clone(), (*from).to_owned(), (*to).to_owned()))
}

/// Whether dependencies lead from one module of a folder to another.
fn reaches(edges: &BTreeMap<Edge, &str>, folder: &str, from: &str, to: &str) -> bool {
    let (mut seen, mut next) = (BTreeSet::new(), vec![from]);
    while let Some(module) = next.pop() {
        if module == to {
            return true;
        }
        if seen.insert(module) {
            let uses = edges.keys().filter(|edge| edge.0 == folder && edge.1 == module);
            next.extend(uses.map(|edge| edge.2.as_str()));
        }
    }
    false
}

#[test]
fn a_cycle_inside_a_folder_is_found() {
    let source = |path: &str, text: &str| Source { path: path.to_owned(), text: text.to_owned() };
    let a = source("src/m/a.rs", "use crate::{key::K, m::{b::B}};");
    let b = source("src/m/b/deep.rs", "use super::super::c;");
    let parent = source("src/m/b.rs", "mod deep; use crate::m::c::C;");
    let c = |text: &str| source("src/m/c.rs", text);
    let found = |text: &str, tests: &[String]| {
        let copies = [&a, &b, &parent].map(|one| source(&one.path, &one.text));
        let sources: Vec<Source> = copies.into_iter().chain([c(text)]).collect();
        cycles(&sources, tests)
    };
    assert_eq!(found("use super::d; use crate::m::M;", &[]), Vec::<String>::new());
    let problems = found("fn f() { super::a::g() }", &[]);
    assert_eq!(problems.len(), 3, "{problems:?}");
    assert_eq!(problems[0], "src/m/a.rs: a -> b is part of a cycle of modules in src/m/");
    assert!(found("use super::a;", &["src/m/c.rs".to_owned()]).is_empty());
}
