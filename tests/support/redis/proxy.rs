//! A TCP proxy in front of a server that can stop forwarding or close all connections.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

/// Forwards connections to one address. On drop it closes all of them and accepts no more.
pub(crate) struct Proxy {
    address: SocketAddr,
    inner: Arc<Inner>,
}

struct Inner {
    target: SocketAddr,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    silent: bool,
    over: bool,
    streams: Vec<TcpStream>,
}

impl Proxy {
    /// Listens on a free port of loopback.
    pub(crate) fn to(target: SocketAddr) -> Proxy {
        let listener =
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback has free ports");
        let address = listener.local_addr().expect("bound");
        let inner = Inner { target, state: Mutex::default(), changed: Condvar::new() };
        let inner = Arc::new(inner);
        let accepting = Arc::clone(&inner);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if accepting.state.lock().expect("no thread panicked").over {
                    return;
                }
                Inner::connect(&accepting, &client);
            }
        });
        Proxy { address, inner }
    }

    /// The address of the proxy.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stops forwarding in both directions. Connections stay open and new ones are accepted, so
    /// both ends see a half-open connection.
    pub(crate) fn silence(&self) {
        self.inner.state.lock().expect("no thread panicked").silent = true;
    }

    /// Forwards again, starting with the bytes that were held back.
    pub(crate) fn heal(&self) {
        self.inner.state.lock().expect("no thread panicked").silent = false;
        self.inner.changed.notify_all();
    }

    /// Closes every open connection.
    pub(crate) fn cut(&self) {
        self.inner.cut();
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.inner.state.lock().expect("no thread panicked").over = true;
        self.inner.changed.notify_all();
        self.inner.cut();
        // A connection wakes the accepting thread.
        let _ = TcpStream::connect(self.address);
    }
}

impl Inner {
    fn connect(this: &Arc<Inner>, client: &TcpStream) {
        // When the server is gone, close the client's connection too.
        let Ok(server) = TcpStream::connect(this.target) else { return };
        let pairs = [(client, &server), (&server, client)];
        for (from, to) in pairs {
            let (Ok(from), Ok(to), Ok(kept)) = (from.try_clone(), to.try_clone(), from.try_clone())
            else {
                return;
            };
            let _ = from.set_nodelay(true);
            this.state.lock().expect("no thread panicked").streams.push(kept);
            let this = Arc::clone(this);
            thread::spawn(move || this.forward(from, to));
        }
    }

    fn forward(&self, mut from: TcpStream, mut to: TcpStream) {
        let mut bytes = [0; 1 << 14];
        while let Ok(count @ 1..) = from.read(&mut bytes) {
            let state = self.state.lock().expect("no thread panicked");
            let waits = |state: &mut State| state.silent && !state.over;
            let state = self.changed.wait_while(state, waits).expect("no thread panicked");
            drop(state);
            if to.write_all(&bytes[..count]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
    }

    fn cut(&self) {
        let mut state = self.state.lock().expect("no thread panicked");
        for stream in state.streams.drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}
