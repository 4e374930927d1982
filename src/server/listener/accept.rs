//! The accept loop: takes connections until told to stop, and outlives every error on the way.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};

/// The first pause after the kernel could not hand out a connection; doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Gives every connection on `listener` to `take`, for ever. The caller drops it to stop.
pub(in crate::server) async fn accept(
    listener: TcpListener,
    mut take: impl FnMut(TcpStream, IpAddr),
) {
    let mut pause = FIRST_PAUSE;
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                pause = FIRST_PAUSE;
                // Answers are small and must not wait for more. Fails only on a dead connection.
                let _ = stream.set_nodelay(true);
                take(stream, peer.ip());
            }
            Err(error) if concerns_one_connection(&error) => {}
            // Out of file descriptors or memory: trying again at once would spin, giving up would
            // be an outage. Connections that close meanwhile make room.
            Err(error) => {
                tracing::warn!(%error, ?pause, "cannot accept connections; trying again");
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
    }
}

/// The client left before it was accepted; nothing is wrong on this side.
fn concerns_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::*;
    matches!(error.kind(), ConnectionAborted | ConnectionReset | ConnectionRefused | Interrupted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_error_of_the_machine_calls_for_a_pause() {
        for (number, one) in [
            (103, true),  // ECONNABORTED
            (104, true),  // ECONNRESET
            (23, false),  // ENFILE
            (24, false),  // EMFILE
            (12, false),  // ENOMEM
            (105, false), // ENOBUFS
        ] {
            let error = io::Error::from_raw_os_error(number);
            assert_eq!(concerns_one_connection(&error), one, "{error}");
        }
    }
}
