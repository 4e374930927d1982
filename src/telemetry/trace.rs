//! Traces: a span per sampled request and per call to the store, for an OpenTelemetry collector.
//!
//! A finished span enters a bounded queue, which a separate thread exports. So no decision waits
//! for a collector. [`Traces`] exists only if `tracing.enabled`.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use opentelemetry::propagation::{Extractor, TextMapPropagator};
use opentelemetry::trace::{
    Span as _, SpanContext, SpanKind, Status as SpanStatus, TraceContextExt, Tracer, TracerProvider,
};
use opentelemetry::{Context, KeyValue};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{Sampler, SdkTracer, SdkTracerProvider, Span};

use super::exposition::{Exposition, cut};
use super::otlp::{Exporter, OtlpError};
use super::outcomes::DecisionOutcome;
use super::resource::resource;
use crate::decision::{Code, DecisionReason, Status, Verdict};
use crate::descriptor::{Request, TraceContext};
use crate::rules::RuleSet;
use crate::settings::TracingSettings;
use crate::store::call_trace::StoreCall;
use crate::time::Micros;

mod span_queue;

use span_queue::SpanMetrics;

/// Longest domain in a span, in bytes. It bounds the memory of the queue.
const DOMAIN_BYTES: usize = 256;

/// Longest accepted `tracestate` in bytes, as in the W3C recommendation.
const TRACESTATE_BYTES: usize = 512;

/// Most events of a span; each descriptor has one.
const EVENTS_MAX: usize = 16;

/// Creates spans.
#[derive(Debug)]
pub struct Traces {
    tracer: SdkTracer,
    propagator: TraceContextPropagator,
    metrics: Arc<SpanMetrics>,
    // Kept alive, because spans of a dropped provider are not recorded.
    _provider: SdkTracerProvider,
}

/// The span of a request.
#[derive(Debug)]
pub struct RequestSpan(Span);

impl RequestSpan {
    /// The id of the trace.
    pub fn trace_id(&self) -> u128 {
        u128::from_be_bytes(self.0.span_context().trace_id().to_bytes())
    }
}

impl Traces {
    /// Starts the export of spans.
    ///
    /// # Errors
    /// An invalid address or header of the collector, or a thread that cannot be started.
    pub fn start(settings: &TracingSettings) -> Result<(Traces, Exporter), OtlpError> {
        let resource = resource(settings);
        let metrics = Arc::new(SpanMetrics::default());
        let (queue, exporter) = span_queue::start(settings, &resource, metrics.clone())?;
        let mut provider =
            SdkTracerProvider::builder().with_resource(resource).with_span_processor(queue);
        if let Some(rate) = settings.sampling_rate {
            let ratio = Sampler::TraceIdRatioBased(rate);
            provider = provider.with_sampler(Sampler::ParentBased(Box::new(ratio)));
        }
        let provider = provider.build();
        let tracer = provider.tracer("weir");
        let propagator = TraceContextPropagator::new();
        Ok((Traces { tracer, propagator, metrics, _provider: provider }, exporter))
    }

    /// Starts the span of `request`, which began at `now`. `None` if it is not sampled.
    pub fn begin(&self, request: &Request<'_>, now: Micros) -> Option<RequestSpan> {
        let parent = self.propagator.extract_with_context(&Context::new(), &Headers(request.trace));
        let mut span = self
            .tracer
            .span_builder("ShouldRateLimit")
            .with_kind(SpanKind::Server)
            .with_start_time(instant(now))
            .start_with_context(&self.tracer, &parent);
        if !span.is_recording() {
            return None;
        }
        let domain = cut(request.domain, DOMAIN_BYTES).into_owned();
        span.set_attribute(KeyValue::new("weir.domain", domain));
        Some(RequestSpan(span))
    }

