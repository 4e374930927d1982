//! A TCP proxy that delays all bytes in both directions, as a distant server does.
//!
//! Only bytes are delayed: connections open at once. The bytes of one direction stay in order.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

/// Forwards connections to one address. On drop it accepts no more. An open connection ends when
/// either side closes it.
pub(crate) struct DelayingProxy {
    address: SocketAddr,
    over: Arc<AtomicBool>,
}

impl DelayingProxy {
    /// Listens on a free port of loopback. Bytes take half of `round_trip` in each direction.
    pub(crate) fn to(target: SocketAddr, round_trip: Duration) -> DelayingProxy {
        let listener =
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback has free ports");
        let address = listener.local_addr().expect("bound");
        let over = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&over);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if ended.load(Ordering::Relaxed) {
                    return;
                }
                // When the server is gone, the client's connection is closed too.
                let _ = connect(client, target, round_trip / 2);
            }
        });
        DelayingProxy { address, over }
    }

    /// The address of the proxy.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for DelayingProxy {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        // A connection wakes the accepting thread.
        let _ = TcpStream::connect(self.address);
    }
}

fn connect(client: TcpStream, target: SocketAddr, delay: Duration) -> io::Result<()> {
    let server = TcpStream::connect(target)?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    forward(client.try_clone()?, server.try_clone()?, delay);
    forward(server, client, delay);
    Ok(())
}

/// Forwards bytes on two threads: one receives them, and the other sends them when they are due.
fn forward(mut from: TcpStream, mut to: TcpStream, delay: Duration) {
    let (sender, received) = channel::<(Instant, Vec<u8>)>();
    thread::spawn(move || {
        let mut bytes = [0; 1 << 14];
        while let Ok(count @ 1..) = from.read(&mut bytes) {
            let due = Instant::now() + delay;
            if sender.send((due, bytes[..count].to_vec())).is_err() {
                break;
            }
        }
    });
    thread::spawn(move || {
        for (due, bytes) in received {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            if to.write_all(&bytes).is_err() {
                break;
            }
        }
        // It also ends the other direction, which reads from this connection.
        let _ = to.shutdown(Shutdown::Both);
    });
}
