//! The limits that the quota service divides, on the admin port.

use serde_json::{Value, json};

use super::counter;
use crate::limiter::Limiter;
use crate::rlqs::{HolderKind, QuotaEngine, ShownHolder, ShownQuota, ShownQuotas};

/// At most `limit` divided limits, most demand first. Without a quota service there are none.
pub(super) fn page(engine: Option<&QuotaEngine>, limiter: &Limiter, limit: usize) -> Value {
    let shown = engine.map(|engine| engine.shown(limit));
    let ShownQuotas { total, quotas } =
        shown.unwrap_or_else(|| ShownQuotas { total: 0, quotas: Vec::new() });
    let quotas: Vec<Value> = quotas.iter().map(|one| quota(one, limiter)).collect();
    json!({ "total": total, "quotas": quotas })
}

fn quota(shown: &ShownQuota, limiter: &Limiter) -> Value {
    let holders: Vec<Value> = shown.holders.iter().map(holder).collect();
    let mut json = json!({
        "domain": &*shown.domain,
        "rule": &*shown.rule,
        "key": counter::key_name(limiter, &shown.key),
        "requests": shown.requests,
        "window_seconds": shown.window.0 as f64 / 1e6,
        "assigned": shown.assigned,
        "reserved": shown.reserved,
        "demand_per_second": shown.demand_per_second,
        "holder_count": shown.holder_count,
        "holders": holders,
    });
    if let Some(selector) = &shown.selector {
        json["selector"] = json!(selector);
    }
    json
}

fn holder(shown: &ShownHolder) -> Value {
    let kind = match shown.kind {
        HolderKind::Envoy => "envoy",
        HolderKind::Local => "local",
    };
    json!({
        "holder": shown.holder,
        "kind": kind,
        "share": shown.share,
        "per_second": shown.per_second,
        "want": shown.want,
    })
}
