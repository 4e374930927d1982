//! Metrics of all decisions of this process, counted in the series of their rules.
//!
//! The active rules bound the number of series. For rules with series by value (`detailed_metric`,
//! `value_to_metric`), a [`SeriesBudget`] bounds it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::activity::{ActiveSeries, Activity, ActivityReader, LiveSample, UsedRules};
use super::client_named_series::ClientNamedSeries;
use super::exposition::Exposition;
use super::fallback_log::FallbackLog;
use super::history::RuleRates;
use super::outcomes::{DecisionOutcome, OutcomeMetrics, OutcomeSnapshot, add};
use super::requests::Requests;
use super::rule_metrics::{RuleMetrics, RuleSeries, SeriesBudget};
use super::top::TopDenied;
use super::what_if::{OUTCOMES, WhatIfSnapshot};
use crate::decision::{DecisionReason, Verdict};
use crate::descriptor::{Descriptor, Request};
use crate::limit::Mode;
use crate::rules::{Rule, RuleSet};
use crate::sharded::Sharded;
use crate::store::StoreError;
use crate::time::Micros;

/// All decisions of this process.
pub struct Decisions {
    budget: Arc<SeriesBudget>,
    unmatched: Sharded<UnmatchedMetrics>,
    /// Series for the metrics of envoyproxy/ratelimit, if these are on.
    client_named_series: Option<ClientNamedSeries>,
    fallback_log: FallbackLog,
    /// The counters denied most.
    pub top: TopDenied,
    /// What the rules have decided in the last ten minutes.
    activity: Activity,
    used: UsedRules,
}

/// Counts of descriptors that no rule with a counter decided, and that no change of a rule decided.
#[derive(Debug, Default)]
struct UnmatchedMetrics {
    unknown_domain: AtomicU64,
    no_rule: AtomicU64,
    unlimited: AtomicU64,
    replaced: AtomicU64,
    blocked: AtomicU64,
    bypassed: AtomicU64,
    /// Decisions on limits that the request carried.
    overrides: OutcomeMetrics,
}

impl Decisions {
    /// An empty registry, of a process that started at `now`. `budget`, which all rules share, bounds the
    /// series by value.
    pub fn new(budget: Arc<SeriesBudget>, top: TopDenied, now: Micros) -> Decisions {
        Decisions {
            budget,
            unmatched: Sharded::default(),
            client_named_series: None,
            fallback_log: FallbackLog::default(),
            top,
            activity: Activity::new(now),
            used: UsedRules::default(),
        }
    }

    /// Adds the series of the metrics of envoyproxy/ratelimit whose names come from requests, at most
    /// `metrics.max_series` of each kind.
    pub fn with_client_named_series(self) -> Decisions {
        let client_named_series = Some(ClientNamedSeries::new(self.budget.max));
        Decisions { client_named_series, ..self }
    }

    /// Counts one verdict of `rules`, decided at `now`, in the series `rule_metrics` of these rules.
    /// `is_answering` returns whether every node of the store replies. It is called at most once a
    /// second per rule.
    pub fn record(
        &self,
        rules: &RuleSet,
        rule_metrics: &RuleMetrics,
        request: &Request<'_>,
        verdict: &Verdict,
        now: Micros,
        is_answering: impl Fn() -> bool,
    ) {
        for (descriptor, status) in request.descriptors.iter().zip(&verdict.statuses) {
            match status.reason {
                DecisionReason::Counted { rule: Some(index), hits, .. }
                | DecisionReason::Fallback { rule: Some(index), hits, .. } => {
                    let known = rules.rules().get(index).zip(rule_metrics.get(index));
                    let Some((rule, series)) = known else { continue };
                    self.list(rule_metrics, series, index);
                    let outcome = series.record(rule, descriptor.entries, status);
                    if outcome == Some(DecisionOutcome::Over) {
                        self.denied(rule, series, descriptor, hits, now);
                    }
                    let period = series.fallback_period(rule);
                    let fallbacks = || series.causes().iter().sum();
                    if let DecisionReason::Fallback { error, .. } = status.reason {
                        self.fallback_log.fell_back(period, fallbacks, error, now);
                    } else if period.period.is_open() {
                        let reason = status.reason;
                        let by_shared_store =
                            matches!(reason, DecisionReason::Counted { by_shared_store: true, .. });
                        if by_shared_store || counts_later(rule.mode) {
                            let is_counted = || by_shared_store || is_answering();
                            self.fallback_log.decided(period, fallbacks, now, is_counted);
                        }
                    }
                }
                // Not one series per limit, because clients would then choose the number of series.
                DecisionReason::Counted { rule: None, .. }
                | DecisionReason::Fallback { rule: None, .. } => {
                    self.unmatched.local().overrides.record(status);
                    if let Some(series) = &self.client_named_series {
                        series.count_override(request.domain, descriptor.entries, status);
                    }
                }
                DecisionReason::UnknownDomain => {
                    add(&self.unmatched.local().unknown_domain, 1);
                    if let Some(series) = &self.client_named_series {
                        series.count_unknown_domain(request.domain);
                    }
                }
                DecisionReason::NoRule => add(&self.unmatched.local().no_rule, 1),
                DecisionReason::Unlimited(_) => add(&self.unmatched.local().unlimited, 1),
                DecisionReason::Replaced(_) => add(&self.unmatched.local().replaced, 1),
                DecisionReason::Blocked { rule: Some(index), .. }
                | DecisionReason::Bypassed { rule: Some(index) } => {
                    let known = rules.rules().get(index).zip(rule_metrics.get(index));
                    if let Some((rule, series)) = known {
                        self.list(rule_metrics, series, index);
                        series.record(rule, descriptor.entries, status);
                    }
                }
                DecisionReason::Blocked { rule: None, .. } => {
                    add(&self.unmatched.local().blocked, 1);
                }
                DecisionReason::Bypassed { rule: None } => {
                    add(&self.unmatched.local().bypassed, 1);
                }
            }
        }
        for result in &verdict.what_if {
            if let Some(series) = rule_metrics.get(result.rule) {
                self.list(rule_metrics, series, result.rule);
                series.record_what_if(result);
            }
        }
    }

