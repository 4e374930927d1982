//! Chooses among the addresses of a server. The clients of xDS and of plans share it.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::time::timeout;

/// The first connection that can be opened, of the addresses in their order. Each one but the last has
/// an equal part of `limit`, so that one that does not answer leaves time for the others.
pub(crate) async fn first_of<T, F: Future<Output = io::Result<T>>>(
    addresses: &[SocketAddr],
    limit: Duration,
    open: impl Fn(SocketAddr) -> F,
) -> io::Result<T> {
    let parts = u32::try_from(addresses.len()).unwrap_or(u32::MAX);
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for (index, address) in addresses.iter().enumerate() {
        let opened = if index + 1 == addresses.len() {
            open(*address).await
        } else {
            let late = |_| Err(io::Error::new(io::ErrorKind::TimedOut, "it does not answer"));
            timeout(limit / parts, open(*address)).await.unwrap_or_else(late)
        };
        match opened {
            Ok(connection) => return Ok(connection),
            Err(error) => last = error,
        }
    }
    Err(last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::pending;

    const SECOND: Duration = Duration::from_secs(1);

    /// The port of the first address that connects within 8 s, of addresses with the ports from 1 on.
    /// `answers` has what each of them does; `None` is no answer.
    async fn connected(answers: &[Option<io::Result<()>>]) -> Result<u16, io::ErrorKind> {
        let address = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
        let addresses: Vec<SocketAddr> = (1..).map(address).take(answers.len()).collect();
        let open = |address: SocketAddr| {
            let answer = &answers[usize::from(address.port()) - 1];
            async move {
                match answer {
                    None => pending().await,
                    Some(Ok(())) => Ok(address.port()),
                    Some(Err(error)) => Err(io::Error::from(error.kind())),
                }
            }
        };
        let opened = timeout(8 * SECOND, first_of(&addresses, 8 * SECOND, open));
        opened.await.expect("an end within the limit").map_err(|error| error.kind())
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_that_is_dead_leaves_time() {
        let ok = || Some(Ok(()));
        let refused = || Some(Err(io::Error::from(io::ErrorKind::ConnectionRefused)));
        assert_eq!(connected(&[ok(), ok()]).await, Ok(1), "the order counts");
        assert_eq!(connected(&[None, ok()]).await, Ok(2));
        assert_eq!(connected(&[None, None, refused(), ok()]).await, Ok(4));
        assert_eq!(
            connected(&[None, refused()]).await,
            Err(io::ErrorKind::ConnectionRefused),
            "the error of the last one"
        );
        assert_eq!(connected(&[]).await, Err(io::ErrorKind::NotFound));
    }
}
