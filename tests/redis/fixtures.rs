//! Tests of the Redis fixtures, which can cause every fault that occurs in production.
//!
//! Each test causes one fault and observes it as a client, so that tests of weir can rely on it.

use std::io::ErrorKind;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::certificates::Certificates;
use crate::support::redis::cluster::Cluster;
use crate::support::redis::delaying_proxy::DelayingProxy;
use crate::support::redis::hostile::{Hostile, Payload};
use crate::support::redis::proxy::Proxy;
use crate::support::redis::resp::{Client, Reply};
use crate::support::redis::sentinel::{SERVICE, Watched};
use crate::support::redis::server::Server;
use crate::support::schedule::{exclusive, shared};
use crate::support::wait::until;

/// Longer than any reply takes.
const TIMEOUT: Duration = Duration::from_secs(30);
/// How long a test waits for a reply that must not come.
const SILENCE: Duration = Duration::from_millis(200);

fn is_silence(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

/// A killed server closes its connections and is empty after a restart.
#[test]
fn a_killed_server_restarts_empty() {
    let _permit = shared();
    let mut server = Server::listening(&[]);
    let mut client = Client::tcp(server.address(), TIMEOUT).expect("it listens");
    client.run(&["SET", "key", "1"]);
    server.kill();
    assert!(client.try_run(&["PING"]).is_err());
    assert!(Client::tcp(server.address(), TIMEOUT).is_err());
    server.restart();
    let mut client = Client::tcp(server.address(), TIMEOUT).expect("it listens again");
    assert_eq!(client.run(&["GET", "key"]), Reply::Nil);
}

/// A frozen server accepts connections and replies only after it thaws.
#[test]
fn a_frozen_server_replies_when_it_thaws() {
    let _permit = shared();
    let server = Server::listening(&[]);
    let mut client = Client::tcp(server.address(), SILENCE).expect("it listens");
    server.process().freeze();
    let mut late = Client::tcp(server.address(), TIMEOUT).expect("the system accepts for it");
    let error = client.try_run(&["PING"]).expect_err("no reply");
    assert!(is_silence(error.kind()), "{error}");
    server.process().thaw();
    assert_eq!(late.run(&["PING"]).text(), "PONG");
}

#[test]
fn a_silent_proxy_forwards_nothing() {
    let _permit = shared();
    let server = Server::listening(&[]);
    let proxy = Proxy::to(server.address());
    let mut client = Client::tcp(proxy.address(), SILENCE).expect("it listens");
    assert_eq!(client.run(&["PING"]).text(), "PONG");
    proxy.silence();
    let error = client.try_run(&["INCR", "key"]).expect_err("no reply");
    assert!(is_silence(error.kind()), "{error}");
    let mut late = Client::tcp(proxy.address(), TIMEOUT).expect("it still accepts");
    assert_eq!(server.client().run(&["GET", "key"]), Reply::Nil, "nothing has passed");
    proxy.heal();
    assert_eq!(late.run(&["PING"]).text(), "PONG");
    proxy.cut();
    assert!(late.try_run(&["PING"]).is_err());
    let mut client = Client::tcp(proxy.address(), TIMEOUT).expect("new connections are taken");
    assert_eq!(client.run(&["PING"]).text(), "PONG");
}

#[test]
fn a_delaying_proxy_keeps_the_order() {
    let _permit = shared();
    let server = Server::listening(&[]);
    let round_trip = Duration::from_millis(60);
    let proxy = DelayingProxy::to(server.address(), round_trip);
    let mut client = Client::tcp(proxy.address(), TIMEOUT).expect("it listens");
    let began = Instant::now();
    let words: [&[u8]; 2] = [b"INCR", b"key"];
    (0..1_000).for_each(|_| client.queue(&words));
    client.send().expect("it accepts commands");
    for count in 1..=1_000 {
        assert_eq!(client.read().expect("a reply"), Reply::Integer(count));
    }
    assert!(began.elapsed() >= round_trip, "{:?}", began.elapsed());
}

#[test]
fn a_hostile_server_relays_until_it_attacks() {
    let _permit = shared();
    let server = Server::listening(&[]);
    let hostile = Hostile::to(server.address());
    let mut client = Client::tcp(hostile.address(), TIMEOUT).expect("it listens");
    assert_eq!(client.run(&["INCR", "key"]), Reply::Integer(1));
    hostile.attack(Some("GET"), Payload::OtherProtocol);
    assert_eq!(client.run(&["INCR", "key"]), Reply::Integer(2));
    assert!(client.try_run(&["GET", "key"]).is_err());
    assert_eq!(hostile.ended(), 0, "the client has not closed the connection");
    drop(client);
    until("the connection ends", || hostile.ended() == 1);
    hostile.heal();
    let mut client = Client::tcp(hostile.address(), TIMEOUT).expect("it listens");
    assert_eq!(client.run(&["GET", "key"]).text(), "2");
}

#[test]
fn scripts_can_be_flushed_and_clients_paused() {
    let _permit = shared();
    let server = Server::listening(&[]);
    let mut admin = server.client();
    let name = admin.run(&["SCRIPT", "LOAD", "return redis.call('SET', KEYS[1], 1)"]).text();
    admin.run(&["SCRIPT", "FLUSH"]);
    let reply = admin.try_run(&["EVALSHA", &name, "1", "key"]).expect("an answer");
    assert!(reply.text().starts_with("NOSCRIPT"), "{reply:?}");
    admin.run(&["CLIENT", "PAUSE", "60000", "WRITE"]);
    let mut client = Client::tcp(server.address(), SILENCE).expect("it listens");
    assert_eq!(client.run(&["GET", "key"]), Reply::Nil, "reading goes on");
    let error = client.try_run(&["SET", "key", "1"]).expect_err("writing waits");
    assert!(is_silence(error.kind()), "{error}");
    admin.run(&["CLIENT", "UNPAUSE"]);
    assert_eq!(admin.run(&["SET", "key", "2"]).text(), "OK");
}

#[test]
fn a_full_server_refuses_to_write_and_still_reads() {
    let _permit = shared();
    let server = Server::listening(&["--maxmemory-policy", "noeviction"]);
    let mut client = server.client();
    client.run(&["SET", "key", "1"]);
    client.run(&["CONFIG", "SET", "maxmemory", "1"]);
    let reply = client.try_run(&["SET", "key", "2"]).expect("an answer");
    assert!(reply.text().starts_with("OOM"), "{reply:?}");
    assert_eq!(client.run(&["GET", "key"]).text(), "1");
    client.run(&["CONFIG", "SET", "maxmemory", "0"]);
    client.run(&["SET", "key", "2"]);
}

#[test]
fn a_wrong_password_and_a_missing_right_are_refused() {
    let _permit = shared();
    let server = Server::listening(&["--requirepass", "right"]);
    let mut client = Client::tcp(server.address(), TIMEOUT).expect("it listens");
    let refused = |reply: std::io::Result<Reply>| reply.expect("an answer").text();
    assert!(refused(client.try_run(&["GET", "key"])).starts_with("NOAUTH"));
    assert!(refused(client.try_run(&["AUTH", "wrong"])).starts_with("WRONGPASS"));
    assert_eq!(client.run(&["AUTH", "right"]).text(), "OK");
    let mut admin = server.client();
    admin.run(&["ACL", "SETUSER", "weir", "on", ">secret", "~weir:*", "+get"]);
    assert_eq!(client.run(&["AUTH", "weir", "secret"]).text(), "OK");
    assert_eq!(client.run(&["GET", "weir:1"]), Reply::Nil);
    assert!(refused(client.try_run(&["GET", "other"])).starts_with("NOPERM"));
    // The password changes while connections are open. They stay open, and Redis refuses new ones.
    admin.run(&["CONFIG", "SET", "requirepass", "another"]);
    let mut late = Client::tcp(server.address(), TIMEOUT).expect("it listens");
    assert!(refused(late.try_run(&["AUTH", "right"])).starts_with("WRONGPASS"));
}

#[test]
fn tls_needs_the_authority_and_a_certificate() {
    let _permit = shared();
    let certificates = Certificates::new();
    let path = |name: &str| certificates.path(name).display().to_string();
    for clients in [false, true] {
        let server = Server::tls(&certificates, clients);
        let port = server.port().to_string();
        let ping = |more: &[&str]| {
            let mut command = Command::new("redis-cli");
            command.args(["-h", "127.0.0.1", "-p", &port]).args(more).arg("PING");
            let output = command.output().expect("redis-cli comes with redis-server");
            String::from_utf8_lossy(&output.stdout).trim().to_owned()
        };
        let (ca, crt, key) = (path("ca.crt"), path("client.crt"), path("client.key"));
        let trusting = ["--tls", "--cacert", &ca];
        assert_eq!(ping(&trusting) == "PONG", !clients);
        let known = [&trusting[..], &["--cert", &crt, "--key", &key]].concat();
        assert_eq!(ping(&known), "PONG");
        assert_ne!(ping(&[]), "PONG");
    }
}

#[test]
fn sentinels_promote_the_replica() {
    let _permit = exclusive();
    let mut watched = Watched::start();
    let sentinel = (std::net::Ipv4Addr::LOCALHOST, watched.sentinel_ports()[0]).into();
    watched.servers[0].kill();
    watched.wait_for_failover();
    let mut client = Client::tcp(sentinel, TIMEOUT).expect("it listens");
    let Reply::List(address) = client.run(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE]) else {
        panic!("an address");
    };
    assert_eq!(address[1].text(), watched.servers[1].port().to_string());
    assert_eq!(watched.servers[1].client().run(&["SET", "key", "1"]).text(), "OK");
}

