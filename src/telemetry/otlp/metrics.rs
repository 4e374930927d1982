//! The periodic export of all metrics to an OpenTelemetry collector.
//!
//! Names, labels and values are the same as on the page for Prometheus.

use std::time::Duration;

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value as Number;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint,
    ResourceMetrics, ScopeMetrics, Sum, metric,
};
use opentelemetry_proto::tonic::resource::v1::Resource as ProtoResource;
use opentelemetry_proto::transform::common::tonic::ResourceAttributesWithSchema;
use tokio::sync::watch;
use tokio::time::timeout;

use super::{CollectorClient, Exporter, OtlpError, Signal};
use crate::histogram::Distribution;
use crate::settings::{MetricsSettings, TracingSettings};
use crate::telemetry::exposition::{Exposition, Family, FamilyKind, Sample, SampleValue};
use crate::telemetry::resource::resource;
use crate::time::Micros;

/// Starts an exporter that sends the metrics of `page`, counted since `started`, once per interval
/// and once at the end. The name of the service comes from `tracing`.
///
/// # Errors
/// An invalid address or header of the collector, or a thread that cannot be started.
pub fn start_metrics_export(
    settings: &MetricsSettings,
    tracing: &TracingSettings,
    started: Micros,
    page: impl Fn() -> (Micros, Exposition) + Send + 'static,
) -> Result<Exporter, OtlpError> {
    let attributes = ResourceAttributesWithSchema::from(&resource(tracing)).attributes.0;
    let resource = ProtoResource { attributes, ..ProtoResource::default() };
    let interval = settings.otlp_interval;
    let message = move || {
        let (now, page) = page();
        let period = MetricsPeriod { began: nanos(started), ends: nanos(now) };
        period.message(resource.clone(), page.families())
    };
    Exporter::start(&settings.into(), Signal::Metrics, move |client, stopped| async move {
        send(client, stopped, interval, message).await;
    })
}

/// Sends a message per `interval`, and the last one after the stop signal.
async fn send(
    mut client: CollectorClient,
    mut stopped: watch::Receiver<bool>,
    interval: Duration,
    message: impl Fn() -> ExportMetricsServiceRequest,
) {
    let mut is_over = false;
    while !is_over {
        is_over = timeout(interval, stopped.wait_for(|stopped| *stopped)).await.is_ok();
        let result = client.deliver(&message()).await;
        client.log_transition(&result);
    }
}

fn nanos(at: Micros) -> u64 {
    at.0.saturating_mul(1000)
}

/// The period of the values, in nanoseconds since 1970.
struct MetricsPeriod {
    began: u64,
    ends: u64,
}

impl MetricsPeriod {
    fn message(&self, resource: ProtoResource, families: &[Family]) -> ExportMetricsServiceRequest {
        let scope = InstrumentationScope {
            name: "weir".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            ..InstrumentationScope::default()
        };
        let metrics = families.iter().filter(|family| !family.samples.is_empty());
        let metrics = metrics.map(|family| self.metric(family)).collect();
        let scope_metrics = ScopeMetrics { scope: Some(scope), metrics, ..ScopeMetrics::default() };
        let resource = Some(resource);
        let all =
            ResourceMetrics { resource, scope_metrics: vec![scope_metrics], ..Default::default() };
        ExportMetricsServiceRequest { resource_metrics: vec![all] }
    }

    fn metric(&self, family: &Family) -> Metric {
        let cumulative = AggregationTemporality::Cumulative.into();
        let numbers = || family.samples.iter().filter_map(|one| self.number(one)).collect();
        let data = match family.kind {
            FamilyKind::Counter => metric::Data::Sum(Sum {
                data_points: numbers(),
                aggregation_temporality: cumulative,
                is_monotonic: true,
            }),
            FamilyKind::Gauge => metric::Data::Gauge(Gauge { data_points: numbers() }),
            FamilyKind::Histogram => metric::Data::Histogram(Histogram {
                data_points: family.samples.iter().filter_map(|one| self.histogram(one)).collect(),
                aggregation_temporality: cumulative,
            }),
        };
        let units = [("_seconds", "s"), ("_bytes", "By")];
        let name = family.name.trim_end_matches("_total");
        let unit = units.iter().find(|(end, _)| name.ends_with(end)).map_or("", |(_, unit)| unit);
        Metric {
            name: family.name.to_string(),
            description: family.help.to_owned(),
            unit: unit.to_owned(),
            data: Some(data),
            ..Metric::default()
        }
    }

