//! Lines about decided requests in the log of the process: for denied or all requests at the level
//! `info`, and for every descriptor at the level `debug`.
//!
//! A request gets a line if the setting `log.requests` asks for it, the field `log` of a rule, or a
//! [`LogCapture`], which an operator begins and which ends by itself. Lines at `info` are bounded per
//! second. While nothing asks for a line, a decision costs one read of an atomic.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::{ArcSwap, Guard};

use self::audit_log::EndCause;
use self::line::{DecisionLine, ShownLevels};
use self::shown_values::ShownValues;
use self::wanted::wanted;
use crate::atomic_count::AtomicCount;
use crate::decision::Verdict;
use crate::decision_record::ValueHash;
use crate::descriptor::Request;
use crate::key::KeySeed;
use crate::limit::RequestLines;
use crate::line_rate::LineRate;
use crate::rules::RuleSet;
use crate::sampling::{SampledShare, Sampler};
use crate::settings::LogSettings;
use crate::time::Micros;

mod audit_log;
mod capture;
mod line;
mod shown_values;
#[cfg(test)]
mod tests;
mod wanted;

pub use capture::{CAPTURES_MAX, CaptureProblem, CaptureRequest, CapturedRule, LogCapture};

/// The lines about requests. All workers share it.
pub struct RequestLog {
    settings: LogSettings,
    share: SampledShare,
    values: ShownValues,
    /// The seed of the hashes by which `/top` names counters.
    counter_seed: KeySeed,
    levels: ShownLevels,
    rate: LineRate,
    sampler: Sampler,
    /// Whether any decision may get a line.
    is_on: AtomicBool,
    /// In the order in which they began.
    captures: ArcSwap<Vec<LogCapture>>,
    /// Whether a rule asks for lines. Locked while this or `captures` changes.
    has_rules: Mutex<bool>,
    metrics: RequestLogMetrics,
    /// The lines left out that a line has reported.
    reported: AtomicU64,
}

/// What happened to the lines at `info`.
#[derive(Debug, Default)]
pub struct RequestLogMetrics {
    /// Lines that were written.
    pub lines: AtomicCount,
    /// Lines that were left out, because they were over `log.requests_per_second`.
    pub left_out: AtomicCount,
}

impl RequestLog {
    /// The log with these settings. Values are hashed with `values_seed`, and counters have the hashes
    /// that `/top` shows with `counter_seed`. `now` is the seed of its random numbers.
    pub fn new(
        settings: &LogSettings,
        values_seed: KeySeed,
        counter_seed: KeySeed,
        now: Micros,
    ) -> RequestLog {
        let levels = ShownLevels::active();
        if settings.requests != RequestLines::Off && !levels.info {
            tracing::warn!(
                "log.requests has no effect: log.level hides lines at info; write \
                 `info` there, or add `weir::request_log=info`"
            );
        }
        RequestLog::with_levels(settings, values_seed, counter_seed, now, levels)
    }

    fn with_levels(
        settings: &LogSettings,
        values_seed: KeySeed,
        counter_seed: KeySeed,
        now: Micros,
        levels: ShownLevels,
    ) -> RequestLog {
        let log = RequestLog {
            settings: settings.clone(),
            share: SampledShare::new(settings.requests_sample),
            values: ShownValues::new(settings.request_values, ValueHash::new(values_seed)),
            counter_seed,
            levels,
            rate: LineRate::new(settings.requests_per_second),
            sampler: Sampler::new(now.0),
            is_on: AtomicBool::new(false),
            captures: ArcSwap::default(),
            has_rules: Mutex::new(false),
            metrics: RequestLogMetrics::default(),
            reported: AtomicU64::new(0),
        };
        log.update(log.has_rules());
        log
    }

    /// Whether a decision may get a line, so that [`record`](Self::record) must be called.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Writes the lines about a request that `rules` decided at `at`. `trace_id` is that of the request's
    /// span; without one, the caller's trace is named.
    #[cold]
    pub fn record(
        &self,
        rules: &RuleSet,
        request: &Request<'_>,
        verdict: &Verdict,
        trace_id: Option<u128>,
        at: Micros,
    ) {
        let line = |index: usize| {
            DecisionLine::of(rules, request, verdict, index, &self.counter_seed, trace_id)
        };
        if self.levels.debug {
            for (index, descriptor) in request.descriptors.iter().enumerate() {
                if let Some(line) = line(index) {
                    line.write_debug(&self.values.at_debug(descriptor.entries));
                }
            }
        }
        let captures = self.captures.load();
        let base = (self.settings.requests, self.share);
        let found = wanted(rules, request, verdict, base, &captures, at);
        let Some(wanted) = found.filter(|_| self.levels.info) else { return };
        if !self.sampler.takes(wanted.share) {
            return;
        }
        if !self.rate.admits(at) {
            return self.metrics.left_out.add();
        }
        if let Some(line) = line(wanted.index) {
            self.metrics.lines.add();
            let (one, all) = self.values.at_info(rules, request, verdict, wanted.index);
            line.write_info(verdict.code, &one, all.as_deref());
        }
    }

