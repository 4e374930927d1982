//! Quotas in Redis: settlements are those of Rust bit for bit, follow a quota that moves, and survive
//! what may happen to a server.

use std::time::Duration;

use tokio::runtime::Runtime;
use weir::key::{CounterKey, RuleId, quota_key};
use weir::quota::{Change, HOLDERS_MAX, HolderId, Ledger, LedgerSnapshot, SHARES, Settlement};
use weir::settings::{FunctionChoice, RedisSettings, RedisUrl};
use weir::store::{QuotaStore, RedisStore, SharedStore, StoreError};
use weir::time::{Clock, Micros, SystemClock};

use crate::support::on_redis::cluster_url;
use crate::support::redis::cluster::Cluster;
use crate::support::redis::hostile::{Hostile, Payload};
use crate::support::redis::resp::Reply;
use crate::support::redis::server::Server;
use crate::support::schedule::shared;
use crate::support::wait::until;

mod holders;
mod replies;
mod twin;
mod walk;

/// One store of a process, with a runtime for its calls.
pub(crate) struct Instance {
    runtime: Runtime,
    store: RedisStore,
    clock: SystemClock,
}

impl Instance {
    /// A store that has reached a node of the Redis at `url`.
    pub(crate) fn over(url: &str, functions: FunctionChoice) -> Instance {
        let url = RedisUrl::parse(url).expect("a URL of the tests");
        let settings = RedisSettings { url, functions, ..RedisSettings::default() };
        let clock = SystemClock::new();
        let store = RedisStore::start(&settings, 1, clock).expect("settings that work");
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().build().expect("a runtime");
        let instance = Instance { runtime, store, clock };
        until("Redis is reached", || instance.store.is_reachable());
        instance
    }

    fn on(server: &Server, functions: FunctionChoice) -> Instance {
        Instance::over(&server.socket().display().to_string(), functions)
    }

    /// Settles the quota `key`. Fails the test if Redis does not reply at all.
    pub(crate) fn settle(
        &self,
        key: &CounterKey,
        settlement: &Settlement,
    ) -> Result<LedgerSnapshot, StoreError> {
        self.run(self.store.settle(key, settlement))
    }

    fn run<T>(&self, call: impl Future<Output = T>) -> T {
        let late = Duration::from_secs(30);
        let reply = self.runtime.block_on(async { tokio::time::timeout(late, call).await });
        reply.expect("a reply")
    }

    fn name(&self, key: &CounterKey) -> String {
        self.store.name_of(key)
    }

    fn local(&self) -> Micros {
        self.clock.now()
    }
}

const BOTH: [FunctionChoice; 2] = [FunctionChoice::Auto, FunctionChoice::Off];

pub(crate) const NOW: Micros = Micros(1_785_000_000_000_000);

fn key(number: u64) -> CounterKey {
    quota_key(&CounterKey([number, number]))
}

/// How long a holder uses its share. No test takes as long.
const LIFE: Micros = Micros::from_secs(600);

/// A settlement at `now` of a quota of 1000 per second. The changes are given as the client of a holder, and
/// its share.
pub(crate) fn settlement(now: Micros, shares: impl IntoIterator<Item = (u64, u64)>) -> Settlement {
    let change = |(holder, share)| Change {
        holder: HolderId([holder, 7]),
        share,
        held: 0,
        want: share,
        expires: now.saturating_add(LIFE),
    };
    let changes = shares.into_iter().map(change).collect();
    let (window, grace) = (Micros::SECOND, Micros::from_millis(500));
    Settlement { now, requests: 1_000, window, grace, changes }
}

/// A quota in Redis, and what Rust makes of the same settlements.
struct Pair {
    ledger: Ledger,
    key: CounterKey,
    now: Micros,
}

impl Pair {
    fn new(number: u64) -> Pair {
        Pair { ledger: Ledger::default(), key: key(number), now: NOW }
    }

