//! Batching: batched steps are decided like single ones, fail alone, and cost Redis less.

use std::collections::BTreeSet;
use std::io::{BufReader, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::support::load::{LoadResult, MakeRequest, figures, send_all};
use crate::support::on_redis::{over, ready};
use crate::support::redis::resp::Reply;
use crate::support::redis::resp::read_command;
use crate::support::redis::server::Server;
use crate::support::rls::{RateLimitResponse, costing, descriptor, headers, request};
use crate::support::schedule::{exclusive, shared};
use crate::support::wait::until;
use crate::support::weir::Weir;

const RULES: &str = "
domain: d
descriptors:
  - key: hot
    rate_limit: { requests: 3000, window: 1000d }
  - key: k
    rate_limit: { requests: 1000000, window: 1000d }
  - key: log
    rate_limit: { algorithm: sliding_window_log, requests: 1000, window: 1000d }
  - key: b
    rate_limit: { algorithm: token_bucket, requests: 1000000, window: 1000d }
";

fn start(server: &Server, batch: &str) -> Weir {
    let url = format!("redis+unix://{}", server.socket().display());
    let weir = over(&url, RULES)
        .store_timeout("20s")
        .env("WEIR__REDIS__MAX_BATCH_SIZE", batch)
        // Every request must reach Redis.
        .env("WEIR__STORE__OVER_LIMIT_CACHE", "false")
        .env("WEIR__REDIS__KEY_SECRET", batch)
        .start();
    ready(&weir);
    weir
}

/// CPU seconds of the main thread, which runs commands.
fn cpu(server: &Server) -> f64 {
    let info = server.client().run(&["INFO", "cpu"]).text();
    let value = |name: &str| {
        let line = info.lines().find_map(|line| line.strip_prefix(name)).expect("has the field");
        line.trim_start_matches(':').trim().parse::<f64>().expect("seconds")
    };
    value("used_cpu_user_main_thread:") + value("used_cpu_sys_main_thread:")
}

/// A hot counter is decided the same with and without batching, and batching needs fewer calls.
#[test]
fn batched_hits_are_decided_as_single_hits() {
    const REQUESTS: usize = 8_000;
    let _permit = exclusive();
    let server = Server::local();
    let hot: MakeRequest = Arc::new(|_| request("d", vec![descriptor(&[("hot", "x")])]));
    for batch in ["1", "128"] {
        let weir = start(&server, batch);
        let before = cpu(&server);
        let answers = send_all(&[weir.grpc], 256, REQUESTS, hot.clone());
        let us = (cpu(&server) - before) * 1e6 / REQUESTS as f64;
        figures(&format!("256 callers on one counter, up to {batch} per call"), answers.iter());
        let of = |name: &str| weir.metric(name, &[]);
        let calls = of("weir_redis_calls_total");
        let combined = of("weir_redis_combined_steps_total");
        eprintln!("{us:.2} us of Redis each, {calls} calls, {combined} combined");
        assert_eq!(answers.iter().find_map(LoadResult::fallback), None);
        assert_eq!(answers.iter().filter(|answer| answer.passed(0)).count(), 3_000);
        // Every allowed request returned a different remaining count.
        let left = answers.iter().filter(|answer| answer.passed(0));
        let left: BTreeSet<u32> =
            left.map(|answer| answer.response.statuses[0].limit_remaining).collect();
        assert_eq!(left.len(), 3_000);
        assert_eq!(of("weir_redis_steps_total"), REQUESTS as u64);
        if batch == "1" {
            assert_eq!((calls, combined), (REQUESTS as u64, 0));
        } else {
            assert!(calls * 5 < REQUESTS as u64, "{calls} calls, {combined} combined");
        }
    }
}

/// The fallback or its cause, per descriptor.
fn causes(answer: &RateLimitResponse) -> Vec<String> {
    let headers = headers(answer);
    let decision = headers.iter().find(|(name, _)| *name == "x-weir-decision");
    let parts = decision.expect("it is enabled").1.split(',');
    parts.map(|one| one.rsplit(';').next().unwrap_or_default().trim().to_owned()).collect()
}

fn names(server: &Server) -> BTreeSet<String> {
    match server.client().run(&["KEYS", "weir:*"]) {
        Reply::List(names) => names.iter().map(Reply::text).collect(),
        other => panic!("{other:?}"),
    }
}

/// A step on a counter with foreign content fails; the other steps of its batch are decided.
#[test]
fn an_unreadable_counter_fails_alone() {
    let _permit = shared();
    let server = Server::local();
    let weir = start(&server, "128");
    let of_counter = |value: &str| descriptor(&[("k", value)]);
    weir.client().check(request("d", vec![of_counter("spoilt")]));
    let name = names(&server).pop_first().expect("the key exists");
    server.client().run(&["DEL", &name]);
    server.client().run(&["RPUSH", &name, "nonsense"]);
    let all = ["a", "spoilt", "b", "spoilt", "c"].map(of_counter);
    let [none, refused] = ["fallback=none", "cause=error_reply"];
    for left in [999_999, 999_998] {
        let answer = weir.client().check(request("d", all.to_vec()));
        assert_eq!(causes(&answer), [none, refused, none, refused, none]);
        for index in [0, 2, 4] {
            assert_eq!(answer.statuses[index].limit_remaining, left, "counted once");
        }
    }

    // A string too short for a log.
    let before = names(&server);
    let logged = |value: &str| descriptor(&[("log", value)]);
    weir.client().check(request("d", vec![logged("spoilt")]));
    let name = names(&server).difference(&before).next().cloned().expect("the key exists");
    server.client().run(&["SET", &name, "l"]);
    let all = ["a", "spoilt", "b"].map(logged);
    for left in [999, 998] {
        let answer = weir.client().check(request("d", all.to_vec()));
        assert_eq!(causes(&answer), [none, refused, none]);
        for index in [0, 2] {
            assert_eq!(answer.statuses[index].limit_remaining, left, "counted once");
        }
    }
    assert_eq!(server.client().run(&["GET", &name]).text(), "l", "the string is unchanged");
}

/// With Redis out of memory, peeks are decided even in a batch with rejected hits.
#[test]
fn peeks_succeed_while_redis_memory_is_full() {
    let _permit = shared();
    let server = Server::listening(&["--maxmemory-policy", "noeviction"]);
    let weir = start(&server, "128");
    let (look, take) = (costing(0, descriptor(&[("k", "x")])), descriptor(&[("k", "y")]));
    server.client().run(&["CONFIG", "SET", "maxmemory", "1"]);
    let all = || request("d", vec![look.clone(), take.clone(), look.clone()]);
    let answer = weir.client().check(all());
    assert_eq!(causes(&answer), ["fallback=none", "cause=error_reply", "fallback=none"]);
    server.client().run(&["CONFIG", "SET", "maxmemory", "0"]);
    assert_eq!(weir.client().check(all()).statuses[1].limit_remaining, 999_999);
}

/// Counters that share an argument are counted once each, also after Redis had no memory, and without the right to
/// read them at once.
#[test]
fn counters_that_share_an_argument_count_once() {
    let _permit = shared();
    let server = Server::listening(&["--maxmemory-policy", "noeviction"]);
    let weir = start(&server, "128");
    let all = || request("d", ["a", "b", "c", "d"].map(|it| descriptor(&[("k", it)])).to_vec());
    let left = |left| {
        let answer = weir.client().check(all());
        assert_eq!(causes(&answer), ["fallback=none"; 4]);
        let all: Vec<u32> = answer.statuses.iter().map(|it| it.limit_remaining).collect();
        assert_eq!(all, [left; 4]);
    };
    left(999_999);
    server.client().run(&["CONFIG", "SET", "maxmemory", "1"]);
    assert_eq!(causes(&weir.client().check(all())), ["cause=error_reply"; 4]);
    server.client().run(&["CONFIG", "SET", "maxmemory", "0"]);
    left(999_998);
    server.client().run(&["ACL", "SETUSER", "default", "-mget"]);
    left(999_997);
}

/// A Redis that does not reply to scripts while it is closed.
struct Holder {
    port: u16,
    /// Script calls received.
    seen: AtomicUsize,
    /// Whether the last call used the connection of a core, not the one that measures clocks.
    own: AtomicBool,
    closed: AtomicBool,
    held: Mutex<Vec<TcpStream>>,
}

/// The reply: one hit in the window that starts at the epoch.
const ONE: &[u8] = b"$15\r\n\x01\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\r\n";

impl Holder {
    fn start() -> Arc<Holder> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let holder = Arc::new(Holder {
            port: listener.local_addr().expect("bound").port(),
            seen: AtomicUsize::new(0),
            own: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            held: Mutex::default(),
        });
        let serving = holder.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let serving = serving.clone();
                thread::spawn(move || serving.serve(stream));
            }
        });
        holder
    }

    fn serve(&self, mut stream: TcpStream) {
        let mut commands = BufReader::new(stream.try_clone().expect("a socket can be shared"));
        let mut clock = false;
        while let Some(command) = read_command(&mut commands) {
            let answer: &[u8] = match command[0].to_ascii_uppercase().as_slice() {
                b"PING" => b"+PONG\r\n",
                b"TIME" => {
                    clock = true;
                    b"*2\r\n$10\r\n1700000000\r\n$1\r\n0\r\n"
                }
                b"SCRIPT" => b"$40\r\n0123456789012345678901234567890123456789\r\n",
                b"EVALSHA" => {
                    assert_eq!(command[2], b"1", "each call has one key");
                    self.own.store(!clock, Ordering::SeqCst);
                    if self.closed.load(Ordering::SeqCst) {
                        let stream = stream.try_clone().expect("a socket can be shared");
                        self.held.lock().expect("no thread panicked").push(stream);
                        self.seen.fetch_add(1, Ordering::SeqCst);
                        continue;
                    }
                    self.seen.fetch_add(1, Ordering::SeqCst);
                    ONE
                }
                _ => b"-ERR unknown\r\n",
            };
            if stream.write_all(answer).is_err() {
                break;
            }
        }
    }

    fn seen(&self) -> usize {
        self.seen.load(Ordering::SeqCst)
    }

    fn release(&self) {
        self.closed.store(false, Ordering::SeqCst);
        for mut stream in self.held.lock().expect("no thread panicked").drain(..) {
            stream.write_all(ONE).expect("a call waits for it");
        }
    }
}

#[test]
fn a_timed_out_waiting_call_is_never_sent() {
    let _permit = exclusive();
    let holder = Holder::start();
    let weir = over(&format!("redis://127.0.0.1:{}", holder.port), RULES)
        .store_timeout("1s")
        .env("WEIR__GRPC__WORKERS", "1")
        .start();
    ready(&weir);
    let check = || causes(&weir.client().check(request("d", vec![descriptor(&[("k", "x")])])));
    until("the core has its own connection", || {
        check();
        holder.own.load(Ordering::SeqCst)
    });
    let before = holder.seen();
    holder.closed.store(true, Ordering::SeqCst);
    thread::scope(|scope| {
        // As many calls as a connection keeps in flight. Two more have to wait.
        for under_way in [1, 2] {
            scope.spawn(|| assert_eq!(check(), ["cause=timeout"]));
            until("it is sent", || holder.seen() == before + under_way);
        }
        for _ in 0..2 {
            scope.spawn(|| assert_eq!(check(), ["cause=timeout"]));
        }
    });
    holder.release();
    assert_eq!(check(), ["fallback=none"]);
    assert_eq!(holder.seen(), before + 3, "calls that timed out while waiting are not sent");
}
