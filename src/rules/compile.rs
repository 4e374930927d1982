//! Compiles rule files into a rule set, or reports every problem of every file.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use self::domain_draft::{DomainDraft, domain_drafts};
use self::duplicates::DifferentNodes;
use self::limit_reader::{LimitFields, LimitReader};
use self::node::EntryMatcherCompiler;
use self::regex_budget::{LevelStates, RegexBudget};
use super::file::model::{Document, RawDescriptor, RawRateLimit};
use super::file::options::{DeniedRequests, Options};
use super::file::problem::{Location, Position, Report, RuleProblem};
use super::file::reader::{Field, FieldReader};
use super::file::source::{RuleFiles, SourceFile};
use super::lookup::matcher::Matcher;
use super::lookup::rule::{
    self, EntryMatcher, NameId, RareRuleFields, Rule, RuleFields, RuleLimit,
};
use super::lookup::tree::{Level, NodeLimit, RuleTreeNode};
use super::show::selector::path_selector;
use super::{Domain, RuleDocument, RuleSet};
use crate::spelling::nearest;
use crate::yaml;

mod calendar;
mod changed_limit;
mod cost;
mod domain_draft;
mod duplicates;
mod limit_from;
mod limit_reader;
mod mode;
mod node;
pub(super) mod regex_budget;
mod rule_names;
mod what_if;

pub(super) use changed_limit::{field_problems, limit_problems};

/// Most levels of rules below a domain. They are read and matched recursively.
pub(super) const LEVELS_MAX: usize = 32;

/// Compiles files into a rule set with warnings, or returns every error of every file.
pub fn compile(
    files: &[SourceFile],
    options: &Options,
) -> Result<(RuleSet, Vec<RuleProblem>), Vec<RuleProblem>> {
    compile_with(files, options, Report::default())
}

impl RuleFiles {
    /// Compiles the files into a rule set with warnings, or returns every error of every file.
    pub fn compile(
        self,
        options: &Options,
    ) -> Result<(RuleSet, Vec<RuleProblem>), Vec<RuleProblem>> {
        compile_with(&self.files, options, self.report)
    }
}

/// Like [`compile`], with the problems that reading the files has reported.
fn compile_with(
    files: &[SourceFile],
    options: &Options,
    mut report: Report,
) -> Result<(RuleSet, Vec<RuleProblem>), Vec<RuleProblem>> {
    let documents = documents(files, options, &mut report);
    compile_documents(documents, options, report)
}

/// The documents of all files.
pub(super) fn documents(
    files: &[SourceFile],
    options: &Options,
    report: &mut Report,
) -> Vec<Document> {
    let mut documents = Vec::new();
    for file in files {
        read(file, options, report, &mut documents);
    }
    documents
}

/// Compiles documents into a rule set with warnings, or returns every error of every file.
pub(super) fn compile_documents(
    documents: Vec<Document>,
    options: &Options,
    report: Report,
) -> Result<(RuleSet, Vec<RuleProblem>), Vec<RuleProblem>> {
    let limits = documents.iter().map(|document| count_limits(&document.descriptors)).sum();
    let rules = Vec::with_capacity(limits);
    let mut compiler = Compiler { report, rules, ..Compiler::default() };
    let mut set =
        RuleSet { default_denied_requests: options.denied_requests, ..RuleSet::default() };
    for draft in domain_drafts(documents, options, &mut compiler.report) {
        let domain = compiler.domain(draft, options, &mut set.files);
        let name = Arc::clone(&domain.name);
        set.domains.entry(&name, || domain);
    }
    set.logs_requests = compiler.rules.iter().any(|rule| rule.logs_requests());
    set.rules = compiler.rules;
    let warnings = compiler.report.finish()?;
    Ok((set, warnings))
}

