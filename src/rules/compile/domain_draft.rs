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
            if !options.merge_domains {
                let what = format!("domain `{name}` is already defined at {}", draft.location);
                let hint = "join the two, or allow it with `rules.merge_domains: true`";
                report.error(at.in_file(&document.file), what, hint);
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
