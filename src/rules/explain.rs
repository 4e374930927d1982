//! An explanation: the walk of a lookup with a notebook, so that it cannot tell another story.

use std::fmt;

use serde::Serialize;

use super::dump::tier_text;
use super::duration;
use super::fields::{nearest, shorten};
use super::matcher::{Counted, Matcher};
use super::near::{self, Near};
use super::problem::Place;
use super::rule::{PathNode, Policy, Rule};
use super::tree::{self, End, Level, Node, Notebook};
use super::{DeniedRequests, Domain, Found, RuleSet};
use crate::descriptor::{Entry, split_lease};
use crate::limit::Mode;

/// What a lookup tried, what it met, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// The namespace that was asked for.
    pub domain: String,
    /// The lease that the descriptor ends, if its rule leases; its entry is not part of the counter.
    pub lease: Option<String>,
    /// One per entry that was looked at.
    pub levels: Vec<LevelNote>,
    /// How it ended.
    pub outcome: Outcome,
}

/// One entry's choice among the nodes of a level.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LevelNote {
    /// The entry as `key=value`.
    pub entry: String,
    /// More specific patterns that did not accept the value, in the order in which they were tried.
    pub refused: Vec<NodeNote>,
    /// The node that did.
    pub took: Option<NodeNote>,
}

/// A node of the tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NodeNote {
    /// What it accepts.
    pub accepts: String,
    /// Where it was written.
    pub place: Place,
}

/// How a lookup ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Outcome {
    /// This rule decides.
    Rule(RuleNote),
    /// Nothing limits the descriptor.
    Nothing {
        /// Where the walk stopped.
        why: String,
        /// Rules that come close, closest first.
        near: Vec<Near>,
    },
    /// No file defines the domain.
    UnknownDomain {
        /// Which domains there are, or which one was probably meant.
        hint: String,
    },
}

/// The rule that decides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RuleNote {
    /// Its name, else its keys.
    pub label: String,
    /// Where it was written.
    pub place: Place,
    /// What it does with hits: the algorithm, or `unlimited`.
    pub policy: String,
    /// Each tier in words.
    pub tiers: Vec<String>,
    /// Flags and options that change the answer.
    pub options: Vec<String>,
    /// What the counter's key is made of, in words.
    pub counter: Vec<String>,
}

/// Keeps what a walk passes.
#[derive(Default)]
struct Notes<'t> {
    levels: Vec<(Vec<&'t Node>, Option<&'t Node>)>,
}

impl<'t> Notebook<'t> for Notes<'t> {
    fn level(&mut self, _: &'t Level) {
        self.levels.push((Vec::new(), None));
    }

    fn refused(&mut self, node: &'t Node) {
        if let Some((refused, _)) = self.levels.last_mut() {
            refused.push(node);
        }
    }

    fn took(&mut self, node: &'t Node) {
        if let Some((_, took)) = self.levels.last_mut() {
            *took = Some(node);
        }
    }
}

