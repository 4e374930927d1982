//! The queue of finished spans, and the thread that sends them to the collector.

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
use crate::telemetry::otlp::{CollectorClient, Exporter, OtlpError, Signal};

/// Spans by result.
#[derive(Debug, Default)]
pub(super) struct SpanMetrics {
    exported: AtomicU64,
    /// Spans dropped because the queue was full.
    overflown: AtomicU64,
    /// Spans dropped because the collector did not accept them.
    failed: AtomicU64,
}

impl SpanMetrics {
    pub(super) fn expose(&self, page: &mut Exposition) {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        page.counter("weir_spans_exported_total", "Spans that the collector accepted.")
            .single(read(&self.exported));
        let help = "Spans that were dropped, by cause: a full queue or a failure of the collector.";
        page.counter("weir_spans_dropped_total", help)
            .sample(&[("cause", "queue_full")], read(&self.overflown))
            .sample(&[("cause", "collector")], read(&self.failed));
    }
}

/// Puts finished spans into the queue, or drops them if it is full.
#[derive(Debug)]
pub(super) struct Queue {
    spans: mpsc::Sender<SpanData>,
    metrics: Arc<SpanMetrics>,
}

impl SpanProcessor for Queue {
    fn on_start(&self, _span: &mut Span, _context: &Context) {}

    fn on_end(&self, span: SpanData) {
        if span.span_context.is_sampled() && self.spans.try_send(span).is_err() {
            self.metrics.overflown.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _timeout: Duration) -> OTelSdkResult {
        Ok(())
    }
}

/// Starts a queue and its exporter.
pub(super) fn start(
    settings: &TracingSettings,
    resource: &Resource,
    metrics: Arc<SpanMetrics>,
) -> Result<(Queue, Exporter), OtlpError> {
    let (spans, queued) = mpsc::channel(settings.max_queue_size);
    let queue = Queue { spans, metrics: metrics.clone() };
    let resource = ResourceAttributesWithSchema::from(resource);
    let (batch, delay) = (settings.max_batch_size, settings.batch_delay);
    let exporter =
        Exporter::start(&settings.into(), Signal::Traces, move |client, stopped| async move {
            SpanBatcher { client, resource, queued, batch, delay }.run(stopped, &metrics).await;
        })?;
    Ok((queue, exporter))
}

/// The receiving end of the queue.
struct SpanBatcher {
    client: CollectorClient,
    resource: ResourceAttributesWithSchema,
    queued: mpsc::Receiver<SpanData>,
    /// Spans per message.
    batch: usize,
    /// Longest wait for a full message.
    delay: Duration,
}

impl SpanBatcher {
    /// Sends spans in batches. After the stop signal it empties the queue and returns.
    async fn run(mut self, mut stopped: watch::Receiver<bool>, metrics: &SpanMetrics) {
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
            let result = self.client.deliver(&ExportTraceServiceRequest { resource_spans }).await;
            let counter = if result.is_ok() { &metrics.exported } else { &metrics.failed };
            counter.fetch_add(number, Ordering::Relaxed);
            self.client.log_transition(&result);
        }
    }
}

/// Waits for a span, and then up to `delay` for more. Cancelling this future loses no span.
async fn gather(
    queued: &mut mpsc::Receiver<SpanData>,
    spans: &mut Vec<SpanData>,
    batch: usize,
    delay: Duration,
) {
    if queued.recv_many(spans, batch).await == 0 {
        // No sender is left: wait until the stop signal.
        return std::future::pending().await;
    }
    let more = async {
        while spans.len() < batch && queued.recv_many(spans, batch - spans.len()).await > 0 {}
    };
    let _ = timeout(delay, more).await;
}
