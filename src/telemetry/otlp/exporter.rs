//! An exporter: a thread that sends telemetry to a collector.

use std::future::Future;
use std::thread;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;

use super::{CollectorClient, Destination, OtlpError, Signal};

/// Longest time for sending the remaining telemetry when the process ends.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

/// The running thread. It stops when this value is dropped.
#[derive(Debug)]
pub struct Exporter {
    stop: watch::Sender<bool>,
}

impl Exporter {
    /// Starts `work` with a client that sends to `to`. After the stop signal, `work` has
    /// [`FLUSH_TIMEOUT`] to end.
    pub(in crate::telemetry) fn start<F: Future<Output = ()>>(
        to: &Destination,
        signal: Signal,
        work: impl FnOnce(CollectorClient, watch::Receiver<bool>) -> F + Send + 'static,
    ) -> Result<Exporter, OtlpError> {
        let cannot = |error| signal.error(error);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(cannot)?;
        let client = {
            let _entered = runtime.enter();
            CollectorClient::new(to, signal)?
        };
        let (stop, stopped) = watch::channel(false);
        let run = move || {
            runtime.block_on(async {
                tokio::select! {
                    () = work(client, stopped.clone()) => {}
                    () = flush_deadline(stopped) => {}
                }
            });
        };
        thread::Builder::new().name("weir-otlp".into()).spawn(run).map_err(cannot)?;
        Ok(Exporter { stop })
    }

    /// Sends the remaining telemetry, for at most two seconds, and stops.
    pub async fn end(self) {
        let _ = self.stop.send(true);
        // The thread drops its receiver when it is done.
        self.stop.closed().await;
    }
}

/// Completes [`FLUSH_TIMEOUT`] after the stop signal.
async fn flush_deadline(mut stopped: watch::Receiver<bool>) {
    let _ = stopped.wait_for(|stopped| *stopped).await;
    sleep(FLUSH_TIMEOUT).await;
}
