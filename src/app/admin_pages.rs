//! The pages of the admin port: metrics, rules, settings, lookups, counters, and top denials.

use std::sync::Arc;

use serde_json::{Value, json};

use super::active_rules::ActiveRules;
use super::metrics::Registries;
use super::service::RequestRecorder;
use crate::descriptor::ParsedDescriptor;
use crate::limiter::Limiter;
use crate::rules::SourceInfo;
use crate::server::{AdminView, CounterError};
use crate::settings::Settings;
use crate::time::{Clock, Micros, SystemClock};

mod counter;

/// The parts of the service that the admin port reads.
pub(super) struct AdminPages {
    pub(super) limiter: Arc<Limiter>,
    pub(super) clock: SystemClock,
    pub(super) rules: Arc<ActiveRules>,
    pub(super) recorder: Arc<RequestRecorder>,
    pub(super) registries: Arc<Registries>,
    pub(super) settings: Settings,
}

impl AdminView for AdminPages {
    fn metrics(&self) -> String {
        self.registries.exposition().to_prometheus()
    }

    fn rules(&self) -> Value {
        let active = self.rules.snapshot();
        let files: Vec<Value> = active.rules.files().iter().map(file).collect();
        json!({
            "loaded_at": rfc_3339(active.loaded_at),
            "files": files,
            "last_error": self.rules.last_error().as_deref(),
        })
    }

    fn rlconfig(&self) -> String {
        self.rules.snapshot().rules.rlconfig()
    }

    fn settings(&self) -> Value {
        self.settings.to_json()
    }

    fn explain(&self, domain: &str, descriptor: &ParsedDescriptor) -> Value {
        json!(self.rules.snapshot().rules.explain(domain, &descriptor.entries()))
    }

    async fn counter(
        &self,
        domain: &str,
        descriptor: &ParsedDescriptor,
    ) -> Result<Value, CounterError> {
        let active = self.rules.snapshot_owned();
        let counter = counter::find(&self.limiter, &active.rules, domain, descriptor)?;
        counter::read(&self.limiter, &counter, self.clock.now()).await
    }

    async fn delete(
        &self,
        domain: &str,
        descriptor: &ParsedDescriptor,
    ) -> Result<Value, CounterError> {
        let active = self.rules.snapshot_owned();
        let counter = counter::find(&self.limiter, &active.rules, domain, descriptor)?;
        counter::delete(&self.limiter, &counter).await
    }

    fn top(&self) -> Value {
        self.recorder.decisions.top.to_json(self.clock.now())
    }
}

fn file(info: &SourceInfo) -> Value {
    let SourceInfo { path, domain, rules } = info;
    json!({ "path": &**path, "domain": &**domain, "rules": rules })
}

/// An instant in RFC 3339 format, in UTC.
fn rfc_3339(instant: Micros) -> String {
    let seconds = i64::try_from(instant.0 / 1_000_000).unwrap_or(i64::MAX);
    prost_types::Timestamp { seconds, nanos: 0 }.to_string()
}
