//! Requests to one Envoy, sent when they are due whether or not earlier ones were answered, and what
//! became of them in each tenth of a second.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use weir_bench::HttpLoad;

/// Pieces of a second. The demand can change with each.
pub(crate) const PIECES: usize = 10;
/// Both workers of an Envoy get some.
const CONNECTIONS: usize = 4;

/// What became of the requests of one piece.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sample {
    pub(crate) sent: u64,
    pub(crate) admitted: u64,
    pub(crate) denied: u64,
}

/// Requests that are being sent. They end when this value is dropped.
pub(crate) struct Load {
    demand: Arc<AtomicU64>,
    over: Arc<AtomicBool>,
    samples: Arc<Mutex<Vec<Sample>>>,
    thread: Option<JoinHandle<()>>,
}

impl Load {
    /// Sends requests for `tenants` in turn to the Envoy at `address`, from `begin` on. `demand` is the
    /// number per second, a multiple of ten.
    pub(crate) fn start(
        address: SocketAddr,
        tenants: &[String],
        begin: Instant,
        demand: u64,
    ) -> Load {
        let headers: Vec<(String, String)> =
            tenants.iter().map(|tenant| ("x-tenant".to_owned(), tenant.clone())).collect();
        let mut load = Load {
            demand: Arc::new(AtomicU64::new(demand)),
            over: Arc::default(),
            samples: Arc::default(),
            thread: None,
        };
        let (demand, over) = (Arc::clone(&load.demand), Arc::clone(&load.over));
        let samples = Arc::clone(&load.samples);
        let thread = thread::spawn(move || {
            let requests = HttpLoad::open(address, CONNECTIONS, &headers).expect("Envoy listens");
            let piece = Duration::from_secs(1) / PIECES as u32;
            let mut next = 0;
            while !over.load(Ordering::Relaxed) {
                // A piece that is late starts at once, and its requests are due as if it were not. One that is
                // later than its end is omitted.
                let number = next.max((begin.elapsed().as_nanos() / piece.as_nanos()) as u32);
                next = number + 1;
                let due = begin + piece * number;
                thread::sleep(due.saturating_duration_since(Instant::now()));
                let rate = demand.load(Ordering::Relaxed);
                let sample = send(&requests, due, rate, piece);
                let mut samples = samples.lock().expect("no thread panics inside");
                samples.resize(number as usize, Sample::default());
                samples.push(sample);
            }
        });
        load.thread = Some(thread);
        load
    }

    /// Changes the number of requests per second.
    pub(crate) fn set(&self, demand: u64) {
        self.demand.store(demand, Ordering::Relaxed);
    }

    /// Sends no more requests.
    pub(crate) fn stop(&mut self) {
        self.demand.store(0, Ordering::Relaxed);
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the load does not panic");
        }
    }

    /// The pieces so far. The index is the number of the piece.
    pub(crate) fn samples(&self) -> Vec<Sample> {
        self.samples.lock().expect("no thread panics inside").clone()
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // Its panic has its own message.
            let _ = thread.join();
        }
    }
}

/// Sends the requests of the piece that begins at `due`. A piece takes some milliseconds more than its length,
/// to begin and to end. If the next one began as much later, ten pieces would be more than a second, and an
/// Envoy would seem to admit more than its share.
fn send(requests: &HttpLoad, due: Instant, rate: u64, piece: Duration) -> Sample {
    if rate == 0 {
        return Sample::default();
    }
    let report = requests.run_from(due, rate as f64, piece).expect("the system has timers");
    let denied = report.errors.get("http 429").copied().unwrap_or_default();
    let failed: u64 = report.errors.values().sum::<u64>() - denied;
    assert_eq!(failed, 0, "requests without an answer of the filter: {:?}", report.errors);
    Sample { sent: report.ok + denied, admitted: report.ok, denied }
}
