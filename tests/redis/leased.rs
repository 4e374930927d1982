//! Leased rules on a real cluster with wrong clocks, while instances are killed, stopped and
//! reloaded: no window and no interval exceeds its limit.

use std::sync::Arc;
use std::time::Duration;

use limit_oracle::{Allowed, Law, Tier, violation};

use crate::support::on_redis::{cluster_url, over, ready};
use crate::support::redis::cluster::Cluster;
use crate::support::redis::server::Server;
use crate::support::rls::descriptor;
use crate::support::schedule::exclusive;
use crate::support::traffic::{Traffic, now};
use crate::support::wait::until;
use crate::support::weir::metrics::Metrics;
use crate::support::weir::{Setup, Weir, write};

/// A store timeout that a busy machine rarely exceeds. A request that exceeds it is denied.
const TIMEOUT: &str = "500ms";

const RULES: &str = "
domain: d
descriptors:
  - key: fixed_window
    rate_limit: { requests: 100, window: 1s, mode: leased, on_error: deny }
  - key: sliding_window
    rate_limit:
      { algorithm: sliding_window, requests: 200, window: 2s, mode: leased, on_error: deny }
  - key: token_bucket
    rate_limit:
      { algorithm: token_bucket, requests: 100, window: 1s, mode: leased, on_error: deny }
";

