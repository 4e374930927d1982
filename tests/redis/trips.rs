//! Round trips: a request with several descriptors costs one, not one per descriptor.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::thread;

use crate::start::{alone, over, ready};
use crate::support::rls::{descriptor, headers, request};

const RULES: &str = "
domain: d
descriptors:
  - key: k
    rate_limit: { requests: 10, window: 1000d }
";

const DESCRIPTORS: usize = 8;

/// A server that answers scripts only when all of a request's have come: whoever waits for one
/// answer before sending the next call waits for ever.
fn reluctant() -> u16 {
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
    let mut held = 0;
    while let Some(command) = read(&mut commands) {
        let answer: &[u8] = match command[0].to_ascii_uppercase().as_slice() {
            b"PING" => b"+PONG\r\n",
            b"CLIENT" => b":1\r\n",
            b"INFO" => b"$22\r\nredis_version:7.0.15\r\n\r\n",
            b"TIME" => b"*2\r\n$10\r\n1700000000\r\n$1\r\n0\r\n",
            b"SCRIPT" => b"$40\r\n0123456789012345678901234567890123456789\r\n",
            b"EVALSHA" => {
                held += 1;
                if held < DESCRIPTORS {
                    continue;
                }
                // One hit in the window that begins with the epoch, and it passes.
                held = 0;
                &b"*3\r\n:1\r\n:1\r\n:0\r\n".repeat(DESCRIPTORS)
            }
            _ => b"-ERR unknown\r\n",
        };
        if stream.write_all(answer).is_err() {
            break;
        }
    }
}

/// One command as a client sends it: an array of strings.
fn read(commands: &mut impl BufRead) -> Option<Vec<Vec<u8>>> {
    let words = number(commands, b'*')?;
    (0..words)
        .map(|_| {
            let mut word = vec![0; number(commands, b'$')? + 2];
            commands.read_exact(&mut word).ok()?;
            word.truncate(word.len() - 2);
            Some(word)
        })
        .collect()
}

fn number(commands: &mut impl BufRead, kind: u8) -> Option<usize> {
    let mut line = Vec::new();
    commands.by_ref().read_until(b'\n', &mut line).ok()?;
    let text = std::str::from_utf8(line.strip_prefix(&[kind])?).ok()?;
    text.trim_end().parse().ok()
}

#[test]
fn all_descriptors_of_a_request_are_under_way_before_the_first_answer_comes() {
    let _turn = alone();
    let weir = over(&format!("redis://127.0.0.1:{}", reluctant()), RULES)
        .env("WEIR__STORE__TIMEOUT", "20s")
        .env("WEIR__REDIS__POOL_SIZE", "1")
        .env("WEIR__GRPC__CORES", "1")
        .start();
    ready(&weir);
    let asked = || (0..DESCRIPTORS).map(|n| descriptor(&[("k", &n.to_string())])).collect();
    for _ in 0..3 {
        let answer = weir.client().ask(request("d", asked()));
        let how = headers(&answer)[0].1;
        assert_eq!(how.matches("fallback=none").count(), DESCRIPTORS, "{how}");
    }
}
