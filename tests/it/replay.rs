//! `weir replay`: its verdicts are those of a live service; its reports, arguments and errors.

mod envoy_log;
mod live;

use std::fs::File;
use std::path::Path;

use serde_json::Value;
use tempfile::TempDir;

use crate::support::weir::cli::{Run, run};
use crate::support::weir::{weir, write};

/// Rules with this limit per hour for each user.
fn rules(limit: u32) -> String {
    format!(
        "domain: d\ndescriptors: [{{ key: user, rate_limit: {{ name: per-user, unit: hour, \
         requests_per_unit: {limit} }} }}]\n"
    )
}

/// A recorded call of a user at the start of an hour.
fn line(seconds: u64, user: &str) -> String {
    let at = 1_772_366_400_000_000 + seconds * 1_000_000;
    format!(
        r#"{{"at":{at},"domain":"d","hits":0,"descriptors":[{{"entries":[["user","{user}"]]}}]}}"#
    )
}

/// A folder with old rules (two per hour), new rules (one per hour), and a recording of three calls of
/// ann and one of bob.
fn folder() -> TempDir {
    let folder = TempDir::new().expect("a temporary folder");
    let path = |name: &str| folder.path().join(name);
    write(&path("old.yaml"), &rules(2));
    write(&path("new.yaml"), &rules(1));
    let lines = [line(0, "ann"), line(1, "ann"), line(2, "bob"), line(3, "ann")];
    write(&path("calls.jsonl"), &(lines.join("\n") + "\n"));
    folder
}

fn replay(folder: &Path, args: &[&str]) -> Run {
    run(folder, &[&["replay"], args].concat())
}

/// The JSON report of a replay that must succeed.
fn report(folder: &Path, args: &[&str]) -> Value {
    let run = replay(folder, &[args, &["--format", "json"]].concat());
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{run:?}");
    serde_json::from_str(&run.stdout).unwrap_or_else(|error| panic!("{error}: {run:?}"))
}

#[test]
fn json_has_no_raw_special_characters() {
    let hostile = "a\u{9b}31m\u{202e}b\u{2028}c";
    let folder = folder();
    let lines = [line(0, hostile), line(1, hostile)];
    write(&folder.path().join("calls.jsonl"), &(lines.join("\n") + "\n"));
    let args = ["--rules", "new.yaml", "--against", "old.yaml", "--format", "json", "calls.jsonl"];
    let run = replay(folder.path(), &args);
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(!run.stdout.contains(['\u{9b}', '\u{202e}', '\u{2028}']), "{run:?}");
    let report: Value = serde_json::from_str(&run.stdout).expect("one object");
    assert_eq!(report["descriptors"][0]["descriptor"], format!("user={hostile}"), "{report}");
}

/// The calls denied by the old rules and by the new rules.
fn denied(report: &Value) -> [u64; 2] {
    let number = |name: &str| report["calls"][name].as_u64().expect("a number");
    [number("denied_by_old"), number("denied_by_new")]
}

#[test]
fn the_report_has_every_part() {
    let folder = folder();
    let args = ["--rules", "new.yaml", "--against", "old.yaml", "calls.jsonl"];
    let found = report(folder.path(), &args);
    assert_eq!(denied(&found), [1, 2], "{found}");
    assert_eq!(found["calls"]["more"], 1, "{found}");
    assert_eq!(found["rules"][0]["rule"], "per-user", "{found}");
    assert_eq!(found["descriptors"][0]["descriptor"], "user=ann", "{found}");
    for part in ["/recorded/calls", "/lines/read", "/old_counters/evicted", "/rules/0/old/hits"] {
        let number = found.pointer(part).unwrap_or_else(|| panic!("no {part}: {found}"));
        assert!(number.is_u64(), "{part}: {found}");
    }
    let text = replay(folder.path(), &args);
    assert_eq!((text.code, text.stderr.as_str()), (Some(0), ""), "{text:?}");
    for part in ["calls       4, hits 4", "difference  1 more", "d: per-user", "d: user=ann"] {
        assert!(text.stdout.contains(part), "no {part} in:\n{}", text.stdout);
    }
}

#[test]
fn more_denials_can_fail() {
    let folder = folder();
    let flag = "--fail-on-more-denied";
    for (new, old, code) in [("new.yaml", "old.yaml", 1), ("old.yaml", "new.yaml", 0)] {
        let run = replay(folder.path(), &["--rules", new, "--against", old, flag, "calls.jsonl"]);
        assert_eq!(run.code, Some(code), "{run:?}");
        assert!(run.stdout.contains("d: user=ann"), "the report is printed: {run:?}");
    }
}

