//! Envoys outside the process: each has a connection with one stream, and reports every 5 s. The first
//! reports are evenly distributed over 5 s.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, bail};
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval, sleep};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::transport::Endpoint;
use weir::proto::RateLimitQuotaServiceClient;

use super::reports::{PERIOD, Shape, report};

/// Running Envoys. Their streams end when this value is dropped.
pub(crate) struct Envoys {
    runtime: Runtime,
    tasks: Vec<JoinHandle<anyhow::Result<()>>>,
    counts: Arc<EnvoyCounts>,
}

/// What all Envoys have sent and received.
#[derive(Debug, Default)]
struct EnvoyCounts {
    usages: AtomicU64,
    actions: AtomicU64,
}

impl Envoys {
    /// Starts to open the streams to the service at `to`.
    pub(crate) fn start(to: SocketAddr, shape: Shape) -> anyhow::Result<Envoys> {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).enable_all().build()?;
        let counts = Arc::<EnvoyCounts>::default();
        let start = |number| runtime.spawn(envoy(to, number, shape, counts.clone()));
        let tasks = (0..shape.streams).map(start).collect();
        Ok(Envoys { runtime, tasks, counts })
    }

    /// The usages that were reported so far.
    pub(crate) fn usages(&self) -> u64 {
        self.counts.usages.load(Ordering::Relaxed)
    }

    /// The actions that have arrived so far.
    pub(crate) fn actions(&self) -> u64 {
        self.counts.actions.load(Ordering::Relaxed)
    }

    /// Ends the streams.
    ///
    /// # Errors
    ///
    /// One of them has ended before.
    pub(crate) fn end(self) -> anyhow::Result<()> {
        for task in self.tasks {
            if task.is_finished() {
                self.runtime.block_on(task)??;
            }
        }
        Ok(())
    }
}

/// One Envoy. It ends with an error only.
async fn envoy(
    to: SocketAddr,
    number: usize,
    shape: Shape,
    counts: Arc<EnvoyCounts>,
) -> anyhow::Result<()> {
    sleep(PERIOD.mul_f64(number as f64 / shape.streams as f64)).await;
    let channel = Endpoint::from_shared(format!("http://{to}"))?.connect().await?;
    let mut client = RateLimitQuotaServiceClient::new(channel);
    let (reports, to_send) = mpsc::unbounded_channel();
    let mut random = number as u64;
    let first = if shape.own { number * shape.buckets } else { 0 };
    let mut send = move || {
        let report = report(first..first + shape.buckets, &mut random);
        reports.send(report).ok().context("the stream has ended")
    };
    let mut ticks = interval(PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks.tick().await;
    // The service answers after the first report.
    send()?;
    counts.usages.fetch_add(shape.buckets as u64, Ordering::Relaxed);
    let stream = client.stream_rate_limit_quotas(UnboundedReceiverStream::new(to_send)).await?;
    let mut actions = stream.into_inner();
    loop {
        tokio::select! {
            _ = ticks.tick() => {
                send()?;
                counts.usages.fetch_add(shape.buckets as u64, Ordering::Relaxed);
            }
            message = actions.message() => {
                let Some(message) = message? else { bail!("the service has ended a stream") };
                counts.actions.fetch_add(message.bucket_action.len() as u64, Ordering::Relaxed);
            }
        }
    }
}