/// The documents of one file.
fn read(file: &SourceFile, options: &Options, report: &mut Report, documents: &mut Vec<Document>) {
    let parsed = yaml::parse(&file.text);
    report.incomplete |= !parsed.complete;
    for fault in parsed.faults {
        report.error(fault.at.in_file(&file.name), fault.what, fault.hint);
    }
    let mut found = false;
    for node in parsed.documents {
        let mut reader = FieldReader { file: &file.name, unknown: options.unknown_fields, report };
        let (at, empty) = (node.at, node.is_null());
        if let Some(document) = reader.document(node) {
            found = true;
            match document.domain.as_ref().map(|domain| domain.value.as_deref()) {
                None => {
                    let hint = "write `domain: NAME` at the top of the file";
                    report.error(at.in_file(&file.name), "`domain` is missing", hint);
                }
                Some(Some("")) => {
                    let hint = "write `domain: NAME`, as in the proxy's rate limit filter";
                    report.error(at.in_file(&file.name), "`domain` is empty", hint);
                }
                _ => {}
            }
            documents.push(document);
        } else if !empty {
            found = true;
        }
    }
    if !found && parsed.complete {
        let hint = "write `domain: NAME` and `descriptors:`, or remove the file";
        let start = Position { line: 1, column: 1 };
        report.error(start.in_file(&file.name), "the file has no rules", hint);
    }
}

/// Builds the trees of all domains.
#[derive(Default)]
struct Compiler {
    report: Report,
    rules: Vec<Rule>,
    names: HashMap<Arc<str>, NameId>,
    /// `replaces` of the current domain, checked when all its names are known.
    replaced: Vec<(Location, Arc<str>)>,
    /// Rule names of the current domain.
    defined: HashSet<Arc<str>>,
    path: Vec<Arc<EntryMatcher>>,
    domain: Arc<str>,
    regexes: RegexBudget,
}

impl Compiler {
    fn domain(
        &mut self,
        draft: DomainDraft,
        options: &Options,
        files: &mut Vec<RuleDocument>,
    ) -> Domain {
        self.domain = Arc::clone(&draft.name);
        self.defined.clear();
        let denied_requests = self.denied_requests(&draft.documents);
        let (first, first_rule) = (files.len(), self.rules.len());
        let count = draft.documents.iter().map(|document| document.descriptors.len()).sum();
        let mut descriptors = Vec::with_capacity(draft.documents.len());
        for document in draft.documents {
            let (path, version) = (Arc::clone(&document.file), document.version);
            files.push(RuleDocument { path, domain: Arc::clone(&draft.name), rules: 0, version });
            descriptors.push(document.descriptors);
        }
        // Each document is freed when it is compiled.
        let with_files = (first..).zip(descriptors);
        let with_file = |(file, items): (usize, Vec<RawDescriptor>)| {
            items.into_iter().map(move |item| (file, item))
        };
        let mut root = self.level(files, count, &mut with_files.flat_map(with_file));
        let rules = &mut self.rules[first_rule..];
        if rule_names::make_unique(rules, &mut self.report) {
            root.use_rules(rules, first_rule);
        }
        self.check_replaces();
        Domain {
            name: draft.name,
            root,
            denied_requests: denied_requests.unwrap_or(options.denied_requests),
        }
    }

    /// The `denied_requests` of a domain. Files that set it must agree.
    fn denied_requests(&mut self, documents: &[Document]) -> Option<DeniedRequests> {
        let mut first: Option<(DeniedRequests, Location)> = None;
        for document in documents {
            let Some(Field { at, value: Some(value) }) = document.denied_requests else { continue };
            let location = at.in_file(&document.file);
            match &first {
                Some((other, earlier)) if *other != value => {
                    let what = format!("`denied_requests` differs from {earlier}");
                    let hint = "write the same in all files of the domain, or in only one";
                    self.report.error(location, what, hint);
                }
                Some(_) => {}
                None => first = Some((value, location)),
            }
        }
        first.map(|(value, _)| value)
    }

