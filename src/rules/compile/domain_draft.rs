//! What is known of a domain while its documents are compiled one by one.

use std::collections::HashSet;
use std::sync::Arc;

use super::level_draft::LevelDraft;
use crate::rules::RuleDocument;
use crate::rules::file::model::Document;
use crate::rules::file::options::DeniedRequests;
use crate::rules::file::problem::{Location, Report};
use crate::rules::file::reader::Field;
use crate::rules::lookup::rule::Rule;
use crate::spelling::nearest;

/// The compiled part of a domain.
#[derive(Default)]
pub(super) struct DomainDraft {
    pub(super) name: Arc<str>,
    /// Where the domain is named first. `None` for a document without a domain, which is a draft by itself,
    /// so that its other problems are found too.
    pub(super) location: Option<Location>,
    pub(super) files: Vec<RuleDocument>,
    pub(super) root: LevelDraft,
    /// The rules. Their indexes count from the first rule of the domain.
    pub(super) rules: Vec<Rule>,
    /// The `name` fields.
    pub(super) names: HashSet<Arc<str>>,
    /// The items of `replaces`, checked when all names are known.
    pub(super) replaced: Vec<(Location, Arc<str>)>,
    denied_requests: Option<(DeniedRequests, Location)>,
}

impl DomainDraft {
    /// A domain without documents. `location`: see [`DomainDraft::location`].
    pub(super) fn new(name: Arc<str>, location: Option<Location>) -> DomainDraft {
        DomainDraft { name, location, ..DomainDraft::default() }
    }

    /// What happens to the hits that a denied request of the domain has already taken, if a file sets it.
    pub(super) fn denied_requests(&self) -> Option<DeniedRequests> {
        self.denied_requests.as_ref().map(|(value, _)| *value)
    }

    /// Adds the `denied_requests` of a document. Files that set it must agree.
    pub(super) fn add_denied_requests(&mut self, document: &Document, report: &mut Report) {
        let Some(Field { at, value: Some(value) }) = document.denied_requests else { return };
        let location = at.in_file(&document.file);
        match &self.denied_requests {
            Some((other, earlier)) if *other != value => {
                let what = format!("`denied_requests` differs from {earlier}");
                let hint = "write the same in all files of the domain, or in only one";
                report.error(location, what, hint);
            }
            Some(_) => {}
            None => self.denied_requests = Some((value, location)),
        }
    }

    /// Reports the items of `replaces` that name no rule.
    pub(super) fn check_replaces(&mut self, report: &mut Report) {
        for (location, name) in std::mem::take(&mut self.replaced) {
            // The missing name may be defined in a part that could not be read.
            if self.names.contains(&name) || report.incomplete {
                continue;
            }
            let what = format!("no rule of domain `{}` is called `{name}`", self.name);
            let mut names: Vec<&str> = self.names.iter().map(|name| &**name).collect();
            names.sort_unstable();
            let hint = match nearest(&name, names) {
                Some(meant) => format!("did you mean `{meant}`?"),
                None => "`replaces` takes the `name` of another `rate_limit`".to_owned(),
            };
            report.error(location, what, hint);
        }
    }
}
