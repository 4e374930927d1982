//! All metrics of the process, as one page.

use super::service::Service;
use crate::telemetry::{self, Exposition};
use crate::time::Clock;

mod modes;
mod stores;

impl Service {
    /// Every metric there is: each registry writes itself.
    pub(super) fn exposition(&self) -> Exposition {
        let mut page = Exposition::default();
        let now = self.active.load();
        self.requests.expose(&mut page);
        self.decisions.expose(&now.rule_metrics, &mut page);
        let failing = self.reloads.last_error.load().is_some();
        self.reloads.loads.expose(now.rules.rules().len(), now.loaded_at, failing, &mut page);
        self.memory_metrics(&mut page);
        self.redis_metrics(&mut page);
        self.mode_metrics(&mut page);
        self.connections.expose(&mut page);
        if self.settings.metrics.top {
            self.decisions.top.expose(self.clock.now(), &mut page);
        }
        if let Some(traces) = &self.traces {
            traces.expose(&mut page);
        }
        telemetry::expose_process(self.started, &mut page);
        if self.settings.metrics.compat {
            let (ok, failed) = self.reloads.loads.counts();
            // The first load is one too.
            let first = u64::from(self.started_with_rules);
            let loads = (ok + first, failed + 1 - first);
            let Service { decisions, requests, .. } = self;
            telemetry::expose_envoy_ratelimit(
                decisions,
                &now.rule_metrics,
                requests,
                loads,
                &mut page,
            );
        }
        page
    }
}
