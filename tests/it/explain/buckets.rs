//! `weir explain --bucket`: what Envoys get for a bucket of RLQS.

use std::path::Path;

use serde_json::{Value, json};

use super::{RULES, explain_command};
use crate::support::rlqs::{Assigned, SmallEnvoy, bucket};
use crate::support::wait::until;
use crate::support::weir::cli::run;
use crate::support::weir::{Setup, Weir, write};

/// One rule of each kind.
const KINDS: &str = "
domain: d
descriptors:
  - key: minute
    rate_limit: { unit: minute, requests_per_unit: 30 }
  - key: tiers
    rate_limit: { tiers: [{ requests: 10, window: 1s }, { requests: 1000, window: 1h }] }
  - key: zero
    rate_limit: { unit: second, requests_per_unit: 0 }
  - key: shadow
    shadow_mode: true
    rate_limit: { unit: second, requests_per_unit: 10 }
  - key: open
    rate_limit: { unlimited: true }
  - key: slots
    rate_limit: { algorithm: concurrency, max: 5, hold: 10s }
  - key: month
    rate_limit: { requests: 5, window: { calendar: month } }
";

const KEYS: [&str; 8] = ["minute", "tiers", "zero", "shadow", "open", "none", "slots", "month"];

/// A weir with one rule of each kind, which assigns at once after its start.
fn kinds() -> Setup {
    Weir::setup().rules("d.yaml", KINDS).env("WEIR__RLQS__RELEARN", "false")
}

/// The explanations of these buckets in JSON.
fn explained(source: &[&str], ids: &[String]) -> Vec<Value> {
    let buckets = ids.iter().flat_map(|id| ["--bucket", id]);
    let args: Vec<&str> = source.iter().copied().chain(["--json"]).chain(buckets).collect();
    let shown = explain_command(&args);
    assert_eq!(shown.code, Some(0), "{shown:?}");
    let shown: Value = serde_json::from_str(&shown.stdout).expect("one object");
    shown["explanations"].as_array().expect("a list").clone()
}

/// What is explained is what a stream assigns, also by the rules in a file.
#[test]
fn a_bucket_is_explained_as_it_is_assigned() {
    let weir = kinds().start();
    let envoy = SmallEnvoy::start(weir.grpc, "d");
    let names = KEYS.map(|key| bucket(&[(key, "a")]));
    names.iter().for_each(|name| envoy.demand(name, 5.0));
    let ids: Vec<String> = KEYS.iter().map(|key| format!("{key}=a")).collect();
    let running = explained(&["--addr", &format!("http://{}", weir.admin)], &ids);
    let folder = weir.rules_folder().display().to_string();
    let by_files = explained(&["--rules", &folder], &ids);
    let mut kinds = Vec::new();
    for ((name, running), by_files) in names.iter().zip(&running).zip(&by_files) {
        let rlqs = &running["rlqs"];
        assert_eq!(rlqs, &by_files["rlqs"]);
        let kind = rlqs["kind"].as_str().expect("a kind");
        kinds.push(kind);
        match kind {
            "divided" => {
                let Assigned::Bucket { max_tokens, .. } = envoy.until_assigned(name) else {
                    panic!("{rlqs}")
                };
                assert_eq!(rlqs["burst"], max_tokens, "{rlqs}");
                let rate = rlqs["per_second"].as_f64().expect("a rate");
                envoy.until_rate(name, |got| (0.999..1.001).contains(&(got / rate)));
            }
            "deny_all" => assert_eq!(envoy.until_assigned(name), Assigned::DenyAll),
            "allow_all" => assert_eq!(envoy.until_assigned(name), Assigned::AllowAll),
            _ => {
                let reports = || weir.metric("weir_rlqs_reports_total", &[]);
                until("all were reported twice", || reports() >= 2 * KEYS.len() as u64);
                assert_eq!(envoy.assigned(name), None, "{rlqs}");
            }
        }
    }
    let (divided, deny, allow, none) = ("divided", "deny_all", "allow_all", "not_divided");
    assert_eq!(kinds, [divided, divided, deny, allow, allow, allow, none, none]);
}

