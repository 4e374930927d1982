//! Ports of loopback that belong to one server for its whole life.
//!
//! A server that is killed and started again needs its old port. A port of the system's ephemeral
//! range could be taken in between: by another server, or as the source port of any connection. So
//! ports come from below that range (32768 on Linux). As long as a port is in use, a UDP socket
//! with the same number marks it as taken for all test processes.

use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::sync::atomic::{AtomicU16, Ordering};

/// First port.
const FIRST: u16 = 10_000;
/// Number of ports.
const COUNT: u16 = 20_000;

/// A port that no other test uses.
pub(crate) struct Port {
    number: u16,
    _lock: UdpSocket,
}

impl Port {
    /// Takes a free port. Processes start at different places, so they rarely try the same numbers.
    pub(crate) fn take() -> Port {
        static TRIED: AtomicU16 = AtomicU16::new(0);
        let start = std::process::id().wrapping_mul(101) % u32::from(COUNT);
        for _ in 0..COUNT {
            let tried = TRIED.fetch_add(1, Ordering::Relaxed);
            let number = FIRST + ((start + u32::from(tried)) % u32::from(COUNT)) as u16;
            let Ok(lock) = UdpSocket::bind((Ipv4Addr::LOCALHOST, number)) else { continue };
            // A server of the machine may listen there. A test connection in TIME_WAIT blocks
            // nothing, because the standard library sets SO_REUSEADDR and so does Redis.
            if TcpListener::bind((Ipv4Addr::LOCALHOST, number)).is_ok() {
                return Port { number, _lock: lock };
            }
        }
        panic!("no free port from {FIRST} to {}", FIRST + COUNT - 1);
    }

    /// The number of the port.
    pub(crate) fn number(&self) -> u16 {
        self.number
    }
}
