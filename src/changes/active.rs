//! The active changes in the form in which a decision looks them up: by rule, and by descriptor.

use std::collections::HashMap;

use super::change::{ChangeAction, ChangeTarget, TemporaryChange, entries};
use super::rule_names::{NamedRule, named};
use crate::descriptor::Entry;
use crate::key::{CounterKey, KeyBuilder, KeySeed, RuleId};
use crate::limit::TierNumbers;
use crate::rules::{Found, Rule, RuleLimit, RuleSet};
use crate::time::Micros;

/// All changes, compiled against one set of rules. A rule is known by its [`RuleId`], so a decision by
/// newer rules is correct too: it lacks only the changes of rules that are new.
pub struct ActiveChanges {
    /// The seed of the keys of descriptors. It is random, so a client cannot choose colliding values.
    seed: KeySeed,
    by_rule: HashMap<RuleId, TargetChanges>,
    by_descriptor: HashMap<CounterKey, TargetChanges>,
    list: Vec<ListedChange>,
}

/// A change, and what the rules say about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedChange {
    /// The change.
    pub change: TemporaryChange,
    /// The rule of its target, if the target is one of the active rules.
    pub rule: Option<NamedRule>,
    /// Why the change has no effect, if it has none.
    pub problem: Option<String>,
    /// The rules of its target.
    rules: Vec<RuleId>,
}

/// The effect of the changes on one descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppliedChange<'c> {
    /// All hits are denied.
    Block {
        /// The end of the block, by the clock of the store.
        until: Micros,
    },
    /// All hits pass, and none is counted.
    Bypass,
    /// These numbers replace those of the rule, if they fit.
    Limit(&'c [TierNumbers]),
}

/// The changes of one target, each with its end.
#[derive(Clone, Debug, Default)]
struct TargetChanges {
    block: Option<Micros>,
    bypass: Option<Micros>,
    limit: Option<(Vec<TierNumbers>, Micros)>,
}

impl TargetChanges {
    /// The later one of two changes with the same effect replaces the other.
    fn add(&mut self, change: &TemporaryChange) {
        let until = change.until;
        match &change.action {
            ChangeAction::Block => self.block = Some(until),
            ChangeAction::Bypass => self.bypass = Some(until),
            ChangeAction::Limit(numbers) => self.limit = Some((numbers.clone(), until)),
        }
    }

    /// A block or a bypass at `now`. A block wins over a bypass.
    fn without_counter(&self, now: Micros) -> Option<AppliedChange<'_>> {
        let block = self.block.filter(|until| now < *until);
        let block = block.map(|until| AppliedChange::Block { until });
        block.or_else(|| self.bypass.filter(|until| now < *until).map(|_| AppliedChange::Bypass))
    }

    /// The numbers at `now`.
    fn numbers(&self, now: Micros) -> Option<AppliedChange<'_>> {
        let (numbers, _) = self.limit.as_ref().filter(|(_, until)| now < *until)?;
        Some(AppliedChange::Limit(numbers))
    }
}

impl ActiveChanges {
    /// No changes.
    pub fn none() -> ActiveChanges {
        ActiveChanges::compile(Vec::new(), &RuleSet::default())
    }

    /// Compiles `changes` against `rules`. Takes one pass over the rules if a change names a rule.
    pub fn compile(mut changes: Vec<TemporaryChange>, rules: &RuleSet) -> ActiveChanges {
        changes.sort_by(|one, other| one.order().cmp(&other.order()));
        let names: Vec<(&str, &str)> = changes.iter().filter_map(rule_name).collect();
        let mut named = named(rules, &names).into_iter();
        let (seed, list) = (KeySeed::random(), Vec::with_capacity(changes.len()));
        let (by_rule, by_descriptor) = (HashMap::new(), HashMap::new());
        let mut active = ActiveChanges { seed, by_rule, by_descriptor, list };
        for change in &changes {
            let listed = match &change.target {
                ChangeTarget::Rule(_) => {
                    active.add_to_rules(change, &named.next().unwrap_or_default(), rules)
                }
                ChangeTarget::Descriptor(pairs) => active.add_to_descriptor(change, pairs, rules),
            };
            active.list.push(listed);
        }
        active
    }

    /// The same changes, compiled against `rules`. Rules that `rules` does not have keep their changes, for
    /// the decisions that still use them.
    pub(super) fn with_rules(&self, rules: &RuleSet) -> ActiveChanges {
        let changes = self.list.iter().map(|listed| listed.change.clone()).collect();
        let mut next = ActiveChanges::compile(changes, rules);
        let mut before = self.by_rule.clone();
        for rule in rules.rules() {
            before.remove(&rule.id);
        }
        next.by_rule.extend(before);
        next
    }

    fn add_to_rules(
        &mut self,
        change: &TemporaryChange,
        found: &[&Rule],
        rules: &RuleSet,
    ) -> ListedChange {
        for rule in found {
            self.by_rule.entry(rule.id).or_default().add(change);
        }
        let problem = match found {
            [] if !rules.has_domain(&change.domain) => {
                Some("neither a file nor xDS defines its domain".to_owned())
            }
            [] => Some("no rule of its domain has this name or selector".to_owned()),
            found => found.iter().find_map(|rule| problem_of(&change.action, rule)),
        };
        let rule = NamedRule::only(found);
        let rules = found.iter().map(|rule| rule.id).collect();
        ListedChange { change: change.clone(), rule, problem, rules }
    }

