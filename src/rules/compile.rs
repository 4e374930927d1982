//! Compiles rule files into a rule set, or reports every problem of every file.

use std::collections::HashMap;
use std::sync::Arc;

use self::domain_draft::DomainDraft;
use self::earlier_rules::EarlierRules;
use self::level_draft::LevelDraft;
use self::limit_reader::{LimitFields, LimitReader};
use self::node::EntryMatcherCompiler;
use self::regex_budget::RegexBudget;
use super::file::model::{Document, RawDescriptor, RawRateLimit};
use super::file::options::Options;
use super::file::problem::{Location, Position, Report, RuleProblem};
use super::file::reader::{Field, FieldReader};
use super::file::source::{RuleFiles, SourceFile};
use super::lookup::matcher::Matcher;
use super::lookup::rule::{
    self, EntryMatcher, NameId, RareRuleFields, Rule, RuleFields, RuleLimit,
};
use super::lookup::tree::{NodeLimit, RuleTreeNode};
use super::show::selector::path_selector;
use super::{Domain, RuleDocument, RuleSet};
use crate::yaml;

mod calendar;
mod changed_limit;
mod cost;
mod domain_draft;
mod duplicates;
mod earlier_rules;
mod level_draft;
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
    report: Report,
) -> Result<(RuleSet, Vec<RuleProblem>), Vec<RuleProblem>> {
    let mut compiler = Compiler::new(options, report, None);
    files.iter().for_each(|file| compiler.add_file(file, &mut |_| {}));
    compiler.finish()
}

/// Compiles one document after the other, so that only one parsed file is in memory. The order of the
/// documents is that of their rules in a domain, and that of the domains.
pub(super) struct Compiler<'a> {
    options: &'a Options,
    pub(super) report: Report,
    earlier: EarlierRules<'a>,
    names: HashMap<Arc<str>, NameId>,
    /// In order of first appearance.
    drafts: Vec<DomainDraft>,
    drafts_by_name: HashMap<Arc<str>, usize>,
    /// The domain of the current document, which is taken from `drafts`.
    domain: DomainDraft,
    path: Vec<Arc<EntryMatcher>>,
    regexes: RegexBudget,
}