/// A cluster fails over on request and when a primary dies.
#[test]
fn a_cluster_fails_over() {
    let _permit = shared();
    let mut cluster = Cluster::start();
    let first = cluster.owner(0, "key");
    let second = cluster.replica_of(first);
    cluster.nodes[first].client().run(&["SET", "key", "1"]);
    cluster.fail_over(second);
    cluster.wait_until_whole();
    assert_eq!(cluster.owner(second, "key"), second);
    assert_eq!(cluster.nodes[second].client().run(&["GET", "key"]).text(), "1");
    let moved = cluster.nodes[first].client().try_run(&["SET", "key", "2"]).expect("an answer");
    assert!(moved.text().starts_with("MOVED"), "{moved:?}");
    cluster.nodes[second].kill();
    cluster.wait_for_primary(first);
    assert_eq!(cluster.nodes[first].client().run(&["SET", "key", "3"]).text(), "OK");
    cluster.nodes[second].restart();
    cluster.wait_until_whole();
}

#[test]
fn a_slot_moves_while_it_is_used() {
    let _permit = shared();
    let cluster = Cluster::start();
    let from = cluster.owner(0, "key");
    let to = (from + 1) % 3;
    let (mut source, mut target) = (cluster.nodes[from].client(), cluster.nodes[to].client());
    assert_eq!(source.run(&["INCR", "key"]), Reply::Integer(1));
    cluster.move_slot(cluster.slot("key"), from, to, || {
        let redirected = source.try_run(&["INCR", "key"]).expect("an answer");
        assert!(redirected.text().starts_with("ASK"), "{redirected:?}");
        let moved = target.try_run(&["INCR", "key"]).expect("an answer");
        assert!(moved.text().starts_with("MOVED"), "{moved:?}");
        target.run(&["ASKING"]);
        assert_eq!(target.run(&["INCR", "key"]), Reply::Integer(2));
    });
    assert_eq!(target.run(&["INCR", "key"]), Reply::Integer(3));
    let moved = source.try_run(&["INCR", "key"]).expect("an answer");
    assert!(moved.text().starts_with("MOVED"), "{moved:?}");
    cluster.wait_until_whole();
}

