//! Faults under load: no RPC error, few fallbacks, and exact decisions soon after.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::support::http;
use crate::support::load::{Load, LoadResult, MakeRequest, figures, send_all};
use crate::support::on_redis::{cluster_url, over, ready};
use crate::support::redis::cluster::Cluster;
use crate::support::redis::resp::Reply;
use crate::support::redis::server::Server;
use crate::support::rls::{descriptor, headers, request};
use crate::support::schedule::{exclusive, shared};
use crate::support::wait::until;
use crate::support::weir::Weir;

/// A limit that is never reached. These tests check where hits are counted, not which are denied.
const WIDE: &str = "
domain: d
descriptors:
  - key: k
    rate_limit: { requests: 1000000000, window: 1000d }
";

const COUNTERS: usize = 60;

/// Calls between two events of a test: many for each counter.
const CALLS: usize = 20 * COUNTERS;

/// The time after a recovery of Redis after which no decision falls back.
const RECOVERY: Duration = Duration::from_secs(2);

/// The store timeout of tests that cause faults. A busy machine rarely exceeds it.
const TIMEOUT: &str = "300ms";

fn spread() -> MakeRequest {
    Arc::new(|n| request("d", vec![descriptor(&[("k", &(n % COUNTERS).to_string())])]))
}

fn keys(server: &Server) -> usize {
    match server.client().run(&["DBSIZE"]) {
        Reply::Integer(keys) => usize::try_from(keys).expect("not negative"),
        other => panic!("{other:?}"),
    }
}

/// The counters whose keys `node` has. Deletes every counter, and compares the number of keys.
fn counters_on(node: &Server, weir: &Weir) -> BTreeSet<usize> {
    let is_on_node = |counter: &usize| {
        let before = keys(node);
        let path = format!("/counters?domain=d&descriptor=k={counter}");
        assert_eq!(http::send(weir.admin, "DELETE", &path, &[], b"").status, 200, "{counter}");
        keys(node) < before
    };
    (0..COUNTERS).filter(is_on_node).collect()
}

/// Counters with a decision by fallback.
fn fallen<'a>(answers: impl Iterator<Item = &'a LoadResult>) -> BTreeSet<usize> {
    let fallen = answers.filter(|answer| answer.fallback().is_some());
    fallen.map(|answer| answer.index % COUNTERS).collect()
}

/// Starts two instances over a cluster and creates every counter.
fn start_two_instances(cluster: &Cluster) -> [Weir; 2] {
    let url = cluster_url(cluster);
    let weirs = [0, 1].map(|_| over(&url, WIDE).store_timeout(TIMEOUT).start());
    weirs.iter().for_each(ready);
    let addresses = weirs.each_ref().map(|weir| weir.grpc);
    until("all counters exist and nothing falls back", || {
        let answers = send_all(&addresses, 16, COUNTERS * 4, spread());
        fallen(answers.iter()).is_empty()
    });
    weirs
}

/// After a primary is killed only its counters fall back, and none from 2 s after the failover on.
#[test]
fn a_killed_primary_affects_only_its_counters() {
    let _permit = exclusive();
    let mut cluster = Cluster::start();
    let weirs = start_two_instances(&cluster);
    let addresses = weirs.each_ref().map(|weir| weir.grpc);
    let its_own = counters_on(&cluster.nodes[0], &weirs[0]);
    let load = Load::start(&addresses, 32, spread());
    let before = Instant::now();
    load.wait_for_more(CALLS);
    let killed = Instant::now();
    let replica = cluster.replica_of(0);
    cluster.nodes[0].kill();
    cluster.wait_for_primary(replica);
    let failed_over = Instant::now();
    // The time until decisions are exact is what this test checks.
    std::thread::sleep(RECOVERY);
    load.wait_for_more(CALLS);
    let answers = load.stop();

    let within = |from: Instant, to: Instant| {
        answers.iter().filter(move |answer| answer.at >= from && answer.at < to)
    };
    let exact_again = failed_over + RECOVERY;
    figures("before", within(before, killed));
    figures("while the primary is dead", within(killed, failed_over));
    figures("the two seconds after", within(failed_over, exact_again));
    figures("from then on", within(exact_again, Instant::now()));
    let last = answers.iter().filter(|answer| answer.fallback().is_some()).map(|one| one.at).max();
    let last = last.expect("the counters of the dead node fall back");
    eprintln!(
        "{} of {COUNTERS} counters were its own; failed over after {:?}, exact {:?} later",
        its_own.len(),
        failed_over - killed,
        last.saturating_duration_since(failed_over),
    );
    let fallen = fallen(within(killed, Instant::now()));
    assert!(fallen.is_subset(&its_own), "{fallen:?} fell back, {its_own:?} died");
    assert!(within(exact_again, Instant::now()).count() > 0);
    assert_eq!(within(exact_again, Instant::now()).find_map(LoadResult::fallback), None);
}

