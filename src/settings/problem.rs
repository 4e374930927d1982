//! Problems of settings. Each message names a fix.

use std::fmt;

use crate::escape::one_line;

/// One problem.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The file cannot be read.
    #[error("{file}: cannot be read ({reason}); name an existing file with --config")]
    Unreadable {
        /// The path as the user wrote it.
        file: String,
        /// Why it cannot be read.
        reason: String,
    },
    /// The file is not YAML, or its root is not a map of sections.
    #[error("{origin}: {what}; {hint}")]
    Syntax {
        /// File, line and column.
        origin: String,
        /// The problem.
        what: String,
        /// The fix.
        hint: &'static str,
    },
    /// No setting has this name.
    #[error("{origin}: there is no setting `{key}`{}", hint(.nearest))]
    UnknownKey {
        /// The file position, variable or flag.
        origin: String,
        /// The key as written.
        key: String,
        /// A setting with a similar name.
        nearest: Option<String>,
    },
    /// The value is not valid.
    #[error("{origin}: {key}: {value:?} {what}")]
    BadValue {
        /// The file position, variable or flag.
        origin: String,
        /// The setting.
        key: String,
        /// The value as written; passwords masked.
        value: String,
        /// The problem, and what to write instead.
        what: String,
    },
    /// A list, a section or nothing where another kind of value is required.
    #[error("{origin}: {key} {what}")]
    BadShape {
        /// The file position, variable or flag.
        origin: String,
        /// The setting or section.
        key: String,
        /// The kind of value in the file, and the required one.
        what: &'static str,
    },
    /// Two listeners with one address.
    #[error("{first} and {second} are both {value}; give each listener its own address")]
    SameAddress {
        /// One setting.
        first: &'static str,
        /// The other setting.
        second: &'static str,
        /// The address of both.
        value: String,
    },
    /// Other settings that are each valid, but not together. The text names them and the fix.
    #[error("{0}")]
    Combination(String),
    /// A variable of envoyproxy/ratelimit that weir does not support and must not ignore.
    #[error("{name}={value}: {what}")]
    Unsupported {
        /// The variable.
        name: &'static str,
        /// The variable's value.
        value: String,
        /// Why it cannot be ignored, and what to do.
        what: &'static str,
    },
}

/// All problems; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems(pub Vec<Problem>);

impl fmt::Display for Problems {
    /// Writes one line per problem, with special characters of names and values escaped.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.0.iter().enumerate() {
            let line_end = if index == 0 { "" } else { "\n" };
            write!(f, "{line_end}{}", one_line(&problem.to_string()))?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

fn hint(nearest: &Option<String>) -> String {
    match nearest {
        Some(name) => format!("; did you mean `{name}`?"),
        None => "; docs/reference/settings.md lists them all".to_owned(),
    }
}
