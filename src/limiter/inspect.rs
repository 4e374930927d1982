//! Inspection: shows operators the state of a counter, and deletes it on request.
//!
//! Inspection queries the store, without the consistency modes. For leased rules the store counts
//! credits that no request has spent yet. For synced rules it lacks hits that are not exchanged yet.

use crate::algorithm;
use crate::decision::Decision;
use crate::descriptor::{Entry, split_lease};
use crate::key::{CounterKey, KeySeed, what_if_key};
use crate::limit::Limit;
use crate::plans::PlanChoice;
use crate::rules::{Found, Rule, RuleLimit, RuleSet};
use crate::store::{SharedStore, StoreError};
use crate::time::Micros;

use super::{Limiter, LocalCounters, resolve};

/// The counter that a descriptor resolves to.
#[derive(Clone, Copy, Debug)]
pub struct Counter<'r> {
    /// The counter's rule.
    pub rule: &'r Rule,
    /// The rule's limit, or that of a plan ([`Limiter::plan_of`]).
    pub limit: &'r Limit,
    /// The counter's key.
    pub key: CounterKey,
}

impl<'r> Counter<'r> {
    /// The counter of the rule's what-if limit beside this one; `None` without such a limit.
    pub fn what_if(&self) -> Option<Counter<'r>> {
        let what_if = self.rule.what_if.as_deref()?;
        let key = what_if_key(&self.key, what_if.id);
        Some(Counter { rule: self.rule, limit: &what_if.limit, key })
    }
}

/// Why a descriptor has no counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoCounter {
    /// No file defines the domain.
    UnknownDomain,
    /// No rule matches the descriptor.
    NoRule,
    /// The matching rule is unlimited.
    Unlimited,
}

/// The counter of a descriptor with these entries, with its key under `seed`. A `lease` entry is not
/// part of the counter.
///
/// # Errors
///
/// [`NoCounter`] if the descriptor has no counter.
pub fn find_counter<'r>(
    seed: &KeySeed,
    rules: &'r RuleSet,
    domain: &str,
    entries: &[Entry<'_>],
) -> Result<Counter<'r>, NoCounter> {
    let leased = resolve::rule_with_leases(rules, domain, entries);
    let (rule, entries) = match &leased {
        Some((rule, _, others)) => (*rule, &**others),
        None => match rules.find(domain, entries) {
            Found::UnknownDomain => return Err(NoCounter::UnknownDomain),
            Found::NoRule => return Err(NoCounter::NoRule),
            Found::Rule(rule) => (rule, entries),
        },
    };
    match &rule.limit {
        RuleLimit::Unlimited => Err(NoCounter::Unlimited),
        RuleLimit::Limit(limit) => Ok(Counter { rule, limit, key: rule.key(seed, entries) }),
    }
}

impl<S: SharedStore> Limiter<S> {
    /// The counter of a descriptor with these entries. A `lease` entry is not part of the counter.
    ///
    /// # Errors
    ///
    /// [`NoCounter`] if the descriptor has no counter.
    pub fn counter<'r>(
        &self,
        rules: &'r RuleSet,
        domain: &str,
        entries: &[Entry<'_>],
    ) -> Result<Counter<'r>, NoCounter> {
        find_counter(&self.seed, rules, domain, entries)
    }

    /// The plan of the descriptor with these entries, whose counter is `counter`. `None` if its rule does
    /// not use plans, or without a source of plans. A `lease` entry is not part of the counter.
    pub fn plan_of<'r>(
        &self,
        counter: &Counter<'r>,
        entries: &[Entry<'_>],
    ) -> Option<PlanChoice<'r>> {
        let plans = self.plans()?;
        let Counter { rule, limit, .. } = *counter;
        let others = split_lease(entries).filter(|_| rule.leases()).map(|(_, others)| others);
        plans.choice(rule, limit, others.as_deref().unwrap_or(entries))
    }

    /// The counter's state at `local` by the local clock: one decision about 0 hits per tier.
    /// Counts nothing.
    ///
    /// # Errors
    ///
    /// The store's error, if the counter cannot be queried.
    pub async fn inspect(
        &self,
        counter: &Counter<'_>,
        local: Micros,
    ) -> Result<Vec<Decision>, StoreError> {
        let now = self.backend.now(&counter.key, local)?;
        let step = algorithm::plan(counter.limit, 0, now);
        let outcome = self.backend.apply(&counter.key, &step).await?;
        Ok(algorithm::report_tiers(counter.limit, &step, &outcome))
    }

    /// Whether the quota service divides the limit of `rule` now, so that shares decide instead of counters.
    pub fn divides(&self, rule: &Rule) -> bool {
        self.divided().is_some_and(|rules| rules.divides(rule))
    }

    /// Deletes the counter, its local counter of `on_error: local`, and that of its what-if limit.
    /// Returns whether one of the first two existed.
    ///
    /// # Errors
    ///
    /// The store's error, if the counter may still exist.
    pub async fn delete(&self, counter: &Counter<'_>) -> Result<bool, StoreError> {
        let local = self.local().map(LocalCounters::store);
        let had_local = local.is_some_and(|store| store.delete(&counter.key));
        if let Some(what_if) = counter.what_if() {
            self.backend.delete(&what_if.key).await?;
        }
        Ok(self.backend.delete(&counter.key).await? || had_local)
    }
}
