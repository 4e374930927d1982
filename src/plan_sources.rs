//! The sources of plans that are not files: Redis, which instances follow, and an HTTP server, which
//! they ask. Files are read by the application.
//!
//! A source runs in a thread with its own runtime, and publishes what it reads to
//! [`Plans`](crate::plans::Plans). Whatever fails, the last plans stay. [`SourceStatus`] shows it to the
//! admin port, to metrics and in the log.
//!
//! - `redis` follows a stream of changes, looks customers up, and changes plans for operators.
//! - `http` sends conditional requests.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use tokio::sync::oneshot;

mod http;
mod redis;
mod status;

pub use self::http::{check_files, start_http};
pub use redis::{FollowMetrics, PlanEditError, RedisPlans, start_redis};
pub use status::SourceStatus;

/// The most problems that an error names.
const PROBLEMS_SHOWN: usize = 20;

/// Why a source cannot start.
#[derive(Debug, thiserror::Error)]
pub enum PlanSourceError {
    /// Settings or files that cannot be used.
    #[error("{0}")]
    Settings(String),
    /// An error of the operating system.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// The thread of a source. It stops when this value is dropped.
#[derive(Debug)]
pub struct RunningSource {
    status: Arc<SourceStatus>,
    _stop: oneshot::Sender<()>,
}

impl RunningSource {
    /// The health of the source.
    pub fn status(&self) -> &Arc<SourceStatus> {
        &self.status
    }

    /// Starts a thread that runs `source`, and waits until it has tried to read the plans once: for
    /// `wait` at most. So the first requests find plans if the source answers.
    fn start<F: Future<Output = ()> + 'static>(
        status: Arc<SourceStatus>,
        wait: Duration,
        source: impl FnOnce(FirstAttempt) -> F + Send + 'static,
    ) -> io::Result<RunningSource> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel();
        let (first, attempted) = FirstAttempt::channel();
        thread::Builder::new().name("weir-plans".into()).spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    () = source(first) => {}
                    _ = stopped => {}
                }
            });
            // Not waited for: a name that is being resolved must not delay the end of the process.
            runtime.shutdown_background();
        })?;
        // An error means that the time is over. The source goes on.
        let _ = attempted.recv_timeout(wait);
        Ok(RunningSource { status, _stop: stop })
    }
}

/// Reports that a source has tried to read the plans.
struct FirstAttempt(SyncSender<()>);

impl FirstAttempt {
    fn channel() -> (FirstAttempt, Receiver<()>) {
        let (sender, receiver) = sync_channel(1);
        (FirstAttempt(sender), receiver)
    }

    /// Reports it. Later reports have no effect.
    fn done(&self) {
        let _ = self.0.try_send(());
    }
}

/// A random number, with all values equally likely.
fn random() -> u64 {
    // A new `RandomState` is the standard library's only source of random numbers.
    RandomState::new().build_hasher().finish()
}

/// The pause before the next regular read: three quarters of `interval` to all of it, by `random`, so
/// that the instances of a fleet do not read at the same time.
fn regular_pause(interval: Duration, random: u64) -> Duration {
    let share = random as f64 / u64::MAX as f64;
    interval.mul_f64(0.75 + share / 4.0).min(interval)
}

/// The first problems as one text.
fn joined<T: ToString>(problems: &[T]) -> String {
    let shown: Vec<String> =
        problems.iter().take(PROBLEMS_SHOWN).map(ToString::to_string).collect();
    let more = if problems.len() > PROBLEMS_SHOWN { "; .." } else { "" };
    shown.join("; ") + more
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_regular_pause_is_at_most_the_interval() {
        let pause = |random| regular_pause(Duration::from_millis(400), random).as_millis();
        assert_eq!([0, u64::MAX / 2, u64::MAX].map(pause), [300, 350, 400]);
    }

    #[test]
    fn the_first_problems_are_one_text() {
        assert_eq!(joined(&["a", "b"]), "a; b");
        assert_eq!(joined::<String>(&[]), "");
        let many = joined(&["a"; 1_000]);
        assert_eq!(many.matches('a').count(), PROBLEMS_SHOWN);
        assert!(many.ends_with("; a; .."), "{many}");
    }

    #[test]
    fn only_the_first_attempt_is_reported() {
        let (first, attempted) = FirstAttempt::channel();
        first.done();
        first.done();
        assert!(attempted.try_recv().is_ok());
        drop(attempted);
        first.done();
    }
}
