//! The export of spans: a bounded queue, and a thread that empties it towards the collector.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use opentelemetry::Context;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::transform::common::tonic::ResourceAttributesWithSchema;
use opentelemetry_proto::transform::trace::tonic::group_spans_by_resource_and_scope;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{Span, SpanData, SpanProcessor};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use crate::settings::TracingSettings;
use crate::telemetry::exposition::Exposition;
use crate::telemetry::otlp::{Exporter, Link, OtlpError, Signal};

/// What became of spans.
#[derive(Debug, Default)]
pub(super) struct Counts {
    exported: AtomicU64,
    /// The queue was full.
    overflown: AtomicU64,
    /// The collector did not take them.
    failed: AtomicU64,
}

impl Counts {
    pub(super) fn expose(&self, page: &mut Exposition) {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        page.counter("weir_spans_exported_total", "Spans that the collector took.")
            .single(read(&self.exported));
        let help = "Spans that were lost, by why: the queue was full, or the collector failed.";
        page.counter("weir_spans_dropped_total", help)
            .sample(&[("cause", "queue_full")], read(&self.overflown))
            .sample(&[("cause", "collector")], read(&self.failed));
    }
}

/// The end of a span: into the queue, or nowhere.
#[derive(Debug)]
pub(super) struct Queue {
    spans: mpsc::Sender<SpanData>,
    counts: Arc<Counts>,
}

impl SpanProcessor for Queue {
    fn on_start(&self, _span: &mut Span, _context: &Context) {}

    fn on_end(&self, span: SpanData) {
        if span.span_context.is_sampled() && self.spans.try_send(span).is_err() {
            self.counts.overflown.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _timeout: Duration) -> OTelSdkResult {
        Ok(())
    }
}

/// Starts to empty a queue.
pub(super) fn start(
    settings: &TracingSettings,
    resource: &Resource,
    counts: Arc<Counts>,
) -> Result<(Queue, Exporter), OtlpError> {
    let (spans, queued) = mpsc::channel(settings.queue);
    let queue = Queue { spans, counts: counts.clone() };
    let resource = ResourceAttributesWithSchema::from(resource);
    let (batch, delay) = (settings.batch, settings.delay);
    let exporter =
        Exporter::start(&settings.into(), Signal::Traces, move |link, stopped| async move {
            Outbox { link, resource, queued, batch, delay }.empty(stopped, &counts).await;
        })?;
    Ok((queue, exporter))
}

/// What waits for the collector.
struct Outbox {
    link: Link,
    resource: ResourceAttributesWithSchema,
    queued: mpsc::Receiver<SpanData>,
    /// Spans per message.
    batch: usize,
    /// How long a message waits to become full.
    delay: Duration,
}

impl Outbox {
    /// Sends message after message; once stopped, until nothing is left.
    async fn empty(mut self, mut stopped: watch::Receiver<bool>, counts: &Counts) {
        loop {
            let mut spans = Vec::new();
            let is_over = tokio::select! {
                () = gather(&mut self.queued, &mut spans, self.batch, self.delay) => false,
                _ = stopped.wait_for(|stopped| *stopped) => true,
            };
            while is_over
                && spans.len() < self.batch
                && let Ok(span) = self.queued.try_recv()
            {
                spans.push(span);
            }
            if spans.is_empty() {
                return;
            }
            let number = spans.len() as u64;
            let resource_spans = group_spans_by_resource_and_scope(spans, &self.resource);
            let result = self.link.deliver(&ExportTraceServiceRequest { resource_spans }).await;
            let counter = if result.is_ok() { &counts.exported } else { &counts.failed };
            counter.fetch_add(number, Ordering::Relaxed);
            self.link.tell(&result);
        }
    }
}

/// Waits for a span, and then a while for more. Cancelled, it loses none.
async fn gather(
    queued: &mut mpsc::Receiver<SpanData>,
    spans: &mut Vec<SpanData>,
    batch: usize,
    delay: Duration,
) {
    if queued.recv_many(spans, batch).await == 0 {
        // Nobody makes spans any more.
        return std::future::pending().await;
    }
    let more = async {
        while spans.len() < batch && queued.recv_many(spans, batch - spans.len()).await > 0 {}
    };
    let _ = timeout(delay, more).await;
}
