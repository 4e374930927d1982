//! Replies that are well-formed, and no outcome of a settlement.

use std::io::{BufReader, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

use weir::key::CounterKey;
use weir::quota::HOLDERS_MAX;
use weir::settings::FunctionChoice;
use weir::store::StoreError;

use super::{Instance, NOW, settlement};
use crate::support::redis::resp::read_command;
use crate::support::schedule::shared;

/// Starts a server without functions that replies to every script call with these bytes. Returns its
/// port.
fn start(reply: Vec<u8>) -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let (port, reply) = (listener.local_addr().expect("bound").port(), Arc::new(reply));
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let reply = Arc::clone(&reply);
            thread::spawn(move || serve(stream, &reply));
        }
    });
    port
}

fn serve(mut stream: TcpStream, reply: &[u8]) {
    let mut commands = BufReader::new(stream.try_clone().expect("a socket can be shared"));
    while let Some(command) = read_command(&mut commands) {
        let answer: &[u8] = match command[0].as_slice() {
            b"PING" => b"+PONG\r\n",
            b"TIME" => b"*2\r\n$10\r\n1700000000\r\n$1\r\n0\r\n",
            b"SCRIPT" => b"$40\r\n0123456789012345678901234567890123456789\r\n",
            b"EVALSHA" => reply,
            _ => b"-ERR unknown command\r\n",
        };
        if stream.write_all(answer).is_err() {
            return;
        }
    }
}

fn text(bytes: &[u8]) -> Vec<u8> {
    [format!("${}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat()
}

/// Each reply gives its error, and no reply has more holders than a quota.
#[test]
fn other_replies_are_no_holdings() {
    let _permit = shared();
    // The ids count up, and all numbers of a holding are 1.
    let holdings = |count: usize| -> Vec<u8> {
        let numbers = [0, 0, 0, 0, 0, 0, 1].repeat(5);
        let ids = (0..count as u128).map(u128::to_be_bytes);
        ids.flat_map(|id| [&id[..], &numbers].concat()).collect()
    };
    let (one, large) = (holdings(1), [&[0; 16][..], &[0xff; 35]].concat());
    let table = [
        (text(&holdings(3)), Ok(3)),
        (text(&[]), Ok(0)),
        (text(&holdings(HOLDERS_MAX)), Ok(HOLDERS_MAX)),
        (text(&holdings(HOLDERS_MAX + 1)), Err(StoreError::ConnectionLost)),
        (b"$2147483647\r\n".to_vec(), Err(StoreError::ConnectionLost)),
        (b"*1\r\n$0\r\n\r\n".to_vec(), Err(StoreError::ConnectionLost)),
        (text(&one[1..]), Err(StoreError::InvalidReply)),
        (text(&one.repeat(2)), Err(StoreError::InvalidReply)),
        (text(&large), Err(StoreError::InvalidReply)),
        (b":1\r\n".to_vec(), Err(StoreError::InvalidReply)),
        (b"$-1\r\n".to_vec(), Err(StoreError::InvalidReply)),
        (b"*0\r\n".to_vec(), Err(StoreError::InvalidReply)),
        (b"-OOM no memory\r\n".to_vec(), Err(StoreError::ErrorReply)),
        (b"-NOSCRIPT as ever\r\n".to_vec(), Err(StoreError::ErrorReply)),
        (b"-LOADING as ever\r\n".to_vec(), Err(StoreError::ErrorReply)),
        (b"-MOVED 1 nowhere\r\n".to_vec(), Err(StoreError::InvalidReply)),
    ];
    for (reply, expected) in table {
        let shown = String::from_utf8_lossy(&reply[..reply.len().min(40)]).into_owned();
        let url = format!("redis://127.0.0.1:{}", start(reply));
        let instance = Instance::over(&url, FunctionChoice::Off);
        let settled = instance.settle(&CounterKey([1, 2]), &settlement(NOW, [(1, 1)]));
        assert_eq!(settled.map(|snapshot| snapshot.holdings.len()), expected, "{shown}");
    }
}
