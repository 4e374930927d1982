//! Declares the settings `rules.*`.

use std::path::PathBuf;

use crate::rules::{self, DeniedRequests, UnknownFields};
use crate::settings::format::{choice, optional_paths, paths, switch};
use crate::settings::section::section;

section! {
    /// The source of rules, and how they are read.
    pub struct RulesSettings {
        /// Files, and folders of `*.yaml` and `*.yml`, relative to the working directory. A list in
        /// the file; separated by commas in a variable. With `rules.xds.server`, the default is no
        /// path.
        paths: Vec<PathBuf> = "rules/", paths();
        /// Overlay files, and folders of them. Overlays change the limits of rules
        /// ([overlays.md](../guides/overlays.md)). A list in the file; separated by commas in a variable.
        overlay_paths: Vec<PathBuf> = "[]", optional_paths();
        /// Allow several files to define one domain.
        merge_domains: bool = "false", switch();
        /// Result of an unknown or misplaced field in a rule file: `error` refuses the file, `warn`
        /// ignores the field and logs a warning.
        unknown_fields: UnknownFields = "error", choice([
            ("error", UnknownFields::Error),
            ("warn", UnknownFields::Warn),
        ]);
        /// Start even if the rules cannot be loaded. Every request passes until a reload succeeds.
        /// With `rules.xds.server`, `false` means that `/readyz` fails until the server has sent rules.
        /// Errors of rule files and overlays then prevent the start in any case.
        start_without_rules: bool = "false", switch();
        /// Reload the rules when the files change. SIGHUP reloads them in any case
        /// ([reloading.md](../operate/reloading.md)).
        watch: bool = "true", switch();
        /// Effect of a denied request on the counters of its other descriptors: `count` keeps the
        /// hits, `free` gives them back. `denied_requests` in a rule file takes precedence.
        denied_requests: DeniedRequests = "count", choice([
            ("count", DeniedRequests::Count),
            ("free", DeniedRequests::Free),
        ]);
    }
}

impl RulesSettings {
    /// The settings that `rules` takes.
    pub fn options(&self) -> rules::Options {
        rules::Options {
            merge_domains: self.merge_domains,
            unknown_fields: self.unknown_fields,
            denied_requests: self.denied_requests,
            ..rules::Options::default()
        }
    }
}