/// The text of a bucket, by the rules of a file and of a running service.
#[test]
fn a_line_says_what_envoys_get() {
    let weir = kinds().start();
    let folder = weir.rules_folder().display().to_string();
    let address = format!("http://{}", weir.admin);
    let slots = "RLQS    not divided (a concurrency limit): \
                 Envoy's no_assignment_behavior decides\n";
    let minute = "RLQS    divided: 0.5 per second, burst 6, \
                  among all Envoys with buckets of this counter\n";
    for source in [["--rules", &*folder], ["--addr", &*address]] {
        for (id, line) in [("minute=a", minute), ("slots=a", slots)] {
            let shown = explain_command(&[&source[..], &["--bucket", id]].concat());
            assert!(shown.stdout.contains(line), "{shown:?}");
        }
        let long = format!("minute={}", "x".repeat(5_000));
        let refused = explain_command(&[&source[..], &["--bucket", &long]].concat());
        assert_eq!(refused.code, Some(0), "{refused:?}");
        let why = "the id has 5014 bytes, encoded as Envoy sends it, at most 4096";
        for line in [format!("\nno rule: {why}\n"), format!("\nRLQS    refused: {why}\n")] {
            assert!(refused.stdout.contains(&line), "{refused:?}");
        }
    }
}

#[test]
fn explain_says_that_rlqs_is_switched_off() {
    let weir = kinds().env("WEIR__RLQS__ENABLED", "false").start();
    let folder = tempfile::tempdir().expect("a temporary folder");
    write(&folder.path().join("d.yaml"), KINDS);
    write(&folder.path().join("weir.yaml"), "rules: {paths: [d.yaml]}\nrlqs: {enabled: false}\n");
    let args = ["explain", "--domain", "d", "--bucket", "minute=a"];
    let by_file = run(folder.path(), &[&args[..], &["--config", "weir.yaml"]].concat());
    let running =
        explain_command(&["--addr", &format!("http://{}", weir.admin), "--bucket", "minute=a"]);
    for shown in [by_file, running] {
        let line = "\nRLQS    switched off (rlqs.enabled: false): ";
        assert!(shown.stdout.contains(line), "{shown:?}");
    }
}

/// An id that cannot be read has one error, also without a service.
#[test]
fn a_wrong_bucket_id_has_one_clear_error() {
    for (id, error) in [
        ("", "it is empty; write key=value,key=value"),
        ("=", "`=` has no key; write key=value,key=value"),
        ("a", "`a` has no value; write `a=` for an empty one"),
        ("a=b,", "`a=b,` has a comma too many; write key=value,key=value"),
        ("a=1,a=2", "the bucket id has the key `a` twice; write each key once"),
    ] {
        for source in [["--rules", "."], ["--addr", "http://127.0.0.1:1"]] {
            let shown = explain_command(&[&source[..], &["--bucket", id]].concat());
            assert_eq!(shown.code, Some(64), "{shown:?}");
            assert_eq!(shown.stderr, format!("weir: --bucket: {error}\n"));
        }
    }
}

/// The keys of a bucket id come in the order of `rlqs.key_order`, then in that of their bytes.
#[test]
fn explain_shows_the_descriptor_of_a_bucket() {
    let bucket = ["--bucket", "ip=10.1.2.3,path=/login"];
    let weir = Weir::setup().rules("d.yaml", RULES).env("WEIR__RLQS__KEY_ORDER", "path").start();
    let address = format!("http://{}", weir.admin);
    let asked = explain_command(&[&["--addr", &*address][..], &bucket[..]].concat());
    let folder = tempfile::tempdir().expect("a temporary folder");
    let settings = "rules: {paths: [d.yaml]}\nrlqs: {key_order: path}\n";
    for (name, text) in [("d.yaml", RULES), ("weir.yaml", settings)] {
        std::fs::write(folder.path().join(name), text).expect("a file in it");
    }
    let in_folder = |args: &[&str]| {
        run(folder.path(), &[&["explain", "--domain", "d"][..], args, &bucket[..]].concat())
    };
    for shown in [&asked, &in_folder(&["--config", "weir.yaml"])] {
        assert_eq!(shown.code, Some(0), "{shown:?}");
        let start = "bucket  as the descriptor path=/login,ip=10.1.2.3\ndomain d\n";
        assert!(shown.stdout.starts_with(start), "{shown:?}");
        assert!(shown.stdout.contains("\nrule    login ("), "{shown:?}");
    }
    assert!(asked.stdout.contains("\nstate   0 used, 5 of 5 remaining"), "{asked:?}");
    let by_bytes = in_folder(&["--rules", "d.yaml"]);
    assert!(by_bytes.stdout.contains("descriptor ip=10.1.2.3,path=/login\n"), "{by_bytes:?}");
    assert!(by_bytes.stdout.contains("\nno rule: "), "{by_bytes:?}");
    let note = "\nnote    without --config, the defaults apply: rlqs.enabled true, \
                rlqs.key_order empty, ";
    assert!(by_bytes.stdout.contains(note), "{by_bytes:?}");
    let with_both = in_folder(&["--rules", "d.yaml", "--config", "weir.yaml"]);
    for shown in [&asked, &with_both] {
        assert!(!shown.stdout.contains("note "), "{shown:?}");
    }
}

