//! What operators see of the quotas: their holders and shares, and the demand per rule.

use std::collections::HashMap;
use std::sync::Arc;

use super::counter_quota::CounterQuota;
use super::engine::QuotaEngine;
use super::member::Recipient;
use crate::key::{CounterKey, RuleId};
use crate::quota::{PresentUse, Quota, SHARES, Want};
use crate::time::Micros;

/// Most quotas that are shown.
const QUOTAS_MAX: usize = 1_000;

/// Most holders that are shown of one quota.
const HOLDERS_SHOWN: usize = 100;

/// The quotas with the largest demand.
#[derive(Clone, Debug, PartialEq)]
pub struct ShownQuotas {
    /// The number of all quotas of this process.
    pub total: usize,
    /// The shown ones, largest demand first.
    pub quotas: Vec<ShownQuota>,
}

/// The quota of one counter.
#[derive(Clone, Debug, PartialEq)]
pub struct ShownQuota {
    /// The domain of the rule.
    pub domain: Arc<str>,
    /// The rule name.
    pub rule: Arc<str>,
    /// The selector of the rule, if its name is another text.
    pub selector: Option<String>,
    /// The counter.
    pub key: CounterKey,
    /// Hits per window.
    pub requests: u64,
    /// The window.
    pub window: Micros,
    /// Hits per second that holders of this process asked for between their last two reports.
    pub demand_per_second: f64,
    /// The sum of the shares of the holders of this process. 1 is the whole quota.
    pub assigned: f64,
    /// The shares of all instances that no holder is meant to use, and that no other one gets yet: of lost
    /// Envoys, and of lowered ones for the grace. 1 is the whole quota.
    pub reserved: f64,
    /// The number of holders of this process.
    pub holder_count: usize,
    /// At most 100 of them, largest share first.
    pub holders: Vec<ShownHolder>,
}

/// A holder of this process.
#[derive(Clone, Debug, PartialEq)]
pub struct ShownHolder {
    /// The instance name, or the holder's id in hexadecimal digits.
    pub holder: String,
    /// Who it is.
    pub kind: HolderKind,
    /// Its share. 1 is the whole quota.
    pub share: f64,
    /// Hits per second of its share.
    pub per_second: f64,
    /// The share that it could use; `None` before its second report.
    pub want: Option<f64>,
}

/// Who a holder is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HolderKind {
    /// A bucket of an Envoy.
    Envoy,
    /// This process, for its callers of ShouldRateLimit.
    Local,
}

/// The counts and the demand of one rule.
#[derive(Clone, Debug, PartialEq)]
pub struct RuleDemand {
    /// The domain.
    pub domain: Arc<str>,
    /// The rule name.
    pub rule: Arc<str>,
    /// Requests that Envoys allowed.
    pub allowed: u64,
    /// Requests that Envoys denied.
    pub denied: u64,
    /// Requests that shadow mode allowed, and that would have been denied.
    pub shadow_denied: u64,
    /// Hits per second that the holders of this process asked for.
    pub demand_per_second: f64,
    /// Hits per second that they may use.
    pub assigned_per_second: f64,
    /// Hits per second of the shares that are [reserved](ShownQuota::reserved).
    pub reserved_per_second: f64,
    /// The present sum of the shares of a quota at all instances, the largest one of the quotas. 1 is the
    /// whole quota.
    pub share_in_use: f64,
}

/// The sums over the quotas of a rule.
#[derive(Clone, Copy, Default)]
struct RuleSums {
    demand: f64,
    assigned: f64,
    reserved: f64,
    /// The largest one.
    in_use: u64,
}

impl RuleDemand {
    /// Adds the counts of another rule with the same name.
    fn add(&mut self, other: &RuleDemand) {
        self.allowed = self.allowed.saturating_add(other.allowed);
        self.denied = self.denied.saturating_add(other.denied);
        self.shadow_denied = self.shadow_denied.saturating_add(other.shadow_denied);
        self.demand_per_second += other.demand_per_second;
        self.assigned_per_second += other.assigned_per_second;
        self.reserved_per_second += other.reserved_per_second;
        self.share_in_use = self.share_in_use.max(other.share_in_use);
    }
}

