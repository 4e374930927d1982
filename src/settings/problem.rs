//! Problems: what is wrong with the settings, said so that the reader knows what to write.

use std::fmt;

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The file cannot be read.
    #[error("{file}: cannot be read ({reason}); name an existing file with --config")]
    Unreadable {
        /// As the user named it.
        file: String,
        /// The operating system's words.
        reason: String,
    },
    /// The file is not YAML, or not of the right shape at its root.
    #[error("{file}: not a settings file: {reason}")]
    NotYaml {
        /// As the user named it.
        file: String,
        /// The parser's words, with line and column.
        reason: String,
    },
    /// Nothing is called that.
    #[error("{origin}: there is no setting `{key}`{}", hint(.nearest))]
    UnknownKey {
        /// The file, variable or flag it stands in.
        origin: String,
        /// The key as written.
        key: String,
        /// A setting with a similar name.
        nearest: Option<String>,
    },
    /// The value cannot be used.
    #[error("{origin}: {key}: {value:?} {what}")]
    BadValue {
        /// The file, variable or flag it stands in.
        origin: String,
        /// The setting.
        key: String,
        /// The value as written; passwords masked.
        value: String,
        /// What is wrong with it, and what to write instead.
        what: String,
    },
    /// A list, a section or nothing where something else belongs.
    #[error("{origin}: {key} {what}")]
    BadShape {
        /// The file, variable or flag it stands in.
        origin: String,
        /// The setting or section.
        key: String,
        /// What it is, and what to write.
        what: &'static str,
    },
    /// Two settings that cannot both hold.
    #[error("{first} and {second} are both {value}; give each listener an address of its own")]
    SameAddress {
        /// One setting.
        first: &'static str,
        /// The other.
        second: &'static str,
        /// Their common address.
        value: String,
    },
    /// A variable of envoyproxy/ratelimit's whose meaning cannot be had, and must not be ignored.
    #[error("{name}={value}: {what}")]
    Unsupported {
        /// The variable.
        name: &'static str,
        /// Its value.
        value: String,
        /// Why it cannot be ignored, and what to do.
        what: &'static str,
    },
}

/// All that is wrong; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems(pub Vec<Problem>);

impl fmt::Display for Problems {
    /// One line each.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.0.iter().enumerate() {
            let line_end = if index == 0 { "" } else { "\n" };
            write!(f, "{line_end}{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

fn hint(nearest: &Option<String>) -> String {
    match nearest {
        Some(name) => format!("; did you mean `{name}`?"),
        None => "; docs/settings.md lists them all".to_owned(),
    }
}