    fn add_to_descriptor(
        &mut self,
        change: &TemporaryChange,
        pairs: &[(String, String)],
        rules: &RuleSet,
    ) -> ListedChange {
        let entries = entries(pairs);
        let key = descriptor_key(&self.seed, &change.domain, &entries);
        self.by_descriptor.entry(key).or_default().add(change);
        let problem = match rules.find(&change.domain, &entries) {
            Found::Rule(rule) => problem_of(&change.action, rule),
            Found::NoRule | Found::UnknownDomain => match change.action {
                ChangeAction::Limit(_) => Some("no rule limits this descriptor".to_owned()),
                ChangeAction::Block | ChangeAction::Bypass => None,
            },
        };
        ListedChange { change: change.clone(), rule: None, problem, rules: Vec::new() }
    }

    /// The change that applies at `now` to a descriptor with these entries, which matches `rule`. The
    /// order is: a block or bypass of the descriptor, one of the rule, a limit of the descriptor, one of
    /// the rule. `now` is by the clock of the store.
    pub fn of(
        &self,
        rule: Option<&Rule>,
        domain: &str,
        entries: &[Entry<'_>],
        now: Micros,
    ) -> Option<AppliedChange<'_>> {
        let targets = self.targets(rule, domain, entries);
        let ended = targets.iter().flatten().find_map(|target| target.without_counter(now));
        ended.or_else(|| targets.iter().flatten().find_map(|target| target.numbers(now)))
    }

    /// The changed limit at `now` of a descriptor with these entries, which matches `rule`, whether or not a
    /// block or a bypass applies too.
    pub fn limit_of(
        &self,
        rule: &Rule,
        domain: &str,
        entries: &[Entry<'_>],
        now: Micros,
    ) -> Option<AppliedChange<'_>> {
        let targets = self.targets(Some(rule), domain, entries);
        targets.iter().flatten().find_map(|target| target.numbers(now))
    }

    /// The changes of a descriptor, then those of its rule.
    fn targets(
        &self,
        rule: Option<&Rule>,
        domain: &str,
        entries: &[Entry<'_>],
    ) -> [Option<&TargetChanges>; 2] {
        let of_rule = rule.and_then(|rule| self.by_rule.get(&rule.id));
        let of_descriptor = match self.by_descriptor.is_empty() {
            true => None,
            false => self.by_descriptor.get(&descriptor_key(&self.seed, domain, entries)),
        };
        [of_descriptor, of_rule]
    }

    /// All changes, in the order in which they were made. Changes whose end has come are included until
    /// they are removed.
    pub fn list(&self) -> &[ListedChange] {
        &self.list
    }

    /// The changes of the rule `rule` and of the descriptor with `entries` that are active at `now`.
    pub fn concerning<'c>(
        &'c self,
        rule: Option<&'c Rule>,
        domain: &'c str,
        descriptor: &'c [Entry<'c>],
        now: Micros,
    ) -> impl Iterator<Item = &'c ListedChange> {
        self.list.iter().filter(move |listed| {
            let change = &listed.change;
            let is_meant = match &change.target {
                ChangeTarget::Rule(_) => rule.is_some_and(|rule| listed.rules.contains(&rule.id)),
                ChangeTarget::Descriptor(pairs) => entries(pairs) == descriptor,
            };
            change.is_active(now) && change.domain == domain && is_meant
        })
    }

    /// The number of changes with this action that are active at `now`.
    pub fn count(&self, action: &str, now: Micros) -> usize {
        let is_counted =
            |change: &TemporaryChange| change.is_active(now) && change.action.name() == action;
        self.list.iter().filter(|listed| is_counted(&listed.change)).count()
    }
}

/// The domain of a change, and the rule that it names.
fn rule_name(change: &TemporaryChange) -> Option<(&str, &str)> {
    match &change.target {
        ChangeTarget::Rule(name) => Some((&change.domain, name)),
        ChangeTarget::Descriptor(_) => None,
    }
}

/// Why `action` has no effect on `rule`, if it has none.
pub(super) fn problem_of(action: &ChangeAction, rule: &Rule) -> Option<String> {
    let ChangeAction::Limit(numbers) = action else { return None };
    match &rule.limit {
        RuleLimit::Unlimited => {
            Some("the rule is unlimited, so it has no numbers to change".to_owned())
        }
        RuleLimit::Limit(limit) => {
            limit.with_numbers(numbers).err().map(|problem| problem.to_string())
        }
    }
}

/// The key of a descriptor. Descriptors have one key only if their domain and all entries are equal.
fn descriptor_key(seed: &KeySeed, domain: &str, entries: &[Entry<'_>]) -> CounterKey {
    let mut key = KeyBuilder::start(seed);
    key.text(domain).number(entries.len() as u64);
    for entry in entries {
        key.text(entry.key).text(entry.value);
    }
    key.finish()
}
