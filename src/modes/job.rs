//! The background job of the modes: exchanges counts, and returns idle credits, each when it is due.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use futures_util::future::{Either, pending, select};
use tokio::time::sleep;

use super::Modes;
use crate::store::SharedStore;
use crate::time::{Clock, Micros};

mod signal;

pub(super) use signal::JobSignal;

/// Period of the background job of the modes: the shortest permitted `sync_interval`.
pub(crate) const JOB_PERIOD: Duration = Duration::from_millis(10);

/// The longest pause of the job while there are credit pools. Each run searches a part of them for idle ones.
const RETURN_PAUSE_MAX: Micros = Micros::from_millis(50);

impl<S: SharedStore> Modes<S> {
    /// Runs the periodic work when some is due, until `stop` completes: exchanges counts, and returns idle credits.
    /// Then it [closes](Modes::close) the modes. Runs are a multiple of `period` after the call, so that work which
    /// is due at nearly the same time shares calls to the store.
    ///
    /// Work that is under way completes first. Its counts have left their queue, so closing would
    /// not send them.
    pub async fn run(&self, clock: &impl Clock, period: Duration, stop: impl Future<Output = ()>) {
        let mut stop = pin!(stop);
        let start = clock.now();
        let period = Micros(u64::try_from(period.as_micros()).unwrap_or(u64::MAX).max(1));
        // The next run, and the period up to which shards of credit pools were searched.
        let (mut next, mut searched) = (None, 0);
        loop {
            self.signal.look();
            // A run is never put off: what is due may be in no queue any more.
            next = next.into_iter().chain(self.next_run(clock.now(), start, period)).min();
            if let Some(at) = next {
                self.signal.run_at(at.saturating_sub(period));
            }
            let due = pin!(sleep_until(next, clock.now()));
            let woken = pin!(self.signal.woken());
            let due_or_woken = pin!(select(due, woken));
            let ended = select(due_or_woken, stop.as_mut()).await;
            if let Either::Right(_) = ended {
                break;
            }
            let now = clock.now();
            if next.is_none_or(|next| now < next) {
                continue; // woken: there is earlier work
            }
            next = None;
            let periods = now.saturating_sub(start).0 / period.0;
            self.leased.run_due(
                now,
                usize::try_from(periods.saturating_sub(searched)).unwrap_or(usize::MAX),
            );
            searched = periods;
            self.synced.run_due(now).await;
        }
        self.close(clock.now()).await;
    }

    /// The instant of the next run, or `None` without credit pools and replicas.
    fn next_run(&self, now: Micros, start: Micros, period: Micros) -> Option<Micros> {
        let returns = (self.leased.pools() > 0).then(|| now.saturating_add(RETURN_PAUSE_MAX));
        let due = returns.into_iter().chain(self.synced.next_due()).min()?.max(now);
        let periods = due.saturating_sub(start).0 / period.0 + 1;
        Some(start.saturating_add(Micros(periods.saturating_mul(period.0))))
    }
}

/// Ends at `at`, or never. It is `now`.
async fn sleep_until(at: Option<Micros>, now: Micros) {
    match at {
        Some(at) => sleep(Duration::from_micros(at.saturating_sub(now).0)).await,
        None => pending().await,
    }
}

#[cfg(test)]
mod tests;