    /// Uses new rules: their `log` fields. Call it before they decide.
    pub fn use_rules(&self, rules: &RuleSet) {
        let mut has_rules = self.has_rules();
        *has_rules = rules.logs_requests();
        self.update(has_rules);
    }

    /// Begins the capture that `request` asks for, on behalf of `by`. A capture of the same requests is
    /// replaced. Returns the capture, and whether it replaced one.
    ///
    /// # Errors
    ///
    /// The reason why it would have no effect, or is over a bound.
    pub fn begin(
        &self,
        request: CaptureRequest,
        rules: &RuleSet,
        by: &str,
        now: Micros,
    ) -> Result<(LogCapture, bool), CaptureProblem> {
        if !self.levels.info {
            return Err(CaptureProblem::Conflict(
                "log.level hides lines at info, so a capture would show nothing; restart with \
                 log.level: info, or add weir::request_log=info to it"
                    .to_owned(),
            ));
        }
        // Before the lock, because a rule is searched for.
        let capture = request.into_capture(rules, by, now)?;
        let has_rules = self.has_rules();
        let mut captures = self.without_expired(now);
        let before = captures.len();
        captures.retain(|other| !other.has_target_of(&capture));
        let replaces = captures.len() < before;
        if captures.len() >= CAPTURES_MAX {
            // The log has the end of the expired ones.
            self.captures.store(Arc::new(captures));
            self.update(has_rules);
            return Err(CaptureProblem::Conflict(format!(
                "{CAPTURES_MAX} captures run already; DELETE /log ends them all"
            )));
        }
        captures.push(capture.clone());
        self.captures.store(Arc::new(captures));
        self.update(has_rules);
        audit_log::began(&capture, replaces);
        Ok((capture, replaces))
    }

    /// Ends all captures on behalf of `by`. Returns them.
    pub fn end_all(&self, by: &str, now: Micros) -> Vec<LogCapture> {
        let has_rules = self.has_rules();
        let ended = self.without_expired(now);
        self.captures.store(Arc::default());
        self.update(has_rules);
        for capture in &ended {
            audit_log::ended(capture, EndCause::Caller(by));
        }
        ended
    }

    /// Ends captures whose time is over at `now`, and reports the lines that were left out since the last
    /// call. Call it once a second.
    pub fn tick(&self, now: Micros) {
        if self.captures.load().iter().any(|capture| !capture.is_active(now)) {
            let has_rules = self.has_rules();
            let captures = self.without_expired(now);
            self.captures.store(Arc::new(captures));
            self.update(has_rules);
        }
        let left_out = self.metrics.left_out.get();
        let number = left_out - self.reported.swap(left_out, Ordering::Relaxed);
        if number > 0 {
            tracing::info!(
                number,
                "request lines left out: over log.requests_per_second; raise it, or log a sample"
            );
        }
    }

    /// The captures, in the order in which they began. They may have expired a moment ago.
    pub fn captures(&self) -> Guard<Arc<Vec<LogCapture>>> {
        self.captures.load()
    }

    /// The settings.
    pub fn settings(&self) -> &LogSettings {
        &self.settings
    }

    /// What happened to the lines.
    pub fn metrics(&self) -> &RequestLogMetrics {
        &self.metrics
    }

    /// The captures whose time is not over. Logs the end of the others.
    fn without_expired(&self, now: Micros) -> Vec<LogCapture> {
        let all = self.captures.load_full();
        let (active, expired): (Vec<LogCapture>, Vec<LogCapture>) =
            all.iter().cloned().partition(|capture| capture.is_active(now));
        for capture in &expired {
            audit_log::ended(capture, EndCause::Time);
        }
        active
    }

    /// Sets whether any decision may get a line.
    fn update(&self, has_rules: MutexGuard<'_, bool>) {
        let at_info = self.settings.requests != RequestLines::Off
            || *has_rules
            || !self.captures.load().is_empty();
        let is_on = self.levels.debug || self.levels.info && at_info;
        self.is_on.store(is_on, Ordering::Relaxed);
    }

    fn has_rules(&self) -> MutexGuard<'_, bool> {
        // It is a plain flag, which no panic can leave in between.
        self.has_rules.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
