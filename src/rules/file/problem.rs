//! Collects the problems of rule files: location, problem and fix.

use std::fmt;
use std::sync::Arc;

use serde::{Serialize, Serializer};

use crate::escape::{excerpt, one_line};
pub(in crate::rules) use crate::yaml::Position;

/// What precedes the name of a resource by xDS in [`Location::file`].
pub(in crate::rules) const XDS_PREFIX: &str = "xds:";

/// Most characters of the name of a resource, and of a version, in a message.
const NAME_CHARS_MAX: usize = 200;

/// A file with a position, or a resource by xDS.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Location {
    /// The file as the user named it, or `xds:` with the name of the resource.
    #[serde(serialize_with = "text")]
    pub file: Arc<str>,
    /// Line number from 1; 0 when the whole file or folder is meant.
    pub line: usize,
    /// Column number from 1, in characters; 0 when the whole file or folder is meant.
    pub column: usize,
    /// The version of the xDS response that sent this part of a resource.
    #[serde(serialize_with = "optional_text", skip_serializing_if = "Option::is_none")]
    pub version: Option<Arc<str>>,
}

impl Location {
    /// A file, a folder or a resource as a whole.
    pub fn whole(file: &Arc<str>) -> Location {
        Location { file: Arc::clone(file), line: 0, column: 0, version: None }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.line, &self.version) {
            (0, None) if self.file.starts_with(XDS_PREFIX) => {
                f.write_str(&excerpt(&self.file, NAME_CHARS_MAX))
            }
            (0, None) => f.write_str(&one_line(&self.file)),
            (0, Some(version)) => {
                let [file, version] =
                    [&self.file, version].map(|text| excerpt(text, NAME_CHARS_MAX));
                write!(f, "{file} version {version}")
            }
            (line, _) => write!(f, "{}:{line}:{}", one_line(&self.file), self.column),
        }
    }
}

fn text<S: Serializer>(text: &Arc<str>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(text)
}

fn optional_text<S: Serializer>(text: &Option<Arc<str>>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_some(&text.as_deref())
}

/// An error or a warning about a rule file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RuleProblem {
    /// The location of the problem.
    pub location: Location,
    /// The problem, with the name of the field.
    pub what: String,
    /// The fix; may be empty.
    pub hint: String,
}

impl fmt::Display for RuleProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.location, one_line(&self.what))?;
        if !self.hint.is_empty() {
            write!(f, "; {}", one_line(&self.hint))?;
        }
        Ok(())
    }
}

impl Position {
    pub(in crate::rules) fn in_file(self, file: &Arc<str>) -> Location {
        Location { line: self.line as usize, column: self.column as usize, ..Location::whole(file) }
    }
}

/// The most errors, and the most warnings, of one load. A hostile file could cause millions.
const PROBLEMS_MAX: usize = 1_000;

/// Collects every problem of a load.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::rules) struct Report {
    errors: Vec<RuleProblem>,
    warnings: Vec<RuleProblem>,
    unlisted: usize,
    /// Some rules could not be read, so a missing name may be defined in them.
    pub(in crate::rules) incomplete: bool,
}

impl Report {
    pub(in crate::rules) fn error(
        &mut self,
        location: Location,
        what: impl Into<String>,
        hint: impl Into<String>,
    ) {
        if self.lists_more() {
            self.errors.push(RuleProblem { location, what: what.into(), hint: hint.into() });
        } else {
            self.unlisted += 1;
        }
    }

    pub(in crate::rules) fn warn(
        &mut self,
        location: Location,
        what: impl Into<String>,
        hint: impl Into<String>,
    ) {
        if self.warnings.len() < PROBLEMS_MAX {
            self.warnings.push(RuleProblem { location, what: what.into(), hint: hint.into() });
        }
    }

    /// Whether the next error is listed.
    pub(in crate::rules) fn lists_more(&self) -> bool {
        self.errors.len() < PROBLEMS_MAX
    }

    /// Adds the errors of another report.
    pub(in crate::rules) fn add_errors(&mut self, other: &Report) {
        for RuleProblem { location, what, hint } in &other.errors {
            self.error(location.clone(), what, hint);
        }
        self.unlisted += other.unlisted;
    }

    /// All errors and warnings so far.
    pub(super) fn problems(&self) -> impl Iterator<Item = &RuleProblem> {
        self.errors.iter().chain(&self.warnings)
    }

    /// Returns the warnings, or every error in the order of files and lines.
    pub(in crate::rules) fn finish(self) -> Result<Vec<RuleProblem>, Vec<RuleProblem>> {
        let (errors, warnings) = self.into_parts();
        if errors.is_empty() { Ok(warnings) } else { Err(errors) }
    }

    /// The errors and the warnings, each in the order of files and lines.
    pub(in crate::rules) fn into_parts(mut self) -> (Vec<RuleProblem>, Vec<RuleProblem>) {
        self.warnings.sort();
        self.errors.sort();
        let last = self.errors.last().filter(|_| self.unlisted > 0);
        if let Some(location) = last.map(|last| Location::whole(&last.location.file)) {
            let what = format!("{} more errors are not listed", self.unlisted);
            self.errors.push(RuleProblem { location, what, hint: String::new() });
        }
        (self.errors, self.warnings)
    }
}
