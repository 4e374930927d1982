//! Explains which rule a descriptor matches, and why.
//!
//! The explanation runs the real lookup with a visitor that records each step, so it cannot differ
//! from a decision.

use std::fmt;

use serde::Serialize;

use super::cost_text::cost_text;
use super::near_miss::{self, NearMiss};
use super::node_text::{accepts, entry_text};
use super::rlconfig::{tier_text, tier_texts};
use crate::descriptor::{Entry, split_lease};
use crate::duration;
use crate::escape::one_line;
use crate::limit::Mode;
use crate::rules::excerpt::shorten;
use crate::rules::file::options::DeniedRequests;
use crate::rules::file::problem::Location;
use crate::rules::lookup::matcher::{CounterPart, Matcher};
use crate::rules::lookup::rule::{EntryMatcher, Rule, RuleLimit};
use crate::rules::lookup::tree::{self, End, Level, RuleTreeNode, Visitor};
use crate::rules::{Domain, Found, RuleSet};
use crate::spelling::nearest;

/// The steps and the outcome of one lookup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// The domain of the request.
    pub domain: String,
    /// The lease that the descriptor ends, if its rule leases. The entry with the lease is not part
    /// of the counter.
    pub lease: Option<String>,
    /// One item per entry that was looked up.
    pub levels: Vec<LevelTrace>,
    /// The rule, or the reason why no rule limits the descriptor.
    pub outcome: LookupOutcome,
}

/// The lookup of one entry among the nodes of a level.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LevelTrace {
    /// The entry as `key=value`.
    pub entry: String,
    /// Patterns that do not accept the value and precede the node that does, most specific first.
    pub rejected: Vec<MatcherSummary>,
    /// The node that accepted the value.
    pub accepted: Option<MatcherSummary>,
}

/// What a node of the rule tree accepts, and where a file has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MatcherSummary {
    /// The key and the values that it accepts.
    pub accepts: String,
    /// The position in its file.
    pub location: Location,
}

/// The outcome of a lookup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum LookupOutcome {
    /// The rule of the descriptor.
    Rule(RuleSummary),
    /// No rule limits the descriptor.
    NoRule {
        /// Where the lookup stopped.
        why: String,
        /// Rules that almost match, closest first; at most three.
        near_misses: Vec<NearMiss>,
    },
    /// No file defines the domain.
    UnknownDomain {
        /// A similar domain, or the first ten domains.
        hint: String,
    },
}

/// The rule of a descriptor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RuleSummary {
    /// The rule name.
    pub rule: String,
    /// The selector, if the rule name is another text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,
    /// The position in its file.
    pub location: Location,
    /// The algorithm, or `unlimited`.
    pub policy: String,
    /// Each tier in words.
    pub tiers: Vec<String>,
    /// Flags and options that change the decision.
    pub options: Vec<String>,
    /// The parts of the counter's key, in words.
    pub counter: Vec<String>,
}

/// Records the steps of a lookup.
#[derive(Default)]
struct LookupRecorder<'t> {
    levels: Vec<(Vec<&'t RuleTreeNode>, Option<&'t RuleTreeNode>)>,
}

impl<'t> Visitor<'t> for LookupRecorder<'t> {
    const REPORTS_REJECTED: bool = true;

    fn level(&mut self, _: &'t Level) {
        self.levels.push((Vec::new(), None));
    }

    fn rejected(&mut self, node: &'t RuleTreeNode) {
        if let Some((rejected, _)) = self.levels.last_mut() {
            rejected.push(node);
        }
    }

    fn accepted(&mut self, node: &'t RuleTreeNode) {
        if let Some((_, accepted)) = self.levels.last_mut() {
            *accepted = Some(node);
        }
    }
}

impl RuleSet {
    /// Runs the lookup of [`RuleSet::find`] and records each step. As in a decision, an entry that
    /// names a lease is left out if the other entries match a rule that leases.
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

