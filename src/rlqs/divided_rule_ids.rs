//! The rules whose limits are divided: those with buckets here, and those that other instances
//! announced in Redis.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;

use crate::key::RuleId;
use crate::time::Micros;

/// Parts of the set. The first bucket of a rule copies one of them.
const PARTS: usize = 64;

/// The divided rules. Reading them takes no lock.
#[derive(Debug)]
pub(super) struct DividedRuleIds {
    /// Whether there is one. Shared with the limiter.
    any: Arc<AtomicBool>,
    ids: [ArcSwap<HashSet<RuleId>>; PARTS],
    sources: Mutex<Sources>,
}

#[derive(Debug, Default)]
struct Sources {
    own: HashMap<RuleId, OwnBuckets>,
    announced: HashSet<RuleId>,
}

/// Buckets of one rule in this process.
#[derive(Debug, Default)]
struct OwnBuckets {
    number: usize,
    /// Until when Envoys without a stream may use what they have.
    used_until: Micros,
}

impl Default for DividedRuleIds {
    fn default() -> Self {
        let ids = std::array::from_fn(|_| ArcSwap::default());
        DividedRuleIds { any: Arc::default(), ids, sources: Mutex::default() }
    }
}

/// The part of a rule. Identities are hashes, so their bits are random.
fn part(rule: RuleId) -> usize {
    rule.0[0] as usize % PARTS
}

impl DividedRuleIds {
    /// Whether the limit of this rule is divided.
    pub(super) fn contains(&self, rule: RuleId) -> bool {
        self.any.load(Ordering::Relaxed) && self.ids[part(rule)].load().contains(&rule)
    }

    /// Whether any rule is divided.
    pub(super) fn any(&self) -> &Arc<AtomicBool> {
        &self.any
    }

    /// A bucket of `rule` appeared.
    pub(super) fn add(&self, rule: RuleId) {
        let mut sources = self.lock();
        let own = sources.own.entry(rule).or_default();
        own.number += 1;
        let ids = &self.ids[part(rule)];
        if own.number == 1 && !ids.load().contains(&rule) {
            let mut more = HashSet::clone(&ids.load());
            more.insert(rule);
            ids.store(Arc::new(more));
            self.any.store(true, Ordering::Relaxed);
        }
    }

    /// A bucket of `rule` ended. Its Envoy may use its assignment until `used_until`.
    pub(super) fn remove(&self, rule: RuleId, used_until: Micros) {
        if let Some(own) = self.lock().own.get_mut(&rule) {
            own.number = own.number.saturating_sub(1);
            own.used_until = own.used_until.max(used_until);
        }
    }

    /// Deletes the rules whose last assignment has expired.
    pub(super) fn expire(&self, now: Micros) {
        let mut sources = self.lock();
        let before = sources.own.len();
        sources.own.retain(|_, own| own.number > 0 || own.used_until > now);
        if sources.own.len() < before {
            self.publish(&sources);
        }
    }

    /// Replaces the rules that all instances announced.
    pub(super) fn set_announced(&self, rules: HashSet<RuleId>) {
        let mut sources = self.lock();
        if sources.announced != rules {
            sources.announced = rules;
            self.publish(&sources);
        }
    }

    /// The rules with buckets in this process.
    pub(super) fn own(&self) -> Vec<RuleId> {
        self.lock().own.keys().copied().collect()
    }

    /// Builds the set again from its sources.
    fn publish(&self, sources: &Sources) {
        let mut parts: [HashSet<RuleId>; PARTS] = std::array::from_fn(|_| HashSet::new());
        for rule in sources.own.keys().chain(&sources.announced) {
            parts[part(*rule)].insert(*rule);
        }
        let any = parts.iter().any(|part| !part.is_empty());
        for (ids, part) in self.ids.iter().zip(parts) {
            ids.store(Arc::new(part));
        }
        self.any.store(any, Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, Sources> {
        self.sources.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_is_divided_until_its_assignments_expire() {
        let divided = DividedRuleIds::default();
        let (a, b) = (RuleId([1, 1]), RuleId([2, 2]));
        let contains = || [a, b].map(|rule| divided.contains(rule));
        assert_eq!(contains(), [false, false]);
        divided.add(a);
        divided.add(a);
        assert_eq!(contains(), [true, false]);
        divided.remove(a, Micros(30));
        divided.expire(Micros(1_000));
        assert_eq!(contains(), [true, false], "one bucket is left");
        divided.remove(a, Micros(20));
        divided.expire(Micros(29));
        assert_eq!(contains(), [true, false], "the first one expires last");
        divided.set_announced(HashSet::from([b]));
        divided.expire(Micros(30));
        assert_eq!(contains(), [false, true]);
        assert_eq!(divided.own(), []);
        divided.set_announced(HashSet::new());
        assert!(!divided.any().load(Ordering::Relaxed));
        divided.remove(b, Micros(99));
        assert_eq!(contains(), [false, false], "it has no bucket");
    }
}
