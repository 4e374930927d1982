//! One HTTP/1.0 request and the bytes of its response, bounded in size and time.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use crate::time::{Clock, Micros, SystemClock};

/// Longest wait for a connection, and for each part of a response.
pub(super) const PART_TIMEOUT: Duration = Duration::from_secs(5);

/// Longest time of a whole response.
const RESPONSE_TIMEOUT: Micros = Micros::from_secs(60);

/// Largest response in bytes.
pub(super) const RESPONSE_BYTES_MAX: usize = 16 << 20;

/// Why there is no complete response.
#[derive(Debug)]
pub(super) enum ExchangeError {
    /// The name has no address.
    NoAddress(io::Error),
    /// No address accepts a connection. The error is that of the last one.
    NotConnected(io::Error),
    /// The connection failed after it was open. `received` has the bytes before that.
    Broken { received: Vec<u8>, error: io::Error },
    /// The response has more than [`RESPONSE_BYTES_MAX`] bytes.
    TooLarge,
}

/// Sends `request` to `address`, a `host:port`, and reads until the connection ends.
pub(super) fn exchange(address: &str, request: &[u8]) -> Result<Vec<u8>, ExchangeError> {
    let mut stream = connect(address)?;
    let mut received = Vec::new();
    match transfer(&mut stream, request, &mut received) {
        Ok(()) if received.len() > RESPONSE_BYTES_MAX => Err(ExchangeError::TooLarge),
        Ok(()) => Ok(received),
        Err(error) => Err(ExchangeError::Broken { received, error }),
    }
}

fn connect(address: &str) -> Result<TcpStream, ExchangeError> {
    let addresses = address.to_socket_addrs().map_err(ExchangeError::NoAddress)?;
    let mut last = None;
    for one in addresses {
        match TcpStream::connect_timeout(&one, PART_TIMEOUT) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = Some(error),
        }
    }
    Err(match last {
        Some(error) => ExchangeError::NotConnected(error),
        None => ExchangeError::NoAddress(ErrorKind::NotFound.into()),
    })
}

/// Reads into `received`, which has at least one byte too many if the response is too large.
fn transfer(stream: &mut TcpStream, request: &[u8], received: &mut Vec<u8>) -> io::Result<()> {
    stream.set_read_timeout(Some(PART_TIMEOUT))?;
    stream.set_write_timeout(Some(PART_TIMEOUT))?;
    // A port of another protocol may answer and close before it has read the request. Its answer is
    // then still to be read, and says more than the error.
    let written = stream.write_all(request);
    let clock = SystemClock::new();
    let end = clock.now().saturating_add(RESPONSE_TIMEOUT);
    let mut part = vec![0; 64 << 10];
    loop {
        match stream.read(&mut part) {
            Ok(0) => break,
            Ok(length) => received.extend_from_slice(&part[..length]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        if received.len() > RESPONSE_BYTES_MAX {
            break;
        }
        if clock.now() > end {
            return Err(ErrorKind::TimedOut.into());
        }
    }
    if received.is_empty() { written } else { Ok(()) }
}
