//! Groups documents by domain, and reports a domain that is defined twice.

use std::collections::HashMap;
use std::sync::Arc;

use crate::rules::file::model::Document;
use crate::rules::file::options::Options;
use crate::rules::file::problem::{Location, Report};

/// The documents of one domain.
pub(super) struct DomainDraft {
    pub(super) name: Arc<str>,
    /// Where the domain is named first.
    location: Location,
    pub(super) documents: Vec<Document>,
}

/// Groups documents by domain, in order of first appearance. A document without a domain is a group
/// by itself, so that its other problems are found too.
pub(super) fn domain_drafts(
    documents: Vec<Document>,
    options: &Options,
    report: &mut Report,
) -> Vec<DomainDraft> {
    let mut drafts: Vec<DomainDraft> = Vec::new();
    let mut by_name: HashMap<Arc<str>, usize> = HashMap::new();
    for document in documents {
        let written = document.domain.clone().and_then(|domain| Some((domain.at, domain.value?)));
        let Some((at, name)) = written.filter(|(_, name)| !name.is_empty()) else {
            let location = document.at.in_file(&document.file);
            drafts.push(DomainDraft { name: Arc::from(""), location, documents: vec![document] });
            continue;
        };
        if let Some(index) = by_name.get(&name) {
            let draft = &mut drafts[*index];
            let is_xds = draft.documents[0].version.is_some();
            let first = (&draft.location, is_xds);
            let second = (at.in_file(&document.file), document.version.is_some());
            if !options.merge_domains || second.1 != is_xds {
                report_duplicate(&name, first, second, report);
            }
            draft.documents.push(document);
            continue;
        }
        by_name.insert(Arc::clone(&name), drafts.len());
        let location = at.in_file(&document.file);
        drafts.push(DomainDraft { name, location, documents: vec![document] });
    }
    drafts
}

/// Reports a second definition of a domain. A domain of a file and of a resource by xDS is an error of
/// the file.
fn report_duplicate(
    name: &str,
    (first, first_is_xds): (&Location, bool),
    (second, second_is_xds): (Location, bool),
    report: &mut Report,
) {
    let hint = match (first_is_xds, second_is_xds) {
        (false, false) => "join the two, or allow it with `rules.merge_domains: true`",
        _ => "name the domain differently, or remove it from one of the two sources",
    };
    let (at, other) =
        if second_is_xds { (first.clone(), &second) } else { (second.clone(), first) };
    report.error(at, format!("domain `{name}` is already defined at {other}"), hint);
}
