//! The accept loop. It continues after every error.

use std::io;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};

use crate::client_address::ClientAddress;

/// The pause after the first failed accept. It doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Passes every connection on `listener` to `take`. Never returns: drop the future to stop it.
pub(in crate::server) async fn accept(
    listener: TcpListener,
    mut take: impl FnMut(TcpStream, ClientAddress),
) {
    let mut pause = FIRST_PAUSE;
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                pause = FIRST_PAUSE;
                // Responses are small and must not wait for more data. An error here means that the
                // connection is closed.
                let _ = stream.set_nodelay(true);
                take(stream, peer.ip().into());
            }
            Err(error) if concerns_one_connection(&error) => {}
            // The process is out of file descriptors or memory. An immediate retry would spin, and
            // giving up would be an outage. Connections that close during the pause free resources.
            Err(error) => {
                tracing::warn!(%error, ?pause, "accept failed; retrying");
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
    }
}

/// Whether an error concerns one connection only: its client closed before the accept.
fn concerns_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::*;
    matches!(error.kind(), ConnectionAborted | ConnectionReset | ConnectionRefused | Interrupted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_system_errors_pause_the_accept_loop() {
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
