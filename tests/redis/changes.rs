//! Temporary changes in Redis: all instances have them, whichever one makes or ends them.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::http::{Response, get, send};
use crate::support::on_redis::{cluster_url, over, ready};
use crate::support::redis::cluster::Cluster;
use crate::support::redis::proxy::Proxy;
use crate::support::redis::server::Server;
use crate::support::rls::{descriptor, headers, request};
use crate::support::schedule::{exclusive, shared};
use crate::support::wait::until;
use crate::support::weir::{Setup, Weir};

const RULES: &str = "
domain: d
descriptors:
  - key: user
    rate_limit: { name: per-user, requests: 3, window: 1000d }
";

/// The hash in Redis.
const HASH: &str = "weir:{changes}";

const OK: i32 = 1;
const OVER: i32 = 2;

/// Time until a change is active in all instances.
const ACTIVE_WITHIN: Duration = Duration::from_secs(2);

fn hit(weir: &Weir, user: &str) -> i32 {
    weir.client().check(request("d", vec![descriptor(&[("user", user)])])).overall_code
}

fn is_blocked(weir: &Weir, user: &str) -> bool {
    let answer = weir.client().check(request("d", vec![descriptor(&[("user", user)])]));
    let by_change = headers(&answer).iter().any(|(_, value)| value.ends_with(";change=block"));
    assert!(!by_change || answer.overall_code == OVER);
    by_change
}

fn patch(weir: &Weir, body: &Value) -> Response {
    send(weir.admin, "PATCH", "/changes", &[], body.to_string().as_bytes())
}

/// Makes a change, and returns its id.
fn change(weir: &Weir, body: &Value) -> String {
    let response = patch(weir, body);
    assert_eq!(response.status, 200, "{}", response.body);
    let json = response.json();
    assert_eq!(json["scope"], "all_instances");
    json["change"]["id"].as_str().expect("an id").to_owned()
}

fn block(user: &str, length: &str) -> Value {
    json!({ "domain": "d", "descriptor": format!("user={user}"), "block": true, "for": length })
}

fn end(weir: &Weir, id: &str) -> Response {
    send(weir.admin, "DELETE", &format!("/changes/{id}"), &[], b"")
}

fn list(weir: &Weir) -> Value {
    get(weir.admin, "/changes").json()
}

fn ids(weir: &Weir) -> Vec<String> {
    let page = list(weir);
    let changes = page["changes"].as_array().expect("a list").iter();
    changes.map(|change| change["id"].as_str().expect("an id").to_owned()).collect()
}

fn three(url: &str, tune: impl Fn(usize, Setup) -> Setup) -> [Weir; 3] {
    let weirs = [0, 1, 2].map(|index| tune(index, over(url, RULES).store_timeout("20s")).start());
    weirs.iter().for_each(ready);
    weirs
}

/// How many of the processes have logged `message`.
fn logged(weirs: &mut [Weir], message: &str) -> usize {
    let message = format!("\"message\":\"{message}\"");
    let outputs = weirs.iter_mut().map(|weir| weir.process().output());
    outputs.map(|output| output.matches(&message).count()).sum()
}