/// A stalled node costs one timeout; then its breaker is open and calls do not wait.
#[test]
fn a_stalled_node_costs_one_timeout() {
    let _permit = exclusive();
    let cluster = Cluster::with(&[
        // No failover: the stall itself is tested.
        "--cluster-node-timeout",
        "60000",
        "--cluster-require-full-coverage",
        "no",
    ]);
    let mut weirs = start_two_instances(&cluster);
    let addresses = weirs.each_ref().map(|weir| weir.grpc);
    let its_own = counters_on(&cluster.nodes[1], &weirs[0]);
    let memory = weirs[0].process().resident_kib();
    let load = Load::start(&addresses, 32, spread());
    load.wait_for_more(CALLS);
    let frozen = Instant::now();
    cluster.nodes[1].process().freeze();
    // The fixed pause is the stall that is tested: thirty times the store timeout.
    std::thread::sleep(Duration::from_secs(10));
    let grown = weirs[0].process().resident_kib().saturating_sub(memory);
    let breakers = http::get(weirs[0].admin, "/metrics").body;
    cluster.nodes[1].process().thaw();
    let thawed = Instant::now();
    // The time until decisions are exact is what this test checks.
    std::thread::sleep(RECOVERY);
    load.wait_for_more(CALLS);
    let answers = load.stop();

    let within = |from: Instant, to: Instant| {
        answers.iter().filter(move |answer| answer.at >= from && answer.at < to)
    };
    let opened = frozen + Duration::from_secs(1);
    figures("before", answers.iter().filter(|answer| answer.at < frozen));
    figures("until the breaker is open", within(frozen, opened));
    figures("while it is open", within(opened, thawed));
    figures("from two seconds after", within(thawed + RECOVERY, Instant::now()));
    let own = its_own.len();
    eprintln!("{own} of {COUNTERS} counters were its own; memory grew by {grown} KiB");
    let open = |line: &&str| line.starts_with("weir_redis_breaker_state{") && !line.ends_with(" 0");
    let open: Vec<&str> = breakers.lines().filter(open).collect();
    let port = format!(":{}\"", cluster.nodes[1].port());
    assert!(open.len() == 1 && open[0].contains(&port), "{open:?}");
    let fallen = fallen(within(frozen, thawed));
    assert!(fallen.is_subset(&its_own), "{fallen:?} fell back, {its_own:?} stalled");
    // Only an occasional probe waits. All other calls fall back at once: thousands in 9 s. Without
    // a breaker every call waits, and none falls back at once.
    let with_cause = |cause: &str| {
        let answers = within(opened, thawed);
        answers.filter(|answer| answer.fallback().as_deref() == Some(cause)).count()
    };
    let (waited, refused) = (with_cause("timeout"), with_cause("breaker_open"));
    assert!(refused > 10 * waited, "{waited} waited, {refused} fell back at once");
    // A call that is kept takes more than 1 KiB: its stream, its task and its command. The constant
    // is for the allocator, whose caches grow by some MiB in any test.
    let served = within(frozen, thawed).count() as u64;
    assert!(grown < 32 * 1024 + served, "{served} calls grew the memory by {grown} KiB");
    let back = thawed + RECOVERY;
    assert!(within(back, Instant::now()).count() > 0);
    assert_eq!(within(back, Instant::now()).find_map(LoadResult::fallback), None);
}

