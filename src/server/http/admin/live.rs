//! `/live`: the events of the live page, as server-sent events. Each event is rendered once for all
//! viewers.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
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
use crate::client_address::ClientAddress;
use crate::server::http::io::LongResponse;
use crate::server::lifecycle::{Lifecycle, Phase};
use crate::server::metrics::ServerMetrics;

/// The most viewers at the same time.
const VIEWERS_MAX: usize = 16;

/// The most viewers of one address, so that one client cannot keep out all others.
const VIEWERS_MAX_PER_ADDRESS: usize = 12;

/// The start of a stream: the pause in milliseconds after which a viewer connects again.
const START: &str = "retry: 3000\n\n";

/// The events of the live page, and the number of viewers. Each viewer gets the newest event only.
#[derive(Debug)]
pub struct LiveFeed {
    /// The newest event; `None` if it is old.
    newest: watch::Sender<Option<Bytes>>,
    viewers: watch::Sender<OpenViewers>,
    metrics: Arc<ServerMetrics>,
}

/// The numbers of open streams.
#[derive(Debug, Default)]
struct OpenViewers {
    total: usize,
    /// Only addresses with an open stream.
    by_address: HashMap<ClientAddress, usize>,
}

/// A bound on viewers that is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ViewerBound {
    Total,
    Address,
}

/// An open stream. Dropping it ends its count.
#[derive(Debug)]
struct Viewer {
    feed: Arc<LiveFeed>,
    address: ClientAddress,
}

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
        let (newest, viewers) = (watch::Sender::new(None), watch::Sender::default());
        LiveFeed { newest, viewers, metrics }
    }

    /// Returns when there is a viewer.
    pub async fn viewed(&self) {
        let mut viewers = self.viewers.subscribe();
        // `self` holds the sender, so the wait cannot fail.
        let _ = viewers.wait_for(|open| open.total > 0).await;
    }

    /// Whether there is a viewer.
    pub fn has_viewers(&self) -> bool {
        self.viewers.borrow().total > 0
    }

    /// Sends an event to all viewers. `json` must be one line.
    pub fn publish(&self, json: &str) {
        self.metrics.live_events.add();
        self.newest.send_replace(Some(format!("event: tick\ndata: {json}\n\n").into()));
    }

    /// Deletes the newest event, so that no later viewer gets it.
    pub fn clear(&self) {
        self.newest.send_replace(None);
    }

    fn view(self: &Arc<LiveFeed>, address: ClientAddress) -> Result<Viewer, ViewerBound> {
        let mut added = Ok(());
        self.viewers.send_if_modified(|open| {
            added = open.add(address);
            if added.is_ok() {
                // Before the change wakes the task that renders, because the event has the number.
                self.metrics.live_viewers.add();
            }
            added.is_ok()
        });
        added?;
        Ok(Viewer { feed: Arc::clone(self), address })
    }
}

impl OpenViewers {
    fn add(&mut self, address: ClientAddress) -> Result<(), ViewerBound> {
        if self.total >= VIEWERS_MAX {
            return Err(ViewerBound::Total);
        }
        let of_address = self.by_address.get(&address).copied().unwrap_or(0);
        if of_address >= VIEWERS_MAX_PER_ADDRESS {
            return Err(ViewerBound::Address);
        }
        self.total += 1;
        self.by_address.insert(address, of_address + 1);
        Ok(())
    }

    fn remove(&mut self, address: ClientAddress) {
        self.total -= 1;
        if let Entry::Occupied(mut of_address) = self.by_address.entry(address) {
            *of_address.get_mut() -= 1;
            if *of_address.get() == 0 {
                of_address.remove();
            }
        }
    }
}

impl ViewerBound {
    /// The response to a viewer over the bound.
    fn refusal(self) -> Response {
        let (status, reason) = match self {
            ViewerBound::Total => (
                StatusCode::SERVICE_UNAVAILABLE,
                format!(
                    "{VIEWERS_MAX} streams of /live are open, the most of one instance; close a \
                     page, or read /status"
                ),
            ),
            ViewerBound::Address => (
                StatusCode::TOO_MANY_REQUESTS,
                format!(
                    "{VIEWERS_MAX_PER_ADDRESS} streams of /live are open from this address, the \
                     most of one address; close one of its pages, or read /status"
                ),
            ),
        };
        ([(RETRY_AFTER, "3")], refusal(status, reason)).into_response()
    }
}

impl Drop for Viewer {
    fn drop(&mut self) {
        self.feed.viewers.send_modify(|open| open.remove(self.address));
        self.feed.metrics.live_viewers.subtract();
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
    Extension(address): Extension<ClientAddress>,
    long: Option<Extension<LongResponse>>,
) -> Response {
    let Some(feed) = feed else { return page::switched_off() };
    let viewer = match feed.view(address) {
        Ok(viewer) => viewer,
        Err(bound) => return bound.refusal(),
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
    use std::net::IpAddr;

    use futures_util::FutureExt;

    use super::*;
    use crate::server::lifecycle::Health;

    /// The stream of a client at 127.0.0.`host`.
    fn stream_from(
        host: u8,
        feed: &Arc<LiveFeed>,
        lifecycle: &Lifecycle,
    ) -> Result<ViewerStream, ViewerBound> {
        let viewer = feed.view(IpAddr::from([127, 0, 0, host]).into())?;
        let (events, lifecycle) = (feed.newest.subscribe(), lifecycle.clone());
        Ok(ViewerStream { has_begun: true, events, lifecycle, _viewer: viewer })
    }

    fn stream(feed: &Arc<LiveFeed>, lifecycle: &Lifecycle) -> Result<ViewerStream, ViewerBound> {
        stream_from(1, feed, lifecycle)
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
        assert_eq!(metrics.live_events.get(), 3);
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
        let from = |host| stream_from(host, &feed, &lifecycle);
        let mut first: Vec<_> = (0..VIEWERS_MAX_PER_ADDRESS).map(|_| from(1)).collect();
        assert!(first.iter().all(Result::is_ok));
        assert_eq!(from(1).err(), Some(ViewerBound::Address));
        let mut second: Vec<_> = (first.len()..VIEWERS_MAX).map(|_| from(2)).collect();
        assert!(second.iter().all(Result::is_ok));
        assert_eq!(from(3).err(), Some(ViewerBound::Total));
        assert_eq!(from(1).err(), Some(ViewerBound::Total));
        drop(second.pop());
        assert_eq!(from(1).err(), Some(ViewerBound::Address));
        drop(first.pop());
        first.push(from(1));
        assert!(first.last().is_some_and(Result::is_ok));
        first.clear();
        second.clear();
        let open = feed.viewers.borrow();
        assert!(open.total == 0 && open.by_address.is_empty(), "{open:?}");
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