impl RuleSet {
    /// The same walk as [`RuleSet::find`], with everything it tried. An entry that names a lease is
    /// left out where the others lead to a rule that leases, as in a decision.
    pub fn explain(&self, domain: &str, entries: &[Entry<'_>]) -> Explanation {
        if let Some((lease, others)) = split_lease(entries)
            && let Found::Rule(rule) = self.find(domain, &others)
            && rule.leases()
        {
            let explanation = self.explain_walk(domain, &others);
            return Explanation { lease: Some(shorten(lease)), ..explanation };
        }
        self.explain_walk(domain, entries)
    }

    fn explain_walk(&self, domain: &str, entries: &[Entry<'_>]) -> Explanation {
        let name = shorten(domain);
        let Some(domain) = self.domains.get(domain) else {
            let hint = self.domain_hint(domain);
            let outcome = Outcome::UnknownDomain { hint };
            return Explanation { domain: name, lease: None, levels: Vec::new(), outcome };
        };
        let mut notes = Notes::default();
        let end = tree::walk(&domain.root, entries, &mut notes);
        let levels = notes.levels.iter().zip(entries).map(|((refused, took), entry)| LevelNote {
            entry: entry_text(entry),
            refused: refused.iter().map(|node| note(node)).collect(),
            took: took.map(note),
        });
        let outcome = match end {
            End::Rule(index) => Outcome::Rule(self.rule_note(&self.rules[index], entries)),
            miss => self.miss(domain, entries, miss, &notes),
        };
        Explanation { domain: name, lease: None, levels: levels.collect(), outcome }
    }

    fn rule_note(&self, rule: &Rule, entries: &[Entry<'_>]) -> RuleNote {
        let (policy, tiers) = match &rule.policy {
            Policy::Unlimited => ("unlimited".to_owned(), Vec::new()),
            Policy::Limit(limit) => (
                limit.algorithm.name().to_owned(),
                limit.tiers.iter().map(|tier| tier_text(limit, tier)).collect(),
            ),
        };
        let mut options = flags(rule);
        options.extend(self.replaced(rule));
        let mut counter = vec![format!("domain {}", shorten(&rule.domain))];
        if rule.policy == Policy::Unlimited {
            counter = vec!["none: nothing is counted".to_owned()];
        } else {
            let path = rule.path.iter().zip(entries);
            counter.extend(path.flat_map(|(node, entry)| parts(node, entry.value)));
            if self.denied_requests(&rule.domain) == DeniedRequests::Free {
                let what =
                    "denied_requests: free: a request that another rule denies takes nothing here";
                options.push(what.to_owned());
            }
        }
        let label = shorten(&rule.label);
        RuleNote { label, place: rule.place.clone(), policy, tiers, options, counter }
    }

    /// Which rules this one drops from a request that meets them too.
    fn replaced(&self, rule: &Rule) -> Option<String> {
        let name_of = |id| {
            let named = self.rules.iter().find(|other| other.name_id == Some(id))?;
            named.name.as_ref().map(|name| format!("`{}`", shorten(name)))
        };
        let names: Vec<_> = rule.replaces.iter().filter_map(|id| name_of(*id)).collect();
        (!names.is_empty()).then(|| format!("replaces {} in the same request", names.join(", ")))
    }

    fn domain_hint(&self, domain: &str) -> String {
        let names = self.domains();
        match nearest(domain, names.iter().copied()) {
            Some(meant) => format!("did you mean `{meant}`?"),
            None if names.is_empty() => "no domain is defined at all".to_owned(),
            None => {
                let first: Vec<_> = names.iter().take(10).map(|name| shorten(name)).collect();
                format!("the domains are {}", first.join(", "))
            }
        }
    }

    fn miss(
        &self,
        domain: &Domain,
        entries: &[Entry<'_>],
        end: End<'_>,
        notes: &Notes<'_>,
    ) -> Outcome {
        let depth = notes.levels.len();
        let why = match end {
            End::NoEntries => "the descriptor has no entries".to_owned(),
            End::NoLimit(node) => {
                format!("the descriptor ends at {}, which has no `rate_limit`", node.place)
            }
            End::TooLong(node) => {
                let left = entries.get(depth).map(entry_text).unwrap_or_default();
                format!("nothing is below {}, and `{left}` is left", node.place)
            }
            End::NoMatch | End::Rule(_) => {
                let entry = entries.get(depth - 1).map(entry_text).unwrap_or_default();
                format!("level {depth} has nothing for `{entry}`")
            }
        };
        let taken: Vec<&Node> = notes.levels.iter().filter_map(|(_, took)| *took).collect();
        Outcome::Nothing { why, near: near::nearest(&domain.root, &self.rules, entries, &taken) }
    }
}

fn note(node: &Node) -> NodeNote {
    NodeNote { accepts: accepts(&node.spec), place: node.place.clone() }
}

/// What a node accepts, in words.
pub(super) fn accepts(node: &PathNode) -> String {
    let key = shorten(&node.key);
    match &node.matcher {
        Matcher::Any => format!("`{key}` with any value"),
        other => format!("`{key}` with {} `{}`", other.noun(), shorten(other.source())),
    }
}

pub(super) fn entry_text(entry: &Entry<'_>) -> String {
    format!("{}={}", shorten(entry.key), shorten(entry.value))
}

/// What a limit or its rule adds to the numbers, in words.
fn flags(rule: &Rule) -> Vec<String> {
    let mut flags = Vec::new();
    if let Policy::Limit(limit) = &rule.policy
        && limit.count_denied
    {
        flags.push("denied hits count too".to_owned());
    }
    if rule.shadow_mode {
        flags.push("shadow mode: a denial is answered OK".to_owned());
    }
    if rule.quota_mode {
        flags.push("quota mode: denies only when every quota rule of the request does".to_owned());
    }
    if let Some(hold) = rule.reserve {
        flags.push(format!("reserves, settled within {}", duration::write(hold)));
    }
    match rule.mode {
        Mode::Exact => {}
        Mode::Leased => flags.push("leased: hits are drawn from the store ahead".to_owned()),
        Mode::Synced { interval } => {
            flags.push(format!(
                "synced with the other instances within {}",
                duration::write(interval)
            ));
        }
    }
    if !rule.over_limit_cache {
        flags.push("no over-limit cache: denials visit the store".to_owned());
    }
    if let Some(on_error) = rule.on_error {
        flags.push(format!("on error: {}", on_error.word()));
    }
    flags
}

/// What one level adds to the counter's key, in words.
fn parts(node: &PathNode, value: &str) -> Vec<String> {
    let key = shorten(&node.key);
    if let Matcher::Exact(value) = &node.matcher {
        return vec![format!("{key}={}", shorten(value))];
    }
    if !node.counts_apart() {
        let source = shorten(node.matcher.source());
        return vec![format!("{key}={source} (one counter for all values)")];
    }
    let mut parts = Vec::new();
    node.matcher.counted(value, |part| {
        parts.push(match part {
            Counted::Value(text) => format!("{key}={} (a counter per value)", shorten(text)),
            Counted::Address(address) => format!("{key}={address} (a counter per address)"),
            Counted::Variable { name, text } => {
                format!("{key}: {name}={} (a counter per {name})", shorten(text))
            }
        });
    });
    parts
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "domain {}", self.domain)?;
        for level in &self.levels {
            writeln!(f, "  {}", level.entry)?;
            for node in &level.refused {
                writeln!(f, "    no:  {} ({})", node.accepts, node.place)?;
            }
            match &level.took {
                Some(node) => writeln!(f, "    yes: {} ({})", node.accepts, node.place)?,
                None => writeln!(f, "    nothing accepts it")?,
            }
        }
        self.outcome.fmt(f)?;
        match &self.lease {
            Some(lease) => {
                writeln!(f, "lease   ends `{lease}`; the entry is not part of the counter")
            }
            None => Ok(()),
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Rule(rule) => {
                writeln!(f, "rule    {} ({})", rule.label, rule.place)?;
                writeln!(f, "limit   {}", rule.policy)?;
                for tier in &rule.tiers {
                    writeln!(f, "        {tier}")?;
                }
                for option in &rule.options {
                    writeln!(f, "        {option}")?;
                }
                writeln!(f, "counter {}", rule.counter.join(", "))
            }
            Outcome::UnknownDomain { hint } => {
                writeln!(f, "no rule: no file defines this domain; {hint}")
            }
            Outcome::Nothing { why, near } => {
                writeln!(f, "no rule: {why}")?;
                for rule in near {
                    writeln!(f, "near    {} ({})", rule.label, rule.place)?;
                    for difference in &rule.differs {
                        writeln!(f, "        {difference}")?;
                    }
                }
                Ok(())
            }
        }
    }
}
