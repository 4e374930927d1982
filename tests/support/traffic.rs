//! Steady traffic to instances that a test may kill or stop in the meantime.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use limit_oracle::Allowed;

use crate::support::rls::{Client, Code, RateLimitDescriptor, request};
use crate::support::wait::until;
use crate::support::weir::Weir;

/// Clients of each instance.
const CLIENTS: usize = 3;

/// Pause between two calls of one client.
const PAUSE: Duration = Duration::from_millis(6);

/// Largest error of an instance's estimate of a node's clock, in microseconds.
const CLOCK_ERROR: u64 = 3_000;

/// Makes a descriptor of counter number `n`.
pub(crate) type MakeDescriptor = Arc<dyn Fn(usize) -> RateLimitDescriptor + Send + Sync>;

/// Clients that are running. A client ends with its instance.
pub(crate) struct Traffic {
    stop: Arc<AtomicBool>,
    passed: Arc<AtomicUsize>,
    clients: Vec<JoinHandle<Vec<(usize, Allowed)>>>,
}

impl Traffic {
    /// Sends requests for `counters` counters in turn to all instances.
    pub(crate) fn start(
        instances: &[&Weir],
        counters: usize,
        make_descriptor: MakeDescriptor,
    ) -> Traffic {
        let (stop, passed) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let mut clients = Vec::new();
        for instance in instances {
            for client_index in 0..CLIENTS {
                let client = instance.client();
                let (stop, passed, make_descriptor) =
                    (stop.clone(), passed.clone(), make_descriptor.clone());
                clients.push(thread::spawn(move || {
                    let counter = (client_index..).map(|n| n % counters);
                    call(&client, counter, &stop, &passed, &make_descriptor)
                }));
            }
        }
        Traffic { stop, passed, clients }
    }

    /// Number of requests allowed so far.
    pub(crate) fn passed(&self) -> usize {
        self.passed.load(Ordering::Relaxed)
    }

    /// Waits until `passed` requests have been allowed.
    pub(crate) fn wait_for(&self, passed: usize) {
        until("requests pass", || self.passed() >= passed);
    }

    /// Waits until `passed` more requests have been allowed.
    pub(crate) fn wait_for_more(&self, passed: usize) {
        self.wait_for(self.passed() + passed);
    }

    /// Stops and returns all allowed requests, each with the number of its counter.
    pub(crate) fn stop(self) -> Vec<(usize, Allowed)> {
        self.stop.store(true, Ordering::Relaxed);
        let all = self
            .clients
            .into_iter()
            .map(|client_index| client_index.join().expect("no client panics"));
        all.flatten().collect()
    }
}

fn call(
    client: &Client,
    counters: impl Iterator<Item = usize>,
    stop: &AtomicBool,
    count: &AtomicUsize,
    make_descriptor: &MakeDescriptor,
) -> Vec<(usize, Allowed)> {
    let mut passed = Vec::new();
    for counter in counters {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let from = now().saturating_sub(CLOCK_ERROR);
        let Ok(response) = client.try_check(request("d", vec![make_descriptor(counter)])) else {
            break;
        };
        let to = now().saturating_add(CLOCK_ERROR);
        if response.overall_code == i32::from(Code::Ok) {
            count.fetch_add(1, Ordering::Relaxed);
            passed.push((counter, Allowed { hits: 1, from, to }));
        }
        thread::sleep(PAUSE);
    }
    passed
}

/// The machine's clock in microseconds since the epoch. The nodes run on the same machine and use
/// it too.
pub(crate) fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    u64::try_from(now.as_micros()).expect("before the year 586912")
}
