//! One name per rule: the metrics, the pages and the commands call a rule with a `name`, one without, and
//! two that share a `name` alike.

use serde_json::{Value, json};

use crate::support::http::{get, post};
use crate::support::rls::{descriptor, request};
use crate::support::weir::Weir;
use crate::support::weir::cli::run;

mod surfaces;

const RULES: &str = "
domain: d
descriptors:
  - { key: user, rate_limit: { name: per-user, unit: day, requests_per_unit: 1, usage: true } }
  - { key: org, value: a, rate_limit: { unit: day, requests_per_unit: 1, usage: true } }
  - { key: one, rate_limit: { name: both, unit: day, requests_per_unit: 1, usage: true } }
  - { key: two, rate_limit: { name: both, unit: day, requests_per_unit: 1, usage: true } }
";

/// An entry, the name of its rule, and the selector where it differs.
const NAMES: [((&str, &str), &str, Option<&str>); 4] = [
    (("user", "x"), "per-user", Some("user")),
    (("org", "a"), "org=a", None),
    (("one", "x"), "one", None),
    (("two", "x"), "two", None),
];

/// Checks that `shown` has the names.
#[track_caller]
fn check(shown: &Value, name: &str, selector: Option<&str>) {
    assert_eq!(shown["rule"], name, "{shown}");
    assert_eq!(shown["selector"].as_str(), selector, "{shown}");
}

#[test]
fn a_rule_has_one_name_everywhere() {
    let weir = Weir::start(RULES);
    let client = weir.client();
    for (entry, name, selector) in NAMES {
        for _ in 0..2 {
            client.check(request("d", vec![descriptor(&[entry])]));
        }
        let label = format!("rule=\"{name}\"");
        let over = ["domain=\"d\"", label.as_str(), "outcome=\"over\""];
        assert_eq!(weir.metric("weir_decisions_total", &over), 1, "{name}");
        let text = format!("{}={}", entry.0, entry.1);
        check(
            &get(weir.admin, &format!("/counters?domain=d&descriptor={text}")).json(),
            name,
            selector,
        );
        for text in [Some(text.as_str()), Some(name), selector].into_iter().flatten() {
            let body = json!({ "domain": "d", "descriptor": text }).to_string();
            let shown = post(weir.admin, "/explain", body).json();
            check(&shown["explanations"][0]["outcome"], name, selector);
        }
        for text in [Some(name), selector].into_iter().flatten() {
            check(&get(weir.admin, &format!("/usage?domain=d&rule={text}")).json(), name, selector);
        }
    }
    let top = get(weir.admin, "/top").json();
    let top = top["top"].as_array().expect("a list").clone();
    for (_, name, selector) in NAMES {
        let shown = top.iter().find(|one| one["rule"] == name);
        check(shown.unwrap_or_else(|| panic!("no {name}: {top:?}")), name, selector);
    }
    let several = get(weir.admin, "/usage?domain=d&rule=both");
    assert_eq!(several.status, 400, "{}", several.body);
    assert!(several.body.contains("`one`, `two`"), "{}", several.body);
}

#[test]
fn check_warns_of_a_shared_name() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::write(folder.path().join("d.yaml"), RULES).expect("a file in it");
    let run = run(folder.path(), &["check", "d.yaml"]);
    let shown = format!("{}{}", run.stdout, run.stderr);
    assert!(shown.contains("d.yaml:7:5: `name: both` is also the name of"), "{run:?}");
}
