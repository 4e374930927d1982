//! Metrics of the decision log.

use crate::decision_recorder::{DropCause, RecorderMetrics};
use crate::telemetry::Exposition;

pub(super) fn expose(metrics: &RecorderMetrics, page: &mut Exposition) {
    let help = "Lines written to the decision log.";
    page.counter("weir_decision_log_lines_total", help).single(metrics.written.get());
    let help = "Requests that should be in the decision log and are not, by cause.";
    let family = page.counter("weir_decision_log_dropped_total", help);
    for cause in DropCause::ALL {
        family.sample(&[("cause", cause.name())], metrics.dropped(cause).get());
    }
}