/// Clients that follow redirects lose no step while a slot moves under load.
#[test]
fn redirects_lose_no_step_of_a_moving_slot() {
    let _permit = shared();
    let cluster = Cluster::start();
    let from = cluster.owner(0, "key");
    let to = (from + 1) % 3;
    let clients = || [from, to].map(|node| cluster.nodes[node].client());
    let (done, moved) = (AtomicU64::new(0), AtomicBool::new(false));
    let follow = |mut nodes: [Client; 2]| {
        let mut at = 0;
        let mut redirected = 0;
        // Continue after the slot has moved, so that the new owner serves some of the steps.
        let mut left = 100;
        while left > 0 {
            left -= u32::from(moved.load(Ordering::Relaxed));
            let reply = nodes[at].try_run(&["INCR", "key"]).expect("an answer");
            match reply.text().split(' ').next() {
                Some("ASK") => {
                    nodes[1 - at].run(&["ASKING"]);
                    nodes[1 - at].run(&["INCR", "key"]);
                }
                Some("MOVED") => {
                    at = 1 - at;
                    redirected += 1;
                    continue;
                }
                _ => assert!(matches!(reply, Reply::Integer(_)), "{reply:?}"),
            }
            done.fetch_add(1, Ordering::Relaxed);
        }
        assert!(redirected > 0, "the slot has moved");
    };
    thread::scope(|scope| {
        for _ in 0..2 {
            let nodes = clients();
            scope.spawn(|| follow(nodes));
        }
        while done.load(Ordering::Relaxed) < 1_000 {
            thread::yield_now();
        }
        let slot = cluster.slot("key");
        cluster.move_slot(slot, from, to, || {});
        moved.store(true, Ordering::Relaxed);
    });
    let count = cluster.nodes[to].client().run(&["GET", "key"]).text();
    assert_eq!(count, done.load(Ordering::Relaxed).to_string());
}
