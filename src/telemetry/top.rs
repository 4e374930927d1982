//! The counters denied most in the last minute.
//!
//! Only denials are counted. Each shard has its own sketches of bounded memory, and the page sums
//! them. A denial is not counted if the lock of its shard is taken, so no denial waits.

use std::sync::{Arc, Mutex};

use hashbrown::HashMap;
use serde_json::{Value, json};

use super::exposition::{Exposition, cut};
use super::rule_metrics::RuleSeries;
use crate::descriptor::Entry;
use crate::key::{CounterKey, KeySeed};
use crate::rules::{Rule, descriptor_selector};
use crate::sharded::Sharded;
use crate::time::Micros;

mod sketch;
#[cfg(test)]
mod tests;

use sketch::{Estimate, Sketch};

/// Number of counters on the page.
const COUNTERS_SHOWN: usize = 20;

/// Length of one slice of the window.
const SLICE: Micros = Micros::from_secs(10);

/// Number of slices of the window, the current one included.
const SLICES: usize = 6;

/// Longest text of a counter's values, in bytes.
const VALUES_BYTES_MAX: usize = 256;

/// The counters with the most denied hits in the last minute.
pub struct TopDenied {
    shards: Sharded<Mutex<DeniedWindow>>,
    /// Seed of the counters' names. It is random per process, so that a name cannot be looked up in
    /// Redis.
    seed: KeySeed,
    /// Whether values of requests are shown besides the hash (`metrics.top_values`).
    with_values: bool,
}

/// The sketches of one shard, one per slice of the minute.
#[derive(Debug, Default)]
struct DeniedWindow {
    slices: [Slice; SLICES],
}

#[derive(Debug, Default)]
struct Slice {
    /// Number of the slice since the epoch.
    number: u64,
    sketch: Sketch<CounterLabels>,
}

/// The labels of a counter.
#[derive(Clone, Debug)]
struct CounterLabels {
    domain: Arc<str>,
    rule: Arc<str>,
    /// The selector of the rule, if its name is another text.
    selector: Option<Arc<str>>,
    values: Option<Box<str>>,
    /// The whole descriptor, in the syntax of the command line, if the rule permits it.
    descriptor: Option<Box<str>>,
    /// The first denial of the run of slices with an entry of the counter.
    first_denied: Micros,
}

/// A counter with denied hits in the last minute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitedCounter {
    /// The domain of its rule.
    pub domain: Arc<str>,
    /// Its rule, as in metrics.
    pub rule: Arc<str>,
    /// The selector of the rule, if its name is another text.
    pub selector: Option<Arc<str>>,
    /// The hash by which `/top` names it.
    pub hash: String,
    /// The descriptor, in the syntax of the command line. `None` if neither the rule nor the settings
    /// permit it, or if it has more than 256 bytes.
    pub descriptor: Option<Box<str>>,
    /// Upper bound of the denied hits.
    pub denied_hits: u64,
    /// Lower bound of the denied hits.
    pub at_least: u64,
    /// The first denial of the run of denials that reaches into the minute, as far as this process has
    /// kept it. A slice without denials ends a run.
    pub first_denied: Micros,
}

/// One counter, summed over all shards.
#[derive(Debug)]
struct TopCounter {
    key: CounterKey,
    estimate: Estimate<CounterLabels>,
}

impl TopDenied {
    /// An empty list. `with_values`: whether values of requests are shown.
    pub fn new(with_values: bool) -> TopDenied {
        TopDenied { shards: Sharded::default(), seed: KeySeed::random(), with_values }
    }

    /// The seed of the keys that [`hash`](Self::hash) shows.
    pub fn seed(&self) -> &KeySeed {
        &self.seed
    }

    /// The hash by which `/top` names a counter. `key` is the counter's key under
    /// [`seed`](Self::seed).
    pub fn hash(key: CounterKey) -> String {
        format!("{:016x}", key.0[0])
    }

