//! A hostile Redis: whatever bytes it sends, weir stays up, stays small, and answers.

use crate::support::on_redis::{over, ready};
use crate::support::redis::hostile::{Hostile, Payload};
use crate::support::redis::server::Server;
use crate::support::rls::{descriptor, headers, request};
use crate::support::schedule::shared;
use crate::support::wait::until;
use crate::support::weir::Weir;

const RULES: &str = "
domain: d
descriptors:
  - key: k
    rate_limit: { requests: 1000000, window: 1000d }
";

/// The most memory that an attack may take, in KiB. A connection stores at most 1 MiB of a reply, and
/// that of discovery at most 18 MiB. The rest is for the allocator.
const GROWTH_MAX: u64 = 64 << 10;

/// The most resident memory of a process that is attacked from its start, in KiB.
const RESIDENT_MAX: u64 = 192 << 10;

/// Attacks on each process: a connection per attack.
const ATTACKS: usize = 5;

/// Sends a request, which is always answered. Returns whether Redis counted it.
fn is_counted(weir: &Weir) -> bool {
    let answer = weir.client().check(request("d", vec![descriptor(&[("k", "x")])]));
    headers(&answer).iter().any(|(_, value)| value.ends_with("fallback=none"))
}

#[test]
fn hostile_replies_neither_end_nor_fill_weir() {
    let _permit = shared();
    let server = Server::listening(&[]);
    for payload in Payload::ALL {
        let hostile = Hostile::to(server.address());
        let url = format!("redis://{}", hostile.address());
        let mut weir = over(&url, RULES).store_timeout("5s").start();
        ready(&weir);
        until("Redis counts", || is_counted(&weir));
        let memory = weir.process().resident_kib();
        hostile.attack(None, payload);
        until("weir closes the connections", || {
            is_counted(&weir);
            hostile.ended() >= ATTACKS
        });
        assert!(weir.process().is_alive(), "{payload:?}: {}", weir.process().output());
        let grown = weir.process().resident_kib().saturating_sub(memory);
        assert!(grown < GROWTH_MAX, "{payload:?} took {grown} KiB");
        hostile.heal();
        until("Redis counts again", || is_counted(&weir));
    }
}

/// Each command of the start is attacked: those of the login, of discovery, and of the first calls.
#[test]
fn a_redis_may_be_hostile_from_the_start() {
    let _permit = shared();
    let server = Server::listening(&[]);
    let table = [
        ("redis://:secret@{}", "AUTH", "off"),
        ("redis://{}/1", "SELECT", "off"),
        ("redis://{}", "PING", "off"),
        ("redis://{}", "TIME", "off"),
        ("redis://{}", "SCRIPT", "off"),
        ("redis://{}", "EVALSHA", "off"),
        ("redis://{}", "FUNCTION", "auto"),
        ("redis://{}", "FCALL", "auto"),
        ("redis-cluster://{}", "CLUSTER", "off"),
        ("redis-sentinel://{}?sentinelServiceName=main", "SENTINEL", "off"),
    ];
    for (url, command, functions) in table {
        for payload in [Payload::NestedArrays, Payload::LongString] {
            let hostile = Hostile::to(server.address());
            hostile.attack(Some(command), payload);
            let url = url.replace("{}", &hostile.address().to_string());
            let mut weir = over(&url, RULES)
                .store_timeout("5s")
                .env("WEIR__REDIS__FUNCTIONS", functions)
                .start();
            until("weir closes the connections", || {
                is_counted(&weir);
                hostile.ended() >= ATTACKS
            });
            let what = format!("{command}, {payload:?}");
            assert!(weir.process().is_alive(), "{what}: {}", weir.process().output());
            let memory = weir.process().resident_kib();
            assert!(memory < RESIDENT_MAX, "{what}: {memory} KiB");
        }
    }
}
