//! The pages in `docs/`, held against the settings they describe.

use super::{fields, incumbent};

#[test]
fn the_pages_in_docs_know_every_setting_and_every_variable() {
    let page = |name: &str| {
        let path = format!("{}/docs/{name}", env!("CARGO_MANIFEST_DIR"));
        std::fs::read_to_string(path).expect("a page in docs")
    };
    let settings = page("settings.md");
    for (path, default) in fields() {
        let default = default.trim_start_matches("[\"").trim_end_matches("\"]");
        let row = format!("| `{path}` | `{default}` |");
        assert!(settings.contains(&row), "docs/settings.md lacks {row}");
    }
    let rows = settings.lines().filter(|line| line.starts_with("| `")).count();
    assert_eq!(rows, fields().len(), "docs/settings.md has a row for no setting");
    let migration = page("migration.md");
    let sets = incumbent::SETS.iter().map(|(name, ..)| *name);
    let listeners = incumbent::LISTENERS.iter().flat_map(|(host, port, ..)| [*host, *port]);
    let folder = incumbent::FOLDER.iter().map(|(name, _)| *name);
    let nothing = incumbent::WITHOUT_EFFECT.iter().flat_map(|(_, names)| names.iter().copied());
    let names = sets
        .chain(listeners)
        .chain(folder)
        .chain(nothing)
        .chain(incumbent::ALWAYS_SO)
        .chain(incumbent::REDIS)
        .chain(incumbent::TLS.map(|(name, _)| name))
        .chain([incumbent::SCRAPED[0]]);
    for name in names {
        assert!(migration.contains(&format!("`{name}`")), "docs/migration.md lacks {name}");
    }
}
