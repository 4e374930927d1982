//! The service behind Envoy: answers every request of HTTP/1.1 with two bytes.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;

/// The response to every request.
const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

/// Listens on a free port of loopback. Its threads end with the process.
pub(crate) fn start() -> io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    thread::spawn(move || {
        for stream in listener.incoming() {
            thread::spawn(move || serve(stream?));
        }
    });
    Ok(address)
}

/// Serves one connection until it closes. Requests must have no body.
fn serve(stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    while reader.read_line(&mut line)? > 0 {
        if line == "\r\n" {
            reader.get_mut().write_all(RESPONSE)?;
        }
        line.clear();
    }
    Ok(())
}
