//! Everything that rules are compiled from: rule files, overlays, and resources by xDS.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;
use std::sync::Arc;

use super::compile;
use super::excerpt::shorten;
use super::file::options::Options;
use super::file::problem::{Location, RuleProblem};
use super::file::source::RuleFiles;
use super::overlay::Overlays;
use super::xds::XdsRules;
use super::{RuleDocument, RuleSet};

/// The sources of rules, read but not compiled.
#[derive(Clone, Debug, Default)]
pub struct RuleSources {
    /// The rule files.
    pub files: RuleFiles,
    /// The overlay files.
    pub overlays: RuleFiles,
    /// The rules by xDS.
    pub xds: XdsRules,
}

impl RuleSources {
    /// Reads rule files and overlay files; without rules by xDS.
    pub fn read(paths: &[PathBuf], overlay_paths: &[PathBuf]) -> RuleSources {
        let (files, overlays) = (RuleFiles::read(paths), RuleFiles::read(overlay_paths));
        RuleSources { files, overlays, xds: XdsRules::default() }
    }

    /// A hash of the names, the texts and the read errors of all files, read once.
    pub fn digest_of(paths: &[PathBuf], overlay_paths: &[PathBuf]) -> u64 {
        let (files, overlays) = (RuleFiles::read_once(paths), RuleFiles::read_once(overlay_paths));
        RuleSources { files, overlays, xds: XdsRules::default() }.digest()
    }

    /// A hash of the names, the texts and the read errors of all files, without rules by xDS.
    pub fn digest(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (self.files.digest(), self.overlays.digest()).hash(&mut hasher);
        hasher.finish()
    }

    /// The paths without a file: missing files, and folders without `*.yaml` and `*.yml`.
    pub fn without_files(&self) -> Vec<PathBuf> {
        [self.files.without_files(), self.overlays.without_files()].concat()
    }

    /// Compiles all sources into one rule set with warnings, or returns every error.
    ///
    /// # Errors
    /// The errors of rule files and overlays. Rules by xDS cause none. They are left out for a domain
    /// that a file defines too.
    pub fn compile(
        &self,
        options: &Options,
    ) -> Result<(RuleSet, Vec<RuleProblem>), Vec<RuleProblem>> {
        self.compile_with(&self.xds, options)
    }

    /// Like [`compile`](Self::compile), with these rules by xDS.
    pub fn compile_with(
        &self,
        xds: &XdsRules,
        options: &Options,
    ) -> Result<(RuleSet, Vec<RuleProblem>), Vec<RuleProblem>> {
        let mut report = self.files.report.clone();
        let mut documents = compile::documents(&self.files.files, options, &mut report);
        let of_files: HashMap<Arc<str>, Arc<str>> = documents
            .iter()
            .filter_map(|one| Some((one.domain.as_ref()?.value.clone()?, Arc::clone(&one.file))))
            .collect();
        documents.extend(xds.documents(&of_files, &mut report));
        Overlays::read(&self.overlays, options, &mut report).apply(&mut documents, &mut report);
        compile::compile_documents(documents, options, report)
    }
}

/// The errors of files in `next` that define a domain whose rules in `active` are by xDS.
pub fn domains_by_xds(active: &RuleSet, next: &RuleSet) -> Vec<RuleProblem> {
    let by_xds = active.files().iter().filter(|source| source.version.is_some());
    let by_xds: HashMap<&str, &str> =
        by_xds.map(|source| (&*source.domain, &*source.path)).collect();
    let of_files = next.files().iter().filter(|source| source.version.is_none());
    let clash = |file: &RuleDocument| {
        let resource = by_xds.get(&*file.domain)?;
        let domain = shorten(&file.domain);
        let what = format!("the resource {} defines domain '{domain}' too", shorten(resource));
        let hint = "remove the domain from the file, or from the control plane".to_owned();
        Some(RuleProblem { location: Location::whole(&file.path), what, hint })
    };
    of_files.filter_map(clash).collect()
}
