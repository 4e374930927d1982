//! The metrics page, rendered on blocking threads, at most four pages at a time.

use std::sync::Arc;

use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

/// Pages that are rendered at the same time. Further requests wait.
const CONCURRENT_MAX: usize = 4;

/// The content type of the page: version 0.0.4 of Prometheus' text format.
const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The page's renderer and its permits, shared by all listeners.
#[derive(Clone)]
pub(in crate::server) struct MetricsPages {
    render: Arc<dyn Fn() -> String + Send + Sync>,
    permits: Arc<Semaphore>,
}

impl MetricsPages {
    pub(in crate::server) fn new(
        render: impl Fn() -> String + Send + Sync + 'static,
    ) -> MetricsPages {
        MetricsPages { render: Arc::new(render), permits: Arc::new(Semaphore::new(CONCURRENT_MAX)) }
    }

    /// One page, once a permit is free.
    pub(in crate::server) async fn answer(self) -> Response {
        let MetricsPages { render, permits } = self;
        let permit = permits.acquire_owned().await;
        // Rendering many series takes a while, and this thread also accepts connections. The
        // rendering keeps the permit even if its client disconnects.
        let page = spawn_blocking(move || {
            let _permit = permit;
            render()
        });
        match page.await {
            Ok(page) => ([(CONTENT_TYPE, PROMETHEUS)], page).into_response(),
            Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
        }
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
            let gate = Mutex::new(gate);
            let pages = MetricsPages::new(move || {
                arrived.send(()).unwrap();
                let _ = gate.lock().unwrap().recv();
                "page".to_owned()
            });
            let request_page = || tokio::spawn(pages.clone().answer());
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
}
