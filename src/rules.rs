//! Rules: from YAML files to an indexed tree, and from a descriptor to the rule it meets.

use std::path::PathBuf;
use std::sync::Arc;

use crate::descriptor::Entry;

mod compile;
mod dump;
mod explain;
mod fields;
mod index;
mod limits;
mod matcher;
mod mode;
mod model;
mod near_miss;
mod node;
mod options;
mod problem;
mod reader;
mod rule;
mod scalar;
mod selector;
mod small_map;
mod source;
#[cfg(test)]
mod tests;
mod tree;

pub use compile::compile;
pub use explain::{Explanation, LevelTrace, LookupOutcome, NodeInfo, RuleInfo};
pub use near_miss::NearMiss;
pub use options::{DeniedRequests, Options, UnknownFields};
pub use problem::{Location, RuleProblem};
pub use rule::{NameId, Policy, Rule, override_key, override_stat_key};
pub use selector::descriptor_selector;
pub use source::{SourceFile, Sources};

/// Everything that is in force at one moment: all domains of all files, compiled.
#[derive(Debug, Default)]
pub struct RuleSet {
    rules: Vec<Rule>,
    domains: small_map::SmallMap<Domain>,
    files: Vec<SourceInfo>,
    default_denied_requests: DeniedRequests,
}

/// One namespace of rules.
#[derive(Debug)]
struct Domain {
    name: Arc<str>,
    root: tree::Level,
    denied_requests: DeniedRequests,
}

/// What came from one document of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceInfo {
    /// The file as the user named it.
    pub path: Arc<str>,
    /// The domain it defines, or a part of it.
    pub domain: Arc<str>,
    /// How many limits it holds.
    pub rules: usize,
}

/// What the tree says about one descriptor.
#[derive(Clone, Copy, Debug)]
pub enum Found<'r> {
    /// No file defines this domain.
    UnknownDomain,
    /// The domain exists, and nothing in it limits this descriptor.
    Nothing,
    /// This rule decides.
    Rule(&'r Rule),
}

/// Reads and compiles files and folders. Beside the rule set come warnings; instead of it, every
/// error of every file. A missing or empty folder is a warning.
pub fn load(
    paths: &[PathBuf],
    options: &Options,
) -> Result<(RuleSet, Vec<RuleProblem>), Vec<RuleProblem>> {
    Sources::read(paths).compile(options)
}

impl RuleSet {
    /// Every rule with a limit (or marked unlimited), in file order; `Rule::index` points into it.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// What was read: one item per document, in the order of reading.
    pub fn files(&self) -> &[SourceInfo] {
        &self.files
    }

    /// The names of all domains, in byte order.
    pub fn domains(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.domains.keys().collect();
        names.sort_unstable();
        names
    }

    /// Some file defines this domain.
    pub fn has_domain(&self, domain: &str) -> bool {
        self.domains.get(domain).is_some()
    }

    /// What becomes of hits that were taken by a request of this domain that is denied.
    pub fn denied_requests(&self, domain: &str) -> DeniedRequests {
        let domain = self.domains.get(domain);
        domain.map_or(self.default_denied_requests, |domain| domain.denied_requests)
    }

    /// envoyproxy/ratelimit's `/rlconfig` text: one line per limit, in file order.
    pub fn dump(&self) -> String {
        dump::dump(&self.rules)
    }

    /// The rule that a descriptor with these entries meets. Allocates nothing.
    pub fn find(&self, domain: &str, entries: &[Entry<'_>]) -> Found<'_> {
        let Some(domain) = self.domains.get(domain) else { return Found::UnknownDomain };
        match tree::walk(&domain.root, entries, &mut tree::NoVisitor) {
            tree::End::Rule(index) => Found::Rule(&self.rules[index]),
            _ => Found::Nothing,
        }
    }
}
