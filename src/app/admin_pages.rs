//! The pages of the admin port: metrics, rules, settings, lookups, counters, and top denials.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::watch;

use super::active_rules::ActiveRules;
use super::changes::{ChangeCommands, DescriptorChanges};
use super::explained_bucket::ExplainedBucket;
use super::metrics::AllMetrics;
use super::plans::PlansView;
use super::service::RequestRecorder;
use crate::descriptor::ParsedDescriptor;
use crate::limiter::{Limiter, find_counter};
use crate::rlqs::{QuotaEngine, WrittenBucketId};
use crate::rules::{RuleDocument, RuleSet};
use crate::server::{
    ActivityQuery, AdminApi, ChangeError, CounterError, Health, LiveFeed, PlansRefusal,
    PlansRequest, RestOfPage, TryQuery,
};
use crate::settings::Settings;
use crate::telemetry::{LimitedCounter, TopDenied};
use crate::time::{Clock, Micros, SystemClock};
use crate::usage::{UsageAnswer, UsageFailure, UsageQuery};

mod activity;
mod counter;
mod limited;
mod live;
mod plan;
mod plans;
mod quotas;
mod request_log;
mod status;
mod try_request;
mod usage;

use plan::ShownPlan;

pub(super) use live::{LastEvent, event as live_event};
pub(super) use status::host;

/// The parts of the service that the admin port reads.
pub(super) struct AdminPages {
    pub(super) limiter: Arc<Limiter>,
    pub(super) clock: SystemClock,
    pub(super) rules: Arc<ActiveRules>,
    pub(super) recorder: Arc<RequestRecorder>,
    pub(super) all_metrics: Arc<AllMetrics>,
    /// `None` with `rlqs.enabled: false`.
    pub(super) rlqs: Option<Arc<QuotaEngine>>,
    /// `None` with `plans.source: none`.
    pub(super) plans: Option<PlansView>,
    pub(super) changes: ChangeCommands,
    pub(super) settings: Settings,
    /// The name of this machine; `None` if the system does not have it.
    pub(super) host: Option<String>,
    pub(super) health: watch::Receiver<Health>,
    /// Whether the drain has begun.
    pub(super) shutdown: watch::Receiver<bool>,
    /// `None` with `admin.page: false`.
    pub(super) live: Option<Arc<LiveFeed>>,
}

impl AdminApi for AdminPages {
    fn metrics(&self) -> String {
        self.all_metrics.exposition().to_prometheus()
    }

    fn rules(&self) -> Value {
        let active = self.rules.snapshot();
        let files: Vec<Value> = active.rules.files().iter().map(file).collect();
        json!({
            "loaded_at": rfc_3339(active.loaded_at),
            "files": files,
            "warnings": active.warnings,
            "last_error": self.rules.last_error().as_deref(),
            "xds_error": self.rules.xds_error().as_deref(),
        })
    }

    fn rlconfig(&self) -> String {
        self.rules.snapshot().rules.rlconfig()
    }

    fn settings(&self) -> Value {
        self.settings.to_json()
    }

    fn explain(&self, domain: &str, descriptor: &ParsedDescriptor) -> Value {
        self.explain_by(&self.rules.snapshot_owned().rules, domain, descriptor)
    }

    fn explain_rule(&self, domain: &str, name: &str) -> Option<Value> {
        let active = self.rules.snapshot_owned();
        let explanation = active.rules.explain_rule(domain, name)?;
        let rule = active.rules.rule_named(domain, name)?;
        let changes = DescriptorChanges::of_rule(self.limiter.changes(), rule, self.clock.now());
        Some(explained(json!(explanation), explanation.to_string(), None, None, changes))
    }

    fn explain_bucket(&self, domain: &str, id: &ParsedDescriptor) -> Result<Value, String> {
        let id = WrittenBucketId::read(id)?;
        let active = self.rules.snapshot_owned();
        let bucket = ExplainedBucket::of(&active.rules, &self.settings, domain, &id);
        let (shown, text) = (bucket.to_json(), bucket.to_string());
        if bucket.is_refused() {
            return Ok(explained(shown, text, None, None, DescriptorChanges::default()));
        }
        Ok(self.with_counter(shown, text, &active.rules, domain, &bucket.descriptor))
    }

    async fn counter(
        &self,
        domain: &str,
        descriptor: &ParsedDescriptor,
    ) -> Result<String, CounterError> {
        let active = self.rules.snapshot_owned();
        let counter = counter::find(&self.limiter, &active.rules, domain, descriptor)?;
        let hash = self.hash(&active.rules, domain, descriptor);
        let plan = self.limiter.plan_of(&counter, &descriptor.entries());
        let changes = self.changes_of(&active.rules, domain, descriptor);
        counter::read(&self.limiter, &counter, plan.as_ref(), changes, hash, self.clock.now()).await
    }

    async fn delete_counter(
        &self,
        domain: &str,
        descriptor: &ParsedDescriptor,
    ) -> Result<String, CounterError> {
        let active = self.rules.snapshot_owned();
        let counter = counter::find(&self.limiter, &active.rules, domain, descriptor)?;
        let hash = self.hash(&active.rules, domain, descriptor);
        counter::delete(&self.limiter, &counter, hash).await
    }

