//! What the client has received so far, for metrics and readiness.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};

use arc_swap::ArcSwapOption;

use crate::rules::XdsOutcome;
use crate::time::Micros;

/// The state of the client. Readers may see its parts at different moments.
#[derive(Debug, Default)]
pub struct XdsStatus {
    connected: AtomicBool,
    /// [`FirstRules`] as a number.
    first_rules: AtomicU8,
    from_cache: AtomicBool,
    last_rejected: AtomicBool,
    /// When the server last sent rules, in microseconds; 0 before that.
    updated: AtomicU64,
    version: ArcSwapOption<String>,
    kept: AtomicUsize,
    dropped: AtomicUsize,
    /// Whether the active rules are still to be written into the cache.
    cache_outdated: AtomicBool,
    /// When weir's certificate expires, in seconds since the epoch; 0 without one.
    certificate_expiry: AtomicU64,
    accepted: AtomicU64,
    rejected: AtomicU64,
    nacks: AtomicU64,
    stream_ends: [AtomicU64; StreamEnd::ALL.len()],
}

/// Whether there have been rules yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstRules {
    /// No response has come, and there is no cache.
    Missing,
    /// Everything so far was rejected, at least in part. The valid parts may be active.
    Rejected,
    /// A response was accepted, or the cache was.
    Accepted,
}

/// Why a stream ended, or was not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamEnd {
    /// No connection: name resolution, TCP, TLS or the connect timeout failed.
    Unreachable,
    /// The server ended the stream without an error.
    Closed,
    /// The server ended the stream with an error, or the connection was lost.
    Failed,
}

impl StreamEnd {
    /// All values.
    pub const ALL: [StreamEnd; 3] = [StreamEnd::Unreachable, StreamEnd::Closed, StreamEnd::Failed];

    /// The name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            StreamEnd::Unreachable => "unreachable",
            StreamEnd::Closed => "closed",
            StreamEnd::Failed => "failed",
        }
    }
}

impl XdsStatus {
    /// Whether a connection to the server is open, and the server has spoken HTTP/2 on it. A server
    /// that sends no rules is connected.
    pub fn is_connected(&self) -> bool {
        self.connected.load(Ordering::Relaxed)
    }

    /// Whether there have been rules yet.
    pub fn first_rules(&self) -> FirstRules {
        match self.first_rules.load(Ordering::Acquire) {
            0 => FirstRules::Missing,
            1 => FirstRules::Rejected,
            _ => FirstRules::Accepted,
        }
    }

    /// Whether the active rules are those of the cache: the server has sent none yet.
    pub fn is_from_cache(&self) -> bool {
        self.from_cache.load(Ordering::Relaxed)
    }

    /// Whether the last response was accepted, or none has come.
    pub fn is_last_accepted(&self) -> bool {
        !self.last_rejected.load(Ordering::Relaxed)
    }

    /// When the server last sent rules, or confirmed the active ones; `None` before that. With rules
    /// of the cache, when it was written.
    pub fn updated(&self) -> Option<Micros> {
        Some(Micros(self.updated.load(Ordering::Relaxed))).filter(|at| *at > Micros::ZERO)
    }

    /// The version of the last applied response. Some of its parts may have been rejected.
    pub fn version(&self) -> Option<Arc<String>> {
        self.version.load_full()
    }

    /// Parts of the last response with errors: those that keep an older version, and those that are
    /// left out.
    pub fn faulty_parts(&self) -> (usize, usize) {
        (self.kept.load(Ordering::Relaxed), self.dropped.load(Ordering::Relaxed))
    }

    /// Whether the cache has the active rules, or there is no cache.
    pub fn is_cache_current(&self) -> bool {
        !self.cache_outdated.load(Ordering::Relaxed)
    }

    /// When weir's certificate expires, in seconds since the epoch; 0 without one.
    pub fn certificate_expiry(&self) -> u64 {
        self.certificate_expiry.load(Ordering::Relaxed)
    }

    /// Accepted and rejected updates. Content that comes again is not counted.
    pub fn updates(&self) -> (u64, u64) {
        (self.accepted.load(Ordering::Relaxed), self.rejected.load(Ordering::Relaxed))
    }

    /// Rejections that were sent, also of content that was rejected before.
    pub fn nacks(&self) -> u64 {
        self.nacks.load(Ordering::Relaxed)
    }

    /// Ended streams, and attempts to connect that failed.
    pub fn stream_ends(&self, end: StreamEnd) -> u64 {
        self.stream_ends[end as usize].load(Ordering::Relaxed)
    }

    pub(super) fn set_connected(&self, connected: bool) {
        self.connected.store(connected, Ordering::Relaxed);
    }

    pub(super) fn set_cache_current(&self, current: bool) {
        self.cache_outdated.store(!current, Ordering::Relaxed);
    }

    pub(super) fn set_certificate_expiry(&self, seconds: u64) {
        self.certificate_expiry.store(seconds, Ordering::Relaxed);
    }

    /// The cache, which was written at `written`, was applied. Some of its parts may not fit to the rule
    /// files any more.
    pub(super) fn cache_applied(&self, version: &str, outcome: &XdsOutcome, written: Micros) {
        self.from_cache.store(true, Ordering::Relaxed);
        self.set_version(version, written);
        self.set_parts(outcome);
        self.first_rules.store(if outcome.reasons.is_empty() { 2 } else { 1 }, Ordering::Release);
    }

