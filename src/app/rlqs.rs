//! The quota service (RLQS): builds its engine over the store and the active rules, and adapts it to the
//! limiter and to the server.

use std::io;
use std::sync::Arc;

use bytes::Bytes;

use super::active_rules::ActiveRules;
use crate::client_address::ClientAddress;
use crate::limiter::{DividedCheck, DividedResult, DividedRules, Limiter};
use crate::rlqs::{
    self, ActiveRuleSet, EnvoyStream, LocalCheck, QuotaEngine, ReportError, RlqsConfig, RlqsDriver,
    SharedLedger,
};
use crate::rules::{Rule, RuleSet};
use crate::server::{QuotaStream, QuotaStreamError, QuotaStreams, TooManyStreams};
use crate::settings::Settings;
use crate::time::{Micros, SystemClock};

/// The engine of the quota service, and its thread.
pub(super) struct RunningRlqs {
    pub(super) engine: Arc<QuotaEngine>,
    driver: RlqsDriver,
}

impl RunningRlqs {
    /// Starts the service over the store of `limiter`. Returns it with the limiter that asks it about
    /// divided rules. `None` with `rlqs.enabled: false`.
    ///
    /// # Errors
    /// The thread cannot start.
    pub(super) fn start(
        settings: &Settings,
        limiter: Limiter,
        rules: &Arc<ActiveRules>,
        clock: SystemClock,
    ) -> io::Result<(Limiter, Option<RunningRlqs>)> {
        if !settings.rlqs.enabled {
            return Ok((limiter, None));
        }
        let shared = limiter.backend().modes().map(|modes| modes.store_arc());
        let shared = shared.map(|store| -> Arc<dyn SharedLedger> { store });
        let (seed, clock) = (limiter.seed(), Arc::new(clock));
        let engine = QuotaEngine::new(config(settings), seed, clock, shared, rules.clone());
        let driver = rlqs::start(engine.clone())?;
        let limiter = limiter.with_divided(engine.any_divided().clone(), engine.clone());
        Ok((limiter, Some(RunningRlqs { engine, driver })))
    }

    /// Stops the thread. The shares of this process stay in the store until they expire, because
    /// Envoys use their last assignments until then.
    pub(super) async fn end(self) {
        self.driver.end().await;
    }
}

/// The part of the settings that the engine reads.
pub(super) fn config(settings: &Settings) -> RlqsConfig {
    let rlqs = &settings.rlqs;
    let micros = |length: std::time::Duration| {
        Micros(u64::try_from(length.as_micros()).expect("a setting is at most a year"))
    };
    RlqsConfig {
        assignment_ttl: micros(rlqs.assignment_ttl),
        idle_timeout: micros(rlqs.idle_timeout),
        key_order: rlqs.key_order.clone(),
        burst_percent: rlqs.burst_percent,
        relearn: rlqs.relearn,
        max_streams: rlqs.max_streams,
        max_buckets_per_stream: rlqs.max_buckets_per_stream,
        max_buckets: rlqs.max_buckets,
        max_message_bytes: rlqs.max_message_bytes,
        bounds: settings.request,
        on_error: settings.fallback.on_error,
        max_local_holders: rlqs.max_buckets,
    }
}

impl ActiveRuleSet for ActiveRules {
    fn version(&self) -> u64 {
        self.snapshot().version
    }

    fn read(&self, reader: &mut dyn FnMut(&RuleSet)) {
        reader(&self.snapshot_owned().rules);
    }
}

impl DividedRules for QuotaEngine {
    fn check(&self, check: &DividedCheck<'_>) -> DividedResult {
        let DividedCheck { rule, limit, key, hits, now } = *check;
        match QuotaEngine::check(self, rule, limit, key, hits, now) {
            LocalCheck::NotDivided => DividedResult::NotDivided,
            LocalCheck::Decided(decision) => DividedResult::Decided(decision),
            LocalCheck::ByCounter => DividedResult::ByCounter,
        }
    }

    fn divides(&self, rule: &Rule) -> bool {
        QuotaEngine::divides(self, rule)
    }

    fn charge(&self, check: &DividedCheck<'_>) {
        let DividedCheck { limit, key, hits, now, .. } = *check;
        QuotaEngine::charge(self, limit, key, hits, now);
    }
}

/// The streams of Envoys.
pub(super) struct EnvoyStreams(pub(super) Arc<QuotaEngine>);

impl QuotaStreams for EnvoyStreams {
    type Stream = EnvoyStream;

    fn open(
        &self,
        client: ClientAddress,
        name: Option<&str>,
    ) -> Result<EnvoyStream, TooManyStreams> {
        self.0.open(client, name).map_err(|_| TooManyStreams)
    }
}

impl QuotaStream for EnvoyStream {
    fn report(&mut self, message: &[u8]) -> Result<(), QuotaStreamError> {
        EnvoyStream::report(self, message).map_err(|error| match error {
            ReportError::Invalid(reason) => QuotaStreamError::Invalid(reason),
            ReportError::TooLarge(reason) => QuotaStreamError::Exhausted(reason),
        })
    }

    async fn next(&mut self) -> Bytes {
        EnvoyStream::next(self).await
    }

    fn bytes(&self) -> usize {
        EnvoyStream::bytes(self)
    }
}
