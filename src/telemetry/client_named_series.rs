//! Series whose names come from requests, for the metrics of envoyproxy/ratelimit: domains that no file
//! defines, and limits that requests carry.
//!
//! Clients choose these names, so their number and their length are bounded. A name over a bound is not
//! counted here. The metrics of weir count its requests without the name.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

use hashbrown::HashMap;

use super::outcomes::{EnvoyRatelimitSnapshot, OutcomeMetrics, OutcomeSnapshot, add};
use crate::decision::Status;
use crate::descriptor::Entry;
use crate::rules::override_stat_key;

/// Longest name in bytes.
const NAME_BYTES_MAX: usize = 256;

/// The series of both kinds, at most `max` of each.
#[derive(Debug)]
pub(super) struct ClientNamedSeries {
    /// Descriptors by unknown domain. Names have only characters of metric names.
    unknown_domains: BoundedSeries<AtomicU64>,
    /// Decisions on limits from requests, by domain and stat key, joined by a dot.
    overrides: BoundedSeries<OutcomeMetrics>,
}

/// Series by name, added when they are first counted.
#[derive(Debug)]
struct BoundedSeries<T> {
    max: usize,
    series: RwLock<HashMap<Box<str>, T>>,
}

impl ClientNamedSeries {
    pub(super) fn new(max: usize) -> ClientNamedSeries {
        ClientNamedSeries {
            unknown_domains: BoundedSeries::new(max),
            overrides: BoundedSeries::new(max),
        }
    }

    /// Counts one descriptor of a domain that no file defines.
    #[cold]
    pub(super) fn count_unknown_domain(&self, domain: &str) {
        self.unknown_domains.count(&in_metric_name(domain), |descriptors| add(descriptors, 1));
    }

    /// Counts a decision on a limit that the request carried.
    #[cold]
    pub(super) fn count_override(&self, domain: &str, entries: &[Entry<'_>], status: &Status) {
        let name = format!("{domain}.{}", override_stat_key(entries));
        self.overrides.count(&name, |metrics| {
            metrics.record(status);
        });
    }

    /// Descriptors by unknown domain, as metric names have it.
    pub(super) fn unknown_domains(&self) -> Vec<(Box<str>, u64)> {
        self.unknown_domains.all(|descriptors| descriptors.load(Ordering::Relaxed))
    }

    /// The hits on limits from requests, by domain and stat key, joined by a dot.
    pub(super) fn overrides(&self) -> Vec<(Box<str>, EnvoyRatelimitSnapshot)> {
        self.overrides.all(|metrics| {
            let mut snapshot = OutcomeSnapshot::default();
            metrics.add_to(&mut snapshot);
            snapshot.envoy_ratelimit
        })
    }
}

impl<T: Default> BoundedSeries<T> {
    fn new(max: usize) -> BoundedSeries<T> {
        BoundedSeries { max, series: RwLock::default() }
    }

    /// Calls `count` with the series `name`, unless the name is over a bound.
    fn count(&self, name: &str, count: impl FnOnce(&T)) {
        {
            let series = self.read();
            match series.get(name) {
                Some(known) => return count(known),
                None if series.len() >= self.max || name.len() > NAME_BYTES_MAX => return,
                None => {}
            }
        }
        let mut series = self.series.write().unwrap_or_else(PoisonError::into_inner);
        // Another thread may have added the name, or the last one that fits.
        if series.len() < self.max || series.contains_key(name) {
            count(series.entry(name.into()).or_default());
        }
    }

    /// The name and the counts of every series, sorted by name.
    fn all<C>(&self, read: impl Fn(&T) -> C) -> Vec<(Box<str>, C)> {
        let series = self.read();
        let mut all: Vec<_> = series.iter().map(|(name, one)| (name.clone(), read(one))).collect();
        all.sort_by(|a, b| a.0.cmp(&b.0));
        all
    }

    fn read(&self) -> RwLockReadGuard<'_, HashMap<Box<str>, T>> {
        self.series.read().unwrap_or_else(PoisonError::into_inner)
    }
}

/// `text` with `_` for every character that a metric's name cannot have, as statsd_exporter writes it.
fn in_metric_name(text: &str) -> String {
    text.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_requests_are_bounded() {
        let series = ClientNamedSeries::new(2);
        for domain in ["b.c", "a", "b-c", "third", "a", &"x".repeat(NAME_BYTES_MAX + 1)] {
            series.count_unknown_domain(domain);
        }
        let counted: [(Box<str>, u64); 2] = [("a".into(), 2), ("b_c".into(), 2)];
        assert_eq!(series.unknown_domains(), counted, "names of one metric are one series");
        let long = ClientNamedSeries::new(2);
        long.count_unknown_domain(&"x".repeat(NAME_BYTES_MAX + 1));
        assert_eq!(long.unknown_domains().len(), 0);
        ClientNamedSeries::new(0).count_unknown_domain("a");
    }
}
