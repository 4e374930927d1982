//! A rule: a node of the tree with a limit.

use std::fmt::Write;
use std::ops::Deref;
use std::sync::Arc;

use super::limit_from::LimitFrom;
use super::matcher::Matcher;
use crate::descriptor::Entry;
use crate::key::{CounterKey, KeyBuilder, KeySeed, RuleId};
use crate::limit::{
    Algorithm, Calendar, Cost, Indivisible, Limit, Mode, OnError, RequestLines, Unit, WindowStart,
};
use crate::rules::file::problem::Location;
use crate::time::Micros;

/// The number of a rule's `name` in its rule set. `replaces` compares numbers instead of texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NameId(pub u32);

/// Whether and how a rule limits hits.
#[derive(Clone, Debug, PartialEq)]
pub enum RuleLimit {
    /// Allows every hit and counts none.
    Unlimited,
    /// Counts hits and denies those over the limit.
    Limit(Limit),
}

/// A limit that is counted beside the limit of a rule, and never denies.
#[derive(Clone, Debug, PartialEq)]
pub struct WhatIfLimit {
    /// The limit, with the algorithm of the rule.
    pub limit: Limit,
    /// The identity that the rule would have with this limit.
    pub id: RuleId,
}

/// A node of the tree with a limit: its fields and its position in one rule set.
///
/// The tree and the list of rules hold the same fields. So do two rule sets, if the second was compiled
/// after the first and the rule is equal in both.
#[derive(Clone, Debug)]
pub struct Rule {
    fields: Arc<RuleFields>,
    /// Position in [`crate::rules::RuleSet::rules`].
    pub index: usize,
}

impl Deref for Rule {
    type Target = RuleFields;

    fn deref(&self) -> &RuleFields {
        &self.fields
    }
}

/// What a rule is, apart from its position in a rule set. With the counts of its `Arc`, it has 256 bytes,
/// a size of the allocator; the next one is 320.
#[derive(Clone, Debug, PartialEq)]
pub struct RuleFields {
    /// Stable identity: domain, path in the tree, algorithm and windows, without the limit's
    /// numbers.
    pub id: RuleId,
    /// The domain.
    pub domain: Arc<str>,
    /// The `name` field, which the limit in a response has. `replaces` refers to it. Several rules may have
    /// one.
    pub name: Option<Arc<str>>,
    /// The number of `name`.
    pub name_id: Option<NameId>,
    /// The rule name, unique in the domain: `name`, or else the selector. It is the selector too if another
    /// rule of the domain has `name` as its name or as its selector.
    pub display_name: Arc<str>,
    /// The limit, or none.
    pub limit: RuleLimit,
    /// The cost of hits; `None` if hits count as they are. Few rules have one.
    pub cost: Option<Box<Cost>>,
    /// The limit of the field `shadow`, if there is one. A rule with leases has none.
    pub what_if: Option<Box<WhatIfLimit>>,
    /// The plan from which the limit takes its numbers. `None`: they are always those of `limit`.
    pub limit_from: Option<Box<LimitFrom>>,
    /// The time in which a reservation must be settled; `None` when hits are not reserved.
    pub reserve: Option<Micros>,
    /// The fallback when the store fails; `None` is the setting `fallback.on_error`.
    pub on_error: Option<OnError>,
    /// How often a decision calls a shared store.
    pub mode: Mode,
    /// Denies from memory while a counter is known to be full.
    pub over_limit_cache: bool,
    /// Keeps the names of its counters, so that `/usage` can list them.
    pub usage: bool,
    /// The requests that get a line in the log; `None` is the setting `log.requests`.
    pub log: Option<RequestLines>,
    /// Reports denials as OK.
    pub shadow_mode: bool,
    /// Denies only when every quota rule of the request is over its limit.
    pub quota_mode: bool,
    /// Returned as dynamic metadata when the rule passes.
    pub metadata: Option<Arc<serde_json::Map<String, serde_json::Value>>>,
    /// The rule's location in the rule files.
    pub location: Location,
    /// `None` if it would be empty.
    pub(in crate::rules) rare: Option<Box<RareRuleFields>>,
    /// The nodes from the root to the rule, one per entry of a descriptor.
    pub(in crate::rules) path: Box<[Arc<EntryMatcher>]>,
    /// The stat key shows every key and value.
    pub(in crate::rules) detailed_metric: bool,
}

const _: () = assert!(size_of::<RuleFields>() + 2 * size_of::<usize>() <= 256);

/// The fields that few rules have.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::rules) struct RareRuleFields {
    pub(in crate::rules) replaces: Vec<NameId>,
    pub(in crate::rules) overlays: Vec<Location>,
}