    /// Lists a rule before its first decision.
    fn list(&self, rule_metrics: &RuleMetrics, series: &Arc<RuleSeries>, index: usize) {
        if !series.is_used() {
            self.used.add(rule_metrics, series, index);
        }
    }

    /// Ends a tick of the history at `now`. It needs a thread that may block.
    pub fn end_tick(&self, now: Micros, active: ActiveSeries<'_>, requests: &Requests) {
        self.activity.tick(now, active, &self.used, requests);
    }

    /// Reads the activity of the rules. It needs a thread that may block.
    pub fn activity<T>(
        &self,
        active: ActiveSeries<'_>,
        read: impl FnOnce(&ActivityReader<'_>) -> T,
    ) -> T {
        self.activity.read(active, &self.used, read)
    }

    /// The rates of the rules since `last`, by index, of rules with decisions, most decisions first. Sets
    /// `last` to `now`. It needs a thread that may block.
    pub fn sample(
        &self,
        last: &mut Option<LiveSample>,
        now: Micros,
        active: ActiveSeries<'_>,
    ) -> Vec<(usize, RuleRates)> {
        self.activity.sample(last, now, active, &self.used)
    }

    #[cold]
    fn denied(
        &self,
        rule: &Rule,
        series: &RuleSeries,
        descriptor: &Descriptor<'_>,
        hits: i64,
        now: Micros,
    ) {
        self.top.denied(rule, series, descriptor.entries, hits.unsigned_abs(), now);
    }

    /// Writes the metrics onto the page.
    pub fn expose(&self, rule_metrics: &RuleMetrics, page: &mut Exposition) {
        let shown_series = rule_metrics.all().iter().filter(|series| rule_metrics.shows(series));
        let snapshots: Vec<(&RuleSeries, OutcomeSnapshot)> =
            shown_series.map(|series| (&**series, series.snapshot())).collect();
        let decisions = page.counter("weir_decisions_total", "Decisions, by rule and outcome.");
        for (series, snapshot) in &snapshots {
            for (outcome, count) in shown(snapshot) {
                decisions.sample(&labels(series, ("outcome", outcome.name())), count);
            }
        }
        let hits = page.counter("weir_hits_total", "Hits of all decisions, by rule and outcome.");
        for (series, snapshot) in &snapshots {
            for (outcome, count) in used(DecisionOutcome::ALL.iter().zip(snapshot.hits)) {
                hits.sample(&labels(series, ("outcome", outcome.name())), count);
            }
        }
        let help = "Decisions by the fallback, by rule and cause: the error of the store.";
        let fallbacks = page.counter("weir_fallback_total", help);
        for (series, snapshot) in &snapshots {
            for (error, count) in used(StoreError::ALL.iter().zip(snapshot.causes)) {
                fallbacks.sample(&labels(series, ("cause", error.name())), count);
            }
        }
        expose_what_if(rule_metrics, page);
        self.expose_values(rule_metrics, page);
        self.expose_plain(page);
    }

    fn expose_values(&self, rule_metrics: &RuleMetrics, page: &mut Exposition) {
        let help = "Decisions of rules with detailed_metric or value_to_metric, by value.";
        let family = page.counter("weir_detailed_decisions_total", help);
        for series in rule_metrics.all() {
            for (name, _, snapshot) in series.values() {
                for (outcome, count) in used(DecisionOutcome::ALL.iter().zip(snapshot.decisions)) {
                    let [domain, rule, outcome] = labels(series, ("outcome", outcome.name()));
                    family.sample(&[domain, rule, ("descriptor", &name), outcome], count);
                }
            }
        }
        let relaxed = Ordering::Relaxed;
        let help = "Series by value in weir_detailed_decisions_total, at most metrics.max_series.";
        let taken = self.budget.taken.load(relaxed) as u64;
        page.gauge("weir_detailed_series", help).single(taken);
        let help = "Decisions counted as descriptor=\"overflow\", mostly over metrics.max_series.";
        let overflow = self.budget.overflow.load(relaxed);
        page.counter("weir_detailed_overflow_decisions_total", help).single(overflow);
    }

    fn expose_plain(&self, page: &mut Exposition) {
        let sum = |of: fn(&UnmatchedMetrics) -> &AtomicU64| -> u64 {
            self.unmatched.all().map(|shard| of(shard).load(Ordering::Relaxed)).sum()
        };
        let help = "Descriptors without a counter, by cause.";
        page.counter("weir_uncounted_descriptors_total", help)
            .sample(&[("cause", "unknown_domain")], sum(|unmatched| &unmatched.unknown_domain))
            .sample(&[("cause", "no_rule")], sum(|unmatched| &unmatched.no_rule))
            .sample(&[("cause", "unlimited")], sum(|unmatched| &unmatched.unlimited))
            .sample(&[("cause", "replaced")], sum(|unmatched| &unmatched.replaced))
            .sample(&[("cause", "blocked")], sum(|unmatched| &unmatched.blocked))
            .sample(&[("cause", "bypassed")], sum(|unmatched| &unmatched.bypassed));
        let overrides = self.overrides();
        let help = "Decisions on limits that requests carried, by outcome.";
        let family = page.counter("weir_override_decisions_total", help);
        for (outcome, count) in shown(&overrides) {
            family.sample(&[("outcome", outcome.name())], count);
        }
    }

    /// The series whose names come from requests, if they are on.
    pub(super) fn client_named_series(&self) -> Option<&ClientNamedSeries> {
        self.client_named_series.as_ref()
    }

    /// Decisions on limits that the request carried.
    pub(super) fn overrides(&self) -> OutcomeSnapshot {
        let mut overrides = OutcomeSnapshot::default();
        self.unmatched.all().for_each(|shard| shard.overrides.add_to(&mut overrides));
        overrides
    }
}

/// Whether a decision from memory counts in the store, before it (credits) or after it (exchanges).
/// In mode exact, it is a denial of the over-limit cache.
fn counts_later(mode: Mode) -> bool {
    match mode {
        Mode::Exact => false,
        Mode::Leased | Mode::Synced { .. } => true,
    }
}

/// Writes the metrics of what-if limits that have results.
fn expose_what_if(rule_metrics: &RuleMetrics, page: &mut Exposition) {
    let all = rule_metrics.all().iter();
    let results: Vec<(&Arc<RuleSeries>, WhatIfSnapshot)> =
        all.filter_map(|series| Some((series, series.what_if()?))).collect();
    let help = "Decisions of what-if limits, by rule and outcome; over: it would have been denied.";
    let decisions = page.counter("weir_what_if_decisions_total", help);
    for (series, snapshot) in &results {
        for (outcome, count) in OUTCOMES.iter().zip(snapshot.decisions) {
            decisions.sample(&labels(series, ("outcome", *outcome)), count);
        }
    }
    let help = "Hits of the decisions of what-if limits, by rule and outcome.";
    let hits = page.counter("weir_what_if_hits_total", help);
    for (series, snapshot) in &results {
        for (outcome, count) in OUTCOMES.iter().zip(snapshot.hits) {
            hits.sample(&labels(series, ("outcome", *outcome)), count);
        }
    }
}

type Label<'a> = (&'static str, &'a str);

fn labels<'a>(series: &'a RuleSeries, last: Label<'a>) -> [Label<'a>; 3] {
    [("domain", &series.domain), ("rule", &series.rule), last]
}

/// Decisions by outcome: those of usual outcomes, and others that are not 0.
fn shown(snapshot: &OutcomeSnapshot) -> impl Iterator<Item = (&'static DecisionOutcome, u64)> {
    let all = DecisionOutcome::ALL.iter().zip(snapshot.decisions);
    all.filter(|(outcome, count)| outcome.is_usual() || *count > 0)
}

/// The counts that are not 0. Most rules have few outcomes.
fn used<T>(all: impl Iterator<Item = (T, u64)>) -> impl Iterator<Item = (T, u64)> {
    all.filter(|(_, count)| *count > 0)
}
