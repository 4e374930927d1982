//! New buckets of an Envoy with another address, and how long each waits for its first share.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use prost::Message;
use tokio::runtime::Runtime;
use tokio::time::timeout;
use weir::proto::{BucketAction, RateLimitQuotaResponse, Strategy, bucket_action};
use weir::rlqs::{EnvoyStream, QuotaEngine};

use super::reports::report;

/// Time between two new buckets.
const PAUSE: Duration = Duration::from_millis(500);

/// The longest wait for a share.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// A thread that opens buckets, one after the other.
pub(crate) struct NewBuckets {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<anyhow::Result<Vec<Duration>>>,
}

impl NewBuckets {
    /// Begins with the tenant number `first`. From there on, no other Envoy has any.
    pub(crate) fn start(engine: Arc<QuotaEngine>, first: usize) -> anyhow::Result<NewBuckets> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = thread::spawn(move || {
            let mut waits = Vec::new();
            while !stopped.load(Ordering::Relaxed) {
                waits.push(first_share(&engine, first + waits.len(), &runtime)?);
                thread::sleep(PAUSE);
            }
            Ok(waits)
        });
        Ok(NewBuckets { stop, thread })
    }

    /// Stops, and returns how long the buckets waited, sorted.
    pub(crate) fn end(self) -> anyhow::Result<Vec<Duration>> {
        self.stop.store(true, Ordering::Relaxed);
        let mut waits = self.thread.join().map_err(|_| anyhow!("a panic, which is above"))??;
        waits.sort();
        Ok(waits)
    }
}

/// Opens the bucket of one tenant on a new stream, and waits for its first share.
fn first_share(
    engine: &Arc<QuotaEngine>,
    tenant: usize,
    runtime: &Runtime,
) -> anyhow::Result<Duration> {
    let message = report(tenant..tenant + 1, &mut 1).encode_to_vec();
    let mut stream = engine.open(IpAddr::from([127, 0, 0, 2]).into(), None)?;
    let begin = Instant::now();
    stream.report(&message).context("a valid report")?;
    let share = async { timeout(WAIT_MAX, next_share(&mut stream)).await };
    runtime.block_on(share).context("a new bucket got no share")??;
    Ok(begin.elapsed())
}

/// Waits for an assignment that lets requests pass.
async fn next_share(stream: &mut EnvoyStream) -> anyhow::Result<()> {
    loop {
        let response = RateLimitQuotaResponse::decode(stream.next().await)?;
        let is_share = |action: &BucketAction| match &action.bucket_action {
            Some(bucket_action::BucketAction::QuotaAssignmentAction(assignment)) => {
                let strategy = assignment.rate_limit_strategy.as_ref();
                matches!(
                    strategy.and_then(|it| it.strategy.as_ref()),
                    Some(Strategy::TokenBucket(_))
                )
            }
            _ => false,
        };
        if response.bucket_action.iter().any(is_share) {
            return Ok(());
        }
    }
}
