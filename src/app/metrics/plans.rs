//! Metrics of plans and of their source.

use crate::app::plans::PlansView;
use crate::plan_sources::RedisPlans;
use crate::plans::PlansStatus;
use crate::telemetry::Exposition;
use crate::time::Micros;

pub(super) fn expose(view: &PlansView, now: Micros, page: &mut Exposition) {
    let PlansView { plans, status, redis } = view;
    let PlansStatus { plans, customers, customer_bytes, decided_by_unknown_plan, warnings } =
        plans.status();
    page.gauge("weir_plans", "Active plans.").single(plans as u64);
    let help = "Customers in memory: all of them, or with Redis those that requests have named.";
    page.gauge("weir_plans_customers", help).single(customers as u64);
    let help = "Memory of these customers.";
    page.gauge("weir_plans_customers_bytes", help).single(customer_bytes as u64);
    let help = "Numbers of plans that do not fit a rule, and names of plans that are not defined.";
    page.gauge("weir_plans_warnings", help).single(warnings.len() as u64);
    let help = "Decisions by the default, because the plan of the customer is not defined.";
    page.counter("weir_plans_unknown_plan_decisions_total", help).single(decided_by_unknown_plan);
    let help = "1 if the last attempt to read the plans from their source succeeded, else 0.";
    let is_up = status.confirmed().is_some() && status.error().is_none();
    page.gauge("weir_plans_source_up", help).single(u64::from(is_up));
    let help = "Time since the plans were last known to be those of their source.";
    let family = page.gauge("weir_plans_source_age_seconds", help);
    if let Some(at) = status.confirmed() {
        family.single(now.saturating_sub(at).0 as f64 / 1e6);
    }
    let help = "Failed attempts to read the plans from their source.";
    page.counter("weir_plans_source_errors_total", help).single(status.errors());
    let help = "How often new plans of the source became active.";
    page.counter("weir_plans_updates_total", help).single(status.updates());
    if let Some(redis) = redis {
        expose_redis(redis, page);
    }
}

fn expose_redis(redis: &RedisPlans, page: &mut Exposition) {
    let metrics = redis.metrics();
    let help = "Changes of plans and of customers that were read from Redis.";
    page.counter("weir_plans_changes_total", help).single(metrics.changes());
    let help = "How often changes were missed, so that all customers are looked up again.";
    page.counter("weir_plans_resyncs_total", help).single(metrics.resyncs());
    let (ok, failed) = metrics.lookups();
    let help = "Calls to Redis that look up the customers of a request, by result.";
    page.counter("weir_plans_lookups_total", help)
        .sample(&[("result", "ok")], ok)
        .sample(&[("result", "failed")], failed);
    let help = "Customers that were not looked up, over plans.max_lookups.";
    page.counter("weir_plans_skipped_lookups_total", help).single(metrics.skipped_lookups());
}
