//! A server that relays commands to a Redis, and can reply with bytes that are meant to harm the
//! client.

use std::io::{self, BufReader, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use super::resp::{Client, Reply, read_command};
use crate::support::wait::TIMEOUT;

/// Bytes that are meant to harm a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Payload {
    /// 100 000 arrays inside each other.
    NestedArrays,
    /// A string that is announced with 2 GB, sent as long as the client reads.
    LongString,
    /// A line without an end, sent as long as the client reads.
    LongLine,
    /// An array that is announced with 2^31 - 1 elements, sent as long as the client reads.
    LongArray,
    /// Replies to no command, sent as long as the client reads.
    Unasked,
    /// The reply of a server of another protocol.
    OtherProtocol,
}

impl Payload {
    pub(crate) const ALL: [Payload; 6] = [
        Payload::NestedArrays,
        Payload::LongString,
        Payload::LongLine,
        Payload::LongArray,
        Payload::Unasked,
        Payload::OtherProtocol,
    ];

    /// Sends the bytes until the client closes the connection.
    fn send(self, stream: &mut TcpStream) -> io::Result<()> {
        let (head, rest): (Vec<u8>, &[u8]) = match self {
            Payload::NestedArrays => (b"*1\r\n".repeat(100_000), b""),
            Payload::LongString => (b"$2147483647\r\n".to_vec(), b"a"),
            Payload::LongLine => (b"+".to_vec(), b"a"),
            Payload::LongArray => (b"*2147483647\r\n".to_vec(), b":1\r\n"),
            Payload::Unasked => (Vec::new(), b"+OK\r\n"),
            Payload::OtherProtocol => (b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(), b""),
        };
        stream.write_all(&head)?;
        let rest = rest.repeat(10_000);
        while !rest.is_empty() {
            stream.write_all(&rest)?;
        }
        // The rest of the client's commands, up to the end of the connection.
        io::copy(stream, &mut io::sink()).map(drop)
    }
}

/// A running server. On drop it closes its connections and accepts no more.
pub(crate) struct Hostile {
    address: SocketAddr,
    inner: Arc<Inner>,
}

struct Inner {
    target: SocketAddr,
    attack: Mutex<Option<(Option<&'static str>, Payload)>>,
    /// Attacked connections that have ended.
    ended: AtomicUsize,
    over: AtomicBool,
    streams: Mutex<Vec<TcpStream>>,
}

impl Hostile {
    /// Listens on a free port of loopback, and relays to the Redis at `target`.
    pub(crate) fn to(target: SocketAddr) -> Hostile {
        let listener =
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback has free ports");
        let address = listener.local_addr().expect("bound");
        let inner = Arc::new(Inner {
            target,
            attack: Mutex::default(),
            ended: AtomicUsize::new(0),
            over: AtomicBool::new(false),
            streams: Mutex::default(),
        });
        let accepting = Arc::clone(&inner);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if accepting.over.load(Ordering::Relaxed) {
                    return;
                }
                let serving = Arc::clone(&accepting);
                thread::spawn(move || serving.serve(stream));
            }
        });
        Hostile { address, inner }
    }

    /// The address of this server.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Replies with `payload` to commands of this name from now on, or to all commands.
    pub(crate) fn attack(&self, command: Option<&'static str>, payload: Payload) {
        *self.inner.attack.lock().expect("no thread panicked") = Some((command, payload));
    }

    /// Relays every command again.
    pub(crate) fn heal(&self) {
        *self.inner.attack.lock().expect("no thread panicked") = None;
    }

    /// Attacked connections that the client has closed.
    pub(crate) fn ended(&self) -> usize {
        self.inner.ended.load(Ordering::Relaxed)
    }
}

impl Drop for Hostile {
    fn drop(&mut self) {
        self.inner.over.store(true, Ordering::Relaxed);
        for stream in self.inner.streams.lock().expect("no thread panicked").drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
        // A connection wakes the accepting thread.
        let _ = TcpStream::connect(self.address);
    }
}

impl Inner {
    /// Serves one connection until it ends.
    fn serve(&self, mut stream: TcpStream) {
        let (Ok(kept), Ok(commands)) = (stream.try_clone(), stream.try_clone()) else { return };
        let _ = stream.set_nodelay(true);
        self.streams.lock().expect("no thread panicked").push(kept);
        let Ok(mut redis) = Client::tcp(self.target, TIMEOUT) else { return };
        let mut commands = BufReader::new(commands);
        while let Some(words) = read_command(&mut commands) {
            if let Some(payload) = self.payload(&words) {
                // An error is the end of the connection.
                let _ = payload.send(&mut stream);
                self.ended.fetch_add(1, Ordering::Relaxed);
                return;
            }
            let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
            redis.queue(&words);
            let Ok(reply) = redis.send().and_then(|()| redis.read()) else { return };
            let mut bytes = Vec::new();
            write_reply(&reply, &mut bytes);
            if stream.write_all(&bytes).is_err() {
                return;
            }
        }
    }

    /// The bytes for this command, if it is attacked.
    fn payload(&self, words: &[Vec<u8>]) -> Option<Payload> {
        let (command, payload) = (*self.attack.lock().expect("no thread panicked"))?;
        let is_attacked = command.is_none_or(|name| words[0] == name.as_bytes());
        is_attacked.then_some(payload)
    }
}

fn write_reply(reply: &Reply, bytes: &mut Vec<u8>) {
    match reply {
        Reply::Simple(text) => bytes.extend(format!("+{text}\r\n").bytes()),
        Reply::Error(text) => bytes.extend(format!("-{text}\r\n").bytes()),
        Reply::Integer(number) => bytes.extend(format!(":{number}\r\n").bytes()),
        Reply::Nil => bytes.extend(b"$-1\r\n"),
        Reply::Bulk(text) => {
            bytes.extend(format!("${}\r\n", text.len()).bytes());
            bytes.extend(text);
            bytes.extend(b"\r\n");
        }
        Reply::List(items) => {
            bytes.extend(format!("*{}\r\n", items.len()).bytes());
            items.iter().for_each(|item| write_reply(item, bytes));
        }
    }
}
