//! Metrics of the quota service.

use crate::rlqs::{QuotaEngine, RefusedReason};
use crate::telemetry::Exposition;

pub(super) fn expose(engine: &QuotaEngine, page: &mut Exposition) {
    let metrics = engine.metrics();
    let mut gauge = |name: &'static str, help: &'static str, number: u64| {
        page.gauge(name, help).single(number);
    };
    gauge("weir_rlqs_streams", "Open streams of Envoys with RLQS.", metrics.streams.get());
    gauge("weir_rlqs_buckets", "Buckets of these streams.", metrics.buckets.get());
    let help = "Limits that RLQS divides at this instance.";
    gauge("weir_rlqs_quotas", help, metrics.quotas.get());
    let help = "Divided limits of which this instance has a share for callers of ShouldRateLimit.";
    gauge("weir_rlqs_local_holders", help, metrics.local_holders.get());
    let help = "Usages of buckets that Envoys have reported.";
    page.counter("weir_rlqs_reports_total", help).single(metrics.reports.get());
    let help = "Actions sent to Envoys, by kind. abandon: the bucket had no requests.";
    page.counter("weir_rlqs_assignments_total", help)
        .sample(&[("kind", "allow")], metrics.allow.get())
        .sample(&[("kind", "deny")], metrics.deny.get())
        .sample(&[("kind", "bucket")], metrics.bucket.get())
        .sample(&[("kind", "abandon")], metrics.abandon.get());
    let help = "Changed shares of holders, by direction.";
    page.counter("weir_rlqs_moves_total", help)
        .sample(&[("direction", "raise")], metrics.raises.get())
        .sample(&[("direction", "lower")], metrics.lowers.get());
    let help = "Changes of shares that the store recorded, by result.";
    page.counter("weir_rlqs_settlements_total", help)
        .sample(&[("result", "ok")], metrics.settlements_ok.get())
        .sample(&[("result", "error")], metrics.settlements_error.get());
    let help = "Largest sum of the shares of one limit in use at the same time, since the start. 1 \
                is the whole limit.";
    page.gauge("weir_rlqs_share_in_use_max", help).single(metrics.share_in_use_max());
    let help = "How often the shares of a limit in use were more than the whole limit. A lowered \
                limit does not count.";
    page.counter("weir_rlqs_violations_total", help).single(metrics.violations.get());
    let help = "Refused streams and parts of reports, by reason.";
    let family = page.counter("weir_rlqs_refused_total", help);
    for reason in RefusedReason::ALL {
        let count = metrics.refused(reason);
        if count > 0 {
            family.sample(&[("reason", reason.name())], count);
        }
    }
    expose_rules(engine, page);
}

/// One series per rule with a bucket. The number of rules bounds them.
fn expose_rules(engine: &QuotaEngine, page: &mut Exposition) {
    let series = engine.rule_series();
    let help = "Requests that Envoys have reported, by rule and result.";
    let family = page.counter("weir_rlqs_requests_total", help);
    for one in &series {
        let labels = |result| [("domain", &*one.domain), ("rule", &*one.rule), ("result", result)];
        family.sample(&labels("allowed"), one.allowed);
        family.sample(&labels("denied"), one.denied);
    }
    let help = "Requests that passed because of shadow mode, and would have been denied, by rule.";
    let family = page.counter("weir_rlqs_shadow_denied_total", help);
    for one in &series {
        family.sample(&[("domain", &*one.domain), ("rule", &*one.rule)], one.shadow_denied);
    }
    let help = "Requests per second of all holders of a rule's limits at this instance.";
    let family = page.gauge("weir_rlqs_demand_per_second", help);
    for one in &series {
        family.sample(&[("domain", &*one.domain), ("rule", &*one.rule)], one.demand_per_second);
    }
    let help = "Requests per second that these holders may allow.";
    let family = page.gauge("weir_rlqs_assigned_per_second", help);
    for one in &series {
        family.sample(&[("domain", &*one.domain), ("rule", &*one.rule)], one.assigned_per_second);
    }
    let help = "Requests per second of shares that no holder is meant to use and no other one gets \
                yet, at all instances.";
    let family = page.gauge("weir_rlqs_reserved_per_second", help);
    for one in &series {
        family.sample(&[("domain", &*one.domain), ("rule", &*one.rule)], one.reserved_per_second);
    }
    let help = "Present sum of the shares of a rule's limit at all instances, the largest of its \
                limits. 1 is the whole limit.";
    let family = page.gauge("weir_rlqs_share_in_use", help);
    for one in &series {
        family.sample(&[("domain", &*one.domain), ("rule", &*one.rule)], one.share_in_use);
    }
}
