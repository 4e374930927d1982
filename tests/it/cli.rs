//! The command line: output and exit status.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::support::certificates::Certificates;
use crate::support::weir::cli::{Run, run};
use crate::support::weir::{Weir, write};
use crate::support::window_edge::within_an_hour;

const GOOD: &str = "
domain: shop
descriptors:
  - key: user
    rate_limit: { name: per-user, unit: hour, requests_per_unit: 2 }
  - key: path
    value: /api/*
    descriptors:
      - key: method
        value: GET
        rate_limit: { unit: day, requests_per_unit: 5 }
";

fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = TempDir::new().expect("a temporary folder");
    for (name, text) in files {
        write(&folder.path().join(name), text);
    }
    folder
}

fn check(folder: &TempDir, args: &[&str]) -> Run {
    run(folder.path(), &[&["check"], args].concat())
}

#[test]
fn check_accepts_good_rules_quietly() {
    let folder = folder(&[("a.yaml", GOOD)]);
    for path in ["a.yaml", "."] {
        let run = check(&folder, &[path]);
        assert_eq!(run.code, Some(0), "{run:?}");
        assert!(run.stdout.contains("ok"), "{run:?}");
        assert_eq!(run.stderr, "", "nothing to complain about");
    }
}

/// Files under `data/check/` contain their expected problems: below a bad line, a comment whose `^`
/// marks the column, with words that the message must contain. `#<` is column 1.
#[test]
fn check_lists_every_problem_with_its_place() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/data/check");
    let files = std::fs::read_dir(folder).expect("the folder of bad files");
    let mut files: Vec<PathBuf> =
        files.map(|file| file.expect("a readable folder").path()).collect();
    files.sort();
    assert!(!files.is_empty());
    let wrong: Vec<String> = files.iter().filter_map(|file| misreported(file)).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

/// The difference between the report about a file and the problems that it expects.
fn misreported(file: &Path) -> Option<String> {
    let name = file.file_name().expect("a file has a name").to_string_lossy();
    let text = std::fs::read_to_string(file).expect("a readable file");
    let run = run(file.parent().expect("a file is in a folder"), &["check", &name]);
    let mut found: Vec<&str> = run.stderr.lines().filter(|line| line.starts_with(&*name)).collect();
    let mut missing = Vec::new();
    for (line, column, words) in expectations(&text) {
        let place = format!("{name}:{line}:{column}: ");
        let at = found.iter().position(|said| said.starts_with(&place) && said.contains(words));
        match at {
            Some(at) => drop(found.remove(at)),
            None => missing.push(format!("{place}... {words}")),
        }
    }
    if run.code == Some(1) && missing.is_empty() && found.is_empty() {
        return None;
    }
    Some(format!("{name}: exit {:?}, missing {missing:#?}, unexpected {found:#?}", run.code))
}

/// The expected problems of a bad file: (line, column, words).
fn expectations(text: &str) -> Vec<(usize, usize, &str)> {
    let mut expected = Vec::new();
    let mut last_line = 0;
    for (index, line) in text.lines().enumerate() {
        let mark = line.strip_prefix('#').and_then(|rest| {
            let rest = rest.trim_start();
            rest.strip_prefix(['^', '<']).map(|words| (line.find(['^', '<']), words.trim()))
        });
        match mark {
            Some((at, words)) => {
                let column = if line.starts_with("#<") { 1 } else { at.unwrap_or(0) + 1 };
                expected.push((last_line, column, words));
            }
            None => last_line = index + 1,
        }
    }
    expected
}

/// Settings name the rules and how to read them. `check` reports mistakes in both.
#[test]
fn check_reads_settings_and_the_rules_they_name() {
    let more = "domain: shop\ndescriptors: [{ key: more, rate_limit: { unlimited: true } }]\n";
    let settings = "rules: { paths: [a.yaml, b.yaml], merge_domains: true }\n";
    let files = [("a.yaml", GOOD), ("b.yaml", more), ("good.yaml", settings)];
    let folder = folder(&[&files[..], &[("bad.yaml", "rules: { path: a.yaml }\n")]].concat());
    let run = check(&folder, &["--config", "good.yaml"]);
    assert_eq!((run.code, run.stdout.as_str()), (Some(0), "ok: 3 rules in 2 files\n"), "{run:?}");
    let run = check(&folder, &["--config", "good.yaml", "a.yaml"]);
    assert_eq!((run.code, run.stdout.as_str()), (Some(0), "ok: 2 rules in 1 file\n"), "{run:?}");
    let run = check(&folder, &["--config", "bad.yaml"]);
    assert_eq!(run.code, Some(1), "{run:?}");
    assert!(run.stderr.contains("rules.paths"), "{run:?}");
}

/// Without paths, `check` and `explain` read the rules that `weir serve` would read.
#[test]
fn rules_come_from_the_settings_without_paths() {
    let settings = "rules: { paths: [a.yaml] }\n";
    let folder = folder(&[("weir.yaml", settings), ("a.yaml", GOOD)]);
    let explain = |args: &[&str]| {
        let head = ["explain", "--domain", "shop", "user=ann"];
        run(folder.path(), &[&head[..], args].concat())
    };
    // `weir serve` only warns about a missing folder.
    let missing = check(&folder, &[]);
    assert_eq!((missing.code, missing.stdout.as_str()), (Some(0), "ok: 0 rules in 0 files\n"));
    assert!(missing.stderr.contains("warning: rules/: there is no such file"), "{missing:?}");
    std::fs::create_dir(folder.path().join("rules")).expect("a folder in a fresh folder");
    write(&folder.path().join("rules/b.yaml"), &GOOD.replace("per-user", "default-path"));
    let run = check(&folder, &[]);
    assert_eq!((run.code, run.stdout.as_str()), (Some(0), "ok: 2 rules in 1 file\n"), "{run:?}");
    assert!(explain(&[]).stdout.contains("default-path"), "{:?}", explain(&[]));
    let of_file = explain(&["--config", "weir.yaml"]);
    assert_eq!(of_file.code, Some(0), "{of_file:?}");
    assert!(of_file.stdout.contains("per-user (a.yaml:4:5)"), "{of_file:?}");
    write(&folder.path().join("rules/b.yaml"), "domain: d\ndescriptors: [{ ky: x }]\n");
    assert_eq!(check(&folder, &[]).code, Some(1));
}

#[test]
fn check_reports_all_files_in_order_of_name() {
    let bad = "domain: x\ndescriptors:\n  - ky: a\n";
    let folder = folder(&[("b.yaml", bad), ("a.yaml", bad), ("c.yaml", GOOD)]);
    let run = check(&folder, &["."]);
    assert_eq!(run.code, Some(1), "{run:?}");
    let at = |name: &str| run.stderr.find(name).unwrap_or_else(|| panic!("no {name}: {run:?}"));
    assert!(at("a.yaml:3:5") < at("b.yaml:3:5"));
    assert!(!run.stderr.contains("c.yaml"), "nothing is wrong with it: {run:?}");
}

/// Names of files and of fields cannot add a line to the report, or reorder one.
#[test]
fn check_escapes_special_characters() {
    let bad = "domain: d\ndescriptors:\n  - { \"k\u{202e}y\": x }\n";
    let folder = folder(&[("a\n\u{202e}b.yaml", bad)]);
    for path in [".", "missing\n.yaml"] {
        let run = check(&folder, &[path]);
        assert_ne!(run.code, Some(0), "{run:?}");
        assert!(!run.stderr.contains('\u{202e}'), "{run:?}");
        let starts =
            [r"./a\n\u{202e}b.yaml:", r"weir: missing\n.yaml: no such", "1 problem", "2 problems"];
        for line in run.stderr.lines() {
            assert!(starts.iter().any(|start| line.starts_with(*start)), "{line:?}: {run:?}");
        }
    }
}

#[test]
fn one_domain_in_two_files_needs_the_setting() {
    let other = "domain: shop\ndescriptors:\n  - key: other\n";
    let folder = folder(&[("a.yaml", GOOD), ("b.yaml", other)]);
    let apart = check(&folder, &["."]);
    assert_eq!(apart.code, Some(1), "{apart:?}");
    assert!(apart.stderr.contains("b.yaml:1:"), "{apart:?}");
    assert_eq!(check(&folder, &["--merge-domains", "."]).code, Some(0));
}

#[test]
fn a_path_that_does_not_exist_is_named() {
    let folder = folder(&[]);
    let run = check(&folder, &["nowhere.yaml"]);
    assert!(!matches!(run.code, Some(0) | None), "{run:?}");
    assert!(run.stderr.contains("nowhere.yaml"), "{run:?}");
}

#[test]
fn explain_names_the_rule_its_place_and_its_tiers() {
    let folder = folder(&[("a.yaml", GOOD)]);
    let args = ["explain", "--rules", "a.yaml", "--domain", "shop"];
    let run = run(folder.path(), &[&args[..], &["path=/api/x,method=GET", "user=ann"]].concat());
    assert_eq!(run.code, Some(0), "{run:?}");
    for part in ["a.yaml:9:9", "/api/*", "per-user", "a.yaml:4:5", "5 per 1d"] {
        assert!(run.stdout.contains(part), "no {part} in:\n{}", run.stdout);
    }
}

#[test]
fn explain_shows_near_misses() {
    let folder = folder(&[("a.yaml", GOOD)]);
    let args = ["explain", "--rules", "a.yaml", "--domain", "shop", "path=/api/x,method=POST"];
    let run = run(folder.path(), &args);
    assert_eq!(run.code, Some(0), "{run:?}");
    for part in ["method", "GET", "POST"] {
        assert!(run.stdout.contains(part), "no {part} in:\n{}", run.stdout);
    }
}

#[test]
fn call_prints_the_decision_and_exits_by_it() {
    within_an_hour(|| {
        let weir = Weir::start(GOOD);
        let folder = folder(&[]);
        let address = weir.grpc.to_string();
        let call = |descriptor: &str| {
            run(folder.path(), &["call", "--addr", &address, "--domain", "shop", descriptor])
        };
        for _ in 0..2 {
            let run = call("user=ann");
            assert_eq!(run.code, Some(0), "{run:?}");
            assert!(run.stdout.starts_with("OK"), "{run:?}");
            assert!(run.stdout.contains("per-user"), "{run:?}");
        }
        let refused = call("user=ann");
        assert_eq!(refused.code, Some(1), "{refused:?}");
        assert!(refused.stdout.starts_with("OVER_LIMIT"), "{refused:?}");
        assert_eq!(call("user=bob").code, Some(0));
    });
}

#[test]
fn call_reports_an_unreachable_service() {
    let folder = folder(&[]);
    // Port 1 on loopback is reserved, and no process listens there.
    let run = run(folder.path(), &["call", "--addr", "127.0.0.1:1", "--domain", "d", "a=b"]);
    assert_eq!(run.code, Some(69), "{run:?}");
    assert!(run.stderr.contains("127.0.0.1:1"), "{run:?}");
}

/// Connections that are refused by their port, or that no port could accept.
#[test]
fn call_says_what_to_do_about_a_wrong_address() {
    let weir = Weir::start(GOOD);
    let (folder, http) = (folder(&[]), weir.http.to_string());
    let call = |address: &str, flags: &[&str]| {
        let head = ["call", "--timeout", "30000", "--domain", "shop", "--addr", address];
        run(folder.path(), &[&head[..], flags, &["user=ann"]].concat())
    };
    let answer = call(&http, &[]);
    assert_eq!(answer.code, Some(69), "{answer:?}");
    assert!(answer.stderr.contains("name the gRPC port (grpc.listen"), "{answer:?}");
    let certificates = Certificates::new();
    let ca = certificates.path("ca.crt").display().to_string();
    let answer = call(&weir.grpc.to_string(), &["--ca", &ca]);
    assert_eq!(answer.code, Some(69), "{answer:?}");
    assert!(answer.stderr.contains("leave out the flags of TLS"), "{answer:?}");
    let answer = call(&format!("http://{}", weir.grpc), &[]);
    assert_eq!(answer.code, Some(2), "{answer:?}");
    assert!(answer.stderr.contains(&format!("write {}, without http://", weir.grpc)), "{answer:?}");
}

/// Nothing was counted, so no numbers are shown.
#[test]
fn call_says_that_the_fallback_decided() {
    // No process listens on port 1 of loopback.
    let setup = Weir::setup().rules("a.yaml", GOOD).env("WEIR__REDIS__URL", "redis://127.0.0.1:1");
    let weir = setup.start();
    let address = weir.grpc.to_string();
    let args = ["call", "--addr", &address, "--domain", "shop", "user=ann", "other=x"];
    let run = run(folder(&[]).path(), &args);
    assert_eq!(run.code, Some(0), "{run:?}");
    let lines = "OK\n  user=ann: OK, by the fallback (allow)\n  other=x: OK, no limit\n";
    assert_eq!(run.stdout, lines, "{run:?}");
}

#[test]
fn health_exits_by_the_status() {
    let health = |args: &[&str]| run(Path::new("."), &[&["health"][..], args].concat());
    let weir = Weir::start(GOOD);
    let address = weir.grpc.to_string();
    for name in ["", "ratelimit"] {
        let run = health(&["--addr", &address, "--name", name]);
        assert_eq!((run.code, run.stdout.as_str()), (Some(0), "SERVING\n"), "{run:?}");
    }
    let unready = Weir::setup()
        .rules("bad.yaml", "domain: d\ndescriptors:\n  - ky: x\n")
        .env("WEIR__RULES__START_WITHOUT_RULES", "true")
        .env("WEIR__READYZ__REQUIRE_RULES", "loaded")
        .start();
    let run = health(&["--addr", &unready.grpc.to_string()]);
    assert_eq!((run.code, run.stdout.as_str()), (Some(1), "NOT_SERVING\n"), "{run:?}");
    let run = health(&["--addr", "127.0.0.1:1"]);
    assert_eq!(run.code, Some(69), "{run:?}");
    assert!(run.stderr.contains("is `weir serve` running there?"), "{run:?}");
}

#[test]
fn usage_errors_and_file_errors_exit_differently() {
    let folder = folder(&[]);
    for args in [&["nonsense"][..], &["serve", "--colour"], &["call", "--domain", "d", "=x"], &[]] {
        let run = run(folder.path(), args);
        assert_eq!(run.code, Some(2), "{args:?}: {run:?}");
    }
}