    fn number(&self, sample: &Sample) -> Option<NumberDataPoint> {
        let value = match sample.value {
            SampleValue::Whole(number) => Number::AsInt(i64::try_from(number).unwrap_or(i64::MAX)),
            SampleValue::Decimal(number) => Number::AsDouble(number),
            SampleValue::Histogram(_) => return None,
        };
        Some(NumberDataPoint {
            attributes: attributes(sample),
            start_time_unix_nano: self.began,
            time_unix_nano: self.ends,
            value: Some(value),
            ..NumberDataPoint::default()
        })
    }

    fn histogram(&self, sample: &Sample) -> Option<HistogramDataPoint> {
        let SampleValue::Histogram(Distribution { buckets, count, sum }) = &sample.value else {
            return None;
        };
        // In OTLP a bucket is not cumulative, and the last one has no bound.
        let ends = buckets.iter().map(|(_, up_to)| *up_to).chain([*count]);
        let starts = [0].into_iter().chain(buckets.iter().map(|(_, up_to)| *up_to));
        Some(HistogramDataPoint {
            attributes: attributes(sample),
            start_time_unix_nano: self.began,
            time_unix_nano: self.ends,
            count: *count,
            sum: Some(*sum),
            bucket_counts: ends.zip(starts).map(|(end, start)| end.saturating_sub(start)).collect(),
            explicit_bounds: buckets.iter().map(|(bound, _)| *bound).collect(),
            ..HistogramDataPoint::default()
        })
    }
}

fn attributes(sample: &Sample) -> Vec<KeyValue> {
    let attribute = |(name, text): &(&str, String)| KeyValue {
        key: (*name).to_owned(),
        value: Some(AnyValue { value: Some(any_value::Value::StringValue(text.clone())) }),
        ..KeyValue::default()
    };
    sample.labels.iter().map(attribute).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_metric_is_converted() {
        let mut page = Exposition::default();
        page.counter("a_total", "A.").sample(&[("x", "1")], 3).sample(&[("x", "2")], 4);
        page.gauge("b_bytes", "B.").single(0.5);
        let buckets = vec![(0.1, 2), (0.2, 5)];
        let distribution = Distribution { buckets, count: 9, sum: 7.5 };
        page.histogram("c_seconds", "C.").single(distribution);
        page.counter("d_total", "Nothing happened.");
        let message =
            MetricsPeriod { began: 1, ends: 2 }.message(ProtoResource::default(), page.families());
        let metrics = &message.resource_metrics[0].scope_metrics[0].metrics;
        let shape: Vec<(&str, &str)> =
            metrics.iter().map(|metric| (metric.name.as_str(), metric.unit.as_str())).collect();
        assert_eq!(shape, [("a_total", ""), ("b_bytes", "By"), ("c_seconds", "s")]);
        let Some(metric::Data::Sum(sum)) = &metrics[0].data else { panic!("a counter is a sum") };
        assert!(sum.is_monotonic);
        let numbers: Vec<_> = sum.data_points.iter().map(|point| point.value).collect();
        assert_eq!(numbers, [Some(Number::AsInt(3)), Some(Number::AsInt(4))]);
        assert_eq!(sum.data_points[1].attributes[0].key, "x");
        assert_eq!((sum.data_points[0].start_time_unix_nano, sum.data_points[0].time_unix_nano), {
            (1, 2)
        });
        let Some(metric::Data::Gauge(gauge)) = &metrics[1].data else { panic!("a gauge") };
        assert_eq!(gauge.data_points[0].value, Some(Number::AsDouble(0.5)));
        let Some(metric::Data::Histogram(histogram)) = &metrics[2].data else { panic!("one") };
        let point = &histogram.data_points[0];
        assert_eq!(point.bucket_counts, [2, 3, 4]);
        assert_eq!(point.explicit_bounds, [0.1, 0.2]);
        assert_eq!((point.count, point.sum), (9, Some(7.5)));
    }
}
