//! A rule: a node of the tree that carries a limit.

use std::borrow::Cow;
use std::fmt::Write;
use std::sync::Arc;

use super::matcher::Matcher;
use super::problem::Location;
use crate::descriptor::Entry;
use crate::key::{Key, KeyBuilder, KeySeed, RuleId};
use crate::limit::{Algorithm, Limit, Mode, OnError, Unit};
use crate::time::Micros;

/// A rule's `name`, numbered per rule set so that `replaces` costs an integer comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NameId(pub u32);

/// What a rule does with hits.
#[derive(Clone, Debug, PartialEq)]
pub enum Policy {
    /// Let everything pass without counting.
    Unlimited,
    /// Count, and deny beyond the limit.
    Limit(Limit),
}

/// A node of the tree that carries a limit.
#[derive(Clone, Debug)]
pub struct Rule {
    /// Position in [`super::RuleSet::rules`].
    pub index: usize,
    /// Stable identity: domain, place in the tree, algorithm and windows; not the limit's numbers.
    pub id: RuleId,
    /// The namespace.
    pub domain: Arc<str>,
    /// The `name` field: shown in answers, and what `replaces` refers to.
    pub name: Option<Arc<str>>,
    /// `name`, numbered.
    pub name_id: Option<NameId>,
    /// What to call the rule: its `name`, else the keys that lead to it, joined with dots.
    pub label: Arc<str>,
    /// Names of rules that this one drops from the same request.
    pub replaces: Box<[NameId]>,
    /// What it does with hits.
    pub policy: Policy,
    /// How long a reservation waits to be settled; `None` when hits are not reserved.
    pub reserve: Option<Micros>,
    /// What decides when the counter cannot be asked; `None`: the process's default.
    pub on_error: Option<OnError>,
    /// How often a decision visits a store that instances share.
    pub mode: Mode,
    /// A counter that is known to be full is denied from memory.
    pub over_limit_cache: bool,
    /// Denials are reported as OK.
    pub shadow_mode: bool,
    /// Denials count only when every quota rule of the request is over.
    pub quota_mode: bool,
    /// Returned as dynamic metadata when the rule passes.
    pub metadata: Option<Arc<serde_json::Map<String, serde_json::Value>>>,
    /// Where it was written.
    pub location: Location,
    /// The nodes from the root to the rule, one per entry.
    pub(super) path: Box<[Arc<PathNode>]>,
    /// The stat key shows every key and value.
    pub(super) detailed_metric: bool,
    /// The stat key as far as the files alone decide it.
    pub(super) written_stat_key: Box<str>,
}

/// What one level of the way to a rule asks of an entry.
#[derive(Debug)]
pub(super) struct PathNode {
    pub(super) key: Arc<str>,
    pub(super) matcher: Matcher,
    pub(super) share_threshold: bool,
    pub(super) value_to_metric: bool,
}

impl Rule {
    /// Whether a request that passes takes something under a lease: slots, or a reservation.
    pub fn leases(&self) -> bool {
        match &self.policy {
            Policy::Unlimited => false,
            Policy::Limit(limit) => self.reserve.is_some() || limit.counts_slots(),
        }
    }

