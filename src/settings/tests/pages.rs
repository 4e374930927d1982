//! The pages in `docs/`, held against the settings they describe.

use super::{envoy_ratelimit_env, fields};

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
    let sets = envoy_ratelimit_env::SETS.iter().map(|(name, ..)| *name);
    let listeners =
        envoy_ratelimit_env::LISTENERS.iter().flat_map(|(host, port, ..)| [*host, *port]);
    let folder = envoy_ratelimit_env::FOLDER.iter().map(|(name, _)| *name);
    let nothing =
        envoy_ratelimit_env::WITHOUT_EFFECT.iter().flat_map(|(_, names)| names.iter().copied());
    let names = sets
        .chain(listeners)
        .chain(folder)
        .chain(nothing)
        .chain(envoy_ratelimit_env::ALWAYS_SO)
        .chain(envoy_ratelimit_env::REDIS)
        .chain(envoy_ratelimit_env::TLS.map(|(name, _)| name))
        .chain([envoy_ratelimit_env::SCRAPED[0]]);
    for name in names {
        assert!(migration.contains(&format!("`{name}`")), "docs/migration.md lacks {name}");
    }
}
