//! Usage over a Redis Cluster: several instances have one list, which costs a bounded number of commands
//! and survives a failover.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::support::http::get;
use crate::support::on_redis::{cluster_url, over, ready};
use crate::support::redis::cluster::Cluster;
use crate::support::redis::resp::Reply;
use crate::support::redis::server::Server;
use crate::support::rls::{costing, descriptor, request};
use crate::support::schedule::shared;
use crate::support::wait::until;
use crate::support::weir::Weir;

const RULES: &str = "
domain: d
descriptors:
  - key: user
    rate_limit: { requests: 1000, window: 1000d, usage: true }
  - key: org
    rate_limit: { requests: 1000, window: 1000d, usage: true }
  - key: gone
    rate_limit: { algorithm: token_bucket, requests: 1000000, window: 1s, usage: true }
";

/// Counters of users.
const USERS: u64 = 5_000;

/// `usage.scan_pages`: more requests than with the default.
const SCAN_PAGES: u64 = 50;

fn start(url: &str) -> Weir {
    let scan_pages = SCAN_PAGES.to_string();
    // RLQS reads a sorted set too.
    let setup = over(url, RULES).store_timeout("20s").env("WEIR__RLQS__ENABLED", "false");
    let weir = setup.env("WEIR__USAGE__SCAN_PAGES", &scan_pages).start();
    ready(&weir);
    weir
}

/// The hits of each user: the instances use other users.
fn hits() -> BTreeMap<String, u64> {
    (0..USERS).map(|number| (format!("user-{number}"), number % 100 + 1)).collect()
}

fn use_counters(instances: &[Weir]) {
    let all: Vec<(String, u64)> = hits().into_iter().collect();
    for (number, some) in all.chunks(200).enumerate() {
        let client = instances[number % instances.len()].client();
        let descriptors =
            some.iter().map(|(user, hits)| costing(*hits, descriptor(&[("user", user)])));
        let answer = client.check(request("d", descriptors.collect()));
        assert_eq!(answer.overall_code, 1, "{answer:?}");
    }
}

/// Waits until all names are in Redis.
fn until_written(instances: &[Weir], names: u64) {
    let sum = |metric: &str| -> u64 { instances.iter().map(|weir| weir.metric(metric, &[])).sum() };
    until("the names are written", || {
        sum("weir_usage_written_names_total") >= names && sum("weir_usage_queued_names") == 0
    });
    assert_eq!(sum("weir_usage_write_errors_total"), 0);
}

/// The calls of a command on all primaries.
fn calls(cluster: &Cluster, command: &str) -> u64 {
    let of_node = |node: &Server| -> u64 {
        let stats = node.client().run(&["INFO", "commandstats"]).text();
        let start = format!("cmdstat_{command}:calls=");
        let line = stats.lines().find_map(|line| line.strip_prefix(&start));
        let number = line.and_then(|rest| rest.split(',').next());
        number.map_or(0, |number| number.parse().expect("a number"))
    };
    cluster.nodes.iter().map(of_node).sum()
}

fn page(weir: &Weir, query: &str) -> Value {
    let answer = get(weir.admin, &format!("/usage?domain=d&{query}"));
    assert_eq!(answer.status, 200, "{query}: {}", answer.body);
    answer.json()
}

/// The used hits of all counters on all pages, by user; the number of pages; and the most commands that
/// one page sent.
fn all_pages(weir: &Weir, cluster: &Cluster, query: &str) -> (BTreeMap<String, u64>, u64, u64) {
    let (mut found, mut cursor) = (BTreeMap::new(), String::new());
    let (mut pages, mut most) = (0, 0);
    loop {
        let before = calls(cluster, "zrange");
        let page = page(weir, &format!("{query}&cursor={cursor}"));
        most = most.max(calls(cluster, "zrange") - before);
        pages += 1;
        for row in page["counters"].as_array().expect("a list") {
            let user = row["values"]["user"].as_str().expect("a text").to_owned();
            let used = row["tiers"][0]["used"].as_u64().expect("a number");
            assert_eq!(found.insert(user.clone(), used), None, "{user} is on two pages");
        }
        match page["cursor"].as_str() {
            Some(next) => cursor = next.to_owned(),
            None => return (found, pages, most),
        }
    }
}

/// Both instances list the counters of both. A request sends at most `usage.scan_pages` commands for
/// names, and none that walks over other keys.
#[test]
fn instances_have_one_list_of_bounded_cost() {
    let _permit = shared();
    let cluster = Cluster::start();
    let url = cluster_url(&cluster);
    let instances = [start(&url), start(&url)];
    use_counters(&instances);
    until_written(&instances, USERS);
    for weir in &instances {
        let (found, pages, most) = all_pages(weir, &cluster, "rule=user&order=name&limit=1000");
        assert_eq!(found, hits());
        println!("{USERS} counters on {pages} pages, at most {most} commands each");
        assert!(most <= SCAN_PAGES, "{most}");
        // The nearest of each page are those of all, because a page has as many.
        let (near, _, most) = all_pages(weir, &cluster, "rule=user&limit=1000&min_used=100");
        assert!(near.len() == USERS as usize / 100 && near.values().all(|used| *used == 100));
        assert!(most <= SCAN_PAGES, "{most}");
    }
    assert_eq!(calls(&cluster, "scan"), 0);
    // A rule without counters has no names.
    let (none, _, _) = all_pages(&instances[0], &cluster, "rule=org");
    assert!(none.is_empty());
}

