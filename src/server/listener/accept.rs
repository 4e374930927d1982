//! This module runs the accept loop, which continues after every error.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};

/// The pause after the first failure to accept. It doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Passes every connection on `listener` to `take`, for ever. The caller drops the future to stop.
pub(in crate::server) async fn accept(
    listener: TcpListener,
    mut take: impl FnMut(TcpStream, IpAddr),
) {
    let mut pause = FIRST_PAUSE;
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                pause = FIRST_PAUSE;
                // Responses are small and must not wait for more data. Fails only on a closed connection.
                let _ = stream.set_nodelay(true);
                take(stream, peer.ip());
            }
            Err(error) if concerns_one_connection(&error) => {}
            // Out of file descriptors or memory. An immediate retry would spin, and giving up would
            // be an outage. Connections that close during the pause make room.
            Err(error) => {
                tracing::warn!(%error, ?pause, "accept failed; retrying");
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
    }
}

/// Whether the client closed before it was accepted: an error of one connection only.
fn concerns_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::*;
    matches!(error.kind(), ConnectionAborted | ConnectionReset | ConnectionRefused | Interrupted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_errors_of_the_machine_pause_accepting() {
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
