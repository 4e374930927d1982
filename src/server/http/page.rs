//! Pages of a listener: rendered on blocking threads, at most four at a time. The number of pages in
//! memory is bounded.

use std::sync::Arc;

use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::task::{JoinError, spawn_blocking};

use super::permits::{self, Permit, Permits};
use crate::server::metrics::ServerMetrics;

/// Pages that are rendered at the same time. Further requests wait.
const CONCURRENT_MAX: usize = 4;

/// A page, and the head of its response.
#[derive(Debug)]
pub(super) struct Page {
    status: StatusCode,
    content_type: &'static str,
    text: String,
}

impl Page {
    /// Plain text.
    pub(super) fn text(text: String) -> Page {
        Page { status: StatusCode::OK, content_type: "text/plain; charset=utf-8", text }
    }

    /// Metrics in version 0.0.4 of Prometheus' text format.
    pub(super) fn metrics(text: String) -> Page {
        Page { content_type: "text/plain; version=0.0.4; charset=utf-8", ..Page::text(text) }
    }

    /// `value` as JSON.
    pub(super) fn json(status: StatusCode, value: &Value) -> Page {
        Page { status, content_type: "application/json", text: value.to_string() }
    }
}

/// The pages of one listener. Clones share their limits.
#[derive(Clone, Debug)]
pub(in crate::server) struct Pages {
    permits: Permits,
    renderers: Arc<Semaphore>,
}

impl Pages {
    /// At most `max` pages in memory: a page stays there until its client has read it.
    pub(in crate::server) fn new(max: usize, metrics: Arc<ServerMetrics>) -> Pages {
        let renderers = Arc::new(Semaphore::new(CONCURRENT_MAX));
        Pages { permits: Permits::new(max, metrics), renderers }
    }

    /// The permits of the pages, which large bodies of requests share.
    pub(super) fn permits(&self) -> &Permits {
        &self.permits
    }

    /// The response with the page that `render` returns; 503 if the maximum is in memory.
    pub(super) async fn answer(self, render: impl FnOnce() -> Page + Send + 'static) -> Response {
        let Some(permit) = self.permits.try_acquire(None) else { return permits::busy() };
        self.answer_with(permit, render).await
    }

    /// The response with the page that `render` returns. The page holds `permit`.
    pub(super) async fn answer_with(
        self,
        permit: Permit,
        render: impl FnOnce() -> Page + Send + 'static,
    ) -> Response {
        match self.collect(permit, render).await {
            Ok((Page { status, content_type, text }, permit)) => {
                (status, [(CONTENT_TYPE, content_type)], permit.hold(text)).into_response()
            }
            Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
        }
    }

    /// The result of `collect`, and `permit` for the page with it.
    ///
    /// # Errors
    ///
    /// `collect` panicked.
    pub(super) async fn collect<T: Send + 'static>(
        &self,
        permit: Permit,
        collect: impl FnOnce() -> T + Send + 'static,
    ) -> Result<(T, Permit), JoinError> {
        let renderer = Arc::clone(&self.renderers).acquire_owned().await;
        // Reading many series or rules takes a while, and this thread also accepts connections. It keeps
        // both permits even if its client disconnects.
        let collected = spawn_blocking(move || {
            let _renderer = renderer;
            (collect(), permit)
        });
        collected.await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Mutex, mpsc as std_mpsc};
    use tokio::runtime::Builder;
    use tokio::sync::mpsc::unbounded_channel;

    #[test]
    fn at_most_four_pages_are_rendered_at_a_time() {
        // One thread more than pages. It runs a fifth page if there is one, else the task queued
        // below.
        let mut runtime = Builder::new_current_thread();
        let runtime = runtime.max_blocking_threads(CONCURRENT_MAX + 1).build().unwrap();
        runtime.block_on(async {
            let (arrived, mut arrivals) = unbounded_channel();
            let (go, gate) = std_mpsc::channel::<()>();
            let gate = Arc::new(Mutex::new(gate));
            let pages = Pages::new(100, Arc::default());
            let request_page = || {
                let (arrived, gate) = (arrived.clone(), Arc::clone(&gate));
                tokio::spawn(pages.clone().answer(move || {
                    arrived.send(()).unwrap();
                    let _ = gate.lock().unwrap().recv();
                    Page::text("page".to_owned())
                }))
            };
            let first: Vec<_> = (0..CONCURRENT_MAX).map(|_| request_page()).collect();
            for _ in &first {
                arrivals.recv().await.unwrap();
            }
            first.iter().for_each(|one| one.abort());
            for one in first {
                assert!(one.await.unwrap_err().is_cancelled());
            }
            let more: Vec<_> = (0..10).map(|_| request_page()).collect();
            // After the yield, each task has been polled once.
            tokio::task::yield_now().await;
            tokio::select! {
                _ = arrivals.recv() => panic!("a fifth page is rendered"),
                done = spawn_blocking(|| ()) => done.unwrap(),
            }
            drop(go);
            for one in more {
                assert_eq!(one.await.unwrap().status(), StatusCode::OK);
            }
        });
    }

    #[tokio::test]
    async fn a_collection_keeps_its_permits_without_its_client() {
        let pages = Pages::new(1, Arc::default());
        let permit = pages.permits().try_acquire(None).unwrap();
        let (arrived, mut arrivals) = unbounded_channel();
        let (go, gate) = std_mpsc::channel::<()>();
        let client = tokio::spawn({
            let pages = pages.clone();
            async move {
                let collect = move || {
                    arrived.send(()).unwrap();
                    let _ = gate.recv();
                };
                pages.collect(permit, collect).await
            }
        });
        arrivals.recv().await.unwrap();
        client.abort();
        assert!(client.await.unwrap_err().is_cancelled());
        assert!(pages.permits().try_acquire(None).is_none());
        assert_eq!(pages.renderers.available_permits(), CONCURRENT_MAX - 1);
        drop(go);
        let all = u32::try_from(CONCURRENT_MAX).unwrap();
        assert!(pages.renderers.acquire_many(all).await.is_ok());
    }

    #[tokio::test]
    async fn a_page_counts_until_it_is_dropped() {
        let metrics = Arc::<ServerMetrics>::default();
        let pages = Pages::new(1, Arc::clone(&metrics));
        let page = || pages.clone().answer(|| Page::text("page".to_owned()));
        let first = page().await;
        assert_eq!(first.status(), StatusCode::OK);
        let refused = page().await;
        assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(refused.headers()["retry-after"], "1");
        assert_eq!(metrics.http_busy.get(), 1);
        drop(first);
        assert_eq!(page().await.status(), StatusCode::OK);
    }
}
