//! `--json` of the commands that call the admin port: texts of requests arrive whole, and no character of
//! them acts on a terminal.

use std::path::Path;

use serde_json::{Value, json};

use crate::support::http::send;
use crate::support::rls::{descriptor, request};
use crate::support::weir::Weir;
use crate::support::weir::cli::run;
use crate::support::window_edge::within_an_hour;

const RULES: &str = "
domain: d
descriptors:
  - key: user
    rate_limit: { unit: hour, requests_per_unit: 1, usage: true }
";

/// A control sequence of eight bits, an override of the direction, and the end of a line.
const HOSTILE: &str = "a\u{9b}31m\u{202e}b\u{2028}c";

/// The texts in `value`, without keys.
fn texts(value: &Value) -> Vec<&str> {
    match value {
        Value::String(text) => vec![text],
        Value::Array(items) => items.iter().flat_map(texts).collect(),
        Value::Object(fields) => fields.values().flat_map(texts).collect(),
        _ => Vec::new(),
    }
}

#[test]
fn json_has_no_raw_special_characters() {
    within_an_hour(|| {
        let weir = Weir::start(RULES);
        let client = weir.client();
        for _ in 0..2 {
            client.check(request("d", vec![descriptor(&[("user", HOSTILE)])]));
        }
        let change = json!({
            "domain": "d",
            "descriptor": { "entries": [{ "key": "user", "value": HOSTILE }] },
            "bypass": true,
            "for": "1h",
            "reason": HOSTILE,
        });
        let made = send(weir.admin, "PATCH", "/changes", &[], change.to_string().as_bytes());
        assert_eq!(made.status, 200, "{}", made.body);
        let address = format!("http://{}", weir.admin);
        let text = format!("user={HOSTILE}");
        for (args, has_value) in [
            (vec!["status", "--json"], false),
            (vec!["top", "--once", "--json"], true),
            (vec!["counters", "--json"], true),
            (vec!["counters", "--json", "--domain", "d", text.as_str()], false),
            (vec!["explain", "--json", "--domain", "d", text.as_str()], false),
            (vec!["change", "list", "--json"], true),
            (vec!["usage", "--domain", "d", "--rule", "user", "--format", "json"], true),
        ] {
            let all = [&args[..], &["--addr", address.as_str()]].concat();
            let done = run(Path::new("."), &all);
            assert_eq!(done.code, Some(0), "{done:?}");
            assert!(!done.stdout.contains(['\u{9b}', '\u{202e}', '\u{2028}']), "{done:?}");
            let shown: Value = serde_json::from_str(&done.stdout).expect("one object");
            let is_shown = texts(&shown).iter().any(|text| text.contains(HOSTILE));
            assert!(is_shown || !has_value, "{args:?}: {shown}");
        }
    });
}
