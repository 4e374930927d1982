//! Metrics of every active rule. Rules with `detailed_metric` or `value_to_metric` also have metrics
//! by value.

use std::hash::{BuildHasher, DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use arc_swap::ArcSwap;
use hashbrown::{DefaultHashBuilder, HashMap, HashTable};

use super::fallback_log::{FallbackPeriod, LabelledPeriod};
use super::history::OutcomeTotals;
use super::outcomes::{DecisionOutcome, OutcomeMetrics, OutcomeSnapshot, add};
use super::what_if::{WhatIfMetrics, WhatIfSnapshot};
use crate::decision::{Status, WhatIf};
use crate::descriptor::Entry;
use crate::rules::{Rule, RuleSet};
use crate::sharded::Sharded;
use crate::store::StoreError;

#[cfg(test)]
mod tests;

/// Longest name with values, in bytes. Decisions with a longer name count as [`OVERFLOW`]. Together
/// with the number of series, it bounds the memory of all names and the size of a metrics page.
const VALUES_BYTES_MAX: usize = 256;

/// The name under which decisions over a bound are counted. No selector is equal to it, because the
/// value `overflow` is written with a backslash.
pub(super) const OVERFLOW: &str = "overflow";

/// Most rules of which those without decisions have series on a metrics page, too. The series of a million
/// rules would take 435 MB of text.
const ZERO_SERIES_MAX: usize = 10_000;

/// The series of the rules of one [`RuleSet`], found by rule index.
#[derive(Debug, Default)]
pub struct RuleMetrics {
    series: Vec<Arc<RuleSeries>>,
    /// One more than that of the rules before. Without rules, it is 0.
    generation: u32,
}

/// The metrics of one rule.
#[derive(Debug)]
pub struct RuleSeries {
    /// The rule's domain.
    pub domain: Arc<str>,
    /// The rule name, unique in the domain.
    pub rule: Arc<str>,
    /// A hash of the rule's name in envoyproxy/ratelimit's metrics. Two names of one rule have the same
    /// hash with a probability of 2^-64.
    stat_key_hash: u64,
    /// Made with the first decision: most of a million rules decide nothing.
    counts: OnceLock<Box<RuleCounts>>,
    values: Option<Box<Values>>,
}

/// What the decisions of one rule change.
#[derive(Debug, Default)]
struct RuleCounts {
    outcomes: Sharded<OutcomeMetrics>,
    fallback: FallbackPeriod,
    /// Made with the first result: few rules have a what-if limit.
    what_if: OnceLock<Sharded<WhatIfMetrics>>,
}

/// The series of one rule by values of requests. The budget bounds their number. Reads take no lock.
#[derive(Debug)]
struct Values {
    /// The rule's name in envoyproxy/ratelimit's metrics.
    stat_key: Box<str>,
    budget: Arc<SeriesBudget>,
    /// The series, by the rule's selector with values.
    series: ArcSwap<HashMap<Box<str>, Arc<ValueSeries>>>,
    /// Locked only to add a series, which the budget bounds.
    adding: Mutex<()>,
    overflow: OutcomeMetrics,
    overflow_is_used: AtomicU64,
}

/// The metrics of one combination of values.
#[derive(Debug)]
struct ValueSeries {
    stat_key: Box<str>,
    outcomes: OutcomeMetrics,
}

/// The bound of series by value, shared by all rules.
#[derive(Debug)]
pub struct SeriesBudget {
    pub(super) max: usize,
    pub(super) taken: AtomicUsize,
    /// Decisions counted under [`OVERFLOW`].
    pub(super) overflow: AtomicU64,
}

impl SeriesBudget {
    /// A budget of `max` series by value.
    pub fn new(max: usize) -> SeriesBudget {
        SeriesBudget { max, taken: AtomicUsize::new(0), overflow: AtomicU64::new(0) }
    }

    fn take(&self) -> bool {
        let free = |taken: usize| (taken < self.max).then(|| taken + 1);
        self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, free).is_ok()
    }

    fn is_full(&self) -> bool {
        self.taken.load(Ordering::Relaxed) >= self.max
    }
}

