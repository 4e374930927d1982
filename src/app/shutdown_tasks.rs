//! Shutdown tasks: work between the last response and the exit, such as the last export of spans.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use futures_util::future::join_all;

/// Denominator of the share of `drain.timeout` that is reserved for the tasks: a tenth.
const TASKS_SHARE: u32 = 10;

/// The longest time that is reserved for the tasks.
const TASKS_MAX: Duration = Duration::from_secs(1);

/// One task.
type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The tasks that run after the last response.
#[derive(Default)]
pub(super) struct ShutdownTasks {
    tasks: Vec<(&'static str, Task)>,
}

impl ShutdownTasks {
    /// Adds a task; `what` names it in the log. All tasks run at the same time.
    pub(super) fn add(
        &mut self,
        what: &'static str,
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        self.tasks.push((what, Box::pin(task)));
    }

    /// Runs all tasks until they are done or `deadline` completes.
    pub(super) async fn run(self, deadline: impl Future<Output = ()>) {
        let tasks = self.tasks.into_iter().map(|(what, task)| async move {
            task.await;
            tracing::debug!(what, "shutdown task done");
        });
        tokio::select! {
            _ = join_all(tasks) => {}
            () = deadline => tracing::warn!("shutdown tasks aborted at drain.timeout"),
        }
    }
}

/// The part of `drain.timeout` for calls in flight. The tasks get the rest.
pub(super) fn in_flight_timeout(timeout: Duration) -> Duration {
    timeout - (timeout / TASKS_SHARE).min(TASKS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use tokio::time::sleep;

    #[tokio::test(start_paused = true)]
    async fn tasks_run_together_and_end_at_the_deadline() {
        let done = Arc::new(AtomicU32::new(0));
        let step = |seconds| {
            let done = Arc::clone(&done);
            async move {
                sleep(Duration::from_secs(seconds)).await;
                done.fetch_add(1, Ordering::Relaxed);
            }
        };
        let mut shutdown_tasks = ShutdownTasks::default();
        shutdown_tasks.add("quick", step(3));
        shutdown_tasks.add("slow", step(4));
        shutdown_tasks.run(sleep(Duration::from_secs(5))).await;
        assert_eq!(done.load(Ordering::Relaxed), 2);

        let mut shutdown_tasks = ShutdownTasks::default();
        shutdown_tasks.add("endless", std::future::pending());
        shutdown_tasks.add("quick", step(1));
        shutdown_tasks.run(sleep(Duration::from_secs(5))).await;
        assert_eq!(done.load(Ordering::Relaxed), 3);
    }

    #[test]
    fn a_tenth_is_reserved_but_at_most_a_second() {
        for (timeout, calls) in [(0, 0), (1_000, 900), (10_000, 9_000), (30_000, 29_000)] {
            let [timeout, calls] = [timeout, calls].map(Duration::from_millis);
            assert_eq!(in_flight_timeout(timeout), calls);
        }
    }
}