    /// A response was applied, at least in part. `is_new` means that its content differs from that of
    /// the response before.
    pub(super) fn applied(&self, version: &str, outcome: &XdsOutcome, is_new: bool, now: Micros) {
        self.set_parts(outcome);
        if outcome.reasons.is_empty() {
            self.accepted.fetch_add(u64::from(is_new), Ordering::Relaxed);
            self.last_rejected.store(false, Ordering::Relaxed);
            self.confirmed(version, now);
            self.first_rules.store(2, Ordering::Release);
        } else {
            self.confirmed(version, now);
            self.rejected(is_new);
        }
    }

    /// The server sent the active rules again.
    pub(super) fn confirmed(&self, version: &str, now: Micros) {
        self.from_cache.store(false, Ordering::Relaxed);
        self.set_version(version, now);
    }

    /// A response was rejected. Nothing of it is active, unless it was [`XdsStatus::applied`].
    pub(super) fn rejected(&self, is_new: bool) {
        self.rejected.fetch_add(u64::from(is_new), Ordering::Relaxed);
        self.last_rejected.store(true, Ordering::Relaxed);
        // Rules that were accepted before stay.
        let _ = self.first_rules.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// A rejection is about to be sent.
    pub(super) fn nack_sent(&self) {
        self.nacks.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn ended(&self, end: StreamEnd) {
        self.connected.store(false, Ordering::Relaxed);
        self.stream_ends[end as usize].fetch_add(1, Ordering::Relaxed);
    }

    fn set_version(&self, version: &str, at: Micros) {
        self.version.store(Some(Arc::new(version.to_owned())));
        self.updated.store(at.0, Ordering::Relaxed);
    }

    fn set_parts(&self, outcome: &XdsOutcome) {
        self.kept.store(outcome.kept, Ordering::Relaxed);
        self.dropped.store(outcome.dropped, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepted() -> XdsOutcome {
        XdsOutcome { reasons: Vec::new(), kept: 0, dropped: 0 }
    }

    fn rejected() -> XdsOutcome {
        XdsOutcome { reasons: vec!["bad".to_owned()], kept: 2, dropped: 1 }
    }

    fn version(status: &XdsStatus) -> String {
        status.version().map(|version| version.to_string()).unwrap_or_default()
    }

    #[test]
    fn first_rules_are_missing_then_rejected_or_accepted() {
        let (status, now) = (XdsStatus::default(), Micros::SECOND);
        assert_eq!(status.first_rules(), FirstRules::Missing);
        assert_eq!((status.updated(), status.version()), (None, None));
        assert!(status.is_last_accepted());
        status.rejected(true);
        assert_eq!((status.updated(), status.version()), (None, None), "nothing was applied");
        status.applied("1", &rejected(), true, now);
        status.applied("1", &rejected(), false, now);
        assert_eq!(status.first_rules(), FirstRules::Rejected);
        assert!(!status.is_last_accepted());
        status.applied("2", &accepted(), true, now);
        status.applied("3", &accepted(), false, now);
        assert_eq!(status.first_rules(), FirstRules::Accepted);
        status.applied("4", &rejected(), true, now);
        assert_eq!(status.first_rules(), FirstRules::Accepted, "the rules stay");
        assert_eq!(status.updates(), (1, 3));
    }

    /// The valid parts of a rejected response are active.
    #[test]
    fn a_rejected_response_has_a_version_and_parts() {
        let status = XdsStatus::default();
        status.applied("1", &accepted(), true, Micros::from_secs(1));
        assert_eq!(status.faulty_parts(), (0, 0));
        status.applied("2", &rejected(), true, Micros::from_secs(2));
        assert_eq!(version(&status), "2");
        assert_eq!(status.updated(), Some(Micros::from_secs(2)));
        assert_eq!(status.faulty_parts(), (2, 1));
        status.applied("3", &accepted(), true, Micros::from_secs(3));
        assert_eq!(status.faulty_parts(), (0, 0));
    }

    #[test]
    fn the_cache_counts_until_the_server_has_sent_rules() {
        for outcome in [accepted(), rejected()] {
            let status = XdsStatus::default();
            status.cache_applied("7", &rejected(), Micros::SECOND);
            assert_eq!(status.first_rules(), FirstRules::Rejected);
            status.cache_applied("7", &accepted(), Micros::SECOND);
            assert_eq!(status.first_rules(), FirstRules::Accepted);
            assert_eq!((status.updated(), version(&status)), (Some(Micros::SECOND), "7".into()));
            status.rejected(true);
            assert!(status.is_from_cache(), "nothing was applied");
            status.applied("1", &outcome, true, Micros::from_secs(2));
            assert!(!status.is_from_cache());
        }
    }

    #[test]
    fn ends_are_counted_by_reason() {
        let status = XdsStatus::default();
        for (index, end) in StreamEnd::ALL.into_iter().enumerate() {
            status.set_connected(true);
            for _ in 0..=index {
                status.ended(end);
            }
            assert!(!status.is_connected());
            assert_eq!(status.stream_ends(end), index as u64 + 1, "{}", end.name());
        }
    }
}
