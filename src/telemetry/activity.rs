//! What the rules decide now and have decided in the last ten minutes, for pages.
//!
//! A rule is read from its first decision on: [`UsedRules`] lists it then. So a million rules without
//! decisions cost nothing. Decisions only add to the counts of their rule, and wait for no page.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hashbrown::{HashMap, HashSet};
use serde::Serialize;

use super::history::{ChangedRule, History, OutcomeTotals, RuleHistory, RuleRates, per_second};
use super::requests::{RequestSample, Requests};
use super::rule_metrics::{RuleMetrics, RuleSeries};
use crate::time::Micros;

#[cfg(test)]
mod tests;

/// The rules that have decided something since they were last read.
#[derive(Debug, Default)]
pub(super) struct UsedRules(Mutex<Vec<ListedRule>>);

/// A rule before its first decision.
#[derive(Debug)]
struct ListedRule {
    series: Arc<RuleSeries>,
    /// Its index in the rules of `generation`.
    index: usize,
    /// The generation of the rules that decided.
    generation: u32,
}

/// The activity of the rules of one process.
#[derive(Debug)]
pub(super) struct Activity(Mutex<ActivityTable>);

#[derive(Debug)]
struct ActivityTable {
    /// The version of the rules for which the indices are correct.
    version: Option<u64>,
    /// By the address of the series, which stays the same as long as `series` is held.
    used: HashMap<usize, UsedRule>,
    history: History<usize>,
    requests: RequestSample,
    rates: Option<DecisionRates>,
}

/// A rule that has decided something. It takes 48 bytes with its key, and at most 128 in a table that has grown.
#[derive(Debug)]
struct UsedRule {
    series: Arc<RuleSeries>,
    /// Its index in the active rules; `None` if it is not one of them.
    index: Option<usize>,
    /// The generation of the rules that made its first decision.
    generation: u32,
    /// Its decisions until the end of the last tick.
    decisions: u64,
    /// Whether no tick has ended since its first decision.
    is_new: bool,
}

/// The rates of all decisions of the process in the last tick.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct DecisionRates {
    /// Requests that were decided, per second.
    pub per_second: f64,
    /// Requests that were denied, per second.
    pub denied_per_second: f64,
    /// Decisions of rules with the outcome `near`, per second. As for `fallback_per_second`, only rules
    /// with a history are counted.
    pub near_per_second: f64,
    /// Decisions of rules with the outcome `fallback`, per second.
    pub fallback_per_second: f64,
    /// The duration within which half of the requests were decided, in milliseconds; `None` without
    /// requests.
    pub p50_ms: Option<f64>,
    /// The duration within which 99 % of the requests were decided.
    pub p99_ms: Option<f64>,
}

/// The totals of the rules at the last event of the live page.
#[derive(Debug, Default)]
pub struct LiveSample {
    at: Micros,
    /// By the address of the series, which no other series has as long as it is held here.
    totals: HashMap<usize, (Arc<RuleSeries>, OutcomeTotals)>,
}

/// The active rules, with their version and metrics.
#[derive(Clone, Copy)]
pub struct ActiveSeries<'a> {
    /// The number of rule sets that were active before.
    pub version: u64,
    /// The series of each rule.
    pub metrics: &'a RuleMetrics,
}

impl ActiveSeries<'_> {
    /// The index of `rule` in these rules. `None` if it is not one of them, or if the table has the indices
    /// of newer rules and this one has changed.
    fn index_of(&self, rule: &UsedRule) -> Option<usize> {
        rule.index.filter(|index| self.has(&rule.series, *index))
    }

    fn has(&self, series: &Arc<RuleSeries>, index: usize) -> bool {
        self.metrics.get(index).is_some_and(|other| Arc::ptr_eq(other, series))
    }
}

impl UsedRules {
    /// Adds a rule before its first decision. Threads may add a rule twice.
    #[cold]
    pub(super) fn add(&self, metrics: &RuleMetrics, series: &Arc<RuleSeries>, index: usize) {
        let (series, generation) = (Arc::clone(series), metrics.generation());
        self.lock().push(ListedRule { series, index, generation });
    }