    /// Compiles the `count` descriptors of a level, each with the index of its file in `files`.
    fn level(
        &mut self,
        files: &mut [RuleDocument],
        count: usize,
        descriptors: &mut dyn Iterator<Item = (usize, RawDescriptor)>,
    ) -> Level {
        let mut different = DifferentNodes::with_capacity(count);
        let mut states = LevelStates::default();
        let mut nodes: Vec<RuleTreeNode> = Vec::with_capacity(count);
        for (file, mut descriptor) in descriptors {
            let location = descriptor.location(&files[file].path);
            if self.path.len() >= LEVELS_MAX {
                let what = format!("rules nested more than {LEVELS_MAX} levels deep");
                self.report.error(location, what, "flatten the rules");
                break;
            }
            let children = std::mem::take(&mut descriptor.descriptors);
            let mut compiler =
                EntryMatcherCompiler { location: &location, report: &mut self.report };
            let entry_matcher = Arc::new(compiler.entry_matcher(&descriptor, &mut self.regexes));
            if let Err((what, hint)) = states.add(&entry_matcher) {
                self.report.error(location.clone(), what, hint);
            }
            if entry_matcher.key.is_empty() {
                // The missing key is reported already. Two such descriptors are no duplicates.
            } else if let Some(first) = different.earlier(&nodes, &entry_matcher) {
                let text = match &entry_matcher.matcher {
                    Matcher::Any => format!("`{}`", entry_matcher.key),
                    other => format!(
                        "`{}` with {} `{}`",
                        entry_matcher.key,
                        other.noun(),
                        other.source()
                    ),
                };
                let what = format!("{text} is already defined at {}", first.location());
                self.report.error(location.clone(), what, "join the two");
            }
            self.path.push(Arc::clone(&entry_matcher));
            let rule = self.rule(&descriptor, &location);
            files[file].rules += usize::from(rule.is_some());
            let children = (!children.is_empty()).then(|| {
                let (count, children) = (children.len(), children.into_iter());
                Box::new(self.level(files, count, &mut children.map(|child| (file, child))))
            });
            self.path.pop();
            let limit = rule.map_or_else(|| NodeLimit::None(Box::new(location)), NodeLimit::Rule);
            nodes.push(RuleTreeNode { entry_matcher, limit, children });
        }
        Level::new(nodes)
    }

    /// Adds the rule of a descriptor, if it has one.
    fn rule(&mut self, descriptor: &RawDescriptor, location: &Location) -> Option<Rule> {
        let Some(raw) = descriptor.rate_limit.as_deref() else {
            self.warn_of_idle_flags(descriptor, location);
            return None;
        };
        let mut limits = LimitReader { file: &location.file, report: &mut self.report };
        let LimitFields { limit, mode, reserve, on_error, log, what_if } = limits.limit(raw);
        let keys = self.path.iter().map(|node| &*node.key);
        let cost = limits.cost(raw, limit.as_ref(), keys);
        let name = raw.name.as_ref().and_then(|name| name.value.clone());
        let name = name.filter(|name| !name.is_empty());
        self.defined.extend(name.clone());
        let replaces = self.replaces(raw, location);
        // A rule with a wrong limit stays in the tree, so that its descendants are checked too.
        let limit = limit.unwrap_or(RuleLimit::Unlimited);
        let limit_from = self.limit_from(raw, &limit, location);
        let display_name = name.clone().unwrap_or_else(|| path_selector(&self.path));
        let metadata = descriptor.metadata.as_ref().and_then(|metadata| metadata.value.clone());
        let index = self.rules.len();
        let name_id = name.as_ref().map(|name| self.number(name));
        let overlays = descriptor.overlays.clone();
        let is_rare = !replaces.is_empty() || !overlays.is_empty();
        let rare = is_rare.then(|| Box::new(RareRuleFields { replaces, overlays }));
        let fields = RuleFields {
            id: rule::identity(&self.domain, &self.path, &limit),
            domain: Arc::clone(&self.domain),
            display_name,
            name_id,
            name,
            rare,
            limit,
            cost,
            what_if: what_if.map(|limit| rule::what_if_limit(&self.domain, &self.path, limit)),
            limit_from,
            reserve,
            on_error,
            mode,
            over_limit_cache: raw.over_limit_cache.as_ref().and_then(|flag| flag.value)
                != Some(false),
            usage: is_on(raw.usage.as_ref()),
            log,
            shadow_mode: is_on(descriptor.shadow_mode.as_ref()),
            quota_mode: is_on(descriptor.quota_mode.as_ref()),
            metadata: metadata.map(Arc::new),
            location: location.clone(),
            detailed_metric: is_on(descriptor.detailed_metric.as_ref()),
            path: self.path.clone().into(),
        };
        let rule = Rule::new(index, Arc::new(fields));
        self.rules.push(rule.clone());
        Some(rule)
    }

