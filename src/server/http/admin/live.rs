//! `/live`: the events of the live page, as server-sent events. Each event is rendered once for all
//! viewers.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, CONNECTION, CONTENT_TYPE, RETRY_AFTER};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Router};
use futures_util::stream;
use tokio::sync::watch;

use super::{page, refusal};
use crate::server::http::io::LongResponse;
use crate::server::lifecycle::{Lifecycle, Phase};
use crate::server::metrics::ServerMetrics;

/// The most viewers at the same time.
const VIEWERS_MAX: usize = 16;

/// The start of a stream: the pause in milliseconds after which a viewer connects again.
const START: &str = "retry: 3000\n\n";

/// The events of the live page, and the number of viewers. Each viewer gets the newest event only.
#[derive(Debug)]
pub struct LiveFeed {
    /// The newest event; `None` if it is old.
    newest: watch::Sender<Option<Bytes>>,
    viewers: watch::Sender<usize>,
    metrics: Arc<ServerMetrics>,
}

/// An open stream. Dropping it ends its count.
#[derive(Debug)]
struct Viewer(Arc<LiveFeed>);

/// What a stream has still to send.
struct ViewerStream {
    /// Whether the start was sent.
    has_begun: bool,
    events: watch::Receiver<Option<Bytes>>,
    lifecycle: Lifecycle,
    _viewer: Viewer,
}

impl LiveFeed {
    /// A feed without viewers, which counts them in `metrics`.
    pub fn new(metrics: Arc<ServerMetrics>) -> LiveFeed {
        let (newest, viewers) = (watch::Sender::new(None), watch::Sender::new(0));
        LiveFeed { newest, viewers, metrics }
    }

    /// Returns when there is a viewer.
    pub async fn viewed(&self) {
        let mut viewers = self.viewers.subscribe();
        // `self` holds the sender, so the wait cannot fail.
        let _ = viewers.wait_for(|number| *number > 0).await;
    }

    /// Whether there is a viewer.
    pub fn has_viewers(&self) -> bool {
        *self.viewers.borrow() > 0
    }

    /// Sends an event to all viewers. `json` must be one line.
    pub fn publish(&self, json: &str) {
        self.newest.send_replace(Some(format!("event: tick\ndata: {json}\n\n").into()));
    }

    /// Deletes the newest event, so that no later viewer gets it.
    pub fn clear(&self) {
        self.newest.send_replace(None);
    }

    fn view(self: &Arc<LiveFeed>) -> Option<Viewer> {
        let is_free = self.viewers.send_if_modified(|number| {
            let is_free = *number < VIEWERS_MAX;
            *number += usize::from(is_free);
            is_free
        });
        is_free.then(|| {
            self.metrics.live_viewers.add();
            Viewer(Arc::clone(self))
        })
    }
}

impl Drop for Viewer {
    fn drop(&mut self) {
        self.0.viewers.send_modify(|number| *number -= 1);
        self.0.metrics.live_viewers.subtract();
    }
}

impl ViewerStream {
    /// The next bytes; `None` when the ports close.
    async fn next(mut self) -> Option<(Result<Bytes, Infallible>, ViewerStream)> {
        if !self.has_begun {
            self.has_begun = true;
            return Some((Ok(Bytes::from_static(START.as_bytes())), self));
        }
        let lifecycle = self.lifecycle.clone();
        let newest = async {
            loop {
                self.events.changed().await.ok()?;
                let event = self.events.borrow_and_update().clone();
                if event.is_some() {
                    return event;
                }
            }
        };
        let event = tokio::select! {
            event = newest => event?,
            () = lifecycle.reached(Phase::Stopping) => return None,
        };
        Some((Ok(event), self))
    }
}

type FeedState = State<(Option<Arc<LiveFeed>>, Lifecycle)>;

/// The route of the feed. Without one, it answers that the page is off.
pub(super) fn router(feed: Option<Arc<LiveFeed>>, lifecycle: Lifecycle) -> Router {
    Router::new().route("/live", get(view)).with_state((feed, lifecycle))
}

async fn view(
    State((feed, lifecycle)): FeedState,
    long: Option<Extension<LongResponse>>,
) -> Response {
    let Some(feed) = feed else { return page::switched_off() };
    let Some(viewer) = feed.view() else {
        let reason = format!("{VIEWERS_MAX} viewers are open, the most; close one");
        let response = refusal(StatusCode::SERVICE_UNAVAILABLE, reason);
        return ([(RETRY_AFTER, "3")], response).into_response();
    };
    let mut events = feed.newest.subscribe();
    if events.borrow().is_some() {
        events.mark_changed();
    }
    if let Some(Extension(long)) = long {
        long.set();
    }
    let start = ViewerStream { has_begun: false, events, lifecycle, _viewer: viewer };
    let body = Body::from_stream(stream::unfold(start, ViewerStream::next));
    // The connection ends with the stream: the limits on other responses do not apply to it.
    let headers =
        [(CONTENT_TYPE, "text/event-stream"), (CACHE_CONTROL, "no-store"), (CONNECTION, "close")];
    (headers, body).into_response()
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use crate::server::lifecycle::Health;

    fn stream(feed: &Arc<LiveFeed>, lifecycle: &Lifecycle) -> Option<ViewerStream> {
        let viewer = feed.view()?;
        let (events, lifecycle) = (feed.newest.subscribe(), lifecycle.clone());
        Some(ViewerStream { has_begun: true, events, lifecycle, _viewer: viewer })
    }

    fn lifecycle() -> Lifecycle {
        let health = watch::channel(Health::default()).1;
        Lifecycle::new(health, std::time::Duration::ZERO)
    }

    #[tokio::test]
    async fn a_slow_viewer_gets_the_newest_event_only() {
        let metrics = Arc::<ServerMetrics>::default();
        let feed = Arc::new(LiveFeed::new(Arc::clone(&metrics)));
        assert!(feed.viewed().now_or_never().is_none());
        let stream = stream(&feed, &lifecycle()).expect("a place");
        assert!(feed.viewed().now_or_never().is_some() && feed.has_viewers());
        assert_eq!(metrics.live_viewers.get(), 1);
        (1..=3).for_each(|number| feed.publish(&number.to_string()));
        let (event, stream) = stream.next().await.expect("an event");
        assert_eq!(event.as_deref(), Ok(&b"event: tick\ndata: 3\n\n"[..]));
        feed.clear();
        assert!(stream.next().now_or_never().is_none(), "there is nothing to send");
        assert_eq!((metrics.live_viewers.get(), feed.has_viewers()), (0, false));
    }

    #[tokio::test]
    async fn the_number_of_viewers_is_bounded() {
        let feed = Arc::new(LiveFeed::new(Arc::default()));
        let lifecycle = lifecycle();
        let mut open: Vec<_> = (0..VIEWERS_MAX).map(|_| stream(&feed, &lifecycle)).collect();
        assert!(open.iter().all(Option::is_some));
        assert!(stream(&feed, &lifecycle).is_none());
        drop(open.pop());
        assert!(stream(&feed, &lifecycle).is_some());
    }

    #[tokio::test]
    async fn a_stream_ends_when_the_ports_close() {
        let feed = Arc::new(LiveFeed::new(Arc::default()));
        let lifecycle = lifecycle();
        let open = stream(&feed, &lifecycle).expect("a place");
        lifecycle.advance(Phase::Draining);
        feed.publish("1");
        let (_, open) = open.next().await.expect("the page shows the drain");
        lifecycle.advance(Phase::Stopping);
        assert!(open.next().await.is_none());
    }
}