    /// Settles these shares 100 ms later in both, which must have the same holdings.
    fn settle(&mut self, instance: &Instance, shares: &[(u64, u64)]) {
        self.now = self.now.saturating_add(Micros::from_millis(100));
        let settlement = settlement(self.now, shares.iter().copied());
        let expected = self.ledger.settle(&settlement);
        assert_eq!(instance.settle(&self.key, &settlement), Ok(expected), "{shares:?}");
    }
}

/// The slot moves with its quota. Calls follow while both nodes report that it moves, and afterwards.
#[test]
fn settlements_follow_a_moving_slot() {
    let _permit = shared();
    for functions in BOTH {
        let cluster = Cluster::start();
        let instance = Instance::over(&cluster_url(&cluster), functions);
        let mut pair = Pair::new(2);
        let first = settlement(pair.now, []);
        until("the owner of the quota is reached", || instance.settle(&pair.key, &first).is_ok());
        pair.settle(&instance, &[(1, SHARES / 2), (2, SHARES)]);
        let name = instance.name(&pair.key);
        let from = cluster.owner(0, &name);
        let to = (from + 1) % 3;
        cluster.move_slot(cluster.slot(&name), from, to, || {
            pair.settle(&instance, &[(1, SHARES / 4)]);
            pair.settle(&instance, &[(3, SHARES)]);
        });
        pair.settle(&instance, &[(2, SHARES)]);
        assert_eq!(cluster.owner(to, &name), to);
        assert_eq!(cluster.nodes[to].client().run(&["EXISTS", &name]), Reply::Integer(1));
    }
}

#[test]
fn a_failover_keeps_a_quota() {
    let _permit = shared();
    let cluster = Cluster::start();
    let instance = Instance::over(&cluster_url(&cluster), FunctionChoice::Auto);
    let mut pair = Pair::new(3);
    let first = settlement(pair.now, []);
    until("the owner of the quota is reached", || instance.settle(&pair.key, &first).is_ok());
    pair.settle(&instance, &[(1, SHARES), (2, SHARES / 8)]);
    let owner = cluster.owner(0, &instance.name(&pair.key));
    let replica = cluster.replica_of(owner);
    cluster.fail_over(replica);
    cluster.wait_until_whole();
    let reading = settlement(pair.now, []);
    until("the new primary settles", || instance.settle(&pair.key, &reading).is_ok());
    pair.settle(&instance, &[(1, SHARES / 2)]);
    pair.settle(&instance, &[(2, SHARES / 2)]);
}

#[test]
fn flushed_scripts_and_functions_are_loaded_again() {
    let _permit = shared();
    for functions in BOTH {
        let server = Server::local();
        let (instance, mut pair) = (Instance::on(&server, functions), Pair::new(4));
        for share in 1..4 {
            pair.settle(&instance, &[(share, share)]);
            server.client().run(&["SCRIPT", "FLUSH"]);
            server.client().run(&["FUNCTION", "FLUSH"]);
        }
        pair.settle(&instance, &[(1, 0)]);
        let stats = server.client().run(&["INFO", "commandstats"]).text();
        let are_functions = functions == FunctionChoice::Auto;
        assert_eq!(stats.contains("cmdstat_fcall:"), are_functions, "{stats}");
        assert_eq!(stats.contains("cmdstat_evalsha:"), !are_functions, "{stats}");
    }
}

/// Values of other programs: none of them ends the connection, and other quotas are settled.
#[test]
fn a_value_of_another_program_is_no_quota() {
    let _permit = shared();
    let server = Server::local();
    for functions in BOTH {
        let instance = Instance::on(&server, functions);
        let mut admin = server.client();
        let (mut text, mut other) = (Pair::new(5), Pair::new(6));
        let name = instance.name(&text.key);
        let long = "q".repeat(15 + 51 * (HOLDERS_MAX + 1));
        for command in [&["RPUSH", &name, "1"][..], &["SET", &name, &long]] {
            admin.run(&["DEL", &name]);
            admin.run(command);
            let before = admin.run(&["DUMP", &name]);
            let settled = instance.settle(&text.key, &settlement(NOW, [(1, 1)]));
            assert_eq!(settled, Err(StoreError::ErrorReply), "{}", command[0]);
            assert_eq!(admin.run(&["DUMP", &name]), before, "nothing is written");
            other.settle(&instance, &[(1, 1)]);
        }
        // A text that is no quota counts as empty, like a counter of another kind.
        for value in ["q", "c23456789012345", "q234567890123456"] {
            admin.run(&["SET", &name, value]);
            text.ledger = Ledger::default();
            text.settle(&instance, &[(1, SHARES), (2, 5)]);
            text.settle(&instance, &[(1, 5)]);
        }
        admin.run(&["FLUSHALL"]);
    }
}

