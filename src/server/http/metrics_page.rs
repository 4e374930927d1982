//! This module renders the metrics page off the serving threads, four pages at a time.

use std::sync::Arc;

use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

/// MetricsPages that are rendered at the same time; more wait.
const AT_A_TIME: usize = 4;

/// The content type of the page: version 0.0.4 of the text format.
const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The renderer of the page and its permits, shared by all listeners.
#[derive(Clone)]
pub(in crate::server) struct MetricsPages {
    render: Arc<dyn Fn() -> String + Send + Sync>,
    places: Arc<Semaphore>,
}

impl MetricsPages {
    pub(in crate::server) fn new(
        render: impl Fn() -> String + Send + Sync + 'static,
    ) -> MetricsPages {
        MetricsPages { render: Arc::new(render), places: Arc::new(Semaphore::new(AT_A_TIME)) }
    }

    /// One page, once a permit is free.
    pub(in crate::server) async fn answer(self) -> Response {
        let MetricsPages { render, places } = self;
        let place = places.acquire_owned().await;
        // Rendering many series takes a while, and this thread also accepts connections. The permit
        // stays with the render, even if its client has gone.
        let page = spawn_blocking(move || {
            let _place = place;
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
        // One thread more than pages: it takes a fifth page, or else what is queued after it.
        let mut runtime = Builder::new_current_thread();
        let runtime = runtime.max_blocking_threads(AT_A_TIME + 1).build().unwrap();
        runtime.block_on(async {
            let (arrived, mut arrivals) = unbounded_channel();
            let (go, gate) = std_mpsc::channel::<()>();
            let gate = Mutex::new(gate);
            let pages = MetricsPages::new(move || {
                arrived.send(()).unwrap();
                let _ = gate.lock().unwrap().recv();
                "page".to_owned()
            });
            let ask = || tokio::spawn(pages.clone().answer());
            let first: Vec<_> = (0..AT_A_TIME).map(|_| ask()).collect();
            for _ in &first {
                arrivals.recv().await.unwrap();
            }
            first.iter().for_each(|one| one.abort());
            for one in first {
                assert!(one.await.unwrap_err().is_cancelled());
            }
            let more: Vec<_> = (0..10).map(|_| ask()).collect();
            // Each of them has been polled once.
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
