//! One counter on the admin port: its identity, its state, and its deletion.

use serde_json::{Value, json};

use crate::decision::Decision;
use crate::descriptor::ParsedDescriptor;
use crate::limiter::{Counter, Limiter, NoCounter};
use crate::rules::{Rule, RuleSet};
use crate::server::CounterError;
use crate::store::StoreError;
use crate::time::Micros;

/// The counter and the state of each of its tiers at `now`. Counts nothing.
pub(super) async fn read(
    limiter: &Limiter,
    counter: &Counter<'_>,
    now: Micros,
) -> Result<Value, CounterError> {
    let tiers = limiter.inspect(counter, now).await.map_err(store_failed)?;
    let mut shown = identity(limiter, counter);
    shown["algorithm"] = json!(counter.limit.algorithm.name());
    shown["tiers"] = tiers.iter().map(|decision| tier(counter, decision)).collect();
    Ok(shown)
}

/// Deletes the counter. `existed` in the result is true if the store had one.
pub(super) async fn delete(
    limiter: &Limiter,
    counter: &Counter<'_>,
) -> Result<Value, CounterError> {
    let existed = limiter.delete(counter).await.map_err(store_failed)?;
    let Rule { domain, name, .. } = counter.rule;
    let (rule, name) = (counter.rule.selector(), name.as_deref());
    tracing::info!(%domain, %rule, name, existed, "counter deleted by an operator");
    let mut shown = identity(limiter, counter);
    shown["existed"] = json!(existed);
    Ok(shown)
}

/// The counter of `descriptor`.
pub(super) fn find<'r>(
    limiter: &Limiter,
    rules: &'r RuleSet,
    domain: &str,
    descriptor: &ParsedDescriptor,
) -> Result<Counter<'r>, CounterError> {
    limiter.counter(rules, domain, &descriptor.entries()).map_err(|none| {
        let why = match none {
            NoCounter::UnknownDomain => "no file defines this domain",
            NoCounter::NoRule => "no rule limits this descriptor",
            NoCounter::Unlimited => "its rule is unlimited, so nothing is counted",
        };
        CounterError::NoCounter(format!("{why}; POST it to /explain to see why"))
    })
}

/// The counter's rule and key, and where it is stored. `rule` is the selector, as in metrics.
fn identity(limiter: &Limiter, counter: &Counter<'_>) -> Value {
    let Counter { rule, key, .. } = counter;
    let (store, key) = match limiter.backend().shared_store() {
        Some(guarded) => ("redis", guarded.store().name_of(key)),
        None => ("memory", format!("{:016x}{:016x}", key.0[0], key.0[1])),
    };
    let mut shown = json!({
        "domain": &*rule.domain,
        "rule": rule.selector(),
        "location": &rule.location,
        "store": store,
        "key": key,
    });
    if let Some(name) = &rule.name {
        shown["name"] = json!(&**name);
    }
    shown
}

fn tier(counter: &Counter<'_>, decision: &Decision) -> Value {
    let window = counter.limit.tiers.get(decision.tier).map_or(0, |tier| tier.window.0);
    json!({
        "requests": decision.limit,
        "window_seconds": seconds(window),
        "used": decision.used,
        "remaining": decision.remaining,
        "reset_after_seconds": seconds(decision.reset_after.0),
    })
}

fn seconds(micros: u64) -> f64 {
    micros as f64 / 1e6
}

fn store_failed(error: StoreError) -> CounterError {
    CounterError::Store(error.to_string())
}