    fn top(&self) -> Value {
        self.recorder.decisions.top.to_json(self.clock.now())
    }

    fn status(&self) -> Value {
        status::page(self)
    }

    fn activity(&self, query: ActivityQuery) -> Value {
        activity::page(self, &query)
    }

    fn live(&self) -> Option<Arc<LiveFeed>> {
        self.live.clone()
    }

    async fn try_request(self: Arc<Self>, query: TryQuery) -> RestOfPage {
        try_request::page(self, query).await
    }

    fn most_denied(&self) -> Vec<LimitedCounter> {
        self.recorder.decisions.top.limited(self.clock.now())
    }

    async fn limited(&self, counters: Vec<LimitedCounter>) -> Value {
        limited::page(self, counters).await
    }

    fn quotas(&self, limit: usize) -> Value {
        quotas::page(self.rlqs.as_deref(), &self.limiter, limit)
    }

    fn plans(&self, limit: usize) -> Value {
        plans::page(self.plans.as_ref(), limit)
    }

    async fn edit_plans(&self, request: PlansRequest) -> Result<Value, PlansRefusal> {
        let redis = self.plans.as_ref().and_then(|view| view.redis.as_deref());
        match redis {
            Some(redis) => plans::edit(redis, request).await,
            None => Err(plans::elsewhere(&self.settings.plans)),
        }
    }

    async fn usage(&self, query: UsageQuery) -> Result<UsageAnswer, UsageFailure> {
        usage::answer(self, query).await
    }

    fn changes(&self) -> Value {
        self.changes.list(self.clock.now())
    }

    async fn make_change(&self, body: &[u8], by: &str) -> Result<Value, ChangeError> {
        self.changes.make(body, by).await
    }

    async fn end_change(&self, id: &str, by: &str) -> Result<Value, ChangeError> {
        self.changes.end(id, by).await
    }

    fn request_log(&self) -> Value {
        request_log::page(&self.recorder.log, self.clock.now())
    }

    fn begin_capture(&self, body: &[u8], by: &str) -> Result<Value, ChangeError> {
        let active = self.rules.snapshot_owned();
        request_log::begin(&self.recorder.log, body, &active.rules, by, self.clock.now())
    }

    fn end_captures(&self, by: &str) -> Value {
        request_log::end(&self.recorder.log, by, self.clock.now())
    }
}

impl AdminPages {
    /// The explanation of a descriptor by `rules`. It may walk all rules of the domain.
    fn explain_by(&self, rules: &RuleSet, domain: &str, descriptor: &ParsedDescriptor) -> Value {
        let explanation = rules.explain(domain, &descriptor.entries());
        self.with_counter(json!(explanation), explanation.to_string(), rules, domain, descriptor)
    }

    /// An explanation and its text, with what there is of the counter, the plan and the changes.
    fn with_counter(
        &self,
        shown: Value,
        text: String,
        rules: &RuleSet,
        domain: &str,
        descriptor: &ParsedDescriptor,
    ) -> Value {
        let entries = descriptor.entries();
        let hash = self.hash(rules, domain, descriptor);
        let changes = self.changes_of(rules, domain, descriptor);
        let counter = self.limiter.counter(rules, domain, &entries).ok();
        let plan = counter.and_then(|counter| self.limiter.plan_of(&counter, &entries));
        explained(shown, text, hash, plan.as_ref().map(ShownPlan::of), changes)
    }

    /// The hash by which `/top` names the counter of a descriptor; `None` without a counter.
    fn hash(&self, rules: &RuleSet, domain: &str, descriptor: &ParsedDescriptor) -> Option<String> {
        let seed = self.recorder.decisions.top.seed();
        let counter = find_counter(seed, rules, domain, &descriptor.entries()).ok()?;
        Some(TopDenied::hash(counter.key))
    }

    /// The temporary changes of a descriptor and its rule.
    fn changes_of(
        &self,
        rules: &RuleSet,
        domain: &str,
        descriptor: &ParsedDescriptor,
    ) -> DescriptorChanges {
        let (current, now) = (self.limiter.changes(), self.clock.now());
        DescriptorChanges::of(current, rules, domain, &descriptor.entries(), now)
    }
}

/// An explanation with the hash of the counter, with the plan if the rule uses one, with the temporary
/// changes, and with the text of `weir explain`.
fn explained(
    mut shown: Value,
    mut text: String,
    hash: Option<String>,
    plan: Option<ShownPlan>,
    changes: DescriptorChanges,
) -> Value {
    shown["counter"] = json!(hash);
    if let Some(plan) = plan {
        text.push_str(&plan.text());
        shown["plan"] = json!(plan);
    }
    for line in &changes.lines {
        text.push_str(line);
        text.push('\n');
    }
    shown["changes"] = json!(changes.shown);
    shown["text"] = json!(text);
    shown
}

fn file(document: &RuleDocument) -> Value {
    let RuleDocument { path, domain, rules, version } = document;
    json!({ "path": &**path, "domain": &**domain, "rules": rules, "version": version.as_deref() })
}

/// An instant in RFC 3339 format, in UTC.
fn rfc_3339(instant: Micros) -> String {
    let seconds = i64::try_from(instant.0 / 1_000_000).unwrap_or(i64::MAX);
    prost_types::Timestamp { seconds, nanos: 0 }.to_string()
}
