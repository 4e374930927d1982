//! A stop: the instant at which a run ends before its time, told to all its threads.

use std::time::Instant;

use tokio::sync::watch;

/// Ends a run.
#[derive(Debug)]
pub struct Stopper(watch::Sender<Option<Instant>>);

impl Stopper {
    /// Ends it now. The report follows when all calls are answered, or late.
    pub fn stop(self) {
        // Nobody listens any more when the report is being written.
        let _ = self.0.send(Some(Instant::now()));
    }
}

/// What a run listens to.
#[derive(Clone, Debug)]
pub struct Stop(watch::Receiver<Option<Instant>>);

impl Stop {
    /// A stop, and what brings it about. A run whose [`Stopper`] is dropped lasts until its end.
    pub fn new() -> (Stopper, Stop) {
        let (sender, receiver) = watch::channel(None);
        (Stopper(sender), Stop(receiver))
    }

    /// When it came, if it did.
    pub(super) fn came(&self) -> Option<Instant> {
        *self.0.borrow()
    }

    /// Waits for it, perhaps for ever.
    pub(super) async fn come(&mut self) {
        if self.0.wait_for(Option::is_some).await.is_err() {
            // Nobody is left who could bring it about.
            std::future::pending().await
        }
    }
}
