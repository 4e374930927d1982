//! A small Envoy: a thread that makes requests, keeps one RLQS stream, reports what it allowed and
//! denied, and obeys assignments as Envoy 1.40 does.
//!
//! It differs from Envoy where a test would take too long or see too little: it reports every second,
//! it denies what has no assignment, and it records every action with the time of its arrival.

mod bucket;
mod callers;
mod checks;
mod stream;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use envoy_types::pb::envoy::service::rate_limit_quota::v3 as service;
use tokio::sync::oneshot;

use super::wait::until;
use bucket::EnvoyBucket;

pub(crate) use bucket::Assigned;
pub(crate) use callers::{StopOnDrop, call};
pub(crate) use service::rate_limit_quota_service_client::RateLimitQuotaServiceClient;
pub(crate) use service::rate_limit_quota_usage_reports::BucketQuotaUsage;
pub(crate) use service::{BucketId, RateLimitQuotaResponse, RateLimitQuotaUsageReports};

/// Interval of reports. Envoy's is 5 s.
pub(crate) const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// The entries of a bucket id.
pub(crate) type BucketName = BTreeMap<String, String>;

/// The bucket id with `entries`.
pub(crate) fn bucket(entries: &[(&str, &str)]) -> BucketName {
    entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

/// An action that has arrived.
#[derive(Clone, Debug)]
pub(crate) struct Action {
    pub(crate) at: Instant,
    pub(crate) bucket: BucketName,
    /// `None`: the bucket is abandoned.
    pub(crate) assigned: Option<Assigned>,
}

/// A running Envoy. Dropping it is a crash: its connection closes at once.
pub(crate) struct SmallEnvoy {
    shared: Shared,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// What the thread and the test share.
#[derive(Clone)]
struct Shared(Arc<Mutex<EnvoyState>>);

/// The state of an Envoy.
struct EnvoyState {
    /// Where the service listens.
    to: SocketAddr,
    domain: String,
    /// `x-weir-instance`.
    name: Option<String>,
    buckets: BTreeMap<BucketName, EnvoyBucket>,
    /// Requests per second that arrive for each bucket.
    demands: BTreeMap<BucketName, f64>,
    /// Requests that were allowed, with the time.
    allowed: Vec<(Instant, u64)>,
    denied: u64,
    actions: Vec<Action>,
    /// Streams that have ended, with the status code and its text.
    ended: Vec<(tonic::Code, String)>,
    /// Messages that no service may send to an Envoy.
    violations: Vec<String>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, EnvoyState> {
        self.0.lock().expect("the state of an Envoy")
    }
}

impl SmallEnvoy {
    /// An Envoy without a name that asks the service at `to` about `domain`.
    pub(crate) fn start(to: SocketAddr, domain: &str) -> SmallEnvoy {
        SmallEnvoy::named(to, domain, None)
    }

    /// An Envoy with the `x-weir-instance` `name`.
    pub(crate) fn named(to: SocketAddr, domain: &str, name: Option<&str>) -> SmallEnvoy {
        let shared = Shared(Arc::new(Mutex::new(EnvoyState {
            to,
            domain: domain.to_owned(),
            name: name.map(str::to_owned),
            buckets: BTreeMap::new(),
            demands: BTreeMap::new(),
            allowed: Vec::new(),
            denied: 0,
            actions: Vec::new(),
            ended: Vec::new(),
            violations: Vec::new(),
        })));
        let (stop, stopped) = oneshot::channel();
        let running = shared.clone();
        let thread = thread::spawn(move || stream::run(&running, stopped));
        SmallEnvoy { shared, stop: Some(stop), thread: Some(thread) }
    }

    /// Requests for `bucket` arrive at `per_second` from now on.
    pub(crate) fn demand(&self, bucket: &BucketName, per_second: f64) {
        self.shared.lock().demands.insert(bucket.clone(), per_second);
    }

    /// The stream is opened at another address when it has ended.
    pub(crate) fn redirect(&self, to: SocketAddr) {
        self.shared.lock().to = to;
    }

    /// The assignment of `bucket`; `None` without a valid one.
    pub(crate) fn assigned(&self, bucket: &BucketName) -> Option<Assigned> {
        let state = self.shared.lock();
        state.buckets.get(bucket).and_then(|bucket| bucket.assigned(Instant::now()))
    }

    /// The rate that `bucket` is assigned, in requests per second; 0 without an assignment.
    pub(crate) fn rate(&self, bucket: &BucketName) -> f64 {
        self.assigned(bucket).map_or(0.0, |assigned| assigned.rate())
    }

    /// Waits until `bucket` is assigned a rate for which `fits` holds.
    pub(crate) fn until_rate(&self, bucket: &BucketName, fits: impl Fn(f64) -> bool) {
        until(&format!("another rate of {bucket:?}"), || fits(self.rate(bucket)));
    }

    /// Waits until `bucket` has an assignment, and returns it.
    pub(crate) fn until_assigned(&self, bucket: &BucketName) -> Assigned {
        until(&format!("an assignment of {bucket:?}"), || self.assigned(bucket).is_some());
        self.assigned(bucket).expect("it has one")
    }

    /// All actions so far.
    pub(crate) fn actions(&self) -> Vec<Action> {
        self.shared.lock().actions.clone()
    }

    /// The requests that were allowed since `since`.
    pub(crate) fn allowed_since(&self, since: Instant) -> u64 {
        let state = self.shared.lock();
        state.allowed.iter().filter(|(at, _)| *at >= since).map(|(_, requests)| requests).sum()
    }

    /// The requests that were denied so far.
    pub(crate) fn denied(&self) -> u64 {
        self.shared.lock().denied
    }

    /// The requests that were allowed, with their times.
    pub(crate) fn allowed(&self) -> Vec<(Instant, u64)> {
        self.shared.lock().allowed.clone()
    }

    /// The streams that have ended so far.
    pub(crate) fn ended(&self) -> Vec<(tonic::Code, String)> {
        self.shared.lock().ended.clone()
    }
}

impl Drop for SmallEnvoy {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            if !thread::panicking() {
                ended.expect("the thread of an Envoy");
                let violations = &self.shared.lock().violations;
                assert!(violations.is_empty(), "{violations:#?}");
            }
        }
    }
}

/// The most requests that `envoys` and `others` together allowed within one second after `since`.
pub(crate) fn most_in_a_second(
    envoys: &[&SmallEnvoy],
    others: &[(Instant, u64)],
    since: Instant,
) -> u64 {
    let mut allowed: Vec<(Instant, u64)> =
        envoys.iter().flat_map(|envoy| envoy.allowed()).chain(others.iter().copied()).collect();
    allowed.retain(|(at, _)| *at >= since);
    allowed.sort();
    let (mut first, mut sum, mut most) = (0, 0, 0);
    for (at, requests) in &allowed {
        sum += requests;
        while *at - allowed[first].0 >= Duration::from_secs(1) {
            sum -= allowed[first].1;
            first += 1;
        }
        most = most.max(sum);
    }
    most
}
