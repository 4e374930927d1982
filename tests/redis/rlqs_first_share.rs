//! Callers of `ShouldRateLimit` at an instance that has no share of a divided limit yet.

use std::thread;
use std::time::{Duration, Instant};

use crate::support::on_redis::{over, ready};
use crate::support::redis::server::Server;
use crate::support::rlqs::{SmallEnvoy, bucket};
use crate::support::rls::{Client, Code, descriptor, request};
use crate::support::schedule::exclusive;
use crate::support::weir::Weir;

/// How long Redis does not answer: longer than `store.timeout`, and too short for the breaker to open.
const STALL: Duration = Duration::from_millis(20);

/// Reads and announcements of divided rules, one per second each.
const ANNOUNCED: Duration = Duration::from_secs(3);

/// Time in which three reports show the demand of an Envoy.
const MEASURED: Duration = Duration::from_secs(16);

/// An instance that divides a limit with an Envoy of another one, and has no caller yet.
struct Setting {
    redis: Server,
    _first: Weir,
    second: Weir,
    _envoy: SmallEnvoy,
}

impl Setting {
    /// `limit` per `unit`, and an Envoy with this demand for `time`.
    fn start(unit: &str, limit: usize, demand: f64, time: Duration) -> Setting {
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
        envoy.until_rate(&tenant, |rate| rate > 0.0);
        // The other instance reads that the rule is divided. That has no event.
        thread::sleep(time);
        Setting { redis, _first: first, second, _envoy: envoy }
    }
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
    let setting = Setting::start("minute", LIMIT, 10.0, ANNOUNCED);
    let client = setting.second.client();
    let mut stalling = setting.redis.client();
    let stall = STALL.as_secs_f64().to_string();
    let begin = Instant::now();
    let stalling = thread::spawn(move || stalling.run(&["DEBUG", "SLEEP", &stall]));
    let (mut in_stall, mut after) = (0, 0);
    while begin.elapsed() < Duration::from_secs(1) {
        let is_after = begin.elapsed() >= STALL;
        if is_allowed(&client) {
            *(if is_after { &mut after } else { &mut in_stall }) += 1;
        }
    }
    stalling.join().expect("Redis permits it");
    println!("{in_stall} calls passed in the stall, and {after} in the second after it");
    // A minute may end meanwhile.
    assert!(after <= 2 * LIMIT, "{after} calls passed after the stall");
}

/// The Envoy has the limit and must give a part of it. Callers do not wait for that: they have what is not
/// wanted, or else the burst of their part.
#[test]
fn callers_have_a_share_at_once() {
    let _alone = exclusive();
    for (demand, pause) in [(20.0, 50), (500.0, 500)] {
        let setting = Setting::start("second", 200, demand, MEASURED);
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
