//! Callers of `ShouldRateLimit` at an instance that has no share of a divided limit yet.

use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::http;
use crate::support::on_redis::{over, ready};
use crate::support::redis::server::Server;
use crate::support::rlqs::{SmallEnvoy, bucket};
use crate::support::rls::{Client, Code, descriptor, request};
use crate::support::schedule::exclusive;
use crate::support::wait::until;
use crate::support::weir::Weir;

/// How long Redis does not answer: longer than `store.timeout`, and too short for the breaker to open.
const STALL: Duration = Duration::from_millis(20);

/// An instance that divides a limit with an Envoy of another one, and has no caller yet.
struct Setting {
    redis: Server,
    _first: Weir,
    second: Weir,
    _envoy: SmallEnvoy,
}

impl Setting {
    /// `limit` per `unit`, and an Envoy with this demand, whose share is about `share` of the limit.
    fn start(unit: &str, limit: usize, demand: f64, share: f64) -> Setting {
        let redis = Server::listening(&["--enable-debug-command", "yes"]);
        let rules = format!(
            "domain: d\ndescriptors:\n  - key: tenant\n    rate_limit: {{ unit: {unit}, \
             requests_per_unit: {limit} }}\n"
        );
        let url = format!("redis://127.0.0.1:{}", redis.port());
        let [first, second] = [(); 2].map(|()| over(&url, &rules).start());
        [&first, &second].into_iter().for_each(ready);
        let tenant = bucket(&[("tenant", "a")]);
        let envoy = SmallEnvoy::start(first.grpc, "d");
        envoy.demand(&tenant, demand);
        until("the demand of the Envoy, and its share", || {
            let page = http::get(first.admin, "/quotas").json();
            let shown = |name: &str| page["quotas"][0][name].as_f64().unwrap_or(0.0);
            is_near(shown("demand_per_second"), demand) && is_near(shown("assigned"), share)
        });
        until("the other instance reads that the rule is divided", || {
            let body = json!({ "domain": "d", "descriptor": "tenant=a" }).to_string();
            let tried = http::post(second.admin, "/try", body).json();
            let note = tried["descriptors"][0]["note"].as_str().unwrap_or_default();
            note.starts_with("RLQS divides this limit")
        });
        Setting { redis, _first: first, second, _envoy: envoy }
    }
}

/// A count over some seconds differs a little from the rate.
fn is_near(number: f64, expected: f64) -> bool {
    (number - expected).abs() <= 0.05 * expected
}

fn is_allowed(client: &Client) -> bool {
    let answer = client.check(request("d", vec![descriptor(&[("tenant", "a")])]));
    answer.overall_code() == Code::Ok
}

/// Redis stalls when an instance asks for its first share. After that the counter decides, and not
/// `on_error: allow`.
#[test]
fn a_stall_before_the_first_share_opens_nothing() {
    const LIMIT: usize = 60;
    let _alone = exclusive();
    let setting = Setting::start("minute", LIMIT, 10.0, 1.0);
    let client = setting.second.client();
    let mut stalling = setting.redis.client();
    let stall = STALL.as_secs_f64().to_string();
    let failed = || setting.second.metric("weir_rlqs_settlements_total", &[r#"result="error""#]);
    assert_eq!(failed(), 0, "the instance has asked for no share");
    // Redis reads this before the first call reaches it: it is in the socket before the call is sent.
    stalling.queue(&[b"DEBUG", b"SLEEP", stall.as_bytes()]);
    let begin = Instant::now();
    stalling.send().expect("a connection");
    let (mut in_stall, mut after) = (0, 0);
    while begin.elapsed() < Duration::from_secs(1) {
        let is_after = begin.elapsed() >= STALL;
        if is_allowed(&client) {
            *(if is_after { &mut after } else { &mut in_stall }) += 1;
        }
    }
    assert_eq!(stalling.read().expect("a reply").text(), "OK");
    assert!(failed() > 0, "the first read did not meet the stall");
    println!("{in_stall} calls passed in the stall, and {after} in the second after it");
    // A minute may end meanwhile.
    assert!(after <= 2 * LIMIT, "{after} calls passed after the stall");
}

/// The Envoy has the limit and must give a part of it. Callers do not wait for that: they have what is not
/// wanted, or else the burst of their part.
#[test]
fn callers_have_a_share_at_once() {
    let _alone = exclusive();
    // A tenth of the limit stays free if it is larger than the demand.
    for (demand, share, pause) in [(20.0, 0.9, 50), (500.0, 1.0, 500)] {
        let setting = Setting::start("second", 200, demand, share);
        let client = setting.second.client();
        let begin = Instant::now();
        let (mut calls, mut denied) = (0, 0);
        while begin.elapsed() < Duration::from_secs(4) {
            calls += 1;
            denied += usize::from(!is_allowed(&client));
            thread::sleep(Duration::from_millis(pause));
        }
        println!("{denied} of {calls} calls were denied beside {demand} requests per second");
        assert_eq!(denied, 0, "of {calls} beside {demand} requests per second");
    }
}
