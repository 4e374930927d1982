//! The admin pages: what the service shows to those who operate it.

use serde_json::{Value, json};

use super::service::Service;
use crate::descriptor::Typed;
use crate::rules::SourceInfo;
use crate::server::{AdminView, CounterError};
use crate::time::{Clock, Micros};

mod counter;

impl AdminView for Service {
    fn metrics(&self) -> String {
        self.exposition().to_prometheus()
    }

    fn rules(&self) -> Value {
        let now = self.active.load();
        let files: Vec<Value> = now.rules.files().iter().map(file).collect();
        json!({
            "loaded_at": rfc_3339(now.loaded_at),
            "files": files,
            "last_error": self.reloads.last_error.load().as_deref(),
        })
    }

    fn rlconfig(&self) -> String {
        self.active.load().rules.dump()
    }

    fn settings(&self) -> Value {
        self.settings.to_json()
    }

    fn explain(&self, domain: &str, descriptor: &Typed) -> Value {
        json!(self.active.load().rules.explain(domain, &descriptor.entries()))
    }

    async fn counter(&self, domain: &str, descriptor: &Typed) -> Result<Value, CounterError> {
        self.show_counter(domain, descriptor).await
    }

    async fn forget(&self, domain: &str, descriptor: &Typed) -> Result<Value, CounterError> {
        self.forget_counter(domain, descriptor).await
    }

    fn top(&self) -> Value {
        self.decisions.top.to_json(self.clock.now())
    }
}

fn file(info: &SourceInfo) -> Value {
    let SourceInfo { path, domain, rules } = info;
    json!({ "path": &**path, "domain": &**domain, "rules": rules })
}

/// An instant as RFC 3339 writes it, in UTC.
fn rfc_3339(instant: Micros) -> String {
    let seconds = i64::try_from(instant.0 / 1_000_000).unwrap_or(i64::MAX);
    prost_types::Timestamp { seconds, nanos: 0 }.to_string()
}
