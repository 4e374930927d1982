//! Metrics of the lines about requests in the log of the process.

use crate::request_log::RequestLog;
use crate::telemetry::Exposition;

pub(super) fn expose(log: &RequestLog, page: &mut Exposition) {
    let metrics = log.metrics();
    let help = "Lines about requests in the log, by log.requests, rules and captures.";
    page.counter("weir_request_log_lines_total", help).single(metrics.lines.get());
    let help = "Lines about requests that were left out, over log.requests_per_second.";
    page.counter("weir_request_log_left_out_total", help).single(metrics.left_out.get());
    let help = "Captures that run: PUT /log began them.";
    page.gauge("weir_request_log_captures", help).single(log.captures().len() as u64);
}
