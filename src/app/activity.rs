//! The activity of the active rules: the job that ends its ticks.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval};

use super::active_rules::{ActiveRules, RuleSnapshot};
use super::service::RequestRecorder;
use crate::telemetry::{ActiveSeries, TICK};
use crate::time::{Clock, SystemClock};

/// The series of a rule set.
pub(super) fn series(active: &RuleSnapshot) -> ActiveSeries<'_> {
    ActiveSeries { version: active.version, metrics: &active.metrics }
}

/// Ends a tick of the history every 10 s. Reading the counts of many rules takes a while, so this does not
/// run on the thread of the caller.
pub(super) async fn end_ticks(
    rules: Arc<ActiveRules>,
    recorder: Arc<RequestRecorder>,
    clock: SystemClock,
) {
    let mut ticks = interval(Duration::from_micros(TICK.0));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // The first one completes at once.
    ticks.tick().await;
    loop {
        ticks.tick().await;
        let (rules, recorder) = (rules.clone(), recorder.clone());
        let end = move || {
            let active = rules.snapshot_owned();
            recorder.decisions.end_tick(clock.now(), series(&active), &recorder.requests);
        };
        // An error is a panic, which was logged.
        let _ = spawn_blocking(end).await;
    }
}
