//! The throttle of TLS handshakes: the bound on the handshakes that a worker continues between two
//! rounds of its other connections.
//!
//! A handshake that continues signs or verifies, which takes up to a millisecond of CPU time. A worker
//! is one thread, so a thousand clients that send their ClientHello at once would otherwise delay
//! every call on it by a thousand signatures.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::ready;

use tokio::sync::Semaphore;
use tokio::task::yield_now;

/// Runs `handshake`, and takes one of `permits` for each poll: for each time that its socket wakes
/// it. The permit is free again after the worker's next round. A handshake that waits holds none.
pub(super) async fn throttled<F: Future>(handshake: F, permits: &Arc<Semaphore>) -> F::Output {
    let mut handshake = pin!(handshake);
    let mut permit = pin!(Arc::clone(permits).acquire_owned());
    poll_fn(|context| {
        let taken = ready!(permit.as_mut().poll(context));
        permit.set(Arc::clone(permits).acquire_owned());
        let polled = handshake.as_mut().poll(context);
        // The runtime wakes tasks that have yielded after those with new input.
        tokio::spawn(async move {
            yield_now().await;
            drop(taken);
        });
        polled
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::pending;
    use std::sync::Mutex;

    use futures_util::FutureExt;

    #[tokio::test]
    async fn a_waiting_handshake_holds_no_permit() {
        let permits = Arc::new(Semaphore::new(1));
        let mut waiting: Vec<_> =
            (0..10).map(|_| Box::pin(throttled(pending::<()>(), &permits))).collect();
        for handshake in &mut waiting {
            while permits.available_permits() == 0 {
                yield_now().await;
            }
            assert!(handshake.now_or_never().is_none());
            assert_eq!(permits.available_permits(), 0, "the poll took the permit");
        }
        assert_eq!(throttled(async { 7 }, &permits).await, 7);
    }

    #[tokio::test]
    async fn other_tasks_run_between_the_polls() {
        let permits = Arc::new(Semaphore::new(2));
        let polls = Arc::new(Mutex::new(Vec::new()));
        for number in 0..10 {
            let (polls, permits) = (Arc::clone(&polls), Arc::clone(&permits));
            let poll = async move { polls.lock().unwrap().push(number) };
            tokio::spawn(async move { throttled(poll, &permits).await });
        }
        let mut before = 0;
        while before < 10 {
            yield_now().await;
            let now = polls.lock().unwrap().len();
            assert!(now - before <= 2, "{before} to {now}");
            before = now;
        }
        let order: Vec<i32> = (0..10).collect();
        assert_eq!(*polls.lock().unwrap(), order, "in the order of their arrival");
    }
}
