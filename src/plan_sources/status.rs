//! The health of the source of plans, for the admin port, metrics and the log.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwapOption;

use crate::escape::excerpt;
use crate::outage_log::OutageLog;
use crate::time::Micros;

/// The most characters of an error that are kept.
const ERROR_CHARS_MAX: usize = 2_000;

/// The health of one source. Readers may see its parts at different moments.
#[derive(Debug)]
pub struct SourceStatus {
    source: &'static str,
    /// Whether outages are logged.
    logs: bool,
    /// When the plans were last known to be current, in microseconds; 0 before that.
    confirmed: AtomicU64,
    /// When the plans last changed, in microseconds; 0 before that.
    updated: AtomicU64,
    updates: AtomicU64,
    /// The last error; `None` if the last attempt succeeded.
    error: ArcSwapOption<String>,
    errors: AtomicU64,
    log: Mutex<OutageLog>,
}

impl SourceStatus {
    /// The health of a source that has not been read. `source` is its name in `plans.source`.
    pub fn new(source: &'static str) -> SourceStatus {
        SourceStatus { logs: true, ..SourceStatus::without_log(source) }
    }

    /// Like [`new`](SourceStatus::new), for a source whose reader writes its own lines to the log.
    pub fn without_log(source: &'static str) -> SourceStatus {
        SourceStatus {
            source,
            logs: false,
            confirmed: AtomicU64::new(0),
            updated: AtomicU64::new(0),
            updates: AtomicU64::new(0),
            error: ArcSwapOption::empty(),
            errors: AtomicU64::new(0),
            log: Mutex::default(),
        }
    }

    /// The name of the source in `plans.source`.
    pub fn source(&self) -> &'static str {
        self.source
    }

    /// When the plans were last known to be those of the source; `None` before that.
    pub fn confirmed(&self) -> Option<Micros> {
        instant(&self.confirmed)
    }

    /// When plans of the source last became active; `None` before that.
    pub fn updated(&self) -> Option<Micros> {
        instant(&self.updated)
    }

    /// How often plans of the source became active.
    pub fn updates(&self) -> u64 {
        self.updates.load(Ordering::Relaxed)
    }

    /// Why the source could not be read, on one line; `None` if the last attempt succeeded.
    pub fn error(&self) -> Option<Arc<String>> {
        self.error.load_full()
    }

    /// Attempts that failed.
    pub fn errors(&self) -> u64 {
        self.errors.load(Ordering::Relaxed)
    }

    /// The plans are those of the source at `now`.
    pub fn succeeded(&self, now: Micros) {
        self.confirmed.store(now.0, Ordering::Relaxed);
        self.error.store(None);
        if self.logs && self.log.lock().unwrap_or_else(PoisonError::into_inner).up() {
            tracing::info!(source = self.source, "plans are read again");
        }
    }

    /// New plans of the source are active from `now` on.
    pub fn changed(&self, now: Micros) {
        self.updated.store(now.0, Ordering::Relaxed);
        self.updates.fetch_add(1, Ordering::Relaxed);
    }

    /// The source could not be read at `now`, or has invalid plans. The last ones stay.
    pub fn failed(&self, now: Micros, error: &str) {
        self.errors.fetch_add(1, Ordering::Relaxed);
        let error = excerpt(error, ERROR_CHARS_MAX);
        self.error.store(Some(Arc::new(error.clone())));
        if self.logs && self.log.lock().unwrap_or_else(PoisonError::into_inner).down(&error, now) {
            tracing::warn!(source = self.source, %error, "plans are not read: the last ones stay");
        }
    }
}

fn instant(at: &AtomicU64) -> Option<Micros> {
    Some(Micros(at.load(Ordering::Relaxed))).filter(|at| *at > Micros::ZERO)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_stays_until_the_source_is_read() {
        let status = SourceStatus::new("http");
        assert_eq!((status.confirmed(), status.updated(), status.error()), (None, None, None));
        status.succeeded(Micros(1));
        status.changed(Micros(2));
        status.failed(Micros(3), "gone\nfor ever");
        status.failed(Micros(4), "gone again");
        assert_eq!(status.error().as_deref().map(String::as_str), Some("gone again"));
        assert_eq!((status.confirmed(), status.updated()), (Some(Micros(1)), Some(Micros(2))));
        assert_eq!((status.errors(), status.updates(), status.source()), (2, 1, "http"));
        status.failed(Micros(5), &"two\nlines".repeat(1_000));
        let error = status.error().unwrap();
        assert!(!error.contains('\n') && error.chars().count() < 2 * ERROR_CHARS_MAX, "{error}");
        status.succeeded(Micros(6));
        assert_eq!((status.error(), status.errors()), (None, 3));
        assert_eq!(status.confirmed(), Some(Micros(6)));
    }
}