    /// Ends the span of a request that was decided at `now`. `calls` are its calls to the store,
    /// and `node` returns the name of the called node.
    pub fn end(
        &self,
        span: RequestSpan,
        rules: &RuleSet,
        verdict: &Verdict,
        calls: &[StoreCall],
        node: impl Fn(&StoreCall) -> Option<String>,
        now: Micros,
    ) {
        let RequestSpan(mut span) = span;
        for call in calls {
            self.call(span.span_context(), call, node(call));
        }
        span.set_attribute(code_attribute(verdict.code));
        if let Some(status) = verdict.statuses.iter().min_by_key(|status| status.rank()) {
            attributes(rules, status).for_each(|attribute| span.set_attribute(attribute));
        }
        let several = verdict.statuses.len() > 1;
        let named = verdict.statuses.iter().filter_map(|status| match status.reason {
            DecisionReason::Fallback { .. } => Some(("fallback", status)),
            _ if several => Some(("decision", status)),
            _ => None,
        });
        for (name, status) in named.take(EVENTS_MAX) {
            let code = code_attribute(status.code);
            let all = attributes(rules, status).chain([code]).collect();
            span.add_event_with_timestamp(name, instant(now), all);
        }
        span.end_with_timestamp(instant(now));
    }

    fn call(&self, request: &SpanContext, call: &StoreCall, node: Option<String>) {
        let parent = Context::new().with_remote_span_context(request.clone());
        let node = node.map(|node| KeyValue::new("server.address", node));
        let mut span = self
            .tracer
            .span_builder("store")
            .with_kind(SpanKind::Client)
            .with_start_time(instant(call.began))
            .with_attributes(node.into_iter().chain([KeyValue::new("db.system.name", "redis")]))
            .start_with_context(&self.tracer, &parent);
        if let Some(error) = call.error {
            span.set_attribute(KeyValue::new("error.type", error.name()));
            span.set_status(SpanStatus::error(error.to_string()));
        }
        span.end_with_timestamp(instant(call.ended));
    }

    /// Writes the metrics of spans onto the page.
    pub fn expose(&self, page: &mut Exposition) {
        self.metrics.expose(page);
    }
}

/// The code of a request or a descriptor, in the values of `weir_requests_total{code}`.
fn code_attribute(code: Code) -> KeyValue {
    let name = match code {
        Code::Ok => "ok",
        Code::OverLimit => "over_limit",
    };
    KeyValue::new("weir.code", name)
}

/// A status as attributes of a span or an event. `weir.outcome` has the values of
/// `weir_decisions_total{outcome}` and of `weir_uncounted_descriptors_total{cause}`.
fn attributes(rules: &RuleSet, status: &Status) -> impl Iterator<Item = KeyValue> + use<> {
    let (index, outcome, fallback) = match status.reason {
        DecisionReason::UnknownDomain => (None, "unknown_domain", None),
        DecisionReason::NoRule => (None, "no_rule", None),
        DecisionReason::Replaced(rule) => (Some(rule), "replaced", None),
        DecisionReason::Unlimited(rule) => (Some(rule), "unlimited", None),
        DecisionReason::Blocked { rule, .. } => (rule, DecisionOutcome::Blocked.name(), None),
        DecisionReason::Bypassed { rule } => (rule, DecisionOutcome::Bypassed.name(), None),
        DecisionReason::Counted { rule, hits, decision, shadow, .. } => {
            (rule, DecisionOutcome::of(hits, &decision, shadow).name(), None)
        }
        DecisionReason::Fallback { rule, on_error, error, .. } => {
            (rule, DecisionOutcome::Fallback.name(), Some((on_error.name(), error.name())))
        }
    };
    let rule = index.and_then(|index| rules.rules().get(index));
    let rule = rule.map(|rule| {
        let label = KeyValue::new("weir.rule", rule.display_name.clone());
        [label, KeyValue::new("weir.mode", rule.mode.name())]
    });
    let fallback = fallback.map(|(on_error, cause)| {
        [KeyValue::new("weir.fallback", on_error), KeyValue::new("weir.fallback.cause", cause)]
    });
    let outcome = KeyValue::new("weir.outcome", outcome);
    rule.into_iter().flatten().chain([outcome]).chain(fallback.into_iter().flatten())
}

fn instant(at: Micros) -> SystemTime {
    UNIX_EPOCH + Duration::from_micros(at.0)
}

/// The trace headers of a caller.
struct Headers<'a>(TraceContext<'a>);

impl Extractor for Headers<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        match key {
            "traceparent" => self.0.traceparent,
            "tracestate" => self.0.tracestate.filter(|text| text.len() <= TRACESTATE_BYTES),
            _ => None,
        }
    }

    fn keys(&self) -> Vec<&str> {
        vec!["traceparent", "tracestate"]
    }
}
