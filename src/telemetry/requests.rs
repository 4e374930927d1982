//! Metrics of requests: their number by result, and their duration.

use std::sync::atomic::{AtomicU64, Ordering};

use super::exposition::Exposition;
use crate::decision::{Code, Verdict};
use crate::histogram::{Distribution, Histogram};
use crate::sharded::Sharded;
use crate::time::Micros;

/// All requests of this process, by gRPC and HTTP.
#[derive(Debug, Default)]
pub struct Requests {
    metrics: Sharded<RequestMetrics>,
    durations: Histogram,
}

/// Requests by result.
#[derive(Debug, Default)]
struct RequestMetrics {
    ok: AtomicU64,
    over_limit: AtomicU64,
    invalid: AtomicU64,
    cancelled: AtomicU64,
    failed: AtomicU64,
    shadowed: AtomicU64,
}

/// The decided requests and their durations at one moment, or within a time.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct RequestSample {
    pub(super) ok: u64,
    pub(super) over_limit: u64,
    pub(super) durations: Distribution,
}

impl RequestSample {
    /// What was added since `before`.
    pub(super) fn since(&self, before: &RequestSample) -> RequestSample {
        RequestSample {
            ok: self.ok.saturating_sub(before.ok),
            over_limit: self.over_limit.saturating_sub(before.over_limit),
            durations: self.durations.since(&before.durations),
        }
    }
}

/// A request that is being decided. It counts as cancelled if it is dropped before
/// [`end`](InFlightRequest::end).
#[derive(Debug)]
pub struct InFlightRequest<'a>(Option<&'a Requests>);

impl Requests {
    /// Starts the measurement of a valid request.
    pub fn begin(&self) -> InFlightRequest<'_> {
        InFlightRequest(Some(self))
    }

    /// Counts an invalid request.
    pub fn count_invalid(&self) {
        count(&self.metrics.local().invalid);
    }

    /// Counts a request that ended in a panic.
    pub fn count_panicked(&self) {
        count(&self.metrics.local().failed);
    }

    /// Writes the metrics onto the page.
    pub fn expose(&self, page: &mut Exposition) {
        let help = "Requests, by result; cancelled: the caller left before the response.";
        page.counter("weir_requests_total", help)
            .sample(&[("code", "ok")], self.sum(|metrics| &metrics.ok))
            .sample(&[("code", "over_limit")], self.sum(|metrics| &metrics.over_limit))
            .sample(&[("code", "invalid")], self.sum(|metrics| &metrics.invalid))
            .sample(&[("code", "cancelled")], self.sum(|metrics| &metrics.cancelled))
            .sample(&[("code", "internal")], self.sum(|metrics| &metrics.failed));
        let help = "Requests over their limit that passed because of response.shadow_mode.";
        page.counter("weir_shadowed_requests_total", help).single(self.shadowed());
        let help = "Time to decide a valid request, without reading it and writing the response.";
        page.histogram("weir_request_duration_seconds", help).single(self.durations.distribution());
    }

    /// Number of requests over their limit that passed in global shadow mode.
    pub(super) fn shadowed(&self) -> u64 {
        self.sum(|counts| &counts.shadowed)
    }

    /// The decided requests so far.
    pub(super) fn sample(&self) -> RequestSample {
        RequestSample {
            ok: self.sum(|metrics| &metrics.ok),
            over_limit: self.sum(|metrics| &metrics.over_limit),
            durations: self.durations.distribution(),
        }
    }

    /// Number of all requests.
    pub(super) fn total(&self) -> u64 {
        let of = |one: &RequestMetrics| {
            let RequestMetrics { ok, over_limit, invalid, cancelled, failed, shadowed: _ } = one;
            [ok, over_limit, invalid, cancelled, failed].map(read).iter().sum::<u64>()
        };
        self.metrics.all().map(of).sum()
    }

    /// Number of requests without a verdict.
    pub(super) fn errors(&self) -> u64 {
        self.sum(|metrics| &metrics.invalid) + self.sum(|metrics| &metrics.failed)
    }

    /// Durations of decided requests.
    pub(super) fn durations(&self) -> &Histogram {
        &self.durations
    }

    fn sum(&self, of: fn(&RequestMetrics) -> &AtomicU64) -> u64 {
        self.metrics.all().map(|shard| read(of(shard))).sum()
    }
}

impl InFlightRequest<'_> {
    /// Counts the verdict, and records the duration of the decision.
    pub fn end(mut self, verdict: &Verdict, took: Micros) {
        let Some(requests) = self.0.take() else { return };
        let metrics = requests.metrics.local();
        match verdict.code {
            Code::Ok => count(&metrics.ok),
            Code::OverLimit => count(&metrics.over_limit),
        }
        if verdict.shadowed {
            count(&metrics.shadowed);
        }
        requests.durations.record(took);
    }
}

impl Drop for InFlightRequest<'_> {
    fn drop(&mut self) {
        // A panic is counted where it is caught.
        if let Some(requests) = self.0
            && !std::thread::panicking()
        {
            count(&requests.metrics.local().cancelled);
        }
    }
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_one_result() {
        let requests = Requests::default();
        let verdict = |code, shadowed| Verdict {
            code,
            statuses: Vec::new(),
            headers: Vec::new(),
            metadata: None,
            shadowed,
            rollback: None,
            what_if: Default::default(),
        };
        requests.begin().end(&verdict(Code::Ok, true), Micros(70));
        requests.begin().end(&verdict(Code::OverLimit, false), Micros(80));
        drop(requests.begin());
        requests.count_invalid();
        requests.count_panicked();
        let mut page = Exposition::default();
        requests.expose(&mut page);
        let page = page.to_prometheus();
        for code in ["ok", "over_limit", "invalid", "cancelled", "internal"] {
            let line = format!("weir_requests_total{{code=\"{code}\"}} 1\n");
            assert!(page.contains(&line), "{line}{page}");
        }
        assert!(page.contains("weir_shadowed_requests_total 1\n"));
        assert!(page.contains("weir_request_duration_seconds_count 2\n"), "{page}");
        assert_eq!((requests.total(), requests.errors()), (5, 2));
    }
}
