//! Shutdown tasks: the work between the last response and the exit, in two stages.
//!
//! 1. The flush writes the counts and credits of the consistency modes to the store.
//! 2. The export sends the last spans and metrics, which include the results of the flush.
//!
//! Both stages run whenever the server has ended, also when it failed.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{Instant, timeout_at};

/// Denominator of the share of `drain.timeout` that is reserved for the tasks: a tenth.
const TASKS_SHARE: u32 = 10;

/// The longest time that is reserved for the tasks.
const TASKS_MAX: Duration = Duration::from_secs(1);

/// One task.
type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The tasks that run after the last response. The tasks of one stage run at the same time.
pub(super) struct ShutdownTasks {
    flush: Vec<Task>,
    export: Vec<Task>,
    /// The time before the deadline in which only the export runs.
    export_time: Duration,
}

impl ShutdownTasks {
    /// No tasks. Half of the time that `drain_timeout` reserves for tasks belongs to the export.
    pub(super) fn new(drain_timeout: Duration) -> ShutdownTasks {
        let export_time = reserved(drain_timeout) / 2;
        ShutdownTasks { flush: Vec::new(), export: Vec::new(), export_time }
    }

    /// Adds a task to the first stage.
    pub(super) fn add_flush(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        self.flush.push(Box::pin(task));
    }

    /// Adds a task to the second stage.
    pub(super) fn add_export(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        self.export.push(Box::pin(task));
    }

    /// Waits until `server` ends, and then runs both stages. At `deadline` it aborts the tasks that
    /// still run. It does not abort the server, which bounds its own drain.
    ///
    /// # Errors
    /// The error of `server`, after the tasks.
    pub(super) async fn run_after(
        self,
        server: impl Future<Output = io::Result<()>>,
        deadline: Instant,
    ) -> io::Result<()> {
        let result = server.await;
        let ShutdownTasks { flush, export, export_time } = self;
        run_stage("flush", flush, deadline - export_time).await;
        run_stage("export", export, deadline).await;
        result
    }
}

/// Runs all tasks of one stage until they are done, at most until `deadline`.
async fn run_stage(stage: &'static str, tasks: Vec<Task>, deadline: Instant) {
    match timeout_at(deadline, join_all(tasks)).await {
        Ok(_) => tracing::debug!(stage, "shutdown tasks done"),
        Err(_) => {
            tracing::warn!(stage, "shutdown stage aborted: its time is up; raise drain.timeout");
        }
    }
}

/// The part of `drain.timeout` for calls in flight. The tasks get the rest.
pub(super) fn in_flight_timeout(timeout: Duration) -> Duration {
    timeout - reserved(timeout)
}

/// The part of `drain.timeout` that is reserved for the tasks.
fn reserved(timeout: Duration) -> Duration {
    (timeout / TASKS_SHARE).min(TASKS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::{pending, ready};
    use std::sync::{Arc, Mutex};
    use tokio::time::sleep;

    /// The names of finished tasks, in the order of their ends.
    #[derive(Clone, Default)]
    struct Finished(Arc<Mutex<Vec<&'static str>>>);

    impl Finished {
        /// A task that takes `millis`.
        fn task(&self, name: &'static str, millis: u64) -> impl Future<Output = ()> + use<> {
            let finished = self.clone();
            async move {
                sleep(Duration::from_millis(millis)).await;
                finished.0.lock().expect("no panic").push(name);
            }
        }

        fn names(&self) -> Vec<&'static str> {
            self.0.lock().expect("no panic").clone()
        }
    }

    const TIMEOUT: Duration = Duration::from_secs(10);

    #[tokio::test(start_paused = true)]
    async fn the_export_waits_for_the_flush() {
        let (finished, mut tasks) = (Finished::default(), ShutdownTasks::new(TIMEOUT));
        tasks.add_export(finished.task("spans", 20));
        tasks.add_export(finished.task("metrics", 10));
        tasks.add_flush(finished.task("counts", 5_000));
        let result = tasks.run_after(ready(Ok(())), Instant::now() + TIMEOUT).await;
        assert!(result.is_ok());
        assert_eq!(finished.names(), ["counts", "metrics", "spans"]);
    }

    #[tokio::test(start_paused = true)]
    async fn an_endless_flush_leaves_time_to_export() {
        let (finished, mut tasks) = (Finished::default(), ShutdownTasks::new(TIMEOUT));
        tasks.add_flush(pending());
        tasks.add_flush(finished.task("counts", 9_000));
        tasks.add_export(finished.task("metrics", 400));
        tasks.add_export(pending());
        let start = Instant::now();
        let server = async {
            sleep(Duration::from_millis(200)).await;
            Ok(())
        };
        assert!(tasks.run_after(server, start + TIMEOUT).await.is_ok());
        assert_eq!(finished.names(), ["counts", "metrics"]);
        assert!(start.elapsed() < TIMEOUT + Duration::from_millis(10), "{:?}", start.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn tasks_run_after_a_failed_server() {
        let (finished, mut tasks) = (Finished::default(), ShutdownTasks::new(TIMEOUT));
        tasks.add_flush(finished.task("counts", 5));
        tasks.add_export(finished.task("metrics", 5));
        let server = ready(Err(io::Error::other("a worker panicked")));
        let result = tasks.run_after(server, Instant::now() + TIMEOUT).await;
        assert_eq!(result.expect_err("the server's error").to_string(), "a worker panicked");
        assert_eq!(finished.names(), ["counts", "metrics"]);
    }

    #[test]
    fn a_tenth_is_reserved_but_at_most_a_second() {
        for (timeout, calls) in [(0, 0), (1_000, 900), (10_000, 9_000), (30_000, 29_000)] {
            let [timeout, calls] = [timeout, calls].map(Duration::from_millis);
            assert_eq!(in_flight_timeout(timeout), calls);
        }
    }
}
