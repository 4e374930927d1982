//! Plans in Redis: every instance follows changes, whatever happens to Redis, and no request fails.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::support::http::send;
use crate::support::on_redis::{cluster_url, over, ready};
use crate::support::plans_page::{left, page, until_error};
use crate::support::redis::cluster::Cluster;
use crate::support::redis::hostile::{Hostile, Payload};
use crate::support::redis::resp::{Client as RedisClient, Reply};
use crate::support::redis::server::Server;
use crate::support::rls::{Client, Code, descriptor, request};
use crate::support::schedule::{exclusive, shared};
use crate::support::wait::until;
use crate::support::weir::Weir;
use crate::support::weir::cli;

/// A rule with plans: two calls without one. Denied calls are not counted. `local` counts in memory while
/// Redis is away.
const RULES: &str = "
domain: d
descriptors:
  - key: api_key
    rate_limit:
      name: calls
      requests: 2
      window: 1000d
      count_denied: false
      on_error: local
      limit_from: { customer: api_key, default: free }
";

const PLANS: &str = "weir:{plans}:plans";
const CUSTOMERS: &str = "weir:{plans}:customers";
const CHANGES: &str = "weir:{plans}:changes";

/// The longest time until a change is active everywhere.
const ACTIVE_WITHIN: Duration = Duration::from_secs(2);

/// An instance that follows the plans in the Redis at `url`.
fn start(url: &str) -> Weir {
    start_with(url, "10000")
}

/// Such an instance with this `plans.max_lookups`.
fn start_with(url: &str, max_lookups: &str) -> Weir {
    let weir = over(url, RULES)
        .store_timeout("5s")
        .env("WEIR__PLANS__SOURCE", "redis")
        .env("WEIR__PLANS__MAX_LOOKUPS", max_lookups)
        .env("WEIR__FALLBACK__INSTANCES", "1")
        .start();
    ready(&weir);
    weir
}

fn server_url(server: &Server) -> String {
    format!("redis://{}", server.address())
}

/// Runs `weir plans` against an instance. Returns what it prints.
fn plans(weir: &Weir, words: &[&str]) -> String {
    let address = format!("http://{}", weir.admin);
    let words = [&["plans"][..], words, &["--addr", &address]].concat();
    let run = cli::run(Path::new("."), &words);
    assert_eq!(run.code, Some(0), "{words:?}: {run:?}");
    run.stdout
}

/// Takes one call. Returns whether it passed.
fn take(client: &Client, customer: &str) -> bool {
    let answer = client.check(request("d", vec![descriptor(&[("api_key", customer)])]));
    answer.overall_code == i32::from(Code::Ok)
}

/// Assigns a customer as another program does: the hash and the stream in one transaction.
fn assign_by_program(redis: &mut RedisClient, customer: &str, plan: &str) {
    redis.run(&["MULTI"]);
    redis.run(&["HSET", CUSTOMERS, customer, plan]);
    let names = ["customer", customer, "plan", plan];
    redis.run(&[&["XADD", CHANGES, "MAXLEN", "~", "100000", "*"][..], &names].concat());
    redis.run(&["EXEC"]);
}

/// A change through one instance is active on all of them within two seconds, and counts stay.
#[test]
fn changes_are_active_everywhere_within_two_seconds() {
    let _permit = exclusive();
    let cluster = Cluster::start();
    let url = cluster_url(&cluster);
    let weirs = [(); 3].map(|()| start(&url));
    let clients: Vec<Client> = weirs.iter().map(Weir::client).collect();
    let everywhere = |what: &str, customer: &str, expected: u32| {
        let began = Instant::now();
        until(what, || clients.iter().all(|client| left(client, customer) == expected));
        let took = began.elapsed();
        println!("{what}: {took:?}");
        assert!(took <= ACTIVE_WITHIN, "{what}: {took:?}");
    };
    everywhere("the numbers of the rule", "acme", 2);
    assert_eq!(plans(&weirs[0], &["set", "free", "calls=3"]), "plan free is new\n");
    everywhere("the default plan", "acme", 3);
    assert!(take(&clients[0], "acme") && take(&clients[1], "acme") && take(&clients[2], "acme"));
    assert!(!take(&clients[0], "acme"), "at the limit");
    assert_eq!(plans(&weirs[1], &["set", "pro", "calls=10"]), "plan pro is new\n");
    let assigned = plans(&weirs[1], &["assign", "acme", "pro"]);
    assert_eq!(assigned, "customer acme has the plan pro\n");
    everywhere("an assigned plan", "acme", 7);
    assert_eq!(plans(&weirs[2], &["set", "pro", "calls=20"]), "plan pro changed\n");
    everywhere("a changed plan", "acme", 17);
    assert_eq!(plans(&weirs[2], &["show", "acme"]), "customer acme has the plan pro\n");
    let unassigned = plans(&weirs[2], &["unassign", "acme"]);
    assert_eq!(unassigned, "customer acme has no plan any more\n");
    everywhere("no plan", "acme", 0);
    assert_eq!(plans(&weirs[0], &["delete", "free"]), "plan free deleted\n");
    everywhere("no default", "other", 2);
    let list = plans(&weirs[0], &["list"]);
    assert!(list.starts_with("source redis: 1 plans, ") && list.ends_with("pro  {\"calls\":20}\n"));
}