/// While a slot moves under load, no hit is lost and none is counted twice.
#[test]
fn a_moving_slot_counts_every_hit_once() {
    let _permit = shared();
    const LIMIT: usize = 2_000;
    let rules = "
domain: d
descriptors:
  - key: hot
    rate_limit: { requests: 2000, window: 1000d }
";
    let cluster = Cluster::start();
    let url = cluster_url(&cluster);
    let weirs = [0, 1].map(|_| over(&url, rules).store_timeout("20s").start());
    weirs.iter().for_each(ready);
    let hot = || request("d", vec![descriptor(&[("hot", "x")])]);
    // The first request creates the key, so that it can be found.
    let first = weirs[0].client().check(hot());
    assert_eq!(first.statuses[0].limit_remaining as usize, LIMIT - 1);
    let owner = cluster.nodes.iter().position(|node| keys(node) > 0).expect("a node has it");
    let Reply::List(names) = cluster.nodes[owner].client().run(&["KEYS", "weir:*"]) else {
        panic!("KEYS answers with a list");
    };
    let name = names[0].text();
    let owner = cluster.owner(0, &name);
    let addresses = weirs.each_ref().map(|weir| weir.grpc);
    let load = Load::start(&addresses, 16, Arc::new(move |_| hot()));
    for step in 1..=4 {
        let (from, to) = ((owner + step - 1) % 3, (owner + step) % 3);
        // The instances use the slot while it is on two nodes.
        cluster.move_slot(cluster.slot(&name), from, to, || load.wait_for_more(100));
    }
    let client = weirs[0].client();
    until("the limit is reached", || client.remaining("d", &[("hot", "x")]) == 0);
    let answers = load.stop();
    figures("one hot counter, its slot moved four times", answers.iter());
    assert_eq!(answers.iter().find_map(LoadResult::fallback), None);
    let passed = answers.iter().filter(|answer| answer.passed(0)).count();
    assert_eq!(passed + 1, LIMIT);
}

#[test]
fn a_joined_node_is_found_by_the_first_redirect() {
    let _permit = shared();
    let mut cluster = Cluster::start();
    let weir = over(&cluster_url(&cluster), WIDE).store_timeout("20s").start();
    ready(&weir);
    let remaining = || {
        let answer = weir.client().check(request("d", vec![descriptor(&[("k", "x")])]));
        let fallback = headers(&answer).iter().any(|(_, value)| value.contains("cause="));
        assert!(!fallback, "{answer:?}");
        answer.statuses[0].limit_remaining
    };
    assert_eq!(remaining(), 999_999_999);
    let owner = cluster.nodes.iter().position(|node| keys(node) > 0).expect("a node has it");
    let Reply::List(names) = cluster.nodes[owner].client().run(&["KEYS", "weir:*"]) else {
        panic!("KEYS answers with a list");
    };
    let name = names[0].text();
    let owner = cluster.owner(0, &name);

    // The node owns no slot, so no node lists it as an owner until the slot has moved.
    let joined = Server::node(&[]);
    let bus = cluster.nodes[0].client().run(&["CONFIG", "GET", "cluster-port"]);
    let Reply::List(bus) = bus else { panic!("CONFIG GET answers with a list") };
    let port = cluster.nodes[0].port().to_string();
    joined.client().run(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus[1].text()]);
    cluster.nodes.push(joined);
    let id = cluster.id(6);
    until("every node lists the new node, and it serves", || {
        let info = cluster.nodes[6].client().run(&["CLUSTER", "INFO"]).text();
        let lists = |node: &Server| {
            let nodes = node.client().run(&["CLUSTER", "NODES"]).text();
            nodes.lines().any(|line| line.starts_with(&id) && line.contains(" connected"))
        };
        info.contains("cluster_state:ok") && cluster.nodes.iter().all(lists)
    });
    let mut hits = 1;
    cluster.move_slot(cluster.slot(&name), owner, 6, || {
        for _ in 0..10 {
            hits += 1;
            assert_eq!(remaining(), 1_000_000_000 - hits);
        }
    });
    assert_eq!(remaining(), 1_000_000_000 - hits - 1);
}

/// Flushed scripts are loaded again, and no hit is counted twice.
#[test]
fn flushed_scripts_are_reloaded() {
    let _permit = shared();
    let server = Server::listening(&[]);
    let rules = "
domain: d
descriptors:
  - key: hot
    rate_limit: { requests: 500, window: 1000d }
";
    let weir = over(&format!("redis://{}", server.address()), rules)
        .store_timeout("20s")
        .env("WEIR__REDIS__FUNCTIONS", "off")
        .start();
    ready(&weir);
    let hot: MakeRequest = Arc::new(|_| request("d", vec![descriptor(&[("hot", "x")])]));
    let load = Load::start(&[weir.grpc], 16, hot);
    let mut admin = server.client();
    for _ in 0..50 {
        admin.run(&["SCRIPT", "FLUSH"]);
        load.wait_for_more(10);
    }
    let client = weir.client();
    until("the limit is reached", || client.remaining("d", &[("hot", "x")]) == 0);
    let answers = load.stop();
    figures("scripts flushed 50 times", answers.iter());
    assert_eq!(answers.iter().find_map(LoadResult::fallback), None);
    assert_eq!(answers.iter().filter(|answer| answer.passed(0)).count(), 500);
}
