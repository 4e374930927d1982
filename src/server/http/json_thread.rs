//! The thread that decodes and decides the requests of `/json`.
//!
//! The thread that accepts connections also responds to probes, and a flood of large bodies must not
//! delay it: a body takes milliseconds to decode, and a regular expression of a rule may take longer.
//! One thread decodes one body at a time. The number of decoded bodies is bounded, because a decision
//! may wait for the store.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use tokio::runtime::Handle;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;

use crate::server::lifecycle::{Lifecycle, StopOnExit};
use crate::server::{run_to_end, single_threaded_runtime};

/// Requests that are decoded and decided at the same time. Further requests wait.
const CONCURRENT_MAX: usize = 32;

/// A handle to the thread, which ends when the last handle is dropped.
#[derive(Clone, Debug)]
pub(in crate::server) struct JsonThread {
    runtime: Handle,
    permits: Arc<Semaphore>,
    _running: mpsc::Sender<Infallible>,
}

impl JsonThread {
    /// Starts the thread.
    pub(in crate::server) fn start(
        lifecycle: Lifecycle,
    ) -> io::Result<(JsonThread, JoinHandle<io::Result<()>>)> {
        let runtime = single_threaded_runtime()?;
        let handle = runtime.handle().clone();
        let (running, mut stopped) = mpsc::channel::<Infallible>(1);
        let thread = thread::Builder::new().name("weir-json".into()).spawn(move || {
            let _last = StopOnExit(lifecycle);
            run_to_end(runtime, async { stopped.recv().await });
            Ok(())
        })?;
        let permits = Arc::new(Semaphore::new(CONCURRENT_MAX));
        Ok((JsonThread { runtime: handle, permits, _running: running }, thread))
    }

    /// The output of `work`, which runs on the thread once it is one of [`CONCURRENT_MAX`]; `None` if
    /// it panicked. Dropping the future also drops `work`.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        let permit = Arc::clone(&self.permits).acquire_owned().await;
        let mut task = JoinSet::new();
        let work = async move {
            // Freed on the thread, after `work`.
            let _permit = permit;
            work.await
        };
        task.spawn_on(work, &self.runtime);
        task.join_next().await.and_then(Result::ok)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::pending;
    use std::time::Duration;

    use futures_util::FutureExt;
    use tokio::sync::{oneshot, watch};

    use crate::server::Health;

    fn start() -> (JsonThread, JoinHandle<io::Result<()>>) {
        let (_, health) = watch::channel(Health::default());
        JsonThread::start(Lifecycle::new(health, Duration::ZERO)).unwrap()
    }

    async fn panicking() {
        panic!("a test asked for it");
    }

    #[tokio::test]
    async fn a_panic_ends_its_own_work_only() {
        let (thread, joined) = start();
        assert_eq!(thread.run(panicking()).await, None);
        assert_eq!(thread.run(async { 7 }).await, Some(7));
        drop(thread);
        joined.join().unwrap().unwrap();
    }

    #[tokio::test]
    async fn dropped_work_ends() {
        let (thread, _joined) = start();
        let (held, released) = oneshot::channel::<()>();
        let mut run = Box::pin(thread.run(async move {
            let _held = held;
            pending::<()>().await;
        }));
        assert!((&mut run).now_or_never().is_none());
        drop(run);
        assert!(released.await.is_err());
    }

    #[tokio::test]
    async fn the_number_of_concurrent_works_is_bounded() {
        let (thread, _joined) = start();
        let (started, mut starts) = mpsc::unbounded_channel();
        let work = || {
            let started = started.clone();
            Box::pin(thread.run(async move {
                let _ = started.send(());
                pending::<()>().await;
            }))
        };
        let mut runs: Vec<_> = (0..=CONCURRENT_MAX).map(|_| work()).collect();
        for run in &mut runs {
            assert!(run.now_or_never().is_none());
        }
        // The thread starts its tasks in order.
        thread.runtime.spawn(async {}).await.unwrap();
        for _ in 0..CONCURRENT_MAX {
            starts.try_recv().unwrap();
        }
        assert!(starts.try_recv().is_err(), "the last one waits");
        drop(runs.remove(0));
        let last = runs.pop().unwrap();
        tokio::select! {
            _ = last => panic!("it is pending"),
            start = starts.recv() => start.unwrap(),
        }
    }
}