/// The commands of docs/guides/plans.md for other programs.
#[test]
fn other_programs_change_plans() {
    let _permit = shared();
    let server = Server::listening(&[]);
    let mut redis = server.client();
    redis.run(&["HSET", PLANS, "pro", r#"{"calls": 10}"#]);
    redis.run(&["HSET", CUSTOMERS, "acme", "pro"]);
    let weir = start(&server_url(&server));
    let client = weir.client();
    assert_eq!([left(&client, "acme"), left(&client, "other")], [10, 2], "without any change");
    assign_by_program(&mut redis, "other", "pro");
    until("an assigned plan", || left(&client, "other") == 10);
    redis.run(&["MULTI"]);
    redis.run(&["HSET", PLANS, "pro", r#"{"calls": {"requests": 20}}"#]);
    redis.run(&["XADD", CHANGES, "MAXLEN", "~", "100000", "*", "plans", "1"]);
    redis.run(&["EXEC"]);
    until("a changed plan", || left(&client, "acme") == 20);
    assert!(weir.metric("weir_plans_changes_total", &[]) >= 1);
    assert_eq!(weir.metric("weir_plans_lookups_total", &[r#"result="failed""#]), 0);
}

/// Over `plans.max_lookups`, new names have the default. Customers in memory keep their plans, and changes
/// apply.
#[test]
fn a_flood_of_names_is_bounded() {
    let _permit = shared();
    let server = Server::listening(&[]);
    let weir = start_with(&server_url(&server), "1");
    let client = weir.client();
    plans(&weir, &["set", "free", "calls=3"]);
    plans(&weir, &["set", "pro", "calls=5"]);
    plans(&weir, &["assign", "acme", "pro"]);
    until("an assigned plan", || left(&client, "acme") == 5);
    let mut names = 0..;
    until("a skipped lookup", || {
        let invented = names.next().map(|number: u32| format!("invented-{number}"));
        assert_eq!(left(&client, &invented.expect("a number")), 3, "the default");
        weir.metric("weir_plans_skipped_lookups_total", &[]) > 0
    });
    assert_eq!(left(&client, "acme"), 5);
    plans(&weir, &["assign", "bank", "pro"]);
    until("a plan that was assigned in the flood", || left(&client, "bank") == 5);
    assert_eq!(weir.metric("weir_plans_lookups_total", &[r#"result="failed""#]), 0);
}

/// Each request that is refused says what to do.
#[test]
fn wrong_changes_are_refused() {
    let _permit = shared();
    let server = Server::listening(&[]);
    let weir = start(&server_url(&server));
    let long = "x".repeat(5_000);
    let many: Vec<String> = (0..1_001).map(|number| format!("\"l{number}\": 1")).collect();
    let many = format!("{{{}}}", many.join(", "));
    let long_customer = format!("/plans/customers/{long}");
    let table = [
        ("/plans/pro", "[]", 400),
        ("/plans/pro", r#"{"calls": "many"}"#, 400),
        ("/plans/pro", r#"{"calls": -1}"#, 400),
        ("/plans/pro", many.as_str(), 400),
        ("/plans/a%0Ab", r#"{"calls": 1}"#, 400),
        ("/plans/customers/acme", r#"{"plan": "missing"}"#, 404),
        (long_customer.as_str(), r#"{"plan": "pro"}"#, 400),
    ];
    for (path, body, status) in table {
        let answer = send(weir.admin, "PUT", path, &[], body.as_bytes());
        assert_eq!(answer.status, status, "{path} {body}: {}", answer.body);
        assert!(answer.json()["error"].is_string(), "{}", answer.body);
    }
    let exists = server.client().run(&["EXISTS", PLANS, CUSTOMERS, CHANGES]);
    assert_eq!(exists, Reply::Integer(0), "nothing was written");
    assert_eq!(send(weir.admin, "PUT", "/plans/a%2Fb%20c", &[], br#"{"calls": 4}"#).status, 200);
    until("a plan", || page(&weir)["plans"][0]["name"] == "a/b c");
}

/// Without Redis the last known plans decide, also after Redis has lost all data.
#[test]
fn the_last_plans_stay_without_redis() {
    let _permit = shared();
    let mut server = Server::listening(&[]);
    let weir = start(&server_url(&server));
    let client = weir.client();
    plans(&weir, &["set", "free", "calls=3"]);
    plans(&weir, &["set", "pro", "calls=5"]);
    plans(&weir, &["assign", "acme", "pro"]);
    until("an assigned plan", || left(&client, "acme") == 5);
    server.kill();
    let passed = |customer: &str| (0..10).filter(|_| take(&client, customer)).count();
    assert_eq!([passed("acme"), passed("unknown")], [5, 3], "counted in memory");
    until_error(&weir, Some("connection"));
    let address = format!("http://{}", weir.admin);
    let words = ["plans", "assign", "acme", "free", "--addr", &address];
    let run = cli::run(Path::new("."), &words);
    assert_eq!(run.code, Some(64), "{run:?}");
    assert!(run.stderr.contains("HTTP status 503"), "{run:?}");

    // The server has no data after a restart.
    server.restart();
    until_error(&weir, Some("lost the plans"));
    until("acme keeps its plan", || left(&client, "acme") == 5);
    plans(&weir, &["set", "free", "calls=4"]);
    plans(&weir, &["set", "pro", "calls=6"]);
    plans(&weir, &["assign", "acme", "pro"]);
    until("the plans are back", || [left(&client, "acme"), left(&client, "new")] == [6, 4]);
    until_error(&weir, None);
}

/// An instance that missed changes asks for everything again.
#[test]
fn a_gap_in_the_stream_is_noticed() {
    let _permit = shared();
    let server = Server::listening(&[]);
    let weir = start(&server_url(&server));
    let client = weir.client();
    let mut redis = server.client();
    plans(&weir, &["set", "pro", "calls=10"]);
    plans(&weir, &["assign", "acme", "pro"]);
    until("an assigned plan", || left(&client, "acme") == 10);
    let resyncs = || weir.metric("weir_plans_resyncs_total", &[]);
    // The hash of customers changes without an entry; each time the stream is cut in another way.
    let cuts: [(&str, &[&str]); 3] = [
        ("trimmed", &["XTRIM", CHANGES, "MAXLEN", "0"]),
        ("deleted", &["DEL", CHANGES]),
        ("an entry that weir does not know", &["XADD", CHANGES, "*", "tariff", "1"]),
    ];
    for (index, (what, cut)) in cuts.into_iter().enumerate() {
        let before = resyncs();
        // Not seen by itself: the customer is known.
        redis.run(&["HDEL", CUSTOMERS, "acme"]);
        assert_eq!(left(&client, "acme"), 10, "{what}");
        redis.run(cut);
        until(what, || left(&client, "acme") == 2);
        assert!(resyncs() > before, "{what}");
        plans(&weir, &["assign", "acme", "pro"]);
        until("an assigned plan", || left(&client, "acme") == 10);
        println!("gap {index}: {what}");
    }
}

/// Invalid plans in Redis change no plan, and delay no customer.
#[test]
fn invalid_plans_leave_the_last_ones() {
    let _permit = shared();
    let server = Server::listening(&[]);
    let weir = start(&server_url(&server));
    let client = weir.client();
    let mut redis = server.client();
    plans(&weir, &["set", "pro", "calls=10"]);
    plans(&weir, &["set", "free", "calls=3"]);
    until("the default plan", || left(&client, "acme") == 3);
    redis.run(&["HSET", PLANS, "free", "{\"calls\": "]);
    redis.run(&["XADD", CHANGES, "*", "plans", "1"]);
    until_error(&weir, Some("plan `free`"));
    assert_eq!(left(&client, "acme"), 3);
    assign_by_program(&mut redis, "acme", "pro");
    until("an assigned plan", || left(&client, "acme") == 10);
    // Corrected without an entry in the stream.
    redis.run(&["HSET", PLANS, "free", "{\"calls\": 4}"]);
    until_error(&weir, None);
    assert_eq!(left(&client, "other"), 4);
    redis.run(&["DEL", CHANGES]);
    redis.run(&["SET", CHANGES, "no stream"]);
    until_error(&weir, Some("Redis returned an error"));
    redis.run(&["DEL", CHANGES]);
    until_error(&weir, None);
}

/// A failover, and a slot that moves while plans are changed, lose no change.
#[test]
fn plans_survive_failovers_and_moves() {
    let _permit = shared();
    let cluster = Cluster::start();
    let url = cluster_url(&cluster);
    let weirs = [(); 2].map(|()| start(&url));
    let clients: Vec<Client> = weirs.iter().map(Weir::client).collect();
    let everywhere = |customer: &str, expected: u32| {
        until(&format!("{expected} for {customer}"), || {
            clients.iter().all(|client| left(client, customer) == expected)
        });
    };
    plans(&weirs[0], &["set", "pro", "calls=10"]);
    plans(&weirs[0], &["assign", "acme", "pro"]);
    everywhere("acme", 10);

    // All keys are on the new node, and both nodes report the slot as moving.
    let owner = cluster.owner(0, PLANS);
    let to = (owner + 1) % 3;
    cluster.move_slot(cluster.slot(PLANS), owner, to, || {
        plans(&weirs[0], &["assign", "other", "pro"]);
        plans(&weirs[1], &["set", "pro", "calls=11"]);
    });
    everywhere("other", 11);
    everywhere("acme", 11);

    let replica = cluster.replica_of(to);
    cluster.fail_over(replica);
    cluster.wait_until_whole();
    plans(&weirs[1], &["assign", "third", "pro"]);
    everywhere("third", 11);

    // A primary that dies takes unreplicated writes with it; later ones are followed.
    let next = cluster.replica_of(replica);
    let mut cluster = cluster;
    cluster.nodes[replica].kill();
    cluster.wait_for_primary(next);
    until("the new primary accepts changes", || {
        let body = br#"{"calls": 12}"#;
        send(weirs[0].admin, "PUT", "/plans/pro", &[], body).status == 200
    });
    plans(&weirs[0], &["assign", "fourth", "pro"]);
    everywhere("fourth", 12);
}

/// Bytes that are no replies neither end nor fill weir, and the last plans stay.
#[test]
fn hostile_replies_change_no_plan() {
    let _permit = shared();
    let server = Server::listening(&[]);
    let hostile = Hostile::to(server.address());
    let mut weir = start(&format!("redis://{}", hostile.address()));
    let client = weir.client();
    plans(&weir, &["set", "free", "calls=3"]);
    until("the default plan", || left(&client, "acme") == 3);
    for command in ["XRANGE", "XREVRANGE", "HGETALL", "HMGET"] {
        for payload in [Payload::NestedArrays, Payload::LongString, Payload::LongArray] {
            let ended = hostile.ended();
            hostile.attack(Some(command), payload);
            let customer = format!("{command} {payload:?}");
            until("weir closes the connection", || {
                // New customers are looked up, and after a gap everything is read again.
                left(&client, &customer);
                server.client().run(&["XADD", CHANGES, "*", "tariff", "1"]);
                hostile.ended() > ended
            });
            assert!(weir.process().is_alive(), "{customer}: {}", weir.process().output());
            assert_eq!(left(&client, "acme"), 3, "{customer}");
            hostile.heal();
            until_error(&weir, None);
        }
    }
}

/// The rights of docs/operate/redis.md are enough for all calls about plans.
#[test]
fn the_documented_rights_are_enough_for_plans() {
    let _permit = shared();
    let page =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/operate/redis.md"));
    let page = page.expect("a page about Redis");
    let line = page.lines().find(|line| line.starts_with("ACL SETUSER weir ")).expect("an example");
    let words: Vec<&str> = line.split_whitespace().collect();
    let password = words.iter().find_map(|word| word.strip_prefix('>')).expect("a password");
    let server = Server::listening(&[]);
    server.client().run(&words);
    let weir = start(&format!("redis://weir:{password}@{}", server.address()));
    let client = weir.client();
    plans(&weir, &["set", "pro", "calls=10"]);
    plans(&weir, &["assign", "acme", "pro"]);
    until("an assigned plan", || left(&client, "acme") == 10);
    plans(&weir, &["show", "acme"]);
    plans(&weir, &["unassign", "acme"]);
    until("no plan", || left(&client, "acme") == 2);
    plans(&weir, &["delete", "pro"]);
    server.client().run(&["DEL", CHANGES]);
    plans(&weir, &["set", "free", "calls=4"]);
    until("after a gap", || left(&client, "acme") == 4);
    until_error(&weir, None);
}
