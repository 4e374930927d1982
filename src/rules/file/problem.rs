//! Collects the problems of rule files: location, problem and fix.

use std::fmt;
use std::sync::Arc;

use serde::{Serialize, Serializer};

use crate::escape::one_line;
pub(in crate::rules) use crate::yaml::Position;

/// A file with a position.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Location {
    /// The file as the user named it.
    #[serde(serialize_with = "text")]
    pub file: Arc<str>,
    /// Line number from 1; 0 when the whole file or folder is meant.
    pub line: usize,
    /// Column number from 1, in characters; 0 when the whole file or folder is meant.
    pub column: usize,
}

impl Location {
    /// A file or folder as a whole.
    pub fn whole(file: &Arc<str>) -> Location {
        Location { file: Arc::clone(file), line: 0, column: 0 }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => f.write_str(&one_line(&self.file)),
            line => write!(f, "{}:{line}:{}", one_line(&self.file), self.column),
        }
    }
}

fn text<S: Serializer>(text: &Arc<str>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(text)
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
        Location { file: Arc::clone(file), line: self.line as usize, column: self.column as usize }
    }
}

/// The most errors, and the most warnings, of one load. A hostile file could cause millions.
const PROBLEMS_MAX: usize = 1_000;

/// Collects every problem of a load.
#[derive(Debug, Default, PartialEq, Eq)]
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
        if self.errors.len() < PROBLEMS_MAX {
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

    /// All errors and warnings so far.
    pub(super) fn problems(&self) -> impl Iterator<Item = &RuleProblem> {
        self.errors.iter().chain(&self.warnings)
    }

    /// Returns the warnings, or every error in the order of files and lines.
    pub(in crate::rules) fn finish(mut self) -> Result<Vec<RuleProblem>, Vec<RuleProblem>> {
        self.warnings.sort();
        if self.errors.is_empty() {
            return Ok(self.warnings);
        }
        self.errors.sort();
        if self.unlisted > 0 {
            let last = self.errors.last().expect("there is at least one error").location.clone();
            let what = format!("{} more errors are not listed", self.unlisted);
            self.errors.push(RuleProblem {
                location: Location::whole(&last.file),
                what,
                hint: String::new(),
            });
        }
        Err(self.errors)
    }
}