impl RuleMetrics {
    /// Series for every rule of `rules`. A rule with the name of an earlier one has its series in `before`,
    /// and keeps the counts. With another name, it begins new series.
    pub fn new(rules: &RuleSet, before: &RuleMetrics, budget: &Arc<SeriesBudget>) -> RuleMetrics {
        let mut by_name: Option<SeriesByName<'_>> = None;
        let series = |rule: &Rule| {
            // Most rules of a reload have their index from before.
            let known = before.series.get(rule.index).filter(|one| one.is_of(rule)).or_else(|| {
                by_name.get_or_insert_with(|| SeriesByName::new(&before.series)).find(rule)
            });
            match known.filter(|known| known.fits(rule)) {
                Some(same) => Arc::clone(same),
                None => Arc::new(RuleSeries::new(rule, budget)),
            }
        };
        let series = rules.rules().iter().map(series).collect();
        RuleMetrics { series, generation: before.generation.saturating_add(1) }
    }

    /// A number that is larger for newer rules of the process.
    pub(super) fn generation(&self) -> u32 {
        self.generation
    }

    /// The series of the rule at `index`.
    pub fn get(&self, index: usize) -> Option<&Arc<RuleSeries>> {
        self.series.get(index)
    }

    /// Whether a metrics page shows `series`. With more than 10,000 rules, it shows those that have counted
    /// something, and else those of every rule.
    pub(super) fn shows(&self, series: &RuleSeries) -> bool {
        self.series.len() <= ZERO_SERIES_MAX || series.is_used()
    }

    /// The series of every rule, in file order.
    pub fn all(&self) -> &[Arc<RuleSeries>] {
        &self.series
    }
}

impl RuleSeries {
    fn new(rule: &Rule, budget: &Arc<SeriesBudget>) -> RuleSeries {
        let values = || Values {
            stat_key: rule.written_stat_key().into(),
            budget: budget.clone(),
            series: ArcSwap::default(),
            adding: Mutex::default(),
            overflow: OutcomeMetrics::default(),
            overflow_is_used: AtomicU64::new(0),
        };
        let values = rule.is_detailed().then(|| Box::new(values()));
        RuleSeries {
            domain: rule.domain.clone(),
            rule: rule.display_name.clone(),
            stat_key_hash: stat_key_hash(rule),
            counts: OnceLock::new(),
            values,
        }
    }

    /// Whether these series, made for an earlier rule, can count for `rule`, which has the same name: both
    /// have one stat key, and both have metrics by value, or neither has.
    fn fits(&self, rule: &Rule) -> bool {
        let is_detailed = rule.is_detailed();
        // Only rules with equal paths share the text of a name.
        let has_same_path = Arc::ptr_eq(&self.rule, &rule.display_name);
        self.values.is_some() == is_detailed
            && (has_same_path || self.stat_key_hash == stat_key_hash(rule))
    }

    /// Whether `rule` has the name of these series.
    fn is_of(&self, rule: &Rule) -> bool {
        self.rule == rule.display_name && self.domain == rule.domain
    }

    /// Counts one status that `rule` decided.
    pub(super) fn record(
        &self,
        rule: &Rule,
        entries: &[Entry<'_>],
        status: &Status,
    ) -> Option<DecisionOutcome> {
        if let Some(values) = &self.values {
            values.record(rule, entries, status);
        }
        self.counts().outcomes.local().record(status)
    }

    fn counts(&self) -> &RuleCounts {
        self.counts.get_or_init(Box::default)
    }

    /// Whether the rule has counted something.
    pub fn is_used(&self) -> bool {
        self.counts.get().is_some()
    }

    /// The counts so far, for the history.
    pub(super) fn totals(&self) -> OutcomeTotals {
        let mut totals = OutcomeTotals::default();
        self.shards().for_each(|shard| shard.add_totals_to(&mut totals));
        totals
    }

    /// Counts one result of the rule's what-if limit.
    pub(super) fn record_what_if(&self, result: &WhatIf) {
        self.counts().what_if.get_or_init(Sharded::default).local().record(result);
    }

    /// The counts of the rule's what-if limit; `None` before its first result.
    pub(super) fn what_if(&self) -> Option<WhatIfSnapshot> {
        let shards = self.counts.get()?.what_if.get()?;
        Some(shards.all().fold(WhatIfSnapshot::default(), |sum, shard| shard.added_to(sum)))
    }

    /// The counts of all shards.
    fn shards(&self) -> impl Iterator<Item = &OutcomeMetrics> {
        self.counts.get().into_iter().flat_map(|counts| counts.outcomes.all())
    }

    /// The counts so far.
    pub fn snapshot(&self) -> OutcomeSnapshot {
        let mut snapshot = OutcomeSnapshot::default();
        self.shards().for_each(|shard| shard.add_to(&mut snapshot));
        snapshot
    }

    /// The fallback period of `rule`, whose series these are.
    pub(super) fn fallback_period<'a>(&'a self, rule: &'a Rule) -> LabelledPeriod<'a> {
        LabelledPeriod { period: &self.counts().fallback, rule }
    }

    /// Decisions by the fallback so far, in the order of [`StoreError::ALL`].
    pub fn causes(&self) -> [u64; StoreError::ALL.len()] {
        let mut causes = [0; StoreError::ALL.len()];
        self.shards().for_each(|shard| shard.add_causes_to(&mut causes));
        causes
    }

    /// The counts by value, with selector and envoyproxy/ratelimit's name, sorted.
    pub(super) fn values(&self) -> Vec<(Box<str>, Box<str>, OutcomeSnapshot)> {
        let Some(values) = &self.values else { return Vec::new() };
        let read = |outcomes: &OutcomeMetrics| {
            let mut snapshot = OutcomeSnapshot::default();
            outcomes.add_to(&mut snapshot);
            snapshot
        };
        let series = values.series.load();
        let mut all: Vec<_> = series
            .iter()
            .map(|(name, one)| (name.clone(), one.stat_key.clone(), read(&one.outcomes)))
            .collect();
        all.sort_by(|a, b| a.0.cmp(&b.0));
        if values.overflow_is_used.load(Ordering::Relaxed) > 0 {
            all.push((OVERFLOW.into(), values.stat_key.clone(), read(&values.overflow)));
        }
        all
    }
}

/// Finds the series of a rule by its name. It is needed only during a reload, and so it has no copies of
/// the names.
struct SeriesByName<'a> {
    series: &'a [Arc<RuleSeries>],
    indexes: HashTable<u32>,
    hasher: DefaultHashBuilder,
}