impl<'a> Compiler<'a> {
    /// Without documents. `report` has the problems so far. Rules that are equal to those of `earlier` share
    /// their memory.
    pub(super) fn new(
        options: &'a Options,
        report: Report,
        earlier: Option<&'a RuleSet>,
    ) -> Compiler<'a> {
        Compiler {
            options,
            report,
            earlier: EarlierRules::new(earlier.map_or(&[], RuleSet::rules)),
            names: HashMap::new(),
            drafts: Vec::new(),
            drafts_by_name: HashMap::new(),
            domain: DomainDraft::default(),
            path: Vec::new(),
            regexes: RegexBudget::default(),
        }
    }

    /// Adds the documents of a file. `change` may change each one before it is compiled.
    pub(super) fn add_file(&mut self, file: &SourceFile, change: &mut dyn FnMut(&mut Document)) {
        let parsed = yaml::parse(&file.text);
        self.report.incomplete |= !parsed.complete;
        for fault in parsed.faults {
            self.report.error(fault.at.in_file(&file.name), fault.what, fault.hint);
        }
        let mut found = false;
        for node in parsed.documents {
            let (unknown, report) = (self.options.unknown_fields, &mut self.report);
            let mut reader = FieldReader { file: &file.name, unknown, report };
            let (at, empty) = (node.at, node.is_null());
            if let Some(mut document) = reader.document(node) {
                found = true;
                self.check_domain(&document, at);
                change(&mut document);
                self.add_document(document);
            } else if !empty {
                found = true;
            }
        }
        if !found && parsed.complete {
            let hint = "write `domain: NAME` and `descriptors:`, or remove the file";
            let start = Position { line: 1, column: 1 };
            self.report.error(start.in_file(&file.name), "the file has no rules", hint);
        }
    }

    /// Reports a document without a domain.
    fn check_domain(&mut self, document: &Document, at: Position) {
        let location = at.in_file(&document.file);
        match document.domain.as_ref().map(|domain| domain.value.as_deref()) {
            None => {
                let hint = "write `domain: NAME` at the top of the file";
                self.report.error(location, "`domain` is missing", hint);
            }
            Some(Some("")) => {
                let hint = "write `domain: NAME`, as in the proxy's rate limit filter";
                self.report.error(location, "`domain` is empty", hint);
            }
            _ => {}
        }
    }

    /// Compiles a document as the next one of its domain.
    pub(super) fn add_document(&mut self, document: Document) {
        let place = self.draft_of(&document);
        self.domain = std::mem::take(&mut self.drafts[place]);
        self.domain.add_denied_requests(&document, &mut self.report);
        let domain = Arc::clone(&self.domain.name);
        let Document { file: path, version, descriptors, .. } = document;
        let file = self.domain.files.len();
        self.domain.files.push(RuleDocument { path, domain, rules: 0, version });
        let mut root = std::mem::take(&mut self.domain.root);
        self.add_level(&mut root, file, descriptors);
        self.domain.root = root;
        self.drafts[place] = std::mem::take(&mut self.domain);
    }

    /// The place of the document's domain in `drafts`. Reports a domain that is defined twice.
    fn draft_of(&mut self, document: &Document) -> usize {
        let next = self.drafts.len();
        let written = document.domain.clone().and_then(|domain| Some((domain.at, domain.value?)));
        let Some((at, name)) = written.filter(|(_, name)| !name.is_empty()) else {
            self.drafts.push(DomainDraft::default());
            return next;
        };
        let location = at.in_file(&document.file);
        let Some(place) = self.drafts_by_name.get(&name) else {
            self.drafts_by_name.insert(Arc::clone(&name), next);
            self.drafts.push(DomainDraft::new(name, Some(location)));
            return next;
        };
        if let (false, Some(first)) = (self.options.merge_domains, &self.drafts[*place].location) {
            let what = format!("domain `{name}` is already defined at {first}");
            let hint = "join the two, or allow it with `rules.merge_domains: true`";
            self.report.error(location, what, hint);
        }
        *place
    }

    /// The domains so far, each with the last of its files.
    pub(super) fn last_files(&self) -> HashMap<Arc<str>, Arc<str>> {
        let last_file = |draft: &DomainDraft| {
            Some((Arc::clone(&draft.name), Arc::clone(&draft.files.last()?.path)))
        };
        self.drafts.iter().filter(|draft| !draft.name.is_empty()).filter_map(last_file).collect()
    }

    /// The rule set with warnings, or every error.
    pub(super) fn finish(mut self) -> Result<(RuleSet, Vec<RuleProblem>), Vec<RuleProblem>> {
        let default_denied_requests = self.options.denied_requests;
        let mut set = RuleSet { default_denied_requests, ..RuleSet::default() };
        for draft in self.drafts {
            add_domain(draft, &mut set, &mut self.report);
        }
        set.logs_requests = set.rules.iter().any(|rule| rule.logs_requests());
        let warnings = self.report.finish()?;
        Ok((set, warnings))
    }

    /// Adds descriptors of the file with this index in the domain to a level.
    fn add_level(&mut self, level: &mut LevelDraft, file: usize, items: Vec<RawDescriptor>) {
        level.reserve(items.len());
        for mut descriptor in items {
            let location = descriptor.location(&self.domain.files[file].path);
            if self.path.len() >= LEVELS_MAX {
                let what = format!("rules nested more than {LEVELS_MAX} levels deep");
                self.report.error(location, what, "flatten the rules");
                break;
            }
            let children = std::mem::take(&mut descriptor.descriptors);
            let mut compiler =
                EntryMatcherCompiler { location: &location, report: &mut self.report };
            let entry_matcher = compiler.entry_matcher(&descriptor, &mut self.regexes);
            if let Err((what, hint)) = level.states.add(&entry_matcher) {
                self.report.error(location.clone(), what, hint);
            }
            self.check_duplicate(level, &entry_matcher, &location);
            self.path.push(Arc::new(entry_matcher));
            let rule = self.rule(&descriptor, &location);
            self.domain.files[file].rules += usize::from(rule.is_some());
            let children = (!children.is_empty()).then(|| {
                let mut level = LevelDraft::default();
                self.add_level(&mut level, file, children);
                Box::new(level.finish())
            });
            // Rules have replaced it by an equal one of earlier rules.
            let Some(entry_matcher) = self.path.pop() else { break };
            let limit = rule.map_or_else(|| NodeLimit::None(Box::new(location)), NodeLimit::Rule);
            level.nodes.push(RuleTreeNode { entry_matcher, limit, children });
        }
    }

    /// Reports a node that accepts the same entries as an earlier one of its level.
    fn check_duplicate(&mut self, level: &mut LevelDraft, node: &EntryMatcher, at: &Location) {
        // A missing key is reported already. Two such descriptors are no duplicates.
        if node.key.is_empty() {
            return;
        }
        let Some(first) = level.different.earlier(&level.nodes, node) else { return };
        let text = match &node.matcher {
            Matcher::Any => format!("`{}`", node.key),
            other => format!("`{}` with {} `{}`", node.key, other.noun(), other.source()),
        };
        let what = format!("{text} is already defined at {}", first.location());
        self.report.error(at.clone(), what, "join the two");
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
        self.domain.names.extend(name.clone());
        let replaces = self.replaces(raw, location);
        // A rule with a wrong limit stays in the tree, so that its descendants are checked too.
        let limit = limit.unwrap_or(RuleLimit::Unlimited);
        let limit_from = self.limit_from(raw, &limit, location);
        let display_name = name.clone().unwrap_or_else(|| path_selector(&self.path));
        let metadata = descriptor.metadata.as_ref().and_then(|metadata| metadata.value.clone());
        let index = self.domain.rules.len();
        let name_id = name.as_ref().map(|name| self.number(name));
        let overlays = descriptor.overlays.clone();
        let is_rare = !replaces.is_empty() || !overlays.is_empty();
        let rare = is_rare.then(|| Box::new(RareRuleFields { replaces, overlays }));
        let domain = &self.domain.name;
        let fields = RuleFields {
            id: rule::identity(domain, &self.path, &limit),
            domain: Arc::clone(domain),
            display_name,
            name_id,
            name,
            rare,
            limit,
            cost,
            what_if: what_if.map(|limit| rule::what_if_limit(domain, &self.path, limit)),
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
        let rule = Rule::new(index, self.earlier.share(fields));
        self.path.clone_from_slice(&rule.path);
        self.domain.rules.push(rule.clone());
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
                self.domain.replaced.push((at, Arc::clone(name)));
            }
        }
        numbers
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

/// Adds a complete domain to a rule set.
fn add_domain(mut draft: DomainDraft, set: &mut RuleSet, report: &mut Report) {
    draft.check_replaces(report);
    let denied_requests = draft.denied_requests().unwrap_or(set.default_denied_requests);
    let DomainDraft { name, files, root, mut rules, .. } = draft;
    let mut root = root.finish();
    let has_changed = rule_names::make_unique(&mut rules, report);
    let first = set.rules.len();
    rules.iter_mut().for_each(|rule| rule.index += first);
    if first > 0 || has_changed {
        root.use_rules(&rules);
    }
    set.files.extend(files);
    match first {
        0 => set.rules = rules,
        _ => set.rules.append(&mut rules),
    }
    set.domains.entry(&name, || Domain { root, denied_requests });
}

fn is_on(flag: Option<&Field<bool>>) -> bool {
    flag.and_then(|flag| flag.value).unwrap_or(false)
}
