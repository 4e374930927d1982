//! The admin pages: what the decider shows to those who operate it.

use serde_json::{Value, json};

use super::decider::Decider;
use crate::descriptor::Typed;
use crate::rules::SourceInfo;
use crate::server::{AdminView, NotShown};
use crate::telemetry::{self, Exposition};
use crate::time::{Clock, Micros};

mod counters;
mod layers;
mod stores;

impl AdminView for Decider {
    fn metrics(&self) -> String {
        self.exposition().to_prometheus()
    }

    fn rules(&self) -> Value {
        let now = self.in_force.load();
        let files: Vec<Value> = now.rules.files().iter().map(file).collect();
        json!({
            "loaded_at": rfc_3339(now.loaded_at),
            "files": files,
            "last_error": self.reloads.last_error.load().as_deref(),
        })
    }

    fn rlconfig(&self) -> String {
        self.in_force.load().rules.dump()
    }

    fn settings(&self) -> Value {
        self.settings.to_json()
    }

    fn explain(&self, domain: &str, descriptor: &Typed) -> Value {
        json!(self.in_force.load().rules.explain(domain, &descriptor.entries()))
    }

    async fn counter(&self, domain: &str, descriptor: &Typed) -> Result<Value, NotShown> {
        self.show_counter(domain, descriptor).await
    }

    async fn forget(&self, domain: &str, descriptor: &Typed) -> Result<Value, NotShown> {
        self.forget_counter(domain, descriptor).await
    }

    fn top(&self) -> Value {
        self.decisions.top.to_json(self.limiter.clock().now())
    }
}

impl Decider {
    /// Every metric there is: each registry writes itself.
    pub(super) fn exposition(&self) -> Exposition {
        let mut page = Exposition::default();
        let now = self.in_force.load();
        self.requests.expose(&mut page);
        self.decisions.expose(&now.slots, &mut page);
        let failing = self.reloads.last_error.load().is_some();
        self.reloads.loads.expose(now.rules.rules().len(), now.loaded_at, failing, &mut page);
        self.memory_metrics(&mut page);
        self.redis_metrics(&mut page);
        self.layer_metrics(&mut page);
        self.connections.expose(&mut page);
        if self.settings.metrics.top {
            self.decisions.top.expose(self.limiter.clock().now(), &mut page);
        }
        if let Some(traces) = &self.traces {
            traces.expose(&mut page);
        }
        telemetry::expose_process(self.started, &mut page);
        if self.settings.metrics.compat {
            let (ok, failed) = self.reloads.loads.counts();
            // The first load is one too.
            let first = u64::from(self.began_well);
            let loads = (ok + first, failed + 1 - first);
            let Decider { decisions, requests, .. } = self;
            telemetry::expose_envoy_ratelimit(decisions, &now.slots, requests, loads, &mut page);
        }
        page
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