    /// The counter that a descriptor counts on, once `find` has led it here.
    pub fn key(&self, seed: &KeySeed, entries: &[Entry<'_>]) -> Key {
        let mut key = KeyBuilder::for_rule(seed, self.id);
        for (node, entry) in self.path.iter().zip(entries) {
            if node.counts_per_value() {
                node.matcher.add_counter_parts(entry.value, &mut key);
            }
        }
        key.finish()
    }

    /// envoyproxy/ratelimit's stat key (one segment per entry, joined with dots), without the domain.
    /// Allocates only when `detailed_metric` or `value_to_metric` ask for values of the request.
    pub fn stat_key(&self, entries: &[Entry<'_>]) -> Cow<'_, str> {
        if !self.is_detailed() {
            return Cow::Borrowed(&self.written_stat_key);
        }
        let mut text = String::new();
        for (node, entry) in self.path.iter().zip(entries) {
            if !text.is_empty() {
                text.push('.');
            }
            let hidden = matches!(node.matcher, Matcher::Any) && entry.value.is_empty();
            text.push_str(&node.key);
            if !self.shows_value(node) {
                node.push_written_value(&mut text);
            } else if self.detailed_metric || !hidden {
                text.push('_');
                text.push_str(entry.value);
            }
        }
        Cow::Owned(text)
    }

    /// The stat key as far as the files alone decide it: patterns instead of values.
    pub fn written_stat_key(&self) -> &str {
        &self.written_stat_key
    }

    /// `detailed_metric` or `value_to_metric` ask for values of the request in metrics.
    pub fn is_detailed(&self) -> bool {
        self.path.iter().any(|node| self.shows_value(node))
    }

    pub(super) fn shows_value(&self, node: &PathNode) -> bool {
        (self.detailed_metric || node.value_to_metric) && !node.share_threshold
    }
}

impl PathNode {
    /// Different values of this level count on different counters.
    pub(super) fn counts_per_value(&self) -> bool {
        !self.share_threshold && self.matcher.counts_per_value()
    }

    fn push_written_value(&self, text: &mut String) {
        if !matches!(self.matcher, Matcher::Any) {
            text.push('_');
            text.push_str(self.matcher.source());
        }
    }

    fn add_identity(&self, id: &mut KeyBuilder) {
        id.text(&self.key).number(u64::from(self.matcher.rank())).text(self.matcher.source());
        id.number(u64::from(self.share_threshold));
        id.number(self.matcher.count_by().len() as u64);
        for name in self.matcher.count_by() {
            id.text(name);
        }
    }
}

/// The stat key that the files alone decide.
pub(super) fn written_stat_key(path: &[Arc<PathNode>]) -> Box<str> {
    let mut text = String::new();
    for node in path {
        if !text.is_empty() {
            text.push('.');
        }
        text.push_str(&node.key);
        node.push_written_value(&mut text);
    }
    text.into()
}

/// The identity of the rule at `path`.
pub(super) fn identity(domain: &str, path: &[Arc<PathNode>], policy: &Policy) -> RuleId {
    let mut id = RuleId::builder();
    id.text("rule").text(domain).number(path.len() as u64);
    for node in path {
        node.add_identity(&mut id);
    }
    match policy {
        Policy::Unlimited => {
            id.number(0);
        }
        Policy::Limit(limit) => {
            id.number(number(limit.algorithm)).number(limit.tiers.len() as u64);
            for tier in &limit.tiers {
                id.number(tier.window.0);
            }
        }
    }
    id.finish().into()
}

/// Fixed for ever: counters in shared stores depend on it.
fn number(algorithm: Algorithm) -> u64 {
    match algorithm {
        Algorithm::FixedWindow => 1,
        Algorithm::SlidingWindow => 2,
        Algorithm::SlidingWindowLog => 3,
        Algorithm::TokenBucket => 4,
        Algorithm::LeakyBucket => 5,
        Algorithm::Concurrency => 6,
    }
}

/// The counter of a limit that came with a request: its entries and unit, not its number.
pub fn override_key(seed: &KeySeed, domain: &str, entries: &[Entry<'_>], unit: Unit) -> Key {
    let mut id = RuleId::builder();
    id.text("override").number(unit.window().0);
    let mut key = KeyBuilder::for_rule(seed, id.finish().into());
    key.text(domain).number(entries.len() as u64);
    for entry in entries {
        key.text(entry.key).text(entry.value);
    }
    key.finish()
}

/// envoyproxy/ratelimit's stat key of a limit that came with a request, without the domain.
pub fn override_stat_key(entries: &[Entry<'_>]) -> String {
    let mut text = String::new();
    for entry in entries {
        let dot = if text.is_empty() { "" } else { "." };
        write!(text, "{dot}{}_{}", entry.key, entry.value).expect("a String takes all");
    }
    text
}
