//! The rules that have buckets: what a quota needs of its rule, and the counts of the rule.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::atomic_count::AtomicCount;
use crate::key::RuleId;
use crate::limit::OnError;
use crate::rules::{Rule, RuleLimit, RuleSet};

/// A rule that a bucket matches. It outlives reloads that keep the rule's identity.
#[derive(Debug)]
pub struct QuotaRule {
    /// The identity.
    pub id: RuleId,
    /// The domain.
    pub domain: Arc<str>,
    /// The rule name. A reload may change it.
    name: Mutex<Arc<str>>,
    selector: Box<str>,
    /// Requests that Envoys allowed.
    pub allowed: AtomicCount,
    /// Requests that Envoys denied.
    pub denied: AtomicCount,
    /// Requests that passed because of `shadow_mode`, and would have been denied.
    pub shadow_denied: AtomicCount,
    is_shadow: AtomicBool,
    renews_without_ledger: AtomicBool,
}

impl QuotaRule {
    fn new(rule: &Rule, on_error: OnError) -> QuotaRule {
        let known = QuotaRule {
            id: rule.id,
            domain: rule.domain.clone(),
            name: Mutex::new(rule.display_name.clone()),
            selector: rule.selector().into(),
            allowed: AtomicCount::default(),
            denied: AtomicCount::default(),
            shadow_denied: AtomicCount::default(),
            is_shadow: AtomicBool::default(),
            renews_without_ledger: AtomicBool::default(),
        };
        known.update(rule, on_error);
        known
    }

    fn update(&self, rule: &Rule, on_error: OnError) {
        self.is_shadow.store(rule.shadow_mode, Ordering::Relaxed);
        let renews = rule.on_error.unwrap_or(on_error) != OnError::Deny;
        self.renews_without_ledger.store(renews, Ordering::Relaxed);
        *self.lock_name() = rule.display_name.clone();
    }

    /// The rule name.
    pub fn name(&self) -> Arc<str> {
        self.lock_name().clone()
    }

    /// The selector, if the rule name is another text.
    pub(super) fn other_selector(&self) -> Option<String> {
        (*self.selector != *self.name()).then(|| self.selector.to_string())
    }

    fn lock_name(&self) -> MutexGuard<'_, Arc<str>> {
        self.name.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether denials of the rule pass.
    pub fn is_shadow(&self) -> bool {
        self.is_shadow.load(Ordering::Relaxed)
    }

    /// Whether its holders keep their last share while the store fails.
    pub(super) fn renews_without_ledger(&self) -> bool {
        self.renews_without_ledger.load(Ordering::Relaxed)
    }
}

/// The rules that have buckets, by identity. At most one per rule of the active rules, and those that
/// still have buckets.
#[derive(Debug, Default)]
pub(super) struct QuotaRules(Mutex<HashMap<RuleId, Arc<QuotaRule>>>);

impl QuotaRules {
    /// The entry of `rule`. `on_error` is the fallback of rules without their own.
    pub(super) fn of(&self, rule: &Rule, on_error: OnError) -> Arc<QuotaRule> {
        let mut rules = self.lock();
        let known = rules.entry(rule.id).or_insert_with(|| QuotaRule::new(rule, on_error).into());
        known.clone()
    }

    /// All entries.
    pub(super) fn all(&self) -> Vec<Arc<QuotaRule>> {
        self.lock().values().cloned().collect()
    }

    /// Updates the entries after a reload, and deletes those that neither a rule nor a bucket has.
    /// Calls `changed` with each rule that has an entry and a limit. Holds no lock while it reads the
    /// rules: there may be a million, and reports wait for [`of`](QuotaRules::of).
    pub(super) fn reload(&self, set: &RuleSet, on_error: OnError, mut changed: impl FnMut(&Rule)) {
        let mut old = self.lock().clone();
        for rule in set.rules() {
            // Most rules have no entry, and without RLQS none has.
            if old.is_empty() {
                break;
            }
            let Some(known) = old.remove(&rule.id) else { continue };
            known.update(rule, on_error);
            if matches!(rule.limit, RuleLimit::Limit(_)) {
                changed(rule);
            }
        }
        let gone: HashSet<RuleId> = old.into_keys().collect();
        // Those that buckets use stay until their next report. A new entry is not gone.
        self.lock().retain(|id, known| !gone.contains(id) || Arc::strong_count(known) > 1);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<RuleId, Arc<QuotaRule>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
