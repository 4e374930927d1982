//! Reads rule files, compiles them into an indexed tree, and looks up the rule of a descriptor.

use std::path::PathBuf;
use std::sync::Arc;

use self::lookup::small_map::SmallMap;
use self::lookup::tree::{self, Level};
use crate::descriptor::Entry;

mod compile;
mod excerpt;
mod file;
mod lookup;
mod overlay;
mod show;
mod sources;
#[cfg(test)]
mod tests;
mod xds;

pub use compile::compile;
pub use file::options::{DeniedRequests, Options, UnknownFields};
pub use file::problem::{Location, RuleProblem};
pub use file::source::{RuleFiles, SourceFile};
pub use lookup::CountedLabel;
#[cfg(feature = "fuzz")]
pub use lookup::index::fuzz_harness as regex_fuzz_harness;
pub use lookup::limit_from::{LimitFrom, PlanEntry};
pub use lookup::rule::{
    NameId, Rule, RuleFields, RuleLimit, WhatIfLimit, override_key, override_stat_key,
};
pub use show::explain::{Explanation, LevelTrace, LookupOutcome, MatcherSummary, RuleSummary};
pub use show::near_miss::NearMiss;
pub use show::selector::descriptor_selector;
pub use show::sensitive_keys::is_sensitive;
pub use show::shown_rule::{ShownRule, shown_selector};
pub use sources::{RuleSources, domains_by_xds};
pub use xds::{
    XDS_DESCRIPTORS_PER_LIMIT, XDS_TYPE_URL, XdsOutcome, XdsResource, XdsRules, XdsUpdate,
};

/// All domains of all rule files, compiled.
#[derive(Debug, Default)]
pub struct RuleSet {
    rules: Vec<Rule>,
    domains: SmallMap<Domain>,
    files: Vec<RuleDocument>,
    default_denied_requests: DeniedRequests,
    /// Whether any rule gives requests lines in the log.
    logs_requests: bool,
}

/// One namespace of rules.
#[derive(Debug)]
struct Domain {
    root: Level,
    denied_requests: DeniedRequests,
}

/// One document of a rule file, or one resource by xDS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleDocument {
    /// The file as the user named it, or `xds:` with the name of the resource.
    pub path: Arc<str>,
    /// The domain that the document defines or extends.
    pub domain: Arc<str>,
    /// The number of its limits.
    pub rules: usize,
    /// The version of the response that sent a resource by xDS; `None` for a file.
    pub version: Option<Arc<str>>,
}

/// The result of a lookup.
#[derive(Clone, Copy, Debug)]
pub enum Found<'r> {
    /// No file defines this domain.
    UnknownDomain,
    /// The domain exists and has no rule for this descriptor.
    NoRule,
    /// The rule that the descriptor matches.
    Rule(&'r Rule),
}

/// Reads and compiles files and folders. Returns the rule set with warnings, or every error of
/// every file. A missing or empty folder is a warning.
pub fn load(
    paths: &[PathBuf],
    options: &Options,
) -> Result<(RuleSet, Vec<RuleProblem>), Vec<RuleProblem>> {
    RuleFiles::read(paths).compile(options)
}

impl RuleSet {
    /// Every rule, limited or unlimited, in file order. `Rule::index` is its position here.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// The documents that were read, in reading order.
    pub fn files(&self) -> &[RuleDocument] {
        &self.files
    }

    /// Whether any domain is defined by xDS.
    pub fn has_xds(&self) -> bool {
        self.files.iter().any(|document| document.version.is_some())
    }

    /// Whether any rule has `log: denied` or `log: all`.
    pub fn logs_requests(&self) -> bool {
        self.logs_requests
    }

    /// The names of all domains, in byte order.
    pub fn domains(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.domains.keys().collect();
        names.sort_unstable();
        names
    }

    /// Whether a file defines this domain.
    pub fn has_domain(&self, domain: &str) -> bool {
        self.domains.get(domain).is_some()
    }

    /// What happens to the hits that a denied request of this domain has already taken.
    pub fn denied_requests(&self, domain: &str) -> DeniedRequests {
        let domain = self.domains.get(domain);
        domain.map_or(self.default_denied_requests, |domain| domain.denied_requests)
    }

    /// envoyproxy/ratelimit's `/rlconfig` text: one line per limit, in file order.
    pub fn rlconfig(&self) -> String {
        show::rlconfig::text(&self.rules)
    }

    /// Looks up the rule of a descriptor. Allocates nothing, except that lazy DFAs of regular
    /// expressions grow to a bound.
    pub fn find(&self, domain: &str, entries: &[Entry<'_>]) -> Found<'_> {
        let Some(domain) = self.domains.get(domain) else { return Found::UnknownDomain };
        match tree::walk(&domain.root, entries, &mut tree::NoVisitor) {
            tree::End::Rule(rule) => Found::Rule(rule),
            _ => Found::NoRule,
        }
    }
}
