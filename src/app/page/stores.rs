//! Metrics of the stores: what is kept, how Redis answers, and what the fallback decided.

use super::{Decider, Exposition, read};
use crate::store::StoreError;
use crate::store::guard::Shown;

impl Decider {
    pub(super) fn fallback_metrics(&self, page: &mut Exposition) {
        const NAME: &str = "weir_fallback_total";
        let help = "Decisions by the fallback, by rule and by why the store did not answer.";
        page.family(NAME, "counter", help);
        self.decisions.each(|domain, rule, stats| {
            for (error, count) in StoreError::ALL.iter().zip(&stats.fallback_causes) {
                // Most rules never meet most causes.
                let count = read(count);
                if count > 0 {
                    let labels = [("domain", domain), ("rule", rule), ("cause", error.word())];
                    page.sample(NAME, &labels, count);
                }
            }
        });
    }

    pub(super) fn memory_metrics(&self, page: &mut Exposition) {
        let Some(counters) = self.in_memory() else { return };
        let stats = counters.stats();
        page.single("weir_store_counters", "gauge", "Counters in memory.", stats.counters);
        page.family("weir_store_dropped_total", "counter", "Counters that left memory, by reason.");
        for (reason, count) in [("expired", stats.reclaimed), ("evicted", stats.evicted)] {
            page.sample("weir_store_dropped_total", &[("reason", reason)], count);
        }
        page.single(
            "weir_store_full_total",
            "counter",
            "Requests that found no room for a new counter.",
            stats.refused,
        );
    }

    pub(super) fn redis_metrics(&self, page: &mut Exposition) {
        let Some(guard) = self.limiter.store().redis() else { return };
        let nodes = guard.store().parts();
        page.family(
            "weir_redis_breaker",
            "gauge",
            "The node's breaker: 0 closed (serving), 1 open (left alone), 2 probing.",
        );
        for (part, name) in &nodes {
            let state = match guard.health(*part).0 {
                Shown::Closed => 0,
                Shown::Open => 1,
                Shown::Probing => 2,
            };
            page.sample("weir_redis_breaker", &node(name), state);
        }
        page.family("weir_redis_in_flight", "gauge", "Calls to the node that wait for an answer.");
        for (part, name) in &nodes {
            page.sample("weir_redis_in_flight", &node(name), guard.health(*part).1 as u64);
        }
        let traffic = nodes.iter().map(|(part, name)| (name, guard.store().traffic(*part)));
        let traffic: Vec<_> = traffic.collect();
        page.family("weir_redis_calls_total", "counter", "Calls of scripts sent to the node.");
        for (name, traffic) in &traffic {
            page.sample("weir_redis_calls_total", &node(name), traffic.calls);
        }
        page.family("weir_redis_steps_total", "counter", "Decisions that those calls carried.");
        for (name, traffic) in &traffic {
            page.sample("weir_redis_steps_total", &node(name), traffic.steps);
        }
        let help = "Those of them that were combined with others on the same counter.";
        page.family("weir_redis_combined_total", "counter", help);
        for (name, traffic) in &traffic {
            page.sample("weir_redis_combined_total", &node(name), traffic.shared);
        }
        page.family(
            "weir_redis_seconds",
            "histogram",
            "How long Redis took to answer, as the caller saw it.",
        );
        let buckets = guard.latency().cumulative();
        for (end, count) in &buckets {
            let end = end.map_or("+Inf".to_owned(), |end| format!("{}", end.0 as f64 / 1e6));
            page.sample("weir_redis_seconds_bucket", &[("le", &end)], *count);
        }
        let sum = guard.latency().sum().0 as f64 / 1e6;
        page.decimal("weir_redis_seconds_sum", sum);
        let count = buckets.last().map_or(0, |(_, count)| *count);
        page.sample("weir_redis_seconds_count", &[], count);
    }
}

fn node(name: &str) -> [(&str, &str); 1] {
    [("node", name)]
}
