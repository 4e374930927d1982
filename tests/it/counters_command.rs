//! `weir counters`: a list, one counter, and its deletion after a question.

use std::path::Path;

use serde_json::Value;

use crate::support::rls::{descriptor, request};
use crate::support::weir::Weir;
use crate::support::weir::cli::{Run, run};
use crate::support::window_edge::within_an_hour;

const RULES: &str = "
domain: d
descriptors:
  - key: user
    rate_limit: { unit: hour, requests_per_unit: 1, usage: true }
";

fn counters(weir: &Weir, args: &[&str]) -> Run {
    let address = format!("http://{}", weir.admin);
    run(Path::new("."), &[&["counters", "--addr", &address][..], args].concat())
}

/// A service whose counter of `user=ann` denied a hit.
fn full() -> Weir {
    let weir = Weir::start(RULES);
    let client = weir.client();
    for _ in 0..2 {
        client.check(request("d", vec![descriptor(&[("user", "ann")])]));
    }
    weir
}

#[test]
fn a_counter_is_listed_shown_and_emptied() {
    within_an_hour(|| {
        let weir = full();
        let list = counters(&weir, &[]);
        assert_eq!(list.code, Some(0), "{list:?}");
        assert!(list.stdout.contains("1 denied  d  user  user=ann"), "{list:?}");
        let ann = ["--domain", "d", "user=ann"];
        let one = counters(&weir, &ann);
        assert!(one.stdout.starts_with("domain d, rule user\n2 of 1 used per 3600"), "{one:?}");
        assert!(one.stdout.contains("\ndenied until "), "{one:?}");
        let json = counters(&weir, &[&ann[..], &["--json"]].concat());
        let json: Value = serde_json::from_str(&json.stdout).expect("one object");
        assert_eq!(json["counters"][0]["denied"], true, "{json}");
        // The input is empty, so the answer is no.
        let asked = counters(&weir, &[&ann[..], &["--delete"]].concat());
        assert_eq!(asked.code, Some(1), "{asked:?}");
        assert!(asked.stderr.contains("user=ann in domain d? [y/N]"), "{asked:?}");
        let emptied = counters(&weir, &[&ann[..], &["--delete", "--yes"]].concat());
        assert_eq!(emptied.code, Some(0), "{emptied:?}");
        assert!(counters(&weir, &ann).stdout.contains("\n0 of 1 used"), "it is empty");
    });
}

#[test]
fn a_descriptor_without_a_counter_is_refused() {
    let weir = Weir::start(RULES);
    let none = counters(&weir, &["--domain", "d", "other=x"]);
    assert_eq!(none.code, Some(64), "{none:?}");
    assert!(none.stderr.contains("(HTTP status 404)"), "{none:?}");
    for args in [&["user=ann"][..], &["--domain", "d"], &["--delete"], &["--yes"]] {
        assert_eq!(counters(&weir, args).code, Some(2), "{args:?}");
    }
}