    fn take(&self) -> Vec<ListedRule> {
        std::mem::take(&mut *self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, Vec<ListedRule>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Activity {
    /// No activity, of a process that started at `now`.
    pub(super) fn new(now: Micros) -> Activity {
        Activity(Mutex::new(ActivityTable {
            version: None,
            used: HashMap::new(),
            history: History::new(now),
            requests: RequestSample::default(),
            rates: None,
        }))
    }

    /// Ends a tick at `now`. It takes as long as reading the counts of all rules that have decided
    /// something, so it needs a thread that may block.
    pub(super) fn tick(
        &self,
        now: Micros,
        active: ActiveSeries<'_>,
        used: &UsedRules,
        requests: &Requests,
    ) {
        let mut table = self.lock();
        table.refresh(active, used);
        table.tick(now, requests);
    }

    /// Reads the activity for a page. Rules that have decided something since the last tick are included.
    pub(super) fn read<T>(
        &self,
        active: ActiveSeries<'_>,
        used: &UsedRules,
        read: impl FnOnce(&ActivityReader<'_>) -> T,
    ) -> T {
        let mut table = self.lock();
        table.refresh(active, used);
        read(&ActivityReader { table: &table, active })
    }

    /// The rates of the rules between two events of the live page, by index, of rules with decisions. The
    /// first event has those of the last tick. Rules without a history are left out: the number of those
    /// with one is bounded, and an event comes every 2 s.
    pub(super) fn sample(
        &self,
        last: &mut Option<LiveSample>,
        now: Micros,
        active: ActiveSeries<'_>,
        used: &UsedRules,
    ) -> Vec<(usize, RuleRates)> {
        let mut table = self.lock();
        table.refresh(active, used);
        let (length, mut totals) = (table.history.length(), HashMap::new());
        let mut rates = Vec::new();
        for (key, rule) in &table.used {
            let Some(index) = active.index_of(rule) else { continue };
            // A new rule has no history before the end of its first tick.
            if !rule.is_new && !table.history.has(*key) {
                continue;
            }
            let read = rule.series.totals();
            totals.insert(*key, (Arc::clone(&rule.series), read));
            let (added, length) = match last {
                None => (table.history.last(*key), length),
                Some(last) => {
                    let before = last.totals.get(key);
                    (before.map(|(_, before)| read.since(before)), now.saturating_sub(last.at))
                }
            };
            if let Some(added) = added.filter(|added| added.decisions > 0) {
                rates.push((added.decisions, index, added.rates(length)));
            }
        }
        *last = Some(LiveSample { at: now, totals });
        rates.sort_by_key(|(decisions, index, _)| (std::cmp::Reverse(*decisions), *index));
        rates.into_iter().map(|(_, index, rates)| (index, rates)).collect()
    }

    fn lock(&self) -> MutexGuard<'_, ActivityTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The activity as a page reads it.
pub struct ActivityReader<'a> {
    table: &'a ActivityTable,
    active: ActiveSeries<'a>,
}

impl ActivityReader<'_> {
    /// The end of the last tick; `None` before the first one.
    pub fn until(&self) -> Option<Micros> {
        self.table.history.until()
    }

    /// The rates of all decisions in the last tick; `None` before its end.
    pub fn rates(&self) -> Option<DecisionRates> {
        self.table.rates
    }

    /// The indices of the active rules that have decided something, in no order.
    pub fn used(&self) -> impl Iterator<Item = usize> {
        self.table.used.values().filter_map(move |rule| self.active.index_of(rule))
    }

    /// The rates of the rule with these series in the last tick; `None` if they are not known.
    pub fn rates_of(&self, series: &Arc<RuleSeries>) -> Option<RuleRates> {
        let history = &self.table.history;
        history.last(address(series)).map(|last| last.rates(history.length()))
    }

    /// The history of the rule with these series; `None` if it has none.
    pub fn history_of(&self, series: &Arc<RuleSeries>) -> Option<RuleHistory> {
        self.table.history.read(address(series))
    }
}

impl ActivityTable {
    /// Adds the rules that have decided something since, and removes those that are not active any more.
    /// After a reload, this reads the list of all rules once. A caller may have taken its rules before a
    /// reload: rules older than those of the last call change nothing, and the rules that newer ones have
    /// listed stay until a call has these.
    fn refresh(&mut self, active: ActiveSeries<'_>, used: &UsedRules) {
        if self.version > Some(active.version) {
            return;
        }
        let mut is_outdated = self.version != Some(active.version);
        for ListedRule { series, index, generation } in used.take() {
            // A request may have used the rules before, or those after.
            let index = active.has(&series, index).then_some(index);
            is_outdated |= index.is_none();
            let key = address(&series);
            let new = || UsedRule { series, index, generation, decisions: 0, is_new: true };
            self.used.entry(key).or_insert_with(new);
        }
        if !is_outdated {
            return;
        }
        self.version = Some(active.version);
        self.used.values_mut().for_each(|rule| rule.index = None);
        for (index, series) in active.metrics.all().iter().enumerate() {
            if let Some(rule) = self.used.get_mut(&address(series)) {
                rule.index = Some(index);
            }
        }
        let generation = active.metrics.generation();
        self.used.retain(|_, rule| rule.index.is_some() || rule.generation > generation);
        let kept: HashSet<usize> = self.used.keys().copied().collect();
        self.history.retain(&kept);
    }

    fn tick(&mut self, now: Micros, requests: &Requests) {
        let mut changed = Vec::new();
        for (key, rule) in &mut self.used {
            let totals = rule.series.totals();
            let decisions = totals.decisions.wrapping_sub(rule.decisions);
            if decisions > 0 {
                let is_new = rule.is_new;
                changed.push(ChangedRule { key: *key, totals, decisions, is_new });
            }
            (rule.decisions, rule.is_new) = (totals.decisions, false);
        }
        self.history.tick(now, &changed);
        let length = self.history.length();
        let sample = requests.sample();
        let added = sample.since(&self.requests);
        let sum = |of: fn(&OutcomeTotals) -> u64| -> u64 {
            let last = self.history.keys().filter_map(|key| self.history.last(key));
            last.map(|last| of(&last)).sum()
        };
        let millis = |seconds: f64| (seconds * 1e6).round() / 1e3;
        self.rates = Some(DecisionRates {
            per_second: per_second(added.ok + added.over_limit, length),
            denied_per_second: per_second(added.over_limit, length),
            near_per_second: per_second(sum(|last| last.near), length),
            fallback_per_second: per_second(sum(|last| last.fallback), length),
            p50_ms: added.durations.quantile(0.5).map(millis),
            p99_ms: added.durations.quantile(0.99).map(millis),
        });
        self.requests = sample;
    }
}

/// The name of a rule in the tables.
fn address(series: &Arc<RuleSeries>) -> usize {
    Arc::as_ptr(series) as usize
}