#[test]
fn a_recording_is_read_from_standard_input() {
    let folder = folder();
    let recording = File::open(folder.path().join("calls.jsonl")).expect("a file");
    let mut command = weir();
    command.current_dir(folder.path()).stdin(recording);
    command.args(["replay", "--rules", "new.yaml", "--against", "old.yaml", "-"]);
    let output = command.output().expect("the binary starts");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("calls       4, hits 4"), "{output:?}");
}

/// The settings have the old rules, their overlays, and the modes that decide codes.
#[test]
fn settings_and_overlays_apply() {
    let folder = folder();
    let path = |name: &str| folder.path().join(name);
    let overlay = |limit: u32| {
        let tier = format!("{{ requests: {limit}, window: 1h }}");
        format!("overlays: [{{ domain: d, rule: user, rate_limit: {{ tiers: [{tier}] }} }}]\n")
    };
    write(&path("none.yaml"), &overlay(0));
    write(&path("many.yaml"), &overlay(100));
    write(&path("weir.yaml"), "rules: { paths: [old.yaml] }\n");
    write(&path("shadow.yaml"), "response: { shadow_mode: true }\n");
    write(&path("overlaid.yaml"), "rules: { paths: [old.yaml], overlay_paths: [none.yaml] }\n");
    let with = |args: &[&str]| denied(&report(folder.path(), &[args, &["calls.jsonl"]].concat()));
    let new = ["--rules", "new.yaml"];
    let against = |args: &[&str]| with(&[&new[..], &["--against", "old.yaml"], args].concat());

    assert_eq!(with(&[&new[..], &["--config", "weir.yaml"]].concat()), [1, 2]);
    assert_eq!(against(&["--config", "shadow.yaml"]), [0, 0]);
    assert_eq!(against(&["--overlay", "none.yaml"]), [1, 4]);
    assert_eq!(against(&["--against-overlay", "none.yaml"]), [4, 2]);
    assert_eq!(against(&["--overlay", "many.yaml", "--against-overlay", "none.yaml"]), [4, 0]);
    // The overlays of the settings are those of both, unless a flag names others.
    assert_eq!(with(&[&new[..], &["--config", "overlaid.yaml"]].concat()), [4, 4]);
    let overlaid = ["--config", "overlaid.yaml", "--overlay", "many.yaml"];
    assert_eq!(with(&[&new[..], &overlaid].concat()), [4, 0]);
}

#[test]
fn only_the_chosen_domain_is_decided() {
    let folder = folder();
    let other = line(4, "ann").replace("\"d\"", "\"e\"");
    write(&folder.path().join("calls.jsonl"), &[line(0, "ann"), other].join("\n"));
    let args = ["--rules", "new.yaml", "--against", "old.yaml", "--domain", "d", "calls.jsonl"];
    let found = report(folder.path(), &args);
    assert_eq!(
        (&found["calls"]["replayed"], &found["lines"]["other_domains"]),
        (&1.into(), &1.into())
    );
}

/// Bad lines are left out and shown. Their control characters do not reach the terminal.
#[test]
fn bad_lines_are_shown_with_their_numbers() {
    let folder = folder();
    let (good, without_key) = (line(0, "ann"), line(1, "ann").replace("user", ""));
    let lines = [good.as_str(), "\u{1b}[2J", without_key.as_str()];
    write(&folder.path().join("calls.jsonl"), &lines.join("\n"));
    let args = ["--rules", "new.yaml", "--against", "old.yaml", "calls.jsonl"];
    let run = replay(folder.path(), &args);
    assert_eq!(run.code, Some(0), "{run:?}");
    for part in ["bad lines   2 of 3", "line 2: column 1", "line 3: descriptor 0 has an entry"] {
        assert!(run.stdout.contains(part), "no {part} in:\n{}", run.stdout);
    }
    assert!(!run.stdout.contains('\u{1b}'), "{run:?}");
}

