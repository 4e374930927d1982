//! The time in which the headers of a call must be complete.

use std::future::Future;
use std::pin::Pin;
use std::task::Context;
use std::time::Duration;

use tokio::time::{Sleep, sleep};

/// Headers of several frames must be complete within `grpc.call_timeout`. A client could otherwise hold
/// their memory without a call, to which the timeout applies.
#[derive(Debug)]
pub(super) struct HeaderTimeout {
    limit: Duration,
    /// The stream with incomplete headers, and the time by which they must end.
    by: Option<(u32, Pin<Box<Sleep>>)>,
}

impl HeaderTimeout {
    /// A timeout of `limit` for each call.
    pub(super) fn new(limit: Duration) -> HeaderTimeout {
        HeaderTimeout { limit, by: None }
    }

    /// Whether the headers of a call are late. `incomplete` is the stream whose headers are incomplete
    /// now. Wakes `context` when they become late.
    pub(super) fn is_over(&mut self, incomplete: Option<u32>, context: &mut Context<'_>) -> bool {
        let Some(stream) = incomplete else {
            self.by = None;
            return false;
        };
        if self.by.as_ref().is_none_or(|(of, _)| *of != stream) {
            self.by = Some((stream, Box::pin(sleep(self.limit))));
        }
        self.by.as_mut().is_some_and(|(_, by)| by.as_mut().poll(context).is_ready())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::future::poll_fn;
    use std::task::Poll;

    use tokio::time::Instant;

    #[tokio::test(start_paused = true)]
    async fn the_headers_of_each_call_have_the_whole_time() {
        let second = Duration::from_secs(1);
        let (mut timeout, began) = (HeaderTimeout::new(second), Instant::now());
        let mut is_over =
            async |stream| poll_fn(|context| Poll::Ready(timeout.is_over(stream, context))).await;
        assert!(!is_over(None).await);
        assert!(!is_over(Some(1)).await);
        sleep(second / 2).await;
        assert!(!is_over(Some(1)).await);
        assert!(!is_over(Some(3)).await, "another call");
        sleep(second / 2).await;
        assert!(!is_over(Some(3)).await);
        assert!(!is_over(None).await);
        assert!(!is_over(Some(3)).await);
        let late = poll_fn(|context| match timeout.is_over(Some(3), context) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        });
        late.await;
        assert_eq!(began.elapsed(), 2 * second);
    }
}