/// Without memory a settlement changes all or nothing, and one that only reads succeeds.
#[test]
fn a_full_redis_still_reads_a_quota() {
    let _permit = shared();
    for functions in BOTH {
        let server = Server::listening(&["--maxmemory-policy", "noeviction"]);
        let (instance, mut pair) = (Instance::on(&server, functions), Pair::new(7));
        pair.settle(&instance, &[(1, SHARES / 2), (2, SHARES / 2)]);
        server.client().run(&["CONFIG", "SET", "maxmemory", "1"]);
        let more = settlement(pair.now, [(1, 0), (3, SHARES)]);
        assert_eq!(instance.settle(&pair.key, &more), Err(StoreError::ErrorReply));
        pair.settle(&instance, &[]);
        server.client().run(&["CONFIG", "SET", "maxmemory", "0"]);
        pair.settle(&instance, &[(1, 0), (3, SHARES)]);
    }
}

/// Redis deletes a quota a second after its last holding, and not sooner.
#[test]
fn a_quota_lives_as_long_as_its_holders() {
    let _permit = shared();
    let server = Server::local();
    let (instance, mut pair) = (Instance::on(&server, FunctionChoice::Auto), Pair::new(8));
    let name = instance.name(&pair.key);
    let left = || match server.client().run(&["PTTL", &name]) {
        Reply::Integer(millis) => millis,
        other => panic!("{other:?}"),
    };
    for shares in [&[(1, 5)][..], &[(1, 6)], &[(2, 7)]] {
        server.client().run(&["PERSIST", &name]);
        pair.settle(&instance, shares);
        // A second more than the holders live, and less what this test takes.
        assert!((500_000..=601_000).contains(&left()), "{} ms", left());
    }
    // Without holders the quota is kept for that second only.
    pair.now = pair.now.saturating_add(LIFE);
    pair.settle(&instance, &[]);
    assert!(left() <= 1_000, "{} ms", left());
    until("the quota has expired", || left() == -2);
}

/// The rights of docs/operate/redis.md are enough for all calls about quotas.
#[test]
fn the_documented_rights_are_enough_for_quotas() {
    let _permit = shared();
    let page =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/operate/redis.md"));
    let page = page.expect("a page about Redis");
    let line = page.lines().find(|line| line.starts_with("ACL SETUSER weir ")).expect("an example");
    let words: Vec<&str> = line.split_whitespace().collect();
    let password = words.iter().find_map(|word| word.strip_prefix('>')).expect("a password");
    for functions in BOTH {
        let server = Server::listening(&[]);
        server.client().run(&words);
        let url = format!("redis://weir:{password}@{}", server.address());
        let (instance, mut pair) = (Instance::over(&url, functions), Pair::new(9));
        pair.settle(&instance, &[(1, SHARES), (2, 5)]);
        pair.settle(&instance, &[(1, 5)]);
        pair.settle(&instance, &[(2, SHARES)]);
        // The whole value is written again, without an expired holding.
        pair.now = pair.now.saturating_add(LIFE);
        pair.settle(&instance, &[(3, 5)]);
        let rules = [RuleId([1, 2]), RuleId([3, 4])];
        let local = instance.local();
        let announced = instance.store.announce_quota_rules(&rules, local, Micros::from_secs(60));
        assert_eq!(instance.run(announced), Ok(()));
        let found = instance.run(instance.store.quota_rules(local));
        assert_eq!(found.map(|rules| rules.len()), Ok(2));
        assert_eq!(instance.run(instance.store.delete(&pair.key)), Ok(true));
    }
}

