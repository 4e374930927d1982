//! The service behind Envoy: responds `200 upstream` and records the requests.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// A listening server. Its threads end with the test process.
pub(crate) struct Upstream {
    pub(crate) address: SocketAddr,
    seen: Arc<Mutex<Vec<String>>>,
}

/// The body of each response.
pub(crate) const BODY: &str = "upstream\n";

impl Upstream {
    /// Listens on a free port.
    pub(crate) fn start() -> Upstream {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port on loopback");
        let address = listener.local_addr().expect("a bound address");
        let seen = Arc::new(Mutex::new(Vec::new()));
        let upstream = Upstream { address, seen: Arc::clone(&seen) };
        thread::spawn(move || {
            for stream in listener.incoming() {
                let seen = Arc::clone(&seen);
                thread::spawn(move || serve(stream.ok()?, &seen));
            }
        });
        upstream
    }

    /// The head of every request so far, in lower case.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.seen.lock().expect("no server thread panics").clone()
    }
}

/// Serves one connection until it closes. Requests must have no body.
fn serve(stream: TcpStream, seen: &Mutex<Vec<String>>) -> Option<()> {
    let mut reader = BufReader::new(stream);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head).ok()? == 0 {
                return None;
            }
        }
        seen.lock().ok()?.push(head.to_ascii_lowercase());
        let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{BODY}", BODY.len());
        reader.get_mut().write_all(answer.as_bytes()).ok()?;
    }
}