impl<'a> SeriesByName<'a> {
    fn new(series: &'a [Arc<RuleSeries>]) -> SeriesByName<'a> {
        let hasher = DefaultHashBuilder::default();
        let mut indexes = HashTable::with_capacity(series.len());
        let hash = |index: &u32| hasher.hash_one(name_of(&series[*index as usize]));
        for index in (0..).take(series.len()) {
            indexes.insert_unique(hash(&index), index, hash);
        }
        SeriesByName { series, indexes, hasher }
    }

    fn find(&self, rule: &Rule) -> Option<&'a Arc<RuleSeries>> {
        let hash = self.hasher.hash_one((&*rule.domain, &*rule.display_name));
        let is_it = |index: &u32| self.series[*index as usize].is_of(rule);
        let index = self.indexes.find(hash, is_it)?;
        self.series.get(*index as usize)
    }
}

fn name_of(series: &RuleSeries) -> (&str, &str) {
    (&series.domain, &series.rule)
}

fn stat_key_hash(rule: &Rule) -> u64 {
    let mut hasher = DefaultHasher::new();
    rule.written_stat_key().hash(&mut hasher);
    hasher.finish()
}

impl Values {
    fn record(&self, rule: &Rule, entries: &[Entry<'_>], status: &Status) {
        let Some(mut name) = rule.detailed_selector(entries) else { return };
        if name == OVERFLOW {
            name.insert(0, '\\');
        }
        if let Some(known) = self.series.load().get(&*name) {
            known.outcomes.record(status);
            return;
        }
        match self.add(name, rule, entries) {
            Some(new) => new.outcomes.record(status),
            None => {
                add(&self.budget.overflow, 1);
                self.overflow_is_used.store(1, Ordering::Relaxed);
                self.overflow.record(status)
            }
        };
    }

    /// Adds a series for `name`. `None` if the name is too long or the budget is used up.
    fn add(&self, name: String, rule: &Rule, entries: &[Entry<'_>]) -> Option<Arc<ValueSeries>> {
        if name.len() > VALUES_BYTES_MAX || self.budget.is_full() {
            return None;
        }
        let _alone = self.adding.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.series.load();
        if let Some(known) = now.get(&*name) {
            return Some(known.clone());
        }
        if !self.budget.take() {
            return None;
        }
        let stat_key = rule.stat_key(entries).into();
        let new = Arc::new(ValueSeries { stat_key, outcomes: OutcomeMetrics::default() });
        let mut more = HashMap::clone(&now);
        more.insert(name.into(), new.clone());
        self.series.store(Arc::new(more));
        Some(new)
    }
}

impl Drop for Values {
    fn drop(&mut self) {
        self.budget.taken.fetch_sub(self.series.load().len(), Ordering::Relaxed);
    }
}