/// A change is active in all instances within two seconds, and ends at one instant.
#[test]
fn three_instances_have_one_change() {
    let _permit = exclusive();
    let cluster = Cluster::start();
    let mut weirs = three(&cluster_url(&cluster), |_, setup| setup);
    let elapsed = |since: Instant, what: &str| {
        let elapsed = since.elapsed();
        eprintln!("{what} after {elapsed:?}");
        assert!(elapsed < ACTIVE_WITHIN, "{what} after {elapsed:?}");
    };
    let made = Instant::now();
    let id = change(&weirs[0], &block("ann", "1h"));
    assert!(is_blocked(&weirs[0], "ann"), "at once where it was made");
    until("all instances block", || weirs.iter().all(|weir| is_blocked(weir, "ann")));
    elapsed(made, "all instances block");
    assert!(weirs.iter().all(|weir| ids(weir) == [id.clone()]));
    assert_eq!(hit(&weirs[2], "bob"), OK);

    // The limit of a rule, changed by another instance; counts are kept.
    let limit = json!({ "domain": "d", "rule": "per-user", "limit": 1, "for": "1h" });
    let made = Instant::now();
    change(&weirs[1], &limit);
    let shown = |weir: &Weir| {
        let counter = get(weir.admin, "/counters?domain=d&descriptor=user=bob").json();
        counter["tiers"][0]["requests"].as_u64()
    };
    until("all instances have the limit", || weirs.iter().all(|weir| shown(weir) == Some(1)));
    elapsed(made, "all instances have the limit");
    assert!(weirs.iter().all(|weir| hit(weir, "bob") == OVER), "one hit was counted before");

    let ended = Instant::now();
    assert_eq!(end(&weirs[2], &id).status, 200);
    until("no instance blocks", || weirs.iter().all(|weir| !ids(weir).contains(&id)));
    elapsed(ended, "no instance blocks");
    assert_eq!(end(&weirs[0], &id).status, 404);

    // One instance makes, ends or removes a change, and logs it.
    change(&weirs[0], &block("eve", "1s"));
    until("its end is logged", || logged(&mut weirs, "temporary change expired") > 0);
    let owner = cluster.owner(0, HASH);
    let left = cluster.nodes[owner].client().run(&["HLEN", HASH]).text();
    assert_eq!(left, "Integer(1)", "the changed limit");
    for (message, lines) in [
        ("temporary change made", 3),
        ("temporary change ended", 1),
        ("temporary change expired", 1),
    ] {
        assert_eq!(logged(&mut weirs, message), lines, "{message}");
    }
}

/// Redis goes away: the last changes stay until their end, and no request fails.
#[test]
fn changes_stay_while_redis_is_away() {
    let _permit = shared();
    let server = Server::listening(&[]);
    let proxy = Proxy::to(server.address());
    let url = format!("redis://{}", proxy.address());
    let mut weirs = [(); 2].map(|()| over(&url, RULES).store_timeout("300ms").start());
    weirs.iter().for_each(ready);
    let long = change(&weirs[0], &block("ann", "1h"));
    change(&weirs[0], &block("bob", "8s"));
    until("both instances block", || weirs.iter().all(|weir| is_blocked(weir, "bob")));
    proxy.silence();
    until("the loss is noticed", || weirs.iter().all(|weir| !list(weir)["error"].is_null()));
    assert!(weirs.iter().all(|weir| is_blocked(weir, "ann")));
    let refused = patch(&weirs[0], &block("eve", "1h"));
    assert_eq!(refused.status, 503, "{}", refused.body);
    assert!(refused.body.contains("kept in Redis"), "{}", refused.body);
    assert!(weirs[0].metric("weir_changes_poll_errors_total", &[]) > 0);
    until("the short block ends without Redis", || {
        weirs.iter().all(|weir| !is_blocked(weir, "bob"))
    });
    assert!(weirs.iter().all(|weir| is_blocked(weir, "ann")));
    proxy.heal();
    until("Redis is read again", || weirs.iter().all(|weir| list(weir)["error"].is_null()));
    until("the end is logged", || logged(&mut weirs, "temporary change expired") == 1);
    assert!(weirs.iter().all(|weir| ids(weir).contains(&long)));
    assert_eq!(logged(&mut weirs, "temporary changes are read again"), 2);
}

#[test]
fn a_new_process_has_the_changes() {
    let _permit = shared();
    let server = Server::listening(&[]);
    let url = format!("redis://{}", server.address());
    let setup = || over(&url, RULES).store_timeout("20s");
    let first = setup().start();
    ready(&first);
    let id = change(&first, &block("ann", "1h"));
    drop(first);
    let second = setup().start();
    until("it blocks", || is_blocked(&second, "ann"));
    assert_eq!(ids(&second), [id]);
}

