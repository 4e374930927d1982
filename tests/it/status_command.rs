//! `weir status`: words, JSON, and exit codes.

use std::path::Path;

use serde_json::{Value, json};

use crate::support::wait::until;
use crate::support::weir::Weir;
use crate::support::weir::cli::{Run, run};

const RULES: &str = "domain: d\ndescriptors: [{ key: user, rate_limit: { unlimited: true } }]\n";

fn status(address: &str, args: &[&str]) -> Run {
    run(Path::new("."), &[&["status", "--addr", address][..], args].concat())
}

#[test]
fn a_healthy_service_exits_with_0() {
    let weir = Weir::start(RULES);
    let address = format!("http://{}", weir.admin);
    let words = status(&address, &[]);
    assert_eq!(words.code, Some(0), "{words:?}");
    assert!(words.stdout.starts_with("serving, weir "), "{words:?}");
    assert!(words.stdout.contains("\nstore       "), "{words:?}");
    let json = status(&address, &["--json"]);
    let page: Value = serde_json::from_str(&json.stdout).expect("one object");
    assert_eq!((&page["health"], &page["store"]["kind"]), (&json!("serving"), &json!("memory")));
}

#[test]
fn problems_and_no_response_have_exit_codes() {
    // No process listens on port 1 of loopback.
    let setup = Weir::setup().rules("a.yaml", RULES).env("WEIR__REDIS__URL", "redis://127.0.0.1:1");
    let weir = setup.start();
    let address = format!("http://{}", weir.admin);
    until("weir reports that Redis does not answer", || status(&address, &[]).code == Some(1));
    let words = status(&address, &[]);
    assert!(words.stdout.contains("\nproblem   redis: "), "{words:?}");
    let nowhere = status("http://127.0.0.1:1", &[]);
    assert_eq!(nowhere.code, Some(69), "{nowhere:?}");
    assert!(nowhere.stderr.contains("start `weir serve` there"), "{nowhere:?}");
}
