//! Binds the listening sockets before anything is served, so a port in use is an error at startup.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use socket2::{Domain, Protocol, Socket, Type};

/// Connections that may wait in the kernel's queue while the acceptor is busy.
const BACKLOG: i32 = 1024;

/// Binds a listening, non-blocking socket. The error names the address.
///
/// `[::]` accepts IPv4 as well, whatever the system's default. On a system without IPv6 it becomes
/// `0.0.0.0`.
pub(in crate::server) fn bind(listen: SocketAddr) -> io::Result<TcpListener> {
    bind_or_fall_back(listen).map_err(|error| {
        io::Error::new(error.kind(), format!("cannot listen on {listen}: {error}"))
    })
}

fn bind_or_fall_back(address: SocketAddr) -> io::Result<TcpListener> {
    match bind_one(address) {
        Err(error) if has_no_ipv6(&error) && is_any_ipv6(address) => {
            bind_one((Ipv4Addr::UNSPECIFIED, address.port()).into())
        }
        result => result,
    }
}

fn is_any_ipv6(address: SocketAddr) -> bool {
    address.is_ipv6() && address.ip().is_unspecified()
}

/// Whether an error means that the system has no IPv6. A kernel without IPv6 cannot create the
/// socket; a kernel with IPv6 disabled has no address to bind.
fn has_no_ipv6(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::Unsupported | io::ErrorKind::AddrNotAvailable)
        || error.raw_os_error() == Some(EAFNOSUPPORT)
}

/// "Address family not supported by protocol" on Linux; the standard library has no kind for it.
const EAFNOSUPPORT: i32 = 97;

fn bind_one(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if is_any_ipv6(address) {
        socket.set_only_v6(false)?;
    }
    // A restarted process can bind the port while connections of the old one are in TIME_WAIT.
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpStream;

    #[test]
    fn the_ipv6_wildcard_accepts_ipv4_too() {
        let listener = bind("[::]:0".parse().unwrap()).unwrap();
        let port = listener.local_addr().unwrap().port();
        assert_ne!(port, 0);
        TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    }

    #[test]
    fn the_error_names_the_address() {
        let taken = bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let listen = taken.local_addr().unwrap();
        let error = bind(listen).unwrap_err().to_string();
        assert!(error.starts_with(&format!("cannot listen on {listen}: ")), "{error}");
    }

    #[test]
    fn only_missing_ipv6_falls_back_to_ipv4() {
        let error = |number| io::Error::from_raw_os_error(number);
        let (in_use, not_available) = (98, 99);
        assert!(has_no_ipv6(&error(EAFNOSUPPORT)) && has_no_ipv6(&error(not_available)));
        assert!(!has_no_ipv6(&error(in_use)));
        assert!(is_any_ipv6("[::]:1".parse().unwrap()));
        assert!(!is_any_ipv6("[::1]:1".parse().unwrap()));
        assert!(!is_any_ipv6("0.0.0.0:1".parse().unwrap()));
    }
}
