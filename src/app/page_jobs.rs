//! The jobs of the admin pages: the ticks of the history, and the events of the live page.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval};

use super::active_rules::ActiveRules;
use super::activity::series;
use super::admin_pages::{AdminPages, LastEvent, live_event};
use super::service::RequestRecorder;
use crate::server::LiveFeed;
use crate::telemetry::TICK;
use crate::time::{Clock, SystemClock};

/// The time between two events of the live page.
const EVENT_PERIOD: Duration = Duration::from_secs(2);

/// Runs the jobs. The events begin when `pages` arrive.
pub(super) async fn run(
    rules: Arc<ActiveRules>,
    recorder: Arc<RequestRecorder>,
    clock: SystemClock,
    pages: oneshot::Receiver<Arc<AdminPages>>,
) {
    let events = async {
        if let Ok(pages) = pages.await
            && let Some(feed) = pages.live.clone()
        {
            send_events(pages, feed).await;
        }
    };
    tokio::join!(end_ticks(rules, recorder, clock), events);
}

/// Ends a tick of the history every 10 s. Reading the counts of many rules takes a while, so this does not
/// run on the thread of the caller.
async fn end_ticks(rules: Arc<ActiveRules>, recorder: Arc<RequestRecorder>, clock: SystemClock) {
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

/// Renders one event every 2 s for all viewers of the live page, and nothing while there is none.
async fn send_events(pages: Arc<AdminPages>, feed: Arc<LiveFeed>) {
    loop {
        feed.viewed().await;
        let (mut last, mut ticks) = (LastEvent::default(), interval(EVENT_PERIOD));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            if !feed.has_viewers() {
                break;
            }
            let pages = pages.clone();
            let render = move || {
                let event = live_event(&pages, &mut last);
                (event, last)
            };
            // An error is a panic, which was logged. The next event has no rates then.
            let (event, after) = match spawn_blocking(render).await {
                Ok((event, after)) => (Some(event), after),
                Err(_) => (None, LastEvent::default()),
            };
            last = after;
            if let Some(event) = event {
                feed.publish(&event);
            }
        }
        feed.clear();
    }
}
