//! The signal that ends a run early. All threads of the generator share its instant.

use std::time::Instant;

use tokio::sync::watch;

/// Ends a run.
#[derive(Debug)]
pub struct Canceller(watch::Sender<Option<Instant>>);

impl Canceller {
    /// Ends the run now. The report follows when all calls are answered or timed out.
    pub fn cancel(self) {
        // All receivers are gone when the run is already over.
        let _ = self.0.send(Some(Instant::now()));
    }
}

/// The receiving side, for [`run`](crate::run).
#[derive(Clone, Debug)]
pub struct CancelSignal(watch::Receiver<Option<Instant>>);

impl CancelSignal {
    /// A signal and its sender. A run whose [`Canceller`] is dropped lasts until its planned end.
    pub fn new() -> (Canceller, CancelSignal) {
        let (sender, receiver) = watch::channel(None);
        (Canceller(sender), CancelSignal(receiver))
    }

    /// The instant of the cancel, if there was one.
    pub(crate) fn cancelled_at(&self) -> Option<Instant> {
        *self.0.borrow()
    }

    /// Waits for the cancel. Never returns if the [`Canceller`] was dropped unused.
    pub(crate) async fn cancelled(&mut self) {
        if self.0.wait_for(Option::is_some).await.is_err() {
            std::future::pending().await
        }
    }
}