/// Changes end by the clock of Redis. An instance with a wrong clock neither ends nor removes them
/// early.
#[test]
fn wrong_clocks_do_not_end_a_change() {
    let _permit = shared();
    let server = Server::listening(&[]);
    let url = format!("redis://{}", server.address());
    let offsets = ["0s", "2h", "-2h"];
    let weirs = three(&url, |index, setup| setup.env("WEIR__CLOCK__OFFSET", offsets[index]));
    for weir in &weirs {
        let id = change(weir, &block("ann", "1h"));
        until("all have the change", || weirs.iter().all(|weir| ids(weir) == [id.clone()]));
        assert!(weirs.iter().all(|weir| is_blocked(weir, "ann")));
    }
    let until_text = |weir: &Weir| list(weir)["changes"][0]["until"].clone();
    assert!(weirs.iter().all(|weir| until_text(weir) == until_text(&weirs[0])));
    change(&weirs[1], &block("ann", "1s"));
    until("the block ends", || weirs.iter().all(|weir| ids(weir).is_empty()));
    assert!(weirs.iter().all(|weir| hit(weir, "ann") == OK));
}

#[test]
fn a_failover_keeps_changes() {
    let _permit = shared();
    let cluster = Cluster::start();
    let weirs = three(&cluster_url(&cluster), |_, setup| setup);
    let first = change(&weirs[0], &block("ann", "1h"));
    let owner = cluster.owner(0, HASH);
    cluster.fail_over(cluster.replica_of(owner));
    let mut second = String::new();
    until("the new primary takes a change", || {
        let response = patch(&weirs[1], &block("bob", "1h"));
        second = response.json()["change"]["id"].as_str().unwrap_or_default().to_owned();
        response.status == 200
    });
    let both = [first, second];
    until("all have both", || weirs.iter().all(|weir| ids(weir) == both));
    cluster.wait_until_whole();
    // A primary that has not failed over.
    let to = (owner + 1) % 3;
    cluster.move_slot(cluster.slot(HASH), cluster.owner(0, HASH), to, || {});
    assert_eq!(end(&weirs[2], &both[0]).status, 200);
    until("it is ended", || weirs.iter().all(|weir| ids(weir) == both[1..]));
}

/// Another program writes into the hash.
#[test]
fn fields_of_other_programs_change_nothing() {
    let _permit = shared();
    let server = Server::listening(&[]);
    let mut weir =
        over(&format!("redis://{}", server.address()), RULES).store_timeout("20s").start();
    ready(&weir);
    let mut redis = server.client();
    redis.run(&["HSET", HASH, "x", "{}", "y", "\u{1}", "z", "[[[["]);
    until("they are listed", || list(&weir)["unreadable"] == json!(["x", "y", "z"]));
    let id = change(&weir, &block("ann", "1h"));
    assert!(is_blocked(&weir, "ann") && !is_blocked(&weir, "bob"));
    assert_eq!(end(&weir, "x").status, 200);
    assert_eq!(list(&weir)["unreadable"], json!(["y", "z"]));
    // Too many fields, and another type: each is an error, and the last changes stay.
    let many: Vec<String> = (0..5_000).map(|number| number.to_string()).collect();
    let mut words = vec!["HSET", HASH];
    words.extend(many.iter().flat_map(|number| [number.as_str(), "x"]));
    redis.run(&words);
    until("the number is an error", || {
        list(&weir)["error"].as_str().is_some_and(|error| error.contains("5003 fields"))
    });
    assert!(is_blocked(&weir, "ann") && ids(&weir) == [id.clone()]);
    redis.run(&["DEL", HASH]);
    redis.run(&["SET", HASH, "text"]);
    until("the type is an error", || {
        list(&weir)["error"].as_str().is_some_and(|error| !error.contains("fields"))
    });
    assert!(is_blocked(&weir, "ann") && ids(&weir) == [id]);
    redis.run(&["DEL", HASH]);
    until("an empty hash ends all", || ids(&weir).is_empty());
    assert!(weir.process().is_alive());
}
