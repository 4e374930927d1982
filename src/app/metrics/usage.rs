//! Metrics of the names of counters.

use crate::telemetry::Exposition;
use crate::usage::UsageSnapshot;

pub(super) fn expose(names: &UsageSnapshot, page: &mut Exposition) {
    let help = "Names of counters in the memory of this process, of rules with `usage: true`.";
    page.gauge("weir_usage_names", help).single(names.names);
    let help = "Names removed from memory, or not written to Redis, to make room for others.";
    let family = page.counter("weir_usage_dropped_names_total", help);
    family.sample(&[("reason", "evicted")], names.evicted);
    let Some(writes) = &names.writes else { return };
    family.sample(&[("reason", "queue_full")], writes.dropped);
    let help = "Names that wait to be written to Redis.";
    page.gauge("weir_usage_queued_names", help).single(writes.queued);
    let help = "Names that were written to Redis, or renewed there.";
    page.counter("weir_usage_written_names_total", help).single(writes.written);
    let help = "Failed writes of names to Redis. A write has at most 100 names.";
    page.counter("weir_usage_write_errors_total", help).single(writes.errors);
}