/// The sets of names move with their slots, and a cursor stays valid on another node.
#[test]
fn a_failover_keeps_the_names() {
    let _permit = shared();
    let cluster = Cluster::start();
    let instances = [start(&cluster_url(&cluster))];
    use_counters(&instances);
    until_written(&instances, USERS);
    let first = page(&instances[0], "rule=user&order=name&limit=1000");
    let mut seen: BTreeMap<String, u64> = rows(&first);
    assert_eq!(seen.len(), 1_000);
    for primary in 0..3 {
        cluster.fail_over(cluster.replica_of(primary));
    }
    cluster.wait_until_whole();
    let mut cursor = first["cursor"].as_str().expect("there are more").to_owned();
    loop {
        let query = format!("rule=user&order=name&limit=1000&cursor={cursor}");
        let mut found = None;
        // Until weir knows the new primaries.
        until("the nodes answer", || {
            let answer = get(instances[0].admin, &format!("/usage?domain=d&{query}"));
            found = (answer.status == 200).then(|| answer.json());
            found.is_some()
        });
        let page = found.expect("a page");
        seen.extend(rows(&page));
        match page["cursor"].as_str() {
            Some(next) => cursor = next.to_owned(),
            None => break,
        }
    }
    assert_eq!(seen, hits());
}

fn rows(page: &Value) -> BTreeMap<String, u64> {
    let rows = page["counters"].as_array().expect("a list").iter();
    let row = |row: &Value| {
        let user = row["values"]["user"].as_str().expect("a text").to_owned();
        (user, row["tiers"][0]["used"].as_u64().expect("a number"))
    };
    rows.map(row).collect()
}

/// Every set of names expires with its counters, so that nothing stays in Redis for ever.
#[test]
fn sets_of_names_expire() {
    let _permit = shared();
    let cluster = Cluster::start();
    let instances = [start(&cluster_url(&cluster))];
    let client = instances[0].client();
    for user in 0..50 {
        let value = format!("user-{user}");
        let descriptors = ["user", "gone"].map(|key| descriptor(&[(key, &value)]));
        client.check(request("d", descriptors.into()));
    }
    until_written(&instances, 100);
    let mut ends = Vec::new();
    for node in &cluster.nodes[..3] {
        let mut client = node.client();
        let Reply::List(keys) = client.run(&["KEYS", "weir:*usage:*"]) else {
            panic!("KEYS answers with a list");
        };
        for key in keys {
            match client.run(&["PTTL", &key.text()]) {
                Reply::Integer(millis) => ends.push(millis),
                other => panic!("PTTL answers with a number: {other:?}"),
            }
        }
    }
    assert!(ends.len() >= 2, "{ends:?}");
    // Twice the lifetime of a counter: at least two minutes, and at most two windows and a quarter.
    let (least, most) = (ends.iter().min(), ends.iter().max());
    assert!(least.is_some_and(|millis| (1..=121_000).contains(millis)), "{ends:?}");
    assert!(most.is_some_and(|millis| *millis > 2 * 86_400_000_000), "{ends:?}");
    assert!(most.is_some_and(|millis| *millis <= 1_000 + 2_250 * 86_400_000), "{ends:?}");
}

/// A Redis that is lost is an error of the page, and no decision waits for names.
#[test]
fn a_lost_redis_is_an_error_of_the_page() {
    let _permit = shared();
    let mut cluster = Cluster::start();
    let weir = start(&cluster_url(&cluster));
    let client = weir.client();
    client.check(request("d", vec![descriptor(&[("user", "ann")])]));
    for node in &mut cluster.nodes {
        node.kill();
    }
    until("the page has an error", || {
        let answer = get(weir.admin, "/usage?domain=d&rule=user");
        answer.status == 503 && !answer.json()["error"].as_str().unwrap_or_default().is_empty()
    });
}

/// A member that weir did not write hides no counter. The page with it counts it.
#[test]
fn a_foreign_member_is_left_out() {
    let _permit = shared();
    let server = Server::local();
    let instances = [start(&server.socket().display().to_string())];
    instances[0].client().check(request("d", vec![descriptor(&[("user", "ann")])]));
    until_written(&instances, 1);
    let mut client = server.client();
    let Reply::List(keys) = client.run(&["KEYS", "weir:*usage:*"]) else {
        panic!("KEYS answers with a list");
    };
    let key = keys[0].text();
    client.run(&["ZADD", &key, "4000000000000000", "junk"]);
    // Longer than a key, but without texts.
    client.run(&["ZADD", &key, "4000000000000001", "0123456789abcdef junk"]);
    let (mut found, mut unreadable, mut cursor) = (BTreeMap::new(), 0, String::new());
    loop {
        let page = page(&instances[0], &format!("rule=user&cursor={cursor}"));
        found.extend(rows(&page));
        unreadable += page["unreadable"].as_u64().expect("a number");
        match page["cursor"].as_str() {
            Some(next) => cursor = next.to_owned(),
            None => break,
        }
    }
    assert_eq!(found, [("ann".to_owned(), 1)].into());
    assert_eq!(unreadable, 2);
}
