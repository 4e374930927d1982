//! Inspection: what one counter holds, for operators; and how it is made to forget.
//!
//! The store itself is asked, and not the layers before it: with leases or synced counts, an
//! instance may have taken, or let through, what the store shows otherwise.

use crate::algorithm;
use crate::decision::Decision;
use crate::descriptor::{Entry, split_lease};
use crate::key::Key;
use crate::limit::Limit;
use crate::rules::{Found, Policy, Rule, RuleSet};
use crate::store::{Store, StoreError};
use crate::time::Clock;

use super::{Limiter, LocalCounters};

/// The counter that a descriptor leads to.
#[derive(Clone, Copy, Debug)]
pub struct Counter<'r> {
    /// The rule that it is of.
    pub rule: &'r Rule,
    /// What it is held against.
    pub limit: &'r Limit,
    /// Which one.
    pub key: Key,
}

/// Why a descriptor has no counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoCounter {
    /// No file defines the domain.
    UnknownDomain,
    /// No rule limits the descriptor.
    NoRule,
    /// The rule that does lets everything pass.
    Unlimited,
}

impl<S: Store, C: Clock> Limiter<S, C> {
    /// The counter of a descriptor with these entries; an entry that names a lease is no part of it.
    pub fn counter<'r>(
        &self,
        rules: &'r RuleSet,
        domain: &str,
        entries: &[Entry<'_>],
    ) -> Result<Counter<'r>, NoCounter> {
        let leased = split_lease(entries).and_then(|(_, others)| {
            let Found::Rule(rule) = rules.find(domain, &others) else { return None };
            rule.leases().then_some((rule, others))
        });
        let (rule, entries) = match &leased {
            Some((rule, others)) => (*rule, &**others),
            None => match rules.find(domain, entries) {
                Found::UnknownDomain => return Err(NoCounter::UnknownDomain),
                Found::Nothing => return Err(NoCounter::NoRule),
                Found::Rule(rule) => (rule, entries),
            },
        };
        match &rule.policy {
            Policy::Unlimited => Err(NoCounter::Unlimited),
            Policy::Limit(limit) => Ok(Counter { rule, limit, key: rule.key(&self.seed, entries) }),
        }
    }

    /// What the counter says, one decision about 0 hits per tier. Counts nothing.
    pub async fn inspect(&self, counter: &Counter<'_>) -> Result<Vec<Decision>, StoreError> {
        let now = self.store().now(&counter.key, self.clock.now())?;
        let step = algorithm::plan(counter.limit, 0, now);
        let outcome = self.store().apply_within(&counter.key, &step, None).await?;
        Ok(algorithm::report_tiers(counter.limit, &step, &outcome))
    }

    /// Empties the counter, also the one of `on_error: local`. Tells whether there was one.
    pub async fn forget(&self, counter: &Counter<'_>) -> Result<bool, StoreError> {
        let own = self.local().map(LocalCounters::store);
        let local = own.is_some_and(|store| store.remove(&counter.key));
        Ok(self.layers.forget(&counter.key).await? || local)
    }
}
