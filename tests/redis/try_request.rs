//! Tried requests over Redis: they agree with the next call, and take nothing.

use serde_json::{Value, json};

use crate::support::http::send;
use crate::support::on_redis::{cluster_url, over, ready};
use crate::support::redis::cluster::Cluster;
use crate::support::rls::{descriptor, request};
use crate::support::schedule::shared;

const RULES: &str = "
domain: d
descriptors:
  - key: fixed
    rate_limit: { requests: 3, window: 1000d }
  - key: sliding
    rate_limit: { algorithm: sliding_window, requests: 3, window: 1000d }
  - key: log
    rate_limit: { algorithm: sliding_window_log, requests: 3, window: 1000d }
  - key: bucket
    rate_limit: { algorithm: token_bucket, requests: 3, window: 1000d }
  - key: slots
    rate_limit: { algorithm: concurrency, max: 3, hold: 1h }
";

/// Each algorithm allows three hits. The trial before each call has the code of the call.
#[test]
fn a_tried_request_agrees_over_redis() {
    let _permit = shared();
    let cluster = Cluster::start();
    let weir = over(&cluster_url(&cluster), RULES).store_timeout("20s").start();
    ready(&weir);
    let client = weir.client();
    for key in ["fixed", "sliding", "log", "bucket", "slots"] {
        let body =
            json!({ "domain": "d", "descriptor": format!("{key}=x"), "limit": { "requests": 9 } });
        let attempt = || send(weir.admin, "POST", "/try", &[], body.to_string().as_bytes());
        for expected in [1, 1, 1, 2] {
            let first = attempt().json();
            let tried = attempt().json();
            assert_eq!(first["code"], tried["code"], "nothing is taken: {tried}");
            let call = client.check(request("d", vec![descriptor(&[(key, "x")])]));
            assert_eq!(call.overall_code, expected, "{key}");
            let code = if expected == 1 { "OK" } else { "OVER_LIMIT" };
            assert_eq!(tried["code"], code, "{key}: {tried}");
            let one = &tried["descriptors"][0];
            assert_eq!(one["remaining"], Value::from(call.statuses[0].limit_remaining), "{tried}");
            // A bucket keeps the part that is used, so a full one is full with other numbers too.
            let other = if key == "bucket" { code } else { "OK" };
            assert_eq!(one["with_limit"]["code"], other, "{tried}");
        }
    }
}