/// Every instance finds the rules of all, for as long as one of them announces them.
#[test]
fn rules_are_announced_to_all_instances() {
    let _permit = shared();
    let cluster = Cluster::start();
    let [one, two] = [(); 2].map(|()| Instance::over(&cluster_url(&cluster), FunctionChoice::Auto));
    let found = |local| {
        let mut found = two.run(two.store.quota_rules(local)).expect("the rules");
        found.sort_by_key(|rule| rule.0);
        found
    };
    let announce = |instance: &Instance, rules: &[RuleId], local, seconds| {
        let length = Micros::from_secs(seconds);
        instance.run(instance.store.announce_quota_rules(rules, local, length))
    };
    for instance in [&one, &two] {
        let asked = || instance.run(instance.store.quota_rules(instance.local()));
        until("the owner of the rules is reached", || asked() == Ok(Vec::new()));
    }
    let rule = |number| RuleId([u64::MAX - number, number]);
    let local = one.local();
    let later = |seconds| local.saturating_add(Micros::from_secs(seconds));
    assert_eq!(announce(&one, &[], local, 60), Ok(()));
    assert_eq!(found(local), []);
    assert_eq!(announce(&one, &[rule(1), rule(2)], local, 60), Ok(()));
    assert_eq!(announce(&two, &[rule(2), rule(3)], local, 600), Ok(()));
    // A shorter time does not replace a longer one.
    assert_eq!(announce(&one, &[rule(3)], local, 60), Ok(()));
    assert_eq!(found(local), [rule(3), rule(2), rule(1)]);
    assert_eq!(found(later(120)), [rule(3), rule(2)]);
    assert_eq!(found(later(601)), []);
    // As many rules as fit: all instances can read what one of them announces.
    let many: Vec<RuleId> = (10..20_010).map(rule).collect();
    assert_eq!(announce(&one, &many, local, 6_000), Ok(()));
    let found = found(later(3_000));
    assert_eq!(found.len(), weir::store::redis::QUOTA_RULES_MAX);
    // An announcement removes what is out of date.
    assert_eq!(announce(&one, &[rule(1)], later(7_000), 60), Ok(()));
    let name = "weir:{83a}quota-rules";
    let owner = cluster.owner(0, name);
    let mut client = cluster.nodes[owner].client();
    assert_eq!(client.run(&["ZCARD", name]), Reply::Integer(1));
    let Reply::Integer(left) = client.run(&["PTTL", name]) else { panic!("a number") };
    assert!((1..=61_000).contains(&left), "{left} ms");
}

/// Bytes that are meant to harm: the call fails, the connection is closed, and the next one works.
#[test]
fn hostile_replies_to_settlements_end_the_connection() {
    let _permit = shared();
    let server = Server::listening(&[]);
    for payload in Payload::ALL {
        let hostile = Hostile::to(server.address());
        let url = format!("redis://{}", hostile.address());
        let (instance, mut pair) = (Instance::over(&url, FunctionChoice::Off), Pair::new(10));
        pair.settle(&instance, &[(1, SHARES)]);
        hostile.attack(Some("EVALSHA"), payload);
        let reading = settlement(pair.now, []);
        until("the connection is closed", || {
            // Replies to no command may begin like an empty reply.
            let settled = instance.settle(&pair.key, &reading);
            let is_empty = settled == Err(StoreError::InvalidReply);
            let is_lost =
                matches!(settled, Err(StoreError::ConnectionLost | StoreError::Unreachable));
            assert!(
                is_lost || (payload == Payload::Unasked && is_empty),
                "{payload:?} {settled:?}"
            );
            hostile.ended() > 0
        });
        hostile.heal();
        until("Redis settles again", || instance.settle(&pair.key, &reading).is_ok());
        pair.settle(&instance, &[(1, 0)]);
        server.client().run(&["FLUSHALL"]);
    }
}