/// The limits of `RULES`.
fn limits() -> [(&'static str, Law, Tier); 3] {
    [
        ("fixed_window", Law::FixedWindow, tier(100, 1)),
        ("sliding_window", Law::SlidingWindow, tier(200, 2)),
        ("token_bucket", Law::Bucket, tier(100, 1)),
    ]
}

fn tier(requests: u64, seconds: u64) -> Tier {
    Tier { requests, window: seconds * 1_000_000, burst: requests }
}

fn instance(cluster: &Cluster, offset: &str) -> Setup {
    over(&cluster_url(cluster), RULES).store_timeout(TIMEOUT).env("WEIR__CLOCK__OFFSET", offset)
}

/// Starts four instances whose clocks are minutes apart.
fn start_four_instances(cluster: &Cluster) -> [Weir; 4] {
    let weirs = ["0s", "5m", "-5m", "150s"].map(|offset| instance(cluster, offset).start());
    weirs.iter().for_each(ready);
    weirs
}

/// Checks the allowed requests from `since` on against the limits.
fn assert_limits_hold(what: &str, passed: &[(usize, Allowed)], since: u64) {
    for (index, (name, law, tier)) in limits().into_iter().enumerate() {
        let its = passed.iter().filter(|(kind, one)| *kind == index && one.from >= since);
        let its: Vec<Allowed> = its.map(|(_, one)| *one).collect();
        let first = its.iter().map(|one| one.from).min().expect("some passed");
        let last = its.iter().map(|one| one.to).max().expect("some passed");
        let length = last.saturating_sub(first);
        eprintln!("{what}: {name}: {} of 100/s passed in {} ms", its.len(), length / 1_000);
        assert_eq!(violation(law, &[tier], &its), None, "{what}: {name}");
    }
}

/// Traffic on one counter of each rule in turn.
fn traffic_on_all_rules(weirs: &[&Weir]) -> Traffic {
    let keys = limits().map(|(name, ..)| name);
    Traffic::start(weirs, keys.len(), Arc::new(move |kind| descriptor(&[(keys[kind], "x")])))
}

#[test]
fn leased_limits_hold_when_an_instance_is_killed() {
    let _permit = exclusive();
    let cluster = Cluster::start();
    let [mut killed, second, third, fourth] = start_four_instances(&cluster);
    let traffic = traffic_on_all_rules(&[&killed, &second, &third, &fourth]);
    traffic.wait_for(800);
    killed.process().signal("KILL");
    killed.process().wait_for_exit();
    traffic.wait_for(1_600);
    assert_limits_hold("killed", &traffic.stop(), 0);
}

#[test]
fn leased_limits_hold_when_an_instance_stops() {
    let _permit = exclusive();
    let cluster = Cluster::start();
    let [mut stopped, second, third, fourth] = start_four_instances(&cluster);
    let traffic = traffic_on_all_rules(&[&stopped, &second, &third, &fourth]);
    for round in 1..=2 {
        traffic.wait_for(600 * round);
        stopped.process().signal("STOP");
        // The fixed pause is the fault that is tested: longer than every window of the rules.
        std::thread::sleep(Duration::from_secs(3));
        stopped.process().signal("CONT");
    }
    traffic.wait_for(2_400);
    assert_limits_hold("stopped for 3 s, twice", &traffic.stop(), 0);
}

#[test]
fn leased_limits_hold_after_a_failover() {
    let _permit = exclusive();
    let mut cluster = Cluster::start();
    let weirs = start_four_instances(&cluster);
    let traffic = traffic_on_all_rules(&weirs.each_ref());
    traffic.wait_for(600);
    // Kill one primary at a time. Writes that it acknowledged but did not replicate are lost.
    for primary in 0..2 {
        let replica = cluster.replica_of(primary);
        cluster.nodes[primary].kill();
        cluster.wait_for_primary(replica);
    }
    let failed_over = now();
    // Check only windows that started after the failover, and buckets that have been full since.
    let since = failed_over - failed_over % 2_000_000 + 4_000_000;
    until("a new window of every rule has started", || now() >= since);
    traffic.wait_for_more(900);
    assert_limits_hold("failed over", &traffic.stop(), since);
}

/// A limit that is lowered by a reload holds in the window in which the reload happens.
#[test]
fn a_lowered_leased_limit_holds_in_its_window() {
    let _permit = exclusive();
    let rules = |requests: u64| {
        format!(
            "domain: d\ndescriptors:\n  - key: k\n    rate_limit: \
             {{ requests: {requests}, window: 1000d, mode: leased, on_error: deny }}\n"
        )
    };
    let cluster = Cluster::start();
    let mut weirs = [0, 1, 2].map(|_| {
        let setup = over(&cluster_url(&cluster), &rules(1_000_000));
        setup.store_timeout(TIMEOUT).start()
    });
    weirs.iter().for_each(ready);
    let traffic = Traffic::start(&weirs.each_ref(), 1, Arc::new(|_| descriptor(&[("k", "x")])));
    traffic.wait_for(500);
    const LOWER: u64 = 4_000;
    for weir in &mut weirs {
        write(&weir.rules_folder().join("rules.yaml"), &rules(LOWER));
        weir.process().signal("HUP");
    }
    for weir in &mut weirs {
        weir.process()
            .wait_for("that it has reloaded", |line| line.contains("rules reloaded").then_some(()));
    }
    let reloaded = traffic.passed();
    assert!(reloaded < LOWER as usize, "the machine is too slow for this: {reloaded} passed");
    let client = weirs[0].client();
    until("the limit is reached", || client.remaining("d", &[("k", "x")]) == 0);
    let early = traffic.passed();
    // The others use up their credits. After that each of them only denies.
    let denied = |weir: &Weir| {
        Metrics::scrape(weir.admin).sum("weir_requests_total", &[r#"code="over_limit""#])
    };
    let before = weirs.each_ref().map(denied);
    until("every instance denies", || {
        weirs.iter().zip(before).all(|(weir, before)| denied(weir) >= before + 200)
    });
    let passed = traffic.stop().len();
    eprintln!(
        "{reloaded} passed before the reload, {early} until the limit, {passed} of {LOWER} in all"
    );
    // Credits are lost if the reply that granted them was lost.
    assert!(passed > reloaded && passed <= LOWER as usize, "{passed}");
}

/// Steady traffic costs less than one Redis call per second, counter and instance.
#[test]
fn steady_leased_traffic_costs_few_redis_calls() {
    let _permit = exclusive();
    const TENANTS: usize = 25;
    let rules = "
domain: d
descriptors:
  - key: tenant
    rate_limit: { requests: 1000000, window: 1000d, mode: leased }
";
    let cluster = Cluster::start();
    let weirs =
        [0, 1, 2].map(|_| over(&cluster_url(&cluster), rules).store_timeout(TIMEOUT).start());
    weirs.iter().for_each(ready);
    let tenant = |n: usize| descriptor(&[("tenant", &n.to_string())]);
    let traffic = Traffic::start(&weirs.each_ref(), TENANTS, Arc::new(tenant));
    // Every instance has measured its demand after a second or two.
    traffic.wait_for(3_000);
    for node in &cluster.nodes {
        node.client().run(&["CONFIG", "RESETSTAT"]);
    }
    let (began, before) = (now(), traffic.passed());
    traffic.wait_for_more(10_000);
    let (length, passed) = (now().saturating_sub(began), traffic.passed() - before);
    // Replicas receive the effects of scripts, not the scripts.
    let calls: u64 = cluster.nodes.iter().map(Server::script_calls).sum();
    traffic.stop();
    let seconds = length as f64 / 1e6;
    let per_second = calls as f64 / seconds;
    eprintln!(
        "3 instances, {TENANTS} counters: {:.0} requests, {per_second:.1} calls per second",
        passed as f64 / seconds
    );
    assert!(per_second < 75.0, "{per_second}");
}