    /// As [`explain`](RuleSet::explain), with all entries: also one that names a lease. The quota service
    /// (RLQS) looks up buckets like this.
    pub fn explain_walk(&self, domain: &str, entries: &[Entry<'_>]) -> Explanation {
        let name = shorten(domain);
        let Some(domain) = self.domains.get(domain) else {
            let hint = self.domain_hint(domain);
            let outcome = LookupOutcome::UnknownDomain { hint };
            return Explanation { domain: name, lease: None, levels: Vec::new(), outcome };
        };
        let mut recorder = LookupRecorder::default();
        let end = tree::walk(&domain.root, entries, &mut recorder);
        let levels =
            recorder.levels.iter().zip(entries).map(|((rejected, accepted), entry)| LevelTrace {
                entry: entry_text(entry),
                rejected: rejected.iter().map(|node| matcher_summary(node)).collect(),
                accepted: accepted.map(matcher_summary),
            });
        let outcome = match end {
            End::Rule(rule) => LookupOutcome::Rule(self.rule_summary(rule, Some(entries))),
            miss => self.miss(domain, entries, miss, &recorder),
        };
        Explanation { domain: name, lease: None, levels: levels.collect(), outcome }
    }

    /// The rule, with the counter of a descriptor with these `entries`, or with the counters of all.
    pub(super) fn rule_summary(&self, rule: &Rule, entries: Option<&[Entry<'_>]>) -> RuleSummary {
        let (policy, tiers) = match &rule.limit {
            RuleLimit::Unlimited => ("unlimited".to_owned(), Vec::new()),
            RuleLimit::Limit(limit) => (
                limit.algorithm.name().to_owned(),
                limit.tiers.iter().map(|tier| tier_text(limit, tier)).collect(),
            ),
        };
        let mut options = flags(rule);
        options.extend(cost_text(rule, entries));
        options.extend(self.replaced(rule));
        options.extend(rule.overlays().iter().map(|at| format!("changed by the overlay at {at}")));
        let mut counter = vec![format!("domain {}", shorten(&rule.domain))];
        if rule.limit == RuleLimit::Unlimited {
            counter = vec!["none: nothing is counted".to_owned()];
        } else {
            match entries {
                Some(entries) => {
                    let path = rule.path.iter().zip(entries);
                    counter.extend(path.flat_map(|(node, entry)| parts(node, entry.value)));
                }
                None => counter.extend(rule.path.iter().map(|node| any_part(node))),
            }
            if self.denied_requests(&rule.domain) == DeniedRequests::Free {
                let what =
                    "denied_requests: free: a request that another rule denies is not counted here";
                options.push(what.to_owned());
            }
        }
        let (name, selector) = (rule.display_name.to_string(), rule.other_selector());
        let location = rule.location.clone();
        RuleSummary { rule: name, selector, location, policy, tiers, options, counter }
    }

    /// The rules that this rule replaces in the same request, in words.
    fn replaced(&self, rule: &Rule) -> Option<String> {
        let name_of = |id| {
            let named = self.rules.iter().find(|other| other.name_id == Some(id))?;
            named.name.as_ref().map(|name| format!("`{}`", shorten(name)))
        };
        let names: Vec<_> = rule.replaces().iter().filter_map(|id| name_of(*id)).collect();
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
        recorder: &LookupRecorder<'_>,
    ) -> LookupOutcome {
        let depth = recorder.levels.len();
        let why = match end {
            End::NoEntries => "the descriptor has no entries".to_owned(),
            End::NoLimit(node) => {
                format!("the descriptor ends at {}, which has no `rate_limit`", node.location())
            }
            End::TooLong(node) => {
                let next = entries.get(depth).map(entry_text).unwrap_or_default();
                let at = node.location();
                format!("{at} has no child descriptors, but the descriptor continues with `{next}`")
            }
            End::NoMatch | End::Rule(_) => {
                let entry = entries.get(depth - 1).map(entry_text).unwrap_or_default();
                format!("no descriptor of level {depth} accepts `{entry}`")
            }
        };
        let taken: Vec<&RuleTreeNode> =
            recorder.levels.iter().filter_map(|(_, accepted)| *accepted).collect();
        LookupOutcome::NoRule {
            why,
            near_misses: near_miss::nearest(&domain.root, entries, &taken),
        }
    }
}

fn matcher_summary(node: &RuleTreeNode) -> MatcherSummary {
    MatcherSummary { accepts: accepts(&node.entry_matcher), location: node.location().clone() }
}

/// Flags of a rule and its limit, in words.
fn flags(rule: &Rule) -> Vec<String> {
    let mut flags = Vec::new();
    if let RuleLimit::Limit(limit) = &rule.limit
        && limit.count_denied
    {
        flags.push("denied hits count too".to_owned());
    }
    if rule.shadow_mode {
        flags.push("shadow mode: a denial is answered OK".to_owned());
    }
    if rule.quota_mode {
        flags.push("quota mode: denies only if every quota rule of the request denies".to_owned());
    }
    if let Some(what_if) = &rule.what_if {
        let limit = tier_texts(&what_if.limit);
        flags.push(format!("shadow: {limit} is counted too, and never denies"));
    }
    if let Some(hold) = rule.reserve {
        flags.push(format!("reserves, settled within {}", duration::compound(hold)));
    }
    flags.extend(rule.limit_from.as_ref().map(ToString::to_string));
    match rule.mode {
        Mode::Exact => {}
        Mode::Leased => flags.push("leased: credits are drawn from the store ahead".to_owned()),
        Mode::Synced { interval } => {
            flags.push(format!(
                "synced with the other instances within {}",
                duration::compound(interval)
            ));
        }
    }
    if !rule.over_limit_cache {
        flags.push("no over-limit cache: every denial calls the store".to_owned());
    }
    if let Some(on_error) = rule.on_error {
        flags.push(format!("on error: {}", on_error.name()));
    }
    if rule.usage {
        flags.push("usage: the names of its counters are kept for `/usage`".to_owned());
    }
    flags.extend(rule.log.map(|lines| format!("requests in the log: {}", lines.name())));
    flags
}

/// The parts that one level adds to the counter's key, in words.
fn parts(node: &EntryMatcher, value: &str) -> Vec<String> {
    let key = shorten(&node.key);
    if let Matcher::Exact(value) = &node.matcher {
        return vec![format!("{key}={}", shorten(value))];
    }
    if !node.counts_per_value() {
        let source = shorten(node.matcher.source());
        return vec![format!("{key}={source} (one counter for all values)")];
    }
    let mut parts = Vec::new();
    node.matcher.counter_parts(value, |part| {
        parts.push(match part {
            CounterPart::Value(text) => format!("{key}={} (a counter per value)", shorten(text)),
            CounterPart::Address(address) => format!("{key}={address} (a counter per address)"),
            CounterPart::Variable { name, text } => {
                format!("{key}: {name}={} (a counter per {name})", shorten(text))
            }
        });
    });
    parts
}

/// The part that one level adds to the counter's key, whatever the value, in words.
fn any_part(node: &EntryMatcher) -> String {
    match &node.matcher {
        Matcher::Exact(value) => format!("{}={}", shorten(&node.key), shorten(value)),
        _ if !node.counts_per_value() => format!("{} (one counter for all values)", accepts(node)),
        matcher => {
            let names: Vec<String> = matcher.count_by().iter().map(|name| shorten(name)).collect();
            let per = match matcher {
                Matcher::Cidr(_) => "address".to_owned(),
                _ if names.is_empty() => "value".to_owned(),
                _ => names.join(" and "),
            };
            format!("{} (a counter per {per})", accepts(node))
        }
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "domain {}", self.domain)?;
        for level in &self.levels {
            writeln!(f, "  {}", level.entry)?;
            for node in &level.rejected {
                writeln!(f, "    no:  {} ({})", node.accepts, node.location)?;
            }
            match &level.accepted {
                Some(node) => writeln!(f, "    yes: {} ({})", node.accepts, node.location)?,
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

impl fmt::Display for LookupOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LookupOutcome::Rule(rule) => {
                writeln!(f, "rule    {} ({})", one_line(&rule.rule), rule.location)?;
                if let Some(selector) = &rule.selector {
                    writeln!(f, "        selector {}", one_line(selector))?;
                }
                writeln!(f, "limit   {}", rule.policy)?;
                for tier in &rule.tiers {
                    writeln!(f, "        {tier}")?;
                }
                for option in &rule.options {
                    writeln!(f, "        {option}")?;
                }
                writeln!(f, "counter {}", rule.counter.join(", "))
            }
            LookupOutcome::UnknownDomain { hint } => {
                writeln!(f, "no rule: no file defines this domain; {hint}")
            }
            LookupOutcome::NoRule { why, near_misses } => {
                writeln!(f, "no rule: {why}")?;
                for rule in near_misses {
                    writeln!(f, "near    {} ({})", rule.rule, rule.location)?;
                    for difference in &rule.differs {
                        writeln!(f, "        {difference}")?;
                    }
                }
                Ok(())
            }
        }
    }
}
