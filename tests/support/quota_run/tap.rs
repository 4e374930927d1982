//! A TCP proxy between an Envoy and an RLQS server that reads the messages of both directions.
//!
//! It shows when which message was sent, and its address stays when the server behind it changes. The server
//! sees the address of the Envoy.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::Instant;

use envoy_types::pb::envoy::service::rate_limit_quota::v3 as rlqs;
use prost::Message;
use rlqs::rate_limit_quota_usage_reports::BucketQuotaUsage;
use rlqs::{RateLimitQuotaResponse, RateLimitQuotaUsageReports};
use socket2::{Domain, Socket, Type};

use super::assigned::Sent;
use super::frames::Frames;

/// A running proxy. On drop it closes its connections and accepts no more.
pub(crate) struct Tap {
    pub(crate) address: SocketAddr,
    state: Arc<Mutex<State>>,
}

/// A report on one bucket.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    pub(crate) at: Instant,
    pub(crate) usage: BucketQuotaUsage,
}

struct State {
    target: SocketAddr,
    over: bool,
    connections: Vec<TcpStream>,
    reports: Vec<Report>,
    actions: Vec<Sent>,
    /// What is wrong with messages.
    errors: Vec<String>,
}

/// The sender of the bytes.
#[derive(Clone, Copy)]
enum Sender {
    Envoy,
    Server,
}

impl Tap {
    /// Listens on a free port of loopback.
    pub(crate) fn to(target: SocketAddr) -> Tap {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let address = listener.local_addr().expect("bound");
        let state = Arc::new(Mutex::new(State {
            target,
            over: false,
            connections: Vec::new(),
            reports: Vec::new(),
            actions: Vec::new(),
            errors: Vec::new(),
        }));
        let accepting = Arc::clone(&state);
        thread::spawn(move || {
            for envoy in listener.incoming().map_while(Result::ok) {
                if lock(&accepting).over {
                    return;
                }
                // Without a server, Envoy loses its connection.
                let _ = connect(&accepting, &envoy);
            }
        });
        Tap { address, state }
    }

    /// Sends later connections to another server.
    pub(crate) fn retarget(&self, target: SocketAddr) {
        lock(&self.state).target = target;
    }

    /// The reports so far.
    pub(crate) fn reports(&self) -> Vec<Report> {
        lock(&self.state).reports.clone()
    }

    /// The actions so far.
    pub(crate) fn actions(&self) -> Vec<Sent> {
        lock(&self.state).actions.clone()
    }

    /// What was wrong with the messages so far.
    pub(crate) fn errors(&self) -> Vec<String> {
        lock(&self.state).errors.clone()
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        let mut state = lock(&self.state);
        state.over = true;
        for connection in state.connections.drain(..) {
            let _ = connection.shutdown(Shutdown::Both);
        }
        drop(state);
        // A connection wakes the accepting thread.
        let _ = TcpStream::connect(self.address);
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().expect("no thread panics inside")
}

fn connect(state: &Arc<Mutex<State>>, envoy: &TcpStream) -> std::io::Result<()> {
    let target = lock(state).target;
    let server = connect_from(envoy.peer_addr()?.ip(), target)?;
    for (from, to, sender) in [(envoy, &server, Sender::Envoy), (&server, envoy, Sender::Server)] {
        let (from, to) = (from.try_clone()?, to.try_clone()?);
        from.set_nodelay(true)?;
        lock(state).connections.push(from.try_clone()?);
        let state = Arc::clone(state);
        thread::spawn(move || forward(&state, from, to, sender));
    }
    Ok(())
}

/// A connection whose source is the address of the Envoy.
fn connect_from(source: IpAddr, target: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(target), Type::STREAM, None)?;
    socket.bind(&SocketAddr::new(source, 0).into())?;
    socket.connect(&target.into())?;
    Ok(socket.into())
}

fn forward(state: &Mutex<State>, mut from: TcpStream, mut to: TcpStream, sender: Sender) {
    let (mut frames, mut bytes) = (Frames::default(), [0; 1 << 14]);
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        lock(state).record(sender, frames.read(&bytes[..count]));
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}

impl State {
    fn record(&mut self, sender: Sender, messages: Result<Vec<Vec<u8>>, String>) {
        let at = Instant::now();
        let read = messages.and_then(|messages| {
            messages.iter().try_for_each(|message| self.message(sender, at, message))
        });
        self.errors.extend(read.err());
    }

    fn message(&mut self, sender: Sender, at: Instant, message: &[u8]) -> Result<(), String> {
        match sender {
            Sender::Envoy => {
                let message = RateLimitQuotaUsageReports::decode(message);
                let usages = message.map_err(|error| error.to_string())?.bucket_quota_usages;
                self.reports.extend(usages.into_iter().map(|usage| Report { at, usage }));
            }
            Sender::Server => {
                let message = RateLimitQuotaResponse::decode(message);
                for action in message.map_err(|error| error.to_string())?.bucket_action {
                    match Sent::read(at, action) {
                        Ok(sent) => self.actions.push(sent),
                        Err(what) => self.errors.push(what),
                    }
                }
            }
        }
        Ok(())
    }
}