/// What a node of the tree accepts: the key of an entry, and the matcher of its value. The flags
/// apply to the value of the entry.
#[derive(Debug, PartialEq)]
pub(in crate::rules) struct EntryMatcher {
    pub(in crate::rules) key: Arc<str>,
    pub(in crate::rules) matcher: Matcher,
    pub(in crate::rules) share_threshold: bool,
    pub(in crate::rules) value_to_metric: bool,
}

impl Rule {
    /// The rule with these fields at a position.
    pub(in crate::rules) fn new(index: usize, fields: Arc<RuleFields>) -> Rule {
        Rule { fields, index }
    }

    /// The fields, for a rule of a later set.
    pub(in crate::rules) fn fields(&self) -> &Arc<RuleFields> {
        &self.fields
    }

    /// Changes the fields of this rule only.
    pub(in crate::rules) fn fields_mut(&mut self) -> &mut RuleFields {
        Arc::make_mut(&mut self.fields)
    }
}

impl RuleFields {
    /// The rules that do not count in a request that matches this rule.
    pub fn replaces(&self) -> &[NameId] {
        self.rare.as_ref().map_or(&[], |rare| &rare.replaces)
    }

    /// The overlays that changed the limit.
    pub fn overlays(&self) -> &[Location] {
        self.rare.as_ref().map_or(&[], |rare| &rare.overlays)
    }

    /// Whether an allowed request holds a lease: slots, or a reservation.
    pub fn leases(&self) -> bool {
        match &self.limit {
            RuleLimit::Unlimited => false,
            RuleLimit::Limit(limit) => self.reserve.is_some() || limit.counts_slots(),
        }
    }

