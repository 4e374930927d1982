//! What-if limits of a running service: metrics, and the pages of the admin port.

use std::path::Path;

use serde_json::{Value, json};

use crate::support::http::{get, post, send};
use crate::support::rls::{costing, descriptor, request};
use crate::support::weir::Weir;
use crate::support::weir::cli::run;
use crate::support::window_edge::within_an_hour;

const RULES: &str = "
domain: d
descriptors:
  - key: user
    rate_limit: { name: per-user, unit: hour, requests_per_unit: 10, shadow: { requests: 4 } }
  - key: path
    rate_limit: { unit: hour, requests_per_unit: 10 }
";

const ANN: &str = "/counters?domain=d&descriptor=user=ann";

/// A service at which `user=ann` has six hits in four decisions, two of them over the what-if limit.
fn used() -> Weir {
    let weir = Weir::start(RULES);
    let client = weir.client();
    for hits in [3, 0, 2, 1] {
        let both = [descriptor(&[("path", "/")]), descriptor(&[("user", "ann")])];
        let answer = client.check(request("d", both.map(|one| costing(hits, one)).to_vec()));
        assert_eq!(answer.overall_code, 1, "the what-if limit denies nothing");
    }
    weir
}

#[test]
fn metrics_show_what_would_have_been_denied() {
    within_an_hour(|| {
        let weir = used();
        let of = |metric: &str, outcome: &str| {
            let outcome = format!("outcome=\"{outcome}\"");
            weir.metric(metric, &["domain=\"d\"", "rule=\"per-user\"", &outcome])
        };
        let decisions =
            ["within", "over"].map(|outcome| of("weir_what_if_decisions_total", outcome));
        let hits = ["within", "over"].map(|outcome| of("weir_what_if_hits_total", outcome));
        assert_eq!((decisions, hits), ([2, 2], [3, 3]));
        assert_eq!(weir.metric("weir_what_if_decisions_total", &["rule=\"path\""]), 0);
        assert_eq!(of("weir_decisions_total", "over"), 0);
    });
}

#[test]
fn the_admin_port_shows_both_counters() {
    within_an_hour(|| {
        let weir = used();
        let shown = get(weir.admin, ANN).json();
        assert_eq!((&shown["denied"], &shown["tiers"][0]["used"]), (&json!(false), &json!(6)));
        let what_if = &shown["what_if"];
        assert_eq!((&what_if["denied"], &what_if["tiers"][0]["used"]), (&json!(true), &json!(6)));
        assert_eq!(what_if["tiers"][0]["requests"], 4);
        assert_ne!(what_if["key"], shown["key"]);
        let path = get(weir.admin, "/counters?domain=d&descriptor=path=/").json();
        assert!(path.get("what_if").is_none(), "{path}");
        let body = json!({ "domain": "d", "descriptor": "user=ann" }).to_string();
        let explained = post(weir.admin, "/explain", body).json();
        let options = explained["explanations"][0]["outcome"]["options"].clone();
        let option = Value::from("shadow: 4 per 1h is counted too, and never denies");
        assert!(options.as_array().is_some_and(|all| all.contains(&option)), "{options}");
        let address = format!("http://{}", weir.admin);
        let args = ["explain", "--domain", "d", "--addr", &address, "user=ann"];
        let run = run(Path::new("."), &args);
        for part in ["\nstate   6 used, 4 of 10 remaining", "\nstate   6 used, 0 of 4 remaining"] {
            assert!(run.stdout.contains(part), "{run:?}");
        }
        assert_eq!(send(weir.admin, "DELETE", ANN, &[], b"").status, 200);
        let shown = get(weir.admin, ANN).json();
        let both = [&shown, &shown["what_if"]].map(|one| one["tiers"][0]["used"].clone());
        assert_eq!(both, [0, 0]);
    });
}
