//! Concurrent clients that load several instances and keep every response.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tokio::runtime::Builder;
use tonic::transport::{Channel, Endpoint};

use crate::support::rls::{
    Code, RateLimitRequest, RateLimitResponse, RateLimitServiceClient, headers,
};
use crate::support::wait::until;

/// One call and its response.
pub(crate) struct LoadResult {
    /// The number of the request, from which it was made.
    pub(crate) index: usize,
    /// The instance that answered.
    pub(crate) instance: SocketAddr,
    /// When the response arrived.
    pub(crate) at: Instant,
    pub(crate) latency: Duration,
    pub(crate) response: RateLimitResponse,
}

impl LoadResult {
    /// Whether descriptor `index` was allowed.
    pub(crate) fn passed(&self, index: usize) -> bool {
        self.response.statuses[index].code == i32::from(Code::Ok)
    }

    /// The cause of the first fallback among the descriptors, if there was one.
    pub(crate) fn fallback(&self) -> Option<String> {
        let headers = headers(&self.response);
        let (_, decision) = headers.iter().find(|(name, _)| *name == "x-weir-decision")?;
        let (_, cause) = decision.split_once("cause=")?;
        Some(cause.split([',', ';']).next().unwrap_or_default().to_owned())
    }
}

/// Makes request number `n`.
pub(crate) type MakeRequest = Arc<dyn Fn(usize) -> RateLimitRequest + Send + Sync>;

/// Clients that are running.
pub(crate) struct Load {
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicUsize>,
    thread: JoinHandle<Vec<LoadResult>>,
}

/// Sends requests 0 to `count - 1`, each once, by `clients` clients per instance.
pub(crate) fn send_all(
    instances: &[SocketAddr],
    clients: usize,
    count: usize,
    make_request: MakeRequest,
) -> Vec<LoadResult> {
    let load = Load::begin(instances, clients, count, make_request);
    load.thread.join().expect("no call failed")
}

impl Load {
    /// Sends requests 0, 1, 2, ... until [`Load::stop`].
    pub(crate) fn start(
        instances: &[SocketAddr],
        clients: usize,
        make_request: MakeRequest,
    ) -> Load {
        Load::begin(instances, clients, usize::MAX, make_request)
    }

    /// Waits until `count` more calls are answered.
    pub(crate) fn wait_for_more(&self, count: usize) {
        let answered = self.answered.load(Ordering::Relaxed) + count;
        until("calls are answered", || {
            assert!(!self.thread.is_finished(), "the load has ended");
            self.answered.load(Ordering::Relaxed) >= answered
        });
    }

    /// Stops and returns all results. Panics if a call failed.
    pub(crate) fn stop(self) -> Vec<LoadResult> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("no call failed")
    }

    fn begin(
        instances: &[SocketAddr],
        clients: usize,
        count: usize,
        make_request: MakeRequest,
    ) -> Load {
        let (stop, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (stopped, counted, instances) = (stop.clone(), answered.clone(), instances.to_vec());
        let thread = thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let next = Arc::new(AtomicUsize::new(0));
                let mut tasks = Vec::new();
                for instance in instances {
                    let endpoint = Endpoint::from_shared(format!("http://{instance}"));
                    let endpoint = endpoint.expect("an address");
                    for _ in 0..clients.div_ceil(CLIENTS_PER_CONNECTION) {
                        let channel = endpoint.connect().await.expect("it listens");
                        for _ in 0..clients.min(CLIENTS_PER_CONNECTION) {
                            let client = Client {
                                instance,
                                channel: channel.clone(),
                                next: next.clone(),
                                stopped: stopped.clone(),
                                answered: counted.clone(),
                                make_request: make_request.clone(),
                                count,
                            };
                            tasks.push(tokio::spawn(client.run()));
                        }
                    }
                }
                let mut results = Vec::new();
                for task in tasks {
                    results.extend(task.await.expect("no client panicked"));
                }
                results
            })
        });
        Load { stop, answered, thread }
    }
}

const CLIENTS_PER_CONNECTION: usize = 16;

struct Client {
    instance: SocketAddr,
    channel: Channel,
    next: Arc<AtomicUsize>,
    stopped: Arc<AtomicBool>,
    answered: Arc<AtomicUsize>,
    make_request: MakeRequest,
    count: usize,
}

impl Client {
    async fn run(self) -> Vec<LoadResult> {
        let mut client = RateLimitServiceClient::new(self.channel);
        let mut results = Vec::new();
        while !self.stopped.load(Ordering::Relaxed) {
            let index = self.next.fetch_add(1, Ordering::Relaxed);
            if index >= self.count {
                break;
            }
            let request = (self.make_request)(index);
            let began = Instant::now();
            let response = client.should_rate_limit(request).await.expect("never an RPC error");
            let at = Instant::now();
            self.answered.fetch_add(1, Ordering::Relaxed);
            let (instance, latency) = (self.instance, at - began);
            let response = response.into_inner();
            results.push(LoadResult { index, instance, at, latency, response });
        }
        results
    }
}

/// Prints one line: how many results, how many fallbacks by cause, and the latencies.
pub(crate) fn figures<'a>(what: &str, results: impl Iterator<Item = &'a LoadResult>) {
    let mut latency = Vec::new();
    let mut causes = std::collections::BTreeMap::<String, usize>::new();
    for result in results {
        latency.push(result.latency);
        if let Some(cause) = result.fallback() {
            *causes.entry(cause).or_default() += 1;
        }
    }
    latency.sort_unstable();
    let share = |part: f64| {
        let index = (latency.len() as f64 * part) as usize;
        latency.get(index.min(latency.len().saturating_sub(1))).copied().unwrap_or_default()
    };
    eprintln!(
        "{what}: {} responses, by fallback {causes:?}, p50 {:?}, p99 {:?}, p99.9 {:?}, max {:?}",
        latency.len(),
        share(0.5),
        share(0.99),
        share(0.999),
        share(1.0),
    );
}
