//! The thread of an Envoy: requests, reports and the stream.

use std::time::{Duration, Instant};

use tokio::runtime::Builder;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::{Code, Request, Status, Streaming};

use super::bucket::EnvoyBucket;
use super::{
    Action, BucketName, EnvoyState, REPORT_INTERVAL, RateLimitQuotaResponse,
    RateLimitQuotaServiceClient, RateLimitQuotaUsageReports, Shared, checks,
};

/// Interval at which requests arrive.
const TICK: Duration = Duration::from_millis(10);

/// Longest wait for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// An open stream.
struct OpenStream {
    reports: mpsc::UnboundedSender<RateLimitQuotaUsageReports>,
    /// `None` until the service has answered.
    actions: Option<Streaming<RateLimitQuotaResponse>>,
    opening: Option<oneshot::Receiver<Result<Streaming<RateLimitQuotaResponse>, Status>>>,
}

/// Runs an Envoy until `stopped` is dropped.
pub(super) fn run(shared: &Shared, mut stopped: oneshot::Receiver<()>) {
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut stream, mut before, mut next_report) = (None, Instant::now(), None);
        loop {
            tokio::select! {
                _ = &mut stopped => return,
                arrived = next_message(&mut stream) => match arrived {
                    Ok(message) => obey(&mut shared.lock(), message),
                    Err(status) => {
                        stream = None;
                        let ended = (status.code(), status.message().to_owned());
                        shared.lock().ended.push(ended);
                    }
                },
                _ = ticks.tick() => {
                    let now = Instant::now();
                    let mut state = shared.lock();
                    let new = requests(&mut state, now - before, now);
                    before = now;
                    // The first request of all starts the timer and opens the stream.
                    let first = next_report.is_none() && !new.is_empty();
                    let due = next_report.is_some_and(|at| at <= now);
                    if first || due {
                        next_report = Some(now + REPORT_INTERVAL);
                    }
                    if stream.is_none() && (first || due) {
                        stream = Some(open(&state));
                    }
                    if let Some(open) = &stream {
                        for name in &new {
                            report(&mut state, open, Some(name), now);
                        }
                        if due {
                            report(&mut state, open, None, now);
                        }
                    }
                }
            }
        }
    });
}

/// The requests that arrive in `elapsed`. Returns the buckets that are new.
fn requests(state: &mut EnvoyState, elapsed: Duration, now: Instant) -> Vec<BucketName> {
    let mut new = Vec::new();
    for (name, per_second) in &state.demands {
        if *per_second <= 0.0 {
            continue;
        }
        let (allowed, denied) = match state.buckets.get_mut(name) {
            Some(bucket) => bucket.requests(*per_second, elapsed, now),
            // Its first request is in its first report alone.
            None => {
                let mut bucket = EnvoyBucket::new(now);
                let decided = bucket.decide(1, now);
                state.buckets.insert(name.clone(), bucket);
                new.push(name.clone());
                decided
            }
        };
        if allowed > 0 {
            state.allowed.push((now, allowed));
        }
        state.denied += denied;
    }
    new
}

/// Reports the bucket `name`, or all.
fn report(state: &mut EnvoyState, stream: &OpenStream, name: Option<&BucketName>, now: Instant) {
    let reported = state.buckets.iter_mut().filter(|(of, _)| name.is_none_or(|name| name == *of));
    let bucket_quota_usages: Vec<_> =
        reported.map(|(name, bucket)| bucket.report(name, now)).collect();
    if !bucket_quota_usages.is_empty() {
        let domain = state.domain.clone();
        // An error means that the stream has ended. Its end arrives as a message.
        let _ = stream.reports.send(RateLimitQuotaUsageReports { domain, bucket_quota_usages });
    }
}

/// Opens a stream. The service answers after the first report.
fn open(state: &EnvoyState) -> OpenStream {
    let (reports, to_send) = mpsc::unbounded_channel();
    let (opened, opening) = oneshot::channel();
    let (to, name) = (format!("http://{}", state.to), state.name.clone());
    tokio::spawn(async move {
        let opening = async {
            let connected = timeout(CONNECT_TIMEOUT, RateLimitQuotaServiceClient::connect(to));
            let failed = |error: String| Status::unavailable(error);
            let connected = connected.await.map_err(|error| failed(error.to_string()))?;
            let mut client = connected.map_err(|error| failed(error.to_string()))?;
            let mut request = Request::new(UnboundedReceiverStream::new(to_send));
            if let Some(name) = name {
                let name = name.parse().expect("a printable name");
                request.metadata_mut().insert("x-weir-instance", name);
            }
            Ok(client.stream_rate_limit_quotas(request).await?.into_inner())
        };
        let _ = opened.send(opening.await);
    });
    OpenStream { reports, actions: None, opening: Some(opening) }
}

/// The next message of the stream, or the status with which it ended. Waits for ever without a stream.
async fn next_message(stream: &mut Option<OpenStream>) -> Result<RateLimitQuotaResponse, Status> {
    let Some(open) = stream else { return std::future::pending().await };
    if let Some(opening) = &mut open.opening {
        let opened = opening.await;
        open.opening = None;
        open.actions = Some(opened.map_err(|_| Status::internal("no answer"))??);
    }
    let Some(actions) = &mut open.actions else { return std::future::pending().await };
    match actions.message().await? {
        Some(message) => Ok(message),
        None => Err(Status::new(Code::Ok, "")),
    }
}

/// Obeys the actions of a message.
fn obey(state: &mut EnvoyState, message: RateLimitQuotaResponse) {
    let now = Instant::now();
    for action in checks::actions(message) {
        let (bucket, assignment) = match action {
            Ok(action) => action,
            Err(violation) => {
                state.violations.push(violation);
                continue;
            }
        };
        let Some(known) = state.buckets.get_mut(&bucket) else {
            // It was abandoned a moment before, or no request has ever come.
            if !state.actions.iter().any(|action| action.bucket == bucket) {
                state.violations.push(format!("an action for an unknown bucket {bucket:?}"));
            }
            continue;
        };
        let assigned = assignment.map(|(assigned, _)| assigned);
        match assignment {
            Some((assigned, ttl)) => known.assign(assigned, ttl, now),
            None => drop(state.buckets.remove(&bucket)),
        }
        state.actions.push(Action { at: now, bucket, assigned });
    }
}