    /// The hits that the counter counts for `hits` of a descriptor that `find` has matched to this rule:
    /// `hits` times the rule's cost. Positive hits are rounded up, negative ones towards 0.
    #[inline]
    pub fn weigh(&self, hits: i64, entries: &[Entry<'_>]) -> i64 {
        let Some(cost) = &self.cost else { return hits };
        cost.factor(|level| entries.get(level).map(|entry| entry.value)).weigh(hits)
    }

    /// Whether the quota service (RLQS) may divide the limit, if that has a quota.
    pub fn is_divisible(&self) -> bool {
        self.divisible().is_ok()
    }

    /// As [`is_divisible`](RuleFields::is_divisible), with the reason.
    ///
    /// # Errors
    ///
    /// What the rule has that cannot be divided.
    pub fn divisible(&self) -> Result<(), Indivisible> {
        if self.leases() {
            return Err(match self.reserve {
                Some(_) => Indivisible::Reservation,
                None => Indivisible::Slots,
            });
        }
        if self.cost.is_some() {
            return Err(Indivisible::Cost);
        }
        if self.limit_from.is_some() {
            return Err(Indivisible::Plans);
        }
        Ok(())
    }

    /// Whether the rule itself gives requests lines in the log.
    pub fn logs_requests(&self) -> bool {
        self.log.is_some_and(|lines| lines != RequestLines::Off)
    }

    /// Whether requests with different values may have different counters.
    pub fn counts_per_value(&self) -> bool {
        self.path.iter().any(|node| node.counts_per_value())
    }

    /// The number of entries that a descriptor has if it matches this rule.
    pub fn levels(&self) -> usize {
        self.path.len()
    }

    /// Whether the rule accepts one value only at `level`, counted from 0, so that the rule's selector
    /// has the value.
    pub fn has_exact_value(&self, level: usize) -> bool {
        self.path.get(level).is_some_and(|node| matches!(node.matcher, Matcher::Exact(_)))
    }

    /// The key of the counter for a descriptor that `find` has matched to this rule.
    pub fn key(&self, seed: &KeySeed, entries: &[Entry<'_>]) -> CounterKey {
        let mut key = KeyBuilder::for_rule(seed, self.id);
        for (node, entry) in self.path.iter().zip(entries) {
            if node.counts_per_value() {
                node.matcher.add_counter_parts(entry.value, &mut key);
            }
        }
        key.finish()
    }

    /// envoyproxy/ratelimit's stat key (one segment per entry, joined with dots), without the domain. It
    /// has values of the request with `detailed_metric` or `value_to_metric`.
    pub fn stat_key(&self, entries: &[Entry<'_>]) -> String {
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
        text
    }

    /// The stat key with patterns in place of request values.
    pub fn written_stat_key(&self) -> String {
        // Room for all, because growing would take most of the time.
        let length = |node: &Arc<EntryMatcher>| node.key.len() + node.matcher.source().len() + 2;
        let mut text = String::with_capacity(self.path.iter().map(length).sum());
        for node in self.path.iter() {
            if !text.is_empty() {
                text.push('.');
            }
            text.push_str(&node.key);
            node.push_written_value(&mut text);
        }
        text
    }

    /// Whether metrics show values of the request (`detailed_metric` or `value_to_metric`).
    pub fn is_detailed(&self) -> bool {
        self.path.iter().any(|node| self.shows_value(node))
    }

    /// Whether metrics show every value of the request, as with `detailed_metric`.
    pub fn shows_all_values(&self) -> bool {
        self.path.iter().all(|node| self.shows_value(node))
    }

    pub(in crate::rules) fn shows_value(&self, node: &EntryMatcher) -> bool {
        (self.detailed_metric || node.value_to_metric) && !node.share_threshold
    }
}

impl EntryMatcher {
    /// Whether different values of this level have different counters.
    pub(in crate::rules) fn counts_per_value(&self) -> bool {
        !self.share_threshold && self.matcher.counts_per_value()
    }

    fn push_written_value(&self, text: &mut String) {
        if !matches!(self.matcher, Matcher::Any) {
            text.push('_');
            text.push_str(self.matcher.source());
        }
    }

    fn add_identity(&self, id: &mut KeyBuilder) {
        id.text(&self.key).number(matcher_number(&self.matcher)).text(self.matcher.source());
        id.number(u64::from(self.share_threshold));
        id.number(self.matcher.count_by().len() as u64);
        for name in self.matcher.count_by() {
            id.text(name);
        }
    }
}

/// The identity of the rule at `path`.
pub(in crate::rules) fn identity(
    domain: &str,
    path: &[Arc<EntryMatcher>],
    limit: &RuleLimit,
) -> RuleId {
    let mut id = RuleId::builder();
    id.text("rule").text(domain).number(path.len() as u64);
    for node in path {
        node.add_identity(&mut id);
    }
    match limit {
        RuleLimit::Unlimited => {
            id.number(0);
        }
        RuleLimit::Limit(limit) => {
            id.number(algorithm_number(limit.algorithm)).number(limit.tiers.len() as u64);
            for tier in &limit.tiers {
                id.number(tier.window.0);
                if let Some(calendar) = &tier.calendar {
                    add_calendar(calendar, &mut id);
                }
            }
        }
    }
    id.finish().into()
}

/// Adds a calendar to an identity. Its names and numbers must never change: counters in shared stores
/// depend on them. A zone has its name, because another version may have other zones.
fn add_calendar(calendar: &Calendar, id: &mut KeyBuilder) {
    let WindowStart { month, day, weekday, hour } = calendar.starts;
    id.text("calendar").text(calendar.period.name()).text(calendar.zone.name());
    for number in [month, day, weekday, hour] {
        id.number(u64::from(number));
    }
}

/// The what-if limit of the rule at `path`.
pub(in crate::rules) fn what_if_limit(
    domain: &str,
    path: &[Arc<EntryMatcher>],
    limit: Limit,
) -> Box<WhatIfLimit> {
    let id = identity(domain, path, &RuleLimit::Limit(limit.clone()));
    Box::new(WhatIfLimit { limit, id })
}

/// The number of a kind of matcher in identities. It must never change: counters in shared stores
/// depend on it.
fn matcher_number(matcher: &Matcher) -> u64 {
    match matcher {
        Matcher::Exact(_) => 0,
        Matcher::Template(_) => 1,
        Matcher::Regex(_) => 2,
        Matcher::Cidr(_) => 3,
        Matcher::Wildcard(_) => 4,
        Matcher::Any => 5,
    }
}

/// The number of an algorithm in identities. It must never change: counters in shared stores depend
/// on it.
fn algorithm_number(algorithm: Algorithm) -> u64 {
    match algorithm {
        Algorithm::FixedWindow => 1,
        Algorithm::SlidingWindow => 2,
        Algorithm::SlidingWindowLog => 3,
        Algorithm::TokenBucket => 4,
        Algorithm::LeakyBucket => 5,
        Algorithm::Concurrency => 6,
    }
}

/// The key of the counter for a limit from a request: its entries and unit, without its number.
pub fn override_key(seed: &KeySeed, domain: &str, entries: &[Entry<'_>], unit: Unit) -> CounterKey {
    let mut id = RuleId::builder();
    id.text("override").number(unit.window().0);
    let mut key = KeyBuilder::for_rule(seed, id.finish().into());
    key.text(domain).number(entries.len() as u64);
    for entry in entries {
        key.text(entry.key).text(entry.value);
    }
    key.finish()
}

/// envoyproxy/ratelimit's stat key of a limit from a request, without the domain.
pub fn override_stat_key(entries: &[Entry<'_>]) -> String {
    let mut text = String::new();
    for entry in entries {
        let dot = if text.is_empty() { "" } else { "." };
        write!(text, "{dot}{}_{}", entry.key, entry.value).expect("a String takes all");
    }
    text
}