    fn replaces(&mut self, raw: &RawRateLimit, location: &Location) -> Vec<NameId> {
        let own = raw.name.as_ref().and_then(|name| name.value.as_deref());
        let mut numbers = Vec::new();
        for target in &raw.replaces {
            let at = target.at.in_file(&location.file);
            let Some(name) = &target.value else { continue };
            if name.is_empty() {
                let what = "an item of `replaces` has no name";
                self.report.error(at, what, "write `- name: other_rule`");
            } else if own == Some(name) {
                let what = format!("rule `{name}` replaces itself");
                self.report.error(at, what, "name another rule, or remove the item");
            } else {
                numbers.push(self.number(name));
                self.replaced.push((at, Arc::clone(name)));
            }
        }
        numbers
    }

    fn check_replaces(&mut self) {
        for (location, name) in std::mem::take(&mut self.replaced) {
            // The missing name may be defined in a part that could not be read.
            if self.defined.contains(&name) || self.report.incomplete {
                continue;
            }
            let what = format!("no rule of domain `{}` is called `{name}`", self.domain);
            let mut names: Vec<&str> = self.defined.iter().map(|name| &**name).collect();
            names.sort_unstable();
            let hint = match nearest(&name, names) {
                Some(meant) => format!("did you mean `{meant}`?"),
                None => "`replaces` takes the `name` of another `rate_limit`".to_owned(),
            };
            self.report.error(location, what, hint);
        }
    }

    fn number(&mut self, name: &Arc<str>) -> NameId {
        let next = u32::try_from(self.names.len()).expect("a file bound keeps names below 2^32");
        *self.names.entry(Arc::clone(name)).or_insert(NameId(next))
    }

    fn warn_of_idle_flags(&mut self, descriptor: &RawDescriptor, location: &Location) {
        let at = |flag: &Option<Field<bool>>| {
            flag.as_ref().filter(|flag| flag.value == Some(true)).map(|flag| flag.at)
        };
        let idle: [(&str, Option<Position>); 4] = [
            ("shadow_mode", at(&descriptor.shadow_mode)),
            ("quota_mode", at(&descriptor.quota_mode)),
            ("detailed_metric", at(&descriptor.detailed_metric)),
            ("metadata", descriptor.metadata.as_ref().map(|metadata| metadata.at)),
        ];
        for (name, at) in idle {
            if let Some(at) = at {
                let what = format!("`{name}` does nothing: this descriptor has no `rate_limit`");
                let hint = "move it to the descriptor that has one";
                self.report.warn(at.in_file(&location.file), what, hint);
            }
        }
    }
}

/// The number of limits of the descriptors and below them. The depth is that of a file.
fn count_limits(descriptors: &[RawDescriptor]) -> usize {
    let count = |one: &RawDescriptor| {
        usize::from(one.rate_limit.is_some()) + count_limits(&one.descriptors)
    };
    descriptors.iter().map(count).sum()
}

fn is_on(flag: Option<&Field<bool>>) -> bool {
    flag.and_then(|flag| flag.value).unwrap_or(false)
}
