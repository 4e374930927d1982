//! The seeds of the fuzz targets. The targets without random inputs here run on their seeds, so that
//! every test run covers them.

use std::fs;
use std::path::{Path, PathBuf};

use super::{http2, plans, regexes, replies, responses, settings, tls};

fn fuzz() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz")
}

/// The seeds of a target, by name.
fn seeds(target: &str) -> Vec<(String, Vec<u8>)> {
    let folder = fuzz().join("seeds").join(target);
    let entries = fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let seed = |entry: std::io::Result<fs::DirEntry>| {
        let path = entry.expect("an entry of the folder").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        (name, fs::read(&path).expect("a file"))
    };
    entries.map(seed).collect()
}

/// Passes the seeds of a target to `accepts`. It must accept them all, except for `rejected`.
fn check_seeds(target: &str, rejected: &[&str], accepts: impl Fn(&[u8]) -> bool) {
    for (name, bytes) in seeds(target) {
        assert_eq!(accepts(&bytes), !rejected.contains(&name.as_str()), "{target}: {name}");
    }
}

#[test]
fn seeds_of_settings_are_read() {
    check_seeds("settings_yaml", &["mistakes", "wrong_variables"], settings::yaml);
}

#[test]
fn seeds_of_tls_clients_are_answered() {
    let port = tls::Port::new(&fuzz().join("tls"));
    let rejected = ["http2", "tls10", "warning"];
    check_seeds("tls_hello", &rejected, |bytes| port.hello(bytes));
}

#[test]
fn seeds_of_http2_clients_are_served() {
    let rejected = ["continuation_flood", "control_flood", "go_away", "no_call"];
    check_seeds("http2_frames", &rejected, http2::frames);
}

#[test]
fn seeds_of_plans_are_read() {
    check_seeds("plans", &["mistakes", "wrong_line"], plans::files);
}

#[test]
fn seeds_of_regexes_find_their_value() {
    check_seeds("rule_regex_lookup", &["invalid"], regexes::lookup);
}

#[test]
fn seeds_of_redis_servers_are_read() {
    let rejected =
        ["deep", "http", "incomplete", "long_array", "long_line", "long_string", "resp3"];
    check_seeds("redis_reply", &rejected, replies::resp);
}

#[test]
fn seeds_of_xds_servers_are_applied() {
    check_seeds("xds_response", &["errors", "not_protobuf"], responses::xds);
}

#[test]
fn every_target_has_seeds_and_a_dictionary() {
    let read = |path: &Path| fs::read_to_string(path).expect("a file of text");
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (makefile, manifest) = (read(&root.join("Makefile")), read(&fuzz().join("Cargo.toml")));
    let page = read(&fuzz().join("README.md"));
    let line = makefile.lines().find_map(|line| line.strip_prefix("FUZZ_TARGETS := "));
    let targets: Vec<&str> = line.expect("the list of targets").split_whitespace().collect();
    assert_eq!(manifest.matches("[[bin]]").count(), targets.len());
    for target in targets {
        assert!(manifest.contains(&format!("\nname = \"{target}\"\n")), "{target}");
        assert!(page.contains(&format!("\n| `{target}` | ")), "fuzz/README.md lacks {target}");
        assert!(!seeds(target).is_empty(), "{target}");
        assert!(fuzz().join(format!("dict/{target}.dict")).exists(), "{target}");
    }
}
