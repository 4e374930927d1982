//! The log of decisions at the level debug, and the lines that no level has.

use serde_json::Value;

use crate::support::rls::{descriptor, request};
use crate::support::weir::{Weir, write};
use crate::support::window_edge::within_an_hour;

const RULES: &str = "
domain: d
descriptors:
  - key: user
    rate_limit: { name: per-user, unit: hour, requests_per_unit: 2, shadow: { requests: 0 } }
";

/// The line about a descriptor whose text starts with `start`.
fn decided(weir: &mut Weir, start: &str) -> Value {
    weir.process().wait_for("the decision", |line| {
        let line: Value = serde_json::from_str(line).ok()?;
        let fits = line["descriptor"].as_str().is_some_and(|text| text.starts_with(start));
        (line["message"] == "decided" && fits).then_some(line)
    })
}

#[test]
fn debug_logs_each_decision_on_one_line() {
    for level in ["debug", "warn,weir=debug"] {
        within_an_hour(|| {
            let setup = Weir::setup().rules("d.yaml", RULES).env("WEIR__LOG__LEVEL", level);
            let mut weir = setup.start();
            let long = "y".repeat(10_000);
            let values = [("user", "ann"), ("other", "x\n\u{202e}"), ("long", long.as_str())];
            let descriptors = values.map(|entry| descriptor(&[entry]));
            weir.client().check(request("d", descriptors.to_vec()));
            let line = decided(&mut weir, "user=");
            assert_eq!(line["descriptor"], "user=ann", "{line}");
            let rule = (line["rule"].as_str(), line["selector"].as_str());
            assert_eq!(rule, (Some("per-user"), Some("user")), "{line}");
            assert_eq!(
                (&line["hits"], &line["limit"], &line["used"]),
                (&1.into(), &2.into(), &1.into())
            );
            assert_eq!((line["code"].as_str(), &line["remaining"]), (Some("OK"), &1.into()));
            assert_eq!((&line["domain"], &line["what_if"]), (&"d".into(), &"OVER_LIMIT".into()));
            let line = decided(&mut weir, "other=");
            assert_eq!(line["descriptor"], r"other=x\n\u{202e}", "{line}");
            assert_eq!(line["reason"], "no_rule", "{line}");
            assert!(line.get("remaining").is_none(), "nothing was counted: {line}");
            assert!(line.get("what_if").is_none(), "no rule has a what-if limit: {line}");
            let line = decided(&mut weir, "long=");
            assert!(line["descriptor"].as_str().is_some_and(|text| text.len() < 500), "{line}");
        });
    }
}

#[test]
fn info_logs_no_decision() {
    let setup = Weir::setup().rules("d.yaml", RULES).env("WEIR__DRAIN__DELAY", "0s");
    let mut weir = setup.start();
    weir.client().check(request("d", vec![descriptor(&[("user", "ann")])]));
    weir.process().terminate();
    weir.process().wait_for_exit();
    assert!(!weir.process().output().contains("decided"), "{}", weir.process().output());
}

/// The file watcher would log each line that is written to a log in a watched folder.
#[test]
fn trace_logs_no_lines_of_the_file_watcher() {
    let setup = Weir::setup().rules("d.yaml", RULES).env("WEIR__LOG__LEVEL", "trace");
    let mut weir = setup.start();
    write(&weir.rules_folder().join("d.yaml"), &RULES.replace("per-user", "per-client"));
    weir.process().wait_for("the reload", |line| line.contains("rules reloaded").then_some(()));
    for target in ["\"target\":\"notify", "\"target\":\"mio"] {
        let output = weir.process().output();
        let line = output.lines().find(|line| line.contains(target));
        assert_eq!(line, None);
    }
}
