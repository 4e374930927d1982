//! A request whose response is read in two steps, so that a client can disconnect in between.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use crate::support::http;
use crate::support::wait::TIMEOUT;

/// A response whose head has arrived. Dropping it closes the connection.
pub(crate) struct Stream {
    pub(crate) status: u16,
    stream: TcpStream,
    read: Vec<u8>,
}

impl Stream {
    /// Sends `GET path` and waits for the head of the response.
    pub(crate) fn open(to: SocketAddr, path: &str, headers: &[(&str, &str)]) -> Stream {
        let mut stream = send(to, path, headers);
        let mut read = Vec::new();
        loop {
            if let Some(begun) = http::parse(&read) {
                return Stream { status: begun.status, stream, read };
            }
            let mut more = [0; 4096];
            let count = stream.read(&mut more).unwrap_or_else(|e| panic!("{path} at {to}: {e}"));
            assert!(count > 0, "{path} at {to} ended within the head of its answer");
            read.extend_from_slice(&more[..count]);
        }
    }

    /// Waits for the rest of the response.
    pub(crate) fn finish(mut self) -> http::Response {
        self.stream.read_to_end(&mut self.read).expect("the answer ends in time");
        http::parse(&self.read).expect("a valid response head")
    }

    /// Closes the connection in the middle of the response.
    pub(crate) fn abandon(self) {
        drop(self);
    }
}

/// Sends `GET path` without waiting for a response. Dropping the stream closes the connection.
pub(crate) fn send(to: SocketAddr, path: &str, headers: &[(&str, &str)]) -> TcpStream {
    let mut request = format!("GET {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n");
    for (name, value) in headers {
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    request.push_str("\r\n");
    let mut stream = TcpStream::connect(to).unwrap_or_else(|e| panic!("connect to {to}: {e}"));
    stream.set_read_timeout(Some(TIMEOUT)).expect("a timeout that is not zero");
    stream.write_all(request.as_bytes()).expect("the request can be sent");
    stream
}
