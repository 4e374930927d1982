//! Access logs of Envoy: the sample of the page, and the log of a real Envoy.

use std::path::Path;

use super::{denied, report};
use crate::page_commands::text::root;
use crate::support::envoy::upstream::Upstream;
use crate::support::envoy::{self, Envoy, NEWEST, OLDEST};
use crate::support::wait::until;
use crate::support::weir::{Weir, write};
use crate::support::window_edge::within_an_hour;

const BASIC: &str = include_str!("../../../examples/envoy/basic.yaml");

/// The rules of the example's descriptors, with windows of an hour or more.
const RULES: &str = "
domain: demo
descriptors:
  - key: user
    rate_limit: { name: per-user, unit: hour, requests_per_unit: 2 }
  - key: generic_key
    value: site
    descriptors:
      - key: remote_address
        rate_limit: { name: site, unit: day, requests_per_unit: 6 }
";

/// The access log that docs/guides/replay.md shows, for the file at `path`, indented as a field of the
/// example's connection manager.
fn access_log(path: &Path) -> String {
    let page = include_str!("../../../docs/guides/replay.md");
    let block = page.split("```yaml\naccess_log:\n").nth(1).expect("the page has it");
    let block = block.split("```").next().expect("its end");
    let shown = "/var/log/envoy/calls.jsonl";
    assert!(block.contains(shown), "{block}");
    let block = block.replace(shown, &path.to_string_lossy());
    let indented: String = block.lines().map(|line| format!("          {line}\n")).collect();
    format!("          access_log:\n{indented}")
}

#[test]
fn the_log_of_the_newest_envoy_is_replayed() {
    within_an_hour(|| log_is_replayed(NEWEST));
}

#[test]
fn the_log_of_the_oldest_envoy_is_replayed() {
    within_an_hour(|| log_is_replayed(OLDEST));
}

/// A replay of Envoy's log denies the requests that Envoy has denied.
fn log_is_replayed(version: &str) {
    let folder = tempfile::TempDir::new().expect("a temporary folder");
    let path = folder.path().join("calls.jsonl");
    write(&folder.path().join("rules.yaml"), RULES);
    let weir = Weir::start(RULES);
    let upstream = Upstream::start();
    let config = envoy::tuned(BASIC, weir.grpc, upstream.address);
    let (before, after) =
        config.split_once("          use_remote_address: true\n").expect("a line");
    let log = access_log(&path);
    let config = format!("{before}          use_remote_address: true\n{log}{after}");
    // Otherwise the test waits for the limit on decisions of the example.
    let envoy = Envoy::start(version, &config.replace("timeout: 0.1s", "timeout: 60s"));
    let sent = [Some("ann"), None, Some("ann"), Some("b\"ob"), Some("ann"), None, None];
    let mut refused = 0;
    for user in sent {
        let headers: Vec<(&str, &str)> = user.iter().map(|user| ("x-user", *user)).collect();
        refused += u64::from(envoy.get("/", &headers).status == 429);
    }
    assert_eq!(refused, 2, "the third of ann, and the seventh of the address");
    // Envoy writes its log every ten seconds.
    let recorded = || std::fs::read_to_string(&path).unwrap_or_default();
    until("the log", || recorded().lines().count() == sent.len());

    let args = ["--rules", "rules.yaml", "--against", "rules.yaml", "--envoy-log", "calls.jsonl"];
    let found = report(folder.path(), &args);
    let shown = format!("{found}\n{}", recorded());
    assert_eq!(found["calls"]["replayed"], sent.len(), "{shown}");
    assert_eq!(found["recorded"]["calls"], sent.len(), "{shown}");
    assert_eq!(denied(&found), [refused; 2], "{shown}");
    for difference in ["denied_by_old_only", "denied_in_recording_only"] {
        assert_eq!(found["recorded"][difference], 0, "{shown}");
    }
    // Requests without the header have one descriptor, and the others have two.
    let decided: u64 = found["rules"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|rule| rule["old"]["descriptors"].as_u64().expect("a number"))
        .sum();
    assert_eq!(decided, 11, "{shown}");
}

/// The sample of the page has a request without a descriptor, which is left out.
#[test]
fn the_sample_of_envoys_log_is_replayed() {
    let args = ["--rules", "examples/replay/demo.yaml", "--against", "examples/rules"];
    let args = [&args[..], &["--envoy-log", "examples/replay/envoy.jsonl"]].concat();
    let found = report(&root(), &args);
    assert_eq!(denied(&found), [0, 1], "{found}");
    assert_eq!(found["lines"]["without_descriptors"], 1, "{found}");
    // Its lines are no lines of the decision log.
    let as_log: Vec<&str> = args.into_iter().filter(|arg| *arg != "--envoy-log").collect();
    let run = super::replay(&root(), &as_log);
    assert_eq!(run.code, Some(64), "{run:?}");
    assert!(run.stderr.contains("4 of them bad"), "{run:?}");
}
