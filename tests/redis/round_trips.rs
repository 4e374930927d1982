//! Round trips: all descriptors of a request share one round trip, and so do concurrent requests to
//! one node.

use std::io::{BufReader, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::thread;

use crate::support::on_redis::{over, ready};
use crate::support::redis::resp::read_command;
use crate::support::redis::server::Server;
use crate::support::rls::{descriptor, headers, request};
use crate::support::schedule::shared;
use crate::support::weir::Weir;

const RULES: &str = "
domain: d
descriptors:
  - key: k
    rate_limit: { requests: 10, window: 1000d }
  - key: b
    rate_limit: { algorithm: token_bucket, requests: 10, window: 1000d }
";

const DESCRIPTORS: usize = 8;

/// A server that replies to scripts only when the steps of all descriptors of a request have
/// arrived. A client that waits for one reply before it sends the next call hangs.
fn start_server_that_needs_all_steps() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let port = listener.local_addr().expect("bound").port();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || serve(stream));
        }
    });
    port
}

fn serve(mut stream: TcpStream) {
    let mut commands = BufReader::new(stream.try_clone().expect("a socket can be shared"));
    // The counters of each call, and whether they share arguments.
    let mut held: Vec<(usize, bool)> = Vec::new();
    while let Some(command) = read_command(&mut commands) {
        let answer: &[u8] = match command[0].to_ascii_uppercase().as_slice() {
            b"PING" => b"+PONG\r\n",
            b"TIME" => b"*2\r\n$10\r\n1700000000\r\n$1\r\n0\r\n",
            b"SCRIPT" => b"$40\r\n0123456789012345678901234567890123456789\r\n",
            b"EVALSHA" => {
                let keys = std::str::from_utf8(&command[2]).expect("digits");
                let keys = keys.parse().expect("a number of keys");
                held.push((keys, command.len() - 3 - keys < keys));
                if held.iter().map(|(keys, _)| keys).sum::<usize>() < DESCRIPTORS {
                    continue;
                }
                // One allowed hit in the window that starts at the epoch, or the value before the first hit.
                let one = [&[1][..], &[0, 0, 0, 0, 0, 0, 1], &[0; 7]].concat();
                let none = [&b"c\x01"[..], &[0; 21]].concat();
                let answer = |(keys, shares): (usize, bool)| {
                    let one = if shares { &none } else { &one };
                    let length = format!("${}\r\n", keys * one.len()).into_bytes();
                    [length, one.repeat(keys), b"\r\n".to_vec()].concat()
                };
                &held.drain(..).flat_map(answer).collect::<Vec<u8>>()
            }
            _ => b"-ERR unknown\r\n",
        };
        if stream.write_all(answer).is_err() {
            break;
        }
    }
}

/// All descriptors of a request are sent before the first reply arrives.
#[test]
fn descriptors_are_sent_without_waiting_for_replies() {
    let _permit = shared();
    let weir = over(&format!("redis://127.0.0.1:{}", start_server_that_needs_all_steps()), RULES)
        .store_timeout("20s")
        .env("WEIR__REDIS__MIN_CONNECTIONS_PER_NODE", "1")
        .env("WEIR__GRPC__WORKERS", "1")
        .start();
    ready(&weir);
    // Two scripts need two calls. Neither waits for the other.
    let sent = |n: usize| descriptor(&[(["k", "b"][n % 2], &n.to_string())]);
    for _ in 0..3 {
        let answer = weir.client().check(request("d", (0..DESCRIPTORS).map(sent).collect()));
        let decision = headers(&answer)[0].1;
        assert_eq!(decision.matches("fallback=none").count(), DESCRIPTORS, "{decision}");
    }
}

#[test]
fn descriptors_of_a_request_share_one_call() {
    let _permit = shared();
    let server = Server::local();
    let url = format!("redis+unix://{}", server.socket().display());
    let start = |batch: &str| {
        let weir = over(&url, RULES)
            .store_timeout("20s")
            .env("WEIR__REDIS__MAX_BATCH_SIZE", batch)
            .env("WEIR__STORE__OVER_LIMIT_CACHE", "false")
            .env("WEIR__GRPC__WORKERS", "1")
            .start();
        ready(&weir);
        weir
    };
    let sent = || {
        let all = (0..DESCRIPTORS).map(|n| descriptor(&[("k", &n.to_string())]));
        request("d", all.collect())
    };
    let cost = |weir: &Weir| {
        weir.client().check(sent());
        let before = server.script_calls() as usize;
        (0..10).for_each(|_| assert_eq!(weir.client().check(sent()).statuses.len(), DESCRIPTORS));
        server.script_calls() as usize - before
    };
    assert_eq!(cost(&start("128")), 10);
    assert_eq!(cost(&start("3")), 10 * DESCRIPTORS.div_ceil(3));
    assert_eq!(cost(&start("1")), 10 * DESCRIPTORS);
}
