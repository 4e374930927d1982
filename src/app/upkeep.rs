//! Upkeep: a thread that has the layers do what is due, beside the requests.

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{MissedTickBehavior, interval};

use super::service::Service;
use crate::time::Clock;

/// Time between two looks at what is due: as short as the shortest `sync_interval`.
const PAUSE: Duration = Duration::from_millis(10);

/// A thread at work, until it is ended or dropped.
pub(super) struct Upkeep {
    alive: oneshot::Sender<()>,
    done: oneshot::Receiver<()>,
}

impl Upkeep {
    /// Starts the upkeep of the service's layers, if there are any.
    pub(super) fn start(service: Arc<Service>) -> io::Result<Option<Upkeep>> {
        if service.limiter.backend().modes().is_none() {
            return Ok(None);
        }
        let (alive, ended) = oneshot::channel::<()>();
        let (told, done) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        thread::Builder::new().name("weir-upkeep".into()).spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    _ = ended => {}
                    () = keep_up(&service) => {}
                }
                if let Some(modes) = service.limiter.backend().modes() {
                    modes.close(service.clock.now()).await;
                }
            });
            let _ = told.send(());
        })?;
        Ok(Some(Upkeep { alive, done }))
    }

    /// Brings to the store what the layers still hold.
    pub(super) async fn end(self) {
        drop(self.alive);
        let _ = self.done.await;
    }
}

async fn keep_up(service: &Service) {
    let Some(modes) = service.limiter.backend().modes() else { return };
    let mut pause = interval(PAUSE);
    pause.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        pause.tick().await;
        modes.run_due(service.clock.now()).await;
    }
}
