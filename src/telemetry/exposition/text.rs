//! Prometheus' text format, version 0.0.4
//! (<https://prometheus.io/docs/instrumenting/exposition_formats/>).

use std::fmt::Write;

use super::{Family, FamilyKind, SampleValue};
use crate::histogram::Distribution;

/// The families as one text. A family without samples has its HELP and TYPE lines.
pub(super) fn write(families: &[Family]) -> String {
    let mut text = String::new();
    for Family { name, kind, help, samples } in families {
        let kind = match kind {
            FamilyKind::Counter => "counter",
            FamilyKind::Gauge => "gauge",
            FamilyKind::Histogram => "histogram",
        };
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for sample in samples {
            match &sample.value {
                SampleValue::Whole(number) => line(&mut text, name, &sample.labels, None, number),
                SampleValue::Decimal(number) => line(&mut text, name, &sample.labels, None, number),
                SampleValue::Histogram(values) => buckets(&mut text, name, &sample.labels, values),
            }
        }
    }
    text
}

type Labels = [(&'static str, String)];

fn buckets(text: &mut String, name: &str, labels: &Labels, values: &Distribution) {
    let bucket = format!("{name}_bucket");
    for (end, count) in &values.buckets {
        line(text, &bucket, labels, Some(&end.to_string()), count);
    }
    line(text, &bucket, labels, Some("+Inf"), values.count);
    line(text, &format!("{name}_sum"), labels, None, values.sum);
    line(text, &format!("{name}_count"), labels, None, values.count);
}

fn line(
    text: &mut String,
    name: &str,
    labels: &Labels,
    le: Option<&str>,
    value: impl std::fmt::Display,
) {
    text.push_str(name);
    let labels = labels.iter().map(|(label, value)| (*label, value.as_str()));
    let mut open = '{';
    for (label, value) in labels.chain(le.map(|end| ("le", end))) {
        let _ = write!(text, "{open}{label}=\"");
        open = ',';
        for c in value.chars() {
            match c {
                '\\' => text.push_str("\\\\"),
                '"' => text.push_str("\\\""),
                '\n' => text.push_str("\\n"),
                _ => text.push(c),
            }
        }
        text.push('"');
    }
    let close = if open == '{' { "" } else { "}" };
    let _ = writeln!(text, "{close} {value}");
}

#[cfg(test)]
mod tests {
    use super::super::Exposition;
    use super::*;

    #[test]
    fn label_values_cannot_break_out_of_their_quotes() {
        let mut page = Exposition::default();
        page.counter("weir_x_total", "Things.").sample(&[("a", "1\"\n\\"), ("b", "")], 3);
        page.gauge("weir_y_seconds", "One.").single(0.000_25);
        page.gauge("weir_z", "None yet.");
        assert_eq!(
            page.to_prometheus(),
            "# HELP weir_x_total Things.\n# TYPE weir_x_total counter\n\
             weir_x_total{a=\"1\\\"\\n\\\\\",b=\"\"} 3\n\
             # HELP weir_y_seconds One.\n# TYPE weir_y_seconds gauge\nweir_y_seconds 0.00025\n\
             # HELP weir_z None yet.\n# TYPE weir_z gauge\n"
        );
    }

    #[test]
    fn a_histogram_is_cumulative() {
        let mut page = Exposition::default();
        let values = Distribution { buckets: vec![(0.001, 1), (0.5, 3)], count: 4, sum: 2.5 };
        page.histogram("weir_h_seconds", "Long.").sample(&[("m", "x")], values);
        let text = page.to_prometheus();
        let lines: Vec<&str> = text.lines().skip(2).collect();
        assert_eq!(
            lines,
            [
                "weir_h_seconds_bucket{m=\"x\",le=\"0.001\"} 1",
                "weir_h_seconds_bucket{m=\"x\",le=\"0.5\"} 3",
                "weir_h_seconds_bucket{m=\"x\",le=\"+Inf\"} 4",
                "weir_h_seconds_sum{m=\"x\"} 2.5",
                "weir_h_seconds_count{m=\"x\"} 4",
            ]
        );
    }
}