/// The settings that `--rules` without `--config` assumes are also in the JSON, for buckets only.
#[test]
fn the_json_of_rules_alone_has_the_assumed_settings() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    write(&folder.path().join("d.yaml"), KINDS);
    write(&folder.path().join("weir.yaml"), "rules: {paths: [d.yaml]}\n");
    let assumed = |args: &[&str]| {
        let head = ["explain", "--domain", "d", "--json"];
        let shown = run(folder.path(), &[&head[..], args].concat());
        assert_eq!(shown.code, Some(0), "{shown:?}");
        let shown: Value = serde_json::from_str(&shown.stdout).expect("one object");
        shown.get("assumed_settings").cloned()
    };
    let defaults = json!({
        "rlqs": { "enabled": true, "key_order": "", "burst_percent": 20 },
        "request": { "max_entries": 32, "max_text_bytes": 65536 },
    });
    let bucket = ["--bucket", "minute=a"];
    assert_eq!(assumed(&[&["--rules", "d.yaml"][..], &bucket].concat()), Some(defaults));
    assert_eq!(assumed(&[&["--config", "weir.yaml"][..], &bucket].concat()), None);
    assert_eq!(assumed(&["minute=a", "--rules", "d.yaml"]), None);
}

/// A domain that a stream refuses is an error, by the rules of a file and of a running service.
#[test]
fn a_wrong_domain_is_not_explained() {
    let weir = kinds().start();
    let folder = weir.rules_folder().display().to_string();
    let address = format!("http://{}", weir.admin);
    let long = "x".repeat(70_000);
    for (domain, error) in [
        ("", "domain must not be empty; set `domain` in the rate limit filter"),
        (
            &*long,
            "domain is 70000 bytes long, more than 65536; shorten it, or raise \
             request.max_text_bytes",
        ),
    ] {
        let sources = [(["--rules", &*folder], ""), (["--addr", &*address], " (HTTP status 400)")];
        for (source, end) in sources {
            for asked in [&["--bucket", "minute=a"][..], &["minute=a"]] {
                let args = [&["explain", "--domain", domain][..], asked, &source].concat();
                let shown = run(Path::new("."), &args);
                assert_eq!((shown.code, &*shown.stdout), (Some(64), ""), "{shown:?}");
                assert_eq!(shown.stderr, format!("weir: {error}{end}\n"));
            }
        }
    }
}

#[test]
fn explain_without_a_question_names_both_kinds() {
    for args in [&["explain"][..], &["explain", "--domain", "d"]] {
        let shown = run(Path::new("."), args);
        assert_eq!(shown.code, Some(2), "{shown:?}");
        let either = "<KEY=VALUE,...|--bucket <KEY=VALUE,...>>";
        assert!(shown.stderr.contains(either), "{shown:?}");
    }
    let shown = explain_command(&["user=ann", "--bucket", "user=ann", "--rules", "examples/rules"]);
    assert_eq!(shown.code, Some(0), "{shown:?}");
    assert_eq!(shown.stdout.matches("domain d\n").count(), 2, "{shown:?}");
}
