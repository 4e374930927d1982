//! Shutdown tasks: what is returned between the last response and the exit, such as leases.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use futures_util::future::join_all;

/// The share of `drain.timeout` that calls in flight leave for giving back.
const SHARE: u32 = 10;

/// The most that they leave.
const LONGEST: Duration = Duration::from_secs(1);

/// Something that is given back.
type GiveBack = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Everything that wants to be told when the last answer has been given.
#[derive(Default)]
pub(super) struct ShutdownTasks {
    steps: Vec<(&'static str, GiveBack)>,
}

impl ShutdownTasks {
    /// Adds a step; `what` names it in the log. It starts after the last answer, beside the others.
    pub(super) fn add(
        &mut self,
        what: &'static str,
        give_back: impl Future<Output = ()> + Send + 'static,
    ) {
        self.steps.push((what, Box::pin(give_back)));
    }

    /// Does all of it until `over`, which ends what is not done by then.
    pub(super) async fn run(self, over: impl Future<Output = ()>) {
        let steps = self.steps.into_iter().map(|(what, give_back)| async move {
            give_back.await;
            tracing::debug!(what, "given back");
        });
        tokio::select! {
            _ = join_all(steps) => {}
            () = over => tracing::warn!("not everything could be given back in time"),
        }
    }
}

/// What calls in flight get of `drain.timeout`; the rest is for giving back.
pub(super) fn for_calls(timeout: Duration) -> Duration {
    timeout - (timeout / SHARE).min(LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use tokio::time::sleep;

    #[tokio::test(start_paused = true)]
    async fn every_step_is_done_beside_the_others_and_none_holds_up_the_end() {
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
    fn calls_leave_a_tenth_but_no_more_than_a_second() {
        for (timeout, calls) in [(0, 0), (1_000, 900), (10_000, 9_000), (30_000, 29_000)] {
            assert_eq!(for_calls(Duration::from_millis(timeout)), Duration::from_millis(calls));
        }
    }
}
