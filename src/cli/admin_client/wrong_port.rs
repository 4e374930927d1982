//! What to do when the address of a command has no admin port, or when its response is unusable.

use std::io::{self, ErrorKind};

use super::exchange::{ExchangeError, PART_TIMEOUT, RESPONSE_BYTES_MAX};

/// The fix for a port of another kind.
const NAME_IT: &str = "name the admin port with --addr (admin.listen, 6070 by default)";

/// What to do about a request without a complete response.
pub(super) fn advice(error: &ExchangeError) -> String {
    match error {
        ExchangeError::NoAddress(error) => {
            format!("the name has no address; check the host in --addr ({error})")
        }
        ExchangeError::NotConnected(error) => not_connected(error),
        ExchangeError::Broken { received, error } => match protocol(received) {
            Some(protocol) => protocol.to_owned(),
            None => broken(error, received.is_empty()),
        },
        ExchangeError::TooLarge => {
            let mib = RESPONSE_BYTES_MAX >> 20;
            format!("the response is over {mib} MiB; ask for less, for example with --limit")
        }
    }
}

/// What to do about bytes that are no response of HTTP/1.
pub(super) fn not_http(received: &[u8]) -> String {
    match protocol(received) {
        Some(protocol) => protocol.to_owned(),
        None if received.is_empty() => closed(),
        None => format!("the port does not answer in HTTP; {NAME_IT}"),
    }
}

/// What to do about a response without JSON, to a request of `path`.
pub(super) fn not_json(address: &str, path: &str, status: u16) -> String {
    let page = path.split('?').next().unwrap_or(path);
    format!(
        "{page} gets HTTP status {status} without JSON, so this is another port, or a weir of \
         another version; http://{address}/ lists the pages of an admin port; {NAME_IT}"
    )
}

/// The protocol of the port whose first bytes are `received`, and what to do; `None` for any other.
fn protocol(received: &[u8]) -> Option<&'static str> {
    if is_tls(received) {
        return Some(
            "the port uses TLS, and the admin port has none; name the admin port with --addr \
             (admin.listen, 6070 by default), or go around the proxy that adds TLS",
        );
    }
    is_http2(received).then_some(
        "the port uses HTTP/2, as the gRPC port does; name the admin port with --addr \
         (admin.listen, 6070 by default)",
    )
}

/// Whether the bytes start with a record of TLS: an alert or a handshake (RFC 8446, section 5.1).
fn is_tls(received: &[u8]) -> bool {
    matches!(received, [0x15 | 0x16, 0x03, 0..=4, ..])
}

/// Whether the bytes start with a frame of a whole connection, SETTINGS or GOAWAY (RFC 9113, sections
/// 6.5 and 6.8). A server sends one of them first.
fn is_http2(received: &[u8]) -> bool {
    matches!(received, [0, _, _, 4 | 7, _, 0, 0, 0, 0, ..])
}

fn not_connected(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::ConnectionRefused => format!(
            "the connection is refused; start `weir serve` there, or {NAME_IT}; in a container, \
             the port may listen on its loopback address only"
        ),
        ErrorKind::TimedOut | ErrorKind::WouldBlock => {
            let seconds = PART_TIMEOUT.as_secs();
            format!(
                "there is no connection within {seconds} s; check the address, and firewalls and \
                 network policies on the way"
            )
        }
        _ => format!("there is no connection ({error}); check the address in --addr"),
    }
}

fn broken(error: &io::Error, is_empty: bool) -> String {
    match error.kind() {
        ErrorKind::TimedOut | ErrorKind::WouldBlock => {
            let seconds = PART_TIMEOUT.as_secs();
            format!(
                "there is no complete response in time, although the port accepts connections; \
                 each part must come within {seconds} s; is the process stopped or overloaded, or \
                 is this another port? {NAME_IT}"
            )
        }
        _ if is_empty => format!("{} ({error})", closed()),
        _ => format!("the connection broke within the response ({error}); send the request again"),
    }
}

fn closed() -> String {
    format!(
        "the port closed the connection without a response, as ports with TLS may do; {NAME_IT}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broken_after(received: &[u8], kind: ErrorKind) -> String {
        advice(&ExchangeError::Broken { received: received.to_vec(), error: kind.into() })
    }

    /// Bytes that real servers send to a request of HTTP/1.0.
    const TLS_ALERT: &[u8] = &[0x15, 3, 3, 0, 2, 2, 0x46];
    const TLS_HANDSHAKE: &[u8] = &[0x16, 3, 1, 2, 0, 1, 0, 1];
    const SETTINGS: &[u8] = &[0, 0, 0x12, 4, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 100];
    const GOAWAY: &[u8] = &[0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];

    /// Each kind of port is named whether it closes the connection in order or resets it.
    #[test]
    fn other_protocols_are_named() {
        for (bytes, words) in [
            (TLS_ALERT, "the port uses TLS"),
            (TLS_HANDSHAKE, "the port uses TLS"),
            (SETTINGS, "the port uses HTTP/2"),
            (GOAWAY, "the port uses HTTP/2"),
            (&b""[..], "closed the connection without a response"),
        ] {
            for text in [not_http(bytes), broken_after(bytes, ErrorKind::ConnectionReset)] {
                assert!(text.contains(words), "{bytes:?}: {text}");
                assert!(text.contains("name the admin port"), "{bytes:?}: {text}");
            }
        }
        for bytes in [&b"-ERR unknown command\r\n"[..], b"\x15", b"\0\0\x12\x04", b"HTTP/1.1 200"] {
            assert_eq!(protocol(bytes), None, "{bytes:?}");
            assert!(not_http(bytes).contains("does not answer in HTTP"), "{bytes:?}");
        }
    }

    #[test]
    fn failed_connections_say_what_to_do() {
        let not_connected = |kind: ErrorKind| advice(&ExchangeError::NotConnected(kind.into()));
        for (text, words) in [
            (not_connected(ErrorKind::ConnectionRefused), "start `weir serve` there"),
            (not_connected(ErrorKind::TimedOut), "within 5 s; check the address, and firewalls"),
            (not_connected(ErrorKind::HostUnreachable), "check the address in --addr"),
            (advice(&ExchangeError::NoAddress(ErrorKind::NotFound.into())), "check the host"),
            (advice(&ExchangeError::TooLarge), "over 16 MiB; ask for less"),
            (broken_after(b"", ErrorKind::WouldBlock), "is the process stopped or overloaded"),
            (broken_after(b"HTTP/1.0 2", ErrorKind::ConnectionReset), "send the request again"),
        ] {
            assert!(text.contains(words), "{text}");
        }
    }

    #[test]
    fn another_listener_is_named_by_its_answer() {
        let text = not_json("127.0.0.1:8080", "/usage?domain=d", 404);
        let start = "/usage gets HTTP status 404 without JSON, so this is another port, or a weir";
        assert!(text.starts_with(start), "{text}");
        assert!(text.contains("http://127.0.0.1:8080/ lists the pages"), "{text}");
    }
}
