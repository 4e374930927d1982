//! Calls at given times, whether or not earlier ones have been answered.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::runtime::Builder;
use tokio::time::sleep_until;
use tonic::transport::Endpoint;

use crate::support::load::LoadResult;
use crate::support::rls::{RateLimitRequest, RateLimitServiceClient};

/// Connections, which an instance spreads over its workers.
const CONNECTIONS: usize = 4;

/// Sends each request at its time after the start. Returns the results in the order of `calls`.
/// Panics if a call fails.
pub(super) fn send_timed(
    instance: SocketAddr,
    calls: Vec<(Duration, RateLimitRequest)>,
) -> Vec<LoadResult> {
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let endpoint = Endpoint::from_shared(format!("http://{instance}")).expect("an address");
        let mut channels = Vec::new();
        for _ in 0..CONNECTIONS {
            channels.push(endpoint.connect().await.expect("it listens"));
        }
        let start = tokio::time::Instant::now();
        let mut tasks = Vec::new();
        for (index, (after, request)) in calls.into_iter().enumerate() {
            let channel = channels[index % CONNECTIONS].clone();
            tasks.push(tokio::spawn(async move {
                let mut client = RateLimitServiceClient::new(channel);
                sleep_until(start + after).await;
                let began = Instant::now();
                let response = client.should_rate_limit(request).await.expect("never an RPC error");
                let at = Instant::now();
                let (latency, response) = (at - began, response.into_inner());
                LoadResult { index, instance, at, latency, response }
            }));
        }
        let mut results = Vec::new();
        for task in tasks {
            results.push(task.await.expect("no call failed"));
        }
        results
    })
}