    /// Counts `hits` that `rule` denied at `now`.
    pub(super) fn denied(
        &self,
        rule: &Rule,
        series: &RuleSeries,
        entries: &[Entry<'_>],
        hits: u64,
        now: Micros,
    ) {
        // A page or a thread of the same shard may hold the lock. The hits are then not counted.
        // They are too few to change the order.
        let Ok(mut window) = self.shards.local().try_lock() else { return };
        let key = rule.key(&self.seed, entries);
        let (sketch, before) = window.sketches(now);
        let first_denied = || {
            let known = before.and_then(|before| before.labels(key));
            known.map_or(now, |labels| labels.first_denied.min(now))
        };
        sketch.add(key, hits.max(1), || CounterLabels {
            domain: series.domain.clone(),
            rule: series.rule.clone(),
            // Not kept in the series, which stay after a reload if only the path of the rule changed.
            selector: rule.other_selector().map(Arc::from),
            values: self.with_values.then(|| {
                let text = descriptor_selector(entries);
                cut(&text, VALUES_BYTES_MAX).into()
            }),
            descriptor: (self.with_values || rule.usage || rule.shows_all_values())
                .then(|| whole_descriptor(entries))
                .flatten(),
            first_denied: first_denied(),
        });
    }

    /// The counters denied most in the minute before `now`, most first.
    fn counters(&self, now: Micros) -> Vec<TopCounter> {
        let mut sums: HashMap<CounterKey, Estimate<CounterLabels>> = HashMap::new();
        for shard in self.shards.all() {
            let Ok(window) = shard.lock() else { continue };
            for slice in window.slices.iter().filter(|slice| slice.is_within(now)) {
                for (key, estimate) in slice.sketch.all() {
                    sums.entry(*key)
                        .and_modify(|sum| {
                            sum.count = sum.count.saturating_add(estimate.count);
                            sum.excess = sum.excess.saturating_add(estimate.excess);
                            let first = estimate.labels.first_denied;
                            sum.labels.first_denied = sum.labels.first_denied.min(first);
                        })
                        .or_insert_with(|| estimate.clone());
                }
            }
        }
        let mut counters: Vec<TopCounter> =
            sums.into_iter().map(|(key, estimate)| TopCounter { key, estimate }).collect();
        counters.sort_by_key(|one| (std::cmp::Reverse(one.estimate.count), one.key.0));
        counters.truncate(COUNTERS_SHOWN);
        counters
    }

    /// The counters denied most in the minute before `now`, most first, with their descriptors where
    /// these are permitted. At most 20.
    pub fn limited(&self, now: Micros) -> Vec<LimitedCounter> {
        let counter = |one: TopCounter| {
            let Estimate { count, excess, labels } = one.estimate;
            LimitedCounter {
                domain: labels.domain,
                rule: labels.rule,
                selector: labels.selector,
                hash: TopDenied::hash(one.key),
                descriptor: labels.descriptor,
                denied_hits: count,
                at_least: count - excess.min(count),
                first_denied: labels.first_denied,
            }
        };
        self.counters(now).into_iter().map(counter).collect()
    }

    /// The counters denied most in the minute before `now`, for `/top`.
    pub fn to_json(&self, now: Micros) -> Value {
        let counter = |one: TopCounter| {
            let Estimate { count, excess, labels } = one.estimate;
            let mut shown = json!({
                "domain": &*labels.domain,
                "rule": &*labels.rule,
                "counter": TopDenied::hash(one.key),
                "denied_hits": count,
                "at_least": count - excess.min(count),
            });
            if let Some(selector) = labels.selector {
                shown["selector"] = json!(&*selector);
            }
            if let Some(values) = labels.values {
                shown["descriptor"] = String::from(values).into();
            }
            shown
        };
        let seconds = SLICE.0 * SLICES as u64 / Micros::SECOND.0;
        let top: Vec<Value> = self.counters(now).into_iter().map(counter).collect();
        json!({ "seconds": seconds, "top": top })
    }

    /// Writes the counters denied most in the minute before `now` onto the page.
    pub fn expose(&self, now: Micros, page: &mut Exposition) {
        let help = "Denied hits of the 20 counters denied most in the last minute.";
        let family = page.gauge("weir_top_denied_hits", help);
        for TopCounter { key, estimate: Estimate { count, labels, .. } } in self.counters(now) {
            let name = labels.values.map_or_else(|| TopDenied::hash(key), Into::into);
            let labels = [("domain", &*labels.domain), ("rule", &*labels.rule)];
            family.sample(&[labels[0], labels[1], ("counter", &name)], count);
        }
    }
}

/// The descriptor in the syntax of the command line. `None` if it is longer than
/// [`VALUES_BYTES_MAX`], or if a key has an equals sign, which this syntax cannot express.
fn whole_descriptor(entries: &[Entry<'_>]) -> Option<Box<str>> {
    let bytes: usize = entries.iter().map(|entry| entry.key.len() + entry.value.len() + 1).sum();
    if bytes > VALUES_BYTES_MAX || entries.iter().any(|entry| entry.key.contains('=')) {
        return None;
    }
    let text = descriptor_selector(entries);
    (text.len() <= VALUES_BYTES_MAX).then(|| text.into())
}

impl DeniedWindow {
    /// The sketch of the current slice, and that of the slice before if it had a denial.
    fn sketches(
        &mut self,
        now: Micros,
    ) -> (&mut Sketch<CounterLabels>, Option<&Sketch<CounterLabels>>) {
        let number = now.0 / SLICE.0;
        let at = (number % SLICES as u64) as usize;
        let (left, right) = self.slices.split_at_mut(at);
        let (slice, right) = right.split_first_mut().expect("a slice of the window");
        if slice.number != number {
            slice.number = number;
            slice.sketch.clear();
        }
        let before = left.last().or(right.last());
        let before = before.filter(|before| before.number.checked_add(1) == Some(number));
        (&mut slice.sketch, before.map(|before| &before.sketch))
    }
}

impl Slice {
    fn is_within(&self, now: Micros) -> bool {
        let current = now.0 / SLICE.0;
        self.number <= current && self.number + SLICES as u64 > current
    }
}
