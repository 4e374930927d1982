//! Two instances of weir divide one limit by one Redis, without real Envoys.

use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

use crate::support::on_redis::{over, ready};
use crate::support::redis::server::Server;
use crate::support::rlqs::{SmallEnvoy, StopOnDrop, bucket, call, most_in_a_second};
use crate::support::schedule::exclusive;
use crate::support::wait::until;
use crate::support::weir::Weir;

const LIMIT: u64 = 200;

/// The time between a report and its effect on another holder: the next report, the grace of a lowered
/// share, two ticks, and a slow machine.
const CONVERGED: Duration = Duration::from_secs(8);

/// The default of `rlqs.assignment_ttl`.
const ASSIGNMENT_TTL: Duration = Duration::from_secs(12);

/// Two instances on the Redis at `url`, with one rule.
fn two(url: &str) -> [Weir; 2] {
    let rules = format!(
        "domain: d\ndescriptors:\n  - key: tenant\n    rate_limit: {{ unit: second, \
         requests_per_unit: {LIMIT} }}\n"
    );
    let all = [(); 2].map(|()| over(url, &rules).start());
    all.iter().for_each(ready);
    all
}

/// The Envoy of one instance and the callers of the other one have one limit together.
#[test]
fn callers_of_another_instance_share_the_limit() {
    let _alone = exclusive();
    let redis = Server::listening(&[]);
    let [first, second] = two(&format!("redis://127.0.0.1:{}", redis.port()));
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let caller = scope.spawn(|| call(&second, &stop));
        let stopping = StopOnDrop(&stop);
        let envoy = SmallEnvoy::start(first.grpc, "d");
        let tenant = bucket(&[("tenant", "a")]);
        envoy.demand(&tenant, 500.0);
        envoy.until_rate(&tenant, |rate| rate > 0.0);
        let divided = || second.metric("weir_rlqs_local_holders", &[]) == 1;
        until("the other instance divides the rule", divided);
        thread::sleep(CONVERGED);
        let since = Instant::now();
        thread::sleep(Duration::from_secs(5));
        drop(stopping);
        let calls = caller.join().expect("the caller");
        let by_envoy = envoy.allowed_since(since);
        let by_calls = calls.iter().filter(|(at, _)| *at >= since).count();
        assert!(by_envoy >= 300 && by_calls >= 200, "{by_envoy} and {by_calls} in 5 s");
        let most = most_in_a_second(&[&envoy], &calls, since);
        let bound = LIMIT + LIMIT / 5 + 2;
        assert!(most <= bound, "{most} in a second, at most {bound}");
    });
    for weir in [&first, &second] {
        assert_eq!(weir.metric("weir_rlqs_violations_total", &[]), 0);
    }
}

/// While Redis is away for longer than an assignment is valid, each Envoy keeps its share. Redis then
/// starts without its data, and the limit is kept.
#[test]
fn an_outage_of_redis_moves_no_share() {
    let _alone = exclusive();
    let mut redis = Server::listening(&[]);
    let weirs = two(&format!("redis://127.0.0.1:{}", redis.port()));
    let tenant = bucket(&[("tenant", "a")]);
    let [one, other] = weirs.each_ref().map(|weir| {
        let envoy = SmallEnvoy::start(weir.grpc, "d");
        envoy.demand(&tenant, 500.0);
        envoy
    });
    let rates = || [&one, &other].map(|envoy| envoy.rate(&tenant));
    let are_fair = || rates().iter().all(|rate| (90.0..=110.0).contains(rate));
    until("both Envoys have a half", are_fair);
    thread::sleep(CONVERGED);
    let (before, since) = (rates(), Instant::now());
    redis.kill();
    thread::sleep(ASSIGNMENT_TTL + Duration::from_secs(3));
    assert_eq!(rates(), before);
    redis.restart();
    weirs.iter().for_each(ready);
    thread::sleep(CONVERGED);
    assert!(are_fair(), "{:?}", rates());
    let most = most_in_a_second(&[&one, &other], &[], since);
    let bound = LIMIT + LIMIT / 5 + 2;
    assert!(most <= bound, "{most} in a second, at most {bound}");
    for weir in &weirs {
        assert!(weir.metric("weir_rlqs_settlements_total", &["result=\"error\""]) > 0);
        assert_eq!(weir.metric("weir_rlqs_violations_total", &[]), 0);
    }
}
