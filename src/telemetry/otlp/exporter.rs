//! The exporter: a thread that sends to a collector, until it is ended.

use std::future::Future;
use std::thread;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;

use super::{Destination, Link, OtlpError, Signal};

/// What is left to tell the collector when the process ends.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// A thread at work, until it is ended or dropped.
#[derive(Debug)]
pub struct Exporter {
    stop: watch::Sender<bool>,
}

impl Exporter {
    /// Starts `work` on a link to `to`. It ends by itself soon after it is told to stop, and is
    /// ended otherwise.
    pub(in crate::telemetry) fn start<F: Future<Output = ()>>(
        to: &Destination,
        signal: Signal,
        work: impl FnOnce(Link, watch::Receiver<bool>) -> F + Send + 'static,
    ) -> Result<Exporter, OtlpError> {
        let cannot = |error| signal.error(error);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(cannot)?;
        let link = {
            let _entered = runtime.enter();
            Link::new(to, signal)?
        };
        let (stop, stopped) = watch::channel(false);
        let run = move || {
            runtime.block_on(async {
                tokio::select! {
                    () = work(link, stopped.clone()) => {}
                    () = grace(stopped) => {}
                }
            });
        };
        thread::Builder::new().name("weir-otlp".into()).spawn(run).map_err(cannot)?;
        Ok(Exporter { stop })
    }

    /// Tells the collector what is left, for two seconds at most.
    pub async fn end(self) {
        let _ = self.stop.send(true);
        // The thread has dropped its end when it is done.
        self.stop.closed().await;
    }
}

/// How long work may go on.
async fn grace(mut stopped: watch::Receiver<bool>) {
    let _ = stopped.wait_for(|stopped| *stopped).await;
    sleep(LAST_WORDS).await;
}