#[test]
fn wrong_arguments_say_what_to_do() {
    let folder = folder();
    let path = |name: &str| folder.path().join(name);
    write(&path("bad.yaml"), "domain: d\ndescriptors: [{ key: user, rate_limits: 1 }]\n");
    write(&path("empty.jsonl"), "");
    write(&path("text.jsonl"), "hello\n");
    let wrong: [(&[&str], i32, &str); 10] = [
        (&["--against", "old.yaml", "calls.jsonl"], 2, "--rules"),
        (&["--rules", "new.yaml", "--against", "old.yaml"], 2, "<FILE>"),
        (&["--rules", "new.yaml", "--top", "100001", "calls.jsonl"], 2, "--top"),
        (&["--rules", "new.yaml", "--format", "xml", "calls.jsonl"], 2, "text, json"),
        (&["--rules", "bad.yaml", "--against", "old.yaml", "calls.jsonl"], 64, "bad.yaml:2:"),
        (&["--rules", "new.yaml", "--against", "bad.yaml", "calls.jsonl"], 64, "bad.yaml:2:"),
        (&["--rules", "missing.yaml", "--against", "old.yaml", "calls.jsonl"], 64, "missing.yaml"),
        (&["--rules", "new.yaml", "--against", "old.yaml", "missing.jsonl"], 64, "missing.jsonl"),
        (
            &["--rules", "new.yaml", "--against", "old.yaml", "empty.jsonl"],
            64,
            "no call was decided",
        ),
        (
            &["--rules", "new.yaml", "--against", "old.yaml", "text.jsonl"],
            64,
            "1 line, 1 of them bad, 0 of other domains, 0 without a descriptor; line 1: column 1",
        ),
    ];
    for (args, code, part) in wrong {
        let run = replay(folder.path(), args);
        assert_eq!((run.code, run.stdout.as_str()), (Some(code), ""), "{args:?}: {run:?}");
        assert!(run.stderr.contains(part), "{args:?}: {run:?}");
    }
}

/// Rules whose numbers come from the plan of a user, and three calls of each of two users.
fn folder_with_plans() -> TempDir {
    let folder = TempDir::new().expect("a temporary folder");
    let path = |name: &str| folder.path().join(name);
    let from = "limit_from: { customer: user, limit: calls }";
    write(&path("rules.yaml"), &rules(2).replace("name:", &format!("{from}, name:")));
    write(&path("small.yaml"), "plans: { pro: { calls: 1 } }\ncustomers: { ann: pro }\n");
    write(&path("large.yaml"), "plans: { pro: { calls: 3 } }\n");
    write(&path("bad.yaml"), "plans: { pro: { calls: -1 } }\n");
    write(&path("customers.csv"), "ann,pro\nbob,pro\n");
    let plans = "plans: { source: file, file: small.yaml }\n";
    write(&path("weir.yaml"), &format!("rules: {{ paths: [rules.yaml] }}\n{plans}"));
    let calls = (0..3).flat_map(|at| [line(at, "ann"), line(at, "bob")]);
    write(&path("calls.jsonl"), &calls.collect::<Vec<_>>().join("\n"));
    folder
}

/// The plans of files decide: those of the flags, or of the settings. The old rules may have others.
#[test]
fn plans_of_files_decide() {
    let folder = folder_with_plans();
    let rules = ["--rules", "rules.yaml", "--against", "rules.yaml", "calls.jsonl"];
    let with = |args: &[&str]| denied(&report(folder.path(), &[&rules[..], args].concat()));
    // Two calls of ann have no room in `small`, and one of bob has none in the rule.
    assert_eq!(with(&["--config", "weir.yaml"]), [3, 3]);
    assert_eq!(with(&["--plans", "small.yaml"]), [3, 3]);
    let large = ["--plans", "large.yaml", "--customers", "customers.csv"];
    assert_eq!(with(&large), [0, 0]);
    assert_eq!(with(&[&large[..], &["--against-plans", "small.yaml"]].concat()), [4, 0]);
    assert_eq!(with(&[&large[..], &["--config", "weir.yaml"]].concat()), [0, 0]);
    let customers = ["--config", "weir.yaml", "--customers", "customers.csv"];
    assert_eq!(with(&customers), [4, 4], "bob has one call too");
}

#[test]
fn wrong_plans_say_what_to_do() {
    let folder = folder_with_plans();
    let rules = ["--rules", "rules.yaml", "--against", "rules.yaml", "calls.jsonl"];
    let wrong: [(&[&str], Option<i32>, &str); 4] = [
        (&[], Some(0), "warning: rules with `limit_from` decide by their own numbers"),
        (&["--plans", "bad.yaml"], Some(64), "bad.yaml"),
        (&["--plans", "missing.yaml"], Some(64), "missing.yaml"),
        (&["--customers", "customers.csv"], Some(64), "name a file of plans by --plans"),
    ];
    for (args, code, part) in wrong {
        let run = replay(folder.path(), &[&rules[..], args].concat());
        assert!(run.code == code && run.stderr.contains(part), "{args:?}: {run:?}");
    }
}
