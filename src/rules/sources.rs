//! Everything that rules are compiled from: rule files, overlays, and resources by xDS.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;

use super::compile::Compiler;
use super::excerpt::shorten;
use super::file::options::Options;
use super::file::problem::{Location, Report, RuleProblem};
use super::file::source::{RuleFiles, SourceFile};
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
        joined_digest(RuleFiles::read_digest(paths), RuleFiles::read_digest(overlay_paths))
    }

    /// A hash of the names, the texts and the read errors of all files, without rules by xDS.
    pub fn digest(&self) -> u64 {
        joined_digest(self.files.digest(), self.overlays.digest())
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
        self.compile_with(&self.xds, options, None)
    }

    /// Like [`compile`](Self::compile), with these rules by xDS. Rules that are equal to those of `earlier`
    /// share their memory.
    pub fn compile_with(
        &self,
        xds: &XdsRules,
        options: &Options,
        earlier: Option<&RuleSet>,
    ) -> Result<(RuleSet, Vec<RuleProblem>), Vec<RuleProblem>> {
        let report = self.files.report.clone();
        compile_all(&self.files.files, &self.overlays, xds, (options, report, earlier))
    }

    /// Like [`compile_with`](Self::compile_with) with its own rules by xDS. The text of each rule file is
    /// freed when it is compiled, and then the sources have no rule files.
    pub fn compile_once(
        &mut self,
        options: &Options,
        earlier: Option<&RuleSet>,
    ) -> Result<(RuleSet, Vec<RuleProblem>), Vec<RuleProblem>> {
        let report = self.files.report.clone();
        let files = std::mem::take(&mut self.files.files);
        compile_all(files, &self.overlays, &self.xds, (options, report, earlier))
    }
}

/// The hash of the files and the overlays with these hashes.
fn joined_digest(files: u64, overlays: u64) -> u64 {
    let mut hasher = DefaultHasher::new();
    (files, overlays).hash(&mut hasher);
    hasher.finish()
}

/// Compiles all sources. `report` has the problems of reading the files.
fn compile_all<F: Borrow<SourceFile>>(
    files: impl IntoIterator<Item = F>,
    overlays: &RuleFiles,
    xds: &XdsRules,
    (options, mut report, earlier): (&Options, Report, Option<&RuleSet>),
) -> Result<(RuleSet, Vec<RuleProblem>), Vec<RuleProblem>> {
    let overlays = Overlays::read(overlays, options, &mut report);
    let mut pass = overlays.pass();
    let mut compiler = Compiler::new(options, report, earlier);
    for file in files {
        compiler.add_file(file.borrow(), &mut |document| pass.apply(document));
    }
    for domain in xds.domains(&compiler.last_files(), &mut compiler.report) {
        for mut document in domain.documents(&mut compiler.report) {
            pass.apply(&mut document);
            compiler.add_document(document);
        }
    }
    pass.finish(&mut compiler.report);
    compiler.finish()
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
