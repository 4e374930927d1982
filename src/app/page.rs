//! The admin pages: what the decider shows to those who operate it.

use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};

use super::decider::Decider;
use crate::rules::SourceInfo;
use crate::server::AdminView;
use crate::telemetry::{Exposition, RuleStats};
use crate::time::Micros;

mod stores;

impl AdminView for Decider {
    fn metrics(&self) -> String {
        let mut page = Exposition::default();
        self.request_metrics(&mut page);
        self.rule_metrics(&mut page);
        self.fallback_metrics(&mut page);
        self.memory_metrics(&mut page);
        self.redis_metrics(&mut page);
        self.connections.expose(&mut page);
        page.finish()
    }

    fn rules(&self) -> Value {
        let now = self.in_force.load();
        let files: Vec<Value> = now.rules.files().iter().map(file).collect();
        json!({
            "loaded_at": rfc_3339(now.loaded_at),
            "files": files,
            "last_error": self.last_error.load().as_deref(),
        })
    }

    fn rlconfig(&self) -> String {
        self.in_force.load().rules.dump()
    }

    fn settings(&self) -> Value {
        self.settings.to_json()
    }
}

impl Decider {
    fn request_metrics(&self, page: &mut Exposition) {
        let decisions = &self.decisions;
        page.family("weir_requests_total", "counter", "Requests by their answer.");
        for (code, count) in [
            ("ok", &decisions.ok),
            ("over_limit", &decisions.over_limit),
            ("invalid", &decisions.invalid),
        ] {
            page.sample("weir_requests_total", &[("code", code)], read(count));
        }
        let mut single = |name: &str, help: &str, count: &AtomicU64| {
            page.single(name, "counter", help, read(count));
        };
        single(
            "weir_shadowed_requests_total",
            "Requests over their limit that global shadow mode let pass.",
            &decisions.global_shadow,
        );
        single(
            "weir_unknown_domain_total",
            "Descriptors of domains that no rule file defines.",
            &decisions.unknown_domain,
        );
        single(
            "weir_unmatched_descriptors_total",
            "Descriptors that no rule of their domain limits.",
            &decisions.no_rule,
        );
        single(
            "weir_folded_series_total",
            "Requests counted under their rule because there were too many series.",
            &decisions.folded,
        );
    }

    fn rule_metrics(&self, page: &mut Exposition) {
        const NAME: &str = "weir_rule_hits_total";
        page.family(NAME, "counter", "Hits by rule and by what became of them.");
        self.decisions.each(|domain, rule, stats| {
            let RuleStats {
                total_hits,
                within_limit,
                near_limit,
                over_limit,
                shadow_mode,
                fallback,
                fallback_causes: _,
                negative_hits,
            } = stats;
            for (outcome, count) in [
                ("total", total_hits),
                ("within_limit", within_limit),
                ("near_limit", near_limit),
                ("over_limit", over_limit),
                ("shadow_mode", shadow_mode),
                ("fallback", fallback),
                ("given_back", negative_hits),
            ] {
                let labels = [("domain", domain), ("rule", rule), ("outcome", outcome)];
                page.sample(NAME, &labels, read(count));
            }
        });
    }
}

fn file(info: &SourceInfo) -> Value {
    let SourceInfo { path, domain, rules } = info;
    json!({ "path": &**path, "domain": &**domain, "rules": rules })
}

/// An instant as RFC 3339 writes it, in UTC.
fn rfc_3339(instant: Micros) -> String {
    let seconds = i64::try_from(instant.0 / 1_000_000).unwrap_or(i64::MAX);
    prost_types::Timestamp { seconds, nanos: 0 }.to_string()
}

pub(super) fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}