impl QuotaEngine {
    /// The `limit` quotas with the largest demand, at most 1000.
    pub fn shown(&self, limit: usize) -> ShownQuotas {
        let mut demands: Vec<(f64, CounterKey)> = Vec::new();
        self.for_each(|key, quota| demands.push((demand(quota), *key)));
        demands.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        let total = demands.len();
        demands.truncate(limit.min(QUOTAS_MAX));
        let places: HashMap<CounterKey, usize> =
            demands.iter().enumerate().map(|(place, (_, key))| (*key, place)).collect();
        let (mut quotas, now) = (Vec::new(), self.clock.now());
        self.for_each(|key, quota| {
            if let Some(place) = places.get(key) {
                quotas.push((*place, shown(key, quota, now)));
            }
        });
        quotas.sort_by_key(|(place, _)| *place);
        ShownQuotas { total, quotas: quotas.into_iter().map(|(_, quota)| quota).collect() }
    }

    /// The rules that have or had buckets, ordered by domain and name.
    pub fn rule_series(&self) -> Vec<RuleDemand> {
        let now = self.clock.now();
        let mut sums: HashMap<RuleId, RuleSums> = HashMap::new();
        self.for_each(|_, quota| {
            let PresentUse { in_use, reserved } = quota.present_use(now);
            let of_rule = sums.entry(quota.rule.id).or_default();
            of_rule.demand += demand(quota);
            of_rule.assigned += quota.quota().rate_of(assigned_shares(quota));
            of_rule.reserved += quota.quota().rate_of(reserved);
            of_rule.in_use = of_rule.in_use.max(in_use);
        });
        let rules = self.quota_rules.all();
        let mut series: Vec<RuleDemand> = rules
            .iter()
            .map(|rule| {
                let sums = sums.get(&rule.id).copied().unwrap_or_default();
                RuleDemand {
                    domain: rule.domain.clone(),
                    rule: rule.name(),
                    allowed: rule.allowed.get(),
                    denied: rule.denied.get(),
                    shadow_denied: rule.shadow_denied.get(),
                    demand_per_second: sums.demand,
                    assigned_per_second: sums.assigned,
                    reserved_per_second: sums.reserved,
                    share_in_use: sums.in_use as f64 / SHARES as f64,
                }
            })
            .collect();
        series.sort_by(|a, b| (&a.domain, &a.rule).cmp(&(&b.domain, &b.rule)));
        // A rule that is gone may still have buckets when another rule gets its name.
        series.dedup_by(|next, kept| {
            let is_same = (&next.domain, &next.rule) == (&kept.domain, &kept.rule);
            if is_same {
                kept.add(next);
            }
            is_same
        });
        series
    }
}

fn demand(quota: &CounterQuota) -> f64 {
    // The sum of no number is -0.
    quota.members().values().map(|member| member.demand).sum::<f64>() + 0.0
}

fn assigned_shares(quota: &CounterQuota) -> u64 {
    quota.shares().map(|(_, share, _)| share).fold(0, u64::saturating_add)
}

fn shown(key: &CounterKey, quota: &CounterQuota, now: Micros) -> ShownQuota {
    let Quota { requests, window, .. } = *quota.quota();
    let mut shares: Vec<_> = quota.shares().collect();
    shares.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(&b.0)));
    let holder = |&(id, share, want): &(_, u64, u64)| {
        let member = quota.members().get(&id)?;
        let (kind, name) = match &member.to {
            Recipient::Local => (HolderKind::Local, None),
            Recipient::Bucket { name, .. } => (HolderKind::Envoy, name.as_deref()),
        };
        let crate::quota::HolderId([high, low]) = id;
        Some(ShownHolder {
            holder: name.map_or_else(|| format!("{high:016x}{low:016x}"), str::to_owned),
            kind,
            share: share as f64 / SHARES as f64,
            per_second: quota.quota().rate_of(share),
            want: (want != Want::Fair.number()).then(|| want as f64 / SHARES as f64),
        })
    };
    ShownQuota {
        domain: quota.rule.domain.clone(),
        rule: quota.rule.name(),
        selector: quota.rule.other_selector(),
        key: *key,
        requests,
        window,
        demand_per_second: demand(quota),
        assigned: assigned_shares(quota) as f64 / SHARES as f64,
        reserved: quota.present_use(now).reserved as f64 / SHARES as f64,
        holder_count: quota.members().len(),
        holders: shares.iter().filter_map(holder).take(HOLDERS_SHOWN).collect(),
    }
}
