//! What the client has received so far, for metrics and readiness.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use arc_swap::ArcSwapOption;

use crate::time::Micros;

/// The state of the client. Readers may see its parts at different moments.
#[derive(Debug, Default)]
pub struct XdsStatus {
    connected: AtomicBool,
    /// [`FirstRules`] as a number.
    first: AtomicU8,
    from_cache: AtomicBool,
    last_rejected: AtomicBool,
    /// When the server last sent the active rules, in microseconds; 0 before that.
    updated: AtomicU64,
    version: ArcSwapOption<String>,
    accepted: AtomicU64,
    rejected: AtomicU64,
    nacks: AtomicU64,
    ends: [AtomicU64; StreamEnd::ALL.len()],
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
    /// Whether a connection to the server is open. A server that stays silent is connected.
    pub fn is_connected(&self) -> bool {
        self.connected.load(Ordering::Relaxed)
    }

    /// Whether there have been rules yet.
    pub fn first_rules(&self) -> FirstRules {
        match self.first.load(Ordering::Acquire) {
            0 => FirstRules::Missing,
            1 => FirstRules::Rejected,
            _ => FirstRules::Accepted,
        }
    }

    /// Whether the active rules are those of the cache.
    pub fn is_from_cache(&self) -> bool {
        self.from_cache.load(Ordering::Relaxed)
    }

    /// Whether the last response was accepted, or none has come.
    pub fn is_last_accepted(&self) -> bool {
        !self.last_rejected.load(Ordering::Relaxed)
    }

    /// When the server sent the last accepted rules; `None` before that.
    pub fn updated(&self) -> Option<Micros> {
        Some(Micros(self.updated.load(Ordering::Relaxed))).filter(|at| *at > Micros::ZERO)
    }

    /// The version of the last accepted rules.
    pub fn version(&self) -> Option<Arc<String>> {
        self.version.load_full()
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
    pub fn ends(&self, end: StreamEnd) -> u64 {
        self.ends[end as usize].load(Ordering::Relaxed)
    }

    pub(super) fn set_connected(&self, connected: bool) {
        self.connected.store(connected, Ordering::Relaxed);
    }

    /// The cache, which was written at `written`, was applied. It is not `whole` if parts of it do not
    /// fit to the rule files any more.
    pub(super) fn cache_applied(&self, version: &str, written: Micros, whole: bool) {
        self.from_cache.store(true, Ordering::Relaxed);
        self.set_version(version, written, if whole { 2 } else { 1 });
    }

    /// The server sent the rules that are now active.
    pub(super) fn accepted(&self, version: &str, is_new: bool, now: Micros) {
        self.accepted.fetch_add(u64::from(is_new), Ordering::Relaxed);
        self.from_cache.store(false, Ordering::Relaxed);
        self.last_rejected.store(false, Ordering::Relaxed);
        self.set_version(version, now, 2);
    }

    pub(super) fn rejected(&self, is_new: bool) {
        self.rejected.fetch_add(u64::from(is_new), Ordering::Relaxed);
        self.nacks.fetch_add(1, Ordering::Relaxed);
        self.last_rejected.store(true, Ordering::Relaxed);
        // Rules that were accepted before stay.
        let _ = self.first.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed);
    }

    pub(super) fn ended(&self, end: StreamEnd) {
        self.connected.store(false, Ordering::Relaxed);
        self.ends[end as usize].fetch_add(1, Ordering::Relaxed);
    }

    fn set_version(&self, version: &str, at: Micros, first: u8) {
        self.version.store(Some(Arc::new(version.to_owned())));
        self.updated.store(at.0, Ordering::Relaxed);
        self.first.store(first, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_rules_are_missing_then_rejected_or_accepted() {
        let status = XdsStatus::default();
        assert_eq!(status.first_rules(), FirstRules::Missing);
        assert_eq!((status.updated(), status.version()), (None, None));
        assert!(status.is_last_accepted());
        status.rejected(true);
        status.rejected(false);
        assert_eq!(status.first_rules(), FirstRules::Rejected);
        assert!(!status.is_last_accepted());
        status.accepted("1", true, Micros::SECOND);
        assert_eq!(status.first_rules(), FirstRules::Accepted);
        status.rejected(true);
        assert_eq!(status.first_rules(), FirstRules::Accepted, "the rules stay");
        assert_eq!((status.updates(), status.nacks()), ((1, 2), 3));
        assert_eq!(status.version().as_deref().map(String::as_str), Some("1"));
    }

    #[test]
    fn the_cache_counts_until_the_server_has_sent_rules() {
        let status = XdsStatus::default();
        status.cache_applied("7", Micros::SECOND, false);
        assert_eq!(status.first_rules(), FirstRules::Rejected);
        status.cache_applied("7", Micros::SECOND, true);
        assert_eq!(status.first_rules(), FirstRules::Accepted);
        assert!(status.is_from_cache());
        assert_eq!(status.updated(), Some(Micros::SECOND));
        status.rejected(true);
        assert!(status.is_from_cache());
        status.accepted("1", true, Micros::from_secs(2));
        assert!(!status.is_from_cache());
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
            assert_eq!(status.ends(end), index as u64 + 1, "{}", end.name());
        }
    }
}
