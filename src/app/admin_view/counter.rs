//! One counter, as an operator sees it.

use serde_json::{Value, json};

use super::Service;
use crate::decision::Decision;
use crate::descriptor::Typed;
use crate::limiter::{Counter, NoCounter};
use crate::rules::RuleSet;
use crate::server::CounterError;
use crate::store::StoreError;
use crate::time::Clock;

impl Service {
    /// The counter and what each tier of it says.
    pub(super) async fn show_counter(
        &self,
        domain: &str,
        descriptor: &Typed,
    ) -> Result<Value, CounterError> {
        let now = self.active.load_full();
        let counter = self.find(&now.rules, domain, descriptor)?;
        let tiers = self.limiter.inspect(&counter, self.clock.now()).await.map_err(not_answered)?;
        let mut shown = self.shown(&counter);
        shown["algorithm"] = json!(counter.limit.algorithm.name());
        shown["tiers"] = tiers.iter().map(|decision| tier(&counter, decision)).collect();
        Ok(shown)
    }

    /// The counter, and whether there was anything to forget.
    pub(super) async fn forget_counter(
        &self,
        domain: &str,
        descriptor: &Typed,
    ) -> Result<Value, CounterError> {
        let now = self.active.load_full();
        let counter = self.find(&now.rules, domain, descriptor)?;
        let forgotten = self.limiter.forget(&counter).await.map_err(not_answered)?;
        tracing::info!(domain, rule = %counter.rule.label, forgotten, "counter emptied by hand");
        let mut shown = self.shown(&counter);
        shown["forgotten"] = json!(forgotten);
        Ok(shown)
    }

    fn find<'r>(
        &self,
        rules: &'r RuleSet,
        domain: &str,
        descriptor: &Typed,
    ) -> Result<Counter<'r>, CounterError> {
        self.limiter.counter(rules, domain, &descriptor.entries()).map_err(|none| {
            let why = match none {
                NoCounter::UnknownDomain => "no file defines this domain",
                NoCounter::NoRule => "no rule limits this descriptor",
                NoCounter::Unlimited => "its rule is unlimited, so nothing is counted",
            };
            CounterError::NoCounter(format!("{why}; POST it to /explain to see why"))
        })
    }

    fn shown(&self, counter: &Counter<'_>) -> Value {
        let Counter { rule, key, .. } = counter;
        let name = match self.limiter.backend().redis() {
            Some(guard) => guard.store().name_of(key),
            None => format!("{:016x}{:016x}", key.0[0], key.0[1]),
        };
        json!({
            "domain": &*rule.domain,
            "rule": &*rule.label,
            "location": &rule.location,
            "store": if self.limiter.backend().redis().is_some() { "redis" } else { "memory" },
            "key": name,
        })
    }
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

fn not_answered(error: StoreError) -> CounterError {
    CounterError::Store(error.to_string())
}
